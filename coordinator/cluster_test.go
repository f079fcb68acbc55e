package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"headroom/consensus"
	"headroom/coordinator/leading"
	"headroom/coordinator/statemachine"
	"headroom/internal/config"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a group of real servers in one synctest bubble: the real raft on a
// network and disks in memory, the real state machine, loop and streams. Only the RPC
// listener is left out; nodes speak to the service's own functions.
type cluster struct {
	t          *testing.T
	ids        []string
	budget     units.Power
	lease      time.Duration
	servers    map[string]*running
	disks      map[string]*consensus.Stores
	nets       map[string]*raft.InmemTransport
	nodes      []*node
	watch      *judge
	first      []string             // those that found the group
	waits      map[string]bool      // those that were started to wait
	fit        func(*server)        // changes a server before it starts
	compaction consensus.Compaction // of every server
	charged    bool                 // P1 is judged by what each entry charges, and not here
	lines      *lines               // what becomes of messages between servers; nil: they arrive

	mu       sync.Mutex
	cut      map[string]bool // server -> nobody reaches it
	state    *ledger.State   // the newest seen, its incarnation, the entry it was seen at, and where
	seenIn   uint64
	seen     uint64
	seenAt   *running
	expelled map[string]error // servers that ended because the group goes on without them
}

// running is one started server and what stops it.
type running struct {
	*server
	stop func()
}

// bubble runs f in a bubble whose clock only moves while everybody waits.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// newCluster starts n servers founded with the given site budget, and the judge of the promises.
func newCluster(t *testing.T, n int, site units.Power) *cluster {
	t.Helper()
	c := &cluster{
		t: t, budget: site, lease: 10 * time.Second, servers: map[string]*running{}, disks: map[string]*consensus.Stores{},
		nets: map[string]*raft.InmemTransport{}, cut: map[string]bool{}, waits: map[string]bool{}, expelled: map[string]error{}, state: ledger.New(),
	}
	for i := range n {
		c.ids = append(c.ids, fmt.Sprintf("c%d", i+1))
	}
	c.first = slices.Clone(c.ids)
	for _, id := range c.ids {
		store := raft.NewInmemStore()
		c.disks[id] = &consensus.Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore()}
		c.start(id)
	}
	c.watch = newJudge(c)
	t.Cleanup(c.close)
	return c
}

func (c *cluster) config(id string) Config {
	cfg := Config{
		ID: id, StateDir: "none", Lease: config.Duration(c.lease), LogLevel: "info",
		Site: []DomainConfig{{Name: "site/lab", Budget: c.budget, Unmanaged: 40 * units.Watt}, {Name: "rack/r1", Parent: "site/lab", Budget: c.budget}},
	}
	for _, s := range c.first {
		cfg.Servers = append(cfg.Servers, ServerConfig{ID: s, RPC: "rpc-" + s, Raft: "raft-" + s})
	}
	if c.waits[id] {
		cfg.Servers, cfg.Join = []ServerConfig{{ID: id, RPC: "rpc-" + id, Raft: "raft-" + id}}, []string{"rpc-c1", "rpc-c2", "rpc-c3"}
	}
	return cfg
}

func (c *cluster) start(id string) {
	c.t.Helper()
	_, net := raft.NewInmemTransport(raft.ServerAddress("raft-" + id))
	c.nets[id] = net
	for _, other := range c.ids {
		c.link(id, other)
	}
	s := newServer(c.config(id), slog.New(slog.DiscardHandler))
	s.peers = rpc.PeersOver(shortcut{c, id})
	s.record = func(context.Context, time.Duration) ([]byte, error) { return []byte("a recording"), nil } // the runtime's own must not begin in a bubble
	if c.fit != nil {
		c.fit(s)
	}
	if err := s.join(consensus.Config{Transport: c.lines.over("raft-"+id, net), Stores: c.disks[id], Compaction: c.compaction, Fatal: func(err error) { c.t.Errorf("%s: %v", id, err) }}); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	delete(c.cut, id)
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.leadership().watch(ctx) })
	ended.Go(func() { c.expel(id, s.members.Keep(ctx)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[id] = &running{server: s, stop: func() {
		cancel()
		ended.Wait()
		_ = s.group.Close()
	}}
}

// kill ends a server as kill -9 does for everybody else: from one moment to the next it is silent.
func (c *cluster) kill(id string) {
	c.newest() // what it has committed counts on
	c.isolate(id)
	c.mu.Lock()
	s := c.servers[id]
	delete(c.servers, id)
	c.mu.Unlock()
	s.stop()
}

func (c *cluster) close() {
	c.watch.end()
	for _, n := range c.nodes {
		n.end()
	}
	for _, id := range c.ids {
		if c.server(id) != nil {
			c.kill(id)
		}
	}
	time.Sleep(time.Minute) // connections that raft's memory transport left waiting run out
	synctest.Wait()
}

// every are the ids of all servers that were ever started.
func (c *cluster) every() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids)
}

func (c *cluster) server(id string) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[id]
}

