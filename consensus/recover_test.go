// Claims: a damaged log is refused before anything is made of it, and says where;
// a planted or recovered log leads alone with the state it was given; nothing is
// done to a log that is in use, foreign or not there.
package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
)

// quick elects at once where a server is alone.
func quick() Timing {
	return Timing{Heartbeat: 20 * time.Millisecond, Election: 20 * time.Millisecond, Lease: 10 * time.Millisecond}
}

// written is a stopped server of one, and the tape it wrote.
func written(t *testing.T, entries int) (Config, *tape) {
	t.Helper()
	cfg, m := diskConfig(t, 1)[0], &tape{}
	cfg.Timing = quick()
	g := mustOpen(t, cfg, m)
	until(t, "it leads", func() bool { return leading(g) != nil })
	for i := range entries {
		if _, err := g.Propose(t.Context(), fmt.Appendf(nil, "entry %d: %s", i, strings.Repeat("x", 40))); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg, m
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func segment(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments %v, %v", files, err)
	}
	return files[0]
}

// A bit that flips anywhere in the log is found at the start, and named; what can
// pass is in the unused rest of a frame.
func TestFlippedBitIsRefused(t *testing.T) {
	t.Parallel()
	cfg, whole := written(t, 150)
	before := whole.bytes()
	clean, err := os.ReadFile(segment(t, cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(clean, "\x00"))
	rng, refused, named := rand.New(rand.NewPCG(1, 1)), 0, 0
	for range 24 {
		bad := cfg
		bad.Dir = copyDir(t, cfg.Dir)
		at := rng.IntN(used)
		data := bytes.Clone(clean)
		data[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(segment(t, bad.Dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
		m := &tape{}
		g, err := Open(bad, m)
		if err != nil {
			refused++
			e, ok := errors.AsType[*cli.Error](err)
			if !ok || !errors.Is(err, errCorrupt) || !strings.Contains(e.Message, "damaged") || !strings.Contains(e.Hint, "add it again empty") {
				t.Errorf("byte %d: %v", at, err)
				continue
			}
			if _, where, ok := strings.Cut(e.Message, "behind byte "); ok { // raft-wal's own refusals name none
				var behind int
				var file string
				if _, err := fmt.Sscanf(where, "%d of %s", &behind, &file); err != nil || behind > at || strings.TrimSuffix(file, ":") != segment(t, bad.Dir) {
					t.Errorf("byte %d: said to be behind %d of %s, %v", at, behind, file, err)
				}
				named++
			}
			continue
		}
		until(t, "it leads", func() bool { return leading(g) != nil })
		if got := m.bytes(); !strings.HasPrefix(before, got) || len(before)-len(got) > 200 {
			t.Errorf("byte %d of %d: applied %d of %d bytes, and not a beginning", at, used, len(got), len(before))
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if refused < 12 || named < refused-2 {
		t.Errorf("%d of 24 flipped bits were found, %d with their place", refused, named)
	}
}

// A bit that flips in what was written last is no torn write: every one is found.
// A batch that a crash has torn is dropped, as it must be.
func TestFlippedBitInTheLastBatch(t *testing.T) {
	t.Parallel()
	cfg, _ := written(t, 5)
	path := segment(t, cfg.Dir)
	clean, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data := used(clean)
	last, at := 0, walHeader
	for end, _, whole := readBatch(data, 0, at); whole; end, _, whole = readBatch(data, at, at) {
		last, at = at, end
	}
	for i := last; i < at; i++ {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			unused := i > at-walFrame && i < at-walFrame+4 // nobody reads these bytes of a commit frame
			if _, behind, ok := checkSegment(bad); ok != unused || !unused && behind != last {
				t.Fatalf("bit %d of byte %d (batch from %d to %d): sound %t, behind %d", bit, i, last, at, ok, behind)
			}
		}
	}
	for cut := last; cut < at; cut += walFrame {
		torn := append(bytes.Clone(data[:cut]), make([]byte, len(data)-cut)...)
		if _, _, ok := checkSegment(torn); !ok {
			t.Errorf("torn at byte %d of the batch from %d to %d: called damaged", cut, last, at)
		}
	}
	// The same through the front door.
	bad := cfg
	bad.Dir = copyDir(t, cfg.Dir)
	clean[last+walFrame] ^= 4
	if err := os.WriteFile(segment(t, bad.Dir), clean, 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := Open(bad, &tape{}); !errors.Is(err, errCorrupt) {
		t.Errorf("a server with a flipped bit in its last batch starts: %v", err)
		_ = g.Close()
	}
}

// A server whose log is damaged stays out, and says so; the others do not notice.
// Emptied, it comes back by being removed and added, and ends up like them.
func TestDamagedServerComesBackEmpty(t *testing.T) {
	t.Parallel()
	configs, tapes := diskConfig(t, 3), []*tape{{}, {}, {}}
	var groups []*Group
	for i, cfg := range configs {
		groups = append(groups, mustOpen(t, cfg, tapes[i]))
	}
	propose := func(of []*Group, entry string) {
		t.Helper()
		until(t, entry+" is committed", func() bool {
			g := leading(of...)
			if g == nil {
				return false
			}
			_, err := g.Propose(t.Context(), []byte(entry))
			return err == nil
		})
	}
	for i := range 20 {
		propose(groups, fmt.Sprint("before ", i))
	}
	if err := groups[2].Close(); err != nil {
		t.Fatal(err)
	}
	path := segment(t, configs[2].Dir)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(bytes.TrimRight(data, "\x00"))/2] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(configs[2], &tape{}); !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), path) {
		t.Fatalf("opened: %v", err)
	}
	rest := groups[:2]
	propose(rest, "meanwhile")
	if err := os.Rename(configs[2].Dir, configs[2].Dir+".aside"); err != nil {
		t.Fatal(err)
	}
	again := configs[2]
	again.Join = true
	change := func(what string, f func(*Group) error) {
		t.Helper()
		until(t, what, func() bool { g := leading(rest...); return g != nil && f(g) == nil })
	}
	change("it is removed", func(g *Group) error { return g.RemoveServer(t.Context(), again.ID) })
	back := &tape{}
	g := mustOpen(t, again, back)
	change("it is added", func(l *Group) error { return l.AddServer(t.Context(), g.cfg.own()) })
	propose(rest, "after")
	until(t, "it has all that the others have", func() bool {
		return back.has("after") && back.bytes() == tapes[0].bytes() && back.bytes() == tapes[1].bytes()
	})
}

// A snapshot that cannot be read is refused when there is no other.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 1)[0]
	if err := Plant(cfg, Seed{State: []byte("state"), Term: 1, Index: 1, Founders: cfg.Servers}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "snapshots", "*", "state.bin"))
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshots %v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg, &tape{}); !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("opened: %v", err)
	}
}

