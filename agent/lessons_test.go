// Claims: what broke other power software does not break this node: it writes in the
// safe order and verifies each field, keeps what it wrote and nothing more often than
// needed, restores what it found past whatever fails, takes ranges as they come,
// tells packages that are gone from those that are off, and comes back to its
// coordinators by chance and within bounds.
package agent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/lease"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

const (
	packageDir = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/"
	longLimit  = packageDir + "constraint_0_power_limit_uw"
	shortLimit = packageDir + "constraint_1_power_limit_uw"
	longWindow = packageDir + "constraint_0_time_window_us"
	enabled    = packageDir + "enabled"
)

// put writes a file of the machine as another program would.
func (b *stand) put(file, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.cfg.Root, file), []byte(text+"\n"), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// get reads a number of the machine.
func (b *stand) get(file string) int64 {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.cfg.Root, file))
	if err != nil {
		b.t.Fatal(err)
	}
	v, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(string(data), "\n", 2)[0]), 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// started is a stand with a node on it.
func started(t *testing.T, b *stand) *stand {
	t.Helper()
	b.what = t.Name()
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.leave)
	return b
}

// recorder stands between the node and the package's files.
type recorder struct {
	writes []string          // "file=value" of each
	deaf   func(string) bool // writes to these files do nothing
}

func (r *recorder) open(root *os.Root) (*rapl.Tree, error) {
	open := func(name string, write bool) (sysfs.File, error) {
		f, err := sysfs.Disk(root)(name, write)
		if err != nil {
			return nil, err
		}
		return &recorded{File: f, r: r, name: path.Base(name)}, nil
	}
	return rapl.OpenZones(open, []rapl.Dir{
		{Path: strings.TrimSuffix(packageDir, "/"), Control: rapl.ControlMSR},
		{Path: packageDir + "intel-rapl:0:1", Control: rapl.ControlMSR},
	})
}

type recorded struct {
	sysfs.File
	r    *recorder
	name string
}

func (f *recorded) Pwrite(text []byte) (int, error) {
	f.r.writes = append(f.r.writes, f.name+"="+strings.TrimSpace(string(text)))
	if f.r.deaf != nil && f.r.deaf(f.name) {
		return len(text), nil
	}
	return f.File.Pwrite(text)
}

// Lesson 2: the clock that stops in sleep tells a suspend, and the difference of the
// counters across it is no power.
func TestSuspendIsNoPower(t *testing.T) {
	t.Parallel()
	b := started(t, newStand(t, "xeon-1s"))
	b.turn(4)
	if !b.n.meter.Sample.Package.Known {
		t.Fatalf("sample %+v", b.n.meter.Sample)
	}
	limit := b.n.machine.Packages[0].Written.Long
	b.step(time.Second)
	b.now.Boot += time.Minute // the machine slept
	b.now.Awake += time.Second
	b.n.turn(b.now)
	if b.n.meter.Sample.Package.Known || b.n.machine.Packages[0].Written.Long > limit {
		t.Errorf("sample %+v, limit %v after a suspend, it was %v", b.n.meter.Sample, b.n.machine.Packages[0].Written.Long, limit)
	}
	b.turn(2)
	if !b.n.meter.Sample.Package.Known {
		t.Errorf("sample %+v one turn later", b.n.meter.Sample)
	}
}

// Lesson 2: a counter that stands still draws nothing into any sum: for a moment the
// power is told when it moves again, over the whole time, and after that it is unknown.
func TestStandingCounterIsNoPower(t *testing.T) {
	t.Parallel()
	b := started(t, newStand(t, "xeon-1s"))
	b.turn(8)
	before, known := b.n.meter.Mean.Value()
	if !known {
		t.Fatal("the power of a healthy node is not known")
	}
	counter := filepath.Join(b.cfg.Root, packageDir+"intel-rapl:0:1/energy_uj")
	stood, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	limit := b.n.machine.Packages[0].Written.Long
	b.spoiled = func() { overwrite(counter, string(stood)) }
	b.turn(1)
	if p, ok := b.n.meter.Mean.Value(); !ok || p != before || b.n.meter.Sample.DRAM.Known {
		t.Errorf("power %v (%v) and sample %+v after a moment; it was %v", p, ok, b.n.meter.Sample, before)
	}
	b.spoiled = func() {}
	b.turn(1)
	if p, ok := b.n.meter.Mean.Value(); !ok || p > before+before/20 || p < before-before/20 || !b.n.meter.Sample.DRAM.Known {
		t.Errorf("power %v (%v), sample %+v once it moves again; it was %v", p, ok, b.n.meter.Sample, before)
	}
	stood, _ = os.ReadFile(counter)
	b.spoiled = func() { overwrite(counter, string(stood)) }
	b.turn(8)
	if p, ok := b.n.meter.Mean.Value(); ok {
		t.Errorf("power %v from a counter that is frozen", p)
	}
	if got := b.n.machine.Packages[0].Written.Long; got > limit {
		t.Errorf("limit %v above %v with a counter that is frozen", got, limit)
	}
	b.turn(4)
	if !shown(b.n, "sensor") {
		t.Errorf("items %v", b.n.health.List())
	}
	b.spoiled = func() {}
}

