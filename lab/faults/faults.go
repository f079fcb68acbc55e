package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fault is one thing that goes wrong for a while. A fault of one target takes it from
// claims, one of the whole site (nil) waits until no other lasts.
type fault struct {
	name   string
	claims func(*injector) []string
	// least and more bound how long it lasts.
	least, more time.Duration
	// begin makes it happen and returns what ends it.
	begin func(ctx context.Context, t *injector, target string, number int) (end func() error, err error)
}

// beyondLease is how long a cut lasts at least, so that leases end in it and are judged.
const beyondLease = leaseEnds + settles + 3*time.Second

func onServers(t *injector) []string { return t.c.servers }
func onNodes(t *injector) []string   { return t.c.nodes }
func onBrake(*injector) []string     { return []string{"brake"} }

// faults are all that there are.
func faults() []fault {
	return []fault{
		{"kill-server", onServers, time.Second, 5 * time.Second, endServer(0)},
		{"stop-server", onServers, 2 * time.Second, 8 * time.Second, stopServer},
		{"restart-server", onServers, 100 * time.Millisecond, time.Second, endServer(5 * time.Second)},
		{"cut-server", onServers, 3 * time.Second, 6 * time.Second, cut(between)},
		{"half-cut-server", onServers, 3 * time.Second, 6 * time.Second, cut(oneWay)},
		{"kill-powerd", onNodes, restarts, time.Second, killPowerd},
		{"stop-powerd", onNodes, 2 * time.Second, 2 * beyondLease, stopPowerd},
		{"cut-budget-past-stopped-powerd", onNodes, beyondLease + 2*time.Second, time.Second, cutPastStopped},
		{"cut-node", onNodes, beyondLease, 2 * time.Second, cut(between)},
		{"half-cut-node", onNodes, beyondLease, 2 * time.Second, cut(oneWay)},
		{"brake", onBrake, beyondLease, 2 * time.Second, brake},
		{"no-quorum", nil, beyondLease, time.Second, noQuorum},
		{"site-dark", nil, 500 * time.Millisecond, 2 * time.Second, siteDark},
	}
}

// injector deals the faults.
type injector struct {
	c *cluster
	j *judge
	h *history
	// quiet keeps the operators from changing budgets, while a fault needs one to last.
	quiet sync.RWMutex
	// random is seeded from the seed, and used by one goroutine only.
	random *rand.Rand

	mu    sync.Mutex
	taken map[string]bool
	hit   map[string]int
	wrong error
}

// gapMost is the longest pause between two faults.
const gapMost = 2500 * time.Millisecond

// deal brings faults until the time is over, every kind once before any comes again,
// and returns when all have ended.
func (t *injector) deal(ctx context.Context) error {
	var running sync.WaitGroup
	number, deck := 0, []fault{}
	pause(ctx, settles) // until the loads draw what they may
	for ctx.Err() == nil {
		if len(deck) == 0 {
			deck = faults()
			t.random.Shuffle(len(deck), func(a, b int) { deck[a], deck[b] = deck[b], deck[a] })
		}
		f := deck[0]
		deck = deck[1:]
		lasts := f.least + time.Duration(t.random.Int64N(int64(f.more)))
		draw, gap := t.random.IntN(1<<20), time.Duration(t.random.Int64N(int64(gapMost)))
		number++
		if f.claims == nil {
			running.Wait()
			t.one(ctx, f, "", number, lasts)
		} else if target, ok := t.take(ctx, f.claims(t), draw); ok {
			running.Go(func() {
				t.one(ctx, f, target, number, lasts)
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.taken, target)
			})
		}
		pause(ctx, gap)
	}
	running.Wait()
	return t.wrong
}

// take waits for a target that no fault has.
func (t *injector) take(ctx context.Context, all []string, draw int) (string, bool) {
	for {
		t.mu.Lock()
		free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return t.taken[name] })
		if len(free) > 0 {
			target := free[draw%len(free)]
			t.taken[target] = true
			t.mu.Unlock()
			return target, true
		}
		t.mu.Unlock()
		if !pause(ctx, 100*time.Millisecond) {
			return "", false
		}
	}
}

// one is one fault from its begin to its end, which comes earlier with that of ctx.
func (t *injector) one(ctx context.Context, f fault, target string, number int, lasts time.Duration) {
	if ctx.Err() != nil {
		return
	}
	whole := context.WithoutCancel(ctx) // what was begun is ended
	end, err := f.begin(whole, t, target, number)
	if err == nil {
		t.mu.Lock()
		t.hit[f.name]++
		t.mu.Unlock()
		pause(ctx, lasts)
		err = end()
	}
	if err != nil {
		t.mu.Lock()
		t.wrong = err
		t.mu.Unlock()
	}
}

// endServer ends a server, which has grace for that, and starts it later.
func endServer(grace time.Duration) func(context.Context, *injector, string, int) (func() error, error) {
	return func(_ context.Context, t *injector, target string, _ int) (func() error, error) {
		t.c.program(target).end(grace)
		return func() error { return t.c.start(target) }, nil
	}
}

