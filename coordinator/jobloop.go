package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"headroom/coordinator/view"

	"headroom/coordinator/arbitration"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/streams"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// The job loop looks at the jobs every 5 s, twenty times slower than a node holds
// its cap and five times slower than watts are divided: containers follow what the
// caps have settled to, and never the other way round. It gathers progress and the
// caps that nodes have read back, lets the arbiter decide, commits what must
// survive this leader, and then tells the scheduler.
//
// A new leader knows what was committed and nothing of progress. It tells the early
// stops in force again and leaves the shares as they are in the engines until the
// arbiter knows the jobs.

const (
	// jobsEvery is the time from one look at the jobs to the next.
	jobsEvery = 5 * time.Second
	// jobsSoonest is the least time between two looks: nobody waits longer for a sprint timer that fires.
	jobsSoonest = time.Second
	// jobsFirst sets the looks apart from the ticks, which come at full seconds.
	jobsFirst = 500 * time.Millisecond
	// jobsYield is how long commits about jobs wait for a tick that is due.
	jobsYield = 20 * time.Millisecond
	// outlookLife is how long an outlook is told.
	outlookLife = 3 * jobsEvery
)

// jobLoop is what one leadership remembers of the jobs. It is the desk's.
type jobLoop struct {
	decide arbitration.Decider
	// looked is when the jobs were last looked at.
	looked time.Duration
	// todo is decided and not committed yet.
	todo     []ledger.Command
	decided  arbitration.Decided
	outlooks map[string]*headroomv1.JobOutlook
	// errors are how far off the finish times of jobs were that are done, as long as the log knows the jobs.
	errors map[string][]*headroomv1.EstimateError
	// told is what the scheduler was told last, by subject.
	told map[string]string
	// moves are the newest moves of each job, oldest first, marks those of the newest ones.
	moves map[string][]*headroomv1.JobMove
	marks map[string]string
	// unmoved is why the log did not take what follows from a job's newest move.
	unmoved map[string]string
	// refusals are why the log took no decision about a job, the last for each.
	refusals map[string]string
}

func newJobLoop(decide arbitration.Decider) *jobLoop {
	return &jobLoop{
		decide: decide, errors: map[string][]*headroomv1.EstimateError{}, told: map[string]string{}, refusals: map[string]string{},
		moves: map[string][]*headroomv1.JobMove{}, marks: map[string]string{}, unmoved: map[string]string{},
	}
}

// of is the outlook of a job, nil while unknown or too old.
func (l *jobLoop) of(id string, now time.Duration) *headroomv1.JobOutlook {
	if now-l.looked > outlookLife {
		return nil
	}
	return l.outlooks[id]
}

// refused notes that an order was not carried out: it is told again after the next look.
func (l *jobLoop) refused(subject string) { delete(l.told, subject) }

// jobTurn looks at the jobs, commits what was decided and tells it. Watts go first:
// when a tick is due, what is left waits until after it. It answers when the next turn is due.
func (d *desk) jobTurn(ctx context.Context) (next time.Duration, err error) {
	l := d.jobs
	if !d.lead.Began() {
		return jobsYield, nil
	}
	if len(l.todo) == 0 {
		l.looked = d.now()
		var seen arbitration.Seen
		var orphans []ledger.EndSprint
		d.machine.View(func(s *ledger.State) { seen, orphans = d.seeJobs(s), d.orphans(s) })
		l.decided = l.decide.Step(l.looked, seen)
		l.decided.Ends = append(orphans, l.decided.Ends...)
		l.outlooks = l.decided.Outlooks
		d.keepErrors(l.decided.Errors)
		d.keepMoves()
		l.todo = l.decided.Commands(seen)
	}
	for len(l.todo) > 0 {
		c := l.todo[0]
		l.todo = l.todo[1:]
		if err := d.commitJob(ctx, c); err != nil {
			return 0, err
		}
		if len(l.todo) > 0 && d.now()-d.lead.Ticking() >= d.timing.Tick {
			return jobsYield, nil
		}
	}
	d.tellJobs()
	return max(0, jobsEvery-(d.now()-l.looked)), nil
}

