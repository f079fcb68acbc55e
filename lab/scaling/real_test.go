// Claims: a real run's verdicts follow from what was measured: a program that scales as the models say is met, one that does not
// is not; the quota of a unit is at most a fifth of a CPU, and all quotas fit the host; flags that make no sense are refused; nodes are
// asked to end, so that they remove their cgroups, and their logs are kept.
package scaling

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/emulator"
	"headroom/lab/papers"
)

// madeUp are runs whose maps take 10 s each, whose reducer takes 2 s and rise more for each map, with a little noise.
func madeUp(o *realOptions, name string, rise, held float64) (all []measured) {
	for repeat := range o.repeats {
		for _, c := range o.cells() {
			n, noise := float64(c.size), 1+0.01*math.Sin(float64(7*repeat+c.size))
			r := run{Tasks: c.size, Units: c.units, Launch: 5, Parallel: 10 * n * noise, Slowest: 10 * noise, Serial: (2 + rise*(n-1)) * noise, Rest: 8}
			if slices.Contains(o.held, c.units) {
				r.Serial *= held
			}
			r.Stages = r.Slowest + r.Serial
			all = append(all, measured{r, name, repeat})
		}
	}
	return all
}

func verdicts(targets []papers.Target) map[string]papers.Verdict {
	all := map[string]papers.Verdict{}
	for i := range targets {
		all[targets[i].ID] = targets[i].Verdict
	}
	return all
}

func TestVerdictsOfRealRuns(t *testing.T) {
	t.Parallel()
	o := &realOptions{engine: "yarn", degrees: []int{1, 2, 3, 4, 6, 8}, held: []int{8}, repeats: 5}
	all := programs("yarn")
	flat, rises := all[0], all[3]
	for name, c := range map[string]struct {
		program program
		rise    float64
		held    float64
		want    map[string]papers.Verdict
	}{
		"as flat as it ought to be": {flat, 0, 1, map[string]papers.Verdict{"R-wordcount/EX": "met", "R-wordcount/IN": "met", "R-wordcount/8-8": "met"}},
		"a reducer that grows":      {flat, 1, 1, map[string]papers.Verdict{"R-wordcount/EX": "met", "R-wordcount/IN": "short"}},
		"it rises as it ought to":   {rises, 1, 1, map[string]papers.Verdict{"R-terasort/EX": "met", "R-terasort/IN": "met", "R-terasort/8-8": "met"}},
		"it ought to rise":          {rises, 0, 1, map[string]papers.Verdict{"R-terasort/IN": "short"}},
		"another at the end":        {flat, 0, 20, map[string]papers.Verdict{"R-wordcount/8-8": "order"}},
	} {
		got := verdicts(o.judge(c.program, madeUp(o, c.program.name, c.rise, c.held)))
		for id, want := range c.want {
			if got[id] != want {
				t.Errorf("%s: %s is %q, want %q", name, id, got[id], want)
			}
		}
	}
}

func TestQuotasFit(t *testing.T) {
	t.Parallel()
	for cpus := 1; cpus <= 64; cpus++ {
		for degree := 1; degree <= realMost; degree++ {
			quota := emulator.HostShare * float64(cpus) / float64(owners(cpus, degree))
			if quota > quotaMost || quota*float64(degree) > float64(cpus) {
				t.Fatalf("%d CPUs, %d units: %.3f of a CPU each", cpus, degree, quota)
			}
		}
	}
}

func TestRealRunsAreChecked(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`--engine "flink"`:      {"--engine", "flink"},
		"--out is needed":       {"--engine", "yarn"},
		"--repeats 0":           {"--engine", "yarn", "--out", "x", "--repeats", "0"},
		"--n must contain 1":    {"--engine", "yarn", "--out", "x", "--n", "2,4"},
		"--held-out 3":          {"--engine", "yarn", "--out", "x", "--held-out", "3"},
		`unknown --app "bayes"`: {"--engine", "yarn", "--out", "x", "--app", "bayes"},
		"--sizes 1000":          {"--engine", "spark", "--out", "x", "--sizes", "1000"},
	} {
		if exit, _, stderr := testkit.Run(t, NewCommand(), "", append([]string{"run"}, args...)...); exit != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d: %s", args, exit, stderr)
		}
	}
}

// site starts nodes of a program that stands for powerlab.
func site(t *testing.T, powerlab string, jars ...string) (s *realSite, out string, err error) {
	t.Helper()
	bin, out := t.TempDir(), t.TempDir()
	if powerlab != "" {
		testkit.Check(t, os.WriteFile(filepath.Join(bin, "powerlab"), []byte("#!/bin/sh\n"+powerlab), 0o700))
	}
	o := &realOptions{Options: papers.Options{Bin: bin, Out: out}, engine: "spark", degrees: []int{1, 2}}
	s, err = o.site(io.Discard, jars...)
	return s, out, err
}

func TestNodesAreAskedToEnd(t *testing.T) {
	t.Parallel()
	s, out, err := site(t, `trap 'echo ended; exit 0' TERM
mkdir -p "$4/$2/run" && echo "$@" && : > "$4/$2/run/node.sock"
while :; do sleep 0.05; done`)
	testkit.Check(t, err)
	if err := s.fail(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*os.PathError)) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"n1", "n2"} {
		log := string(testkit.Need(os.ReadFile(filepath.Join(out, "logs", "nodes", name+".log")))(t))
		if !strings.Contains(log, "node "+name) || !strings.Contains(log, "--throttle cgroup") || !strings.HasSuffix(log, "ended\n") {
			t.Errorf("%s: %s", name, log)
		}
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run's folder: %v", err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	if _, _, err := site(t, ""); err == nil || !strings.Contains(err.Error(), "--engine spark needs powerlab") {
		t.Errorf("%v", err)
	}
	if _, _, err := site(t, "exit 0", "apps.jar"); err == nil || !strings.Contains(err.Error(), "--engine spark needs apps.jar") {
		t.Errorf("%v", err)
	}
}

func TestOutMustBeAFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	testkit.Check(t, os.WriteFile(file, nil, 0o600))
	o := &realOptions{Options: papers.Options{Out: filepath.Join(file, "x")}}
	_, err := o.start(t.Context(), io.Discard)
	if e, ok := errors.AsType[*cli.Error](err); !ok || !strings.Contains(e.Hint, "--out") {
		t.Errorf("%v", err)
	}
}

func TestTeraSortsRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Check(t, writeTera(dir, 2))
	a, b := testkit.Need(os.ReadFile(filepath.Join(dir, "part-00000")))(t), testkit.Need(os.ReadFile(filepath.Join(dir, "part-00001")))(t)
	if len(a)%teraRow != 0 || len(a) < yarnBytes-teraRow || bytes.Equal(a[:teraKey], b[:teraKey]) || bytes.Equal(a[:teraKey], a[teraRow:teraRow+teraKey]) {
		t.Errorf("%d bytes; keys %x %x %x", len(a), a[:teraKey], a[teraRow:teraRow+teraKey], b[:teraKey])
	}
}
