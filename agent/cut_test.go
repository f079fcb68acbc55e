package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/statedir"
	"headroom/agent/streams"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/logs"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/systemd"
	"headroom/units"
)

// failing is a limit whose device goes away with the first write to it.
type failing struct {
	sysfs.File

	armed, dead *bool
}

func (f failing) Pread(b []byte) (int, error) {
	if *f.dead {
		return 0, unix.EIO
	}
	return f.File.Pread(b)
}

func (f failing) Pwrite(b []byte) (int, error) {
	if *f.armed {
		*f.dead = true
		return 0, unix.EIO
	}
	return f.File.Pwrite(b)
}

// A cut whose write fails and cannot be read back leaves unknown what the node holds:
// it is not acknowledged as if a limit of 0 W had been read.
func TestFailedCutStaysUnknown(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	var armed, dead bool
	b.openTree = func(root *os.Root) (*rapl.Tree, error) {
		real, err := rapl.Open(root)
		if err != nil {
			return nil, err
		}
		var dirs []rapl.Dir
		for _, z := range real.Zones() {
			dirs = append(dirs, rapl.Dir{Path: z.Dir, Control: z.Control})
		}
		onDisk := sysfs.Disk(root)
		tree, err := rapl.OpenZones(func(p string, write bool) (sysfs.File, error) {
			f, err := onDisk(p, write)
			if err == nil && strings.HasSuffix(p, "power_limit_uw") {
				f = failing{f, &armed, &dead}
			}
			return f, err
		}, dirs)
		return tree, errors.Join(err, real.Close())
	}
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	defer b.leave()
	b.grant(200 * units.Watt)
	b.turn(12)
	if was := b.n.holdingNow(); was.EffectiveUw == nil {
		t.Fatal("nothing reads back before the cut")
	}
	armed = true
	b.grant(100 * units.Watt)
	b.n.reported(b.now)
	b.step(period)
	b.now.Boot, b.now.Awake = b.now.Boot+period, b.now.Awake+period
	b.n.turn(b.now)
	if b.n.control.writeErr == nil {
		t.Fatal("the write did not fail")
	}
	if h := b.n.holdingNow(); h.EffectiveUw != nil {
		t.Errorf("the node says it holds %v after a write that failed and could not be read", units.Power(h.GetEffectiveUw()))
	}
	if b.n.control.effective().Known {
		t.Error("a sprint would take the cap for read back")
	}
}

// gate blocks whoever passes it while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

