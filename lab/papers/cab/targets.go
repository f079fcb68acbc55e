package cab

import (
	"fmt"
	"math"

	"headroom/lab/papers"
)

// figures is what all trials came to.
type figures struct {
	trials []trial
}

// each is one value for each seed: f of its trial. Seeds of which f does not know it are left out.
func (f *figures) each(of func(t *trial) (float64, bool)) []float64 {
	var values []float64
	for i := range f.trials {
		if v, ok := of(&f.trials[i]); ok {
			values = append(values, v)
		}
	}
	return values
}

// runtime is the normalised runtime of an experiment.
func (f *figures) runtime(k key) papers.Stat {
	return papers.Of(f.each(func(t *trial) (float64, bool) {
		r, ok := t.results[k]
		return r.runtime, ok
	}))
}

// change is by how many percent an experiment takes longer by one variant than by
// another, over the seeds.
func (f *figures) change(k key, than string) papers.Stat {
	return papers.Of(f.each(func(t *trial) (float64, bool) { return t.change(k, than) }))
}

func (t *trial) change(k key, than string) (float64, bool) {
	other := k
	other.variant = than
	a, ok := t.results[k]
	b, ok2 := t.results[other]
	return (a.runtime/b.runtime - 1) * 100, ok && ok2
}

// experiments are all with caps that pick names, by one variant.
func experiments(variant string, pick func(caps) bool) []key {
	var keys []key
	for _, w := range sets() {
		for _, c := range schedules() {
			for _, q := range qualities() {
				if pick(c) {
					keys = append(keys, key{w.number, c.name, q, variant})
				}
			}
		}
	}
	return keys
}

func fixed(c caps) bool { return !c.steps }
func anyCaps(caps) bool { return true }
func only(n string) func(caps) bool {
	return func(c caps) bool { return c.name == n }
}

// changes is the mean change of our variant against another over experiments, and the
// experiment in which it is best.
func (f *figures) changes(than string, pick func(caps) bool) (mean, best papers.Stat, at key) {
	keys := experiments(ours, pick)
	mean = papers.Of(f.each(func(t *trial) (sum float64, known bool) {
		for _, k := range keys {
			c, ok := t.change(k, than)
			if !ok {
				return 0, false
			}
			sum += c / float64(len(keys))
		}
		return sum, true
	}))
	for _, k := range keys {
		if c := f.change(k, than); c.Known && (!best.Known || c.Mean < best.Mean) {
			best, at = c, k
		}
	}
	return mean, best, at
}

// targets judges everything.
func (f *figures) targets() []papers.Target {
	all := f.table2()
	all = append(all, f.fig4()...)
	all = append(all, f.shares(), f.byCap())
	all = append(all, f.against()...)
	return append(all, f.estimates())
}

// noise is how much the paper's own runs of one experiment differ: its capped runs, which
// all run all tasks, take 1.72 and 1.65 in two columns of Table II.
const noise = 0.04

// What Table II has for CAB, by quality.
func paperTable2() map[int]float64 { return map[int]float64{95: 1.72, 90: 1.42, 85: 1.22, 80: 1.22} }

