package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

// divide decides the shares. They are set from when a cap first slows a job until the last such job has ended; before
// and after that the engine divides.
func (a *Arbiter) divide(now time.Duration, in Input, joined bool, d *Decision) {
	policy := in.Settings.Containers
	if in.Containers <= 0 {
		return // unknown for now: the shares stay
	}
	if !policy.Sets() || policy != containers.Equal && !a.anyCapped(in.Jobs) {
		a.release(d)
		return
	}
	jobs := make([]containers.Job, 0, len(in.Jobs))
	for i := range in.Jobs {
		jobs = append(jobs, a.jobs[in.Jobs[i].ID].wants(&in))
	}
	settings := containers.Settings{}
	plan, err := containers.Allocate(policy, in.Containers, jobs, settings)
	if few, ok := errors.AsType[*containers.TooFewError](err); ok {
		d.Trouble = few.Error()
		jobs = slices.DeleteFunc(jobs, func(j containers.Job) bool { return slices.Contains(few.Without, j.Name) })
		plan, err = containers.Allocate(policy, in.Containers, jobs, settings)
	}
	if err != nil || len(jobs) == 0 {
		if err != nil {
			d.Trouble = err.Error()
		}
		a.release(d)
		return
	}
	old := a.standing(jobs)
	for i, s := range plan.Shares {
		a.jobs[jobs[i].Name].aim = s.Extra
	}
	forced := joined || !a.divided || a.policy != policy || a.total != in.Containers || a.overhead != in.Overhead || sum(old) != in.Containers || idle(jobs, old, in.Settings.Damping.Move)
	damping := in.Settings.Damping
	if policy != containers.Stretch {
		damping.Least = 0 // the other policies do not minimise the sum of delays
	}
	if !forced && !damping.Worth(now-a.at, old, counts(plan), containers.StretchOf(in.Containers, jobs, old), plan.Stretch) {
		return
	}
	a.divided, a.began, a.at, a.policy, a.total, a.overhead = true, true, now, policy, in.Containers, in.Overhead
	a.apply(jobs, plan, old, d)
}

// release leaves the containers to the engine. A new arbiter reports that once, because another may have set shares
// before.
func (a *Arbiter) release(d *Decision) {
	d.Changed = a.divided || !a.began
	a.divided, a.began = false, true
	for _, m := range a.jobs {
		m.share, m.aim = 0, 0
	}
}

// forget leaves the division to others: the next one starts from scratch.
func (a *Arbiter) forget() {
	a.divided, a.began = false, false
	for _, m := range a.jobs {
		m.share, m.aim = 0, 0
	}
}

func (a *Arbiter) anyCapped(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return a.jobs[j.ID].capped })
}

// standing returns the previous shares, nil if a job has none.
func (a *Arbiter) standing(jobs []containers.Job) []int {
	var old []int
	for _, j := range jobs {
		share := a.jobs[j.Name].share
		if share == 0 {
			return nil
		}
		old = append(old, share)
	}
	return old
}

// idle reports whether shares leave containers unused that another job could use: a job in its last wave keeps none
// because of damping. Fewer than move do not count.
func idle(jobs []containers.Job, shares []int, move int) bool {
	spare, wanted := false, false
	for i, j := range jobs {
		spare = spare || j.Most > 0 && shares[i]-max(j.Most, j.Overhead+1) >= max(1, move)
		wanted = wanted || j.Most == 0 || shares[i] < j.Most
	}
	return spare && wanted
}

