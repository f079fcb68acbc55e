package specs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"gonum.org/v1/gonum/stat"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/dispatch"
	"headroom/lab/emulator"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
	"headroom/lab/experiment/masters"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// Li's Fig. 4.11 on real programs: the first minutes of Google's traces on 120 workers, against the simulation of the
// same jobs. And Pigeon's split by learned power against the even one, with half of the nodes capped.
const (
	// replayFor is how much of a trace is replayed, s; replayCutoff the longest mean time of a short job's tasks, s.
	replayFor, replayCutoff = 200., 1.
	// simulatedSeeds is how many seeds of the simulation a replay is compared with.
	simulatedSeeds = 20
	// The tolerances for short and long jobs in percent; a 99th percentile may lie so many standard deviations away.
	shortWithin, longWithin, deviations = 15., 5., 3.
)

func fig411() masters.Shape { return masters.Shape{Groups: 3, Each: 40, Reserved: 4, Distributors: 10} }

func replays() (all []*experiment.Spec) {
	for _, policy := range []string{"pigeon", "sparrow", "eagle"} {
		s := &experiment.Spec{
			Name: policy, Says: "replay of Google's trace on 120 workers by " + policy + ", at two loads, against the simulation", Variants: []string{"50", "90"}, Pairs: 3,
			Traces: true, Run: func(ctx context.Context, r *experiment.Run) (experiment.Figures, error) {
				return replay(ctx, r, policy)
			},
		}
		for _, load := range s.Variants {
			for _, class := range []string{"short", "long"} {
				for _, q := range []int{50, 90, 99} {
					s.Claims = append(s.Claims, replayClaim(policy, load, class, q))
				}
			}
		}
		all = append(all, s)
	}
	return append(all, &experiment.Spec{
		Name: "pigeon-power", Says: "Pigeon's split by learned power against the even one, one of two groups capped", Variants: []string{splitLearned, splitEven}, Pairs: 5, Run: runSplit,
		Claims: []experiment.Claim{claim("capped/learned", "mean completion time by the split by learned power, shorter than by the even one", "%", report.Above(0),
			func(p experiment.Pair) float64 { return -experiment.Change("mean_s", splitLearned, splitEven)(p) })},
	})
}

func replayClaim(policy, load, class string, q int) experiment.Claim {
	name, within, unit := fmt.Sprintf("%s_p%d", class, q), shortWithin, "%"
	if class == "long" {
		within = longWithin
	}
	if q == 99 {
		within, unit = deviations, "sd"
	}
	return claim(fmt.Sprintf("real/%s/%s/%s-p%d", policy, load, class, q),
		fmt.Sprintf("%s at %s %% load: completion of %s jobs, p%d, against the simulation", policy, load, class, q), unit, report.Around(0, within), func(p experiment.Pair) float64 {
			if q < 99 {
				return 100 * (experiment.Ratio(load, name+"_s", name+"_simulated_s")(p) - 1)
			}
			f := p[load]
			return (f[name+"_s"] - f[name+"_simulated_s"]) / f[name+"_simulated_sd_s"]
		})
}

