// Claims: every benchmark gives finite, sensible figures in its quick form and
// ends what it starts; what cannot be measured is unknown with its reason; the
// JSON has null where nothing is known. No test here asserts a timing.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"headroom/budget"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/units"
)

// bin is where make build puts the programs.
const bin = "../../bin"

// measure runs one benchmark in its quick form.
func measure(t *testing.T, name string) []Item {
	t.Helper()
	for _, b := range suite() {
		for _, p := range b.programs {
			if _, err := os.Stat(filepath.Join(bin, p)); b.name == name && err != nil {
				testkit.NotRun(t, "no program "+p+" in bin/; make build")
			}
		}
	}
	o := Options{Only: []string{name}, Quick: true, Bin: bin}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Noise.Runs != 2*calibrationRuns || r.Noise.Min <= 0 || r.Noise.Max < r.Noise.Median || r.Noise.Median < r.Noise.Min {
		t.Errorf("noise %+v", r.Noise)
	}
	return r.Items
}

func TestQuick(t *testing.T) {
	t.Parallel()
	for name, items := range map[string][]string{
		"cap-step": {"cap-step", "cap-step-over", "cap-step-mean"},
		"plan":     {"plan-10", "tick-10", "plan-100", "tick-100", "plan-1000", "tick-1000", "plan-10000", "tick-10000"},
		"arbiter":  {"arbiter-1000"},
		"dispatch": {"dispatch", "dispatch-decision"},
		"simulate": {"simulate", "simulate-memory"},
		"queue":    {"queue-2", "queue-3"},
		"sample":   {"sample"},
		"agent":    {"agent-cpu", "agent-rss"},
		"start":    {"agent-start"},
		"process":  {"process"},
		"failover": {"failover"},
		"cut":      {"cut-4", "cut-50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := measure(t, name)
			var names []string
			for _, i := range got {
				names = append(names, i.Name)
				sane(t, i)
			}
			if !slices.Equal(names, items) {
				t.Errorf("items %v, want %v", names, items)
			}
		})
	}
}

// sane checks that an item has a finite value, and quantiles in their order.
func sane(t *testing.T, i Item) {
	t.Helper()
	if i.Value == nil {
		t.Errorf("%s has no value: %s", i.Name, i.Note)
		return
	}
	for what, v := range map[string]*float64{"value": i.Value, "p50": i.P50, "p99": i.P99, "peer": i.Peer, "ratio": i.Ratio} {
		if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			t.Errorf("%s: %s is %v", i.Name, what, *v)
		}
	}
	if i.P50 != nil && i.P99 != nil && *i.P50 > *i.P99 {
		t.Errorf("%s: p50 %v is above p99 %v", i.Name, *i.P50, *i.P99)
	}
	if i.Unit == "" || i.What == "" || (i.Goal == nil) != (i.Met == nil) {
		t.Errorf("%s lacks a unit, words or a judgement: %+v", i.Name, i)
	}
	if *i.Value < 0 && i.Unit != "%" {
		t.Errorf("%s is %v %s", i.Name, *i.Value, i.Unit)
	}
}

// The peer of the plan fills the same tree to the same caps, so that the times compare.
func TestPeerPlansTheSame(t *testing.T) {
	t.Parallel()
	tree, homes, err := forest(130)
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]budget.Node, len(homes))
	for i, h := range homes {
		nodes[i] = budget.Node{
			Name: string(rune('a'+i%26)) + h + string(rune('A'+i/26)), Domain: h, Least: nodeLeast, Most: nodeMost,
			Demand: nodeLeast + units.Power(i%7)*10*units.Watt, Weight: 1 + float64(i%3),
		}
	}
	if d := difference(budget.Divide(tree, nodes, budget.Weighted).Caps, bisect(tree, nodes)); d > 2*budget.Quantum.Watts() {
		t.Errorf("caps are apart by %v W", d)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.8: 4, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile([]time.Duration{}, 0.5); got != 0 {
		t.Errorf("no values: %v", got)
	}
}

// execute runs the command line in process.
func execute(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	root := &cobra.Command{Use: "powerlab"}
	root.AddCommand(NewCommand())
	var out, errs bytes.Buffer
	exit = cli.Run(t.Context(), root, append([]string{"bench"}, args...), &out, &errs)
	return exit, out.String(), errs.String()
}

func TestCommand(t *testing.T) {
	t.Parallel()
	if exit, out, _ := execute(t, "--list"); exit != cli.ExitOK || !strings.Contains(out, "failover") {
		t.Errorf("--list: exit %d, %s", exit, out)
	}
	if exit, _, errs := execute(t, "--only", "cap-stepp"); exit != cli.ExitUsage || !strings.Contains(errs, "did you mean cap-step?") {
		t.Errorf("--only with a typo: exit %d, %s", exit, errs)
	}
	if exit, out, _ := execute(t, "--quick", "--only", "sample"); exit != cli.ExitOK || !strings.Contains(out, "machine: ") || !strings.Contains(out, "noise: ") {
		t.Errorf("table: exit %d, %s", exit, out)
	}
}

// Without the programs a figure is null, with the reason, and the exit code says so.
func TestUnknownIsNull(t *testing.T) {
	t.Parallel()
	exit, out, errs := execute(t, "--quick", "--only", "failover", "--bin", t.TempDir(), "-o", "json")
	if exit != cli.ExitDegraded || !strings.Contains(errs, "not measured: failover") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	item := r["items"].([]any)[0].(map[string]any) //nolint:forcetypeassert // a panic fails the test well enough
	for _, key := range []string{"goal", "value", "p50", "p99", "peer", "ratio", "met"} {
		if v, ok := item[key]; !ok || v != nil {
			t.Errorf("%s is %v, want null", key, v)
		}
	}
	if r["kind"] != "Bench" || !strings.Contains(item["note"].(string), "not run") { //nolint:forcetypeassert // as above
		t.Errorf("%s", out)
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	testkit.Check(t, together(t.Context(), 100, func(context.Context, int) error { ran.Add(1); return nil }))
	if ran.Load() != 100 {
		t.Errorf("%d of 100 ran", ran.Load())
	}
	failed := errors.New("planned")
	if err := together(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 3 {
			return failed
		}
		return nil
	}); !errors.Is(err, failed) || errors.Is(err, context.Canceled) {
		t.Errorf("one fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := together(ctx, 100, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("broken off: %v", err)
	}
}
