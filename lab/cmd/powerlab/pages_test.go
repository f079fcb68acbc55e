// Claims: every table of targets in lab/docs has exactly the targets of the command above it,
// with the paper's numbers; where that command takes seconds, the whole table is its output.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// folder has the pages.
const folder = "../../docs"

// quick are the fastest options of a paper's command; whole are papers whose command takes seconds.
func quick() map[string][]string {
	return map[string][]string{
		"cab":    {"--seeds", "1"},
		"dias":   {"--seeds", "1", "--jobs", "500"},
		"grass":  {"--seeds", "1", "--jobs", "6"},
		"pigeon": {"--seeds", "1", "--quick"},
		"pythia": {"--seeds", "1", "--jobs", "200"},
	}
}

// A target is what the documented JSON of a report has about it.
type target struct {
	ID, What, Unit, Verdict string
	Paper, Got, Low, High   *float64
}

func (t *target) number(v *float64) string {
	if v == nil {
		return ""
	}
	return strings.TrimSpace(strconv.FormatFloat(*v, 'f', 2, 64) + " " + t.Unit)
}

func (t *target) row() string {
	bounds := ""
	if t.Low != nil && t.High != nil {
		bounds = fmt.Sprintf("%.2f to %.2f", *t.Low, *t.High)
	}
	cells := []string{t.ID, t.What, t.number(t.Paper), t.number(t.Got), bounds, t.Verdict}
	return "| " + strings.ReplaceAll(strings.Join(cells, "\x00"), "|", "/") + " |"
}

// runPaper returns the targets of a paper's command.
func runPaper(t *testing.T, args ...string) (targets []target) {
	t.Helper()
	var out, errs strings.Builder
	exit := cli.Run(t.Context(), newRoot(), slices.Concat([]string{"paper"}, args, []string{"-o", "json"}), &out, &errs)
	if exit != cli.ExitOK && exit != cli.ExitDegraded {
		t.Fatalf("powerlab paper %v: exit %d: %s", args, exit, errs.String())
	}
	var report struct{ Targets []target }
	testkit.Check(t, json.Unmarshal([]byte(out.String()), &report))
	return report.Targets
}

// table is the part of a page between the comment that names its command and the end.
type table struct {
	begin, rows string
	args        []string // of powerlab paper; the first is the paper
}

func tables(t *testing.T, page string) (found []table) {
	t.Helper()
	mark := regexp.MustCompile(`(?s)<!-- generated: powerlab paper ([^\n]*) -->\n(.*?)<!-- end -->`)
	for _, m := range mark.FindAllStringSubmatch(page, -1) {
		args := strings.Fields(strings.ReplaceAll(m[1], "TRACES", os.Getenv("TRACES")))
		found = append(found, table{begin: m[0][:strings.Index(m[0], "\n")+1], rows: m[2], args: args})
	}
	return found
}

// render writes the targets that were measured and that no table before has.
func render(targets []target, before map[string]bool) string {
	var b strings.Builder
	b.WriteString("| target | quantity | paper | got | bounds | verdict |\n|" + strings.Repeat(" --- |", 6) + "\n")
	for i := range targets {
		if t := &targets[i]; t.Verdict != "not_run" && !before[t.ID] {
			b.WriteString(strings.ReplaceAll(t.row(), "\x00", " | ") + "\n")
			before[t.ID] = true
		}
	}
	return b.String()
}

func TestTables(t *testing.T) {
	t.Parallel()
	pages := testkit.Need(filepath.Glob(filepath.Join(folder, "*.md")))(t)
	for _, path := range pages {
		data := testkit.Need(os.ReadFile(path))(t)
		if all := tables(t, string(data)); len(all) > 0 {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
				t.Parallel()
				if os.Getenv("UPDATE") != "" {
					testkit.Check(t, os.WriteFile(path, []byte(rewrite(t, string(data), all)), 0o644))
					return
				}
				compare(t, all)
			})
		}
	}
}

// rewrite runs the commands of a page and replaces its tables.
func rewrite(t *testing.T, page string, all []table) string {
	t.Helper()
	before := map[string]bool{}
	for _, tab := range all {
		if strings.Contains(tab.begin, "TRACES") && os.Getenv("TRACES") == "" {
			t.Fatal("set TRACES to the folder of lab/docs/traces.md")
		}
		page = strings.Replace(page, tab.begin+tab.rows, tab.begin+render(runPaper(t, tab.args...), before), 1)
	}
	return page
}

// compare runs the paper's command with the least work and compares what does not depend on that.
func compare(t *testing.T, all []table) {
	t.Helper()
	paper := all[0].args[0]
	least, sampled := quick()[paper]
	if !sampled {
		if got := render(runPaper(t, all[0].args...), map[string]bool{}); got != all[0].rows {
			t.Errorf("the table of %s is stale: UPDATE=1 go test -run TestTables/%s ./cmd/powerlab, in lab; want\n%s", paper, paper, got)
		}
		return
	}
	rows := map[string][]string{}
	for _, tab := range all {
		for line := range strings.Lines(tab.rows) {
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			rows[cells[0]] = cells
		}
	}
	delete(rows, "target")
	delete(rows, "---")
	for _, target := range runPaper(t, append([]string{paper}, least...)...) {
		row, stands := rows[target.ID]
		delete(rows, target.ID)
		want := strings.Split(strings.Trim(target.row(), "| "), "\x00")
		switch {
		case target.Verdict == "not_run":
		case !stands:
			t.Errorf("%s: the table has no %s", paper, target.ID)
		case len(row) != len(want) || row[1] != want[1] || row[2] != want[2]:
			t.Errorf("%s: the table has %q, want quantity and number of %q", paper, row, want)
		}
	}
	for id := range rows {
		t.Errorf("%s: there is no target %s", paper, id)
	}
}