// table2 is D1 to D3: set 3 under the stepping cap.
func (f *figures) table2() []papers.Target {
	const slack = 1.02
	var all, gains []papers.Target
	var equal papers.Target
	for _, q := range qualities() {
		k := key{3, "stepping", q, ours}
		by := func(variant string) papers.Stat { k.variant = variant; return f.runtime(k) }
		o, a, c := by(ours), by(approx), by(capped)
		all = append(all, papers.From(paperTable2()[q], papers.Around(paperTable2()[q], noise*paperTable2()[q]), papers.Judge(fmt.Sprintf("D1/%d", q), fmt.Sprintf("normalised runtime of set 3 at %d %%, stepping cap", q), "", o,
			o.Mean <= slack*a.Mean && a.Mean <= slack*c.Mean,
			fmt.Sprintf("ours %.3f, ApproxHadoop %.3f, capped %.3f: to be in this order, within 2 %%", o.Mean, a.Mean, c.Mean))))
		k.variant = ours
		switch q {
		case 95:
			spread := papers.Of(f.each(func(t *trial) (float64, bool) { return t.spread(k) }))
			equal = papers.From(0, papers.Around(0, 100*noise), papers.Judge("D2", "set 3 at 95 %: largest difference between the three", "%", spread, spread.Mean <= 100*noise, "the three are to be equal"))
		case 85, 80:
			gain := f.change(k, capped)
			gains = append(gains, papers.From(-26.1, papers.Range{Low: -32, High: -20}, papers.Judge(fmt.Sprintf("D3/%d", q), fmt.Sprintf("set 3 at %d %%, stepping cap: ours against capped", q), "%", gain,
				gain.Mean < 0, "")))
		}
	}
	return append(append(all, equal), gains...)
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

// fig4 is D4 and D5: all sets under fixed caps.
func (f *figures) fig4() []papers.Target {
	cm, cb, cat := f.changes(capped, fixed)
	am, ab, aat := f.changes(approx, fixed)
	at := func(k key) string { return fmt.Sprintf("set %d, %s W, %d %%", k.set, k.caps, k.quality) }
	less := func(id, what string, got papers.Stat, note string) papers.Target {
		return papers.Judge(id, "fixed caps: ours against "+what, "%", got, got.Mean < 0, note)
	}
	return []papers.Target{
		papers.From(-19.18, papers.Range{Low: -30, High: -14}, less("D4/mean", "capped, mean", cm, "")),
		papers.From(-39.4, papers.AtMost(-30), less("D4/best", "capped, best", cb, "in "+at(cat))),
		papers.From(-5.26, papers.Range{Low: -12, High: -2}, less("D5/mean", "ApproxHadoop, mean", am, "")),
		papers.From(-10.7, papers.AtMost(-7), less("D5/best", "ApproxHadoop, best", ab, "in "+at(aat))),
	}
}

// shares is D6: who has more containers in the run of Fig. 5.
func (f *figures) shares() papers.Target {
	held := make([]papers.Stat, 3)
	for i := range held {
		held[i] = papers.Of(f.each(func(t *trial) (float64, bool) {
			r, ok := t.results[figure5()]
			if !ok {
				return 0, false
			}
			return r.held[i], true
		}))
	}
	least := papers.Of(f.each(func(t *trial) (float64, bool) {
		r, ok := t.results[figure5()]
		if !ok {
			return 0, false
		}
		return min(r.held[0]-r.held[1], r.held[1]-r.held[2]), true
	}))
	inOrder := held[0].Mean > held[1].Mean && held[1].Mean > held[2].Mean
	return papers.Judge("D6", "Fig. 5: by how many containers each queue has more than the next, the least", "containers", least, inOrder,
		fmt.Sprintf("means over time, while all run: queue 1 %.1f, queue 2 %.1f, queue 3 %.1f: to be in this order", held[0].Mean, held[1].Mean, held[2].Mean))
}

// byCap is D7: under which cap the gain against ApproxHadoop is largest.
func (f *figures) byCap() papers.Target {
	gains := map[string]papers.Stat{}
	for _, c := range schedules() {
		if fixed(c) {
			gains[c.name], _, _ = f.changes(approx, only(c.name))
		}
	}
	most := gains["200"]
	lead := min(gains["250"].Mean, gains["175"].Mean) - most.Mean
	return papers.Judge("D7", "gain against ApproxHadoop at 200 W", "%", most, lead > 0, fmt.Sprintf(
		"250 W %.2f %%, 200 W %.2f %%, 175 W %.2f %%: to be largest at 200 W", gains["250"].Mean, most.Mean, gains["175"].Mean))
}

// against is D8: ours against CAB as printed, in the same runs.
func (f *figures) against() []papers.Target {
	jobs, jobsWorst, jobAt := f.spreadOver(ours, jobRuntimes)
	theirs, theirsWorst, theirAt := f.spreadOver(paper, jobRuntimes)
	setsMean, setsWorst, setAt := f.spreadOver(ours, setRuntime)
	theirSets, theirSetsWorst, theirSetAt := f.spreadOver(paper, setRuntime)
	at := func(k key) string { return fmt.Sprintf("set %d, %s, %d %%", k.set, k.caps, k.quality) }
	than := func(mine, other papers.Stat, rule string) string {
		return fmt.Sprintf("ours %.4f, policy paper %.4f: %s", mine.Mean, other.Mean, rule)
	}
	floor := papers.Of(f.each(func(t *trial) (float64, bool) {
		least, known := math.Inf(1), false
		for _, k := range experiments(ours, anyCaps) {
			if r, ok := t.results[k]; ok {
				least, known = min(least, r.done), true
			}
		}
		return least, known
	}))
	return []papers.Target{
		papers.Judge("D8/mean", "ours: normalised runtime of a job, mean", "", jobs, jobs.Mean < theirs.Mean, than(jobs, theirs, "to be lower")),
		papers.Judge("D8/worst", "ours: normalised runtime of a job, worst", "", jobsWorst, jobsWorst.Mean <= theirsWorst.Mean,
			than(jobsWorst, theirsWorst, "not to be higher")+fmt.Sprintf("; in %s, theirs in %s", at(jobAt), at(theirAt))),
		papers.Judge("D8/sets-mean", "ours: normalised runtime of a set, mean", "", setsMean, setsMean.Mean < theirSets.Mean, than(setsMean, theirSets, "to be lower")),
		papers.Judge("D8/sets-worst", "ours: normalised runtime of a set, worst", "", setsWorst, setsWorst.Mean <= theirSetsWorst.Mean,
			than(setsWorst, theirSetsWorst, "not to be higher")+fmt.Sprintf("; in %s, theirs in %s", at(setAt), at(theirSetAt))),
		papers.Judge("D8/floor", "ours: tasks done over the quality floor, least of all jobs", "", floor, floor.Mean >= 1, "to be 1 or more in every run"),
	}
}

func jobRuntimes(r *result) []float64 { return r.jobs }
func setRuntime(r *result) []float64  { return []float64{r.runtime} }

// spreadOver is the mean and the worst of values over all experiments of a variant: the
// worst is the highest mean over the seeds, in the experiment named.
func (f *figures) spreadOver(variant string, values func(*result) []float64) (mean, worst papers.Stat, at key) {
	keys := experiments(variant, anyCaps)
	mean = papers.Of(f.each(func(t *trial) (float64, bool) {
		sum, n := 0.0, 0.0
		for _, k := range keys {
			r, ok := t.results[k]
			if !ok {
				return 0, false
			}
			for _, v := range values(&r) {
				sum, n = sum+v, n+1
			}
		}
		return sum / n, true
	}))
	for _, k := range keys {
		for i := range values(&result{jobs: make([]float64, 3)}) {
			s := papers.Of(f.each(func(t *trial) (float64, bool) {
				r, ok := t.results[k]
				if !ok {
					return 0, false
				}
				return values(&r)[i], true
			}))
			if s.Known && (!worst.Known || s.Mean > worst.Mean) {
				worst, at = s, k
			}
		}
	}
	return mean, worst, at
}

// estimates is D9.
func (f *figures) estimates() papers.Target {
	ratio := papers.Of(f.each(func(t *trial) (float64, bool) { return t.errors.learned / t.errors.paper, t.errors.n > 0 }))
	mean := func(of func(*errors) float64) float64 {
		sum, n := 0.0, 0
		for i := range f.trials {
			e := &f.trials[i].errors
			sum, n = sum+of(e), n+e.n
		}
		return sum / float64(max(1, n)) * 100
	}
	return papers.Judge("D9", "error of finish times: ours over the paper's filter", "", ratio, ratio.Mean < 0.5, fmt.Sprintf(
		"mean errors: ours %.2f %% (%.2f %% of jobs that never ran before), the filter %.2f %%: to be less than half",
		mean(func(e *errors) float64 { return e.learned }), mean(func(e *errors) float64 { return e.fresh }), mean(func(e *errors) float64 { return e.paper })))
}
