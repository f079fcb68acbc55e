// Package arbitration decides about the jobs of a cluster: it passes what a leader has gathered
// to the pure arbiters of jobs/arbiter, one for each engine, and converts their decisions to
// commands of the ledger and messages.
//
// The one idea: a decision is a function of what was gathered and of what the arbiter remembers
// of the jobs. The leader gathers (Seen), a Decider decides (Decided), and the leader commits
// and sends the result. A new leader starts with a new Decider, and leaves the engines' shares
// unchanged until that one has learned the jobs.
//
// What it never does: read a clock, use the network, commit, or decide a stop or a drop ratio
// below a job's quality floor.
package arbitration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/ledger"
	"headroom/progress"
	"headroom/units"
)

// Patience bounds how long a new leadership waits for estimates before it sets shares. Until
// then the engine keeps the shares that the previous leader set.
const Patience = 30 * time.Second

// runtimeMost bounds the runtime that a scheduler may report for a job: a year.
const runtimeMost = 365 * 24 * time.Hour

// arbiters has one arbiter for each engine. It implements Decider.
type arbiters struct {
	engines map[string]*engineArbiter
	movers  arbiter.Movers
}

// engineArbiter is the state kept for one engine.
type engineArbiter struct {
	arbiter.Arbiter

	// shares are the last decided shares; nil while unknown.
	shares map[string]int
	// told are the same shares, in order.
	told   []arbiter.Share
	reason string
	// began is the time at which its first job was seen; sure reports whether it may set shares.
	began time.Duration
	sure  bool
}

// enginesMost bounds the engines without jobs whose state is kept; there are two engines.
const enginesMost = 8

// New returns an arbiter that has seen no job yet.
func New() Decider { return &arbiters{engines: map[string]*engineArbiter{}} }

// Step implements Decider.
func (a *arbiters) Step(now time.Duration, seen Seen) Decided {
	out := Decided{
		Shares: map[string]Sharing{}, Uncapped: map[string]time.Duration{}, Outlooks: map[string]*headroomv1.JobOutlook{}, Troubles: map[string]string{},
		Errors: map[string][]*headroomv1.EstimateError{}, Moves: map[string]Move{},
	}
	outlooks := map[string]arbiter.Outlook{}
	jobs := map[string][]Job{}
	for _, x := range seen.Jobs {
		if !x.Waiting {
			jobs[x.engine()] = append(jobs[x.engine()], x)
		}
	}
	for engine := range jobs {
		if a.engines[engine] == nil {
			a.engines[engine] = &engineArbiter{began: now}
		}
	}
	for _, engine := range slices.Sorted(maps.Keys(a.engines)) {
		a.engines[engine].decide(now, engine, jobs[engine], seen, outlooks, &out)
		// What was learned from its jobs is kept for later jobs with their names, unless the
		// number of engine names exceeds the bound.
		if len(jobs[engine]) == 0 && a.engines[engine].shares == nil && len(a.engines) > enginesMost {
			delete(a.engines, engine)
		}
	}
	a.move(now, &seen, outlooks, &out)
	for engine, e := range a.engines {
		if e.sure && e.shares != nil {
			out.Shares[engine] = e.sharing()
		}
	}
	return out
}

// policy is the container policy in force.
func (s *Seen) policy() string { return cmp.Or(s.Policy, ledger.DefaultContainerPolicy) }

// joint reports whether all levers are compared with each other.
func (s *Seen) joint() bool { return s.policy() == ledger.JointPolicy }

// engine is what runs the job.
func (x *Job) engine() string { return cmp.Or(x.Job.Engine, EngineLocal) }

// PolicySentence describes what a container policy does.
func PolicySentence(name string) string {
	if name == ledger.JointPolicy {
		return "compared with sprints, dropped tasks and watts: by class, then first come, first served; small jobs and deadlines may come earlier"
	}
	return containers.Policy(name).Sentence()
}

