package specs

import (
	"context"
	"errors"
	"fmt"
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

// fig411 is the set-up of the figure.
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

// replayClaim is that a quantile lies near the simulation's.
func replayClaim(policy, load, class string, q int) experiment.Claim {
	name, within, unit := fmt.Sprintf("%s_p%d", class, q), shortWithin, "%"
	if class == "long" {
		within = longWithin
	}
	value := func(p experiment.Pair) float64 {
		return 100 * (experiment.Ratio(load, name+"_s", name+"_simulated_s")(p) - 1)
	}
	if q == 99 {
		within, unit = deviations, "sd"
		value = func(p experiment.Pair) float64 {
			f := p[load]
			return (f[name+"_s"] - f[name+"_simulated_s"]) / f[name+"_simulated_sd_s"]
		}
	}
	return claim(fmt.Sprintf("real/%s/%s/%s-p%d", policy, load, class, q),
		fmt.Sprintf("%s at %s %% load: completion of %s jobs, p%d, against the simulation", policy, load, class, q), unit, report.Range{Low: -within, High: within}, value)
}

// replayed are the first jobs of the trace with this load.
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
	simulated := map[string][]float64{}
	for i := range uint64(simulatedSeeds) {
		took, err := simulate(ctx, policy, l, r.Seed*simulatedSeeds+i)
		if err != nil {
			return nil, err
		}
		for name, x := range quantilesOf(l, took) {
			simulated[name] = append(simulated[name], x)
		}
	}
	r.Note("%d jobs arrive within %.0f s", len(l.Jobs), replayFor)
	took, err := masters.Replay(ctx, policy, r.Dir, r.Bin, fig411(), r.Seed, l)
	if err != nil {
		return nil, err
	}
	f := experiment.Figures{}
	for name, x := range quantilesOf(l, took) {
		f[name+"_s"] = x
		f[name+"_simulated_s"], f[name+"_simulated_sd_s"] = stat.MeanStdDev(simulated[name], nil)
	}
	return f, nil
}

// simulate is the time of each job in the simulation.
func simulate(ctx context.Context, policy string, l *masters.Load, seed uint64) ([]float64, error) {
	took, of := make([]float64, len(l.Jobs)), fig411()
	_, err := dispatch.Run(ctx, dispatch.Setup{
		Policy: dispatch.Policy(policy), Workers: of.Workers(), Groups: of.Groups, Reserved: of.Reserved, Cutoff: l.Cutoff, Hop: dispatch.HopUsual,
		Distributors: of.Distributors, Seed: seed, Ended: func(e dispatch.Ended) { took[e.Index] = e.Completion },
	}, traces.All(l.Jobs))
	return took, err
}

// quantilesOf are those that the figure shows.
func quantilesOf(l *masters.Load, took []float64) map[string]float64 {
	out := map[string]float64{}
	for _, class := range []string{"short", "long"} {
		var times []float64
		for i, t := range took {
			if l.Long(i) == (class == "long") {
				times = append(times, t)
			}
		}
		slices.Sort(times)
		for _, q := range []int{50, 90, 99} {
			if len(times) > 0 {
				out[fmt.Sprintf("%s_p%d", class, q)] = dispatch.Percentile(times, float64(q)/100)
			}
		}
	}
	return out
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
	m := means{}
	for _, t := range took[splitFirst:] {
		m.add("mean_s", t)
	}
	f = m.figures()
	f["loops"] = float64(loops)
	return f, nil
}
