package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"headroom/agent"
	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/statedir"
	"headroom/agent/status"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/internal/cli"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// checkKernel looks at what the kernel offers.
func checkKernel(o *own) finding {
	release, err := sysfs.ReadText(o.root, "proc/sys/kernel/osrelease")
	if err != nil {
		var u unix.Utsname
		if unix.Uname(&u) == nil {
			release = unix.ByteSliceToString(u.Release[:])
		}
	}
	release = cmp.Or(release, "unknown release")
	if o.tree == nil {
		return finding{
			"kernel", checkWarn, fmt.Sprintf("%s, no RAPL: %v", release, o.bare),
			"modprobe intel_rapl_msr; a virtual machine or a kernel without CONFIG_POWERCAP has none: the next rung is used",
		}
	}
	controls := map[string]int{}
	for _, z := range o.zones() {
		controls[z.Control]++
	}
	parts := make([]string, 0, len(controls))
	for control, n := range controls {
		parts = append(parts, fmt.Sprintf("%s with %d zones", control, n))
	}
	slices.Sort(parts)
	f := finding{"kernel", checkOK, release + ", " + strings.Join(parts, ", "), ""}
	if skipped := o.tree.Skipped(); skipped != nil {
		f.State, f.Text, f.Hint = checkWarn, f.Text+"; left out: "+oneLine(skipped), "powerd zone list shows the zones that can be used"
	}
	return f
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// checkPermission looks whether this user may read counters and write limits. It
// opens files and writes nothing.
func checkPermission(s site, o *own) finding {
	who := fmt.Sprintf("as user %s", cli.Actor())
	if s.status != nil {
		who = "as user " + cli.Actor() + " (powerd runs and uses its own rights)"
	}
	for _, z := range o.zones() {
		if _, err := z.Energy(); errors.Is(err, fs.ErrPermission) {
			return finding{
				"permission", failUnless(s.status != nil), z.Label + ": energy_uj may not be read " + who,
				"it is readable by root only since Linux 5.10: run as root or with CAP_DAC_OVERRIDE, as the unit powerd.service does",
			}
		}
	}
	packages := o.packages()
	for _, z := range packages {
		l, err := z.Limiter()
		switch {
		case err == nil:
			_ = l.Close()
		case errors.Is(err, fs.ErrPermission):
			return finding{
				"permission", failUnless(s.status != nil), z.Label + ": limits may not be written " + who,
				"run as root or with CAP_DAC_OVERRIDE, as the unit powerd.service does",
			}
		case errors.Is(err, rapl.ErrNoConstraint):
			return finding{"permission", checkOK, "counters readable " + who + "; " + z.Label + " has no limits to write (AMD has none)", ""}
		}
	}
	if len(packages) == 0 {
		return finding{"permission", checkOK, "no package zone, nothing to write", ""}
	}
	return finding{"permission", checkOK, "counters readable and limits writable " + who, ""}
}

// failUnless is a failure, or a warning when it does not matter.
func failUnless(harmless bool) string {
	if harmless {
		return checkWarn
	}
	return checkFail
}

// packages are the package zones of the machine, each once.
func (o *own) packages() []*rapl.Zone {
	if o.tree == nil {
		return nil
	}
	return o.tree.OfKind(rapl.Package)
}

// checkLock looks for limits that firmware has locked. Reading shows it only
// where the lock also switched the limits off; the agent knows from its writes,
// and a probe writes.
func checkLock(s site, o *own, probe bool) finding {
	if s.status != nil {
		for _, i := range s.status.GetHealth() {
			if i.GetCode() == "limit-refused" || i.GetCode() == "bios-lock" {
				return finding{"bios-lock", checkFail, i.GetText(), i.GetHint()}
			}
		}
		return finding{"bios-lock", checkOK, "powerd runs here and reads every limit back after writing it", ""}
	}
	if len(o.packages()) == 0 {
		return finding{"bios-lock", checkOK, "no package limits to lock", ""}
	}
	if probe {
		return probeLimits(s, o)
	}
	for _, z := range o.packages() {
		if on, err := z.Enabled(); err == nil && !on {
			return finding{
				"bios-lock", checkWarn, z.Label + ": limits are off: locked by firmware, or never switched on",
				"powerd check --probe tells which; a lock is undone in the BIOS set-up (RAPL or PL1/PL2 lock)",
			}
		}
	}
	return finding{"bios-lock", checkOK, "limits are on; only a write shows whether they are taken: powerd check --probe", ""}
}

// probeLimits lowers each package's limit by a fraction of a watt for a moment.
func probeLimits(s site, o *own) finding {
	if s.cfg == nil {
		return finding{"bios-lock", checkWarn, "not probed: no configuration, so no state directory to save the limits in", "give --config"}
	}
	if why := s.cfg.Controls.DeniedRAPL(o.packages()); why != "" {
		return finding{"bios-lock", checkWarn, "not probed: " + why, "a probe writes the limits; allow them in controls: of powerd.yaml for that"}
	}
	err := agent.Probe(s.stateDir, o.packages())
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return finding{"bios-lock", checkWarn, e.Message, e.Hint}
	}
	if err != nil {
		return finding{"bios-lock", checkFail, oneLine(err), "unlock RAPL (PL1/PL2) in the BIOS set-up; until then the next rung of the ladder is used"}
	}
	return finding{"bios-lock", checkOK, "each package took a limit, read it back and has its own back", ""}
}

