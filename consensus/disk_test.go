package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"headroom/internal/cli"

	"headroom/internal/testkit"
)

// until waits until f holds; real disks and sockets leave no other way than
// asking.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(20 * time.Second)
	defer end.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatal("never: " + what)
		}
	}
}

// freeAddresses finds loopback addresses whose ports are free just now.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for range n {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out
}

func diskConfig(t testing.TB, n int) []Config {
	t.Helper()
	var servers []Server
	for i, a := range freeAddresses(t, n) {
		servers = append(servers, Server{ID: fmt.Sprintf("c%d", i+1), Address: a})
	}
	var out []Config
	dir := t.TempDir()
	for _, s := range servers {
		out = append(out, Config{
			ID: s.ID, Servers: servers, Dir: filepath.Join(dir, s.ID), WriteDeadline: 20 * time.Second,
			Fatal: func(err error) { t.Errorf("%s ended: %v", s.ID, err) },
		})
	}
	return out
}

func mustOpen(t testing.TB, cfg Config, m Machine) *Group {
	t.Helper()
	g, err := Open(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func leading(groups ...*Group) *Group {
	for _, g := range groups {
		if g.Verify(context.Background()) == nil {
			return g
		}
	}
	return nil
}

// Three servers on real disks and sockets agree, go on after the leader is gone,
// and are the same after all of them were stopped and started.
func TestDiskRestart(t *testing.T) {
	t.Parallel()
	configs := diskConfig(t, 3)
	tapes := make([]*tape, 3)
	groups := make([]*Group, 3)
	start := func(i int) {
		tapes[i] = &tape{}
		configs[i].Compaction = Compaction{Threshold: 50, Trailing: 20, Every: 50 * time.Millisecond}
		groups[i] = mustOpen(t, configs[i], tapes[i])
	}
	for i := range 3 {
		start(i)
	}
	written := 0
	write := func(n int, to ...*Group) {
		var lead *Group
		for i := 0; i < n; {
			if lead == nil {
				until(t, "somebody leads", func() bool { lead = leading(to...); return lead != nil })
			}
			if _, err := lead.Propose(t.Context(), fmt.Appendf(nil, "entry %d", written)); err != nil {
				lead = nil
				continue
			}
			i, written = i+1, written+1
		}
	}
	write(150, groups...)
	gone := slices.Index(groups, leading(groups...))
	if gone < 0 {
		t.Fatal("the lead was lost without a reason")
	}
	_ = groups[gone].Close()
	write(150, slices.Delete(slices.Clone(groups), gone, gone+1)...)
	start(gone)
	for _, g := range groups {
		_ = g.Close()
	}
	for i := range 3 {
		start(i)
	}
	write(1, groups...)
	until(t, "all tapes are the same", func() bool {
		a := tapes[0].bytes()
		return a == tapes[1].bytes() && a == tapes[2].bytes() && tapes[0].has(fmt.Sprintf("entry %d", written-1))
	})
	restored := 0
	for i := range tapes {
		n, r := tapes[i].count()
		restored += r
		if n < written {
			t.Errorf("server %d holds %d of %d entries", i, n, written)
		}
	}
	if restored == 0 {
		t.Error("nobody started from a snapshot")
	}
}

// The same entries leave the same bytes, through raft-wal and through memory.
func TestDiskAndMemoryAgree(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	rapid.Check(t, func(rt *rapid.T) {
		if rt.Failed() {
			return
		}
		entries := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 64), 1, 20).Draw(rt, "entries")
		var got [2]string
		for i := range got {
			cfg := diskConfig(t, 1)[0]
			if i == 1 {
				cfg.Dir, cfg.Stores = "", memoryStores()
			}
			cfg.Timing = Timing{Heartbeat: 20 * time.Millisecond, Election: 20 * time.Millisecond, Lease: 10 * time.Millisecond}
			m := &tape{}
			g, err := Open(cfg, m)
			if err != nil {
				t.Fatal(err)
			}
			until(t, "it leads", func() bool { return leading(g) != nil })
			for _, e := range entries {
				if _, err := g.Propose(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			got[i] = m.bytes()
		}
		if got[0] != got[1] {
			rt.Fatalf("disk %x, memory %x", got[0], got[1])
		}
	})
}

// What belongs to another group, another server or another process is refused in
// two lines, and not a byte of the log is changed.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 3)[0]
	g := mustOpen(t, cfg, &tape{})
	refuse := func(name string, c Config, want error) {
		t.Helper()
		_, err := Open(c, &tape{})
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || !errors.Is(err, want) || e.Hint == "" {
			t.Errorf("%s: %#v", name, err)
		}
	}
	refuse("second process", cfg, ErrInUse)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, cfg.Dir)

	moved := cfg
	moved.Servers = append([]Server{}, cfg.Servers...)
	moved.Servers[1].Address = "127.0.0.1:9"
	refuse("changed address", moved, errServersChanged)
	hint := func() string {
		_, err := Open(moved, &tape{})
		e, _ := errors.AsType[*cli.Error](err)
		return e.Hint
	}
	if strings.Contains(hint(), "recover") {
		t.Errorf("one of three has moved: %s", hint())
	}
	moved.Servers[2].Address = "127.0.0.1:10" // no majority is left where it was
	if !strings.Contains(hint(), "coordinator member recover") || !strings.Contains(hint(), "--server c2=RPC,127.0.0.1:9 --server c3=RPC,127.0.0.1:10") {
		t.Errorf("two of three have moved: %s", hint())
	}
	alone := cfg
	alone.Servers = cfg.Servers[:1]
	refuse("fewer servers", alone, errServersChanged)
	foreign := cfg
	foreign.ID = "c2"
	refuse("another server's directory", foreign, errForeignLog)

	for path, was := range before {
		if now, err := os.ReadFile(path); err != nil || (!bytes.Equal(now, was) && filepath.Ext(path) == ".wal") {
			t.Errorf("%s was changed (%v)", path, err)
		}
	}
	again := mustOpen(t, cfg, &tape{})
	if len(again.Members()) != 3 {
		t.Errorf("members after all that: %+v", again.Members())
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Configurations that can never work are refused before anything is opened.
func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{
			ID: "a", Servers: []Server{{"a", "h:1"}, {"b", "h:2"}, {"c", "h:3"}},
			Stores: memoryStores(), Fatal: func(error) {},
		}
	}
	for name, change := range map[string]func(*Config){
		"two servers":       func(c *Config) { c.Servers = c.Servers[:2] },
		"no servers":        func(c *Config) { c.Servers = nil },
		"listed twice":      func(c *Config) { c.Servers[1] = c.Servers[0] },
		"shared address":    func(c *Config) { c.Servers[1].Address = "h:1" },
		"no address":        func(c *Config) { c.Servers[2].Address = "" },
		"not listed":        func(c *Config) { c.ID = "d" },
		"no directory":      func(c *Config) { c.Stores = nil },
		"no way to end":     func(c *Config) { c.Fatal = nil },
		"lease over timing": func(c *Config) { c.Timing.Lease = time.Second },
	} {
		cfg := good()
		change(&cfg)
		if g, err := Open(cfg, &tape{}); !errors.Is(err, errConfig) {
			t.Errorf("%s: %v", name, err)
			if g != nil {
				_ = g.Close()
			}
		}
	}
}