func (c *cluster) link(a, b string) {
	if a == b || c.nets[a] == nil || c.nets[b] == nil {
		return
	}
	c.nets[a].Connect(raft.ServerAddress("raft-"+b), c.nets[b])
	c.nets[b].Connect(raft.ServerAddress("raft-"+a), c.nets[a])
}

// isolate cuts a server off from the other servers.
func (c *cluster) isolate(id string) {
	c.mu.Lock()
	c.cut[id] = true
	c.mu.Unlock()
	c.nets[id].DisconnectAll()
	for _, other := range c.ids {
		if other != id {
			c.nets[other].Disconnect(raft.ServerAddress("raft-" + id))
		}
	}
}

func (c *cluster) heal(id string) {
	c.mu.Lock()
	delete(c.cut, id)
	c.mu.Unlock()
	for _, other := range c.ids {
		c.link(id, other)
	}
}

// leader waits until one server, other than those named, leads the nodes.
func (c *cluster) leader(not ...string) *running {
	c.t.Helper()
	for range 20_000 {
		for _, id := range c.ids {
			s := c.server(id)
			if s == nil || slices.Contains(not, id) || !s.requests.leads() {
				continue
			}
			begun := false
			if s.requests.ask(context.Background(), func(*leading.Known) { begun = true }) == nil && begun {
				return s
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("nobody leads")
	return nil
}

// place is how far the machine itself has come; raft counts an entry as applied
// before the machine has it.
func place(m *statemachine.Machine) (incarnation, index uint64) {
	m.ViewAt(func(s *ledger.State, at uint64) { incarnation, index = s.Epoch.Incarnation, at })
	return incarnation, index
}

// newest is the state of the server that has applied most, in the newest
// incarnation: servers of an older one may have longer logs, which no node obeys.
func (c *cluster) newest() *ledger.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *running
	in, most := uint64(0), uint64(0)
	for _, id := range c.ids {
		s := c.servers[id]
		if s == nil {
			continue
		}
		if x, at := place(s.machine); best == nil || x > in || x == in && at > most {
			best, in, most = s, x, at
		}
	}
	if best != nil && (in > c.seenIn || in == c.seenIn && (most > c.seen || most == c.seen && best != c.seenAt)) {
		c.seenIn, c.seen, c.seenAt = in, most, best
		best.machine.View(func(s *ledger.State) { c.state = s.Clone() })
	}
	return c.state // of the dead, when none that lives has as much
}

// until waits at most limit for f to hold.
func (c *cluster) until(what string, limit time.Duration, f func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > limit {
			c.t.Fatalf("after %v still not: %s", limit, what)
		}
		c.reap()
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// all are the nodes of now.
func (c *cluster) all() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes
}

// held are the nodes that hold a lease.
func (c *cluster) held() (n int) {
	for _, x := range c.nodes {
		if x.look().held {
			n++
		}
	}
	return n
}

// allHeld waits until every node holds a lease.
func (c *cluster) allHeld(limit time.Duration) {
	c.t.Helper()
	c.until("every node holds a lease", limit, func() bool { return c.held() == len(c.nodes) })
}

// judge looks every 10 ms at what the nodes hold, and says when a promise is broken.
type judge struct {
	c    *cluster
	stop chan struct{}
	done chan struct{}

	ending sync.Once

	mu     sync.Mutex
	falls  int // times that a node was seen to fall to its fail-safe cap after a lease
	before units.Power
	fitted bool // the sum was inside the budget at the last look
}

func newJudge(c *cluster) *judge {
	j := &judge{c: c, stop: make(chan struct{}), done: make(chan struct{}), fitted: true}
	go func() {
		defer close(j.done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		had := map[string]bool{}
		for {
			select {
			case <-j.stop:
				return
			case <-tick.C:
				j.look(had)
			}
		}
	}()
	return j
}

func (j *judge) look(had map[string]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.c.newest() // before the nodes: what they hold now was committed by then or is older
	sum := 40 * units.Watt
	for _, n := range j.c.all() {
		h := n.look()
		sum += h.effective
		if had[n.name] && !h.held {
			j.falls++
		}
		had[n.name] = h.held
	}
	after := j.c.newest()
	for _, n := range j.c.all() {
		charge := max(s.Nodes[n.name].Charge(), after.Nodes[n.name].Charge())
		if h := n.look(); h.held && h.effective > charge {
			j.c.t.Errorf("P4: %s holds %v and is charged %v", n.name, h.effective, charge)
		}
	}
	if j.c.charged { // a node may still rise to what it was granted before a cut, and is charged that
		return
	}
	limit := after.Domains["site/lab"].Budget
	switch {
	case limit == 0: // not founded yet
	case sum <= limit:
		j.fitted = true
	case j.fitted && j.before <= limit, sum > j.before:
		j.c.t.Errorf("P1: %v are held, the budget is %v (before: %v)", sum, limit, j.before)
	default:
		j.fitted = false // a cut is on its way to the nodes: it may only fall
	}
	j.before = sum
}

func (j *judge) fallen() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.falls
}

func (j *judge) end() {
	j.ending.Do(func() { close(j.stop) })
	<-j.done
}
