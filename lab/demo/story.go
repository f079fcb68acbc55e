package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lab/cluster"
	"headroom/lease"
	"headroom/units"
)

// Times of the story.
const (
	// startMost bounds the wait for the first tasks.
	startMost = 4 * time.Minute
	// cutAt and raiseAt are parts of the run; the raise may come later, when the kills take longer.
	cutAt, raiseAt = 0.28, 0.60
	// cutTo is the budget after the cut, as a part of the first one.
	cutTo = 0.60
	// biteMost is how much later the cut may come so that the nodes draw more than it leaves.
	biteMost = 4 * time.Second
	// killAfter is how long after the cut the leader is killed.
	killAfter = 4 * time.Second
	// breath is the pause between one failure's end and the next.
	breath = 1500 * time.Millisecond
	// failMost bounds each wait for the cluster to recover; a lease is 10 s.
	failMost = 15 * time.Second
	// confirmMost bounds the wait for the nodes to confirm a lower budget.
	confirmMost = 3 * time.Second
	// bothMost is how much later the raise may come so that tasks of both classes run then.
	bothMost = 8 * time.Second
	// lastAct is the least time that the run goes on after the raise.
	lastAct = 6 * time.Second
	// glance is the pause between looks while something is awaited.
	glance = 20 * time.Millisecond
)

// act is one thing that the story does; at is its moment as a part of the run, 0 for at once.
type act struct {
	at float64
	do func(context.Context) error
}

// engineStep is an act of the story on a real cluster: it sets the budget to a part of the full one, or submits
// a job of a class.
type engineStep struct {
	at     float64
	budget float64
	class  string
}

// engineSteps are the story on a real cluster, where two jobs of the low class run at t = 0: the budget steps
// down twice, jobs come in between, and the budget is raised again. The first step takes watts of sprints alone,
// the second one of the nodes, and leaves nothing for sprints.
func engineSteps() []engineStep {
	return []engineStep{
		{at: 0.12, class: classHigh},
		{at: 0.22, budget: 0.8},
		{at: 0.30, class: classLow},
		{at: 0.42, budget: cutTo},
		{at: 0.50, class: classHigh},
		{at: 0.64, budget: 1},
	}
}

// acts are the story.
func (d *show) acts() (all []act) {
	if d.opts.engine == engineLocal {
		return []act{{cutAt, d.cut}, {0, d.killLeader}, {0, d.killPowerd}, {raiseAt, d.raise}}
	}
	last := 1.0
	for _, s := range engineSteps() {
		event := eventLowered
		if s.budget > last {
			event = eventRaised
		}
		do := func(ctx context.Context) error { return d.budget(ctx, s.budget, event, "") }
		if s.class == "" {
			last = s.budget
		} else {
			do = func(context.Context) error {
				d.tracker.note(d.tracker.now(), eventJob, "class "+s.class)
				d.beside(func(ctx context.Context) error { return d.submit(ctx, s.class) })
				return nil
			}
		}
		all = append(all, act{s.at, do})
	}
	return all
}

// tell plays the whole story. It returns early only when ctx ends or a step
// cannot be done; broken guarantees are left to the judge.
func (d *show) tell(ctx context.Context) error {
	for _, a := range d.acts() {
		d.waitUntil(ctx, d.part(a.at))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.do(ctx); err != nil {
			return err
		}
	}
	d.raised.Store(true)
	after := d.tracker.now() + lastAct
	for d.tracker.now() < d.opts.length && ctx.Err() == nil {
		if d.tracker.now() > after && loadOf(d.tracker.jobList(), "").jobs == 0 {
			break
		}
		pause.For(ctx, watchEvery)
	}
	return ctx.Err()
}

// part is a moment of the run.
func (d *show) part(of float64) time.Duration { return time.Duration(float64(d.opts.length) * of) }

// waitUntil waits for a moment of the run.
func (d *show) waitUntil(ctx context.Context, at time.Duration) {
	if left := at - d.tracker.now(); left > 0 {
		pause.For(ctx, left)
	}
}

// await looks until f is true, at most for most.
func await(ctx context.Context, most time.Duration, f func() bool) bool {
	for until := time.Now().Add(most); time.Now().Before(until); {
		if f() {
			return true
		}
		if !pause.For(ctx, glance) {
			return false
		}
	}
	return false
}

// stepSeen is a time in which the budget did not change.
type stepSeen struct {
	from   time.Duration
	budget units.Power
}

