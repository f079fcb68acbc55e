package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/lab/cluster"
	"headroom/units"
)

// What each node may have on average while they exchange, and what a cut leaves it.
// Their loads want 165 W on average, so that every watt of both is given out.
const (
	tightBudget = 150 * units.Watt
	cutBudget   = 110 * units.Watt
)

// mostlyGiven is the part of the budget that nodes hold once a raise has come through; the
// rest is what plans leave lying rather than move it.
const mostlyGiven = 0.95

// trial is a group with its nodes.
type trial struct {
	*clusterRun

	group *group
	fleet *fleet
}

func (o *clusterOptions) budget(each units.Power) units.Power { return units.Power(o.nodes) * each }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

// comeUp waits until every node holds a lease, and makes the budget tight.
func (t *trial) comeUp(ctx context.Context) error {
	began := time.Now()
	err := await(ctx, 90*time.Second, fmt.Sprintf("%d nodes with a lease", t.nodes), t.allHold)
	if err != nil {
		return err
	}
	t.note("cluster: %d nodes have a lease after %.1f s", t.nodes, time.Since(began).Seconds())
	if _, err := t.group.setBudget(ctx, t.budget(tightBudget)); err != nil {
		return err
	}
	return t.settle(ctx)
}

func (t *trial) allHold() bool {
	_, held, _ := t.fleet.holds()
	return held == t.nodes
}

// settle waits until the nodes hold leases of nearly all of the tight budget, and no more.
func (t *trial) settle(ctx context.Context) error {
	return await(ctx, 60*time.Second, "the budget given out", func() bool {
		sum, held, _ := t.fleet.holds()
		full := t.budget(tightBudget)
		return held == t.nodes && sum <= full && sum.Watts() >= mostlyGiven*full.Watts()
	})
}

// steady watches exchanges, CPU and log while nothing happens but that loads change.
func (t *trial) steady(ctx context.Context) error {
	if !pause.For(ctx, warmUpSpan) {
		return ctx.Err()
	}
	t.note("cluster: measuring for %v", t.duration)
	self, _, errSelf := cpuTime(os.Getpid())
	t.fleet.collect()
	var servers []*cluster.Program
	for _, m := range t.group.members {
		servers = append(servers, m.program)
	}
	began := time.Now()
	cpu, log, err := watchServers(ctx, servers, func(i int) string { return filepath.Join(t.group.dir, t.group.members[i].ID) }, t.nodes, t.duration)
	took := t.fleet.collected()
	if err != nil {
		return err
	}
	after, _, err := cpuTime(os.Getpid())
	clients := "unknown"
	if err == nil && errSelf == nil {
		clients = fmt.Sprintf("%.0f", 1e6*(after-self).Seconds()/time.Since(began).Seconds()/float64(t.nodes))
	}
	t.ours = burden{took: took, cpu: cpu, log: log}
	t.report.Exchange, t.report.CPU, t.report.Log = quantilesOf(took), finite(cpu), finite(log)
	t.add(
		newItem("cluster-exchange", "from a heartbeat to a lease that answers it, which comes with the leader's next tick", "s").spread(took).
			say("%d nodes, %d exchanges; a tick comes once a second, and soon after an acknowledgement that frees watts", t.nodes, len(took)),
		newItem("cluster-cpu", "CPU of the three coordinators, per second and node", "us").is(1e6*cpu).
			say("the nodes themselves, in this process: %s us each", clients),
		newItem("cluster-log", "what each coordinator writes into its log, per second", "B").is(log).
			say("a new load on each node every %v", loadLasts),
	)
	return nil
}

// cutAll cuts the budget again and again.
func (t *trial) cutAll(ctx context.Context) error {
	var took []float64
	open, again := 0, 0
	for done := 0; done < t.cuts; done = len(took) + open {
		if done%5 == 0 {
			t.note("cluster: cut %d of %d", done+1, t.cuts)
		}
		d, all, err := t.cutOnce(ctx)
		switch {
		case lostLeader(err) && again < againMost:
			again++
		case err != nil:
			return err
		case !all:
			open++
		default:
			took = append(took, d.Seconds())
		}
		if _, err := t.group.setBudget(ctx, t.budget(tightBudget)); err != nil {
			return err
		}
		if err := t.settle(ctx); err != nil {
			return err
		}
	}
	t.report.Cut = quantilesOf(took)
	i := newItem("cluster-cut", "a cut of the budget, sent: until the leader has every node's read-back", "s").spread(took)
	if t.nodes == 1000 {
		i = i.aim(atMost(2, "p99 <= 2 s"))
	}
	if len(took) == 0 {
		t.add(i.say("timed out: no cut was confirmed by every node within 15 s"))
		return nil
	}
	i = i.say("%d cuts from %v to %v a node; the slowest %.2f s", len(took), tightBudget, cutBudget, slices.Max(took))
	if again > 0 {
		i.Note += fmt.Sprintf("; %d more left out: the leader changed in them, or did not answer", again)
	}
	if open > 0 {
		no := false
		i.Met, i.Note = &no, i.Note+fmt.Sprintf("; %d NOT confirmed within 15 s", open)
	}
	t.add(i)
	return nil
}

