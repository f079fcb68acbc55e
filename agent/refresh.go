package agent

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"headroom/rapl"
	"headroom/rapl/sysfs"
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
	if f := n.machine.freq; f != nil && (f.used || n.machine.tuning != nil || rest) {
		n.refreshPolicies(f)
	}
	if n.heat.sensors != nil && (rest || !n.heat.temp.Known || !n.heat.counted) {
		if err := n.heat.sensors.Refresh(); err != nil {
			n.log.Debug("sensors not looked for", slog.Any("error", err))
		}
	}
}

func (n *node) refreshZones() {
	t := n.machine.tree
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
			n.machine.strange = append(n.machine.strange, z.Label)
		}
	}
	n.health.Fail(len(n.machine.strange) > 0, "new-package",
		"packages that came after the start are not limited: "+strings.Join(n.machine.strange, ", ")+
			"; the node is charged its rated watts", "start powerd again: it saves and limits them")
	n.machine.lost = n.machine.findLost()
	n.health.Fail(len(n.machine.lost) > 0, "lost-package",
		"the limits of "+strings.Join(n.machine.lost, ", ")+" are gone while its processors run, so nothing holds it;"+
			" the node is charged its rated watts",
		"see whether the RAPL driver was unloaded (modprobe intel_rapl_msr); powerd started anew takes the next rung")
	n.watchTwins()
}

// findLost are the packages whose zones are gone although they run: their limits
// may stand at anything. One that was unplugged is none of them.
func (m *machine) findLost() []string {
	var lost []string
	var online map[int]bool
	for _, s := range m.limited() {
		if !s.zone.Gone() {
			continue
		}
		if online == nil {
			online = onlinePackages(m.root)
		}
		if n, ok := s.zone.Socket(); !ok || online[n] || len(online) == 0 {
			lost = append(lost, s.zone.Label)
		}
	}
	return lost
}

// cpuDir has a folder for each CPU; one that is offline shows no topology.
const cpuDir = "sys/devices/system/cpu"

// onlinePackages are the sockets that have a CPU online.
func onlinePackages(root *os.Root) map[int]bool {
	online := map[int]bool{}
	entries, err := fs.ReadDir(root.FS(), cpuDir)
	if err != nil {
		return online
	}
	for _, e := range entries {
		n, err := sysfs.ReadInt(root, cpuDir+"/"+e.Name()+"/topology/physical_package_id")
		if err == nil {
			online[int(n)] = true
		}
	}
	return online
}

// watchTwins says when a package is held to less than was written, by the limits
// that the same package shows through another door: the lower of the two wins.
func (n *node) watchTwins() {
	var held []string
	for _, s := range n.machine.limited() {
		if len(n.machine.tree.Twins(s.zone)) == 0 || s.written.long == 0 {
			continue
		}
		b, err := n.machine.tree.Binding(s.zone, rapl.LongTerm)
		if err == nil && b.Zone != s.zone && b.Limit < s.written.long-rapl.Rounding {
			held = append(held, fmt.Sprintf("%s to %v by %s (%v was written)", s.zone.Label, b.Limit, b.Zone.Label, s.written.long))
		}
	}
	n.health.Warn(len(held) > 0, "twin-limit",
		"a lower limit wins: "+strings.Join(held, ", "),
		"firmware or another program set it through memory-mapped registers; the node draws less than its cap allows")
}

// refreshPolicies takes in policies whose processors came online. What is new is
// saved before it is bounded.
func (n *node) refreshPolicies(f *freqRung) {
	added, err := f.set.Refresh()
	if err != nil {
		n.log.Debug("policies not looked for", slog.Any("error", err))
	}
	for _, p := range added {
		n.log.Info("a frequency policy is new", slog.String("policy", p.Name))
	}
	f.widen()
	n.machine.followPolicies(n.cfg.Frequency)
	if f.hands != nil && f.used && n.mode == holding {
		n.records.saved(f.controls()...)
	}
}
