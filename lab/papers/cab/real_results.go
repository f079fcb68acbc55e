package cab

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/jobs/containers"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/report"
	"headroom/progress"
	"headroom/units"
)

// realResults is what came of a real run.
type realResults struct {
	set, quality int
	cap          float64
	jobs         []realJob
	runs         []realVariantRun // in the order in which they were made
	// blind are mistakes of the estimators that steps are compared by; none but of a mutant.
	blind blindness
}

// realVariantRun is the set, run once.
type realVariantRun struct {
	variant realVariant
	// pair is which of the pairs it belongs to, from 0.
	pair  int
	ended []realEnd // by job
	looks []realLookAt
	// steps are when the nodes held the budgets that it stepped to, since the maps began.
	steps []time.Duration
	// masters are the nodes that the application masters ran on, by job; least and most
	// the caps that nodes held when the maps began, as parts of their full power.
	masters     []string
	least, most float64
	// burn is how long a fixed piece of work took outside the nodes before the maps began.
	burn time.Duration
	host hostUse
}

// realEnd is how a job ended: by Hadoop, and as the coordinators have committed it.
type realEnd struct {
	result    hadoop.Result
	committed *headroomv1.Job
}

// realLookAt is what the coordinator knew and expected of a job at a time; since is
// after the maps were let begin.
type realLookAt struct {
	at    time.Time
	since time.Duration
	job   int
	is    *headroomv1.Job
}

// began is when the first map of any job started.
func (r *realVariantRun) began() time.Time {
	var first time.Time
	for _, e := range r.ended {
		for _, a := range e.result.History.Of("MAP", "SUCCEEDED") {
			if first.IsZero() || a.Started.Before(first) {
				first = a.Started
			}
		}
	}
	return first
}

// runtime is from the beginning of the set to a job's end.
func (r *realVariantRun) runtime(job int) time.Duration {
	return r.ended[job].result.Finished.Sub(r.began())
}

// makespan is the runtime of the job that ends last.
func (r *realVariantRun) makespan() (last time.Duration) {
	for i := range r.ended {
		last = max(last, r.runtime(i))
	}
	return last
}

// done is how many map tasks a job has completed, each counted once.
func (e *realEnd) done() int {
	tasks := map[string]bool{}
	for _, a := range e.result.History.Of("MAP", "SUCCEEDED") {
		tasks[a.ID[:strings.LastIndexByte(a.ID, '_')]] = true
	}
	return len(tasks)
}

// dropped is what the job's own counters say was dropped.
func (e *realEnd) dropped() int {
	n, _ := e.result.History.Counters.Get("headroom.hadoop.EarlyStopCounter", "DROPPED_TASKS")
	return int(n)
}

// recorded is how many map tasks the coordinators' log has as dropped.
func (e *realEnd) recorded() (n int) {
	for _, r := range e.committed.GetDropped() {
		n += int(r.GetLast()-r.GetFirst()) + 1
	}
	return n
}

// What a real run is judged by.
const (
	impactDown  = 30.  // %: how much of the cap's impact must go away in the mean
	impactBound = 15.  // %: what all of the bounds must lie above
	impactMin   = 0.05 // an impact below this is the machine's noise
	errorRatio  = 0.5  // of the errors of finish times, ours over the filter's
)

// targets judges a real run.
func (r *realResults) targets() []report.Target {
	all := []report.Target{
		r.impact("Y1", "runtime of the set: how much of the cap's impact goes away", realPair.setTime),
		r.impact("Y1/jobs", "runtime of a job, mean: how much of the cap's impact goes away", realPair.jobTimes),
	}
	for i := range r.jobs {
		all = append(all, r.floor(i))
	}
	all = append(all, r.foreseen())
	return append(all, r.afterStep()...)
}

