package arbitration

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"headroom/internal/cli"
	"headroom/lab/papers"
)

// tuningSeeds is on how many seeds timers and members are chosen: those from 1 on, or, where these are judged, those
// after the judged ones.
const tuningSeeds = 40

// Result is the result of one policy.
type Result struct {
	Name    string                 `json:"name"`
	Says    string                 `json:"says"`
	Figures map[string]papers.Stat `json:"figures"`

	each map[string][]float64
}

// Answer is the result of `powerlab arbitrate` on one load.
type Answer struct {
	Seed  uint64 `json:"seed"`
	Seeds int    `json:"seeds"`
	Load  string `json:"load"`
	// Variants are all ways to decide, Judged is each baseline against the member of our family at its cost, figure
	// by figure.
	Variants []Result `json:"variants"`
	Judged   []Judged `json:"judged"`
	// Verdicts are the sums of that, by baseline.
	Verdicts []Verdict `json:"verdicts"`
}

// contest is who takes part in a study.
type contest struct {
	baselines []variant
	// member makes a member of the family for a price of quality and a reserve, which are tried from prices and reserves.
	member   func(price time.Duration, keep reserve) variant
	prices   []time.Duration
	reserves []reserve
	// shown are variants that are always shown.
	shown []variant
}

// everybody is the list of policies that `powerlab arbitrate` compares.
func everybody() contest {
	return contest{baselines: baselines(), member: member, prices: prices(), reserves: []reserve{usual, spend, free, save}, shown: shown()}
}

// seedRange are seeds in a row.
type seedRange struct {
	first uint64
	count int
}

// tuning returns the seeds to choose by where these are judged.
func (s seedRange) tuning(count int) seedRange {
	if s.first > uint64(count) {
		return seedRange{1, count}
	}
	return seedRange{s.first + uint64(s.count), count}
}

// measure runs the contest on a load: first on the tuning seeds, where timers and members are chosen, then on the
// judged ones.
func (c contest) measure(ctx context.Context, l *Load, judged seedRange, tune int) (*Answer, error) {
	lab := &bench{ctx: ctx, load: l, seeds: judged.tuning(tune), known: map[string]Result{}}
	chosen, tuned, err := c.tune(lab)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(chosen, c.shown)
	picked := make([]pick, len(chosen))
	for i := range chosen {
		if picked[i], err = c.choose(lab, &tuned[i]); err != nil {
			return nil, err
		}
		if name := picked[i].variant.name; !slices.ContainsFunc(all, func(v variant) bool { return v.name == name }) {
			all = append(all, picked[i].variant)
		}
	}
	a := &Answer{Seed: judged.first, Seeds: judged.count, Load: l.Name}
	if a.Variants, err = runAll(ctx, l, all, judged); err != nil {
		return nil, err
	}
	for i := range chosen {
		at := slices.IndexFunc(all, func(v variant) bool { return v.name == picked[i].variant.name })
		a.judge(&a.Variants[i], &a.Variants[at], picked[i].note, len(chosen))
	}
	return a, nil
}

// tune chooses the sprint timer of each baseline, by the objective.
func (c contest) tune(lab *bench) (chosen []variant, tuned []Result, err error) {
	var trials []variant
	for _, b := range c.baselines {
		for _, t := range timers() {
			trials = append(trials, b.with(t))
		}
	}
	results, err := runAll(lab.ctx, lab.load, trials, lab.seeds)
	if err != nil {
		return nil, nil, err
	}
	for i := range c.baselines {
		at := len(timers()) * i
		best := at
		for k := at; k < at+len(timers()); k++ {
			if results[k].Figures[WeightedS].Mean < results[best].Figures[WeightedS].Mean {
				best = k
			}
		}
		chosen, tuned = append(chosen, trials[best]), append(tuned, results[best])
	}
	return chosen, tuned, nil
}

// bench is what variants show on the tuning seeds of a load, each once.
type bench struct {
	ctx   context.Context //nolint:containedctx // of one call of measure
	load  *Load
	seeds seedRange
	known map[string]Result
}

// of returns what variants show, by their order.
func (b *bench) of(variants []variant) ([]Result, error) {
	var fresh []variant
	for _, v := range variants {
		if _, known := b.known[v.name]; !known && !slices.ContainsFunc(fresh, func(x variant) bool { return x.name == v.name }) {
			fresh = append(fresh, v)
		}
	}
	results, err := runAll(b.ctx, b.load, fresh, b.seeds)
	if err != nil {
		return nil, err
	}
	for i, v := range fresh {
		b.known[v.name] = results[i]
	}
	out := make([]Result, len(variants))
	for i, v := range variants {
		out[i] = b.known[v.name]
	}
	return out, nil
}

// runAll runs all variants on the seeds of a load, as many at a time as there are CPUs. What comes of it is in
// the order of the variants and seeds.
func runAll(ctx context.Context, l *Load, variants []variant, seeds seedRange) ([]Result, error) {
	runs := make([]map[string]float64, len(variants)*seeds.count)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(len(runs), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				r := newRun(l, seeds.first+uint64(i%seeds.count), variants[i/seeds.count].decide())
				if r.run() {
					runs[i] = r.figures()
				}
			}
		})
	}
	for i := range runs {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]Result, len(variants))
	for i, v := range variants {
		out[i] = Result{Name: v.name, Says: v.says, Figures: map[string]papers.Stat{}, each: map[string][]float64{}}
		for k := range seeds.count {
			figures := runs[i*seeds.count+k]
			if figures == nil {
				return nil, tooMuch(l, v.name)
			}
			for name, x := range figures {
				out[i].each[name] = append(out[i].each[name], x)
			}
		}
		for name, each := range out[i].each {
			out[i].Figures[name] = papers.Of(each)
		}
	}
	return out, nil
}

// tooMuch is the error of a load that does not end.
func tooMuch(l *Load, variant string) error {
	return cli.Failed("reduce the number of jobs, or give more watts or containers",
		"load %s: under %s, jobs have not ended %v after the last may come", l.Name, variant, drainMost)
}