// rivalPrograms are programs known to write the same controls, by the name of
// their process, which the kernel cuts at 15 characters.
func rivalPrograms() map[string]string {
	return map[string]string{
		"thermald": "thermald", "tuned": "tuned", "power-profiles-": "power-profiles-daemon", "eard": "eard (EAR)", "geopmd": "geopmd (GEOPM)",
		"auto-cpufreq": "auto-cpufreq", "tlp": "tlp", "throttled": "throttled", "cpufreqd": "cpufreqd",
	}
}

// checkRivals looks for other writers: the agent's finding, or running processes.
func checkRivals(s site) finding {
	names := slices.Clone(s.status.GetRivals())
	if s.status == nil {
		names = rivalProcesses(s.root)
	}
	if len(names) == 0 {
		return finding{"rival", checkOK, "no program that is known to write limits or frequencies runs", ""}
	}
	return finding{
		"rival", checkWarn, strings.Join(names, ", ") + " runs and may rewrite limits or frequencies",
		"stop it, or choose what powerd does about it: rivals: fight, tolerate or yield in powerd.yaml",
	}
}

func rivalProcesses(root string) []string {
	known := rivalPrograms()
	dirs, err := os.ReadDir(filepath.Join(root, "proc"))
	if err != nil {
		return nil
	}
	var found []string
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(root, "proc", d.Name(), "comm"))
		if err != nil {
			continue
		}
		if name, ok := known[strings.TrimSpace(string(comm))]; ok && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// disagreeMax is how far sources may differ before that is a warning.
const disagreeMax = 0.10

// checkSensor looks whether power can be measured, and whether the sources agree.
func checkSensor(ctx context.Context, s site, o *own) finding {
	if s.status != nil {
		return toldSensor(s)
	}
	if len(o.packages()) == 0 {
		return finding{"sensor", checkWarn, "no package counter", "wall power from a BMC is used when powerd runs with ipmi.mode set"}
	}
	o.look()
	if err := awaitLook(ctx, cli.WatchLeast); err != nil {
		return finding{"sensor", checkWarn, "interrupted", "run it again"}
	}
	o.look()
	p := o.total(rapl.Package)
	if p == nil {
		return finding{"sensor", checkFail, "package power is unknown: the counter cannot be read, or did not behave in two looks", "powerd zone list shows which zone"}
	}
	if *p == 0 {
		return finding{"sensor", checkWarn, "the package counter does not move", "energy filtering, an emulator, or a virtual machine that fakes RAPL: powerd sensor watch"}
	}
	return finding{"sensor", checkOK, "rapl, packages draw " + cli.Watts(*p), ""}
}

