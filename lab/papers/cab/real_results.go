package cab

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/jobs/containers"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/papers"
	"headroom/progress"
	"headroom/units"
)

// realResults is what came of a real run.
type realResults struct {
	set, quality int
	cap          float64
	jobs         []realJob
	runs         []realVariantRun
}

// realVariantRun is the set, run once.
type realVariantRun struct {
	variant realVariant
	ended   []realEnd // by job
	looks   []realLookAt
	// steps are when the nodes held the budgets that it stepped to, since the maps began.
	steps []time.Duration
	host  hostUse
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

// by is the run of a variant, or nil.
func (r *realResults) by(name string) *realVariantRun {
	for i := range r.runs {
		if r.runs[i].variant.name == name {
			return &r.runs[i]
		}
	}
	return nil
}

// setTime and jobTimes are what runtimes of a variant are over the uncapped ones: of the
// set, and the mean of its jobs.
func (r *realResults) setTime(name string) float64 {
	return r.by(name).makespan().Seconds() / r.by(uncapped).makespan().Seconds()
}

func (r *realResults) jobTimes(name string) (mean float64) {
	for i := range r.jobs {
		mean += r.jobTime(name, i) / float64(len(r.jobs))
	}
	return mean
}

func (r *realResults) jobTime(name string, job int) float64 {
	return r.by(name).runtime(job).Seconds() / r.by(uncapped).runtime(job).Seconds()
}

// What a real run is judged by.
const (
	impactDown = 30   // %: how much of the cap's impact must go away
	impactMin  = 0.05 // an impact below this is the machine's noise
	errorRatio = 0.5  // of the errors of finish times, ours over the filter's
)

// targets judges a real run.
func (r *realResults) targets() []papers.Target {
	all := []papers.Target{
		r.impact("Y1", "runtime of the set: how much of the cap's impact goes away", r.setTime),
		r.impact("Y1/jobs", "runtime of a job, mean: how much of the cap's impact goes away", r.jobTimes),
	}
	for i := range r.jobs {
		all = append(all, r.floor(i))
	}
	all = append(all, r.foreseen())
	return append(all, r.afterStep()...)
}

// impact is how much of a cap's impact on a runtime ours takes away.
func (r *realResults) impact(id, what string, runtime func(variant string) float64) papers.Target {
	what = fmt.Sprintf("set %d at %d %%, cap %.0f %% of full power: %s", r.set, r.quality, 100*r.cap, what)
	held, mine := runtime(capped)-1, runtime(ours)-1
	others := ""
	if r.by(approx) != nil {
		others = fmt.Sprintf(", ApproxHadoop %.3f", runtime(approx))
	}
	note := fmt.Sprintf("normalised: capped %.3f%s, ours %.3f; to be down by %d %%; one run each; %s", held+1, others, mine+1, impactDown, r.hosts())
	if held < impactMin {
		return papers.Target{ID: id, What: what, Unit: "%", Verdict: papers.Short, Note: "not measured: the cap slowed nothing; " + note}
	}
	gone := (1 - mine/held) * 100
	return papers.Judge(id, what, "%", papers.Once(gone), gone >= impactDown, note)
}

// hosts is how busy the machine was in each run.
func (r *realResults) hosts() string {
	var words []string
	for _, run := range r.runs {
		words = append(words, run.variant.name+": "+run.host.String())
	}
	return strings.Join(words, "; ")
}

// floor is whether a job kept its quality floor in all runs, and whether all sides say
// the same of what was dropped.
func (r *realResults) floor(job int) papers.Target {
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
		words = append(words, word)
	}
	return papers.Judge("Y2/"+j.name, j.name+": map tasks done over its floor's, the least of all runs", "", papers.Once(least), kept,
		strings.Join(words, "; ")+": the floor is to be kept, the counters to agree with the log")
}

// foreseen compares the finish times that the coordinator expected in the capped run
// with what came, and those of the paper's filter, which looks at the same, with the end
// of the map part, since it knows no reduce part.
func (r *realResults) foreseen() papers.Target {
	const id, what = "Y3", "error of finish times in the capped run: ours over the paper's filter"
	run := r.by(capped)
	filters := make([]*progress.Tracker, len(r.jobs))
	for i := range filters {
		filters[i] = progress.NewTracker(progress.Paper)
	}
	mine, theirs, n := 0.0, 0.0, 0
	last := make([]time.Duration, len(r.jobs))
	for i := range run.looks {
		l := &run.looks[i]
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
		mine += off(time.Duration(o.GetFinishS()*float64(time.Second)), run.ended[l.job].result.Finished.Sub(began))
		theirs += off(filter.At, run.ended[l.job].mapEnd().Sub(began))
		n++
	}
	if n == 0 || theirs == 0 {
		return papers.Target{ID: id, What: what, Verdict: papers.Short, Note: "not measured: no finish time was known while map tasks were waiting"}
	}
	return papers.Judge(id, what, "", papers.Once(mine/theirs), mine/theirs < errorRatio,
		fmt.Sprintf("mean errors of %d looks: ours %.1f %%, the filter %.1f %%: to be less than half", n, 100*mine/float64(n), 100*theirs/float64(n)))
}

