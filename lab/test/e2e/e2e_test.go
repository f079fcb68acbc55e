// Package e2e runs the built programs as their users do. What it claims: the shortened
// demonstration keeps the budget through a cut, a killed leader and a killed powerd, as an
// independent reading of its files shows; and nothing that it started remains, whatever interrupts
// it.
//
// The tests of this package do not run in parallel, because each one uses most of the machine's
// CPU.
package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/cluster"
)

// programs builds the four programs as `make build` does and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	testkit.Check(t, cluster.BuildPrograms(t.Context(), bin))
	return bin
}

// demo is one run of `powerlab demo` with output in out.
func demo(ctx context.Context, bin, out string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "powerlab"), append([]string{"demo", "--out", out}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	return cmd, said
}

// summary is summary.json, as its readers see it.
type summary struct {
	OverBudget map[string]float64  `json:"over_budget_s"`
	Settle     map[string]*float64 `json:"settle_s"`
	Failover   *float64            `json:"failover_s"`
	Readopt    *float64            `json:"readopt_s"`
	Breaker    *struct {
		Tripped bool    `json:"tripped"`
		Hottest float64 `json:"hottest"`
	} `json:"breaker"`
	Nodes int `json:"nodes"`
	Jobs  []struct {
		Name, Class, State string
		Tasks, Done        int
		RuntimeS           *float64 `json:"runtime_s"`
		EnergyJ            *float64 `json:"energy_j"`
	} `json:"jobs"`
	Events []struct {
		AtS  float64 `json:"t_s"`
		What string  `json:"what"`
	} `json:"events"`
}

// at is when an event happened; the test fails when it did not.
func (s summary) at(t *testing.T, what string) float64 {
	t.Helper()
	for _, e := range s.Events {
		if e.What == what {
			return e.AtS
		}
	}
	t.Fatalf("event %q did not happen: %+v", what, s.Events)
	return 0
}

// row is a row of power.csv; a nil is an empty cell.
type row struct {
	at, budget               float64
	reserved, held, measured *float64
	nodes                    []*float64
}

func readCSV(t *testing.T, path string) (rows []row) {
	t.Helper()
	f := testkit.Need(os.Open(path))(t)
	defer func() { _ = f.Close() }()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil || len(records) < 2 {
		t.Fatalf("power.csv: %d records, %v", len(records), err)
	}
	if head := strings.Join(records[0], ","); head != "time_s,budget_w,reserved_w,held_w,measured_w,n1,n2,n3" {
		t.Errorf("columns %s", head)
	}
	for _, record := range records[1:] {
		var cells []*float64
		for _, text := range record {
			var cell *float64
			if text != "" {
				v := testkit.Need(strconv.ParseFloat(text, 64))(t)
				cell = &v
			}
			cells = append(cells, cell)
		}
		if cells[0] == nil || cells[1] == nil {
			t.Fatalf("a row without time or budget: %v", record)
		}
		rows = append(rows, row{*cells[0], *cells[1], cells[2], cells[3], cells[4], cells[5:]})
	}
	return rows
}

// over is for how many seconds a sum was above the budget by more than slack (a
// ratio), apart from settling after the cut: until it first fits, at most for
// settle seconds. A mean over so many seconds reaches back before the cut for as long.
func over(rows []row, cut, settle, mean, slack float64, of func(row) *float64) (seconds float64) {
	fitted := false
	for i, r := range rows[:len(rows)-1] {
		v := of(r)
		switch {
		case v == nil:
		case *v <= r.budget*(1+slack)+0.002:
			fitted = fitted || r.at >= cut+mean
		case fitted || r.at < cut || r.at > cut+settle:
			seconds += rows[i+1].at - r.at
		}
	}
	return seconds
}

// The demonstration keeps the budget, and its files show it.
func TestDemo(t *testing.T) { //nolint:paralleltest // uses the whole machine
	if testing.Short() {
		testkit.NotRun(t, "the demonstration takes a minute of the whole machine")
	}
	bin, out := programs(t), filepath.Join(t.TempDir(), "out")
	cmd, said := demo(t.Context(), bin, out, "--for", "45s", "--nodes", "3", "--seed", "7")
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("the demonstration took %v\n%s", time.Since(began).Round(time.Second), said)
	var sum summary
	data, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&sum)
	}
	if err != nil {
		t.Fatalf("summary.json: %v", err)
	}
	rows := readCSV(t, filepath.Join(out, "power.csv"))
	checkPower(t, rows, sum)
	checkStory(t, sum, said.String())
	checkJobs(t, out, sum)
	if svg, err := os.ReadFile(filepath.Join(out, "power.svg")); err != nil || !bytes.Contains(svg, []byte("<svg ")) {
		t.Errorf("power.svg: %v", err)
	}
	checkNothingLeft(t, out)
}

