// Claims: a control that the configuration denies is never written nor journalled, on
// whichever rung; the rung that it takes away falls to the next, and a node with none
// left is uncontrolled and says so; a pattern that matches nothing is found.
package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/remote"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/internal/testkit/emulated"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"
)

// journalled are the paths that the node's journal holds.
func (n *node) journalled() []string {
	var paths []string
	if n.records.Journal != nil {
		for _, c := range n.records.Journal.Controls {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// Each rung in turn, then what is set beside the cap. A part of the tree that belongs to
// what is denied stays as it is while the node starts, takes a cap and turns.
func TestEachControlDeniedInTurn(t *testing.T) {
	t.Parallel()
	const powercap, policies, preference = "/powercap/", "/cpufreq/policy", "/energy_performance_preference"
	for name, c := range map[string]struct {
		controls config.Controls
		rung     capping.Rung
		kept     []string // no path with any of these is written or journalled
		written  []string // of each of these, some are
	}{
		"nothing":      {config.Controls{}, capping.RungRAPL, nil, []string{"power_limit_uw", preference, noTurboFile}},
		"one package":  {config.Controls{Deny: []string{"package-1"}}, capping.RungFreq, []string{powercap}, []string{"scaling_max_freq", noTurboFile}},
		"rapl":         {config.Controls{Deny: []string{"rapl"}}, capping.RungFreq, []string{powercap}, []string{"scaling_max_freq", preference}},
		"policies":     {config.Controls{Deny: []string{"policy*"}}, capping.RungRAPL, []string{"scaling_max_freq", "scaling_min_freq"}, []string{"power_limit_uw"}},
		"preferences":  {config.Controls{Deny: []string{"epp"}}, capping.RungRAPL, []string{preference}, []string{"power_limit_uw", noTurboFile}},
		"turbo":        {config.Controls{Deny: []string{"turbo"}}, capping.RungRAPL, []string{noTurboFile}, []string{"power_limit_uw", preference}},
		"all but rapl": {config.Controls{Allow: []string{"package-*"}}, capping.RungRAPL, []string{policies, noTurboFile}, []string{"power_limit_uw"}},
		"both rungs":   {config.Controls{Deny: []string{"package-0", "policy0"}}, capping.RungNone, []string{"/"}, nil},
		"everything":   {config.Controls{Deny: []string{"*"}}, capping.RungNone, []string{"/"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, cfg := deniedLab(t, c.controls)
			before := l.tree()
			n := loopless(t, cfg)
			if n.machine.Ladder.Use != c.rung {
				t.Fatalf("stands on %v: %s", n.machine.Ladder.Use, n.machine.Ladder.Why)
			}
			if c.rung == capping.RungNone {
				checkUncontrolled(t, n)
			} else {
				n.give(t, 1, cfg.Power.FailSafe+10*units.Watt, lease.Sprint{})
				n.spin(t, "the cap is carried out", func() bool {
					n.tuner.due = 0
					return n.control.caps.applied == n.control.caps.now && !n.records.Busy() && n.tuner.saved()
				})
			}
			n.turn(instant())
			changed := differing(before, l.tree())
			touched := append(changed, n.journalled()...)
			for _, path := range c.kept {
				if slices.ContainsFunc(touched, func(s string) bool { return strings.Contains(s, path) }) {
					t.Errorf("%s is denied and was touched: %v", path, touched)
				}
			}
			for _, path := range c.written {
				if !slices.ContainsFunc(changed, func(s string) bool { return strings.Contains(s, path) }) {
					t.Errorf("%s is allowed and was not written: %v", path, changed)
				}
			}
		})
	}
}

// deniedLab is a machine with package limits, policies, preferences and turbo.
func deniedLab(t *testing.T, controls config.Controls) (*lab, config.Config) {
	t.Helper()
	l := stillShape(t, emulated.Options{Shape: "xeon-2s", Driver: "intel_pstate"})
	cfg := l.config("127.0.0.1:1")
	cfg.Frequency = config.Frequency{Preference: "power", Turbo: config.TurboOff}
	cfg.Controls = controls
	return l, cfg
}

// checkUncontrolled looks whether a node with no rung left says so and is charged for it.
func checkUncontrolled(t *testing.T, n *node) {
	t.Helper()
	s := n.report.details(instant())
	if n.control.mode != observing || s.GetHolding().GetState() != headroomv1.LeaseState_LEASE_STATE_OBSERVING || s.GetHolding().GetCapUw() != int64(n.cfg.Power.Rated) {
		t.Errorf("holding %v", s.GetHolding())
	}
	if !slices.ContainsFunc(s.GetHealth(), func(i *headroomv1.HealthItem) bool {
		return i.GetCode() == noRungCode && strings.Contains(i.GetText(), "controls.deny")
	}) {
		t.Errorf("health %v does not say what costs it its cap", s.GetHealth())
	}
	if _, err := os.Stat(n.cfg.StateDir + "/" + statedir.JournalFile); err == nil {
		t.Error("a journal was made")
	}
}

// What is no file: a denied slice is not even asked about, and a denied BMC limit is
// neither saved nor written.
func TestDeniedFarControls(t *testing.T) {
	t.Parallel()
	_, cfg := deniedLab(t, config.Controls{Deny: []string{"slice:a.slice", "bmc"}})
	cfg.Bandwidth.Slices = []string{"a.slice", "b.slice"}
	cfg.IPMI.Limit = true
	n := loopless(t, cfg)
	if got := cfg.AllowedSlices(); !slices.Equal(got, []string{"b.slice"}) {
		t.Errorf("slices %v may be bounded, want b.slice", got)
	}
	if info := n.limit.info(); info.State != capping.RungOff || !strings.Contains(info.Text, "controls.deny") {
		t.Errorf("the BMC's limit stands as %v", info)
	}
	n.limit.read, n.limit.known = ipmi.Limit{Power: 300 * units.Watt}, true
	n.limit.keep(time.Hour)
	if n.limit.want != 0 || n.records.Busy() || slices.Contains(n.journalled(), remote.BMCPath) {
		t.Errorf("the BMC's limit is asked to be %v", n.limit.want)
	}
	n.cfg.Controls.Deny = []string{"bandwidth"}
	if info := n.slices.info(); info.State != capping.RungOff || !strings.Contains(info.Text, "controls.deny") {
		t.Errorf("the slices stand as %v", info)
	}
}

// What an earlier powerd wrote on a rung that is denied now goes back to what it was,
// and the node holds its cap with the next.
func TestDeniedAfterItWasWritten(t *testing.T) {
	t.Parallel()
	l, cfg := deniedLab(t, config.Controls{})
	cfg.Frequency = config.Frequency{Turbo: config.TurboLeave}
	zone := "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
	original := l.number(zone)
	n, err := start(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	if l.number(zone) == original {
		t.Fatal("the first powerd wrote nothing")
	}
	cfg.Controls.Deny = []string{"rapl"}
	if n = loopless(t, cfg); n.machine.Ladder.Use != capping.RungFreq || l.number(zone) != original {
		t.Errorf("on %v, the limit holds %d uW, want %d", n.machine.Ladder.Use, l.number(zone), original)
	}
}

func TestUnmatchedControls(t *testing.T) {
	t.Parallel()
	_, cfg := deniedLab(t, config.Controls{
		Allow: []string{"package-*", "policy*", "epp", "polcy*"}, Deny: []string{"package-7", "slice:batch.slice", "slice:other.slice", "bmc"},
	})
	cfg.Bandwidth.Slices = []string{"batch.slice"}
	got, err := machine.UnmatchedControls(cfg)
	want := []string{`controls.allow: "polcy*"`, `controls.deny: "package-7"`, `controls.deny: "slice:other.slice"`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	cfg.Root += "/none"
	if _, err := machine.UnmatchedControls(cfg); err == nil {
		t.Error("a root that is not there says nothing")
	}
}