// afterStep is D10 on a real Hadoop: finish times that are foreseen in the 20 s after the
// last step of the budget, which the end can prove, by the filter and the learned curve
// as they are and blind to power. Neither has seen an earlier run.
func (r *realResults) afterStep() []papers.Target {
	const filter, curve = "eq. (1) on a real Hadoop after a step of the budget: error of finish times, with its power term over without",
		"the learned curve on a real Hadoop after a step of the budget: error of finish times, with power over blind to it"
	run := r.by(stepped)
	if run == nil {
		const how = "not run: --steps measures it"
		return []papers.Target{papers.Left("D10/yarn", filter, "", how), papers.Left("D10/yarn-learned", curve, "", how)}
	}
	e := run.stepErrors(len(r.jobs))
	note := func(with, without float64) string {
		return fmt.Sprintf("%d looks in the 20 s after the last of %d steps: with %.1f %%, without %.1f %%: to be less; one run",
			e.n, len(run.steps), 100*with/float64(max(1, e.n)), 100*without/float64(max(1, e.n)))
	}
	ratio := func(with, without float64) papers.Stat {
		s := papers.Once(with / without)
		s.Known = e.n > 0 && without > 0
		return s
	}
	return []papers.Target{
		papers.Judge("D10/yarn", filter, "", ratio(e.filter, e.filterBlind), e.filter < e.filterBlind, note(e.filter, e.filterBlind)),
		papers.Judge("D10/yarn-learned", curve, "", ratio(e.learned, e.learnedBlind), e.learned < e.learnedBlind, note(e.learned, e.learnedBlind)),
	}
}

// stepErrors are how far finish times were off after the last step of the budget.
func (r *realVariantRun) stepErrors(jobs int) stepErrors {
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
		x.observe(seen, blindness{})
		if len(r.steps) == 0 || l.since < r.steps[len(r.steps)-1] || l.since >= r.steps[len(r.steps)-1]+stepWindow || l.is.GetProgress().GetPending() == 0 {
			continue
		}
		if said, known := x.finish(seen, blindness{}); known {
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

// files are the tables.
func (r *realResults) files() papers.Files {
	return papers.Files{"runs.csv": r.writeRuns, "looks.csv": r.writeLooks}
}

func (r *realResults) writeRuns(w io.Writer) error {
	rows := [][]string{{"variant", "job", "queue", "floor", "tasks", "done", "dropped", "recorded", "runtime_s", "normalised", "cpu_s", "busy", "steal", "load"}}
	for i := range r.runs {
		run := &r.runs[i]
		host := []string{papers.Number(run.host.busy), papers.Number(run.host.steal), papers.Number(run.host.load)}
		for k := range r.jobs {
			e, j := &run.ended[k], &r.jobs[k]
			ms, _ := e.result.History.Counters.Get(hadoop.TaskCounter, "CPU_MILLISECONDS")
			rows = append(rows, append([]string{
				run.variant.name, j.name, e.result.Queue, papers.Number(e.committed.GetFloor()), strconv.Itoa(e.done() + e.dropped()), strconv.Itoa(e.done()),
				strconv.Itoa(e.dropped()), strconv.Itoa(e.recorded()), papers.Number(run.runtime(k).Seconds()), papers.Number(r.jobTime(run.variant.name, k)), papers.Number(float64(ms) / 1000),
			}, host...))
		}
		rows = append(rows, append([]string{
			run.variant.name, "set", "", "", "", "", "", "", papers.Number(run.makespan().Seconds()), papers.Number(r.setTime(run.variant.name)), "",
		}, host...))
	}
	return papers.WriteCSV(w, rows)
}

func (r *realResults) writeLooks(w io.Writer) error {
	rows := [][]string{{"variant", "at_s", "job", "runtime_s", "done", "running", "pending", "dropped", "work", "containers", "given", "finish_s", "uncapped_s", "cap_share", "why"}}
	for i := range r.runs {
		for _, l := range r.runs[i].looks {
			p, o := l.is.GetProgress(), l.is.GetOutlook()
			rows = append(rows, []string{
				r.runs[i].variant.name, papers.Number(l.since.Seconds()), r.jobs[l.job].name, maybe(p.RuntimeS), strconv.Itoa(int(p.GetDone())),
				strconv.Itoa(int(p.GetRunning())), strconv.Itoa(int(p.GetPending())), strconv.Itoa(int(p.GetDropped())), maybe(p.Work),
				strconv.Itoa(int(p.GetContainers())), strconv.Itoa(int(o.GetContainers())), maybe(expected(o)), maybe(l.is.UncappedS), papers.Number(o.GetCapShare()), o.GetWhy(),
			})
		}
	}
	return papers.WriteCSV(w, rows)
}

// maybe is a number, empty when unknown.
func maybe(x *float64) string {
	if x == nil {
		return ""
	}
	return papers.Number(*x)
}

// hostUse is how busy the machine was over a time.
type hostUse struct {
	// busy and steal are parts of all CPU time: used by anybody, and taken by the host of
	// a virtual machine. load is the load average at the end.
	busy, steal, load float64
}

func (h hostUse) String() string {
	return fmt.Sprintf("CPUs %.0f %% busy, %.0f %% stolen, load %.1f", 100*h.busy, 100*h.steal, h.load)
}

// observeHost begins to look at the machine; what it returns ends that.
func observeHost() func() hostUse {
	before := cpuTimes()
	return func() hostUse {
		after := cpuTimes()
		all := after.all - before.all
		if all <= 0 {
			return hostUse{}
		}
		var load float64
		if text, err := os.ReadFile("/proc/loadavg"); err == nil {
			_, _ = fmt.Sscan(string(text), &load)
		}
		return hostUse{busy: 1 - (after.idle-before.idle)/all, steal: (after.steal - before.steal) / all, load: load}
	}
}

// cpuTime are ticks of all CPUs since the machine's start.
type cpuTime struct{ all, idle, steal float64 }

// cpuTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq, steal; what follows is part of user.
func cpuTimes() (c cpuTime) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(word, 64)
		if err != nil || i > 8 {
			continue
		}
		c.all += ticks
		switch i {
		case 4, 5:
			c.idle += ticks
		case 8:
			c.steal += ticks
		}
	}
	return c
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