func sum(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

func counts(plan containers.Plan) []int {
	var out []int
	for _, s := range plan.Shares {
		out = append(out, s.Containers)
	}
	return out
}

// apply applies a plan. Unchanged shares are not sent again.
func (a *Arbiter) apply(jobs []containers.Job, plan containers.Plan, old []int, d *Decision) {
	now := counts(plan)
	d.Changed = old == nil || !slices.Equal(old, now)
	for _, m := range a.jobs {
		m.share = 0
	}
	for i, j := range jobs {
		a.jobs[j.Name].share = now[i]
		d.Shares = append(d.Shares, Share{ID: j.Name, Containers: now[i]})
	}
	if !d.Changed {
		d.Shares = nil
	}
}

// wants returns the job in the form of the allocator.
func (m *memory) wants(in *Input) containers.Job {
	j := &m.job
	share := m.share
	if share == 0 {
		share = j.Held
	}
	c := containers.Job{Name: j.ID, Held: share, Overhead: in.Overhead, Elapsed: j.Elapsed, Uncapped: m.uncapped, Beta: m.beta(), Curve: j.Curve}
	least := j.minTasks()
	c.Met = j.Done >= least
	if j.Tasks > 0 && j.Phase != progress.Waiting {
		c.Most = in.Overhead + max(1, m.usable())
	}
	if share == 0 {
		c.Held = in.equal()
	}
	on := float64(m.tasksOn(in, c.Held))
	f := m.tracker.Finish(j.Power, on, float64(least))
	c.Known = f.Known && f.At > 0 && m.uncapped > 0
	if !c.Known {
		c.Uncapped = 0
		return c
	}
	c.Finish = max(f.At, j.Elapsed)
	if more := j.Tasks - max(least, j.Done) - j.Dropped; more > 0 && !j.Stopped {
		if all := m.tracker.Finish(j.Power, on, float64(j.Tasks)); all.Known {
			c.More, c.PerTask = more, max(0, all.At-f.At)/time.Duration(more)
		}
	}
	return c
}

// usable returns how many containers the job can use for tasks: for those that run and have not started, and one for
// its reduce tasks if it has any.
func (m *memory) usable() int {
	n := m.job.Running + m.job.Pending
	if m.job.Reduced >= 0 && m.job.Reduced < 1 {
		n++
	}
	return n
}

// Bounds of the exponent of a job's speed over its containers: outside them an estimate is noise.
const betaMin, betaMax = 0.5, 1

// beta returns the exponent of the job's speed over its containers.
func (m *memory) beta() float64 {
	_, c := m.tracker.Exponents()
	if m.tracker.Policy() != progress.Learned {
		return 1
	}
	return min(betaMax, max(betaMin, c.Value))
}

// outlook returns what is expected of the job.
func (m *memory) outlook(in *Input) Outlook {
	j, least := &m.job, m.job.minTasks()
	o := Outlook{
		ID: j.ID, Uncapped: m.uncapped, UncappedLow: m.low, UncappedHigh: m.high, MinTasks: least, AimTasks: min(j.Tasks-j.Dropped, max(least+m.aim, j.Done)),
		Containers: m.share, Policy: in.Settings.Containers,
	}
	if j.Power > 0 && j.Full > 0 {
		o.CapShare = min(1, float64(j.Power)/float64(j.Full))
	}
	on := float64(m.tasksOn(in, m.share))
	o.Finish = m.expected(m.tracker, j.Power, on, least)
	m.compare(&o, on, least)
	o.Moved, o.Had = m.share != m.had && m.share > 0, m.had
	m.had = m.share
	if !m.capped || least == j.Tasks {
		o.AimTasks = j.needed()
	}
	o.Why = m.why(in, &o)
	return o
}

// compare predicts the end without any sprint and with one, and what dropping a task saves.
func (m *memory) compare(o *Outlook, on float64, least int) {
	j := &m.job
	base := j.Base
	if base == 0 {
		base = j.Power
	}
	o.Capped, o.Slow = m.capped, m.expected(m.tracker, base, on, least)
	left := j.needed()
	o.Rest = m.tracker.Rest(base, on, float64(left))
	if j.Fast > base && base > 0 {
		o.Fast = m.expected(m.tracker, j.Fast, on, least)
		o.Speed = m.tracker.Faster(base, j.Fast)
	}
	fewer := max(j.Done, containers.MinTasks(j.Tasks, j.Floor))
	if fewer >= left {
		return
	}
	all, some := m.tracker.Finish(base, on, float64(left)), m.tracker.Finish(base, on, float64(fewer))
	if all.Known && some.Known && all.At > some.At {
		o.PerTask = (all.At - some.At) / time.Duration(left-fewer)
	}
}

// note records both estimators' predictions of the end, at times at which both have one, so that they are compared at
// the same moments.
func (m *memory) note(in *Input) {
	on, least := float64(m.tasksOn(in, m.share)), m.job.minTasks()
	a, b := m.expected(m.tracker, m.job.Power, on, least), m.expected(m.other, m.job.Power, on, least)
	if a.Known && b.Known {
		m.score.Note(m.tracker.Policy(), a)
		m.score.Note(m.other.Policy(), b)
	}
}

// expected returns when the job will end by an estimator under a cap: with all that is left of it, or with its floor's
// tasks if it would otherwise exceed its uncapped finish time under a cap.
func (m *memory) expected(by *progress.Tracker, power units.Power, on float64, least int) progress.Finish {
	j := &m.job
	all := by.Finish(power, on, float64(j.needed()))
	if j.Stopped || j.ByRatio || !m.capped || m.uncapped == 0 || !all.Known || all.At <= m.uncapped || least >= j.Tasks {
		return all
	}
	floor := by.Finish(power, on, float64(least))
	if !floor.Known {
		return all
	}
	return progress.Finish{
		At: max(floor.At, m.uncapped), Low: min(all.Low, max(floor.Low, m.uncapped)), High: max(floor.High, m.uncapped), Known: true,
	}
}

// why returns the outlook in words.
func (m *memory) why(in *Input, o *Outlook) string {
	j := &m.job
	switch {
	case j.Stopped:
		return fmt.Sprintf("stopped early: %d of %d tasks done, %d dropped, %d required", j.Done, j.Tasks, j.Dropped, o.MinTasks)
	case !o.Finish.Known:
		return fmt.Sprintf("finish time unknown: %d of %d tasks done; %s", j.Done, j.Tasks, m.shareWords(in))
	case !m.capped:
		return fmt.Sprintf("not slowed by a cap: finishes at %.0f s; %s", o.Finish.At.Seconds(), m.shareWords(in))
	case o.Uncapped == 0:
		return fmt.Sprintf("%s; finishes at %.0f s; %s", m.capWords(), o.Finish.At.Seconds(), m.shareWords(in))
	}
	words := "within"
	if late := float64(o.Finish.At-o.Uncapped) / float64(o.Uncapped) * 100; late >= 0.5 {
		words = fmt.Sprintf("%.0f %% behind", late)
	}
	return fmt.Sprintf("%s; finishes at %.0f s, %s its uncapped finish at %.0f s, with at least %d of %d tasks; %s%s",
		m.capWords(), o.Finish.At.Seconds(), words, o.Uncapped.Seconds(), o.MinTasks, j.Tasks, m.shareWords(in), m.besideCap(in, o))
}

// unexplained is the part of a job's uncapped finish time from which on a delay that no cap explains is named.
const unexplained = 0.1

// besideCap says what else slows a job that is further behind than its cap explains, empty for nothing.
func (m *memory) besideCap(in *Input, o *Outlook) string {
	j := &m.job
	byCap := m.lost + time.Duration(float64(max(0, o.Finish.At-j.Elapsed))*m.costs())
	rest := o.Finish.At - o.Uncapped - byCap
	if float64(rest) <= unexplained*float64(o.Uncapped) {
		return ""
	}
	cause := "what else slows it is unknown"
	if m.share > 0 && m.share < in.Containers && j.Pending > 0 {
		cause = fmt.Sprintf("it has no more than %d of %d containers, and %d tasks wait", m.share, in.Containers, j.Pending)
	}
	return fmt.Sprintf("; the cap explains %.0f s of the delay, not the other %.0f s: %s", byCap.Seconds(), rest.Seconds(), cause)
}

func (m *memory) capWords() string {
	if j := &m.job; j.bitten() {
		return fmt.Sprintf("capped at %.0f W of %.0f W", j.Power.Watts(), j.Full.Watts())
	}
	return "was slowed by a cap"
}

func (m *memory) shareWords(in *Input) string {
	if m.share == 0 {
		return "the engine assigns containers"
	}
	return fmt.Sprintf("%d of %d containers", m.share, in.Containers)
}