// impact is how much of a cap's impact on a runtime ours takes away.
func (r *realResults) impact(id, what string, runtime func(p realPair, variant string) float64) report.Target {
	what = fmt.Sprintf("set %d at %d %%, cap %.0f %% of full power: %s", r.set, r.quality, 100*r.cap, what)
	var gone []float64
	times, words := map[string][]float64{}, []string{}
	for _, p := range r.pairs() {
		x := 100 * impactGone(runtime(p, capped)-1, runtime(p, ours)-1)
		gone, words = append(gone, x), append(words, p.says(x))
		for _, run := range p {
			times[run.variant.name] = append(times[run.variant.name], runtime(p, run.variant.name))
		}
	}
	var means []string
	for _, name := range []string{capped, approx, ours} {
		if len(times[name]) > 0 {
			means = append(means, name+" "+bounded(report.Of(times[name]), 3))
		}
	}
	note := fmt.Sprintf("normalised: %s; to be down by %.0f %% with all of the bounds above %.0f %%; %s",
		strings.Join(means, ", "), impactDown, impactBound, strings.Join(words, "; "))
	t := paired(id, what, "%", gone, note, impactVerdict)
	if t.Got == nil {
		t.Note = fmt.Sprintf("not measured: in a pair the cap slowed nothing by more than %.0f %%; %s", 100*impactMin, note)
	}
	return t
}

// floor is whether a job kept its quality floor in all runs, and whether all sides say
// the same of what was dropped.
func (r *realResults) floor(job int) report.Target {
	j := &r.jobs[job]
	kept, least := true, math.Inf(1)
	var words []string
	for i := range r.runs {
		run := &r.runs[i]
		e, floor := &run.ended[job], j.floor
		if run.variant.exact {
			floor = 1
		}
		tasks := int(e.committed.GetProgress().GetTasks())
		if tasks == 0 {
			tasks = e.done() + e.dropped()
		}
		need := containers.MinTasks(tasks, floor)
		least = min(least, float64(e.done())/float64(need))
		honest := e.done()+e.dropped() == tasks && e.recorded() == e.dropped()
		kept = kept && e.done() >= need && honest
		word := fmt.Sprintf("%s %d of %d done, %d needed", run.variant.name, e.done(), tasks, need)
		if !honest {
			word += fmt.Sprintf(" (its counters say %d dropped, the log %d)", e.dropped(), e.recorded())
		}
		if !slices.Contains(words, word) { // pairs repeat what went as before
			words = append(words, word)
		}
	}
	return report.Judge("Y2/"+j.name, j.name+": map tasks done over its floor's, the least of all runs", "", report.Once(least), kept,
		strings.Join(words, "; ")+": the floor is to be kept, the counters to agree with the log")
}

// foreseen compares the finish times that the coordinator expected in the capped runs
// with what came, and those of the paper's filter, which looks at the same, with the end
// of the map part, since it knows no reduce part.
func (r *realResults) foreseen() report.Target {
	const id, what = "Y3", "error of finish times in the capped run: ours over the paper's filter"
	var ratios, mine, theirs []float64
	n := 0
	for _, p := range r.pairs() {
		e := p.by(capped).foreseen(len(r.jobs))
		ratios = append(ratios, e.ours/e.filter)
		mine, theirs, n = append(mine, 100*e.ours/float64(e.n)), append(theirs, 100*e.filter/float64(e.n)), n+e.n
	}
	note := fmt.Sprintf("mean errors of %d looks: ours %s %%, the filter %s %%: to be less than half", n, bounded(report.Of(mine), 1), bounded(report.Of(theirs), 1))
	t := paired(id, what, "", ratios, note, func(s report.Stat) report.Verdict { return ratioVerdict(s.Mean < errorRatio, s.Mean) })
	if t.Got == nil {
		t.Note = "not measured: in a pair no finish time was known while map tasks were waiting"
	}
	return t
}

// lookErrors are sums of the errors of finish times, and of how many.
type lookErrors struct {
	ours, filter float64
	n            int
}

// foreseen is how far finish times of the run's jobs were off.
func (r *realVariantRun) foreseen(jobs int) (sum lookErrors) {
	filters := make([]*progress.Tracker, jobs)
	for i := range filters {
		filters[i] = progress.NewTracker(progress.Paper)
	}
	last := make([]time.Duration, jobs)
	for i := range r.looks {
		l := &r.looks[i]
		p, o := l.is.GetProgress(), l.is.GetOutlook()
		seen, known := seenAt(l)
		if !known || l.since-last[l.job] < loopEvery {
			continue
		}
		last[l.job] = l.since
		_ = filters[l.job].Observe(seen) // what it refuses it passes over
		filter := filters[l.job].Finish(seen.Power, seen.Containers, float64(p.GetTasks()))
		if p.GetPending() == 0 || o.FinishS == nil || !filter.Known {
			continue
		}
		began := l.at.Add(-seen.Elapsed)
		sum.ours += off(time.Duration(o.GetFinishS()*float64(time.Second)), r.ended[l.job].result.Finished.Sub(began))
		sum.filter += off(filter.At, r.ended[l.job].mapEnd().Sub(began))
		sum.n++
	}
	return sum
}