// keepErrors keeps how far off the finish times of jobs that are done were, and says it.
func (d *desk) keepErrors(errs map[string][]*headroomv1.EstimateError) {
	for _, id := range slices.Sorted(maps.Keys(errs)) {
		d.jobs.errors[id] = errs[id]
		words := []any{slog.String("job", id)}
		for _, e := range errs[id] {
			d.counts.Estimated(e.GetPolicy(), e.GetMeanError())
			words = append(words, slog.Float64(e.GetPolicy(), e.GetMeanError()), slog.Uint64("looks", uint64(e.GetSamples())))
		}
		d.logger.Info("job done: mean errors of its finish times, as parts of its runtime", words...)
	}
	d.machine.View(func(s *ledger.State) {
		maps.DeleteFunc(d.jobs.errors, func(id string, _ []*headroomv1.EstimateError) bool { _, known := s.Jobs[id]; return !known })
	})
}

// commitJob commits one decision about a job. Only the end of the leadership is an
// error: whatever was not committed is decided again at the next look.
func (d *desk) commitJob(ctx context.Context, c ledger.Command) error {
	_, err := d.do(ctx, &leader.Request{Command: c, Quiet: true, Urgent: c.Sprint != nil})
	switch _, refused := errors.AsType[leader.RefusedError](err); {
	case err == nil && c.StopJob != nil:
		d.counts.Stopped()
	case err == nil && c.Sprint != nil:
		d.counts.Sprinted()
	case d.over != nil:
		return d.over
	case refused: // it ended meanwhile, or the arbiter and the log disagree
		d.refusedJob(c, err)
	case err != nil:
		d.logger.Error("decision about a job not committed", slog.Any("error", err))
		d.jobs.todo = nil
	}
	return nil
}

// refusedJob logs that a decision was refused, once for each reason: it may be decided again at each look.
func (d *desk) refusedJob(c ledger.Command, err error) {
	var id string
	switch {
	case c.StopJob != nil:
		id = c.StopJob.ID
	case c.SetUncapped != nil:
		id = c.SetUncapped.ID
	case c.Sprint != nil:
		id = c.Sprint.Job
		d.jobs.unmoved[id] = plain(err)
	case c.DeflateJob != nil:
		id = c.DeflateJob.ID
		d.jobs.unmoved[id] = plain(err)
	case c.EndSprint != nil:
		id = c.EndSprint.ID
	}
	if d.jobs.refusals[id] == err.Error() {
		return
	}
	d.jobs.refusals[id] = err.Error()
	d.logger.Warn("decision about a job refused", slog.String("job", id), slog.Any("error", err))
}

// seeJobs gathers what is known of the running jobs.
func (d *desk) seeJobs(s *ledger.State) arbitration.Seen {
	now := time.Now()
	out := arbitration.Seen{Policy: s.ContainerPolicy, Wall: d.wall(), Engines: d.board.reported(now), Ended: map[string]time.Duration{}}
	out.Discipline, out.Classes = d.board.classes(now)
	maps.DeleteFunc(out.Engines, func(_ string, e *headroomv1.EngineReport) bool { return e.GetTrouble() != "" || e.GetContainers() == 0 })
	for _, id := range slices.Sorted(maps.Keys(d.board.samples)) {
		j, known := s.Jobs[id]
		if j.State == ledger.JobDone {
			out.Ended[id] = j.Runtime
		}
		p := d.board.of(id, now)
		if !known || j.State != ledger.JobAccepted || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		x := arbitration.Job{Job: j, Progress: p}
		x.Power, x.Full = d.powerOf(s, p)
		d.seeSprint(s, &x)
		out.Jobs = append(out.Jobs, x)
	}
	return out
}

// powerOf is what the nodes that a job runs on may draw now, and what they can use,
// means over its containers; 0 where no node of it is known.
func (d *desk) powerOf(s *ledger.State, p *headroomv1.JobProgress) (now, full units.Power) {
	var count units.Power
	for _, name := range slices.Sorted(maps.Keys(p.GetRunningOn())) {
		n, known := s.Nodes[name]
		if !known {
			continue
		}
		held, known := d.heldBy(n)
		if !known {
			continue
		}
		on := units.Power(p.GetRunningOn()[name])
		now, full, count = now+on*held, full+on*n.Most(), count+on
	}
	if count == 0 {
		return 0, 0
	}
	return now / count, full / count
}

