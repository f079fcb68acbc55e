package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"headroom/internal/each"
)

// Table is rows of text under a header.
type Table struct {
	Head []string
	Rows [][]string
	// Noun is one row in words, for the note of an empty table ("no jobs"); where it
	// is empty, the first column's name is the noun.
	Noun string
	// Fold names the columns that must be equal for rows to become one row: its first
	// column is the set of their names, the others are means. Empty: no folding.
	Fold []string
}

// Table writes rows under head, see TableOf.
func (o *Output) Table(w io.Writer, head []string, rows [][]string) error {
	return o.TableOf(w, Table{Head: head, Rows: rows})
}

// TableOf writes a table: columns aligned by two spaces, or only the first column
// with -o name. An empty cell is printed as "-" inside a row and as nothing at its
// end. Control characters never reach the terminal. An empty table with a header
// prints nothing but a note on stderr. A terminal narrower than the table wraps it, see fit.
func (o *Output) TableOf(w io.Writer, t Table) error {
	if len(t.Rows) == 0 && len(t.Head) > 0 {
		if noun := t.noun(); noun != "" {
			o.note("no " + plural(noun))
		}
		return nil
	}
	if err := o.sortRows(t); err != nil {
		return err
	}
	if o.Format == "name" {
		return writeNames(w, t.Rows)
	}
	t.Rows = t.folded()
	t, err := o.selected(t)
	if err != nil {
		return err
	}
	return o.writeTable(w, t)
}

func (t Table) noun() string {
	if t.Noun != "" {
		return t.Noun
	}
	return strings.ToLower(t.Head[0])
}

// note writes a note to the command's stderr.
func (o *Output) note(text string) {
	if o.cmd != nil {
		Notef(o.cmd.ErrOrStderr(), "%s", text)
	}
}

// sortRows sorts by --sort-by; what is unknown is last.
func (o *Output) sortRows(t Table) error {
	if o.sortBy == "" || len(t.Head) == 0 {
		return nil
	}
	i, err := t.column("--sort-by", o.sortBy)
	if err != nil {
		return err
	}
	slices.SortStableFunc(t.Rows, func(a, b []string) int { return compareCells(cell(a, i), cell(b, i)) })
	return nil
}

// selected is the table with the columns of --columns.
func (o *Output) selected(t Table) (Table, error) {
	if len(o.columns) == 0 || len(t.Head) == 0 {
		return t, nil
	}
	var at []int
	for _, name := range o.columns {
		i, err := t.column("--columns", name)
		if err != nil {
			return t, err
		}
		at = append(at, i)
	}
	pick := func(row []string) []string {
		return each.List(at, func(from int) string { return cell(row, from) })
	}
	rows := each.List(t.Rows, pick)
	t.Head, t.Rows = pick(t.Head), rows
	return t, nil
}

// column is the index of a column by its name in any case, with - or _ for a space.
func (t Table) column(flag, name string) (int, error) {
	fold := strings.NewReplacer("-", " ", "_", " ")
	want := fold.Replace(strings.ToUpper(strings.TrimSpace(name)))
	if i := slices.IndexFunc(t.Head, func(h string) bool { return fold.Replace(strings.ToUpper(h)) == want }); i >= 0 {
		return i, nil
	}
	var names []string
	for _, h := range t.Head {
		if h != "" {
			names = append(names, strings.ToLower(strings.ReplaceAll(h, " ", "-")))
		}
	}
	return 0, noColumn(flag, name, names)
}

// noColumn is the usage error of a column that is not there.
func noColumn(flag, name string, names []string) error {
	e := Usage("%s: no column %q", flag, name)
	e.Hint = didYouMean(nearest(name, names), "columns: "+strings.Join(names, ", "))
	return e
}

func cell(row []string, i int) string {
	if i >= len(row) {
		return ""
	}
	return row[i]
}

func (o *Output) writeTable(w io.Writer, t Table) error {
	lines := make([][]string, 0, len(t.Rows)+1)
	if !o.NoHeaders && len(t.Head) > 0 {
		lines = append(lines, t.Head)
	}
	for _, row := range t.Rows {
		lines = append(lines, printable(row))
	}
	cols, _ := Screen(w)
	lines, width := t.fit(lines, widths(lines), cols, !o.NoHeaders && len(t.Head) > 0)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(o.align(w, line, width))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(Raw(w), b.String()) // its cells are clean
	return err
}

// writeNames prints the first column, for scripts that loop over it.
func writeNames(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		if len(row) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(w, Clean(row[0])); err != nil {
			return err
		}
	}
	return nil
}

