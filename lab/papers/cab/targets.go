package cab

import (
	"fmt"
	"math"
	"slices"

	"headroom/lab/report"
)

// figures are the trials of all seeds, from which targets, tables and plots are made.
type figures struct {
	trials []trial
	// measured are the sets with the queues that measured profiles give.
	measured []set
}

// each is one value for each seed: f of its trial. Seeds for which f has none are left out.
func (f *figures) each(of func(t *trial) (float64, bool)) report.Stat {
	return report.Each(f.trials, func(t trial) (float64, bool) { return of(&t) })
}

// of is a quantity of an experiment.
func (f *figures) of(k key, quantity func(*result) float64) report.Stat {
	return f.each(func(t *trial) (float64, bool) {
		r, ok := t.results[k]
		if !ok {
			return 0, false
		}
		return quantity(&r), true
	})
}

// runtime is the normalised runtime of an experiment.
func (f *figures) runtime(k key) report.Stat {
	return f.of(k, func(r *result) float64 { return r.runtime })
}

// change is by how many percent an experiment takes longer by one variant than by
// another, over the seeds.
func (f *figures) change(k key, than string) report.Stat {
	return f.each(func(t *trial) (float64, bool) { return t.change(k, than) })
}

// change: the capped variant is the same with an oracle and under all queues.
func (t *trial) change(k key, than string) (float64, bool) {
	other := k
	other.variant = than
	a, ok := t.results[k]
	b, ok2 := t.results[other.plain()]
	return (a.runtime/b.runtime - 1) * 100, ok && ok2
}

// plain is the key of the run that stands for k: that of the capped variant, which has no
// floors and requests no finish times, is made once.
func (k key) plain() key {
	if k.variant == capped {
		k.oracle, k.measured = false, false
	}
	return k
}

// experiments are those of some sets with caps that pick names, by one variant.
func experiments(variant string, of func(set) bool, pick func(caps) bool) []key {
	var keys []key
	for _, w := range sets() {
		for _, c := range schedules() {
			for _, q := range qualities() {
				if of(w) && pick(c) {
					keys = append(keys, key{set: w.number, caps: c.name, quality: q, variant: variant})
				}
			}
		}
	}
	return keys
}

func anySet(set) bool { return true }

// figure4 are the sets that Fig. 4 shows, and whose means the paper's text gives.
func figure4(w set) bool { return w.number <= 2 }

func fixed(c caps) bool { return !c.steps }
func anyCaps(caps) bool { return true }
func only(n string) func(caps) bool {
	return func(c caps) bool { return c.name == n }
}

// with are the same experiments, changed.
func with(keys []key, change func(*key)) []key {
	keys = slices.Clone(keys)
	for i := range keys {
		change(&keys[i])
	}
	return keys
}

func told(k *key) { k.oracle = true }

// changes is the mean change against another variant over experiments.
func (f *figures) changes(keys []key, than string) report.Stat {
	return f.each(func(t *trial) (float64, bool) { return t.changes(keys, than) })
}

func (t *trial) changes(keys []key, than string) (sum float64, known bool) {
	for _, k := range keys {
		c, ok := t.change(k, than)
		if !ok {
			return 0, false
		}
		sum += c / float64(len(keys))
	}
	return sum, true
}

// best is the experiment with the greatest gain against another variant.
func (f *figures) best(keys []key, than string) (best report.Stat, at key) {
	for _, k := range keys {
		if c := f.change(k, than); c.Known && (!best.Known || c.Mean < best.Mean) {
			best, at = c, k
		}
	}
	return best, at
}

// targets judges everything.
func (f *figures) targets() []report.Target {
	return slices.Concat(f.table2(), f.fig4(), []report.Target{f.shares(), f.byCap()}, f.baselines(), f.estimates(), f.table1())
}

// noise is how much the paper's own runs of one experiment differ: its capped runs, which
// all run all tasks, take 1.72 and 1.65 in two columns of Table II.
const noise = 0.04

// What Table II has for CAB, by quality.
func paperTable2() map[int]float64 { return map[int]float64{95: 1.72, 90: 1.42, 85: 1.22, 80: 1.22} }