// afterStep is D10 on a real Hadoop: finish times that are foreseen in the 20 s after the
// last step of the budget, which the end can prove, by the filter and the learned curve
// as they are and blind to power. Neither has seen an earlier run.
func (r *realResults) afterStep() []report.Target {
	const filter, curve = "eq. (1) on a real Hadoop after a step of the budget: error of finish times, with its power term over without",
		"the learned curve on a real Hadoop after a step of the budget: error of finish times, with power over blind to it"
	const idFilter, idCurve = "D10/yarn", "D10/yarn-learned"
	var all []stepErrors
	for _, p := range r.pairs() {
		if run := p.by(stepped); run != nil {
			all = append(all, run.stepErrors(len(r.jobs), r.blind))
		}
	}
	if len(all) == 0 {
		const how = "not run: --steps measures it"
		return []report.Target{report.Left(idFilter, filter, "", how), report.Left(idCurve, curve, "", how)}
	}
	judge := func(id, what string, of func(e *stepErrors) (with, without float64)) report.Target {
		var ratios, seeing, blind []float64
		looks := 0
		for i := range all {
			with, without := of(&all[i])
			n := float64(all[i].n)
			ratios, seeing, blind = append(ratios, with/without), append(seeing, 100*with/n), append(blind, 100*without/n)
			looks += all[i].n
		}
		note := fmt.Sprintf("%d looks in the 20 s after the last step: with %s %%, without %s %%: to be less",
			looks, bounded(report.Of(seeing), 1), bounded(report.Of(blind), 1))
		return paired(id, what, "", ratios, note, func(s report.Stat) report.Verdict { return ratioVerdict(s.High < 1, s.Mean) })
	}
	return []report.Target{
		judge(idFilter, filter, func(e *stepErrors) (float64, float64) { return e.filter, e.filterBlind }),
		judge(idCurve, curve, func(e *stepErrors) (float64, float64) { return e.learned, e.learnedBlind }),
	}
}

// stepErrors are how far finish times were off after the last step of the budget.
func (r *realVariantRun) stepErrors(jobs int, blind blindness) stepErrors {
	var sum errors
	all, last := make([]estimators, jobs), make([]time.Duration, jobs)
	for i := range all {
		all[i] = estimators{
			learned: progress.NewTracker(progress.Learned), fresh: progress.NewTracker(progress.Learned), filter: progress.NewTracker(progress.Paper),
			learnedBlind: progress.NewTracker(progress.Learned), filterBlind: progress.NewTracker(progress.Paper),
		}
	}
	for i := range r.looks {
		l := &r.looks[i]
		seen, known := seenAt(l)
		if !known || l.since-last[l.job] < loopEvery {
			continue
		}
		last[l.job] = l.since
		x := &all[l.job]
		x.observe(seen, blind)
		if len(r.steps) == 0 || l.since < r.steps[len(r.steps)-1] || l.since >= r.steps[len(r.steps)-1]+stepWindow || l.is.GetProgress().GetPending() == 0 {
			continue
		}
		if said, known := x.finish(seen, blind); known {
			began := l.at.Add(-seen.Elapsed)
			sum.note(said, r.ended[l.job].result.Finished.Sub(began), r.ended[l.job].mapEnd().Sub(began), false, true)
		}
	}
	return sum.steps
}

// mapEnd is when the job's last map task ended.
func (e *realEnd) mapEnd() (last time.Time) {
	for _, a := range e.result.History.Of("MAP", "SUCCEEDED") {
		if a.Finished.After(last) {
			last = a.Finished
		}
	}
	return last
}

