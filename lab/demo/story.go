package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

// Times of the story. The run is what --for leaves after the start, less stopTime.
const (
	// startMost bounds the start: elections, admissions, first tasks.
	startMost = 30 * time.Second
	// stopTime is kept for stopping everything.
	stopTime = 4 * time.Second
	// cutAt and raiseAt are parts of the run; the raise may come later, when the
	// kills take longer.
	cutAt, raiseAt = 0.28, 0.60
	// biteMost is how much later the cut may come so that the nodes draw more than it leaves.
	biteMost = 4 * time.Second
	// killAfter is how long after the cut the leader is killed.
	killAfter = 4 * time.Second
	// breath is the pause between one failure's end and the next.
	breath = 1500 * time.Millisecond
	// failMost bounds each wait for the cluster to recover; a lease is 10 s.
	failMost = 15 * time.Second
	// confirmMost bounds the wait for the nodes to confirm the cut.
	confirmMost = 3 * time.Second
	// bothMost is how much later the raise may come so that tasks of both classes run then.
	bothMost = 8 * time.Second
	// lastAct is the least time that the run goes on after the raise.
	lastAct = 6 * time.Second
	// glance is the pause between looks while something is awaited.
	glance = 20 * time.Millisecond
)

// act is one thing that the story on a real cluster does: at is its moment as a part of the
// run. It sets the budget to a part of the full one, or submits a job of a class.
type act struct {
	at     float64
	budget float64
	class  string
}

// firstJobs are the classes of the jobs that are there at t = 0.
func firstJobs() []string { return []string{classLow, classLow} }

// acts are the story: jobs of the low class fill the cluster, the budget steps down twice,
// jobs of the high class come in between, and the budget is raised again. The first step
// takes watts of sprints alone, the second one of the nodes, and leaves nothing for sprints.
func acts() []act {
	return []act{
		{at: 0.12, class: classHigh},
		{at: 0.22, budget: 0.8},
		{at: 0.30, class: classLow},
		{at: 0.42, budget: cutTo},
		{at: 0.50, class: classHigh},
		{at: 0.64, budget: 1},
	}
}

// stepSeen is a time in which the budget did not change.
type stepSeen struct {
	from   time.Duration
	budget units.Power
}

// story acts: it starts the cluster's load, cuts, kills, raises. What it
// measures itself is in its result.
type story struct {
	lab     *lab
	tracker *tracker
	nodes   []nodeFiles
	feed    *feeder
	rand    *rand.Rand
	say     func(format string, args ...any)
	run     time.Duration // length of the run from t = 0

	settle   []float64 // seconds from commit to read-back, one a lowered node
	failover *float64
	readopt  *float64
	steps    []stepSeen
	end      time.Duration // of a story on a real cluster: then the jobs that are left are cancelled
}

// tell plays the whole story. It returns early only when ctx ends or a step
// cannot be done; broken guarantees are left to the judge.
func (s *story) tell(ctx context.Context) error {
	s.waitUntil(ctx, s.part(cutAt))
	for _, act := range []func(context.Context) error{s.cut, s.killLeader, s.killPowerd, s.raise} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := act(ctx); err != nil {
			return err
		}
	}
	return s.runOut(ctx)
}

// tellActs plays the whole story on a real cluster, as tell does.
func (s *story) tellActs(ctx context.Context, submit func(class string)) error {
	defer func() { s.end = s.tracker.now() }()
	full := s.lab.full()
	s.steps = []stepSeen{{0, full}}
	for _, a := range acts() {
		s.waitUntil(ctx, s.part(a.at))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.class != "" {
			s.tracker.note(s.tracker.now(), eventJob, "class "+a.class)
			submit(a.class)
			continue
		}
		from, to := s.steps[len(s.steps)-1].budget, units.FromWatts(math.Round(full.Watts()*a.budget))
		var err error
		if to < from {
			err = s.lower(ctx, from, to, eventLowered, "step of the demo")
		} else {
			_, err = s.set(ctx, from, to, eventRaised, "step of the demo", "")
		}
		if err != nil {
			return err
		}
	}
	return s.runOut(ctx)
}

// part is a moment of the run.
func (s *story) part(of float64) time.Duration { return time.Duration(float64(s.run) * of) }

