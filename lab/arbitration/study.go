package arbitration

import (
	"context"
	"slices"
	"time"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// tuningSeeds is on how many seeds timers and members are chosen: those from 1 on, or, where these are judged, those
// after the judged ones.
const tuningSeeds = 40

// Result is the result of one policy.
type Result struct {
	Name    string                 `json:"name"`
	Says    string                 `json:"says"`
	Figures map[string]report.Stat `json:"figures"`

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

// tuning returns the seeds for choices if these are judged.
func (s seedRange) tuning(count int) seedRange {
	if s.first > uint64(count) {
		return seedRange{1, count}
	}
	return seedRange{s.first + uint64(s.count), count}
}

// measure runs the contest on a load: first on the tuning seeds, where timers and members are chosen, then on the
// judged ones.
func (c contest) measure(ctx context.Context, l *Load, judged seedRange, tune int) (*Answer, error) {
	known := map[string]Result{}
	tuned := func(variants []variant) ([]Result, error) {
		var fresh []variant
		for _, v := range variants {
			if _, ran := known[v.says]; !ran && !contains(fresh, v) {
				fresh = append(fresh, v)
			}
		}
		results, err := runAll(ctx, l, fresh, judged.tuning(tune))
		for i := range results {
			known[results[i].Says] = results[i]
		}
		out := make([]Result, len(variants))
		for i, v := range variants {
			out[i] = known[v.says]
		}
		return out, err
	}
	var all, members []variant
	var notes []string
	for _, b := range c.baselines {
		timed, result, err := b.tune(tuned)
		if err != nil {
			return nil, err
		}
		all = append(all, timed)
		m, note, err := c.choose(tuned, &result)
		if err != nil {
			return nil, err
		}
		members, notes = append(members, m), append(notes, note)
	}
	for _, v := range slices.Concat(c.shown, members) {
		if !contains(all, v) {
			all = append(all, v)
		}
	}
	a := &Answer{Seed: judged.first, Seeds: judged.count, Load: l.Name}
	var err error
	if a.Variants, err = runAll(ctx, l, all, judged); err != nil {
		return nil, err
	}
	for i, m := range members {
		at := slices.IndexFunc(all, func(v variant) bool { return v.name == m.name })
		a.judge(&a.Variants[i], &a.Variants[at], notes[i], len(members))
	}
	return a, nil
}

// contains reports whether a variant is among others.
func contains(all []variant, v variant) bool {
	return slices.ContainsFunc(all, func(x variant) bool { return x.says == v.says })
}

// tune returns the baseline with the sprint timer that is best by the objective, and its result.
func (v *variant) tune(run func([]variant) ([]Result, error)) (best variant, result Result, err error) {
	var trials []variant
	for _, t := range timers() {
		trials = append(trials, v.with(t))
	}
	results, err := run(trials)
	if err != nil {
		return best, result, err
	}
	at := 0
	for k := range results {
		if results[k].Figures[WeightedS].Mean < results[at].Figures[WeightedS].Mean {
			at = k
		}
	}
	return trials[at], results[at], nil
}

// runAll runs all variants on the seeds of a load, as many at a time as there are CPUs. Results are in the order of
// the variants.
func runAll(ctx context.Context, l *Load, variants []variant, seeds seedRange) ([]Result, error) {
	runs := make([]map[string]float64, len(variants)*seeds.count)
	err := papers.Each(len(runs), func(i int) error {
		v := &variants[i/seeds.count]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := newRun(l, seeds.first+uint64(i%seeds.count), v.decide())
		if !r.run() {
			return tooMuch(l, v.name)
		}
		runs[i] = r.figures()
		return nil
	}, func(int) {})
	if err != nil {
		return nil, err
	}
	out := make([]Result, len(variants))
	for i, v := range variants {
		out[i] = Result{Name: v.name, Says: v.says, Figures: map[string]report.Stat{}, each: map[string][]float64{}}
		for _, figures := range runs[i*seeds.count : (i+1)*seeds.count] {
			for name, x := range figures {
				out[i].each[name] = append(out[i].each[name], x)
			}
		}
		for name, each := range out[i].each {
			out[i].Figures[name] = report.Of(each)
		}
	}
	return out, nil
}

// tooMuch is the error of a load that does not end.
func tooMuch(l *Load, variant string) error {
	return cli.Failed("reduce the number of jobs, or give more watts or containers",
		"load %s: under %s, jobs have not ended %v after the last may come", l.Name, variant, drainMost)
}
