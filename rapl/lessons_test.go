// Claims: a gap longer than the counter's range lasts is unknown, for each machine
// by its own range; only packages take a limit, whatever else shows one; a highest
// limit that cannot be is not believed.
package rapl

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/units"
)

// Lesson 1: after a gap in which the counter may have gone round, nothing is known.
// How long that takes follows from the range and from the highest power that the
// zone can draw; a second between two looks is safe on all of them.
func TestGapLongerThanTheRangeLasts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		span     units.Energy
		design   units.Power // as stated; 0: the zone states none
		lasts    time.Duration
		measured time.Duration // a gap that is safe
	}{
		{"Intel, 200 W", 262_143_328_850, 200 * units.Watt, 1310 * time.Second, 300 * time.Second},
		{"Intel, 350 W", 262_143_328_850, 350 * units.Watt, 749 * time.Second, 180 * time.Second},
		{"AMD, which states nothing, at 280 W", 65_532_610_987, 0, 234 * time.Second, 16 * time.Second},
		{"AMD at 500 W", 65_532_610_987, 0, 131 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			files := packageFiles(0)
			files["max_energy_range_uj"] = strconv.FormatInt(int64(c.span), 10) + "\n"
			for _, n := range []string{"0", "1"} {
				files["constraint_"+n+"_max_power_uw"] = strconv.FormatInt(int64(c.design), 10) + "\n"
			}
			dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", files)
			meter := NewMeter(m.open().Zones()[0])
			count, now := int64(0), time.Duration(0)
			look := func(gap time.Duration) Reading {
				now += gap
				count = (count + int64(gap.Seconds()*1e6)) % int64(c.span) // 1 W
				m.write(dir+"/energy_uj", strconv.FormatInt(count, 10)+"\n")
				r, err := meter.Look(now)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			look(time.Second)
			for _, safe := range []time.Duration{250 * time.Millisecond, time.Second, c.measured} {
				if r := look(safe); !r.Known {
					t.Errorf("after %v: %v", safe, r.Why)
				}
			}
			for _, long := range []time.Duration{c.lasts, 2 * c.lasts, 24 * time.Hour} {
				if r := look(long); r.Known || r.Why != WhyGap || r.Energy != 0 {
					t.Errorf("after %v: %+v, want it unknown for the gap", long, r)
				}
			}
		})
	}
}

// Lesson 4: core, memory and platform zones show limits as well, and another control
// type may name a zone package-0. None of them takes a cap; of a package's three
// constraints the one of peak power is never touched.
func TestOnlyPackagesTakeALimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "psys", packageFiles(1))
	peak := packageFiles(2)
	peak["constraint_2_name"], peak["constraint_2_power_limit_uw"], peak["constraint_2_max_power_uw"] = "peak_power\n", "300000000\n", "0\n"
	m.zone("intel-rapl", "intel-rapl:1", "package-0", peak)
	m.zone("intel-rapl/intel-rapl:1", "intel-rapl:1:0", "core", packageFiles(3))
	memory := packageFiles(4)
	memory["constraint_1_max_power_uw"] = "40000000\n"
	m.zone("intel-rapl/intel-rapl:1", "intel-rapl:1:1", "dram", memory)
	m.zone("dtpm", "dtpm:0", "package-0", packageFiles(5))
	tree := m.open()
	if got, want := labels(tree.Zones()), "package-0 core-0 dram-0 psys"; got != want {
		t.Fatalf("zones %s, want %s", got, want)
	}
	for _, z := range tree.Zones() {
		l, err := z.Limiter()
		if z.Kind != Package {
			if !errors.Is(err, errNotPackage) {
				t.Errorf("%s takes a limit: %v", z.Label, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		for _, c := range l.Controls() {
			if strings.Contains(c.Path(), "constraint_2") {
				t.Errorf("%s may be written", c.Path())
			}
		}
		if top, ok := z.PowerMax(); !ok || top != 200*units.Watt {
			t.Errorf("highest limit %v, the memory's 40 W is none of it", top)
		}
	}
}

// Lesson 6: a limit clamped to a highest one of next to nothing is as bad as 0 W, so
// what no package is designed for is not believed, and does not bound what is
// measured either.
func TestImpossibleMaximumIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "1", "125000", "999999", "-5", "x"} {
		m := newMachine(t)
		files := packageFiles(0)
		files["constraint_0_max_power_uw"], files["constraint_1_max_power_uw"] = text+"\n", text+"\n"
		dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", files)
		z := m.open().Zones()[0]
		if top, ok := z.PowerMax(); ok || top != 0 {
			t.Errorf("%q: highest limit %v", text, top)
		}
		meter := NewMeter(z)
		_, _ = meter.Look(time.Second)
		m.write(dir+"/energy_uj", "150000000\n")
		if r, err := meter.Look(2 * time.Second); err != nil || !r.Known || r.Energy != 150*units.Joule {
			t.Errorf("%q: 150 W were measured as %+v, %v", text, r, err)
		}
	}
}

// Lesson 2: a zone that was taken away and registered anew between two looks counts
// from somewhere else, although no look ever failed.
func TestReplacedZoneDropsOneDifference(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	tree := m.open()
	meter := NewMeter(tree.Zones()[0])
	look := func(s float64, count string) Reading {
		m.write(dir+"/energy_uj", count+"\n")
		r, err := meter.LookAt(at(s))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	look(0, "0")
	if r := look(1, "100000000"); !r.Known {
		t.Fatalf("before: %+v", r)
	}
	if err := errors.Join(os.Rename(filepath.Join(m.dir, dir), filepath.Join(m.dir, "gone")), os.Remove(filepath.Join(m.dir, classDir, "intel-rapl:0"))); err != nil {
		t.Fatal(err)
	}
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	if c, err := tree.Refresh(); err != nil || len(c.Back) != 1 {
		t.Fatalf("changes %+v, %v", c, err)
	}
	if r := look(2, "250000000"); r.Known {
		t.Errorf("the new zone's counter was compared with the old one's: %+v", r)
	}
	if r := look(3, "350000000"); !r.Known || r.Energy != 100*units.Joule {
		t.Errorf("after: %+v", r)
	}
}