// table2 is D1 to D3: set 3 under the stepping cap.
func (f *figures) table2() []report.Target {
	const slack = 1.02
	var all, gains []report.Target
	var same report.Target
	for _, q := range qualities() {
		k := key{set: 3, caps: "stepping", quality: q, variant: ours}
		by := func(variant string) report.Stat { k := k; k.variant = variant; return f.runtime(k) }
		knowing := k
		knowing.oracle = true
		o, a, c, kills := by(ours), by(approx), by(capped), by(oursKill)
		number := paperTable2()[q]
		all = append(all, report.WithOracle(f.runtime(knowing), report.From(number, report.Around(number, noise*number),
			report.Judge(fmt.Sprintf("D1/%d", q), fmt.Sprintf("normalised runtime of set 3 at %d %%, stepping cap", q), "", o,
				o.Mean <= slack*a.Mean && a.Mean <= slack*c.Mean,
				fmt.Sprintf("ours %.3f (%.3f if it killed running maps too), ApproxHadoop %.3f, capped %.3f: to be in this order, within 2 %%", o.Mean, kills.Mean, a.Mean, c.Mean)))))
		switch q {
		case 95:
			spread := f.each(func(t *trial) (float64, bool) { return t.spread(k) })
			same = report.From(0, report.Around(0, 100*noise), report.Judge("D2", "set 3 at 95 %: largest difference between the three", "%", spread, spread.Mean <= 100*noise, "the three are to be equal"))
		case 85, 80:
			gain := f.change(k, capped)
			gains = append(gains, report.WithOracle(f.change(knowing, capped), report.From(-26.1, report.Range{Low: -32, High: -20},
				report.Judge(fmt.Sprintf("D3/%d", q), fmt.Sprintf("set 3 at %d %%, stepping cap: ours against capped", q), "%", gain, gain.Mean < 0, ""))))
		}
	}
	return append(append(all, same), gains...)
}

// spread is by how many percent the slowest of ours, ApproxHadoop and capped is slower than the quickest.
func (t *trial) spread(k key) (float64, bool) {
	low, high := math.Inf(1), 0.0
	for _, v := range []string{ours, approx, capped} {
		k.variant = v
		r, ok := t.results[k]
		if !ok {
			return 0, false
		}
		low, high = min(low, r.runtime), max(high, r.runtime)
	}
	return (high/low - 1) * 100, true
}

// fig4 is D4 and D5: the sets and caps of Fig. 4.
func (f *figures) fig4() []report.Target {
	keys := experiments(ours, figure4, fixed)
	knowing := with(keys, told)
	kills := f.changes(experiments(oursKill, figure4, fixed), approx)
	cb, cat := f.best(keys, capped)
	ab, aat := f.best(keys, approx)
	at := func(k key) string { return fmt.Sprintf("in set %d, %s W, %d %%", k.set, k.caps, k.quality) }
	mean := func(id, what, than string, number float64, within report.Range, note string) report.Target {
		got := f.changes(keys, than)
		return report.WithOracle(f.changes(knowing, than), report.From(number, within, report.Judge(id, what, "%", got, got.Mean < 0, note)))
	}
	best := func(id, what, than string, number, most float64, got report.Stat, k key) report.Target {
		k.oracle = true
		return report.WithOracle(f.change(k, than), report.From(number, report.AtMost(most), report.Judge(id, what, "%", got, got.Mean < 0, at(k))))
	}
	return []report.Target{
		mean("D4/mean", "Fig. 4: ours against capped, mean", capped, -19.18, report.Range{Low: -30, High: -14}, ""),
		best("D4/best", "Fig. 4: ours against capped, best", capped, -39.4, -30, cb, cat),
		mean("D5/mean", "Fig. 4: ours against ApproxHadoop, mean", approx, -5.26, report.Range{Low: -12, High: -2},
			fmt.Sprintf("ApproxHadoop kills running maps; if ours did too: %.2f %%", kills.Mean)),
		best("D5/best", "Fig. 4: ours against ApproxHadoop, best", approx, -10.7, -7, ab, aat),
	}
}