// decide is the step of one engine.
func (a *engineArbiter) decide(now time.Duration, engine string, jobs []Job, seen Seen, outlooks map[string]arbiter.Outlook, out *Decided) {
	in := arbiter.Input{Settings: arbiter.DefaultSettings()}
	if in.Settings.Joint = seen.joint(); !in.Settings.Joint {
		in.Settings.Containers = containers.Policy(seen.policy())
	}
	if e := seen.Engines[engine]; e != nil {
		in.Containers, in.Overhead = int(e.GetContainers()), int(e.GetOverhead())
	}
	known := true
	for _, x := range jobs {
		in.Jobs = append(in.Jobs, x.arbitrated(in.Settings.Joint))
		known = known && x.Full > 0
	}
	for _, id := range slices.Sorted(maps.Keys(seen.Ended)) {
		in.Ended = append(in.Ended, arbiter.Ended{ID: id, Runtime: seen.Ended[id]})
	}
	d := a.Step(now, in)
	for _, x := range d.Uncapped {
		out.Uncapped[x.ID] = x.At
	}
	for _, x := range d.Stops {
		out.Stops = append(out.Stops, Stop{ledger.StopJob{ID: x.ID, Tasks: uint32(x.Tasks), MinTasks: uint32(x.MinTasks)}, x.Reason})
	}
	for _, o := range d.Outlooks {
		known = known && o.Finish.Known
		out.Outlooks[o.ID] = outlookMessage(o)
		outlooks[o.ID] = o
	}
	for _, v := range d.Verdicts {
		if len(v.Errors) > 0 {
			out.Errors[v.ID] = errorMessages(v.Errors)
		}
	}
	if d.Trouble != "" {
		out.Troubles[engine] = d.Trouble
	}
	if d.Changed && !in.Settings.Joint {
		a.change(d.Shares, seen.policy(), in.Containers)
	}
	a.sure = a.sure || known && len(jobs) > 0 || now-a.began >= Patience
}

// arbitrated is a job as the arbiter takes it.
func (x *Job) arbitrated(joint bool) arbiter.Job {
	p := x.Progress
	j := arbiter.Job{
		ID: x.Job.ID, Name: x.Job.Name, Queue: x.Job.Queue, Tasks: int(p.GetTasks()), Done: int(p.GetDone()), Running: int(p.GetRunning()),
		Pending: int(p.GetPending()), Dropped: max(int(p.GetDropped()), int(x.Job.DroppedTasks())), Work: -1, Reduced: -1, Floor: x.Job.Floor,
		Elapsed: Seconds(p.GetRuntimeS()), Uncapped: x.Job.Uncapped, Stopped: x.Job.Stop != nil,
		Held: int(max(p.GetContainers(), p.GetRunning())), Power: x.Power, Full: x.Full, Base: x.Base, Fast: x.Fast,
		ByRatio: joint || x.engine() != engineYarn, Error: bounded(p.GetError()), Curve: x.curve(),
	}
	// Tasks that began before a ratio rose continue. Once the scheduler has accepted the ratio, the tasks that it dropped count.
	if taken := p.Theta != nil && x.Job.Deflation != nil && units.Ratio(p.GetTheta()).Reaches(units.Ratio(x.Job.Deflation.Theta)); j.ByRatio && (!taken || p.GetDropped() == 0) {
		j.Dropped = max(j.Dropped, int(x.Job.DeflatedTasks(p.GetTasks())))
	}
	if p.GetWhole() {
		j.Floor = 1 // whatever was permitted, nobody there can leave a task out
	}
	if p.Work != nil {
		j.Work = p.GetWork()
	}
	if p.Reduced != nil {
		j.Reduced = p.GetReduced()
	}
	j.Phase = PhaseOf(p.GetPhase())
	return j
}

// bounded returns an error bound, 0 if it is invalid: then all tasks count.
func bounded(e float64) float64 {
	if !(e > 0 && e < 1) {
		return 0
	}
	return e
}