// Lesson 4: the highest limit of the packages is theirs alone, whatever memory and
// core zones say about theirs.
func TestHighestLimitIsThePackages(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	b.put(packageDir+"intel-rapl:0:1/constraint_0_max_power_uw", "20000000")
	started(t, b)
	if got := b.n.machine.PackageMax(); got != 185*units.Watt {
		t.Errorf("highest limit %v, want the package's 185 W", got)
	}
	for _, c := range b.n.machine.Controls() {
		if strings.Contains(c.Path, ":0:") {
			t.Errorf("%s may be written", c.Path)
		}
	}
}

// Lesson 6: taking a cap away is putting back what was there, limit and switch. Limits
// that were switched off are off again, and one of 0 W that was never in force is not
// written, whatever was saved.
func TestUncappingIsPuttingBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, on string
		want      func(limit int64) bool
	}{
		"switched off": {"120000000", "0", func(limit int64) bool { return limit == 120_000_000 }},
		"switched on":  {"120000000", "1", func(limit int64) bool { return limit == 120_000_000 }},
		"0 W, off":     {"0", "0", func(limit int64) bool { return limit >= int64(10*units.Watt) && limit < int64(200*units.Watt) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStand(t, "xeon-1s")
			b.put(longLimit, c.limit)
			b.put(enabled, c.on)
			b.step(period)
			b.what = name
			if err := b.boot(); err != nil {
				t.Fatal(err)
			}
			b.turn(4)
			b.grant(150 * units.Watt)
			b.turn(8)
			if b.get(enabled) != 1 {
				t.Error("the limits were not switched on")
			}
			b.leave()
			if got := b.get(longLimit); !c.want(got) {
				t.Errorf("limit %d after the end", got)
			}
			if got := strconv.FormatInt(b.get(enabled), 10); got != c.on {
				t.Errorf("switch %s after the end, want %s", got, c.on)
			}
		})
	}
}

// Lesson 7: limits are written first, then their windows, then the switch, which also
// turns clamping on; after that every field has been read back.
func TestOrderOfTheFirstWrites(t *testing.T) {
	t.Parallel()
	b, r := newStand(t, "xeon-1s"), &recorder{}
	b.put(enabled, "0")
	b.step(period)
	b.openTree = r.open
	started(t, b)
	var kinds []string
	for _, w := range r.writes {
		for _, k := range []string{"power_limit_uw", "time_window_us", "enabled"} {
			if strings.Contains(w, k) && !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			} else if strings.Contains(w, k) && kinds[len(kinds)-1] != k {
				t.Errorf("%s comes late in %v", w, r.writes)
			}
		}
	}
	if len(r.writes) != 5 || !slices.Equal(kinds, []string{"power_limit_uw", "time_window_us", "enabled"}) {
		t.Errorf("wrote %v, want two limits, two windows, the switch", r.writes)
	}
}

// Lesson 7: each of the fields is verified: where one does not take, the rung does not
// hold, but for a window, which only settles slower.
func TestEveryFieldIsVerified(t *testing.T) {
	t.Parallel()
	for file, rung := range map[string]string{
		"constraint_0_power_limit_uw": rungCPUFreq, "constraint_1_power_limit_uw": rungCPUFreq, "enabled": rungCPUFreq,
		"constraint_0_time_window_us": rungRAPL, "constraint_1_time_window_us": rungRAPL,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			b, r := newStand(t, "xeon-1s"), &recorder{deaf: func(name string) bool { return name == file }}
			b.put(enabled, "0")
			b.step(period)
			b.openTree = r.open
			started(t, b)
			if b.n.control.rung() != rung {
				t.Errorf("rung %s, want %s: %s", b.n.control.rung(), rung, b.n.machine.Ladder.Why)
			}
			if strings.Contains(file, "window") != shown(b.n, "window-refused") {
				t.Errorf("items %v", b.n.health.List())
			}
		})
	}
}

