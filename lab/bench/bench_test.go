// Claims: every benchmark gives finite figures in its quick form and ends what it starts; a value
// that cannot be measured is null, with its reason; the judge of steps finds the settling and the
// overshoot of a made-up trajectory; a result is judged by the ranges of its figures. No timing is
// asserted.
package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lease"
	"headroom/units"
)

// bin is where make build puts the programs.
const bin = "../../bin"

// execute runs the command line in process.
func execute(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	root := &cobra.Command{Use: "powerlab"}
	root.AddCommand(NewCommand())
	var out, errs bytes.Buffer
	exit = cli.Run(t.Context(), root, append([]string{"bench"}, args...), &out, &errs)
	return exit, out.String(), errs.String()
}

// Each benchmark in its quick form, with real programs.
func TestQuick(t *testing.T) {
	t.Parallel()
	testkit.Programs(t)
	exit, out, errs := execute(t, "--quick", "--bin", bin, "-o", "json")
	if exit != cli.ExitOK {
		t.Fatalf("exit %d, %s", exit, errs)
	}
	var r Report
	testkit.Check(t, json.Unmarshal([]byte(out), &r))
	if r.Noise.Min <= 0 || r.Noise.Max < r.Noise.Median || r.Noise.Median < r.Noise.Min || !r.Quick {
		t.Errorf("noise %+v, quick %v", r.Noise, r.Quick)
	}
	var want, got []string
	for _, b := range suite() {
		for _, f := range b.figures {
			want = append(want, f.name)
		}
	}
	for _, i := range r.Items {
		got = append(got, i.Name)
		for _, v := range []*float64{i.Value, i.P50, i.P99, i.Peer, i.Ratio} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0) || *v < 0 && i.Unit != "%") {
				t.Errorf("%s: %v", i.Name, *v)
			}
		}
		if i.Value == nil || i.Unit == "" || i.What == "" || (i.Goal == nil) != (i.Met == nil) || i.P50 != nil && *i.P50 > *i.P99 {
			t.Errorf("%+v", i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("items %v, want %v", got, want)
	}
}

// `bench cluster -o json` has exactly these fields; without the programs they are null, and the exit code is 8.
func TestClusterFields(t *testing.T) {
	t.Parallel()
	exit, out, errs := execute(t, "cluster", "--bin", t.TempDir(), "--nodes", "4", "--duration", "1s", "--no-etcd", "-o", "json")
	if exit != cli.ExitDegraded || !strings.Contains(errs, "not measured: exchange") || !strings.Contains(errs, "make build") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	var got map[string]any
	testkit.Check(t, json.Unmarshal([]byte(out), &got))
	want := []string{
		"budget_cut_s", "cpu_per_node_s_per_s", "etcd_ratio", "exchange_s", "failover_over_budget_ws", "failover_s",
		"log_bytes_per_s", "nodes", "plan_10000_s", "tick_10000_s",
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("fields %v", names)
	}
	if got["cpu_per_node_s_per_s"] != nil || got["exchange_s"].(map[string]any)["p99"] != nil { //nolint:forcetypeassert // a panic fails the test too
		t.Errorf("%v", got)
	}
	full := clusterFields(2, map[string]reading{"exchange": {values: []float64{1, 3}, peer: []float64{2}}, "server-cpu": {values: one(5), peer: one(10)}, "server-log": {values: one(1), peer: one(4)}})
	exchange, ok1 := full["exchange_s"].(map[string]*float64)
	cpu, ok2 := full["cpu_per_node_s_per_s"].(*float64)
	ratios, ok3 := full["etcd_ratio"].(map[string]float64)
	if !ok1 || !ok2 || !ok3 || *exchange["p99"] != 3 || math.Abs(*cpu-5e-6) > 1e-12 || !maps.Equal(ratios, map[string]float64{"exchange_p50": 0.5, "exchange_p99": 1.5, "cpu_per_node": 0.5, "log_bytes": 0.25}) {
		t.Errorf("%+v", full)
	}
}

func TestJudgeOfSteps(t *testing.T) {
	t.Parallel()
	points := func(of func(at time.Duration) float64) (all []point) {
		for at := time.Duration(0); at < stepWatched; at += judged {
			all = append(all, point{wall: of(at), free: 300})
		}
		return all
	}
	bump := judge(points(func(at time.Duration) float64 {
		switch {
		case at < time.Second:
			return 200
		case at >= 6*time.Second && at < 6200*time.Millisecond:
			return 105
		}
		return 100
	}), 100)
	if bump.settle != 1 || math.Abs(bump.over-0.05) > 1e-9 || bump.longest != 0.2 || math.Abs(bump.steady-0.05*4/160) > 1e-9 {
		t.Errorf("a bump of 5 %% for 200 ms: %+v", bump)
	}
	if v := judge(points(func(time.Duration) float64 { return 130 }), 100); !math.IsInf(v.settle, 1) || math.Abs(v.steady-0.3) > 1e-9 {
		t.Errorf("never: %+v", v)
	}
}

// The fleet integrates what its nodes hold above a budget, and follows the leaders.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := &fleet{stood: make([]standing, 2)}
	at := time.Now()
	after := func(s float64) time.Time { return at.Add(time.Duration(s * float64(time.Second))) }
	one, two := lease.Epoch{Incarnation: 1, Term: 1}, lease.Epoch{Incarnation: 1, Term: 2}
	stands := func(node int, watts units.Power, e lease.Epoch, seconds float64) {
		f.stands(node, standing{cap: watts * units.Watt, held: watts > 80, epoch: e}, after(seconds))
	}
	stands(0, 150, one, -1)
	stands(1, 120, one, -1)
	f.watch(200*units.Watt, at)
	if first, _, all := f.watched(after(1)); all || !first.IsZero() { // 270 W: 70 above
		t.Errorf("the second epoch before it began, from %v", first)
	}
	stands(0, 100, two, 3) // 220 W: 20 above
	stands(1, 80, one, 5)  // 180 W, its lease has ended
	if sum, held := f.holds(); sum != 180*units.Watt || held != 1 || f.old != one {
		t.Errorf("holds %v, %d held, epoch %v", sum, held, f.old)
	}
	if first, over, all := f.watched(after(6)); all || first != after(3) || math.Abs(over-250) > 1e-6 {
		t.Errorf("the second epoch from %v, every node %v, %v W s", first, all, over)
	}
	stands(1, 90, two, 10)
	if first, _, all := f.watched(after(11)); !all || first != after(3) {
		t.Errorf("the second epoch from %v, every node %v", first, all)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"did you mean cap-step?": {"--only", "cap-stepp"},
		"must be from 1 to 5000": {"cluster", "--nodes", "0"},
		"must be from 1s":        {"cluster", "--duration", "1ms"},
		"only with --check":      {"result.json"},
		"not of --quick":         {"--check", "--quick"},
		"not a result":           {"--check", "ranges.yaml"},
	} {
		if exit, _, errs := execute(t, args...); exit != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, exit, errs)
		}
	}
	if exit, out, _ := execute(t, "--list"); exit != cli.ExitOK || !strings.Contains(out, "failover") {
		t.Errorf("--list: exit %d, %s", exit, out)
	}
}