func (g *gate) pass() {
	g.mu.Lock()
	wait := g.shut
	g.mu.Unlock()
	if wait != nil {
		<-wait
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// hungDisk is a state directory that stops answering.
type hungDisk struct {
	statedir.Disk

	gate *gate
}

func (d hungDisk) Durable(name string, data []byte) error {
	d.gate.pass()
	return d.Disk.Durable(name, data)
}

func (d hungDisk) Replace(name string, data []byte) error {
	d.gate.pass()
	return d.Disk.Replace(name, data)
}

func (d hungDisk) Remove(name string) error {
	d.gate.pass()
	return d.Disk.Remove(name)
}

// hungRecords is written.log on such a disk.
type hungRecords struct {
	originals.RecordFile

	gate *gate
}

func (r hungRecords) WriteAt(b []byte, at int64) (int, error) {
	r.gate.pass()
	return r.RecordFile.WriteAt(b, at)
}

// hungReader is where a log goes that nobody reads any more.
type hungReader struct {
	io.Writer

	gate *gate
}

func (r hungReader) Write(b []byte) (int, error) {
	r.gate.pass()
	return r.Writer.Write(b)
}

// A cut reaches the hardware while the state directory, the records and the reader of
// the log all hang. It is acknowledged, and a raise behind it carried out, only once
// they answer again.
func TestCutWaitsForNeitherDiskNorLog(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.set(func() { c.duration = 5 * time.Minute }) // the lease's end must not do the cut's work
	cfg := l.config(c.addr)
	stuck := &gate{}
	log, queue := logs.New(hungReader{t.Output(), stuck}, slog.LevelDebug)
	n, err := start(cfg, log, hungDisk{statedir.OS{Dir: cfg.StateDir}, stuck})
	if err != nil {
		t.Fatal(err)
	}
	n.records.Trail.Behind(func(f originals.RecordFile) originals.RecordFile { return hungRecords{f, stuck} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	defer func() {
		stuck.open()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		queue.Close(logs.CloseWait)
	}()
	waitFor(t, "the lease's cap is reached", func() bool { return c.acknowledged() && l.long() > 100*units.Watt })
	before := l.long()
	stuck.close()
	c.grant(t, 120*units.Watt)
	waitFor(t, "the cut reaches the hardware", func() bool { return l.long() < before-20*units.Watt })
	if c.acknowledged() {
		t.Error("acknowledged before its stamp is on disk")
	}
	cut := l.long()
	c.grant(t, 185*units.Watt)
	beats := len(c.beatsSeen())
	waitFor(t, "three heartbeats later", func() bool { return len(c.beatsSeen()) >= beats+3 })
	if now := l.long(); now > 90*units.Watt {
		t.Errorf("raised from %v to %v while nothing can be stored", cut, now)
	}
	stuck.open()
	waitFor(t, "the raise is acknowledged once the disk answers", c.acknowledged)
	waitFor(t, "the raise reaches the hardware", func() bool { return l.long() > 100*units.Watt })
}

// beatsSeen are the heartbeats so far.
func (c *coordinator) beatsSeen() []*headroomv1.Heartbeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.beats)
}

// Records belong to controls, not to places in the journal: when the slices' records go
// with a reboot, what stood behind them is still found, and put back.
func TestRecordsStayWithTheirControls(t *testing.T) {
	t.Parallel()
	const policy = "sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq"
	dir := t.TempDir()
	r := tree(t, dir, map[string]string{policy: "3500000"})
	d := statedir.OS{Dir: dir}
	j := &originals.Journal{Version: originals.JournalVersion, Node: "n01", BootID: "one", Controls: []originals.Saved{
		{Path: "systemd:batch.slice", Label: "CPU bandwidth of batch.slice", Kind: originals.Bandwidth, Original: int64(systemd.Unlimited)},
		{Path: policy, Label: "policy1 ceiling", Kind: originals.Frequency, Original: 3500000},
	}}
	first := trailOf(t, dir, j, true)
	if err := errors.Join(j.Store(d), first.Note("systemd:batch.slice", 500000, int64(systemd.Unlimited)),
		first.Note(policy, 1200000, 3500000), first.Close()); err != nil {
		t.Fatal(err)
	}
	second, err := originals.Load(d) // after a reboot, which has reset the ceiling
	if err != nil {
		t.Fatal(err)
	}
	trail := trailOf(t, dir, second, false)
	if !second.Adopt(filesOf(t, r), "two", trail) {
		t.Fatal("not adopted")
	}
	if err := errors.Join(second.Store(d), trail.Note(policy, 1000000, 3500000), put(r, policy, "1000000"), trail.Close()); err != nil {
		t.Fatal(err)
	}
	third, err := originals.Load(d) // killed; limit restore --force
	if err != nil {
		t.Fatal(err)
	}
	out, err := putBackDead(filesOf(t, r), d, config.Config{StateDir: dir}, third)
	if now := read(t, r, policy); err != nil || now != "3500000" {
		t.Errorf("the ceiling is %s kHz, it was 3500000: %+v, %v", now, out, err)
	}
}

// A limit goes back to the package that it was taken from, wherever its zone is now;
// where that package is gone, it goes nowhere.
func TestLimitsFollowTheirPackage(t *testing.T) {
	t.Parallel()
	const limit, base = "constraint_0_power_limit_uw", "sys/class/powercap/"
	zone := func(n int, name, value string) map[string]string {
		dir := fmt.Sprintf("%sintel-rapl:%d/", base, n)
		return map[string]string{
			dir + "name": name, dir + "energy_uj": "1", dir + "max_energy_range_uj": "262143328850", dir + "enabled": "1",
			dir + "constraint_0_name": "long_term", dir + limit: value, dir + "constraint_0_time_window_us": "1000000",
		}
	}
	for _, c := range []struct {
		name         string
		zones        []map[string]string
		first, other string // zone 0 and zone 1 afterwards
		failed       int
	}{
		{"as it was", []map[string]string{zone(0, "package-0", "90000000"), zone(1, "package-1", "80000000")}, "150000000", "140000000", 0},
		{"numbered anew", []map[string]string{zone(0, "package-1", "80000000"), zone(1, "package-0", "90000000")}, "140000000", "150000000", 0},
		{"one is gone", []map[string]string{zone(0, "package-1", "80000000")}, "140000000", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := &originals.Journal{Version: originals.JournalVersion, Controls: []originals.Saved{
				{Path: base + "intel-rapl:0/" + limit, Label: "package-0 long_term limit", Kind: originals.Power, Original: 150000000},
				{Path: base + "intel-rapl:1/" + limit, Label: "package-1 long_term limit", Kind: originals.Power, Original: 140000000},
			}}
			trail := trailOf(t, dir, j, true)
			if err := errors.Join(trail.Note(j.Controls[0].Path, 90000000, 150000000), trail.Note(j.Controls[1].Path, 80000000, 140000000), trail.Close()); err != nil {
				t.Fatal(err)
			}
			r := tree(t, dir, c.zones...)
			out, err := putBackDead(filesOf(t, r), statedir.OS{Dir: dir}, config.Config{StateDir: dir}, j)
			if err != nil || out.Failed != c.failed {
				t.Errorf("%+v, %v", out, err)
			}
			if got := read(t, r, base+"intel-rapl:0/"+limit); got != c.first {
				t.Errorf("the first zone holds %s, want %s: %+v", got, c.first, out)
			}
			if c.other != "" && read(t, r, base+"intel-rapl:1/"+limit) != c.other {
				t.Errorf("the second zone does not hold %s: %+v", c.other, out)
			}
		})
	}
}

// A certificate on a disk that hangs keeps the loop from nothing.
func TestCertificateIsReadBesideTheLoop(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	pipe := filepath.Join(t.TempDir(), "hangs")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	b.cfg.TLS.CA, b.cfg.TLS.Cert, b.cfg.TLS.Key = pipe, pipe, pipe
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	defer b.leave()
	b.turn(8) // twice a second's housekeeping
	if !b.n.exchange.streams.Asking() {
		t.Fatal("the certificate is not being read")
	}
	var told streams.Certificate
	waitFor(t, "the reading ends", func() bool {
		if f, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // fails while nobody reads
			_ = f.Close()
		}
		select {
		case told = <-b.n.exchange.streams.Certificates():
			return true
		default:
			return false
		}
	})
	b.n.exchange.certified(t.Context(), told)
	if told.Err == nil || b.n.exchange.streams.Asking() || !shown(b.n, "tls") {
		t.Errorf("an empty certificate: %v", told.Err)
	}
}