// Lesson 7: where clamping has a switch of its own (registers), it is switched on as
// well, saved before, and put back; without it a limit is not held below the base
// frequency.
func TestClampIsSwitchedOnAndBack(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	clamp := packageDir + "clamp"
	b.put(clamp, "0")
	b.what = "clamp"
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	if b.get(clamp) != 1 || b.get(enabled) != 1 {
		t.Errorf("clamp %d, switch %d under a cap", b.get(clamp), b.get(enabled))
	}
	b.turn(4)
	b.put(clamp, "0")
	b.turn(4)
	if b.get(clamp) != 1 || !shown(b.n, "limit-drift") {
		t.Errorf("clamp %d, items %v: another program switched it off", b.get(clamp), b.n.health.List())
	}
	b.leave()
	if b.get(clamp) != 0 {
		t.Error("the clamp was not put back")
	}
}

// Lesson 7: a window that another program stretched is noticed within a second and
// written again: a mean over half a minute is no limit for a cap that moves.
func TestWindowsAreWatched(t *testing.T) {
	t.Parallel()
	b := started(t, newStand(t, "xeon-1s"))
	b.turn(8)
	own := b.get(longWindow)
	if own > int64(2*capping.LongWindow/time.Microsecond) || shown(b.n, "limit-drift") {
		t.Fatalf("window %d us, items %v", own, b.n.health.List())
	}
	b.put(longWindow, "27983872")
	b.turn(4)
	if got := b.get(longWindow); got > int64(2*capping.LongWindow/time.Microsecond) {
		t.Errorf("window %d us after a second", got)
	}
	if i, _ := b.n.health.Get("limit-drift"); !strings.Contains(i.Text, "window") || b.n.tally.counters.drifts == 0 {
		t.Errorf("item %+v, %d drifts", i, b.n.tally.counters.drifts)
	}
}

// Lesson 11: the outer loop, over the BMC, is ten times slower than the inner one,
// which is the package's own limit over its window; and a BMC's limit may never act
// faster than the loop corrects.
func TestOuterLoopIsTenTimesSlower(t *testing.T) {
	t.Parallel()
	if beat < 10*capping.LongWindow || period > time.Second {
		t.Errorf("period %v, outer loop %v, window of the limits %v", period, beat, capping.LongWindow)
	}
	b := started(t, newStand(t, "xeon-1s"))
	if c, err := b.n.cfg.BMC(); err != nil || c.LoopPeriod < beat || c.Period != 0 && c.Period < beat {
		t.Errorf("the BMC is asked every %v, with a loop of %v (%v)", c.Period, c.LoopPeriod, err)
	}
}

