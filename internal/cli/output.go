package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Output is how a command prints what it was asked for. The zero value prints a
// table.
type Output struct {
	// Format is one of table, wide, json, csv, name; empty stands for table.
	Format string
	// NoHeaders leaves out the first line of tables and CSV.
	NoHeaders bool

	color string
}

// Flags adds -o/--output and --no-headers to cmd and to the commands below it.
func (o *Output) Flags(cmd *cobra.Command) {
	if o.Format == "" {
		o.Format = "table"
	}
	f := cmd.PersistentFlags()
	f.VarP((*formatValue)(&o.Format), "output", "o", "output format: "+strings.Join(formats(), "|"))
	o.colorFlag(cmd)
	f.BoolVar(&o.NoHeaders, "no-headers", o.NoHeaders, "leave out the header line")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that is not there
}

// IsJSON tells whether the command is to print JSON.
func (o *Output) IsJSON() bool { return o.Format == "json" }

// IsWide tells whether the command is to print the additional columns.
func (o *Output) IsWide() bool { return o.Format == "wide" }

// JSON writes v as one indented JSON document and a line break.
func (o *Output) JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLine writes v as one line of JSON, for watches and logs.
func (o *Output) jsonLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table writes rows under head: columns aligned by two spaces, or CSV, or only
// the first column with -o name. An empty cell is printed as "-" inside a row and
// as nothing at its end. Control characters never reach the terminal.
func (o *Output) Table(w io.Writer, head []string, rows [][]string) error {
	switch o.Format {
	case "csv":
		return o.writeCSV(w, head, rows)
	case "name":
		return writeNames(w, rows)
	default:
		return o.writeTable(w, head, rows)
	}
}

func (o *Output) writeTable(w io.Writer, head []string, rows [][]string) error {
	lines := make([][]string, 0, len(rows)+1)
	if !o.NoHeaders && len(head) > 0 {
		lines = append(lines, head)
	}
	for _, row := range rows {
		lines = append(lines, printable(row))
	}
	width := widths(lines)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(align(line, width))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o *Output) writeCSV(w io.Writer, head []string, rows [][]string) error {
	c := csv.NewWriter(w)
	if !o.NoHeaders && len(head) > 0 {
		if err := c.Write(head); err != nil {
			return err
		}
	}
	for _, row := range rows {
		if err := c.Write(known(row)); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// writeNames prints the first column, for scripts that loop over it.
func writeNames(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		if len(row) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(w, clean(row[0])); err != nil {
			return err
		}
	}
	return nil
}

// known is row with unknown values empty, as CSV has them.
func known(row []string) []string {
	out := slices.Clone(row)
	for i, cell := range out {
		if cell == Unknown {
			out[i] = ""
		}
	}
	return out
}

func printable(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = clean(cell)
		if out[i] == "" && i < len(row)-1 {
			out[i] = Unknown
		}
	}
	return out
}

// clean replaces control characters: a name that came over the network must not
// move the cursor of whoever reads it.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
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

func align(line []string, width []int) string {
	var b strings.Builder
	for i, cell := range line {
		b.WriteString(cell)
		if i < len(line)-1 {
			b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// formats are the values of -o, the default first.
func formats() []string { return []string{"table", "wide", "json", "csv", "name"} }

// formatValue is Output.Format as a flag that refuses what it does not know.
type formatValue string

// String is the chosen format.
func (f *formatValue) String() string { return string(*f) }

// Type is the word for the value in help texts.
func (f *formatValue) Type() string { return "format" }

// Set chooses a format, or returns a usage error with a proposal.
func (f *formatValue) Set(s string) error {
	if !slices.Contains(formats(), s) {
		e := Usage("unknown output format %q", s)
		e.Hint = didYouMean(nearest(s, formats()), "one of "+strings.Join(formats(), ", "))
		return e
	}
	*f = formatValue(s)
	return nil
}