// A server that was stopped may find its lead gone and end itself: it is started again.
func stopServer(_ context.Context, t *injector, target string, _ int) (func() error, error) {
	p := t.c.program(target)
	p.signal(syscall.SIGSTOP)
	return func() error {
		p.signal(syscall.SIGCONT)
		select {
		case <-p.done:
			return t.c.start(target)
		case <-time.After(time.Second):
			return nil
		}
	}, nil
}

// cut isolates a server or a node from all others, or only blocks what it sends to them.
func cut(which func(a, b []string) []link) func(context.Context, *injector, string, int) (func() error, error) {
	return func(ctx context.Context, t *injector, target string, number int) (func() error, error) {
		others := slices.DeleteFunc(t.c.hosts(), func(h string) bool { return h == target })
		nodes := slices.DeleteFunc(slices.Clone(t.c.nodes), func(n string) bool { return n != target })
		return t.cut(ctx, number, which([]string{target}, others), nodes)
	}
}

// noQuorum isolates every server from the others: there is no leader, and no lease is renewed.
func noQuorum(ctx context.Context, t *injector, _ string, number int) (func() error, error) {
	return t.cut(ctx, number, oneWay(t.c.servers, t.c.servers), t.c.nodes)
}

// cut cuts links, beyond which no grant can reach these nodes.
func (t *injector) cut(ctx context.Context, number int, links []link, nodes []string) (func() error, error) {
	if err := t.c.net.set(ctx, number, links); err != nil {
		return nil, err
	}
	t.j.cutOff(number, nodes)
	return func() error {
		t.j.back(number, nodes)
		return t.c.net.set(ctx, number, nil)
	}, nil
}

// brake sets the brake at any server and lifts it through the log. Once every member and
// the log have it, nothing is granted until it is lifted.
func brake(ctx context.Context, t *injector, _ string, number int) (func() error, error) {
	id := "brake-" + strconv.Itoa(number)
	if _, code, _ := t.c.ask(ctx, nil, "brake", "set", "--reason", id, "--request-id", id); code == 0 {
		t.j.count("braked", 1)
		t.j.cutOff(number, t.c.nodes)
	}
	return func() error {
		t.j.back(number, t.c.nodes)
		late, code, said := time.Now().Add(healMost), 0, ""
		for time.Now().Before(late) {
			// One that was never set, or is lifted already, is no fault of the site.
			if _, code, said = t.c.ask(ctx, nil, "brake", "lift", "--yes", "--reason", id, "--request-id", "lift-"+id); code != 3 && code != 7 && code != -1 {
				return nil
			}
			pause(ctx, 300*time.Millisecond)
		}
		t.j.violated("recovery", "%s was not lifted within %v: exit %d: %s", id, healMost, code, said)
		return nil
	}, nil
}

func killPowerd(_ context.Context, t *injector, target string, _ int) (func() error, error) {
	t.j.alone(target, restarts)
	signalPowerd(t.c, target, syscall.SIGKILL)
	return func() error { return nil }, nil
}

func stopPowerd(_ context.Context, t *injector, target string, _ int) (func() error, error) {
	t.j.alone(target, time.Hour)
	pid := signalPowerd(t.c, target, syscall.SIGSTOP)
	return func() error {
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		t.j.alone(target, settles)
		return nil
	}, nil
}

// cutPastStopped cuts the budget while a powerd is stopped that cannot receive it: the
// others must pay for what that node goes on drawing.
func cutPastStopped(ctx context.Context, t *injector, target string, number int) (func() error, error) {
	t.quiet.Lock()
	stopped, err := stopPowerd(ctx, t, target, number)
	end := func() error {
		t.quiet.Unlock()
		return stopped()
	}
	if err != nil {
		t.quiet.Unlock()
		return nil, err
	}
	answer, cancel := context.WithTimeout(ctx, healMost)
	defer cancel()
	// A quarter of a watt, so that no operator sets the same.
	t.change(answer, "faults-cut-"+strconv.Itoa(number), pastStoppedW+0.25+float64(number))
	return end, nil
}

// pastStoppedW leaves the others more than their fail-safe caps beside a node that has a
// third of the first budget.
const pastStoppedW = 420

// signalPowerd sends a signal to a node's powerd and returns its process, 0 while there is none.
func signalPowerd(c *cluster, node string, s syscall.Signal) int {
	text, err := os.ReadFile(c.path("nodes", node, "run", "powerd.pid"))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil || pid <= 1 || syscall.Kill(pid, s) != nil {
		return 0
	}
	return pid
}

// siteDark kills every process of the site at once: all that this namespace has but its
// first process, which is this one. Later everything starts, in any order.
func siteDark(_ context.Context, t *injector, _ string, _ int) (func() error, error) {
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil {
		return nil, err //nolint:wrapcheck // the caller reports it
	}
	return func() error {
		if err := t.c.startAll(); err != nil {
			return err
		}
		// A machine that boots has no load before its powerd holds it.
		time.Sleep(restarts)
		return t.c.busy()
	}, nil
}
