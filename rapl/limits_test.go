// Claims: limits go in the safe order and every field reads back; what stands
// already is not written again; a note that fails stops its write and no other;
// somebody else's write shows as drift; the lower of two twins binds.
package rapl

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/units"
)

// Lesson 7: limits, then windows, then the switch; all fields are verified.
func TestApplyOrder(t *testing.T) {
	t.Parallel()
	m, k, _, l := onePackage(t)
	m.write("sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/enabled", "0\n")
	lower := Limits{Long: 95 * units.Watt, Short: 114 * units.Watt, LongWindow: 250 * time.Millisecond, ShortWindow: 10 * time.Millisecond, Enable: true}
	got, err := l.Apply(lower, nil)
	if err != nil || got != lower {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := []string{longFile + "=95000000", shortFile + "=114000000", "constraint_1_time_window_us=250000", "constraint_0_time_window_us=10000", "enabled=1"}
	if !slices.Equal(k.written, want) {
		t.Errorf("lowered by\n got %v\nwant %v", k.written, want)
	}
	k.written = nil
	if _, err := l.Apply(lower, nil); err != nil || len(k.written) != 0 {
		t.Errorf("the same again wrote %v, %v", k.written, err)
	}
	if _, err := l.Apply(Limits{Long: 150 * units.Watt, Short: 180 * units.Watt}, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{shortFile + "=180000000", longFile + "=150000000"}; !slices.Equal(k.written, want) {
		t.Errorf("raised by\n got %v\nwant %v", k.written, want)
	}
	if l.Lock() != Unlocked {
		t.Errorf("lock %v after writes that took", l.Lock())
	}
}

// One failing control does not stop the rest.
func TestApplyContinues(t *testing.T) {
	t.Parallel()
	_, k, _, l := onePackage(t)
	k.writing[longFile] = unix.ENODATA
	got, err := l.Apply(Limits{Long: 95 * units.Watt, Short: 114 * units.Watt, LongWindow: time.Second}, nil)
	var refused *WriteError
	if !errors.As(err, &refused) || refused.Constraint != LongTerm {
		t.Errorf("error %v", err)
	}
	if got.Long != 200*units.Watt || got.Short != 114*units.Watt || got.LongWindow != time.Second {
		t.Errorf("reads %+v", got)
	}
}

func TestApplyNotes(t *testing.T) {
	t.Parallel()
	_, k, _, l := onePackage(t)
	full := errors.New("journal full")
	var noted []string
	note := func(path string, value, before int64) error {
		noted = append(noted, path)
		if strings.HasSuffix(path, longFile) {
			return full
		}
		if before != 250_000_000 || value != 114_000_000 {
			t.Errorf("%s noted as %d over %d", path, value, before)
		}
		return nil
	}
	_, err := l.Apply(Limits{Long: 95 * units.Watt, Short: 114 * units.Watt}, note)
	if !errors.Is(err, full) || len(noted) != 2 {
		t.Errorf("noted %v, error %v", noted, err)
	}
	if want := []string{shortFile + "=114000000"}; !slices.Equal(k.written, want) {
		t.Errorf("wrote %v, want %v", k.written, want)
	}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	_, k, _, l := onePackage(t)
	for _, w := range []time.Duration{0, -time.Second, time.Nanosecond} {
		if _, err := l.SetWindow(LongTerm, w); !errors.Is(err, errZeroWindow) {
			t.Errorf("%v: error %v", w, err)
		}
	}
	k.texts["constraint_1_time_window_us"] = "499712\n"
	if got, err := l.SetWindow(LongTerm, 500*time.Millisecond); err != nil || got != 499712*time.Microsecond {
		t.Errorf("rounded window: %v, %v", got, err)
	}
	if got, err := l.SetWindow(LongTerm, 5*time.Second); !errors.Is(err, ErrNotTaken) || got != 499712*time.Microsecond {
		t.Errorf("window that did not take: %v", err)
	}
	if l.Lock() == Locked {
		t.Error("a window that firmware fixed is taken for locked limits")
	}
}

// Lesson 19: a rival that writes the same controls is seen.
func TestDrift(t *testing.T) {
	t.Parallel()
	m, _, tree, l := onePackage(t)
	dir := tree.Zones()[0].Dir
	if d, err := l.Drift(); err != nil || len(d) != 0 {
		t.Errorf("drift before any write: %v, %v", d, err)
	}
	if _, err := l.SetPower(LongTerm, 95_060_000); err != nil { // reads back as 95 W: no drift
		t.Fatal(err)
	}
	if d, err := l.Drift(); err != nil || len(d) != 0 {
		t.Errorf("drift from rounding: %v, %v", d, err)
	}
	m.write(dir+"/"+longFile, "180000000\n")
	d, err := l.Drift()
	if err != nil || len(d) != 1 || d[0] != (Drift{Path: l.PowerPath(LongTerm), Written: 95_000_000, Reads: 180_000_000}) {
		t.Errorf("drift %+v, %v", d, err)
	}
}

// Lesson 9: of two registers the lower limit wins, and a write to the other one
// changes nothing.
func TestBinding(t *testing.T) {
	t.Parallel()
	const mmio = "sys/devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio:0/"
	for _, c := range []struct {
		name, enabled, limit string
		want                 units.Power
		zone                 string
	}{
		{name: "lower twin", enabled: "1", limit: "6000000", want: 6 * units.Watt, zone: "package-0-mmio"},
		{name: "higher twin", enabled: "1", limit: "60000000", want: 28 * units.Watt, zone: "package-0"},
		{name: "twin that is off, or locked", enabled: "0", limit: "6000000", want: 28 * units.Watt, zone: "package-0"},
		{name: "twin of 0 W", enabled: "1", limit: "0", want: 28 * units.Watt, zone: "package-0"},
		{name: "unreadable twin", enabled: "1", limit: "?", want: 28 * units.Watt, zone: "package-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := plant(t, "client-psys-mmio")
			m.write(mmio+"enabled", c.enabled+"\n")
			m.write(mmio+"constraint_0_power_limit_uw", c.limit+"\n")
			tree := m.open()
			b, err := tree.Binding(tree.OfKind(Package)[0], LongTerm)
			if err != nil || b.Limit != c.want || b.Zone.Label != c.zone || !b.On {
				t.Errorf("binding %+v, %v", b, err)
			}
		})
	}
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	files := packageFiles(0)
	files["enabled"] = "0\n"
	m.zone("intel-rapl", "intel-rapl:0", "package-0", files)
	tree := m.open()
	if b, err := tree.Binding(tree.Zones()[0], LongTerm); err != nil || b.On {
		t.Errorf("binding %+v, %v, want it off", b, err)
	}
	if r := tree.Remarks(); len(r) != 1 || r[0].Code != RemarkSwitched {
		t.Errorf("remarks %+v", r)
	}
}