// runOut waits until no job is left, or the run's time is over.
func (s *story) runOut(ctx context.Context) error {
	after := s.tracker.now() + lastAct
	for s.tracker.now() < s.run && ctx.Err() == nil {
		if s.tracker.now() > after && loadOf(s.tracker.jobList(), classHigh, classLow).jobs == 0 {
			break
		}
		pause.For(ctx, againAfter)
	}
	return ctx.Err()
}

// waitUntil waits for a moment of the run.
func (s *story) waitUntil(ctx context.Context, at time.Duration) {
	if d := at - s.tracker.now(); d > 0 {
		pause.For(ctx, d)
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

// ready waits until every node has a lease and, where that is asked for, tasks run.
func (s *story) ready(ctx context.Context, most time.Duration, tasks bool) error {
	why := "no coordinator reachable"
	if await(ctx, most, func() bool {
		nodes, meta, err := s.lab.client.nodes(ctx)
		if err != nil {
			return false
		}
		s.tracker.answered(meta)
		running := loadOf(s.tracker.jobList(), classLow, classHigh).running
		why = fmt.Sprintf("%d of %d nodes have a lease, %d tasks running", leased(nodes), len(s.nodes), running)
		return leased(nodes) == len(s.nodes) && (running > 0 || !tasks)
	}) {
		return nil
	}
	return s.late(ctx, most, why)
}

// late is the error of a cluster that is not ready in time.
func (s *story) late(ctx context.Context, most time.Duration, why string) error {
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return cli.Failed("see the logs in "+s.lab.path("logs")+" and "+s.lab.path("nodes", "n01", "powerd.log"),
		"cluster not ready after %v: %s", most, why)
}

// leased is how many nodes hold a lease.
func leased(nodes []*headroomv1.Node) (n int) {
	for _, node := range nodes {
		if node.GetState() == "ok" && node.LeaseMs != nil && node.EffectiveUw != nil {
			n++
		}
	}
	return n
}

// cut lowers the budget and waits until every lowered node has read back its new cap.
func (s *story) cut(ctx context.Context) error {
	// A cut below the measured power shows more than one without an effect.
	await(ctx, biteMost, func() bool { return s.tracker.draws() > s.lab.cut() })
	s.say("lowering the budget to %.0f %%", 100*cutTo)
	return s.lower(ctx, s.lab.full(), s.lab.cut(), eventCut, "feeder maintenance (demo)")
}

// set commits a budget, and returns its revision; more is added to what is noted.
func (s *story) set(ctx context.Context, from, to units.Power, event, reason, more string) (revision uint64, err error) {
	if revision, err = s.lab.client.setBudget(ctx, to, reason); err != nil {
		return 0, err
	}
	s.tracker.commit(revision, to)
	at := s.tracker.now()
	if to < from {
		at = s.tracker.lastCut()
	}
	s.steps = append(s.steps, stepSeen{at, to})
	s.tracker.note(at, event, fmt.Sprintf("%v -> %v, revision %d%s", from, to, revision, more))
	return revision, nil
}

// lower commits a lower budget and waits until every lowered node has read back its new cap.
func (s *story) lower(ctx context.Context, from, to units.Power, event, reason string) error {
	revision, err := s.set(ctx, from, to, event, reason, "")
	if err != nil {
		return err
	}
	confirmations, err := s.lab.client.awaitBudget(ctx, revision, confirmMost)
	if err != nil {
		s.say("read-back of the new caps could not be observed: %v", err)
		return ctx.Err() // the caps that they hold are judged anyway
	}
	confirmed := 0
	for _, c := range confirmations {
		if c.AfterMs != nil {
			confirmed++
			s.settle = append(s.settle, c.GetAfterMs()/1000)
		}
	}
	slices.Sort(s.settle)
	s.say("%d of %d lowered nodes read back their new cap", confirmed, len(confirmations))
	if confirmed < len(confirmations) {
		return fmt.Errorf("%w: %d of %d lowered nodes did not confirm the cut within %v",
			errBroken, len(confirmations)-confirmed, len(confirmations), confirmMost)
	}
	return nil
}

// killLeader kills the process of the leader and waits until another one grants.
func (s *story) killLeader(ctx context.Context) error {
	s.waitUntil(ctx, s.tracker.lastCut()+killAfter)
	var m *program
	var old lease.Epoch
	if !await(ctx, failMost, func() bool {
		_, meta, err := s.lab.client.nodes(ctx)
		m, old = s.lab.fleet.find(meta.GetServer()), wire.Epoch(meta.GetEpoch())
		return err == nil && m != nil
	}) {
		return orBroken(ctx, "no leader for %v", failMost)
	}
	who, killed := "", time.Now()
	m.kill()
	s.tracker.note(s.tracker.now(), eventKilled, fmt.Sprintf("%s, process %d, kill -9", m.Name, m.Pid()))
	ok := await(ctx, failMost, func() bool {
		nodes, meta, err := s.lab.client.nodes(ctx)
		if err != nil || wire.Epoch(meta.GetEpoch()).Compare(old) <= 0 {
			return false
		}
		s.tracker.answered(meta)
		who = fmt.Sprintf("%s, epoch %v", meta.GetServer(), wire.Epoch(meta.GetEpoch()))
		// A leader counts only the leases that it granted itself.
		return slices.ContainsFunc(nodes, func(n *headroomv1.Node) bool { return n.LeaseMs != nil })
	})
	if !ok {
		return orBroken(ctx, "no new leader granted a lease within %v", failMost)
	}
	s.failover = new(time.Since(killed).Seconds())
	s.tracker.note(s.tracker.now(), eventLeader, fmt.Sprintf("%s, first grant %.1f s after the kill", who, *s.failover))
	return nil
}

// killPowerd kills the powerd of one node and waits until the next one holds a lease.
func (s *story) killPowerd(ctx context.Context) error {
	pause.For(ctx, breath)
	n := s.nodes[s.rand.IntN(len(s.nodes))]
	pid, _ := n.powerd()
	if pid == 0 {
		return fmt.Errorf("%w: no powerd running on %s", errBroken, n.name)
	}
	killed := time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("demo: kill powerd of %s: %w", n.name, err)
	}
	s.tracker.note(s.tracker.now(), eventDown, fmt.Sprintf("on %s, process %d, kill -9; restart after %v", n.name, pid, restartDelay))
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
	s.readopt = new(max(0, h.at().Sub(started).Seconds()))
	s.say("powerd of %s enforces %.1f W %.0f ms after its start; waiting for its lease", n.name, h.CapW, 1000**s.readopt)
	if !await(ctx, failMost, func() bool { return since() && h.State == "held" }) {
		return orBroken(ctx, "powerd of %s had no lease within %v", n.name, failMost)
	}
	s.tracker.note(s.tracker.now(), eventBack, fmt.Sprintf("on %s, verified cap %.0f ms after its start, lease after %.1f s",
		n.name, 1000**s.readopt, time.Since(started).Seconds()))
	return nil
}

// raise gives the first budget back, while tasks of both classes run.
func (s *story) raise(ctx context.Context) error {
	at := max(s.part(raiseAt), s.tracker.now()+breath)
	var high, low load
	await(ctx, at+bothMost-s.tracker.now(), func() bool {
		jobs := s.tracker.jobList()
		high, low = loadOf(jobs, classHigh), loadOf(jobs, classLow)
		s.feed.hurry(high.jobs == 0, classHigh)
		s.feed.hurry(low.left == 0, classLow)
		return s.tracker.now() >= at && high.running > 0 && low.running > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err := s.set(ctx, s.lab.cut(), s.lab.full(), eventRaised, "maintenance done (demo)",
		fmt.Sprintf(", while %d high and %d low tasks run", high.running, low.running))
	return err
}

// orBroken is ctx's error, or else a broken promise.
func orBroken(ctx context.Context, format string, args ...any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: "+format, append([]any{errBroken}, args...)...)
}

// nodeViews are the readers of the lab's nodes.
func (l *lab) nodeViews() []nodeFiles {
	rated := l.full() / units.Power(len(l.nodes))
	var out []nodeFiles
	for _, name := range l.nodes {
		out = append(out, nodeFiles{name: name, dir: l.path("nodes", name), rated: rated})
	}
	return out
}
