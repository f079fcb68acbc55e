package master

import (
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch/pigeon"
)

// join adds a distributor whose stream opens, and sends it the state and its unacknowledged results.
func (g *group) join(now time.Time, s *placeSession) error {
	if err := g.succeed(now, s.epoch); err != nil {
		return err
	}
	d := g.distributors[s.name]
	if d == nil {
		if len(g.distributors) >= distributorsMost {
			return rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitRefused, fmt.Sprintf("the group already has the maximum of %d distributors", distributorsMost), "stop distributors that are not needed")
		}
		d = &distributor{name: s.name, incarnation: s.incarnation, results: make(map[key]*headroomv1.TaskResult), lost: make(map[key]bool)}
		g.distributors[s.name] = d
	}
	if d.session != nil {
		d.session.end(rpc.Refuse(connect.CodeAborted, "conflict", cli.ExitConflict, "another stream of distributor "+d.name+" replaced this one", "give each distributor a unique name"))
	}
	if d.incarnation != s.incarnation {
		g.renew(now, d)
	}
	d.incarnation, d.epoch, d.session, d.heard = s.incarnation, s.epoch, s, now
	g.tellAll(now)
	for _, r := range d.results {
		s.put(placeItem{result: r})
	}
	for k := range d.lost {
		s.put(placeItem{lost: k.ref()})
	}
	return nil
}

// succeed admits the scheduler of an epoch, and removes those in whose place it is: their waiting tasks are dropped,
// and running ones may be claimed. A scheduler of an older epoch is refused.
func (g *group) succeed(now time.Time, epoch uint64) error {
	replaced := rpc.Refuse(connect.CodeFailedPrecondition, "not-active", cli.ExitUnreachable, "another scheduler is active", "the active scheduler continues the jobs")
	switch {
	case epoch == 0: // of a scheduler or distributor without a lease
		return nil
	case epoch < g.epoch:
		return replaced
	}
	for name, d := range g.distributors {
		if d.epoch == 0 || d.epoch >= epoch {
			continue
		}
		if d.session != nil {
			d.session.end(replaced)
		}
		g.renew(now, d)
		delete(g.distributors, name)
	}
	g.epoch = epoch
	return nil
}

// renew separates a distributor from what an earlier process of it has sent: waiting tasks are removed; running ones
// may be claimed.
func (g *group) renew(now time.Time, d *distributor) {
	for _, t := range g.tasks {
		if t.from != d {
			continue
		}
		if t.on == nil {
			g.drop(t)
			continue
		}
		d.here[pigeon.Kind(t.high)]--
		t.from, t.since = nil, now
		g.unclaimed[t.key] = t
	}
	for k, r := range d.results {
		g.orphan(k, orphan{result: r, at: now})
	}
	clear(d.results)
	clear(d.lost)
}

// drop removes a waiting task.
func (g *group) drop(t *task) {
	if t.id != 0 {
		g.core.Cancel(t.id)
	}
	g.forget(t)
}

// of returns the distributor of a stream; nil for a stream that another one has replaced.
func (g *group) of(s *placeSession, now time.Time) *distributor {
	if d := g.distributors[s.name]; d != nil && d.session == s {
		d.heard = now
		return d
	}
	return nil
}

// place accepts tasks.
func (g *group) place(now time.Time, s *placeSession, m *headroomv1.PlaceTasks) {
	d := g.of(s, now)
	if d == nil {
		return
	}
	share := g.share()
	for _, x := range m.GetTasks() {
		switch why := g.take(d, x, m.GetHigh(), m.GetAgain(), share); why {
		case "":
			g.counts.taken++
		case known:
		default:
			g.counts.refused++
			d.tell(placeItem{refused: x.GetRef(), reason: why})
		}
	}
}

// known is returned by take for a task that is already here or was answered.
const known = "known"