func toldSensor(s site) finding {
	var bad []string
	worst := 0.0
	for _, n := range s.status.GetSensors() {
		if n.GetState() != status.OK && n.GetState() != "absent" {
			bad = append(bad, fmt.Sprintf("%s %s: %s %s", n.GetSource(), n.GetName(), n.GetState(), n.GetText()))
		}
		worst = max(worst, math.Abs(n.GetDisagreement()))
	}
	switch {
	case s.status.PowerUw == nil:
		return finding{"sensor", checkFail, "powerd does not know this node's power", "powerd sensor list says why"}
	case len(bad) > 0:
		return finding{"sensor", checkWarn, strings.Join(bad, "; "), "powerd sensor list shows all sources"}
	case worst > disagreeMax:
		return finding{
			"sensor", checkWarn, fmt.Sprintf("sources differ by %.1f %% (limit %.0f %%)", 100*worst, 100*disagreeMax),
			"compare with a meter, and set power.other and power.supply_efficiency; energy filtering skews RAPL",
		}
	}
	return finding{"sensor", checkOK, fmt.Sprintf("%s; sources differ by at most %.1f %%", watts(s.status.PowerUw), 100*worst), ""}
}

// checkLadder looks which rung can hold a cap.
func checkLadder(s site, o *own) finding {
	if s.status != nil {
		if r := s.status.GetRung(); r != capping.RungNone.String() {
			return finding{"ladder", checkOK, "stands on " + r, ""}
		}
		return finding{"ladder", enforced(s), "no rung holds a cap: the node is charged its rated watts", "powerd status says why for each rung"}
	}
	limits := 0
	for _, z := range o.packages() {
		if _, err := z.Constraint(rapl.LongTerm); err == nil {
			limits++
		}
	}
	controls := config.Controls{}
	if s.cfg != nil {
		controls = s.cfg.Controls
	}
	if limits > 0 && limits == len(o.packages()) && controls.DeniedRAPL(o.packages()) == "" {
		return finding{"ladder", checkOK, "rapl: limits of " + plural(limits, "package", "packages"), ""}
	}
	set, err := dvfs.Open(o.root)
	if err == nil {
		defer func() { _ = set.Close() }()
		if controls.DeniedFreq(set.Policies()) == "" {
			return finding{"ladder", checkOK, fmt.Sprintf("cpufreq: %s of %s; no package limits", plural(len(set.Policies()), "policy", "policies"), set.Policies()[0].Driver), ""}
		}
	}
	if s.cfg != nil && len(s.cfg.AllowedSlices()) > 0 {
		return finding{"ladder", checkWarn, "CPU bandwidth of " + strings.Join(s.cfg.AllowedSlices(), ", ") + " alone", "no package limits and no cpufreq here"}
	}
	return finding{
		"ladder", enforced(s), "nothing to hold a cap with: no package limits, no cpufreq, no slices" + deniedWords(controls),
		"the node is charged its rated watts; name slices in bandwidth.slices, or set enforce: false if that is meant",
	}
}

// deniedWords says that it may be the configuration that keeps rungs from being used.
func deniedWords(c config.Controls) string {
	if len(c.Allow)+len(c.Deny) == 0 {
		return ""
	}
	return " that controls: in powerd.yaml lets it write"
}

// checkControls looks what the configuration keeps powerd from writing, and whether
// each of its patterns means anything here.
func checkControls(s site, o *own) finding {
	switch {
	case s.cfg == nil:
		return finding{"controls", checkOK, "no configuration: all may be written", ""}
	case len(s.cfg.Controls.Allow)+len(s.cfg.Controls.Deny) == 0:
		return finding{"controls", checkOK, "all may be written", ""}
	}
	lost, err := machine.UnmatchedControls(*s.cfg)
	switch {
	case err != nil:
		return finding{"controls", checkWarn, err.Error(), "--root must name a directory that holds sys, proc and etc"}
	case len(lost) > 0:
		return finding{"controls", checkWarn, strings.Join(lost, ", ") + unmatchedWords, unmatchedHint}
	}
	text := "every pattern matches"
	if why := s.cfg.Controls.DeniedRAPL(o.packages()); why != "" {
		text += "; package limits are not used (" + why + ")"
	}
	return finding{"controls", checkOK, text, ""}
}