// files are the tables, and the pairs as a chart.
func (r *realResults) files() report.Files {
	return report.Files{"runs.csv": r.writeRuns, "pairs.csv": r.writePairs, "looks.csv": r.writeLooks, "pairs.svg": r.drawPairs}
}

// writeRuns has every job of every run, and the set as a whole.
func (r *realResults) writeRuns(w io.Writer) error {
	rows := [][]string{{
		"variant", "job", "queue", "floor", "tasks", "done", "dropped", "recorded", "runtime_s", "normalised", "cpu_s", "busy", "steal", "load", "pair", "master",
	}}
	for _, p := range r.pairs() {
		for _, run := range p {
			host := []string{report.Number(run.host.busy), report.Number(run.host.steal), report.Number(run.host.load), strconv.Itoa(run.pair + 1)}
			for k := range r.jobs {
				e, j := &run.ended[k], &r.jobs[k]
				ms, _ := e.result.History.Counters.Get(hadoop.TaskCounter, "CPU_MILLISECONDS")
				row := []string{
					run.variant.name, j.name, e.result.Queue, report.Number(e.committed.GetFloor()), strconv.Itoa(e.done() + e.dropped()), strconv.Itoa(e.done()),
					strconv.Itoa(e.dropped()), strconv.Itoa(e.recorded()), report.Number(run.runtime(k).Seconds()), report.Number(p.jobTime(run.variant.name, k)), report.Number(float64(ms) / 1000),
				}
				rows = append(rows, slices.Concat(row, host, []string{run.masters[k]}))
			}
			set := []string{
				run.variant.name, "set", "", "", "", "", "", "", report.Number(run.makespan().Seconds()), report.Number(p.setTime(run.variant.name)), "",
			}
			rows = append(rows, slices.Concat(set, host, []string{""}))
		}
	}
	return report.CSV(w, rows)
}

func (r *realResults) writeLooks(w io.Writer) error {
	rows := [][]string{{"variant", "at_s", "job", "runtime_s", "done", "running", "pending", "dropped", "work", "containers", "given", "finish_s", "uncapped_s", "cap_share", "why", "pair"}}
	for i := range r.runs {
		for _, l := range r.runs[i].looks {
			p, o := l.is.GetProgress(), l.is.GetOutlook()
			rows = append(rows, []string{
				r.runs[i].variant.name, report.Number(l.since.Seconds()), r.jobs[l.job].name, maybe(p.RuntimeS), strconv.Itoa(int(p.GetDone())),
				strconv.Itoa(int(p.GetRunning())), strconv.Itoa(int(p.GetPending())), strconv.Itoa(int(p.GetDropped())), maybe(p.Work),
				strconv.Itoa(int(p.GetContainers())), strconv.Itoa(int(o.GetContainers())), maybe(expected(o)), maybe(l.is.UncappedS), report.Number(o.GetCapShare()), o.GetWhy(), strconv.Itoa(r.runs[i].pair + 1),
			})
		}
	}
	return report.CSV(w, rows)
}

// maybe is a number, empty when unknown.
func maybe(x *float64) string {
	if x == nil {
		return ""
	}
	return report.Number(*x)
}

// seenAt is a look at a job as an estimator takes it; known where its runtime and its cap are.
func seenAt(l *realLookAt) (o progress.Observation, known bool) {
	p := l.is.GetProgress()
	if p.RuntimeS == nil || l.is.GetOutlook().GetCapShare() == 0 {
		return o, false
	}
	o = progress.Observation{
		Elapsed: time.Duration(p.GetRuntimeS() * float64(time.Second)), Tasks: int(p.GetTasks()), Done: int(p.GetDone()), Work: -1, Reduced: -1,
		Power: units.FromWatts(cluster.Rated().Watts() * l.is.GetOutlook().GetCapShare()), Full: cluster.Rated(),
		Containers: float64(max(1, int(p.GetContainers())-overhead)),
	}
	if p.Work != nil {
		o.Work = p.GetWork()
	}
	if p.Reduced != nil {
		o.Reduced = p.GetReduced()
	}
	o.Phase = arbitration.PhaseOf(p.GetPhase())
	return o, true
}

// expected is when the job is expected to end; nil while unknown.
func expected(o *headroomv1.JobOutlook) *float64 {
	if o == nil {
		return nil
	}
	return o.FinishS
}
