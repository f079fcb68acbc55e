// Claims: the examples come out exactly; the closed forms are those of the table; the same seed gives the same numbers; Pigeon is
// better to short jobs than Eagle, and Eagle than Sparrow; targets report what is missing, and mistakes make them worse.
package pigeon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/lab/report"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func TestExamplesAndForms(t *testing.T) {
	t.Parallel()
	exact, err := honestExamples().targets(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range append(exact, honestForms().targets()...) {
		if target.Verdict != report.Met {
			t.Errorf("%s is %s: got %v, %s", target.ID, target.Verdict, *target.Got, target.Note)
		}
	}
}

// few are small scenes: one of the model, and Yahoo's jobs.
func few() []scene {
	return append(models(60)[:1], generatedScenes(10_000)[:1]...)
}

func TestSameSeedSameNumbers(t *testing.T) {
	t.Parallel()
	var got [2][]trial
	for i := range got {
		var err error
		if got[i], err = runAll(context.Background(), few(), 5, 1, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(got[0]) != fmt.Sprint(got[1]) { // what is unknown is NaN
		t.Errorf("%v, then %v", got[0], got[1])
	}
	m := got[0][0][key{"yahoo", weighted(20)}]
	if !(m.took[long][0] > 0 && m.slow[short][0] >= 1 && m.took[short][2] >= m.took[short][0]) {
		t.Errorf("%+v", m)
	}
}

// trace is a short trace in the format of Hawk, Eagle and Pigeon: 9 short jobs to a long one, on 120 workers at a load near 0.9.
func trace() string {
	var b strings.Builder
	for _, j := range (published{
		fanMean: 4, fanMost: 98, scale: 1, least: 0.01, mean: 3.5, most: 100, cutoff: 1, workers: ec2Workers, load: 0.9, fanLong: 3, shortSpread: 1, longSpread: 1,
	}).generate(9, 4000) {
		b.WriteString(line(j.Arrival, j.Times))
	}
	return b.String()
}

// On a trace the policies stand in the paper's order; the other traces are not run, and report why.
func TestOnATrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pigeon"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pigeon", "NGO_trace80"), []byte(trace()), 0o644); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	exit, stdout, stderr := testkit.Run(t, newCommand(size{300, 20_000}), "", "--seeds", "1", "--traces", dir, "--out", out)
	if exit != 0 && exit != 8 {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	for _, want := range []string{"G6/pigeon-google80-order", "does not have it"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	for l := range strings.SplitSeq(stdout, "\n") {
		if strings.HasPrefix(l, "G6/pigeon-google80-order") && !strings.Contains(l, " met ") {
			t.Error(l)
		}
	}
	for _, name := range []string{"targets.md", "targets.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 200 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Flags that make no sense, and a folder without traces.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--traces", t.TempDir()}, "--traces: "},
		{[]string{"--engine", "yarn"}, "--engine"},
	} {
		if exit, _, stderr := testkit.Run(t, NewCommand(), "", c.args...); exit != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, exit, stderr)
		}
	}
}