// heldBy is the cap that a node really holds, as its hardware has read back, at most
// what a plan may give it, or its sprint; false while unknown. One that nobody holds may
// draw all it can.
func (d *desk) heldBy(n ledger.Node) (units.Power, bool) {
	if !n.Controlled || n.Released {
		return n.Most(), true
	}
	v, ok := d.lead.Table().View(n.Name, d.now())
	if !ok || v.Age > view.StaleReport || !v.Report.EffectiveKnown {
		return 0, false
	}
	most := n.Most()
	if n.Sprint != nil {
		most = max(most, n.Sprint.Cap)
	}
	return min(v.Report.Effective, most), true
}

// tellJobs pushes the shares that were decided and the stops that are committed, as
// far as the scheduler has not been told, and forgets what is over.
func (d *desk) tellJobs() {
	orders := d.shareOrders()
	running, accepted := map[string]bool{}, map[string]bool{}
	d.machine.View(func(s *ledger.State) {
		for _, j := range s.JobsByTime() {
			accepted[j.ID] = j.State == ledger.JobAccepted
			if j.State == ledger.JobAccepted && j.Stop != nil {
				orders = append(orders, stopOrder(j))
			}
		}
		orders = append(orders, d.moveOrders(s)...)
	})
	for _, o := range orders {
		running[o.Subject] = true
	}
	over := func(subject string) bool { return !strings.HasPrefix(subject, shareSubject) && !running[subject] }
	d.schedulers.DropOrders(over)
	maps.DeleteFunc(d.jobs.told, func(subject, _ string) bool { return over(subject) })
	maps.DeleteFunc(d.board.refusals, func(subject, _ string) bool { return over(subject) })
	maps.DeleteFunc(d.board.heeded, func(subject string, _ bool) bool { return over(subject) })
	maps.DeleteFunc(d.jobs.refusals, func(id, _ string) bool { return !accepted[id] })
	orders = slices.DeleteFunc(orders, func(o streams.Order) bool { return d.jobs.told[o.Subject] == content(o) })
	for _, o := range orders {
		d.jobs.told[o.Subject] = content(o)
		delete(d.board.heeded, o.Subject)
		d.logger.Info("jobs directed", slog.String("subject", o.Subject), slog.String("reason", o.Reason))
	}
	if len(orders) > 0 {
		d.schedulers.PushOrders(d.epoch, orders)
	}
}

// shareOrders are the shares in force of the engines that can be told any. An engine
// that cannot set shares now is told anew once it can.
func (d *desk) shareOrders() []streams.Order {
	able := d.board.reported(time.Now())
	maps.DeleteFunc(d.jobs.told, func(subject, _ string) bool {
		engine, ok := strings.CutPrefix(subject, shareSubject)
		return ok && able[engine].GetTrouble() != ""
	})
	var out []streams.Order
	for _, engine := range slices.Sorted(maps.Keys(d.jobs.decided.Shares)) {
		if able[engine] == nil || able[engine].GetTrouble() != "" {
			continue
		}
		x := d.jobs.decided.Shares[engine]
		out = append(out, streams.Order{
			Subject: shareSubject + engine, Reason: x.Reason, Share: &headroomv1.ShareDirective{Engine: engine, Jobs: x.Jobs},
		})
	}
	return out
}

// Subjects of orders, before the engine or the job.
const (
	shareSubject = "the shares of "
	stopSubject  = "the early stop of "
)

func stopOrder(j ledger.Job) streams.Order {
	reason := fmt.Sprintf("%s may end on %d of its %d map tasks", j.ID, j.Stop.MinTasks, j.Stop.Tasks)
	if j.Stop.Reason != "" {
		reason += ": " + j.Stop.Reason
	}
	return streams.Order{
		Subject: stopSubject + j.ID, Reason: reason,
		Stop: &headroomv1.StopDirective{Id: j.ID, Tasks: j.Stop.Tasks, MinTasks: j.Stop.MinTasks},
	}
}

// content tells orders of one subject apart.
func content(o streams.Order) string {
	switch {
	case o.Stop != nil:
		return fmt.Sprint(o.Stop.GetTasks(), " ", o.Stop.GetMinTasks())
	case o.Sprint != nil:
		return "sprint " + o.Sprint.GetSprint()
	case o.Deflate != nil:
		return fmt.Sprint(o.Deflate.GetTheta(), " ", o.Deflate.GetSeed())
	}
	var b strings.Builder
	for _, j := range o.Share.GetJobs() {
		fmt.Fprintf(&b, "%s=%d ", j.GetId(), j.GetContainers())
	}
	return "shares " + b.String()
}
