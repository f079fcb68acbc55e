package agent

import (
	"log/slog"
	"strings"

	"headroom/agent/machine"
	"headroom/rapl"
)

// Looking for what came or went (packages are unplugged, processors go offline)
// opens every file anew, which takes milliseconds.
const (
	// refreshEvery is the seconds between two looks for what holds the cap.
	refreshEvery = 30
	// refreshRest is the seconds between two looks for the rest: sensors that can all
	// be read, and policies that bound nothing.
	refreshRest = 300
)

// refresh looks again what the machine has.
func (n *node) refresh() {
	rest := n.kept%refreshRest == 0
	n.refreshZones()
	if f := n.machine.Freq; f != nil && (f.Used || n.tuner.inUse || rest) {
		n.refreshPolicies(f)
	}
	if n.heat.sensors != nil && (rest || !n.heat.temp.Known || !n.heat.counted) {
		if err := n.heat.sensors.Refresh(); err != nil {
			n.log.Debug("sensors not looked for", slog.Any("error", err))
		}
	}
}

func (n *node) refreshZones() {
	t := n.machine.Tree
	if t == nil {
		return
	}
	c, err := t.Refresh()
	if err != nil {
		n.log.Debug("zones not looked for", slog.Any("error", err))
	}
	for _, z := range c.Gone {
		n.log.Warn("a zone is gone", slog.String("zone", z.Label))
	}
	for _, z := range c.Back {
		n.log.Info("a zone is back", slog.String("zone", z.Label))
	}
	for _, z := range c.Added {
		n.log.Warn("a zone is new", slog.String("zone", z.Label))
		if z.Kind == rapl.Package {
			n.machine.Strange = append(n.machine.Strange, z.Label)
		}
	}
	n.health.Fail(len(n.machine.Strange) > 0, "new-package",
		"packages that came after the start are not limited: "+strings.Join(n.machine.Strange, ", ")+
			"; the node is charged its rated watts", "start powerd again: it saves and limits them")
	n.machine.Lost = n.machine.FindLost()
	n.health.Fail(len(n.machine.Lost) > 0, "lost-package",
		"the limits of "+strings.Join(n.machine.Lost, ", ")+" are gone while its processors run, so nothing holds it;"+
			" the node is charged its rated watts",
		"see whether the RAPL driver was unloaded (modprobe intel_rapl_msr); powerd started anew takes the next rung")
	held := n.machine.HeldLower()
	n.health.Warn(len(held) > 0, "twin-limit",
		"a lower limit wins: "+strings.Join(held, ", "),
		"firmware or another program set it through memory-mapped registers; the node draws less than its cap allows")
}

// refreshPolicies takes in policies whose processors came online. What is new is
// saved before it is bounded.
func (n *node) refreshPolicies(f *machine.Frequency) {
	added, err := f.Set.Refresh()
	if err != nil {
		n.log.Debug("policies not looked for", slog.Any("error", err))
	}
	for _, p := range added {
		n.log.Info("a frequency policy is new", slog.String("policy", p.Name))
	}
	f.Widen()
	n.tuner.followPolicies()
	if f.Ceilings != nil && f.Used && n.mode == holding {
		n.records.saved(f.Controls()...)
	}
}

// turboMoved follows what switching turbo did to the ranges of the policies, and has
// ceilings that hold the cap written again: some drivers set them anew (cppc_cpufreq).
func (n *node) turboMoved() {
	f := n.machine.Freq
	if f == nil {
		return
	}
	n.refreshPolicies(f)
	if f.Used {
		clear(f.Written)
		n.apply()
	}
}