// An entry that is read wrong while the server runs ends it with the entry's name.
func TestRottenEntryIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logs := map[string]*rottenLog{}
		c := newCluster(t, 3, func(cfg *Config) {
			l := &rottenLog{InmemStore: raft.NewInmemStore()}
			logs[cfg.ID] = l
			cfg.Stores = &Stores{Log: l, Stable: l, Snapshots: raft.NewInmemSnapshotStore()}
		})
		g := c.leader()
		away := otherThan(c, g.cfg.ID)
		c.isolate(away)
		for range 60 {
			c.propose(g, "x")
		}
		logs[g.cfg.ID].rotten.Store(true)
		c.heal(away) // it gets the entries from the leader's log
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := c.fatalOf(g.cfg.ID); !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), "entry 20 ") {
			t.Errorf("Fatal got %v", err)
		}
		c.propose(c.leader(g.cfg.ID), "after")
		if err := c.fatalOf(away); err != nil {
			t.Errorf("%s, whose log is sound, ended: %v", away, err)
		}
	})
}

// A planted log leads alone with its state, at its place, and goes on from there;
// others are added to it.
func TestPlant(t *testing.T) {
	t.Parallel()
	_, was := written(t, 20)
	state, err := was.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	configs := diskConfig(t, 2)
	cfg := configs[0]
	founders := cfg.Servers[:1]
	cfg.Servers, cfg.Timing = founders, quick()
	seed := Seed{State: state, Term: 7, Index: 1000, Founders: founders}
	if err := Plant(cfg, seed); err != nil {
		t.Fatal(err)
	}
	if err := Plant(cfg, seed); !errors.Is(err, errNotEmpty) {
		t.Errorf("planted over a log: %v", err)
	}
	end, err := ReadEnd(cfg)
	if want := (End{Term: 7, Index: 1000, Servers: founders}); err != nil || end.Term != want.Term || end.Index != want.Index || !slices.Equal(end.Servers, want.Servers) {
		t.Errorf("the planted log ends at %+v, %v", end, err)
	}
	m := &tape{}
	g := mustOpen(t, cfg, m)
	until(t, "it leads", func() bool { return leading(g) != nil })
	if m.bytes() != was.bytes() {
		t.Error("it began with another state")
	}
	if _, err := g.Propose(t.Context(), []byte("more")); err != nil {
		t.Fatal(err)
	}
	if l := g.leading.Load(); l.term <= 7 || g.raft.LastIndex() <= 1000 {
		t.Errorf("it goes on in term %d at %d", l.term, g.raft.LastIndex())
	}
	joiner := configs[1]
	joiner.Servers, joiner.Join = joiner.Servers[1:], true
	copyOf := &tape{}
	mustOpen(t, joiner, copyOf)
	if err := g.AddServer(t.Context(), joiner.Servers[0]); err != nil {
		t.Fatal(err)
	}
	until(t, "the added server has it all", func() bool { return copyOf.bytes() == m.bytes() && copyOf.has("more") })
}