// shares is D6: who has more containers in the run of Fig. 5.
func (f *figures) shares() report.Target {
	var held [3]report.Stat
	for i := range held {
		held[i] = f.of(figure5(), func(r *result) float64 { return r.held[i] })
	}
	least := f.of(figure5(), func(r *result) float64 { return min(r.held[0]-r.held[1], r.held[1]-r.held[2]) })
	return report.Judge("D6", "Fig. 5: by how many containers each queue has more than the next, the least", "containers", least, least.Mean >= 1,
		fmt.Sprintf("means over time, while all run: queue 1 %.1f, queue 2 %.1f, queue 3 %.1f: to be in this order, by 1 or more", held[0].Mean, held[1].Mean, held[2].Mean))
}

// byCap is D7: under which cap of Fig. 4 the gain against ApproxHadoop is largest.
func (f *figures) byCap() report.Target {
	gain := func(t *trial, cap string) (float64, bool) {
		return t.changes(experiments(ours, figure4, only(cap)), approx)
	}
	mean := func(cap string) float64 {
		return f.each(func(t *trial) (float64, bool) { return gain(t, cap) }).Mean
	}
	lead := f.each(func(t *trial) (float64, bool) {
		a, ok := gain(t, "250")
		b, ok2 := gain(t, "200")
		c, ok3 := gain(t, "175")
		return b - min(a, c), ok && ok2 && ok3
	})
	return report.Judge("D7", "Fig. 4: gain against ApproxHadoop at 200 W, beyond that at 250 and 175 W", "points", lead, lead.High < 0, fmt.Sprintf(
		"250 W %.2f %%, 200 W %.2f %%, 175 W %.2f %%: to be largest at 200 W, beyond the bounds", mean("250"), mean("200"), mean("175")))
}

// worstSlack is by how much the worst case of ours may be above another's, as a share:
// less than runs of one experiment differ.
const worstSlack = 0.005

// baselines are D8: ours against CAB as printed, as published, and against equal shares, in
// the same runs. Ours lets running maps end, as it ships; CAB's variants kill them, which
// is the better way for them.
func (f *figures) baselines() []report.Target {
	floor := f.each(func(t *trial) (float64, bool) {
		least, known := math.Inf(1), false
		for _, k := range experiments(ours, anySet, anyCaps) {
			if r, ok := t.results[k]; ok {
				least, known = min(least, r.done), true
			}
		}
		return least, known
	})
	jobs := func(r *result) []float64 { return r.jobs }
	set := func(r *result) []float64 { return []float64{r.runtime} }
	return []report.Target{
		f.against("D8/mean", "ours against policy paper: normalised runtime of a job, mean", paper, jobs, false),
		f.against("D8/worst", "ours against policy paper: normalised runtime of a job, worst", paper, jobs, true),
		f.against("D8/sets-mean", "ours against policy paper: normalised runtime of a set, mean", paper, set, false),
		f.against("D8/sets-worst", "ours against policy paper: normalised runtime of a set, worst", paper, set, true),
		f.against("D8/equal-mean", "ours against equal shares: normalised runtime of a job, mean", equal, jobs, false),
		f.against("D8/equal-worst", "ours against equal shares: normalised runtime of a job, worst", equal, jobs, true),
		f.against("D8/equal-sets", "ours against equal shares: normalised runtime of a set, mean", equal, set, false),
		f.against("D8/released-mean", "ours against policy released: normalised runtime of a job, mean", released, jobs, false),
		f.against("D8/released-sets", "ours against policy released: normalised runtime of a set, mean", released, set, false),
		report.Judge("D8/floor", "ours: tasks done over the quality floor, least of all jobs", "", floor, floor.Mean >= 1, "to be 1 or more in every run"),
	}
}

