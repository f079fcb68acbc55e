package leading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/alarms"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/view"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// The job loop checks the jobs every 5 s, twenty times slower than a node enforces
// its cap and five times slower than watts are divided: containers follow settled
// caps, and never the other way round. It collects progress and the
// caps that nodes have read back, runs the arbiter, commits what must
// survive this leader, and then sends orders to the scheduler.
//
// A new leader has the committed state but no progress. It sends the early
// stops in force again and leaves the engines' shares unchanged until the
// arbiter has learned the jobs.

const (
	// jobsEvery is the interval between two checks of the jobs.
	jobsEvery = 5 * time.Second
	// jobsSoonest is the least interval between two checks: a sprint timer that fires waits no longer than this.
	jobsSoonest = time.Second
	// jobsFirst offsets the checks from the ticks, which come at full seconds.
	jobsFirst = 500 * time.Millisecond
	// jobsYield is how long commits about jobs wait for a tick that is due.
	jobsYield = 20 * time.Millisecond
	// outlookLife is how long an outlook is valid.
	outlookLife = 3 * jobsEvery
)

// jobLoop checks the jobs during one leadership, and remembers its decisions and directives.
type jobLoop struct {
	*leadership

	decide     arbitration.Decider
	schedulers SchedulerStreams
	// commit has a request carried out while the loop's goroutine waits.
	commit  func(context.Context, *leader.Request) (ledger.Result, error)
	reports *jobReports
	gather  jobGatherer
	moves   *moveHistory
	energy  jobEnergy

	// looked is when the jobs were last looked at; due asks for an early look.
	looked time.Duration
	due    bool
	// todo are the decisions that are not committed yet.
	todo    []ledger.Command
	decided arbitration.Decided
	// outlooks are those of the last check.
	outlooks map[string]*headroomv1.JobOutlook
	// errors are the prediction errors of the finish times of ended jobs, kept as long as the log has the jobs.
	errors map[string][]*headroomv1.EstimateError
	// told is the last order sent to the scheduler, by subject.
	told map[string]string
	// refusals are the reasons why the log refused a decision about a job, the last for each.
	refusals map[string]string
}

func newJobLoop(
	l *leadership, decide arbitration.Decider, schedulers SchedulerStreams, commit func(context.Context, *leader.Request) (ledger.Result, error),
) *jobLoop {
	reports := newJobReports()
	return &jobLoop{
		leadership: l, decide: decide, schedulers: schedulers, commit: commit, reports: reports,
		gather: jobGatherer{l, reports}, moves: newMoveHistory(l, reports), energy: jobEnergy{leadership: l, reports: reports},
		errors: map[string][]*headroomv1.EstimateError{}, told: map[string]string{}, refusals: map[string]string{},
	}
}

// report records a scheduler's report. A sprint timer that fires makes a check due.
func (l *jobLoop) report(r *headroomv1.ProgressReport) {
	l.due = l.reports.report(r, time.Now()) || l.due
}

// acknowledge records a scheduler's answer to a directive. An answer to an order that has been replaced since
// does not apply to the one in force.
func (l *jobLoop) acknowledge(a *headroomv1.DirectiveAck) {
	if subject, newest := l.schedulers.Subject(a.GetSeq()); newest && l.reports.ack(l.epoch, a, subject) {
		l.tellAgain(subject)
	}
}

// tellAgain causes an order to be sent again after the next check.
func (l *jobLoop) tellAgain(subject string) { delete(l.told, subject) }

// early returns when an early check is due, once for each.
func (l *jobLoop) early() (wait time.Duration, due bool) {
	due, l.due = l.due, false
	return max(0, jobsSoonest-(l.now()-l.looked)), due
}

// outlook returns the outlook of a job, nil while unknown or too old.
func (l *jobLoop) outlook(id string) *headroomv1.JobOutlook {
	if l.now()-l.looked > outlookLife {
		return nil
	}
	return l.outlooks[id]
}

// turn checks the jobs, commits the decisions and sends them. Watts go first:
// when a tick is due, what is left waits until after it. It returns when the next turn is due.
func (l *jobLoop) turn(ctx context.Context) (next time.Duration) {
	if !l.lead.Began() {
		return jobsYield
	}
	if len(l.todo) == 0 {
		l.look()
	}
	for len(l.todo) > 0 {
		c := l.todo[0]
		l.todo = l.todo[1:]
		if !l.commitDecision(ctx, c) {
			return jobsYield
		}
		if len(l.todo) > 0 && l.now()-l.lead.Ticking() >= l.timing.Tick {
			return jobsYield
		}
	}
	l.tell()
	return max(0, jobsEvery-(l.now()-l.looked))
}

// look collects the inputs about the jobs, and decides.
func (l *jobLoop) look() {
	l.looked = l.now()
	var seen arbitration.Seen
	var orphans []ledger.EndSprint
	l.machine.View(func(s *ledger.State) { seen, orphans = l.gather.see(s), l.gather.orphans(s) })
	l.decided = l.decide.Step(l.looked, seen)
	l.decided.Ends = append(orphans, l.decided.Ends...)
	l.outlooks = l.decided.Outlooks
	l.keepErrors(l.decided.Errors)
	l.moves.keep(l.decided.Moves)
	l.leaveWatts()
	l.todo = l.decided.Commands(seen)
}