// A port that is taken is named, with the way out.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 1)[0]
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", cfg.Servers[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Open(cfg, &tape{})
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Hint == "" {
		t.Errorf("got %#v", err)
	}
}

// An entry comes out of its envelope as it went in; what is no envelope is told.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		term, data := rapid.Uint64().Draw(t, "term"), rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		gotTerm, got, err := unseal(seal(term, data))
		if err != nil || gotTerm != term || !bytes.Equal(got, data) {
			t.Fatalf("%d %x became %d %x, %v", term, data, gotTerm, got, err)
		}
	})
	for _, bad := range [][]byte{nil, {0}, {2, 1}, {envelopeV1}, {envelopeV1, 0x80}} {
		if _, _, err := unseal(bad); !errors.Is(err, errEnvelope) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// Whatever stands in the log, Apply neither panics nor gives the machine an
// entry of another term.
func FuzzApply(f *testing.F) {
	f.Add(seal(7, []byte("x")), uint64(7))
	f.Add([]byte{envelopeV1, 0xff}, uint64(0))
	f.Fuzz(func(t *testing.T, entry []byte, term uint64) {
		m := &tape{}
		out := adapter{machine: m}.Apply(&raft.Log{Index: 1, Term: term, Data: entry})
		n, _ := m.count()
		sealed, _, err := unseal(entry)
		if applied := err == nil && sealed == term; (n == 1) != applied || out == nil {
			t.Fatalf("applied %d times, gave %v", n, out)
		}
	})
}

// raft's own lines arrive once a minute each, with snake_case keys. Those that belong to the
// start of every cluster are quiet for as long as a start takes; others never are.
func TestLoggerBridge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := newLogger(slog.New(slog.NewTextHandler(&b, nil)))
		log.Warn("failed to contact", "server-id", "c2", "error", errors.New("gone"))
		log.Error("failed to make requestVote RPC", "target", "c2")
		log.Info("entering follower state")
		if got := b.String(); got != "" {
			t.Errorf("a start logs %s", got)
		}
		log.Error("failed to persist vote", "error", errors.New("disk full"))
		if got := b.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "disk full") {
			t.Errorf("a failure at the start logs %q", got)
		}
		b.Reset()
		time.Sleep(startGrace)
		for range 3 {
			log.Warn("failed to contact", "server-id", "c2", "error", errors.New("gone"))
			log.Info("entering follower state")
		}
		want := `level=WARN msg=raft what="failed to contact" server_id=c2 error=gone`
		if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("got %s", got)
		}
	})
}