// PhaseOf returns the phase of a running job as the estimators define it.
func PhaseOf(p headroomv1.JobPhase) progress.Phase {
	switch p {
	case headroomv1.JobPhase_JOB_PHASE_WAITING:
		return progress.Waiting
	case headroomv1.JobPhase_JOB_PHASE_MAP:
		return progress.Map
	case headroomv1.JobPhase_JOB_PHASE_SHUFFLE:
		return progress.Shuffle
	case headroomv1.JobPhase_JOB_PHASE_REDUCE:
		return progress.Reduce
	case headroomv1.JobPhase_JOB_PHASE_UNSPECIFIED:
	}
	return progress.Unphased
}

// change stores new shares and describes what changed. Without shares the engine divides its containers itself.
func (a *engineArbiter) change(shares []arbiter.Share, policy string, containers int) {
	was := a.shares
	a.shares, a.told = map[string]int{}, shares
	var words []string
	for _, s := range shares {
		a.shares[s.ID] = s.Containers
		switch old, had := was[s.ID]; {
		case !had:
			words = append(words, fmt.Sprintf("%s %d", s.ID, s.Containers))
		case old != s.Containers:
			words = append(words, fmt.Sprintf("%s %d -> %d", s.ID, old, s.Containers))
		}
	}
	a.reason = fmt.Sprintf("policy %s, %d containers: %s", policy, containers, strings.Join(words[:min(len(words), reasonJobs)], ", "))
	if more := len(words) - reasonJobs; more > 0 {
		a.reason += fmt.Sprintf(" and %d more", more)
	}
	if len(shares) == 0 {
		a.reason = undivided(policy, containers)
	}
}

// undivided returns the reason why an engine divides its containers itself.
func undivided(policy string, count int) string {
	if policy == ledger.JointPolicy || !containers.Policy(policy).Sets() {
		return fmt.Sprintf("policy %s: the engine divides its %d containers", policy, count)
	}
	return fmt.Sprintf("policy %s: no cap slows a job, the engine divides its %d containers", policy, count)
}

// reasonJobs is the number of jobs that a reason names.
const reasonJobs = 8

func (a *engineArbiter) sharing() Sharing {
	out := Sharing{Reason: a.reason}
	for _, s := range a.told {
		x := &headroomv1.JobShare{Id: s.ID, Containers: uint32(s.Containers)}
		if s.Bounded {
			x.Copies = new(uint32(s.Copies))
		}
		out.Jobs = append(out.Jobs, x)
	}
	return out
}

// errorMessages returns the errors of finish times as messages.
func errorMessages(verdicts []progress.Verdict) (out []*headroomv1.EstimateError) {
	for _, v := range verdicts {
		out = append(out, &headroomv1.EstimateError{Policy: string(v.Policy), MeanError: v.Error, Samples: uint32(v.Predictions)})
	}
	return out
}

// outlookMessage returns an outlook as a message; unknown fields are absent.
func outlookMessage(o arbiter.Outlook) *headroomv1.JobOutlook {
	m := &headroomv1.JobOutlook{MinTasks: uint32(max(0, o.MinTasks)), AimTasks: uint32(max(0, o.AimTasks)), Policy: string(o.Policy), Why: o.Why}
	if f := o.Finish; f.Known {
		m.FinishS, m.FinishLowS, m.FinishHighS = new(f.At.Seconds()), new(f.Low.Seconds()), new(f.High.Seconds())
	}
	if o.Uncapped > 0 {
		m.UncappedS = new(o.Uncapped.Seconds())
	}
	if o.UncappedHigh > 0 {
		m.UncappedLowS, m.UncappedHighS = new(o.UncappedLow.Seconds()), new(o.UncappedHigh.Seconds())
	}
	if o.CapShare > 0 {
		m.CapShare = new(o.CapShare)
	}
	if o.Containers > 0 {
		m.Containers = new(uint32(o.Containers))
	}
	return m
}