// recovering is a tape that marks what it recovers.
type recovering struct{ *tape }

func (r recovering) Snapshot() ([]byte, error) {
	r.Apply(0, []byte("recovered"))
	return r.tape.Snapshot()
}

// A survivor of three leads alone after its recovery, with all it had.
func TestRecover(t *testing.T) {
	t.Parallel()
	configs := diskConfig(t, 3)
	var groups []*Group
	for i := range configs {
		configs[i].Compaction = Compaction{Threshold: 30, Trailing: 10, Every: 20 * time.Millisecond}
		groups = append(groups, mustOpen(t, configs[i], &tape{}))
	}
	var lead *Group
	until(t, "somebody leads", func() bool { lead = leading(groups...); return lead != nil })
	again := 0 // entries that may stand twice: a slow machine lost its leader while it wrote them
	for i := range 100 {
		for try := 0; ; try++ {
			_, err := lead.Propose(t.Context(), fmt.Append(nil, i))
			if err == nil {
				break
			}
			if try == 5 {
				t.Fatal(err)
			}
			again++
			until(t, "somebody leads again", func() bool { lead = leading(groups...); return lead != nil })
		}
	}
	cfg := lead.cfg
	if _, err := ReadEnd(cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("read while it is in use: %v", err)
	}
	if err := Recover(cfg, recovering{&tape{}}, cfg.Servers); !errors.Is(err, ErrInUse) {
		t.Errorf("recovered while it is in use: %v", err)
	}
	for _, g := range groups {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	end, err := ReadEnd(cfg)
	if err != nil || len(end.Servers) != 3 || end.Index < 100 || end.Term == 0 {
		t.Fatalf("the log ends at %+v, %v", end, err)
	}
	foreign := cfg
	foreign.ID = otherID(cfg)
	if err := Recover(foreign, recovering{&tape{}}, cfg.Servers); !errors.Is(err, errForeignLog) {
		t.Errorf("recovered another server's log: %v", err)
	}
	empty := cfg
	empty.Dir = t.TempDir()
	if err := Recover(empty, recovering{&tape{}}, cfg.Servers); !errors.Is(err, errNoState) {
		t.Errorf("recovered nothing: %v", err)
	}
	if err := Recover(cfg, recovering{&tape{}}, cfg.Servers); err != nil {
		t.Fatal(err)
	}
	m := &tape{}
	g := mustOpen(t, cfg, m) // its configuration still lists all three
	until(t, "it leads alone", func() bool { return leading(g) != nil })
	if n, _ := m.count(); n < 101 || n > 101+again || !m.has("recovered") || !m.has("99") {
		t.Errorf("%d entries after the recovery", n)
	}
	if _, err := g.Propose(t.Context(), []byte("more")); err != nil || len(g.Members()) != 1 {
		t.Errorf("alone among %d: %v", len(g.Members()), err)
	}
}

// Two of three that were given up for lost come back, a majority of the old group:
// they do not reach the third, which was recovered alone, and it takes in a new
// server meanwhile. A log without an origin hears everybody, as before.
func TestForeignOriginIsNotHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.propose(c.leader(), "before")
		c.converge()
		state, err := c.tapes["c1"].Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"c1", "c2", "c3"} {
			c.stop(id)
		}
		c.stores["c1"] = memoryStores()
		cfg := c.config("c1")
		cfg.Servers = cfg.Servers[:1]
		if err := Plant(cfg, Seed{State: state, Term: 1, Index: 5, Founders: c.config("c1").Servers}); err != nil {
			t.Fatal(err)
		}
		c.start("c1")
		alone := c.leader()
		c.propose(alone, "after")
		c.start("c2")
		c.start("c3")
		old := c.leader("c1")
		c.propose(old, "of the old group")
		c.mustAddTo(alone, "c4")
		time.Sleep(time.Minute)
		if r := alone.leading.Load(); r == nil || r != alone.leading.Load() || alone.Verify(t.Context()) != nil {
			t.Error("the recovered server has lost its lead")
		}
		for _, id := range []string{"c1", "c4"} {
			if c.tapes[id].has("of the old group") || !c.tapes[id].has("after") {
				t.Errorf("%s heard the old group", id)
			}
		}
		if c.tapes["c2"].has("after") {
			t.Error("the old group heard the recovered server")
		}
		c.stop("c4")
		c.start("c4") // it has taken the origin over for good
		time.Sleep(10 * time.Second)
		if c.tapes["c4"].has("of the old group") || !c.tapes["c4"].has("after") {
			t.Error("after its restart the new server heard the old group")
		}
	})
}