// lostLeader reports whether a call failed because the leader changed meanwhile: nobody
// answered, or the next leader, which did not follow the cut.
func lostLeader(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeNotFound || code == connect.CodeDeadlineExceeded || code == connect.CodeUnavailable)
}

// cutOnce cuts at any moment of the leader's second.
func (t *trial) cutOnce(ctx context.Context) (took time.Duration, done bool, err error) {
	if !pause.For(ctx, rand.N(time.Second)) {
		return 0, false, ctx.Err()
	}
	began := time.Now()
	revision, err := t.group.setBudget(ctx, t.budget(cutBudget))
	if err != nil {
		return 0, false, err
	}
	after, open, err := t.group.awaitBudget(ctx, revision, 15*time.Second)
	took = time.Since(began)
	if err == nil && len(after) == 0 && open == 0 {
		err = fmt.Errorf("bench: a cut that lowered no node: %w", errNotYet)
	}
	return took, open == 0, err
}

// killAll kills leaders, and starts each again.
func (t *trial) killAll(ctx context.Context) error {
	if _, err := t.group.setBudget(ctx, t.budget(tightBudget)); err != nil { // cuts may have ended early
		return err
	}
	var first, last []float64
	over, fell := 0.0, 0
	var ended error
	for len(first) < t.kills && ended == nil {
		k, err := t.killOnce(ctx)
		over, fell = over+k.over, fell+k.fell
		if ended = err; err == nil {
			first, last = append(first, k.first.Seconds()), append(last, k.last.Seconds())
			t.note("cluster: kill %d of %d: %.2f s, every node %.2f s", len(first), t.kills, k.first.Seconds(), k.last.Seconds())
		}
	}
	if len(first) == 0 {
		return ended
	}
	t.report.Failover, t.report.FailoverOver = quantilesOf(first), finite(over)
	i := newItem("cluster-failover", "kill -9 of the leader: until a node holds a grant of the next one", "s").spread(first).
		aim(atMost(3, "<= 3 s")).
		say("%d kills; all %d nodes within %.2f s; %d times a node fell to its fail-safe cap", len(first), t.nodes, slices.Max(last), fell)
	if fell > 0 {
		i.Note += fmt.Sprintf(" (the last one: %v)", t.fleet.lastFell())
	}
	if ended != nil {
		i.Note += "; ended early: " + ended.Error()
	}
	t.add(i, newItem("cluster-failover-over", "what nodes held above the budget from the kills to the last node's new grant", "W s").is(over).
		aim(atMost(0, "0 W s")).say("integral of (sum of the caps in force - budget)+, by what the nodes hold"))
	return nil
}

// killed is how one failover went.
type killed struct {
	first, last time.Duration // until the first node, and the last, held a grant of the next leader
	over        float64       // W s above the budget
	fell        int           // nodes that fell to their fail-safe cap
}

func (t *trial) killOnce(ctx context.Context) (k killed, err error) {
	if err := t.group.awaitHealthy(ctx); err != nil {
		return k, err
	}
	if err := t.settle(ctx); err != nil {
		return k, err
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m, err := t.group.leader(asking, func(c headroomv1connect.ClusterServiceClient) error {
		_, err := c.ListDomains(asking, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
		return err
	})
	if err != nil {
		return k, err
	}
	if !pause.For(ctx, rand.N(time.Second)) {
		return k, ctx.Err()
	}
	_, _, fell := t.fleet.holds()
	old := t.fleet.newest()
	t.fleet.guard(t.budget(tightBudget))
	at := time.Now()
	m.program.Kill()
	err = await(ctx, 30*time.Second, "a grant of the next leader at every node", func() bool {
		first, last, all := t.fleet.reigned(old)
		k.first, k.last = first.Sub(at), last.Sub(at)
		return all
	})
	k.over = t.fleet.unguard()
	_, _, after := t.fleet.holds()
	k.fell = after - fell
	if again := t.group.start(m); err == nil {
		err = again
	}
	return k, err
}