// Lesson 14: putting back goes on past a control that fails and one whose program is
// not there, says which those are, and keeps them saved until they are back.
func TestRestoreGoesOnPastWhatFails(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	before := b.controls()
	started(t, b)
	b.grant(150 * units.Watt)
	b.turn(8)
	far := originals.Saved{Path: remote.BMCPath, Label: "limit of the BMC", Kind: originals.BMC, Text: "1 false 0 0 0"}
	b.n.records.Journal.Controls = append([]originals.Saved{far}, b.n.records.Journal.Controls...)
	trail, err := originals.OpenTrail(b.cfg.StateDir, b.n.records.Journal, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(trail.NoteValue(remote.BMCPath, originals.Value{Text: "2 true 0 1000 1"}, originals.Value{Text: far.Text}), b.n.records.Trail.Close()); err != nil {
		t.Fatal(err)
	}
	b.n.records.Trail = trail
	window := filepath.Join(b.cfg.Root, longWindow)
	if err := os.Rename(window, window+".away"); err != nil {
		t.Fatal(err)
	}
	out := b.n.release.putBack()
	said := strings.Join(out.Kept, "; ")
	if out.Failed != 2 || !strings.Contains(said, "long_term window") || !strings.Contains(said, "BMC") {
		t.Errorf("%+v: want the window and the BMC's limit named", out)
	}
	for _, file := range []string{longLimit, shortLimit, enabled} {
		if got := strconv.FormatInt(b.get(file), 10); got != before[filepath.Join(b.cfg.Root, file)] {
			t.Errorf("%s holds %s, it held %s", file, got, before[filepath.Join(b.cfg.Root, file)])
		}
	}
	if j, err := originals.Load(b.disk); err != nil || j == nil || !saves(j, longWindow) {
		t.Errorf("journal %+v, %v: what did not go back must stay saved", j, err)
	}
	if err := os.Rename(window+".away", window); err != nil {
		t.Fatal(err)
	}
	b.n.records.Journal.Controls = b.n.records.Journal.Controls[1:]
	if out := originals.PutBack(b.n.files, b.n.records.Journal, b.n.records.Trail, originals.FilesOnly); out.Failed != 0 {
		t.Errorf("once it is there again: %+v", out)
	}
}

// Lesson 14: what goes back is the value before, a site's own, and not the factory's.
func TestTheSitesOwnLimitGoesBack(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	factory := b.get(longLimit)
	b.put(longLimit, "140000000")
	b.put(longWindow, "499712")
	b.step(period)
	b.what = "a site's own limit"
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	b.grant(110 * units.Watt)
	b.turn(8)
	b.leave()
	if limit, window := b.get(longLimit), b.get(longWindow); limit != 140_000_000 || window != 499_712 || limit == factory {
		t.Errorf("limit %d and window %d after the end, the site had 140 W over 499712 us", limit, window)
	}
}

// Lesson 19: what stands is written again only when it does not stand any more, and
// then with the same value: a node at rest writes nothing, and one whose limit was
// changed puts it right by itself, once.
func TestReassertsAndElseWritesNothing(t *testing.T) {
	t.Parallel()
	b, r := newStand(t, "xeon-1s"), &recorder{}
	b.openTree = r.open
	started(t, b)
	b.grant(120 * units.Watt)
	b.turn(60)
	r.writes = nil
	b.turn(40)
	if len(r.writes) > 0 {
		t.Errorf("a node at rest wrote %v", r.writes)
	}
	for _, file := range []string{longLimit, shortLimit} {
		for _, others := range []string{"150000000", "0", "10000000"} {
			own := strconv.FormatInt(b.get(file), 10)
			r.writes = nil
			b.put(file, others)
			b.n.turn(b.now)
			if want := []string{path.Base(file) + "=" + own}; !slices.Equal(r.writes, want) {
				t.Errorf("after another program's %s: wrote %v, want %v", others, r.writes, want)
			}
			b.turn(20)
			b.judge()
		}
	}
}

// Lesson 20: a range that moved below what was configured or remembered is taken as it
// is: the node starts, clamps, and says so until it fits again.
func TestRangesMoveAndAreClamped(t *testing.T) {
	t.Parallel()
	b := newStand(t, "xeon-1s")
	b.put(packageDir+"constraint_0_max_power_uw", "50000000")
	b.put(longLimit, "50000000") // a limit that was found above it would show that it is no bound
	started(t, b)
	b.turn(4)
	if i, _ := b.n.health.Get("range-moved"); !strings.Contains(i.Text, "50.0 W") || !strings.Contains(b.log.String(), "code=range-moved ") {
		t.Errorf("items %v: want the range named", b.n.health.List())
	}
	for _, granted := range []units.Power{95 * units.Watt, 240 * units.Watt, 100 * units.Kilowatt} {
		b.grant(granted)
		b.turn(8)
		if got := b.get(longLimit); got > 50_000_000 || got < 40_000_000 {
			t.Errorf("limit %d under a cap of %v, the package takes 50 W", got, granted)
		}
		b.judge()
	}
	b.grant(b.cfg.Power.Floor)
	b.turn(8)
	b.judge()
}

// Lesson 20: a fail-safe cap that was remembered from before and is above what is
// configured now is lowered, and so is one that makes no sense.
func TestRememberedCapIsClamped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remembered, want units.Power }{
		{240 * units.Watt, 95 * units.Watt}, {90 * units.Watt, 90 * units.Watt}, {1 << 62, 95 * units.Watt}, {-units.Watt, 95 * units.Watt},
	} {
		b := newStand(t, "xeon-1s")
		data, err := records.EncodeState(records.State{Memory: lease.Memory{FailSafe: c.remembered}})
		if err != nil {
			t.Fatal(err)
		}
		b.found = map[string][]byte{statedir.MemoryFile: data}
		if err := b.boot(); err != nil {
			t.Fatalf("%v: %v", c.remembered, err)
		}
		if got := b.n.lease.Memory().FailSafe; got != c.want {
			t.Errorf("remembered %v, configured 95 W: %v", c.remembered, got)
		}
		b.leave()
	}
}