// Servers with logs of a version that knew no origins go on together, also while
// only some have restarted.
func TestLogsWithoutOrigin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.propose(c.leader(), "before")
		for _, id := range []string{"c1", "c2", "c3"} {
			c.stop(id)
			if err := c.stores[id].Stable.Set([]byte(keyOrigin), nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"c1", "c2", "c3"} {
			c.start(id)
		}
		c.propose(c.leader(), "after")
		c.mustAdd("c4")
		c.converge()
		if from := c.groups["c4"].trans.from(); from != "" {
			t.Errorf("the new server has taken over origin %q of a group without one", from)
		}
	})
}

func otherID(cfg Config) string {
	for _, s := range cfg.Servers {
		if s.ID != cfg.ID {
			return s.ID
		}
	}
	return ""
}

// A configuration may list the servers that it began with or those of now; no
// others, because a list in a file changes nothing.
func TestConfiguredServersAfterChanges(t *testing.T) {
	t.Parallel()
	configs := diskConfig(t, 2)
	first, second := configs[0], configs[1]
	first.Timing = quick()
	first.Servers, second.Servers, second.Join = first.Servers[:1], second.Servers[1:], true
	g := mustOpen(t, first, &tape{})
	h := mustOpen(t, second, &tape{})
	until(t, "it leads", func() bool { return leading(g) != nil })
	if err := g.AddServer(t.Context(), second.Servers[0]); err != nil {
		t.Fatal(err)
	}
	until(t, "the added server knows both", func() bool { return len(h.Members()) == 2 })
	for _, x := range []*Group{g, h} {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	three := first
	three.Servers = append(slices.Clone(configs[0].Servers), Server{ID: "c3", Address: "127.0.0.1:9"})
	if _, err := Open(three, &tape{}); !errors.Is(err, errServersChanged) {
		t.Errorf("a list that was never true: %v", err)
	}
	mustOpen(t, first, &tape{})
	second.Join = false // with a log it makes no difference
	again := mustOpen(t, second, &tape{})
	if len(again.Members()) != 2 {
		t.Errorf("after its restart it knows %+v", again.Members())
	}
}

// The disk's pace is that of the last minutes, and a write under way counts.
func TestDiskPace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p pace
		write := func(d time.Duration) {
			end := p.begin()
			time.Sleep(d)
			end()
		}
		write(300 * time.Millisecond)
		write(5 * time.Millisecond)
		if got := p.slowest(time.Now()); got != 300*time.Millisecond {
			t.Errorf("slowest %v", got)
		}
		time.Sleep(65 * time.Second)
		write(time.Millisecond)
		if got := p.slowest(time.Now()); got != 300*time.Millisecond {
			t.Errorf("a minute later %v", got)
		}
		time.Sleep(65 * time.Second)
		if got := p.slowest(time.Now()); got != time.Millisecond {
			t.Errorf("two minutes later %v", got)
		}
		end := p.begin()
		time.Sleep(time.Second)
		if got := p.slowest(time.Now()); got != time.Second {
			t.Errorf("with a write under way %v", got)
		}
		end()
	})
}

