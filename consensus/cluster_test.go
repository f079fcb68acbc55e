package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tape is a machine that remembers every entry in order.
type tape struct {
	mu       sync.Mutex
	entries  [][]byte
	restored int
}

func (t *tape) Apply(_ uint64, data []byte) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, bytes.Clone(data))
	return len(t.entries)
}

func (t *tape) Snapshot() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []byte
	for _, e := range t.entries {
		out = binary.AppendUvarint(out, uint64(len(e)))
		out = append(out, e...)
	}
	return out, nil
}

func (t *tape) Restore(data []byte) error {
	var entries [][]byte
	for len(data) > 0 {
		n, used := binary.Uvarint(data)
		if used <= 0 || uint64(len(data)-used) < n {
			return errors.New("torn tape")
		}
		entries = append(entries, bytes.Clone(data[used:used+int(n)]))
		data = data[used+int(n):]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.restored = entries, t.restored+1
	return nil
}

func (t *tape) bytes() string {
	b, _ := t.Snapshot()
	return string(b)
}

func (t *tape) has(entry string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.entries, func(e []byte) bool { return string(e) == entry })
}

func (t *tape) count() (entries, restored int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries), t.restored
}

// cluster is a group in memory; it lives in a synctest bubble.
type cluster struct {
	t      *testing.T
	ids    []string
	first  []string // those that found the group
	groups map[string]*Group
	tapes  map[string]*tape
	stores map[string]*Stores
	nets   map[string]*raft.InmemTransport
	fatal  map[string]error
	mu     sync.Mutex
	change func(*Config)
}

func memoryStores() *Stores {
	s := raft.NewInmemStore()
	return &Stores{Log: s, Stable: s, Snapshots: raft.NewInmemSnapshotStore()}
}

// newCluster starts n servers that all reach one another. change may edit each
// configuration before it is opened.
func newCluster(t *testing.T, n int, change func(*Config)) *cluster {
	t.Helper()
	c := &cluster{
		t: t, groups: map[string]*Group{}, tapes: map[string]*tape{}, stores: map[string]*Stores{},
		nets: map[string]*raft.InmemTransport{}, fatal: map[string]error{}, change: change,
	}
	for i := range n {
		c.ids = append(c.ids, fmt.Sprintf("c%d", i+1))
	}
	c.first = slices.Clone(c.ids)
	for _, id := range c.ids {
		c.stores[id] = memoryStores()
		c.start(id)
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) config(id string) Config {
	cfg := Config{ID: id, Transport: c.nets[id], Stores: c.stores[id], Fatal: func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fatal[id] = err
	}}
	for _, s := range c.first {
		cfg.Servers = append(cfg.Servers, Server{ID: s, Address: "addr-" + s})
	}
	if !slices.Contains(c.first, id) {
		cfg.Join, cfg.Servers = true, []Server{{ID: id, Address: "addr-" + id}}
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

func (c *cluster) start(id string) {
	c.t.Helper()
	_, c.nets[id] = raft.NewInmemTransport(raft.ServerAddress("addr-" + id))
	c.tapes[id] = &tape{}
	for _, other := range c.ids {
		c.link(id, other)
	}
	g, err := Open(c.config(id), c.tapes[id])
	if err != nil {
		c.t.Fatal(err)
	}
	c.groups[id] = g
}

// wait starts an empty server that waits to be added.
func (c *cluster) wait(id string) {
	c.t.Helper()
	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	c.stores[id] = memoryStores()
	c.start(id)
}

func (c *cluster) stop(id string) {
	if g := c.groups[id]; g != nil {
		c.isolate(id)
		_ = g.Close()
		delete(c.groups, id)
	}
}

func (c *cluster) close() {
	for _, id := range c.ids {
		c.stop(id)
	}
	// Connections that raft's memory transport left waiting run out.
	time.Sleep(time.Minute)
	synctest.Wait()
}

func (c *cluster) link(a, b string) {
	if a == b || c.nets[a] == nil || c.nets[b] == nil {
		return
	}
	c.nets[a].Connect(raft.ServerAddress("addr-"+b), c.nets[b])
	c.nets[b].Connect(raft.ServerAddress("addr-"+a), c.nets[a])
}

func (c *cluster) isolate(id string) {
	c.nets[id].DisconnectAll()
	for _, other := range c.ids {
		if other != id {
			c.nets[other].Disconnect(raft.ServerAddress("addr-" + id))
		}
	}
}

func (c *cluster) heal(id string) {
	for _, other := range c.ids {
		c.link(id, other)
	}
}

func (c *cluster) fatalOf(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fatal[id]
}

// leader waits until one server, other than those named, leads and is caught up.
func (c *cluster) leader(not ...string) *Group {
	c.t.Helper()
	for range 10_000 {
		for _, id := range c.ids {
			g := c.groups[id]
			if g == nil || slices.Contains(not, id) {
				continue
			}
			if r := g.leading.Load(); r != nil && g.Verify(context.Background()) == nil {
				return g
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("nobody leads")
	return nil
}

func (c *cluster) propose(g *Group, entry string) {
	c.t.Helper()
	if _, err := g.Propose(context.Background(), []byte(entry)); err != nil {
		c.t.Fatal(err)
	}
}

// converge waits until every running server has the same tape.
func (c *cluster) converge() {
	c.t.Helper()
	for range 20_000 {
		var want string
		same, first := true, true
		for id := range c.groups {
			got := c.tapes[id].bytes()
			same = same && (first || got == want)
			want, first = got, false
		}
		if same {
			return
		}
		time.Sleep(time.Millisecond)
	}
	for id := range c.groups {
		n, _ := c.tapes[id].count()
		c.t.Logf("%s holds %d entries", id, n)
	}
	c.t.Fatal("the servers differ")
}

// bubble runs f in a bubble whose clock only moves while everybody waits.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