// Lesson 21: a processor that counts energy and has no limits is normal: it is said
// once, frequency holds the cap, and nothing warns.
func TestAMDIsNormal(t *testing.T) {
	t.Parallel()
	b := started(t, newStand(t, "epyc"))
	b.grant(b.cfg.Power.FailSafe + b.cfg.Power.FailSafe/2)
	b.turn(20)
	for range 10 {
		b.n.hotplug.look(b.n.seconds)
	}
	b.judge()
	log := b.log.String()
	if n := strings.Count(log, "energy-only"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	if strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") || b.n.health.Len() > 0 {
		t.Errorf("items %v, log:\n%s", b.n.health.List(), log)
	}
	if b.n.control.rung() != rungCPUFreq || !b.n.meter.Sample.Package.Known {
		t.Errorf("rung %s, sample %+v", b.n.control.rung(), b.n.meter.Sample)
	}
	rows := b.n.report.ladderRows()
	if !slices.ContainsFunc(rows, func(row capping.RungInfo) bool { return row.Rung == capping.RungRAPL }) {
		t.Errorf("no row for RAPL in %+v", rows)
	}
	for _, row := range rows {
		if row.Rung == capping.RungRAPL && (row.State != capping.RungMissing || !strings.Contains(row.Text, "normal on AMD")) {
			t.Errorf("rung %+v", row)
		}
	}
}

// Lesson 3: zones are not processors. One whose zones are gone while it runs (the
// driver was unloaded) is bound by nothing that can be read, and charged as such; one
// that was unplugged draws nothing.
func TestGoneZonesAreNotGoneProcessors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offline bool
		lost    int
	}{"driver unloaded": {false, 1}, "unplugged": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := started(t, newStand(t, "xeon-2s"))
			b.grant(b.cfg.Power.FailSafe * 2)
			b.turn(8)
			second := filepath.Join(b.cfg.Root, "sys/devices/virtual/powercap/intel-rapl/intel-rapl:1")
			away := filepath.Join(t.TempDir(), "zone")
			if err := os.Rename(second, away); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Rename(away, second) }) // before the node leaves
			if c.offline {
				for cpu := range 16 {
					topology := filepath.Join(b.cfg.Root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology", cpu))
					if id, err := os.ReadFile(topology + "/physical_package_id"); err == nil && strings.TrimSpace(string(id)) == "1" {
						if err := os.RemoveAll(topology); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			b.n.hotplug.look(b.n.seconds)
			b.grant(b.cfg.Power.FailSafe)
			b.turn(4)
			if len(b.n.machine.Lost) != c.lost || shown(b.n, "lost-package") != (c.lost > 0) {
				t.Errorf("lost %v, items %v", b.n.machine.Lost, b.n.health.List())
			}
			h := b.n.holdingNow()
			if rated := h.GetEffectiveUw() >= int64(b.cfg.Power.Rated); rated != (c.lost > 0) {
				t.Errorf("holding %v, the node is rated %v", h, b.cfg.Power.Rated)
			}
		})
	}
}

// A value that was not written, because its record did not reach the disk in time, is not
// taken for written: what stands there would look like another program's doing, be left
// alone for a while, and held.json would say less than the hardware holds.
func TestRefusedValueIsNoDrift(t *testing.T) {
	t.Parallel()
	b := started(t, newStand(t, "xeon-1s"))
	b.grant(150 * units.Watt)
	b.turn(8)
	s := b.n.machine.Limited()[0]
	was, late := s.Written, errors.New("the record is late")
	err := s.Write(machine.Limits{Long: was.Long + units.Watt, Short: was.Short + units.Watt}, func(string, int64, int64) error { return late })
	if !errors.Is(err, late) || s.Written != was {
		t.Errorf("%v; written is %v, was %v", err, s.Written, was)
	}
	b.turn(8)
	if shown(b.n, "limit-drift") || b.n.tally.counters.drifts > 0 {
		t.Errorf("powerd's own value is taken for another program's: %v", b.n.health.List())
	}
}
