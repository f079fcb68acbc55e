// Claims: a table of targets in lab/docs has exactly the targets of the command above it, with the
// paper's numbers; where that command takes seconds, the whole table is its output. The index names
// every campaign.
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
	"headroom/lab/experiment/specs"
)

// folder has the pages.
const folder = "../../docs"

// A page's command may take seconds: its table is compared whole. It may take seconds with one seed: what does not
// depend on the seeds is compared. The others take minutes.
func whole() []string   { return []string{"ipso", "usba"} }
func oneSeed() []string { return []string{"cab", "dias", "grass"} }

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

// report is the output of a command: targets of a paper, or figures that the arbiter was judged by.
type report struct {
	Targets []target
	Loads   []struct {
		Judged []struct{ Figure, Verdict string }
	}
}

func execute(t *testing.T, args ...string) (r report) {
	t.Helper()
	var out, errs strings.Builder
	exit := cli.Run(t.Context(), newRoot(), append(slices.Clone(args), "-o", "json"), &out, &errs)
	if exit != cli.ExitOK && exit != cli.ExitDegraded {
		t.Fatalf("powerlab %v: exit %d: %s", args, exit, errs.String())
	}
	testkit.Check(t, json.Unmarshal([]byte(out.String()), &r))
	return r
}

// table is the part of a page between the comment that names its command and the end.
type table struct {
	begin, rows string
	args        []string // of powerlab
}

func tables(t *testing.T, page string) (found []table) {
	t.Helper()
	mark := regexp.MustCompile(`(?s)<!-- generated: powerlab ([^\n]*) -->\n(.*?)<!-- end -->`)
	for _, m := range mark.FindAllStringSubmatch(page, -1) {
		args := strings.Fields(strings.ReplaceAll(m[1], "TRACES", os.Getenv("TRACES")))
		found = append(found, table{begin: m[0][:strings.Index(m[0], "\n")+1], rows: m[2], args: args})
	}
	return found
}

// render writes the targets that were measured and that no table before has, or counts of the arbiter's figures.
func render(r report, before map[string]bool) string {
	var b strings.Builder
	if r.Loads != nil {
		return counts(r)
	}
	b.WriteString("| target | quantity | paper | got | bounds | verdict |\n|" + strings.Repeat(" --- |", 6) + "\n")
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Verdict != "not_run" && !before[t.ID] {
			b.WriteString(strings.ReplaceAll(t.row(), "\x00", " | ") + "\n")
			before[t.ID] = true
		}
	}
	return b.String()
}

// counts are the figures of all loads and baselines in which the arbiter is ahead, level or behind.
func counts(r report) string {
	var names []string
	sums := map[string]map[string]int{"all": {}}
	for _, l := range r.Loads {
		for _, j := range l.Judged {
			if sums[j.Figure] == nil {
				sums[j.Figure] = map[string]int{}
				names = append(names, j.Figure)
			}
			sums[j.Figure][j.Verdict]++
			sums["all"][j.Verdict]++
		}
	}
	var b strings.Builder
	b.WriteString("| figure | ahead | level | behind |\n| --- | --- | --- | --- |\n")
	for _, f := range append(names, "all") {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", f, sums[f]["ahead"], sums[f]["level"], sums[f]["behind"])
	}
	return b.String()
}

func TestTables(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
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

// The index names the campaign of each study on real programs.
func TestIndexNamesCampaigns(t *testing.T) {
	t.Parallel()
	index := testkit.Need(os.ReadFile(filepath.Join(folder, "README.md")))(t)
	for _, s := range specs.All() {
		if !strings.Contains(string(index), "`"+s.Name+"`") {
			t.Errorf("lab/docs/README.md does not name the campaign %s", s.Name)
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
		page = strings.Replace(page, tab.begin+tab.rows, tab.begin+render(execute(t, tab.args...), before), 1)
	}
	return page
}

// compare runs a paper's command if that takes seconds, and compares its targets with the tables.
func compare(t *testing.T, all []table) {
	t.Helper()
	paper := all[0].args[1]
	if slices.Contains(whole(), paper) {
		if got := render(execute(t, all[0].args...), map[string]bool{}); got != all[0].rows {
			t.Errorf("the table of %s is stale: UPDATE=1 go test -run TestTables/%s ./cmd/powerlab, in lab; want\n%s", paper, paper, got)
		}
		return
	}
	if !slices.Contains(oneSeed(), paper) {
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
	for _, target := range execute(t, "paper", paper, "--seeds", "1").Targets {
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