// The disk under a log on a real directory tells what is free.
func TestDiskFree(t *testing.T) {
	t.Parallel()
	g := mustOpen(t, diskConfig(t, 1)[0], &tape{})
	if d := g.Disk(); d.Free == nil || *d.Free == 0 || d.Deadline == 0 {
		t.Errorf("%+v", d)
	}
}

// Whatever stands in a file of the log, looking at it neither panics nor runs on.
func FuzzSegment(f *testing.F) {
	f.Add(make([]byte, 64))
	good := append(make([]byte, walHeader), walEntry, 0, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0, 0)
	good = binary.LittleEndian.AppendUint32(append(good, walEnd, 0, 0, 0), crc(good))
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, behind, ok := checkSegment(data)
		if entries > uint64(len(data)) || behind > len(data) || !ok && len(data) < walHeader {
			t.Fatalf("%d entries, sound %v", entries, ok)
		}
	})
}

// versioned is a machine of another version: it cannot read a snapshot.
type versioned struct{ *tape }

func (versioned) Restore([]byte) error {
	return errors.New("a snapshot of rules 99, this is version 1 with rules 1 to 9")
}

// A state of another version is refused at once and in words: an entry that this version cannot
// apply, before it leads; a snapshot that it cannot read, with the machine's own reason.
func TestStateOfAnotherVersion(t *testing.T) {
	t.Parallel()
	cfg, _ := written(t, 20)
	cfg.Check = func(data []byte) error {
		if strings.HasPrefix(string(data), "entry 13") {
			return errors.New("rules 99, this is version 1 with rules 1 to 9")
		}
		return nil
	}
	if e := refusal(t, cfg, errUnreadable); e.Code != "other-version" || !strings.Contains(e.Message, "entry ") || !strings.Contains(e.Message, "rules 99, this is version 1") {
		t.Errorf("%s: %s", e.Code, e.Message)
	}
	snapped, _ := compacted(t)
	g, err := Open(snapped, versioned{&tape{}})
	if err == nil {
		_ = g.Close()
		t.Fatal("it started")
	}
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Code != "other-version" || !strings.Contains(e.Message, "a snapshot of rules 99") {
		t.Errorf("%v", err)
	}
}

// A leader's snapshot that a server cannot read ends that server with the reason: raft would be
// sent it again and again.
func TestSnapshotOfAnotherVersionWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Compaction = Compaction{Threshold: 20, Trailing: 1, Every: time.Second} })
		c.stop("c3")
		lead := c.leader()
		for i := range 60 {
			c.propose(lead, fmt.Sprintf("entry %d", i))
		}
		time.Sleep(10 * time.Second) // a snapshot is taken
		c.propose(lead, "more")
		_, c.nets["c3"] = raft.NewInmemTransport("addr-c3")
		for _, other := range c.ids {
			c.link("c3", other)
		}
		g, err := Open(c.config("c3"), versioned{&tape{}})
		if err != nil {
			t.Fatal(err)
		}
		c.groups["c3"] = g
		time.Sleep(30 * time.Second)
		if err := c.fatalOf("c3"); err == nil || !strings.Contains(err.Error(), "a snapshot of rules 99") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// ReadEnd names the term of the last entry, and not that of a snapshot before it: by the end of
// their logs the survivor is chosen that is recovered.
func TestEndHasTheTermOfTheLastEntry(t *testing.T) {
	t.Parallel()
	cfg, _ := compacted(t)
	var want End
	for range 2 { // each start is a term of its own
		g := mustOpen(t, cfg, &tape{})
		until(t, "it leads", func() bool { return leading(g) != nil })
		if _, err := g.Propose(t.Context(), []byte("more")); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		want = End{Term: g.raft.CurrentTerm(), Index: g.raft.LastIndex()}
	}
	end, err := ReadEnd(cfg)
	if err != nil || end.Term != want.Term || end.Index != want.Index {
		t.Errorf("the log ends with entry %d of term %d, want %d of %d; %v", end.Index, end.Term, want.Index, want.Term, err)
	}
	if end.Lacks() {
		t.Errorf("it lacks what was acknowledged: %+v", end)
	}
	snaps, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
	if err != nil || len(snaps) == 0 || strings.HasPrefix(snaps[len(snaps)-1].Name(), fmt.Sprint(want.Term, "-")) {
		t.Errorf("no snapshot of an earlier term: %v, %v", snaps, err)
	}
}
