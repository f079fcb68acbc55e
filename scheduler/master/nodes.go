package master

import (
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch"
	"headroom/scheduler/local"
)

// hello records a worker's first message: its slots, and the attempts that it runs or whose results it is about to
// repeat. What it should run and does not know is lost.
func (g *group) hello(now time.Time, s *workSession, h *headroomv1.WorkerHello) error {
	if !g.role.active {
		return errStandby(g.cfg)
	}
	if err := g.belongs(s.node); err != nil {
		return err
	}
	n, before := g.nodes[s.node], map[key]*task{}
	if n != nil && n.session != nil {
		conflict := rpc.Refuse(connect.CodeAborted, "conflict", cli.ExitConflict, "another worker is connected as node "+n.name, "run one worker per node")
		if now.Sub(n.heard) < takeoverAfter {
			return conflict
		}
		n.session.end(conflict)
	}
	if n == nil {
		if len(g.nodes) >= nodesMost {
			return rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitRefused, fmt.Sprintf("the group already has the maximum of %d workers", nodesMost), "split the group")
		}
		n = &node{name: s.node}
		g.nodes[s.node] = n
	} else {
		for _, t := range g.leave(n) {
			t.on, before[t.key] = nil, t
		}
	}
	delete(g.awaited, n.name)
	n.slots, n.grants, n.session, n.heard, n.running = int(h.GetSlots()), h.GetGrantKey(), s, now, 0
	n.worker = g.core.Join(n.slots, 0)
	g.byWorker[n.worker] = n
	for _, r := range h.GetRunning() {
		g.named(now, n, r)
		delete(before, keyOf(r))
	}
	for _, t := range before {
		g.lose(t)
	}
	g.slots.Joined(n.name)
	g.reserve()
	g.limit(n)
	return nil
}

// leave takes a node's worker out of the core, and returns what it was running. Slots of frameworks are not among it: they are
// adopted when the worker is back.
func (g *group) leave(n *node) (running []*task) {
	delete(g.byWorker, n.worker)
	for _, t := range g.core.Leave(n.worker, nil) {
		if t.slot != nil {
			g.slots.Gone(t.slot)
		} else {
			running = append(running, t)
		}
	}
	return running
}

// named takes over an attempt that a worker names. One that runs elsewhere is stopped here.
func (g *group) named(now time.Time, n *node, r *headroomv1.TaskRef) {
	t := g.tasks[keyOf(r)]
	switch {
	case t == nil:
		t = &task{key: keyOf(r), since: now}
		g.tasks[t.key], g.unclaimed[t.key] = t, t
	case t.on == n: // already reported
		return
	case t.on != nil:
		n.session.put(workItem{kill: r})
		return
	case t.id != 0 && t.message != nil: // it waits in the queue: an earlier process of this master began it
		g.core.Cancel(t.id)
	}
	g.adopt(n, t)
	if t.stopped {
		g.stop(t)
	}
}

// adopt puts a task that a node is running already on one of its slots.
func (g *group) adopt(n *node, t *task) {
	t.on = n
	n.running++
	t.id = g.core.Adopt(t, t.high, n.worker)
}

// belongs refuses a node that is known not to be below the group's domain.
func (g *group) belongs(name string) error {
	if _, ok := g.caps[name]; ok || g.capsAt.IsZero() {
		return nil
	}
	return rpc.Refuse(connect.CodeFailedPrecondition, "wrong-group", cli.ExitRefused,
		fmt.Sprintf("node %s is not in %s, the group of master %s", name, g.cfg.Group, g.cfg.Name),
		"find the domain of the node with coordinator node list, and connect to the masters of its group")
}

// usable returns how many of a node's slots its cap leaves; all where no cap is known.
func (g *group) usable(n *node) int {
	if c, ok := g.caps[n.name]; ok && c.Cap > 0 {
		return dispatch.UsableSlots(c, n.slots)
	}
	return n.slots
}

