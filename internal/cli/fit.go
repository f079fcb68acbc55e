package cli

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"headroom/internal/each"
)

const (
	// gap is the number of spaces between two columns.
	gap = 2
	// wordMost is the widest word that is kept whole; proseLeast is the least width of a column of sentences.
	wordMost, proseLeast = 24, 32
	// below indents what stands below its row.
	below = "    "
)

// Screen returns the size of the terminal behind a stream; zeros for anything else,
// where nothing is wrapped or left out.
func Screen(w io.Writer) (cols, rows int) {
	switch w := Raw(w).(type) {
	case interface{ Screen() (cols, rows int) }:
		return w.Screen()
	case *os.File:
		if size, err := unix.IoctlGetWinsize(int(w.Fd()), unix.TIOCGWINSZ); err == nil {
			return int(size.Col), int(size.Row)
		}
	}
	return 0, 0
}

// Hanging returns first and text; on a terminal wrapped, the lines after the first one
// indented to where text begins.
func Hanging(w io.Writer, first, text string) string {
	cols, _ := Screen(w)
	indent := strings.Repeat(" ", utf8.RuneCountInString(first))
	return first + strings.Join(wrapText(text, max(cols-len(indent), wordMost), cols > 0), "\n"+indent) + "\n"
}

// wrapText breaks text at spaces, and longer words behind a comma or anywhere.
func wrapText(text string, width int, wrap bool) []string {
	if !wrap || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line+" "+word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			out = append(out, line)
		}
		for line = word; utf8.RuneCountInString(line) > width; {
			head := string([]rune(line)[:width])
			if comma := strings.LastIndexByte(head, ','); comma > 0 {
				head = head[:comma+1]
			}
			out, line = append(out, head), line[len(head):]
		}
	}
	return append(out, line)
}

// fit lays rows out for a terminal of that many columns: cells are wrapped; the columns that still
// have no room stand below their rows with their names, sentences first, then the last columns.
// Nothing is left out. The first line is the header if there is one.
func (t Table) fit(lines [][]string, width []int, cols int, headed bool) ([][]string, []int) {
	if cols == 0 || tableWidth(width) <= cols {
		return lines, width
	}
	least := leastWidths(lines, width)
	beside := make([]int, len(width))
	for i := range beside {
		beside[i] = i
	}
	var under []int
	for len(beside) > 1 && tableWidth(pick(least, beside)) > cols {
		at := len(beside) - 1
		for i := at; i > 0; i-- {
			if least[beside[i]] >= proseLeast {
				at = i
				break
			}
		}
		under = append(under, beside[at])
		beside = slices.Delete(beside, at, at+1)
	}
	slices.Sort(under)
	room := share(pick(least, beside), pick(width, beside), cols)
	var out [][]string
	for i, line := range lines {
		out = append(out, wrapRow(line, beside, room)...)
		if !headed || i > 0 {
			out = append(out, t.underRow(line, under, least, cols)...)
		}
	}
	return out, room
}

func pick(from, at []int) []int {
	return each.List(at, func(x int) int { return from[x] })
}

func tableWidth(width []int) int {
	sum := gap * (len(width) - 1)
	for _, n := range width {
		sum += n
	}
	return sum
}

// leastWidths returns how narrow each column may become: as wide as its longest word,
// number with unit, or a readable part of a sentence.
func leastWidths(lines [][]string, width []int) []int {
	least := make([]int, len(width))
	for _, line := range lines {
		for i, c := range line {
			if _, number := quantityOf(c); number {
				least[i] = max(least[i], utf8.RuneCountInString(c))
			}
			for word := range strings.FieldsSeq(c) {
				least[i] = max(least[i], min(utf8.RuneCountInString(word), wordMost))
			}
			if utf8.RuneCountInString(c) > proseLeast && strings.Contains(c, " ") {
				least[i] = max(least[i], proseLeast)
			}
		}
	}
	return least
}

// share widens columns from their least widths while there is room: values first, then sentences evenly.
func share(least, width []int, cols int) []int {
	room, free := slices.Clone(least), cols-tableWidth(least)
	for _, sentences := range []bool{false, true} {
		for grown := true; grown && free > 0; {
			grown = false
			for i := range room {
				if room[i] < width[i] && free > 0 && sentences == (least[i] >= proseLeast) {
					room[i]++
					free--
					grown = true
				}
			}
		}
	}
	return room
}

// wrapRow returns the lines of one row's cells.
func wrapRow(line []string, columns, room []int) [][]string {
	var out [][]string
	for at, i := range columns {
		for n, part := range wrapText(cell(line, i), room[at], true) {
			if n == len(out) {
				out = append(out, make([]string, len(columns)))
			}
			out[n][at] = part
		}
	}
	return out
}

// underRow returns what stands below a row: short values together, each sentence by itself.
func (t Table) underRow(line []string, columns, least []int, cols int) [][]string {
	var texts, short []string
	for _, i := range columns {
		text, name := cell(line, i), strings.ToLower(cell(t.Head, i))
		if text == "" || text == Unknown {
			continue
		}
		if name != "" {
			text = name + ": " + text
		}
		if least[i] >= proseLeast {
			texts = append(texts, text)
			continue
		}
		short = append(short, text)
	}
	if len(short) > 0 {
		texts = append([]string{strings.Join(short, ", ")}, texts...)
	}
	var out [][]string
	for _, text := range texts {
		for n, part := range wrapText(text, max(cols-2*len(below), wordMost), true) {
			indent := below
			if n > 0 {
				indent += below
			}
			out = append(out, []string{indent + part})
		}
	}
	return out
}

// FoldNamed makes texts that begin with a name and go on alike into one: "n01 off", "n02 off" become "n[01-02] off".
func FoldNamed(texts []string) []string {
	names := map[string][]string{}
	var order []string
	for _, text := range texts {
		name, rest, _ := strings.Cut(text, " ")
		if names[rest] == nil {
			order = append(order, rest)
		}
		names[rest] = append(names[rest], name)
	}
	return each.List(order, func(rest string) string { return strings.TrimSpace(NodeSet(names[rest]) + " " + rest) })
}
