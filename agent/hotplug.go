package agent

import (
	"log/slog"
	"strings"

	"headroom/agent/health"
	"headroom/agent/heat"
	"headroom/agent/machine"
	"headroom/agent/records"
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

// hotplug follows what comes and goes while powerd runs. It belongs to the owner goroutine.
type hotplug struct {
	log    *slog.Logger
	health *health.Items

	machine  *machine.Machine
	heat     *heat.Heat
	control  *controller
	tuner    *tuner
	records  *records.Records
	exchange *exchange
}

// look looks again what the machine has.
func (h *hotplug) look(seconds uint64) {
	rest := seconds%refreshRest == 0
	h.zones()
	if f := h.machine.Freq; f != nil && (f.Used || h.tuner.inUse || rest) {
		h.policies(f)
	}
	h.heat.Refresh(rest)
}

func (h *hotplug) zones() {
	t := h.machine.Tree
	if t == nil {
		return
	}
	c, err := t.Refresh()
	if err != nil {
		h.log.Debug("zone scan failed", slog.Any("error", err))
	}
	for _, z := range c.Gone {
		h.log.Warn("zone removed", slog.String("zone", z.Label))
	}
	for _, z := range c.Back {
		h.log.Info("zone returned", slog.String("zone", z.Label))
	}
	for _, z := range c.Added {
		h.log.Warn("zone added", slog.String("zone", z.Label))
		if z.Kind == rapl.Package {
			h.machine.Strange = append(h.machine.Strange, z.Label)
		}
	}
	h.health.Fail(len(h.machine.Strange) > 0, "new-package",
		"packages added since powerd started are not limited: "+strings.Join(h.machine.Strange, ", ")+
			"; the node is charged its rated power", "restart powerd to save and limit them")
	h.machine.Lost = h.machine.FindLost()
	h.health.Fail(len(h.machine.Lost) > 0, "lost-package",
		"the limits of "+strings.Join(h.machine.Lost, ", ")+" are missing while their processors run;"+
			" the node is charged its rated power",
		"check whether the RAPL driver was unloaded (modprobe intel_rapl_msr); after a restart powerd uses the next control")
	held := h.machine.HeldLower()
	h.health.Warn(len(held) > 0, "twin-limit",
		"a lower limit is in force: "+strings.Join(held, ", "),
		"firmware or another program set it through memory-mapped registers; the node draws less than its cap allows")
}

// policies takes in policies whose processors came online. What is new is
// saved before it is bounded.
func (h *hotplug) policies(f *machine.Frequency) {
	added, err := f.Set.Refresh()
	if err != nil {
		h.log.Debug("cpufreq policy scan failed", slog.Any("error", err))
	}
	if len(added) > 0 {
		h.log.Info("cpufreq policies added", slog.String("first", added[0].Name), slog.Int("policies", len(added)))
	}
	f.Follow()
	h.tuner.followPolicies()
	if f.Ceilings != nil && f.Used && h.control.mode == holding {
		h.records.Saved(f.Controls()...)
	}
}

// turboMoved follows what switching turbo did to the ranges of the policies, and has
// ceilings that hold the cap written again: some drivers set them anew (cppc_cpufreq).
func (h *hotplug) turboMoved() {
	f := h.machine.Freq
	if f == nil {
		return
	}
	h.policies(f)
	if f.Used {
		clear(f.Written)
		h.exchange.carryOut(h.control.apply())
	}
}