// budget commits a budget, a part of the full one; more is added to the event. It waits until every node that a
// lower one lowers has read back its new cap.
func (d *show) budget(ctx context.Context, part float64, event, more string) error {
	from, to := d.steps[len(d.steps)-1].budget, d.lab.Part(part)
	revision, err := d.lab.SetBudget(ctx, part)
	if err != nil {
		return rpc.AsCLI(err, "budget set", cluster.Domain)
	}
	d.tracker.commit(revision, to)
	at := d.tracker.now()
	if to < from {
		at = d.tracker.lastCut()
	}
	d.steps = append(d.steps, stepSeen{at, to})
	d.tracker.note(at, event, fmt.Sprintf("%v -> %v, revision %d%s", from, to, revision, more))
	if to >= from {
		return nil
	}
	confirmations, err := d.lab.Confirmed(ctx, revision, confirmMost)
	if err != nil {
		d.say("            read-back of the new caps could not be observed: %v", err)
		return ctx.Err() // the caps that they hold are judged anyway
	}
	confirmed := 0
	for _, c := range confirmations {
		if c.AfterMs != nil {
			confirmed++
			d.settle = append(d.settle, c.GetAfterMs()/1000)
		}
	}
	slices.Sort(d.settle)
	d.say("            %d of %d lowered nodes read back their new cap", confirmed, len(confirmations))
	if confirmed < len(confirmations) {
		return fmt.Errorf("%w: %d of %d lowered nodes did not confirm the cut within %v", errBroken, len(confirmations)-confirmed, len(confirmations), confirmMost)
	}
	return nil
}

// cut lowers the budget.
func (d *show) cut(ctx context.Context) error {
	// A cut below the measured power shows more than one without an effect.
	await(ctx, biteMost, func() bool { return d.tracker.draws() > d.lab.Part(cutTo) })
	return d.budget(ctx, cutTo, eventCut, "")
}

// table is the leader's table of nodes, and its name and epoch.
func (d *show) table(ctx context.Context) ([]*headroomv1.Node, string, lease.Epoch, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	answer, err := d.lab.Nodes(ctx)
	return answer.GetNodes(), answer.GetMeta().GetServer(), wire.Epoch(answer.GetMeta().GetEpoch()), err
}

// killLeader kills the process of the leader and waits until another one grants.
func (d *show) killLeader(ctx context.Context) error {
	d.waitUntil(ctx, d.tracker.lastCut()+killAfter)
	var old lease.Epoch
	if !await(ctx, failMost, func() (known bool) {
		var err error
		_, d.killed, old, err = d.table(ctx)
		return err == nil
	}) {
		return orBroken(ctx, "no leader for %v", failMost)
	}
	killed := time.Now()
	pid := d.lab.Site.Kill(d.killed)
	d.tracker.note(d.tracker.now(), eventKilled, fmt.Sprintf("%s, process %d, kill -9", d.killed, pid))
	who := ""
	if !await(ctx, failMost, func() bool {
		nodes, server, epoch, err := d.table(ctx)
		who = fmt.Sprintf("%s, epoch %v", server, epoch)
		// A leader counts only the leases that it granted itself.
		return err == nil && epoch.Compare(old) > 0 && slices.ContainsFunc(nodes, func(n *headroomv1.Node) bool { return n.LeaseMs != nil })
	}) {
		return orBroken(ctx, "no new leader granted a lease within %v", failMost)
	}
	d.failover = new(time.Since(killed).Seconds())
	d.tracker.note(d.tracker.now(), eventLeader, fmt.Sprintf("%s, first grant %.1f s after the kill", who, *d.failover))
	return nil
}

// killPowerd kills the powerd of one node and waits until the next one holds a lease.
func (d *show) killPowerd(ctx context.Context) error {
	pause.For(ctx, breath)
	n := d.nodes[d.rand.IntN(len(d.nodes))]
	pid, _ := n.powerd()
	if pid == 0 {
		return fmt.Errorf("%w: no powerd running on %s", errBroken, n.name)
	}
	killed := time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("demo: kill powerd of %s: %w", n.name, err)
	}
	d.tracker.note(d.tracker.now(), eventDown, fmt.Sprintf("on %s, process %d, kill -9", n.name, pid))
	var started time.Time
	var h heldFile
	since := func() bool { // the new powerd has written what it holds
		_, now, err := n.held()
		h = now
		return err == nil && h.at().After(started)
	}
	if !await(ctx, failMost, func() bool {
		now, at := n.powerd()
		started = at
		return now != 0 && now != pid && started.After(killed)
	}) {
		return orBroken(ctx, "powerd of %s not restarted within %v", n.name, failMost)
	}
	if !await(ctx, failMost, func() bool { return since() && len(h.Limits) > 0 }) {
		return orBroken(ctx, "powerd of %s had no verified cap within %v", n.name, failMost)
	}
	d.readopt = new(max(0, h.at().Sub(started).Seconds()))
	if !await(ctx, failMost, func() bool { return since() && h.State == "held" }) {
		return orBroken(ctx, "powerd of %s had no lease within %v", n.name, failMost)
	}
	d.tracker.note(d.tracker.now(), eventBack, fmt.Sprintf("on %s, verified cap %.0f ms after its start, lease after %.1f s",
		n.name, 1000**d.readopt, time.Since(started).Seconds()))
	return nil
}

// raise gives the first budget back, while tasks of both classes run.
func (d *show) raise(ctx context.Context) error {
	var high, low load
	await(ctx, bothMost, func() bool {
		jobs := d.tracker.jobList()
		high, low = loadOf(jobs, classHigh), loadOf(jobs, classLow)
		return high.running > 0 && low.running > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.budget(ctx, 1, eventRaised, fmt.Sprintf(", while %d high and %d low tasks run", high.running, low.running))
}

// orBroken is ctx's error, or else a broken promise.
func orBroken(ctx context.Context, format string, args ...any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: "+format, append([]any{errBroken}, args...)...)
}
