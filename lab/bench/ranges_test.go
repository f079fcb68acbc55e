package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// ranges.yaml has every figure once, with the runs that it came from, and the tables of docs/benchmarks.md
// and README.md are those of it. UPDATE=1 writes both.
func TestRanges(t *testing.T) {
	t.Parallel()
	known := testkit.Need(readRanges())(t)
	var names, runs []string
	for _, b := range suite() {
		for _, f := range b.figures {
			names = append(names, f.name)
		}
	}
	runRows := "| run | date | load average | noise, ms (least / median / most) | what |\n| --- | --- | --- | --- | --- |\n"
	for _, r := range known.Runs {
		runs = append(runs, r.ID)
		runRows += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.ID, r.Date, cmp.Or(r.Load, "-"), cmp.Or(r.Noise, "-"), r.Comment)
	}
	figureRows := "| what | goal | measured | peer in the same run | command (`bin/powerlab ...`) | runs |\n| --- | --- | --- | --- | --- | --- |\n"
	readme := "| what | measured |\n| --- | --- |\n"
	seen := map[string]bool{}
	for _, e := range known.Figures {
		if e.Figure != "" && (!slices.Contains(names, e.Figure) || seen[e.Figure] || e.Low == nil && e.High == nil || e.Of != "value" && e.Of != "ratio") || e.Rule == "" || e.Command == "" {
			t.Errorf("%s: unknown, twice, or without a range, rule or command", cmp.Or(e.Figure, e.What))
		}
		seen[e.Figure] = true
		for _, id := range e.Runs {
			if !slices.Contains(runs, id) {
				t.Errorf("%s: no run %q", e.What, id)
			}
		}
		names, n := runsOf(e)
		if e.Measured != "" {
			figureRows += fmt.Sprintf("| %s | %s | %s | %s | `%s` | %s |\n", e.What, cmp.Or(e.Goal, "-"), e.Measured, cmp.Or(e.Peer, "-"), strings.TrimPrefix(e.Command, "bin/powerlab "), names+n)
		}
		if e.Readme != "" {
			readme += "| " + e.Readme + n + " |\n"
		}
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("ranges.yaml has no %s", name)
		}
	}
	fresh(t, "../../docs/benchmarks.md", map[string]string{"<!-- figures: generated -->\n": figureRows, "<!-- runs: generated -->\n": runRows}, "<!-- end -->")
	fresh(t, "../../README.md", map[string]string{"in `lab/bench/ranges.yaml`.\n\n": readme}, "\n## ")
}

// runsOf names the runs of a figure, and their number where they differ in more than their seeds.
func runsOf(e expectation) (names, n string) {
	if len(e.Runs) == 0 || e.Runs[0] == "sim" {
		return strings.Join(e.Runs, ", "), ""
	}
	return strings.Join(e.Runs, ", "), fmt.Sprintf(" (n = %d)", max(e.N, len(e.Runs)))
}

// fresh checks the parts of a page between a beginning and the next end; UPDATE=1 writes them.
func fresh(t *testing.T, path string, parts map[string]string, end string) {
	t.Helper()
	page := string(testkit.Need(os.ReadFile(path))(t))
	want := page
	for begin, text := range parts {
		before, rest, ok := strings.Cut(want, begin)
		at := strings.Index(rest, end)
		if !ok || at < 0 {
			t.Fatalf("%s has no %q", path, begin)
		}
		want = before + begin + text + rest[at:]
	}
	if want == page {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Errorf("%s differs from ranges.yaml; UPDATE=1 go test ./lab/bench writes it", path)
		return
	}
	testkit.Check(t, os.WriteFile(path, []byte(want), 0o644))
}

// A result is judged figure by figure; timings only of a machine that was quiet enough.
func TestCheck(t *testing.T) {
	t.Parallel()
	known := ranges{NoiseMost: 100, Figures: []expectation{
		{Figure: "a", High: new(2.0), Of: "value"},
		{Figure: "b", Low: new(0.5), High: new(2.0), Of: "ratio"},
		{Figure: "c", High: new(2.0), Of: "value", Exact: true},
	}}
	report := Report{Items: []Item{{Name: "a", Value: new(1.0)}, {Name: "b", Value: new(1.0), Ratio: new(0.1)}, {Name: "c", Value: new(3.0)}, {Name: "d"}, {Name: "a"}}}
	for spread, want := range map[float64]string{
		40:  "ok,out of range,out of range,no range,not measured",
		400: "not judged: machine too noisy,not judged: machine too noisy,out of range,no range,not measured",
	} {
		report.Noise.Spread = spread
		var got []string
		for _, c := range known.judge(&report) {
			got = append(got, c.Verdict)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("at %v %%: %v", spread, got)
		}
	}
	file := t.TempDir() + "/result.json"
	testkit.WriteFile(t, file, `{"kind":"Bench","noise":{"spread_pct":300},"items":[{"name":"cap-step-over","value":9,"unit":"%"},{"name":"cut","value":9,"unit":"s"}]}`)
	exit, out, errs := execute(t, "--check", file)
	if exit != cli.ExitDegraded || !strings.Contains(errs, "cap-step-over is out of range") || strings.Contains(errs, "cut is") || !strings.Contains(out, "too noisy") || !strings.Contains(out, "300 %") {
		t.Errorf("exit %d, %s, %s", exit, out, errs)
	}
}