func printable(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = Clean(cell)
		if out[i] == "" && i < len(row)-1 {
			out[i] = Unknown
		}
	}
	return out
}

func widths(lines [][]string) []int {
	var width []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
}

func (o *Output) align(w io.Writer, line []string, width []int) string {
	var b strings.Builder
	for i, cell := range line {
		if i == len(line)-1 {
			b.WriteString(o.paint(w, cell, 0))
			break
		}
		b.WriteString(o.paint(w, cell, width[i]+gap))
	}
	return strings.TrimRight(b.String(), " ")
}

// folded is the rows with those that agree in the columns of Fold made one. Rows
// are one only where the same cells are unknown.
func (t Table) folded() [][]string {
	if len(t.Fold) == 0 {
		return t.Rows
	}
	groups := map[string][][]string{}
	var order []string
	for _, row := range t.Rows {
		key := t.foldKey(row)
		if _, known := groups[key]; !known {
			order = append(order, key)
		}
		groups[key] = append(groups[key], row)
	}
	var out [][]string
	for _, key := range order {
		out = append(out, foldRows(groups[key])...)
	}
	return out
}

func (t Table) foldKey(row []string) string {
	var key strings.Builder
	for i, name := range t.Head {
		c := cell(row, i)
		if slices.Contains(t.Fold, name) {
			fmt.Fprintf(&key, "%q ", c)
		} else {
			fmt.Fprintf(&key, "%t ", c == Unknown || c == "")
		}
	}
	return key.String()
}

// foldRows is one row for all, or the rows themselves where a cell has no mean.
func foldRows(rows [][]string) [][]string {
	if len(rows) == 1 {
		return rows
	}
	names := each.Of(rows, func(row []string) string { return cell(row, 0) })
	one := []string{NodeSet(names)}
	for i := 1; i < len(rows[0]); i++ {
		cells := each.Of(rows, func(row []string) string { return cell(row, i) })
		mean, ok := meanCell(cells)
		if !ok {
			return rows
		}
		one = append(one, mean)
	}
	return [][]string{one}
}

// meanCell is the mean of cells of one unit, with the decimals of the first; or the
// cell that all are.
func meanCell(cells []string) (string, bool) {
	if len(slices.Compact(slices.Clone(cells))) == 1 {
		return cells[0], true
	}
	first, ok := quantityOf(cells[0])
	sum := 0.0
	for _, c := range cells {
		q, known := quantityOf(c)
		ok = ok && known && q.unit == first.unit
		sum += q.value
	}
	mean := sum / float64(len(cells))
	if !ok {
		return "", false
	}
	if first.unit == ageUnit {
		return Age(time.Duration(mean * float64(time.Second))), true
	}
	return strconv.FormatFloat(mean, 'f', first.decimals, 64) + first.unit, true
}

// quantity is a number with the text of its unit.
type quantity struct {
	value    float64
	decimals int
	unit     string
}

// ageUnit is the unit of ages, which have a format of their own.
const ageUnit = "age"

var (
	numberCell = regexp.MustCompile(`^([+-]?[0-9]+(?:\.([0-9]+))?)(\s?[A-Za-z%]*)$`)
	dayCell    = regexp.MustCompile(`^([0-9]+)d([0-9]+)h$`)
)

// quantityOf is the number of a cell; ok reports whether there is one.
func quantityOf(text string) (q quantity, ok bool) {
	if m := dayCell.FindStringSubmatch(text); m != nil {
		days, _ := strconv.ParseFloat(m[1], 64)
		hours, _ := strconv.ParseFloat(m[2], 64)
		return quantity{value: (24*days + hours) * time.Hour.Seconds(), unit: ageUnit}, true
	}
	if d, err := time.ParseDuration(text); err == nil && text != "0" {
		return quantity{value: d.Seconds(), unit: ageUnit}, true
	}
	m := numberCell.FindStringSubmatch(text)
	if m == nil {
		return quantity{}, false
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return quantity{value: v, decimals: len(m[2]), unit: m[3]}, err == nil
}

// compareCells orders cells: numbers by value, other text as text, unknown last.
func compareCells(a, b string) int {
	unknownA, unknownB := a == Unknown || a == "", b == Unknown || b == ""
	switch {
	case unknownA && unknownB:
		return 0
	case unknownA:
		return 1
	case unknownB:
		return -1
	}
	x, okX := quantityOf(a)
	if y, okY := quantityOf(b); okX && okY {
		switch {
		case x.value < y.value:
			return -1
		case x.value > y.value:
			return 1
		}
		return 0
	}
	return strings.Compare(a, b)
}
