// Claims: P4 and P10: a control without travel holds no cap: such a node is uncontrolled and
// says why; where a part has no range, or a package takes no lower limit, the node declares
// the floor that it really reaches and is charged at least that.
package agent

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"headroom/capping"
	"headroom/units"
)

// fixCPUs gives the last policies of the machine one frequency only, or all of them.
func (l *lab) fixCPUs(share int) (fixed, all int) {
	l.t.Helper()
	const under = "sys/devices/system/cpu/cpufreq"
	found, err := filepath.Glob(filepath.Join(l.dir, "root", under, "policy*"))
	if err != nil || len(found) == 0 {
		l.t.Fatalf("policies %v: %v", found, err)
	}
	for i := range found {
		at := fmt.Sprintf("%s/policy%d/", under, i)
		if i*share >= len(found)*(share-1) {
			for _, f := range []string{"cpuinfo_min_freq", "scaling_min_freq"} {
				l.write(at+f, strconv.FormatInt(l.number(at+"cpuinfo_max_freq"), 10))
			}
			fixed++
		}
	}
	return fixed, len(found)
}

func TestFrequencyWithoutRangeIsNoControl(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	l.fixCPUs(1)
	n := loopless(t, l.config("127.0.0.1:1"))
	n.turn(instant())
	h, rows := n.exchange.hello(), n.report.ladderRows()
	if n.control.mode != observing || h.GetControlled() || h.GetRung() != rungNone || rows[1].State != capping.RungFixed {
		t.Errorf("mode %v, hello %v, ladder %+v", n.control.mode, h, rows)
	}
	if b := n.holdingNow(); b.GetCapUw() != int64(n.cfg.Power.Rated) {
		t.Errorf("holding %v, want its rated watts", b)
	}
	if i, _ := n.health.Get(noRungCode); !strings.Contains(i.Text, "cpufreq is fixed (no CPU has more than one frequency)") {
		t.Errorf("item %+v", i)
	}
}

func TestCPUsWithoutRangeRaiseTheFloor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	fixed, all := l.fixCPUs(2)
	if fixed == 0 || fixed == all {
		t.Fatalf("%d of %d policies are fixed", fixed, all)
	}
	n := loopless(t, l.config("127.0.0.1:1"))
	n.turn(instant())
	n.control.watch()
	p := n.cfg.Power
	// Half of the CPUs stay at full clock: half of what lies between floor and rated stays.
	least := p.Floor + units.Power(float64(p.Rated-p.Floor)*float64(fixed)/float64(all))
	h := n.exchange.hello()
	if h.GetFloorUw() < int64(least)-1000 || h.GetFailSafeUw() < h.GetFloorUw() || h.GetMaxUw() < h.GetFailSafeUw() || !h.GetControlled() {
		t.Errorf("hello %v, want a floor of %v and nothing below it", h, least)
	}
	if b := n.holdingNow(); b.GetEffectiveUw() < int64(least)-1000 {
		t.Errorf("holding %v under the fail-safe cap, want at least %v", b, least)
	}
	if i, _ := n.health.Get("cap-below-floor"); !strings.Contains(i.Text, fmt.Sprintf("%d of %d CPUs have one frequency only", fixed, all)) {
		t.Errorf("item %+v", i)
	}
}

func TestPackageLimitWithoutTravel(t *testing.T) {
	t.Parallel()
	const least = "sys/class/powercap/intel-rapl:0/constraint_0_min_power_uw"
	most := "sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw"
	t.Run("lowest is highest", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		l.write(least, strconv.FormatInt(l.number(most), 10))
		n := loopless(t, l.config("127.0.0.1:1"))
		if n.control.rung() != rungCPUFreq || !strings.Contains(n.machine.Ladder.Why, "rapl is fixed (the lowest limit of package-0 is its highest") {
			t.Errorf("rung %s: %s", n.control.rung(), n.machine.Ladder.Why)
		}
	})
	t.Run("lowest is high", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		l.write(least, "120000000")
		n := loopless(t, l.config("127.0.0.1:1"))
		n.turn(instant())
		floor := n.meter.Model.Wall(120*units.Watt, 0)
		if h := n.exchange.hello(); units.Power(h.GetFloorUw()) != floor || h.GetFailSafeUw() < h.GetFloorUw() || !h.GetControlled() {
			t.Errorf("hello %v, want a floor of %v", h, floor)
		}
		if b := n.holdingNow(); units.Power(b.GetEffectiveUw()) < floor || l.long() != 120*units.Watt {
			t.Errorf("limit %v, holding %v, want at least %v", l.long(), b, floor)
		}
	})
}