func replayed(r *experiment.Run) (*masters.Load, error) {
	f, err := traces.Open(r.Traces, "pigeon-google"+r.Variant)
	if err != nil {
		return nil, cli.Failed("set --traces to a folder that contains pigeon/NGO_trace"+r.Variant, "campaign: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	l := &masters.Load{Cutoff: replayCutoff}
	for j, err := range traces.Tasks(f, f.Name()) {
		if err != nil {
			return nil, err
		}
		if j.Arrival > replayFor {
			break
		}
		if slices.Max(j.Times) <= replayFor/2 { // the run must end
			l.Jobs = append(l.Jobs, traces.Job{Arrival: j.Arrival, Mean: j.Mean, Times: slices.Clone(j.Times)})
		}
	}
	return l, nil
}

func replay(ctx context.Context, r *experiment.Run, policy string) (experiment.Figures, error) {
	l, err := replayed(r)
	if err != nil {
		return nil, err
	}
	of, simulated := fig411(), map[string][]float64{}
	for i := range uint64(simulatedSeeds) {
		seen, err := dispatch.Run(ctx, dispatch.Setup{
			Policy: dispatch.Policy(policy), Workers: of.Workers(), Groups: of.Groups, Reserved: of.Reserved, Cutoff: l.Cutoff, Hop: dispatch.HopUsual,
			Distributors: of.Distributors, Seed: r.Seed*simulatedSeeds + i,
		}, traces.All(l.Jobs))
		if err != nil {
			return nil, err
		}
		for name, x := range quantiles(seen.Short, seen.Long) {
			simulated[name] = append(simulated[name], x)
		}
	}
	r.Note("%d jobs arrive within %.0f s", len(l.Jobs), replayFor)
	took, err := masters.Replay(ctx, policy, r.Dir, r.Bin, of, r.Seed, l)
	if err != nil {
		return nil, err
	}
	times := map[bool][]float64{}
	for i, t := range took {
		times[l.Long(i)] = append(times[l.Long(i)], t)
	}
	f := experiment.Figures{}
	for name, x := range quantiles(dispatch.ClassOf(times[false], nil), dispatch.ClassOf(times[true], nil)) {
		f[name+"_s"] = x
		f[name+"_simulated_s"], f[name+"_simulated_sd_s"] = stat.MeanStdDev(simulated[name], nil)
	}
	return f, nil
}

// quantiles are those that the figure shows; none of a class without jobs.
func quantiles(short, long dispatch.Class) map[string]float64 {
	all := map[string]float64{
		"short_p50": short.P50, "short_p90": short.P90, "short_p99": short.P99, "long_p50": long.P50, "long_p90": long.P90, "long_p99": long.P99,
	}
	maps.DeleteFunc(all, func(_ string, x float64) bool { return math.IsNaN(x) })
	return all
}

// The comparison of splits: four nodes of two slots each. Jobs of equal tasks come at a part of the load that the nodes could
// bear without caps; the first ones teach, and are not counted.
const (
	splitLearned, splitEven             = "learned", "even"
	splitNodes, splitSlots              = 4, 2
	splitFan, splitJobs, splitFirst     = 12, 24, 4
	splitTask, splitLoadPart, splitCap1 = 0.1, 0.3, 0.5
)

func splitLoad(seed uint64, cpus float64) *masters.Load {
	random := rand.New(rand.NewPCG(seed, 11))
	every := splitFan * splitTask / (splitLoadPart * emulator.HostShare * cpus)
	l, at := &masters.Load{Cutoff: replayCutoff}, 0.0
	for range splitJobs {
		at += random.ExpFloat64() * every
		l.Jobs = append(l.Jobs, traces.Job{Arrival: at, Mean: splitTask, Times: slices.Repeat([]float64{splitTask}, splitFan)})
	}
	return l
}

func runSplit(ctx context.Context, r *experiment.Run) (f experiment.Figures, err error) {
	loops := 0
	for _, earlier := range r.Earlier {
		loops = int(earlier["loops"])
	}
	if loops == 0 {
		if loops, err = masters.Loops(ctx, splitTask); err != nil {
			return nil, err
		}
	}
	l, err := harness.NewLab(ctx, r, cluster.Config{Coordinators: 1, Nodes: splitNodes, Racks: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	caps := []float64{1, 1, splitCap1, splitCap1}
	if err := errors.Join(cluster.AwaitNodes(l.Site.NodeDir(), l.Site.Nodes()...), l.Cap(ctx, caps...)); err != nil {
		return nil, err
	}
	if err := l.Await(ctx, "the nodes do not hold their caps", func(ctx context.Context) bool { return l.Held(ctx, caps...) }); err != nil {
		return nil, err
	}
	took, err := masters.Capped(ctx, l.Site, r.Path("masters"), r.Bin, splitSlots, r.Variant == splitLearned, loops, splitLoad(r.Seed, float64(runtime.NumCPU())))
	if err != nil {
		return nil, err
	}
	return experiment.Figures{"mean_s": stat.Mean(took[splitFirst:], nil), "loops": float64(loops)}, nil
}