// tree is a folder with files, as a root.
func tree(t *testing.T, dir string, all ...map[string]string) *os.Root {
	t.Helper()
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	for _, files := range all {
		for name, text := range files {
			if err := errors.Join(r.MkdirAll(path.Dir(name), 0o755), put(r, name, text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

func put(r *os.Root, name, text string) error { return r.WriteFile(name, []byte(text+"\n"), 0o600) }

func read(t *testing.T, r *os.Root, name string) string {
	t.Helper()
	data, err := r.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func trailOf(t *testing.T, dir string, j *originals.Journal, fresh bool) *originals.Trail {
	t.Helper()
	trail, err := originals.OpenTrail(dir, j, fresh)
	if err != nil {
		t.Fatal(err)
	}
	return trail
}

// A disk that freezes while a control is met for the first time stalls nothing: the records
// of the new control need no file to be opened, and they are where a restart looks for them.
func TestControlMetOnAFrozenDisk(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	defer b.leave()
	b.turn(4)
	records := filepath.Join(b.cfg.StateDir, statedir.WrittenFile)
	if err := errors.Join(os.Rename(records, records+".aside"), unix.Mkfifo(records, 0o600)); err != nil { // whoever opens it now hangs
		t.Fatal(err)
	}
	ceiling := &ceilingCall{freq: b.n.machine.Freq.Config.Min, length: time.Minute, answer: make(chan reply[[]int64], 1)}
	b.n.locals.setCeiling(ceiling)
	returns(t, "the loop goes on", func() { b.n.stored(<-b.n.records.Writer.Done()) })
	if r := <-ceiling.answer; r.err != nil {
		t.Fatal(r.err)
	}
	if err := os.Rename(records+".aside", records); err != nil {
		t.Fatal(err)
	}
	again := trailOf(t, b.cfg.StateDir, b.n.records.Journal, false)
	defer func() { _ = again.Close() }()
	for _, c := range b.n.machine.Freq.Controls() {
		if wrote, ever := again.Wrote(c.Path); strings.HasSuffix(c.Path, "scaling_max_freq") && (!ever || wrote.Number != int64(ceiling.freq)) {
			t.Errorf("%s: a restart finds %d (%v), want %d", c.Path, wrote.Number, ever, ceiling.freq)
		}
	}
}

// A disk that freezes while the originals go back stalls nothing either: what its record
// does not reach stays where it is, and stays saved.
func TestReleaseOnAFrozenDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config("127.0.0.1:1")
	stuck := &gate{}
	n, err := start(cfg, testLog(t), hungDisk{statedir.OS{Dir: cfg.StateDir}, stuck})
	if err != nil {
		t.Fatal(err)
	}
	n.records.Start()
	n.records.Trail.Behind(func(f originals.RecordFile) originals.RecordFile { return hungRecords{f, stuck} })
	defer func() {
		stuck.open()
		n.records.Stop()
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	capped := l.long()
	stuck.close()
	var out originals.Outcome
	returns(t, "the loop goes on", func() { out = n.release.putBack() })
	if out.Failed == 0 || n.records.Journal == nil || l.long() > capped {
		t.Errorf("%+v, limit %v, it was %v: raised without a record", out, l.long(), capped)
	}
	stuck.open()
	returns(t, "the disk answers again", func() { out = n.release.putBack() })
	if out.Failed != 0 || n.records.Journal != nil || l.long() == capped {
		t.Errorf("%+v, limit %v once the disk answers", out, l.long())
	}
	if j, err := originals.Load(n.disk); j != nil || err != nil || l.held().State != records.StateReleased {
		t.Errorf("journal %v, %v, held.json %v afterwards", j, err, l.held().State)
	}
}

// hungRemoval is a state directory that stops answering when files are removed.
type hungRemoval struct {
	statedir.Disk

	gate *gate
}

func (d hungRemoval) Remove(name string) error {
	d.gate.pass()
	return d.Disk.Remove(name)
}

// A disk that freezes when the originals are back already keeps the loop no longer: the
// journal goes once it answers.
func TestForgettingOnAFrozenDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config("127.0.0.1:1")
	stuck := &gate{}
	n, err := start(cfg, testLog(t), hungRemoval{statedir.OS{Dir: cfg.StateDir}, stuck})
	if err != nil {
		t.Fatal(err)
	}
	n.records.Start()
	defer func() {
		n.records.Stop()
		if err := n.close(); err != nil {
			t.Error(err)
		}
		if j, err := originals.Load(n.disk); j != nil || err != nil {
			t.Errorf("journal %v, %v: it goes once the disk answers", j, err)
		}
	}()
	stuck.close()
	var out originals.Outcome
	returns(t, "the loop goes on", func() { out = n.release.putBack() })
	stuck.open()
	if out.Failed != 0 || n.records.Journal != nil {
		t.Errorf("%+v, journal %v", out, n.records.Journal)
	}
}

// returns demands that do ends.
func returns(t *testing.T, what string, do func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	waitFor(t, what, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}
