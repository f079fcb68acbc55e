// Claims: on a terminal no line of a table is wider than the screen, and nothing of it is left out; what is not a
// terminal gets the table whole.
package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"headroom/internal/cli"
)

// screen is a terminal of that many columns.
type screen struct {
	bytes.Buffer

	cols, rows int
}

func (s *screen) Screen() (cols, rows int) { return s.cols, s.rows }

// narrow are tables that are wider than a screen.
func narrow() []cli.Table {
	hint := "check powerd and the network of n16; if the machine is off, coordinator node remove n16 --powered-off frees its charge"
	var moves []string
	for i := range 60 {
		moves = append(moves, fmt.Sprintf("n%02d %.1f -> %.1f W", i+1, 190+float64(i%3), 150.0))
	}
	return []cli.Table{
		{Head: []string{"ALARM", "SEVERITY", "SINCE", "ACKED BY", "TEXT", "HINT"}, Rows: [][]string{
			{"node-lost/n16", "warn", "2026-11-27 14:00:52", "", "n16 is lost, charged 190.0 W; last report 2m05s ago", hint},
			{"restored/cluster", "warn", "2026-11-27 14:00:52", "mia", "restored as incarnation 2", ""},
		}},
		{Head: []string{"", "now", "new", "change", ""}, Rows: [][]string{
			{"budget", "12000.0 W", "9000.0 W", "-3000.0 W", ""},
			{"reserved", "11460.0 W", "9000.0 W", "-2460.0 W", strings.Join(cli.FoldNamed(moves), "; ")},
		}},
		{Head: []string{"NODE", "STATE", "CAP", "POWER", "USE", "FAIL-SAFE", "LEASE", "LIMITED", "DOMAIN", "EFFECTIVE", "CEILING", "RATED"}, Rows: [][]string{
			{"n[01-12]", "ok", "190.0 W", "153.2 W", "81 %", "95.0 W", "4.1s", "12 %", "rack/r1", "190.0 W", "190.0 W", "220.0 W (declares 230.0 W)"},
			{"n16", "lost", "190.0 W", "-", "-", "95.0 W", "-", "-", "rack/r2", "-", "190.0 W", "220.0 W"},
		}},
	}
}

func TestTablesFitTheScreen(t *testing.T) {
	t.Parallel()
	for _, cols := range []int{80, 120, 200, 0} {
		s := &screen{cols: cols}
		for _, table := range narrow() {
			if err := new(cli.Output).TableOf(s, table); err != nil {
				t.Fatal(err)
			}
			s.WriteByte('\n')
		}
		file := fmt.Sprintf("testdata/fit/%d.txt", cols)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, s.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || s.String() != string(want) {
			t.Errorf("%s differs (UPDATE=1 go test writes it anew): %v; got:\n%s", file, err, s)
		}
	}
}

func TestNothingIsWiderOrLeftOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cols, n := rapid.IntRange(40, 160).Draw(t, "cols"), rapid.IntRange(1, 12).Draw(t, "columns")
		text := rapid.SliceOfN(rapid.StringMatching(`([a-z]{1,60}|[0-9]{1,4}\.[0-9] W|([a-zü,]{1,12} ){1,20}[a-z]{1,5})`), n, n)
		table := cli.Table{Head: rapid.SliceOfN(rapid.StringMatching(`[A-Z]{0,10}`), n, n).Draw(t, "head"), Rows: rapid.SliceOfN(text, 1, 5).Draw(t, "rows")}
		s := &screen{cols: cols}
		if err := new(cli.Output).TableOf(s, table); err != nil {
			t.Fatal(err)
		}
		letters := func(s string) (count [128]int) {
			for _, r := range s {
				if r < 128 && r > ' ' {
					count[r]++
				}
			}
			return count
		}
		shown, want := letters(s.String()), letters(fmt.Sprint(table.Rows))
		for r := 'a'; r <= 'z'; r++ {
			if shown[r] < want[r] {
				t.Fatalf("%c is left out on %d columns:\n%s", r, cols, s)
			}
		}
		for line := range strings.Lines(s.String()) {
			if got := utf8.RuneCountInString(strings.TrimRight(line, "\n")); got > cols {
				t.Fatalf("%d columns on a screen of %d: %q", got, cols, line)
			}
		}
	})
}
