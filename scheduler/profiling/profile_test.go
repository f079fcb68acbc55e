// Claims: `scheduler profile` runs each map task of a job file once, compares results
// over parts of them with the exact one, and writes the profile whole;
// the same seeds choose the same tasks; a job that fails, or whose result cannot be
// compared, is told with its task; what makes no sense is refused before anything runs;
// nothing is left behind.
package profiling_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/quality"
	"headroom/scheduler/profiling"
)

// profile is the command.
func profile(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	return testkit.Run(t, profiling.NewCommand(), "", args...)
}

// jobOf writes ten inputs, each with the key w and one of its own, and a job file
// with these commands; a line is written to runs by each map task.
func jobOf(t *testing.T, mapper, reducer string) (file, runs string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	for i := range 10 {
		put(fmt.Sprintf("in-%d.txt", i), fmt.Sprintf("w\t1\nk%d\t1\n", i))
	}
	job := "name: words\nclass: low\nslots: 2\noutput: out\nmap:\n  input: in-*.txt\n  command: [sh, -c, '" + mapper + "', sh, \"{input}\"]\n"
	if reducer != "" {
		job += "reduce:\n  command: [sh, -c, '" + reducer + "', sh]\n"
	}
	put("job.yaml", job)
	return filepath.Join(dir, "job.yaml"), filepath.Join(dir, "runs")
}

const (
	countRuns = `echo >>runs; cat "$1"`
	catAll    = `cat "$@"`
)

func TestProfile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reducer string
		args    []string
		want    func(n float64) float64
	}{
		"relative":          {catAll, nil, func(n float64) float64 { return n / 10 }},
		"without a reduce":  {"", nil, func(n float64) float64 { return n / 10 }},
		"value":             {catAll, []string{"--compare", "value"}, func(n float64) float64 { return (n/10 + n) / 11 }},
		"value, scaled":     {`cat "$@" | grep w`, []string{"--compare", "value", "--scale"}, func(float64) float64 { return 1 }},
		"the greatest key":  {catAll, []string{"--compare", "topk", "--top", "1"}, func(float64) float64 { return 1 }},
		"the first, always": {catAll, []string{"--choice", "first"}, func(n float64) float64 { return n / 10 }},
	} {
		job, runs := jobOf(t, countRuns, c.reducer)
		out := filepath.Join(t.TempDir(), "p.json")
		args := append([]string{job, "--ratios", "0.9,0.25,0.5,0.21", "--seeds", "3", "-o", "json", "--out", out}, c.args...)
		exit, stdout, stderr := profile(t, args...)
		if exit != 0 || !strings.Contains(stderr, "map tasks: 10 of 10 done") {
			t.Fatalf("%s: exit %d\n%s", name, exit, stderr)
		}
		written, err := os.ReadFile(out)
		if err != nil || string(written) != stdout {
			t.Errorf("%s: %v, or the file is not what was printed", name, err)
		}
		p, warnings, err := quality.Parse(written)
		if err != nil || len(warnings) != 0 || p.Name != "words" || p.Engine != "local" || p.Tasks != 10 {
			t.Fatalf("%s: %+v, %v, %v", name, p, warnings, err)
		}
		for i, fraction := range []float64{0.3, 0.5, 0.9} { // 0.21 and 0.25 are both three tasks
			x := p.Points[i]
			if want := c.want(10 * fraction); x.Fraction != fraction || math.Abs(x.Accuracy-want) > 1e-12 || x.Low != x.High {
				t.Errorf("%s: %+v, want accuracy %v at %v", name, x, want, fraction)
			}
		}
		if lines, err := os.ReadFile(runs); err != nil || bytes.Count(lines, []byte("\n")) != 10 {
			t.Errorf("%s: %d runs of ten map tasks, %v", name, bytes.Count(lines, []byte("\n")), err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(job), "out")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the job's own output was touched: %v", name, err)
		}
	}
}

func TestProfileTable(t *testing.T) {
	t.Parallel()
	job, _ := jobOf(t, countRuns, catAll)
	exit, stdout, stderr := profile(t, job, "--ratios", "0.5", "--seeds", "2")
	if exit != 0 || !strings.Contains(stdout, "0.5000    5      50.0 %    50.0 %  50.0 %  2") || !strings.Contains(stderr, "80 % needs 0.800") {
		t.Errorf("exit %d\n%s%s", exit, stdout, stderr)
	}
}

// What an operator can get wrong, or the job.
func TestProfileRefuses(t *testing.T) {
	t.Parallel()
	job, runs := jobOf(t, countRuns, catAll)
	for want, args := range map[string][]string{
		"--ratios 1.5":                         {job, "--ratios", "0.5,1.5"},
		"--ratios 0:":                          {job, "--ratios", "0"},
		"--seeds 0":                            {job, "--seeds", "0"},
		`--compare "vibes"`:                    {job, "--compare", "vibes"},
		"only for topk":                        {job, "--top", "3"},
		`--choice "best"`:                      {job, "--choice", "best"},
		"--slots -1":                           {job, "--slots", "-1"},
		"folder no/such/folder does not exist": {job, "--out", "no/such/folder/p.json"},
		"no such file":                         {"nothing.yaml"},
		"accepts 1 arg":                        {},
		"unknown flag --ratio":                 {job, "--ratio", "0.5"},
	} {
		exit, stdout, stderr := profile(t, args...)
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%v: exit %d\n%s%s", args, exit, stdout, stderr)
		}
	}
	if _, err := os.Stat(runs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused command ran map tasks: %v", err)
	}
}

func TestProfileOfAJobThatFails(t *testing.T) {
	t.Parallel()
	for want, commands := range map[string][2]string{
		"map task":                  {"echo broken >&2; exit 3", catAll},
		"broken":                    {"echo broken >&2; exit 3", catAll},
		"reduce task failed":        {countRuns, "exit 4"},
		"line 1":                    {countRuns, "echo no number"},
		"the exact result is empty": {countRuns, "true"},
	} {
		job, _ := jobOf(t, commands[0], commands[1])
		exit, stdout, stderr := profile(t, job)
		if exit != cli.ExitFailed || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%q: exit %d\n%s%s", want, exit, stdout, stderr)
		}
	}
}

// Not parallel: the folder for temporary files is the process's.
func TestProfileLeavesNothing(t *testing.T) {
	for _, mapper := range []string{countRuns, "exit 3"} {
		job, _ := jobOf(t, mapper, catAll)
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		profile(t, job, "--ratios", "0.5", "--seeds", "1")
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", slices.Collect(names(left)), err)
		}
	}
}

func names(entries []os.DirEntry) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, e := range entries {
			if !yield(e.Name()) {
				return
			}
		}
	}
}
