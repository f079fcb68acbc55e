// Claims (P2): a server whose log lacks what it has acknowledged does not start, says what is missing
// and how to go on; whatever is no routine is marked before its proposer is answered, on the
// leader and on a majority; no crash leaves a mark above the log, and no power cut an unreadable one.
package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/internal/durable/durabletest"
)

// refusal opens a stopped server that must not start, and returns its words.
func refusal(t *testing.T, cfg Config, want error) *cli.Error {
	t.Helper()
	g, err := Open(cfg, &tape{})
	if err == nil {
		_ = g.Close()
		t.Fatal("it started")
	}
	e, ok := errors.AsType[*cli.Error](err)
	if !ok || !errors.Is(err, want) || e.Hint == "" {
		t.Fatalf("got %#v, want %v", err, want)
	}
	return e
}

// compacted is a stopped server of one with a snapshot, and with entries behind it.
func compacted(t *testing.T) (Config, *tape) {
	t.Helper()
	cfg, m := diskConfig(t, 1)[0], &tape{}
	cfg.Timing, cfg.Compaction = quick(), Compaction{Threshold: 40, Trailing: 10, Every: 10 * time.Millisecond}
	g := mustOpen(t, cfg, m)
	until(t, "it leads", func() bool { return leading(g) != nil })
	for i := range 100 {
		if _, err := g.Propose(t.Context(), fmt.Appendf(nil, "entry %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "there is a snapshot", func() bool {
		all, err := filepath.Glob(filepath.Join(cfg.Dir, "snapshots", "*", "state.bin"))
		return err == nil && len(all) > 0
	})
	if _, err := g.Propose(t.Context(), []byte("the cut")); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg, m
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// The folder log is lost and the snapshots are not, or both, or an older copy of it has come
// back: nobody starts from less than was acknowledged. With the operator's word it goes on from
// what is there.
func TestLostLogIsRefused(t *testing.T) {
	t.Parallel()
	cfg, whole := compacted(t)
	older := copyDir(t, cfg.Dir)
	g := mustOpen(t, cfg, &tape{})
	until(t, "it leads", func() bool { return leading(g) != nil })
	if _, err := g.Propose(t.Context(), []byte("the last cut")); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for name, lose := range map[string]func(dir string){
		"log":               func(dir string) { empty(t, filepath.Join(dir, "log")) },
		"log and snapshots": func(dir string) { empty(t, filepath.Join(dir, "log")); empty(t, filepath.Join(dir, "snapshots")) },
		"an older log": func(dir string) {
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "log")), os.CopyFS(filepath.Join(dir, "log"), os.DirFS(filepath.Join(older, "log")))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		bad := cfg
		bad.Dir = copyDir(t, cfg.Dir)
		lose(bad.Dir)
		for range 2 { // the first refusal leaves nothing that the second takes for a log
			e := refusal(t, bad, errLogLost)
			if e.Code != "log-lost" || !strings.Contains(e.Message, "has acknowledged entry") || !strings.Contains(e.Hint, "member recover") {
				t.Errorf("%s: %s\n%s", name, e.Message, e.Hint)
			}
		}
		if name == "log and snapshots" {
			continue // nothing is left to recover
		}
		m := &tape{}
		if err := Recover(bad, m, bad.Servers); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := &tape{}
		r := mustOpen(t, bad, got)
		until(t, name+": recovered, it leads", func() bool { return leading(r) != nil })
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n, _ := got.count(); n == 0 || !strings.HasPrefix(whole.bytes(), got.bytes()) {
			t.Errorf("%s: recovered %d entries that are no beginning of what was written", name, n)
		}
	}
}

// Without a mark, written by a version that had none, a server starts and begins one; unless a
// snapshot has lost its log.
func TestServerWithoutAMark(t *testing.T) {
	t.Parallel()
	cfg, whole := compacted(t)
	if err := os.Remove(filepath.Join(cfg.Dir, markFile)); err != nil {
		t.Fatal(err)
	}
	bad := cfg
	bad.Dir = copyDir(t, cfg.Dir)
	empty(t, filepath.Join(bad.Dir, "log"))
	if e := refusal(t, bad, errLogLost); !strings.Contains(e.Message, "snapshot of entry") {
		t.Error(e.Message)
	}
	m := &tape{}
	g := mustOpen(t, cfg, m)
	until(t, "it leads", func() bool { return leading(g) != nil })
	if m.bytes() != whole.bytes() {
		t.Error("the log was not replayed")
	}
	if _, err := g.Propose(t.Context(), []byte("more")); err != nil {
		t.Fatal(err)
	}
	if ReadAcknowledged(cfg.Dir).Entry == 0 {
		t.Error("no mark was begun")
	}
}

// One of three has lost its log: it is refused, and comes back empty once it was removed and
// added again.
func TestLostLogOfOneOfThree(t *testing.T) {
	t.Parallel()
	configs := diskConfig(t, 3)
	var groups []*Group
	for _, cfg := range configs {
		groups = append(groups, mustOpen(t, cfg, &tape{}))
	}
	lead := awaitLeader(t, groups)
	if _, err := lead.Propose(t.Context(), []byte("the cut")); err != nil {
		t.Fatal(err)
	}
	lost := configs[2]
	if lead == groups[2] {
		lost = configs[1]
	}
	for i := range groups {
		until(t, "all have it", func() bool { return groups[i].raft.AppliedIndex() >= lead.raft.CommitIndex() })
		if configs[i].ID == lost.ID {
			if err := groups[i].Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty(t, filepath.Join(lost.Dir, "log"))
	if e := refusal(t, lost, errLogLost); !strings.Contains(e.Hint, "remove this server from the group and add it again empty") {
		t.Error(e.Hint)
	}
	atLeader(t, groups, func(lead *Group) error { return lead.RemoveServer(t.Context(), lost.ID) })
	if err := os.Rename(lost.Dir, lost.Dir+".aside"); err != nil {
		t.Fatal(err)
	}
	m := &tape{}
	lost.Join = true
	again := mustOpen(t, lost, m)
	atLeader(t, groups, func(lead *Group) error { return lead.AddServer(t.Context(), lost.own()) })
	until(t, "it has the cut again", func() bool { return m.has("the cut") })
	_ = again
}

// atLeader makes a change at the leader, and at the next one where the lead changed meanwhile.
func atLeader(t *testing.T, groups []*Group, change func(lead *Group) error) {
	t.Helper()
	var err error
	until(t, "the leader makes the change", func() bool {
		err = change(awaitLeader(t, groups))
		return !errors.Is(err, ErrNotLeader)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func awaitLeader(t *testing.T, groups []*Group) *Group {
	t.Helper()
	var lead *Group
	until(t, "somebody leads", func() bool { lead = leading(groups...); return lead != nil })
	return lead
}

// When a change is answered, the marks of its leader and of a majority hold it: read from the
// disk while the servers run, as a power cut would find them. Ticks are marked later.
func TestMarkedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	configs := diskConfig(t, 3)
	var groups []*Group
	for i := range configs {
		configs[i].Routine = func(data []byte) bool { return bytes.HasPrefix(data, []byte("tick")) }
		groups = append(groups, mustOpen(t, configs[i], &tape{}))
	}
	lead := awaitLeader(t, groups)
	for i := range 30 {
		if i%2 == 0 {
			if _, err := lead.Propose(t.Context(), []byte("tick")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := lead.Propose(t.Context(), fmt.Appendf(nil, "cut %d", i)); err != nil {
			t.Fatal(err)
		}
		answered, holding := lead.raft.AppliedIndex(), 0
		for j, g := range groups {
			if ReadAcknowledged(configs[j].Dir).Entry >= answered {
				holding++
			} else if g == lead {
				t.Errorf("cut %d, entry %d, is not in the leader's mark", i, answered)
			}
		}
		if holding < 2 {
			t.Errorf("cut %d: %d of 3 marks hold it", i, holding)
		}
	}
	if _, err := lead.Propose(t.Context(), []byte("tick")); err != nil {
		t.Fatal(err)
	}
	ticked := lead.raft.AppliedIndex()
	until(t, "the tick is marked everywhere", func() bool {
		for _, cfg := range configs {
			if ReadAcknowledged(cfg.Dir).Entry < ticked {
				return false
			}
		}
		return true
	})
	for _, cfg := range configs {
		if a := ReadAcknowledged(cfg.Dir); a.Term == 0 || a.Origin == "" || a.Server != cfg.ID {
			t.Errorf("%s: %+v", cfg.ID, a)
		}
	}
}

// A mark that is another server's, a newer version's, damaged, or of another log is refused in
// words: which file, and why.
func TestForeignMarkIsRefused(t *testing.T) {
	t.Parallel()
	cfg, _ := written(t, 20)
	good := ReadAcknowledged(cfg.Dir)
	for name, x := range map[string]struct {
		change func(*Acknowledged)
		want   error
		words  string
	}{
		"another server's":          {func(a *Acknowledged) { a.Server = "c9" }, errForeignLog, "belongs to server c9; this is server c1"},
		"a newer version's":         {func(a *Acknowledged) { a.Format = 7 }, errUnreadable, "format 7"},
		"of another log":            {func(a *Acknowledged) { a.Origin = "0123456789abcdef" }, errForeignLog, "another origin"},
		"from the future":           {func(a *Acknowledged) { a.Entry += 1e6 }, errLogLost, "has acknowledged entry 1000"},
		"of a later term":           {func(a *Acknowledged) { a.Term += 3 }, errLogLost, "has answered in term"},
		"of a later vote":           {func(a *Acknowledged) { a.Voted += 3 }, errLogLost, "its LastVoteTerm is"},
		"of another entry":          {func(a *Acknowledged) { a.Sum++ }, errForeignLog, "is not the one"},
		"of an entry of later term": {func(a *Acknowledged) { a.EntryTerm += 2; a.Entry = 1 }, errLogLost, "has acknowledged entry 1 of term"},
	} {
		bad, a := cfg, good
		bad.Dir = copyDir(t, cfg.Dir)
		x.change(&a)
		if err := os.WriteFile(filepath.Join(bad.Dir, markFile), a.slot(), 0o600); err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, bad, x.want); !strings.Contains(e.Message, x.words) || !strings.Contains(e.Message, bad.Dir) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	for _, text := range []string{"", "nonsense\n", string(bytes.Repeat([]byte{0}, 2*markSlot))} {
		bad := cfg
		bad.Dir = copyDir(t, cfg.Dir)
		if err := os.WriteFile(filepath.Join(bad.Dir, markFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, bad, errCorrupt); !strings.Contains(e.Message, "acknowledged is damaged") {
			t.Error(e.Message)
		}
	}
}

// A segment of another cluster's server, which has the same name and the same number of entries.
func TestSegmentOfAnotherServer(t *testing.T) {
	t.Parallel()
	cluster := func(entries int, text string) Config {
		cfg, _ := written(t, 20)
		g := mustOpen(t, cfg, &tape{})
		until(t, "it leads", func() bool { return leading(g) != nil })
		for range entries {
			if _, err := g.Propose(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg, other := cluster(1, "the cut of this cluster"), cluster(40, "another cut") // longer, so that its end says nothing
	data, err := os.ReadFile(segment(t, other.Dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment(t, cfg.Dir), data, 0o600); err != nil {
		t.Fatal(err)
	}
	want, words := errForeignLog, "is not the one that this server has acknowledged"
	if ReadAcknowledged(cfg.Dir).behind(ReadAcknowledged(other.Dir).EntryTerm, 1e6) {
		want, words = errLogLost, "has acknowledged entry" // a busy machine needed more elections for ours
	}
	if e := refusal(t, cfg, want); !strings.Contains(e.Message, words) {
		t.Error(e.Message)
	}
}

// tested is a mark on a disk of the tests; the wire notes why it ended.
func tested(t *testing.T, disk durable.FS, begin Acknowledged) (*mark, *guard) {
	t.Helper()
	g := &guard{wire: &tripwire{end: func(error) {}}, deadline: time.Minute}
	m, err := openMark(disk, "/state", begin, g, func(*Acknowledged) {})
	if err != nil {
		return nil, g
	}
	return m, g
}

// Wherever the power is cut while the mark is begun or moved on, the next start reads the one
// before or the new one, and never one above what was asked for.
func TestMarkSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	at := func(index uint64) func(*Acknowledged) {
		return func(a *Acknowledged) { *a = a.ending(&raft.Log{Index: index, Term: 2}) }
	}
	before := func() *durabletest.Disk {
		d := durabletest.New()
		m, _ := tested(t, d, Acknowledged{Server: "c1"})
		m.set(at(5))
		if errors.Join(m.keep(), m.close()) != nil {
			t.Fatal("not stored")
		}
		return d
	}
	move := func(d durable.FS) error {
		begin, _, _ := readMark(d, "/state")
		m, _ := tested(t, d, begin)
		if m == nil {
			return durabletest.ErrCut
		}
		for _, index := range []uint64{6, 7, 8} {
			m.set(at(index))
			if err := m.keep(); err != nil {
				return errors.Join(err, m.close())
			}
		}
		return m.close()
	}
	durabletest.EachCut(before, move, func(after durable.FS, done bool) {
		a, found, err := readMark(after, "/state")
		if err != nil || !found || a.Entry < 5 || a.Entry > 8 || done && a.Entry != 8 {
			t.Errorf("stored: %v; after the power cut: %+v, %v, %v", done, a, found, err)
		}
	})
	durabletest.EachCut(durabletest.New, move, func(after durable.FS, done bool) {
		if a, found, err := readMark(after, "/state"); err != nil || done && (!found || a.Entry != 8) {
			t.Errorf("begun: %v; after the power cut: %+v, %v", done, a, err)
		}
	})
}

// cutLog looks at the mark on disk when the log is cut.
type cutLog struct {
	raft.LogStore

	cut func()
}

func (l cutLog) DeleteRange(first, last uint64) error {
	l.cut()
	return l.LogStore.DeleteRange(first, last)
}

// A follower appends before it marks, so that a crash between the two leaves no mark above the
// log; and entries that a new leader overrules are taken out of the mark before they are gone.
func TestMarkNeverAboveTheLog(t *testing.T) {
	t.Parallel()
	disk, log := durabletest.New(), raft.NewInmemStore()
	m, g := tested(t, disk, Acknowledged{Server: "c1"})
	marked := func() Acknowledged {
		a, _, err := readMark(disk.Survivors()[0], "/state")
		if err != nil {
			t.Error(err)
		}
		return a
	}
	cuts := 0
	l := guardedLog{
		LogStore: cutLog{log, func() {
			if cuts++; cuts > 1 {
				return
			}
			if a := marked(); a.Entry != 2 || a.EntryTerm != 1 {
				t.Errorf("the log is cut to entry 2, and the mark holds entry %d", a.Entry)
			}
		}},
		snapshots: raft.NewInmemSnapshotStore(), guard: g, mark: m,
		routine: func(*raft.Log) bool { return false }, leads: func(uint64) bool { return false },
	}
	for i := uint64(1); i <= 5; i++ {
		if err := l.StoreLog(&raft.Log{Index: i, Term: 1, Data: seal(1, []byte("cut"))}); err != nil {
			t.Fatal(err)
		}
		if last, _ := log.LastIndex(); marked().Entry != i || last != i {
			t.Errorf("entry %d is acknowledged: mark %d, log %d", i, marked().Entry, last)
		}
	}
	if err := l.DeleteRange(3, 5); err != nil {
		t.Fatal(err)
	}
	if err := l.StoreLog(&raft.Log{Index: 3, Term: 2, Data: seal(2, []byte("another"))}); err != nil {
		t.Fatal(err)
	}
	if a := marked(); a.Entry != 3 || a.EntryTerm != 2 || cuts != 1 {
		t.Errorf("after the new leader's entry: %+v, %d cuts", a, cuts)
	}
	// Behind a snapshot the beginning goes: that takes nothing back.
	if err := l.DeleteRange(1, 2); err != nil || marked().Entry != 3 {
		t.Errorf("after the beginning was cut: %+v, %v", marked(), err)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}

// slowFiles is a file system whose syncs wait until the test lets them.
type slowFiles struct {
	durable.OS

	hold atomic.Bool
	let  chan struct{}
}

func (d *slowFiles) OpenFile(path string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := d.OS.OpenFile(path, flag, perm)
	return slowFile{f, d}, err
}

type slowFile struct {
	durable.File
	disk *slowFiles
}

func (f slowFile) Sync() error {
	if f.disk.hold.Load() {
		<-f.disk.let
	}
	return f.File.Sync()
}

// A leader answers a change when its mark holds it, however soon the followers have it; a tick,
// before. A mark that is slow does not hold up the log.
func TestAnswerWaitsForTheMark(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 1)[0]
	files := &slowFiles{let: make(chan struct{})}
	cfg.Timing, cfg.files = quick(), files
	cfg.Routine = func(data []byte) bool { return bytes.HasPrefix(data, []byte("tick")) }
	m := &tape{}
	g := mustOpen(t, cfg, m)
	until(t, "it leads", func() bool { return leading(g) != nil })
	files.hold.Store(true)
	answered := make(chan error, 1)
	go func() {
		_, err := g.Propose(t.Context(), []byte("cut"))
		answered <- err
	}()
	until(t, "the cut is applied", func() bool { return m.has("cut") })
	for range 20 {
		if _, err := g.Propose(t.Context(), []byte("tick")); err != nil {
			t.Fatal(err)
		}
	}
	if len(answered) > 0 {
		t.Error("the cut was answered before it was marked")
	}
	files.hold.Store(false)
	close(files.let)
	if err := <-answered; err != nil || ReadAcknowledged(cfg.Dir).Entry == 0 {
		t.Errorf("answered %v", err)
	}
}

// A failing disk under the mark ends the server as a failing log does, before it acknowledges.
func TestMarkThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	disk := durabletest.New()
	m, g := tested(t, disk, Acknowledged{Server: "c1"})
	ended := make(chan error, 1)
	g.wire.end = func(err error) { ended <- err }
	g.armed.Store(true)
	disk.CutAfter(0)
	m.set(func(a *Acknowledged) { a.Entry = 9 })
	done := make(chan error)
	go func() {
		defer close(done)
		done <- m.keep() // never: the goroutine goes no further
	}()
	if err, answered := <-done; answered {
		t.Errorf("a mark that was not written was taken for kept: %v", err)
	}
	if err := <-ended; !errors.Is(err, errWriteFailed) || !strings.Contains(err.Error(), "store what was acknowledged") {
		t.Error(err)
	}
	_ = m.close()
}