// take accepts one task; otherwise it returns known, or why the task is refused.
func (g *group) take(d *distributor, x *headroomv1.Task, high, again bool, share int) (refused string) {
	k := keyOf(x.GetRef())
	if t := g.tasks[k]; t != nil {
		return g.claim(d, t, x, high)
	}
	if r := d.results[k]; r != nil {
		d.tell(placeItem{result: r})
		return known
	}
	if d.lost[k] {
		d.tell(placeItem{lost: x.GetRef()})
		return known
	}
	if o, ok := g.orphans[k]; ok {
		g.unorphan(k)
		g.count(o.result)
		d.results[k] = o.result
		d.tell(placeItem{result: o.result})
		return known
	}
	switch {
	case !g.role.active:
		return "master is on standby"
	case d.here[pigeon.Kind(high)] >= overrun*share:
		return fmt.Sprintf("window exceeded: %d tasks of this priority queued", d.here[pigeon.Kind(high)])
	case len(d.results)+len(d.lost) >= 2*overrun*share:
		return fmt.Sprintf("%d results are pending", len(d.results)+len(d.lost))
	}
	t := &task{key: k, message: x, from: d, high: high}
	g.tasks[k] = t
	d.here[pigeon.Kind(high)]++
	switch {
	case !again:
		t.id, _ = g.core.Place(t, high) // its queue has no bound of its own
	case g.settled:
		g.lose(t)
		return known
	}
	return ""
}

// claim assigns a task that is here to its distributor.
func (g *group) claim(d *distributor, t *task, x *headroomv1.Task, high bool) (refused string) {
	switch {
	case t.from != nil && t.from != d:
		return "a task with this reference was submitted by another distributor"
	case t.from == d:
		return known
	}
	g.core.End(t.id) // for its priority, which only the distributor knows
	t.from, t.message, t.high = d, x, high
	t.stopped = false // its result counts again, also that it was stopped
	t.id = g.core.Adopt(t, high, t.on.worker)
	delete(g.unclaimed, t.key)
	d.here[pigeon.Kind(high)]++
	return ""
}

// taken removes acknowledged results of a distributor.
func (g *group) taken(now time.Time, s *placeSession, refs []*headroomv1.TaskRef) {
	if d := g.of(s, now); d != nil {
		for _, r := range refs {
			delete(d.results, keyOf(r))
			delete(d.lost, keyOf(r))
		}
	}
}

// cancel cancels tasks, or those of a whole job if it is named.
func (g *group) cancel(now time.Time, s *placeSession, m *headroomv1.PlaceCancel) {
	d := g.of(s, now)
	if d == nil {
		return
	}
	for _, r := range m.GetRefs() {
		k := keyOf(r)
		delete(d.results, k)
		delete(d.lost, k)
		if t := g.tasks[k]; t != nil && t.from == d {
			g.takeBack(t)
		}
	}
	if m.GetJob() == "" {
		return
	}
	for k := range d.results {
		if k.job == m.GetJob() {
			delete(d.results, k)
		}
	}
	for k := range d.lost {
		if k.job == m.GetJob() {
			delete(d.lost, k)
		}
	}
	for _, t := range g.tasks {
		if t.job == m.GetJob() && t.from == d {
			g.takeBack(t)
		}
	}
}

// takeBack removes a waiting task, and stops a running one.
func (g *group) takeBack(t *task) {
	if t.on == nil {
		g.drop(t)
	} else if !t.stopped {
		g.stop(t)
	}
}

// part records that a distributor's stream has ended: it reconnects, or is removed after a while.
func (g *group) part(now time.Time, s *placeSession) {
	if d := g.of(s, now); d != nil {
		d.session = nil
		g.tellAll(now)
	}
}

// expireDistributors removes those that have been away for too long, with their waiting tasks, and disconnects those
// that do not read or send nothing.
func (g *group) expireDistributors(now time.Time) {
	for _, d := range g.distributors {
		switch {
		case d.session != nil && d.session.box.stalled(now, stallMost):
			g.cut(now, d.session, errStalled(d.name))
		case d.session != nil && now.Sub(d.heard) >= workerSilence:
			g.cut(now, d.session, rpc.Refuse(connect.CodeAborted, "silent", cli.ExitUnreachable, "distributor "+d.name+" timed out", "it reconnects automatically"))
		case d.session == nil && now.Sub(d.heard) >= distributorSilence:
			g.cfg.Logger.Warn("distributor removed after a long absence",
				slog.String("distributor", d.name), slog.Int("waiting", d.here[0]+d.here[1]), slog.Int("results", len(d.results)))
			g.renew(now, d)
			delete(g.distributors, d.name)
		}
	}
}

// cut ends the stream of a distributor. The report of its end may be lost with the request, so nothing waits for it.
func (g *group) cut(now time.Time, s *placeSession, why error) {
	s.cut(why)
	g.part(now, s)
}

// tell sends something to a connected distributor.
func (d *distributor) tell(x placeItem) {
	if d.session != nil {
		d.session.put(x)
	}
}
