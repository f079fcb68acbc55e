// Claims: what a meter reports as known is what was spent, whatever the counter
// does; what it cannot know is left out of the total and named; the total never
// goes back; dies that show one counter are found, and counters of their own are
// not taken for one.
package rapl

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"headroom/units"
)

func at(s float64) Moment {
	d := time.Duration(s * float64(time.Second))
	return Moment{Boot: d, Awake: d}
}

func TestWhyUnknown(t *testing.T) {
	t.Parallel()
	const span = 262_143_328_850
	type look struct {
		at    Moment
		count units.Energy
		why   Why
	}
	for _, c := range []struct {
		name     string
		powerMax units.Power
		span     units.Energy
		looks    []look
		total    units.Energy
	}{
		{"wrap", 800 * units.Watt, span, []look{
			{at(0), span - 50*units.Joule, WhyFirst}, {at(1), 50 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		// Lesson 1: the counter of an AMD socket at 280 W wraps in 234 s.
		{"AMD, 200 s apart", 280 * units.Watt, 65_532_610_987, []look{
			{at(0), 60 * units.Kilojoule, WhyFirst}, {at(200), 60*units.Kilojoule + 56*units.Kilojoule - 65_532_610_987, WhyMeasured},
		}, 56 * units.Kilojoule},
		{"AMD, 235 s apart", 280 * units.Watt, 65_532_610_987, []look{
			{at(0), 0, WhyFirst}, {at(235), 300 * units.Joule, WhyGap}, {at(236), 500 * units.Joule, WhyMeasured},
		}, 200 * units.Joule},
		{"reset", 800 * units.Watt, span, []look{
			{at(0), 600 * units.Joule, WhyFirst}, {at(1), 5 * units.Joule, WhyReset}, {at(2), 105 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		{"reset of a counter without a range", 800 * units.Watt, 0, []look{
			{at(0), 600 * units.Joule, WhyFirst}, {at(1), 5 * units.Joule, WhyReset},
		}, 0},
		// Lesson 2: fixing permissions at run time once gave 53,130 W.
		{"jump", 800 * units.Watt, span, []look{
			{at(0), 0, WhyFirst}, {at(1), 53_130 * units.Joule, WhyJump}, {at(2), 53_230 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		{"1000 times, and back", 800 * units.Watt, span, []look{
			{at(0), 100 * units.Joule, WhyFirst},
			{at(1), 200 * units.Kilojoule, WhyJump},
			{at(2), 300 * units.Joule, WhyReset},
			{at(3), 400 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		{"suspend", 800 * units.Watt, span, []look{
			{at(10), 0, WhyFirst},
			{Moment{Boot: 70 * time.Second, Awake: 11 * time.Second}, 100 * units.Joule, WhySuspended},
			{Moment{Boot: 71 * time.Second, Awake: 12 * time.Second}, 200 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		{"clocks read a little apart", 800 * units.Watt, span, []look{
			{at(10), 0, WhyFirst}, {Moment{Boot: 11 * time.Second, Awake: 10900 * time.Millisecond}, 100 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
		{"same moment, nothing lost", 800 * units.Watt, span, []look{
			{at(0), 0, WhyFirst}, {at(1), 100 * units.Joule, WhyMeasured}, {at(1), 150 * units.Joule, WhySameTime}, {at(2), 200 * units.Joule, WhyMeasured},
		}, 200 * units.Joule},
		{"clock that went back", 800 * units.Watt, span, []look{
			{at(5), 0, WhyFirst}, {at(4), 100 * units.Joule, WhyFirst}, {at(5), 200 * units.Joule, WhyMeasured},
		}, 100 * units.Joule},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &Meter{span: c.span, powerMax: c.powerMax}
			for i, l := range c.looks {
				r := m.next(l.count, l.at)
				if r.Why != l.why || r.Known != (l.why == WhyMeasured) || !r.Known && r.Energy != 0 {
					t.Errorf("look %d: %+v (%v), want %v", i, r, r.Why, l.why)
				}
			}
			if got, known := m.Total(); got != c.total || known != (c.total > 0) {
				t.Errorf("total %v (%v), want %v", got, known, c.total)
			}
		})
	}
}

// Lesson 1: whatever is done to a counter - wraps, resets, gaps, jumps, failures -
// the total never goes back, and never exceeds what was really spent, as long as a
// reset loses what was counted.
func TestTotalIsNeverTooHigh(t *testing.T) {
	t.Parallel()
	const span, powerMax = 10_000 * units.Joule, 200 * units.Watt
	rapid.Check(t, func(t *rapid.T) {
		m := &Meter{span: span, powerMax: powerMax}
		var now time.Duration
		count := units.Energy(rapid.Int64Range(0, int64(span)-1).Draw(t, "start"))
		var spent, before units.Energy
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "ms")) * time.Millisecond
			used := units.Energy(rapid.Float64Range(0, 1).Draw(t, "load") * float64(powerMax.For(step)))
			now += step
			spent += used
			count = (count + used) % span
			if rapid.IntRange(0, 9).Draw(t, "event") == 0 {
				m.fail(at(now.Seconds()))
			} else {
				m.next(count, Moment{Boot: now, Awake: now})
			}
			total, _ := m.Total()
			if total < before || total > spent {
				t.Fatalf("total %d after %d, spent %d", total, before, spent)
			}
			before = total
			covered, missed := m.Covered()
			if covered+missed > now {
				t.Fatalf("covered %v and missed %v of %v", covered, missed, now)
			}
		}
	})
}

// Lesson 11: sentinels such as all ones are no energy.
func TestSentinels(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	meter := NewMeter(m.open().Zones()[0])
	for i, text := range []string{"262143328850", "4294967295000000", "18446744073709551615", "9223372036854775807"} {
		m.write(dir+"/energy_uj", text+"\n")
		r, err := meter.Look(time.Duration(i+1) * time.Second)
		if err == nil || r.Known || meter.Unchanged() != 0 {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
		if i < 2 && !errors.Is(err, errImplausible) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// Lesson 2: permissions that flip: the first difference after an error spans a
// time that nobody watched.
func TestPermissionFlips(t *testing.T) {
	t.Parallel()
	m, k, tree, _ := onePackage(t)
	file := tree.Zones()[0].Dir + "/energy_uj"
	meter := NewMeter(tree.Zones()[0])
	for i, s := range []struct {
		denied bool
		count  string
		why    Why
	}{
		{false, "0", WhyFirst},
		{false, "100000000", WhyMeasured},
		{true, "200000000", WhyFailed},
		{true, "300000000", WhyFailed},
		{false, "400000000", WhyFirst},
		{false, "500000000", WhyMeasured},
	} {
		delete(k.reading, "energy_uj")
		if s.denied {
			k.reading["energy_uj"] = unix.EACCES
		}
		m.write(file, s.count+"\n")
		if r, _ := meter.Look(time.Duration(i) * time.Second); r.Why != s.why {
			t.Errorf("look %d: %v, want %v", i, r.Why, s.why)
		}
	}
	total, _ := meter.Total()
	covered, missed := meter.Covered()
	if total != 200*units.Joule || covered != 2*time.Second || missed != 3*time.Second {
		t.Errorf("total %v over %v, missed %v", total, covered, missed)
	}
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	m := &Meter{span: units.Kilojoule, powerMax: units.Watt}
	for i, want := range []float64{0, 0, 1, 2, 0, 1} {
		count := units.Energy(min(i, 1))
		if i > 3 {
			count = 2
		}
		m.next(count, at(float64(i)))
		if got := m.Unchanged(); got != time.Duration(want*float64(time.Second)) {
			t.Errorf("look %d: unchanged for %v, want %v s", i, got, want)
		}
	}
}

// Lesson 3: some processors show one counter once for each die, and those who add
// them up multiply the power by the number of dies.
func TestMirroredDies(t *testing.T) {
	t.Parallel()
	zones := plant(t, "clx-ap-4die").open().OfKind(Package)
	m := NewMirrors(zones)
	a, b := units.Energy(1000), units.Energy(700)
	changes := 0
	for i := range 100 {
		a += units.Energy(25_000_000 + i)
		b += units.Energy(25_000_000 + i) // as fast, from another beginning: its own counter
		skew := units.Energy(0)
		if i%10 == 0 {
			skew = 61 // it ticked between two reads
		}
		if m.Note([]units.Energy{a, a + skew, b, b}) {
			changes++
		}
	}
	if !m.Counts(0) || m.Counts(1) || !m.Counts(2) || m.Counts(3) || m.Of(1) != zones[0] || m.Of(3) != zones[2] || m.Of(2) != nil {
		t.Errorf("counted: %v %v %v %v", m.Counts(0), m.Counts(1), m.Counts(2), m.Counts(3))
	}
	if changes != 1 {
		t.Errorf("%d changes of verdict, want 1", changes)
	}
}

// Two sockets that were switched on together and idle alike may show equal numbers
// for ever: leaving one out would halve the power that is seen. Only dies of one
// package mirror, each with its own sister.
func TestSocketsNeverMirror(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tree    string
		counted []bool
	}{
		{"clx-ap-4die", []bool{true, false, true, false}},
		{"xeon-2s", []bool{true, true}},
	} {
		zones := plant(t, c.tree).open().OfKind(Package)
		m := NewMirrors(zones)
		counts := make([]units.Energy, len(zones))
		for i := range 200 {
			for j := range counts {
				counts[j] = units.Energy(25_000_000 * i)
			}
			m.Note(counts)
		}
		for i, want := range c.counted {
			if m.Counts(i) != want {
				t.Errorf("%s: %s counted %v, want %v", c.tree, zones[i].Label, !want, want)
			}
		}
	}
}

func TestIdleCountersAreNoMirrors(t *testing.T) {
	t.Parallel()
	zones := plant(t, "clx-ap-4die").open().OfKind(Package)[:2]
	m := NewMirrors(zones)
	for range 200 {
		m.Note([]units.Energy{5, 5}) // neither moves
		m.Note([]units.Energy{-1, -1})
	}
	if !m.Counts(1) {
		t.Error("two counters that never moved are taken for one")
	}
	meters := []*Meter{NewMeter(zones[0]), NewMeter(zones[1])}
	if m.NoteMeters(meters) {
		t.Error("meters that never looked changed a verdict")
	}
}

// Lesson 3: two counters that count apart are two, however alike they work.
func TestIndependentCountersStayApart(t *testing.T) {
	t.Parallel()
	zones := plant(t, "clx-ap-4die").open().OfKind(Package)[:2]
	rapid.Check(t, func(t *rapid.T) {
		m := NewMirrors(zones)
		var a, b units.Energy
		for range 80 {
			a += units.Energy(rapid.Int64Range(0, 1<<24).Draw(t, "a"))
			b += units.Energy(rapid.Int64Range(1<<20, 1<<24).Draw(t, "b"))
			m.Note([]units.Energy{a, b + 1})
			if b+1 == a {
				return
			}
		}
		if !m.Counts(1) {
			t.Fatal("independent counters are taken for one")
		}
	})
}

// Lesson 2: a package that is unplugged and comes back goes on with the same Zone,
// Meter and Limiter; the first difference is dropped.
func TestHotUnplug(t *testing.T) {
	t.Parallel()
	m := twoSockets(t)
	tree := m.open()
	z := tree.OfKind(Package)[1]
	meter := NewMeter(z)
	l, err := z.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	look := func(s float64) Reading {
		r, _ := meter.LookAt(at(s))
		return r
	}
	look(0)
	m.write(z.Dir+"/energy_uj", "100000020\n")
	if r := look(1); !r.Known || r.Energy != 100*units.Joule {
		t.Fatalf("before: %+v", r)
	}
	link := filepath.Join(m.dir, classDir, "intel-rapl:2")
	if err := errors.Join(os.Remove(link), os.Remove(link+":0"), os.RemoveAll(filepath.Join(m.dir, z.Dir))); err != nil {
		t.Fatal(err)
	}
	c, err := tree.Refresh()
	if err != nil || len(c.Gone) != 2 || c.Gone[0] != z || !z.Gone() { // and its memory
		t.Fatalf("changes %+v, %v", c, err)
	}
	if r := look(2); r.Known || r.Why != WhyFailed {
		t.Errorf("gone, but reads %+v", r)
	}
	if _, err := l.SetPower(LongTerm, 95*units.Watt); !errors.Is(err, errGone) {
		t.Errorf("limit of a gone zone: %v", err)
	}
	if c, err := tree.Refresh(); err != nil || c.Any() {
		t.Errorf("gone twice: %+v, %v", c, err)
	}
	m.zone("intel-rapl", "intel-rapl:2", "package-1", packageFiles(3))
	if c, err = tree.Refresh(); err != nil || len(c.Back) != 1 || c.Back[0] != z || z.Gone() {
		t.Fatalf("changes %+v, %v", c, err)
	}
	if r := look(3); r.Known {
		t.Errorf("first difference after the return: %+v", r)
	}
	m.write(z.Dir+"/energy_uj", "50000003\n")
	if r := look(4); !r.Known || r.Energy != 50*units.Joule {
		t.Errorf("after the return: %+v", r)
	}
	if total, _ := meter.Total(); total != 150*units.Joule {
		t.Errorf("total %v", total)
	}
	if got, err := l.SetPower(LongTerm, 95*units.Watt); err != nil || got != 95*units.Watt {
		t.Errorf("limit after the return: %v, %v", got, err)
	}
	if p, err := z.constraint(LongTerm).Power(); err != nil || p != 95*units.Watt {
		t.Errorf("the zone reads %v, %v", p, err)
	}
}

// Lesson 3: a number that another package got meanwhile is another zone.
func TestNumberGivenAway(t *testing.T) {
	t.Parallel()
	m := twoSockets(t)
	tree := m.open()
	z := tree.OfKind(Package)[1]
	m.write(z.Dir+"/name", "package-3\n")
	c, err := tree.Refresh()
	if err != nil || len(c.Gone) != 1 || c.Gone[0] != z || len(c.Added) != 1 || c.Added[0].Label != "package-3" {
		t.Errorf("changes %+v, %v", c, err)
	}
}