// checkPower recomputes from power.csv what summary.json claims.
func checkPower(t *testing.T, rows []row, sum summary) {
	t.Helper()
	if b := sum.Breaker; b == nil || b.Tripped || b.Hottest <= 0 || b.Hottest >= 1 {
		t.Errorf("breaker %+v", b)
	}
	cut, raised := sum.at(t, "budget cut"), sum.at(t, "budget raised")
	full := rows[0].budget
	for _, r := range rows {
		low := r.at > cut+0.3 && r.at < raised-0.3
		if want := map[bool]float64{true: 0.6 * full, false: full}[low]; (r.at < cut || low || r.at > raised+0.3) && (r.budget < want-1 || r.budget > want+1) {
			t.Errorf("budget %.3f W at %.3f s, want about %.0f W", r.budget, r.at, want)
		}
		if r.measured != nil {
			parts := 0.0
			for _, n := range r.nodes {
				parts += *n
			}
			if diff := parts - *r.measured; diff > 0.01 || diff < -0.01 {
				t.Errorf("at %.3f s the nodes draw %.3f W, measured_w says %.3f W", r.at, parts, *r.measured)
			}
		}
	}
	for name, of := range map[string]func(row) *float64{
		"reserved": func(r row) *float64 { return r.reserved },
		"held":     func(r row) *float64 { return r.held },
		"measured": func(r row) *float64 { return r.measured },
	} {
		slack, mean, settle := 0.0, 0.0, 2.0
		if name == "measured" {
			slack, mean, settle = 0.02, 1.0, 3.0
		}
		if s := over(rows, cut, settle, mean, slack, of); s > 0 || sum.OverBudget[name] != 0 {
			t.Errorf("%s was above the budget for %.3f s; summary.json says %.3f s", name, s, sum.OverBudget[name])
		}
		if known := len(slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return of(r) == nil })); known < len(rows)*6/10 {
			t.Errorf("%s is known in only %d of %d rows", name, known, len(rows))
		}
	}
	if n := len(rows); rows[n-1].at < 20 || float64(n) < 2*rows[n-1].at {
		t.Errorf("%d rows for %.1f s", n, rows[n-1].at)
	}
}

// checkStory checks that everything happened, in order, with figures.
func checkStory(t *testing.T, sum summary, said string) {
	t.Helper()
	last := 0.0
	for _, what := range []string{"budget cut", "leader killed", "new leader", "powerd killed", "powerd back", "budget raised"} {
		at := sum.at(t, what)
		if at < last {
			t.Errorf("%q at %.3f s came before what it follows (%.3f s)", what, at, last)
		}
		last = at
	}
	if len(sum.Events) != 6 || sum.Nodes != 3 || sum.Failover == nil || sum.Readopt == nil {
		t.Errorf("%d events, %d nodes, failover %v, readopt %v", len(sum.Events), sum.Nodes, sum.Failover, sum.Readopt)
	}
	if sum.Failover != nil && *sum.Failover > sum.at(t, "new leader")-sum.at(t, "leader killed")+0.1 {
		t.Errorf("failover_s is %.3f, more than between its events", *sum.Failover)
	}
	if !regexp.MustCompile(`budget raised .* while [1-9]\d* high and [1-9]\d* low tasks run`).MatchString(said) {
		t.Errorf("tasks of both classes should run when the budget is raised:\n%s", said)
	}
	if !regexp.MustCompile(`slowed down by (a cgroup|signals).*plain files`).MatchString(said) {
		t.Error("it is not said what slows the nodes and what their trees are")
	}
}

// checkJobs checks that jobs of both classes were done, and that what is reported as
// done has a result.
func checkJobs(t *testing.T, out string, sum summary) {
	t.Helper()
	done := map[string]int{}
	energy := 0.0
	for _, j := range sum.Jobs {
		if j.State != "done" && j.State != "cancelled" {
			t.Errorf("job %s is %s", j.Name, j.State)
		}
		if j.State == "done" {
			done[j.Class]++
			energy += *j.EnergyJ
			if results, _ := filepath.Glob(filepath.Join(out, "out", j.Name+"-*", "*")); j.Done != j.Tasks || j.RuntimeS == nil || len(results) == 0 {
				t.Errorf("job %s is done with %d of %d tasks and %d files", j.Name, j.Done, j.Tasks, len(results))
			}
		}
	}
	if done["high"] == 0 || done["low"] == 0 || energy < 1000 {
		t.Errorf("done jobs by class: %v, with %.0f J", done, energy)
	}
}

// An interrupt in the middle ends everything, with the exit code for it.
func TestDemoInterrupted(t *testing.T) { //nolint:paralleltest // uses the whole machine
	if testing.Short() {
		testkit.NotRun(t, "the demonstration takes the whole machine")
	}
	bin, out := programs(t), filepath.Join(t.TempDir(), "out")
	cmd, said := demo(t.Context(), bin, out, "--nodes", "3")
	testkit.Check(t, cmd.Start())
	// The run begins with power.csv.
	testkit.Eventually(t, 5*time.Minute, "rows in power.csv", func() bool {
		data, err := os.ReadFile(filepath.Join(out, "power.csv"))
		return err == nil && bytes.Count(data, []byte("\n")) > 12
	})
	if n := len(processes(out)); n < 3+1+3*3 {
		t.Errorf("only %d processes run in the middle of the demonstration", n)
	}
	interrupted := time.Now()
	testkit.Check(t, cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d (%v), want 130\n%s", code, err, said)
	}
	if took := time.Since(interrupted); took > 20*time.Second {
		t.Errorf("it took %v to end", took)
	}
	checkNothingLeft(t, out)
}

// checkNothingLeft checks that no process and no cgroup of the run is left.
func checkNothingLeft(t *testing.T, out string) {
	t.Helper()
	if left := processes(out); len(left) > 0 {
		t.Errorf("still running: %s", strings.Join(left, "; "))
	}
	// A run's nodes share a cgroup named for their folder.
	sum := sha256.Sum256([]byte(filepath.Join(out, "nodes")))
	name := "headroom-" + hex.EncodeToString(sum[:6])
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
}

// processes are the command lines that name the folder; a demo's own processes
// all do. The zombie of a process that ended has none.
func processes(folder string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		args, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || err != nil {
			continue
		}
		if text := strings.ReplaceAll(string(args), "\x00", " "); strings.Contains(text, folder+"/") {
			found = append(found, fmt.Sprintf("%s %s", filepath.Base(filepath.Dir(file)), text))
		}
	}
	return found
}