// leaveWatts makes the plans of the next ticks limit nodes whose jobs yield watts to others, and prefer nodes whose jobs are
// late.
func (l *jobLoop) leaveWatts() {
	holds := map[string]ledger.Hold{}
	for _, h := range l.decided.Holds {
		holds[h.Node] = ledger.Hold{Most: h.Most, Until: l.looked + h.For}
		if _, held := l.lead.Table().Held(h.Node, l.looked); !held {
			l.logger.Info("node cap limited below its share", slog.String("node", h.Node), slog.Float64("most_w", h.Most.Watts()), slog.String("reason", h.Reason))
		}
	}
	l.lead.Table().Holds(holds)
	l.lead.Table().Behind(l.decided.Behind)
}

// keepErrors stores and logs the prediction errors of the finish times of ended jobs.
func (l *jobLoop) keepErrors(errs map[string][]*headroomv1.EstimateError) {
	for _, id := range slices.Sorted(maps.Keys(errs)) {
		l.errors[id] = errs[id]
		words := []any{slog.String("job", id)}
		for _, e := range errs[id] {
			l.counts.Estimated(e.GetPolicy(), e.GetMeanError())
			words = append(words, slog.Float64(e.GetPolicy(), e.GetMeanError()), slog.Uint64("looks", uint64(e.GetSamples())))
		}
		l.logger.Info("job finished; mean errors of its predicted finish times", words...)
	}
	l.machine.View(func(s *ledger.State) {
		maps.DeleteFunc(l.errors, func(id string, _ []*headroomv1.EstimateError) bool { _, known := s.Jobs[id]; return !known })
	})
}

// commitDecision commits one decision about a job, and reports whether the leadership goes on. Whatever
// was not committed is decided again at the next check.
func (l *jobLoop) commitDecision(ctx context.Context, c ledger.Command) bool {
	_, err := l.commit(ctx, &leader.Request{Command: c, Quiet: true, Urgent: c.Sprint != nil})
	switch _, refused := errors.AsType[leader.RefusedError](err); {
	case err == nil && c.StopJob != nil:
		l.counts.Stopped()
	case err == nil && c.Sprint != nil:
		l.counts.Sprinted()
	case err == nil:
	case l.over != nil:
		return false
	case refused: // it ended meanwhile, or the arbiter and the log disagree
		l.refused(c, err)
	default:
		l.logger.Error("job decision not committed", slog.Any("error", err))
		l.todo = nil
	}
	return true
}

// refused logs that a decision was refused, once for each reason: it may be decided again at each check.
func (l *jobLoop) refused(c ledger.Command, err error) {
	var id string
	switch {
	case c.StopJob != nil:
		id = c.StopJob.ID
	case c.SetUncapped != nil:
		id = c.SetUncapped.ID
	case c.Sprint != nil:
		id = c.Sprint.Job
		l.moves.refused[id] = view.Plain(err)
	case c.DeflateJob != nil:
		id = c.DeflateJob.ID
		l.moves.refused[id] = view.Plain(err)
	case c.EndSprint != nil:
		id = c.EndSprint.ID
	}
	if l.refusals[id] == err.Error() {
		return
	}
	l.refusals[id] = err.Error()
	l.logger.Warn("job decision rejected", slog.String("job", id), slog.Any("error", err))
}

// show returns a job with its progress.
func (l *jobLoop) show(j ledger.Job) *headroomv1.Job {
	m := view.Job(j)
	if j.State != ledger.JobAccepted {
		m.EstimateErrors = l.errors[j.ID]
		return m
	}
	if m.Energy == nil {
		m.Energy = view.JobEnergy(l.energy.running(j.ID))
	}
	if m.Progress = l.reports.of(j.ID, time.Now()); m.Progress != nil {
		m.State = m.Progress.GetState()
	}
	if x := l.outlook(j.ID); x != nil {
		m.Outlook = proto.CloneOf(x)
		m.Outlook.Move = l.moves.newest(j.ID)
	}
	return m
}

// running counts the running jobs by engine.
func (l *jobLoop) running(s *ledger.State) map[string]int {
	out := map[string]int{}
	for _, j := range s.Jobs {
		if l.reports.of(j.ID, time.Now()).GetState() == headroomv1.JobState_JOB_STATE_RUNNING && j.State == ledger.JobAccepted {
			out[cmp.Or(j.Engine, arbitration.EngineLocal)]++
		}
	}
	return out
}

// alarms returns refused directives, and engines whose containers cannot be divided.
func (l *jobLoop) alarms() []alarms.Alarm {
	var out []alarms.Alarm
	if l.reports.refusal != "" && l.reports.newestRefused > l.reports.newestAcked {
		out = append(out, alarms.New(
			"directive-refused", alarms.Warn, "scheduler", fmt.Sprintf("the scheduler refused directive %d: %s", l.reports.newestRefused, l.reports.refusal),
			"see the scheduler's log",
		))
	}
	for _, subject := range slices.Sorted(maps.Keys(l.reports.refusals)) {
		out = append(out, alarms.New(
			"directive-refused", alarms.Warn, subject, fmt.Sprintf("the scheduler could not set %s: %s", subject, l.reports.refusals[subject]),
			"see the scheduler's log; it is sent again every few seconds",
		))
	}
	for engine, e := range l.reports.reported(time.Now()) {
		if e.GetTrouble() != "" {
			out = append(out, alarms.New(
				"engine-trouble", alarms.Warn, engine, fmt.Sprintf("containers of %s cannot be divided: %s", engine, e.GetTrouble()),
				"correct the cause; until then the engine divides them itself",
			))
		}
	}
	for engine, why := range l.decided.Troubles {
		out = append(out, alarms.New(
			"engine-trouble", alarms.Warn, engine+"/containers", fmt.Sprintf("%s: %s", engine, why), "add nodes to the engine, or run fewer jobs at once",
		))
	}
	return out
}