// What is said about a pattern that matches nothing.
const (
	unmatchedWords = " matches no control of this machine"
	unmatchedHint  = "names are those of powerd zone list and powerd freq list, slice:NAME of bandwidth.slices, and rapl, cpufreq, bandwidth, epp, turbo, bmc"
)

// enforced is a failure where a cap is to be held, and a warning elsewhere.
func enforced(s site) string { return failUnless(s.cfg == nil || !s.cfg.Enforce) }

// checkClock looks at the clock that leases are counted on.
func checkClock(s site) finding {
	if agent.BootTime() <= 0 {
		return finding{"clock", checkFail, "CLOCK_BOOTTIME cannot be read", "leases are counted on it: the kernel is older than 2.6.39, or a sandbox forbids it"}
	}
	source, err := os.ReadFile(filepath.Join(s.root, "sys/devices/system/clocksource/clocksource0/current_clocksource"))
	text := "CLOCK_BOOTTIME, through suspend; the wall clock is not used for leases"
	if name := strings.TrimSpace(string(source)); err == nil && name != "" {
		text += "; source " + name
	}
	return finding{"clock", checkOK, text, ""}
}

// stateRoom is what the state directory should have free: all its files twice.
const stateRoom = 1 << 20

// checkStateDir looks whether originals can be saved before the first write.
func checkStateDir(s site) finding {
	switch {
	case s.stateDir == "":
		return finding{"state-dir", checkOK, "none named, not looked at", ""}
	case s.status != nil:
		return finding{"state-dir", checkOK, s.stateDir + ", in use by the running powerd", ""}
	}
	var room unix.Statfs_t
	if err := unix.Statfs(s.stateDir, &room); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return finding{"state-dir", checkOK, s.stateDir + " is not there yet: powerd run makes it", ""}
		}
		return finding{"state-dir", checkFail, fmt.Sprintf("%s: %v", s.stateDir, err), "state_dir: in powerd.yaml must name a folder that powerd may write"}
	}
	if err := unix.Access(s.stateDir, unix.W_OK); err != nil {
		return finding{"state-dir", checkFail, fmt.Sprintf("%s may not be written as user %s", s.stateDir, cli.Actor()), "state_dir: in powerd.yaml must name a folder that powerd may write"}
	}
	if free := room.Bavail * uint64(room.Bsize); free < stateRoom {
		return finding{"state-dir", checkFail, fmt.Sprintf("%s has %d kB free", s.stateDir, free>>10), "make room: originals are saved there before the first write"}
	}
	left, err := agent.Leftovers(s.stateDir)
	switch {
	case err != nil:
		return finding{"state-dir", checkFail, fmt.Sprintf("%s: %v", filepath.Join(s.stateDir, statedir.JournalFile), err), "powerd run and powerd limit restore refuse it; put a copy back"}
	case left.Journal:
		return finding{
			"state-dir", checkWarn, fmt.Sprintf("no powerd runs, and %d controls that an earlier one saved are not back", left.Controls),
			"start powerd, which goes on with them, or powerd limit restore",
		}
	case left.Probe != "":
		return finding{"state-dir", checkWarn, "a probe was interrupted and this limit may be a fraction of a watt low: " + left.Probe, "write the value back, or reboot; then remove " + agent.ProbeFile}
	}
	return finding{"state-dir", checkOK, s.stateDir + ", writable", ""}
}

// roomText is headroom with its sign in words.
func roomText(p units.Power) string {
	if p < 0 {
		return cli.Watts(-p) + " short"
	}
	return cli.Watts(p) + " of headroom"
}