// limit starts no more on a node than its cap leaves, and nothing while it is not connected.
func (g *group) limit(n *node) {
	if n.session == nil {
		g.core.Usable(n.worker, 0)
		return
	}
	g.core.Usable(n.worker, g.usable(n))
}

// reserve spreads the reserved slots over the nodes by their slots.
func (g *group) reserve() {
	total := 0
	for _, n := range g.nodes {
		total += n.slots
	}
	want, slots, given := g.cfg.Reserved.of(total), 0, 0
	for _, n := range g.sorted() {
		slots += n.slots
		upTo := want * slots / max(1, total)
		g.core.Reserve(n.worker, upTo-given)
		given = upTo
	}
}

// learn takes the caps of the nodes below the domain.
func (g *group) learn(now time.Time, caps map[string]dispatch.Cap) {
	g.caps, g.capsAt = caps, now
	for _, n := range g.nodes {
		if err := g.belongs(n.name); err != nil && n.session != nil {
			n.session.end(err)
		}
		g.limit(n)
	}
}

// away notes that a worker's stream has ended. After a goodbye its tasks have ended too; otherwise they may run on.
func (g *group) away(now time.Time, s *workSession, goodbye bool) {
	n := g.nodes[s.node]
	if n == nil || n.session != s {
		return
	}
	n.session = nil
	if goodbye {
		g.abandon(n)
		return
	}
	n.heard = now
	g.limit(n)
}

// abandon forgets a node, whose tasks are lost.
func (g *group) abandon(n *node) {
	delete(g.nodes, n.name)
	for _, t := range g.leave(n) {
		g.lose(t)
	}
	if n.session != nil {
		n.session.end(rpc.Refuse(connect.CodeAborted, "silent", cli.ExitUnreachable, "worker "+n.name+" timed out", "it reconnects automatically"))
	}
	g.reserve()
}

// expireNodes gives up workers that have been silent for too long, and cuts off those that do not read.
func (g *group) expireNodes(now time.Time) {
	for _, n := range g.nodes {
		if now.Sub(n.heard) >= workerSilence {
			g.cfg.Logger.Warn("worker lost", slog.String("node", n.name), slog.Int("tasks", n.running))
			g.abandon(n)
			continue
		}
		if n.session != nil && n.session.box.stalled(now, stallMost) {
			n.session.cut(errStalled(n.name))
		}
	}
}

func errStalled(name string) error {
	return rpc.Refuse(connect.CodeResourceExhausted, "slow", cli.ExitUnreachable,
		fmt.Sprintf("%s has not read its stream for %v", name, stallMost), "it may reconnect")
}

// ended takes over results of a worker.
func (g *group) ended(now time.Time, s *workSession, results []*headroomv1.TaskResult) {
	n := g.nodes[s.node]
	if n == nil || n.session != s {
		return
	}
	n.heard = now
	for _, r := range results {
		t := g.tasks[keyOf(r.GetRef())]
		if t == nil || t.on != n {
			continue // reported before, or never assigned to it
		}
		g.core.End(t.id)
		g.result(now, t, r)
	}
}

// result passes the result of a task to its distributor.
func (g *group) result(now time.Time, t *task, r *headroomv1.TaskResult) {
	never := r.GetError() == local.Stopped || r.GetError() == local.NoSlot
	from := t.from
	switch {
	case !t.stopped && never:
		g.lose(t) // another master had it stopped, or it was never begun: no failure of its own
		return
	case t.stopped:
	case from == nil:
		g.orphan(t.key, orphan{r, t.on.name, now})
	default:
		g.count(r)
		from.results[t.key] = r
		from.tell(placeItem{result: r})
	}
	g.forget(t)
}

func (g *group) count(r *headroomv1.TaskResult) {
	g.counts.ended++
	if r.GetError() != "" || r.GetExitCode() != 0 {
		g.counts.failed++
	}
}
