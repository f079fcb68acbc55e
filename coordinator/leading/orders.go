package leading

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/streams"
	"headroom/ledger"
	"headroom/units"
)

// tell pushes the shares that were decided and the stops that are committed, as
// far as the scheduler has not been told, and forgets what is over.
func (l *jobLoop) tell() {
	orders := l.shareOrders()
	running, accepted := map[string]bool{}, map[string]bool{}
	l.machine.View(func(s *ledger.State) {
		for _, j := range s.JobsByTime() {
			accepted[j.ID] = j.State == ledger.JobAccepted
			if j.State == ledger.JobAccepted && j.Stop != nil {
				orders = append(orders, stopOrder(j))
			}
		}
		orders = append(orders, l.moveOrders(s)...)
	})
	for _, o := range orders {
		running[o.Subject] = true
	}
	over := func(subject string) bool { return !strings.HasPrefix(subject, shareSubject) && !running[subject] }
	l.schedulers.DropOrders(over)
	maps.DeleteFunc(l.told, func(subject, _ string) bool { return over(subject) })
	maps.DeleteFunc(l.reports.refusals, func(subject, _ string) bool { return over(subject) })
	maps.DeleteFunc(l.reports.acked, func(subject string, _ bool) bool { return over(subject) })
	maps.DeleteFunc(l.refusals, func(id, _ string) bool { return !accepted[id] })
	orders = slices.DeleteFunc(orders, func(o streams.Order) bool { return l.told[o.Subject] == content(o) })
	for _, o := range orders {
		l.told[o.Subject] = content(o)
		delete(l.reports.acked, o.Subject)
		l.logger.Info("jobs directed", slog.String("subject", o.Subject), slog.String("reason", o.Reason))
	}
	if len(orders) > 0 {
		l.schedulers.PushOrders(l.epoch, orders)
	}
}

// shareOrders are the shares in force of the engines that can be told any. An engine
// that cannot set shares now is told anew once it can.
func (l *jobLoop) shareOrders() []streams.Order {
	able := l.reports.reported(time.Now())
	maps.DeleteFunc(l.told, func(subject, _ string) bool {
		engine, ok := strings.CutPrefix(subject, shareSubject)
		return ok && able[engine].GetTrouble() != ""
	})
	var out []streams.Order
	for _, engine := range slices.Sorted(maps.Keys(l.decided.Shares)) {
		if able[engine] == nil || able[engine].GetTrouble() != "" {
			continue
		}
		x := l.decided.Shares[engine]
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

// content distinguishes orders of one subject.
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
		if j.Copies != nil {
			fmt.Fprintf(&b, "copies=%d ", j.GetCopies())
		}
	}
	return "shares " + b.String()
}

// Subjects of orders about moves, before the job.
const (
	sprintSubject  = "the sprint of "
	deflateSubject = "the drop ratio of "
)

// moveOrders are the sprints that are open, those that are over for a scheduler that was told
// of them, and the drop ratios that a job does not run with yet.
func (l *jobLoop) moveOrders(s *ledger.State) (out []streams.Order) {
	now := time.Now()
	for _, j := range s.JobsByTime() {
		if j.State != ledger.JobAccepted {
			continue
		}
		if o, ok := l.sprintOrder(s, j); ok {
			out = append(out, o)
		}
		p := l.reports.of(j.ID, now)
		if j.Deflation == nil || p == nil || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		subject := deflateSubject + j.ID
		if _, told := l.told[subject]; !told && units.Ratio(p.GetTheta()).Reaches(units.Ratio(j.Deflation.Theta)) {
			continue // it began with it
		}
		out = append(out, streams.Order{
			Subject: subject, Reason: fmt.Sprintf("%s runs with a drop ratio of %.4g: %s", j.ID, j.Deflation.Theta, cmp.Or(j.Deflation.Reason, "no reason was given")),
			Deflate: &headroomv1.DeflateDirective{Id: j.ID, Theta: j.Deflation.Theta, Seed: j.Deflation.Seed},
		})
	}
	return out
}

// sprintOrder returns the order about a job's sprint; false without one.
func (l *jobLoop) sprintOrder(s *ledger.State, j ledger.Job) (streams.Order, bool) {
	subject := sprintSubject + j.ID
	if p, ok := sprintOf(s, j.ID); ok {
		x := &headroomv1.SprintDirective{Id: j.ID, Sprint: p.ID, Nodes: slices.Sorted(maps.Keys(p.Shares)), DurationMs: p.Duration.Milliseconds()}
		for _, node := range x.GetNodes() {
			if n := s.Nodes[node].Sprint; n != nil {
				x.CapUw = max(x.GetCapUw(), int64(n.Cap))
			}
		}
		return streams.Order{Subject: subject, Reason: fmt.Sprintf("%s sprints on %d nodes for at most %v", j.ID, len(x.GetNodes()), p.Duration.Round(time.Second)), Sprint: x}, true
	}
	if _, told := l.told[subject]; told {
		return streams.Order{Subject: subject, Reason: j.ID + " sprints no more", Sprint: &headroomv1.SprintDirective{Id: j.ID}}, true
	}
	return streams.Order{}, false
}