// against holds the mean or the worst case of all experiments by ours against that by another variant.
func (f *figures) against(id, what, than string, values func(*result) []float64, worst bool) report.Target {
	of, rule := meanOf, "to be lower, beyond the bounds"
	if worst {
		of, rule = slices.Max[[]float64], "not to be higher by more than 0.5 %"
	}
	over := func(variant string, oracle bool) report.Stat {
		return f.each(func(t *trial) (float64, bool) { return t.over(variant, oracle, values, of) })
	}
	mine, theirs := over(ours, false), over(than, false)
	by := f.each(func(t *trial) (float64, bool) {
		a, ok := t.over(ours, false, values, of)
		b, ok2 := t.over(than, false, values, of)
		return (a/b - 1) * 100, ok && ok2
	})
	mine.Known = mine.Known && theirs.Known
	note := fmt.Sprintf("%.4f, %s %.4f, %+.2f %% (%+.2f to %+.2f): %s", mine.Mean, than, theirs.Mean, by.Mean, by.Low, by.High, rule)
	if kills := over(oursKill, false); kills.Known && named(than)[0].kills {
		note += fmt.Sprintf("; %s kills running maps, if ours did too %.4f", than, kills.Mean)
	}
	a, b := over(ours, true), over(than, true)
	a.Known = a.Known && b.Known
	if a.Known {
		note += fmt.Sprintf("; with an oracle %.4f, %s %.4f", a.Mean, than, b.Mean)
	}
	return report.WithOracle(a, report.Judge(id, what, "", mine, !worst && by.High < 0 || worst && by.Mean <= 100*worstSlack, note))
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// over is a quantity of all experiments by a variant.
func (t *trial) over(variant string, oracle bool, values func(*result) []float64, of func([]float64) float64) (float64, bool) {
	var out []float64
	for _, k := range experiments(variant, anySet, anyCaps) {
		k.oracle = oracle
		r, ok := t.results[k]
		if !ok {
			return 0, false
		}
		out = append(out, values(&r)...)
	}
	return of(out), true
}

// What estimates are judged by: where the paper has no number, ours must halve the error.
const (
	halved = 0.5
	// learnedMost is by how much learned uncapped finish times may be off, in percent: D
	// stands for the goal of every job, and the paper's gains are twice as much.
	learnedMost = 10
)

// estimates is D9 to D11.
func (f *figures) estimates() []report.Target {
	minute, step := func(e *errors) *sums { return &e.minute }, func(e *errors) *sums { return &e.step }
	mean := func(of func(*errors) *sums, estimator int) float64 {
		sum, n := 0.0, 0
		for i := range f.trials {
			s := of(&f.trials[i].errors)
			sum, n = sum+s.off[estimator], n+s.n
		}
		return sum / float64(max(1, n)) * 100
	}
	ratio := func(of func(*errors) *sums, a, b int) report.Stat {
		return f.each(func(t *trial) (float64, bool) { s := of(&t.errors); return s.off[a] / s.off[b], s.off[b] > 0 })
	}
	all, eq1, curve := ratio(minute, learned, filter), ratio(step, filter, filterBlind), ratio(step, learned, learnedBlind)
	keys := experiments(capped, anySet, anyCaps)
	off := f.each(func(t *trial) (sum float64, known bool) {
		for _, k := range keys {
			r, ok := t.results[k]
			if !ok {
				return 0, false
			}
			sum += 100 * r.learned / float64(len(keys))
		}
		return sum, true
	})
	return []report.Target{
		report.Judge("D9", "error of finish times: ours over the paper's filter", "", all, all.Mean < halved, fmt.Sprintf(
			"mean errors: ours %.2f %% (%.2f %% of jobs that never ran before), the filter %.2f %%: to be less than half",
			mean(minute, learned), mean(minute, fresh), mean(minute, filter))),
		report.Judge("D10/filter", "eq. (1) after a step of the cap: error of finish times, with its power term over without", "", eq1, eq1.High < 1, fmt.Sprintf(
			"in the 20 s after each of the two steps of the stepping cap: with %.2f %%, without %.2f %%: to be less",
			mean(step, filter), mean(step, filterBlind))),
		report.Judge("D10/learned", "the learned curve after a step of the cap: error of finish times, with power over blind to it", "", curve, curve.Mean < halved, fmt.Sprintf(
			"at the same looks: with %.2f %%, blind %.2f %%: to be less than half", mean(step, learned), mean(step, learnedBlind))),
		report.Judge("D11", "uncapped finish times that are learned under a cap, from earlier runs of other draws: mean error", "%", off, off.Mean <= learnedMost,
			fmt.Sprintf("to be at most %d %%", learnedMost)),
	}
}
