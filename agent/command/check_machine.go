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

// checkKernel checks which RAPL zones the kernel offers.
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
			"load intel_rapl_msr; a virtual machine, or a kernel without CONFIG_POWERCAP, has no RAPL and uses the next control",
		}
	}
	controls := map[string]int{}
	for _, z := range o.zones() {
		controls[z.Control]++
	}
	parts := make([]string, 0, len(controls))
	for control, n := range controls {
		parts = append(parts, control+" with "+plural(n, "zone", "zones"))
	}
	slices.Sort(parts)
	f := finding{"kernel", checkOK, release + ", " + strings.Join(parts, ", "), ""}
	if skipped := o.tree.Skipped(); skipped != nil {
		f.State, f.Text, f.Hint = checkWarn, f.Text+"; skipped: "+oneLine(skipped), "powerd zone list shows the usable zones"
	}
	return f
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// checkPermission checks whether this user may read counters and write limits. It opens the
// files as powerd run does before its first write, and writes nothing.
func checkPermission(s site, o *own) finding {
	who := fmt.Sprintf("as user %s", cli.Actor())
	if s.status != nil {
		who = "as user " + cli.Actor() + " (powerd is running, with permissions of its own)"
	}
	for _, z := range o.zones() {
		if _, err := z.Energy(); errors.Is(err, fs.ErrPermission) {
			return finding{
				"permission", failUnless(s.status != nil), z.Label + ": energy_uj is not readable " + who,
				"since Linux 5.10 only root may read it: run as root or with CAP_DAC_OVERRIDE, as headroom-powerd.service does",
			}
		}
	}
	what, err := o.tryLimits()
	text := "counters readable and limits writable " + who
	if len(o.packages()) == 0 {
		text = "no package zone"
		what, err = o.tryCeilings()
	} else if errors.Is(err, rapl.ErrNoConstraint) {
		text = "counters readable " + who + "; " + what + " has no limits (normal on AMD)"
		what, err = o.tryCeilings()
	}
	hint := "powerd uses the next control; see the check ladder"
	switch {
	case err == nil:
		return finding{"permission", checkOK, text, ""}
	case errors.Is(err, unix.EROFS):
		text, hint = ": sys is mounted read-only, as in a container", "run powerd on the host, or give the container a writable /sys; with enforce: false powerd observes only"
	case errors.Is(err, fs.ErrPermission):
		text, hint = " "+who, "run as root or with CAP_DAC_OVERRIDE, as headroom-powerd.service does"
	default:
		text = ": " + oneLine(err)
	}
	return finding{"permission", failUnless(s.status != nil), what + " is not writable" + text, hint}
}

// tryLimits opens the limits of every package for writing, and closes them. It returns the first that
// cannot be written.
func (o *own) tryLimits() (what string, err error) {
	for _, z := range o.packages() {
		l, err := z.Limiter()
		if err != nil {
			return z.Label, err
		}
		_ = l.Close()
	}
	return "", nil
}

// tryCeilings is tryLimits for the frequencies of a machine that has policies.
func (o *own) tryCeilings() (what string, err error) {
	set, err := dvfs.Open(o.root)
	if err != nil {
		return "", nil //nolint:nilerr // a machine without policies has nothing to try
	}
	defer func() { _ = set.Close() }()
	for _, p := range set.Policies() {
		c, err := p.Ceiling()
		if err != nil {
			return p.Name, err
		}
		_ = c.Close()
	}
	return "", nil
}

// unusable reports whether a control cannot be written by any user.
func unusable(err error) bool { return err != nil && !errors.Is(err, fs.ErrPermission) }

// failUnless returns FAIL, or warn if it is harmless.
func failUnless(harmless bool) string {
	if harmless {
		return checkWarn
	}
	return checkFail
}

// packages returns the package zones of the machine, each once.
func (o *own) packages() []*rapl.Zone {
	if o.tree == nil {
		return nil
	}
	return o.tree.OfKind(rapl.Package)
}

// checkLock looks for limits that firmware has locked. A read shows a lock only where the
// lock also disabled the limits; a running powerd knows from its writes, and --probe writes.
func checkLock(s site, o *own, probe bool) finding {
	if s.status != nil {
		for _, i := range s.status.GetHealth() {
			if i.GetCode() == "limit-refused" || i.GetCode() == "bios-lock" {
				return finding{"bios-lock", checkFail, i.GetText(), i.GetHint()}
			}
		}
		return finding{"bios-lock", checkOK, "none found; the running powerd reads back every limit that it writes", ""}
	}
	if len(o.packages()) == 0 {
		return finding{"bios-lock", checkOK, "no package limits", ""}
	}
	if probe {
		return probeLimits(s, o)
	}
	for _, z := range o.packages() {
		if on, err := z.Enabled(); err == nil && !on {
			return finding{
				"bios-lock", checkWarn, z.Label + ": limits are disabled, or locked by firmware",
				"powerd check --probe tells them apart; remove a lock in the BIOS setup (RAPL or PL1/PL2 lock)",
			}
		}
	}
	return finding{"bios-lock", checkOK, "limits are enabled; powerd check --probe also tests a write", ""}
}

// probeLimits lowers each package's limit by a fraction of a watt and restores it.
func probeLimits(s site, o *own) finding {
	if s.cfg == nil {
		return finding{"bios-lock", checkWarn, "not probed: without a configuration there is no state directory to save the limits in", "use --config"}
	}
	if why := s.cfg.Controls.DeniedRAPL(o.packages()); why != "" {
		return finding{"bios-lock", checkWarn, "not probed: " + why, "a probe writes the limits; allow them with controls: in powerd.yaml"}
	}
	err := agent.Probe(s.stateDir, o.packages())
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return finding{"bios-lock", checkWarn, e.Message, e.Hint}
	}
	if err != nil {
		return finding{"bios-lock", checkFail, oneLine(err), "unlock RAPL (PL1/PL2) in the BIOS setup; until then powerd uses the next control"}
	}
	return finding{"bios-lock", checkOK, "every package accepted a lower limit; the original limits are restored", ""}
}

// rivalPrograms returns the programs known to write the same controls, by process name,
// which the kernel truncates to 15 characters.
func rivalPrograms() map[string]string {
	return map[string]string{
		"thermald": "thermald", "tuned": "tuned", "power-profiles-": "power-profiles-daemon", "eard": "eard (EAR)", "geopmd": "geopmd (GEOPM)",
		"auto-cpufreq": "auto-cpufreq", "tlp": "tlp", "throttled": "throttled", "cpufreqd": "cpufreqd",
	}
}

// checkRivals looks for other writers: as the running powerd reports them, or by process name.
func checkRivals(s site) finding {
	names := slices.Clone(s.status.GetRivals())
	if s.status == nil {
		names = rivalProcesses(s.root)
	}
	if len(names) == 0 {
		return finding{"rival", checkOK, "no other program that writes limits or frequencies is running", ""}
	}
	return finding{
		"rival", checkWarn, strings.Join(names, ", ") + " may overwrite limits or frequencies",
		"stop it, or set rivals: fight, tolerate or yield in powerd.yaml",
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

// disagreeMax is the difference between sources above which check warns.
const disagreeMax = 0.10

// checkSensor checks whether power can be measured and whether the sources agree.
func checkSensor(ctx context.Context, s site, o *own) finding {
	if s.status != nil {
		return toldSensor(s)
	}
	if len(o.packages()) == 0 {
		return finding{"sensor", checkWarn, "no package counter", "set ipmi.mode in powerd.yaml to measure power with the BMC"}
	}
	o.look()
	if err := awaitLook(ctx, cli.WatchLeast); err != nil {
		return finding{"sensor", checkWarn, "interrupted", "run powerd check again"}
	}
	o.look()
	p := o.total(rapl.Package)
	switch {
	case p == nil && !slices.Contains(o.still, true):
		return finding{"sensor", checkFail, "package power unknown: a counter is unreadable or inconsistent", "powerd zone list shows the zone"}
	case p == nil:
		return finding{"sensor", checkWarn, "the package counter does not advance", "cause: energy filtering, an emulator, or a virtual machine with a fake RAPL; see powerd sensor watch"}
	}
	return finding{"sensor", checkOK, "rapl; package power " + cli.Watts(*p), ""}
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
		return finding{"sensor", checkFail, "the power of this node is unknown", "powerd sensor list shows the reason of each source"}
	case len(bad) > 0:
		return finding{"sensor", checkWarn, strings.Join(bad, "; "), "see powerd sensor list"}
	case worst > disagreeMax:
		return finding{
			"sensor", checkWarn, fmt.Sprintf("sources differ by %.1f %% (limit %.0f %%)", 100*worst, 100*disagreeMax),
			"set power.other and power.supply_efficiency (see docs/calibration.md); energy filtering biases RAPL",
		}
	}
	return finding{"sensor", checkOK, fmt.Sprintf("%s; sources differ by at most %.1f %%", watts(s.status.PowerUw), 100*worst), ""}
}

// checkLadder checks which control can enforce a cap.
func checkLadder(s site, o *own) finding {
	if s.status != nil {
		if r := s.status.GetRung(); r != capping.RungNone.String() {
			return finding{"ladder", checkOK, "cap enforced with " + r, ""}
		}
		return finding{"ladder", enforced(s), "no control can enforce a cap; the node is charged its rated power", "powerd status shows the reason for each control"}
	}
	limits, travel := 0, false
	for _, z := range o.packages() {
		if c, err := z.Constraint(rapl.LongTerm); err == nil {
			limits, travel = limits+1, travel || c.Travels()
		}
	}
	controls := config.Controls{}
	if s.cfg != nil {
		controls = s.cfg.Controls
	}
	none := "no control can enforce a cap: no package limits, no cpufreq, no slices"
	if _, err := o.tryLimits(); unusable(err) && limits > 0 {
		none += " that can be written"
	} else if limits > 0 && !travel {
		none += "; the lowest limit of each package is its highest"
	} else if limits > 0 && limits == len(o.packages()) && controls.DeniedRAPL(o.packages()) == "" {
		return finding{"ladder", checkOK, "rapl: limits of " + plural(limits, "package", "packages"), ""}
	}
	set, err := dvfs.Open(o.root)
	if errors.Is(err, dvfs.ErrOldLayout) {
		none += "; " + dvfs.ErrOldLayout.Error()
	}
	if err == nil {
		defer func() { _ = set.Close() }()
		if !slices.ContainsFunc(set.Policies(), (*dvfs.Policy).Travels) {
			none += "; no CPU has more than one frequency"
		} else if _, err := o.tryCeilings(); !unusable(err) && controls.DeniedFreq(set.Policies()) == "" {
			return finding{"ladder", checkOK, fmt.Sprintf("cpufreq: %s of %s; no package limits", plural(len(set.Policies()), "policy", "policies"), set.Policies()[0].Driver), ""}
		}
	}
	if s.cfg != nil && len(s.cfg.AllowedSlices()) > 0 {
		return finding{"ladder", checkWarn, "CPU bandwidth of " + strings.Join(s.cfg.AllowedSlices(), ", ") + " only", "this machine has no package limits and no cpufreq"}
	}
	return finding{
		"ladder", enforced(s), none + deniedWords(controls),
		"the node is charged its rated power; set bandwidth.slices, or enforce: false to observe only",
	}
}

// deniedWords mentions the configuration, which may deny the use of controls.
func deniedWords(c config.Controls) string {
	if len(c.Allow)+len(c.Deny) == 0 {
		return ""
	}
	return " allowed by controls: in powerd.yaml"
}

// checkControls checks whether each pattern of controls: matches a control of this machine.
func checkControls(s site, o *own) finding {
	switch {
	case s.cfg == nil:
		return finding{"controls", checkOK, "no configuration; all controls may be written", ""}
	case len(s.cfg.Controls.Allow)+len(s.cfg.Controls.Deny) == 0:
		return finding{"controls", checkOK, "all controls may be written", ""}
	}
	lost, err := machine.UnmatchedControls(*s.cfg)
	switch {
	case err != nil:
		return finding{"controls", checkWarn, err.Error(), "--root must be a directory that contains sys, proc and etc"}
	case len(lost) > 0:
		return finding{"controls", checkWarn, unmatchedWords + strings.Join(lost, ", "), unmatchedHint}
	}
	text := "every pattern matches"
	if why := s.cfg.Controls.DeniedRAPL(o.packages()); why != "" {
		text += "; package limits are not used (" + why + ")"
	}
	return finding{"controls", checkOK, text, ""}
}

// Text and hint of a pattern that matches nothing.
const (
	unmatchedWords = "no control of this machine matches "
	unmatchedHint  = "valid names: zones of powerd zone list, policies of powerd freq list, slice:NAME, rapl, cpufreq, bandwidth, epp, turbo, bmc"
)

// enforced returns FAIL on a node that enforces caps, and warn on one that observes.
func enforced(s site) string { return failUnless(s.cfg == nil || !s.cfg.Enforce) }

// checkClock checks the clock that measures leases.
func checkClock(s site) finding {
	if agent.BootTime() <= 0 {
		return finding{"clock", checkFail, "CLOCK_BOOTTIME is unavailable", "leases need it; the kernel is older than 2.6.39, or a sandbox forbids it"}
	}
	source, err := os.ReadFile(filepath.Join(s.root, "sys/devices/system/clocksource/clocksource0/current_clocksource"))
	text := "CLOCK_BOOTTIME, which includes suspend; leases do not use the wall clock"
	if name := strings.TrimSpace(string(source)); err == nil && name != "" {
		text += "; source " + name
	}
	return finding{"clock", checkOK, text, ""}
}

// stateRoom is the free space that the state directory needs: twice the size of its files.
const stateRoom = 1 << 20

// checkStateDir checks whether originals can be saved before the first write.
func checkStateDir(s site) finding {
	switch {
	case s.stateDir == "":
		return finding{"state-dir", checkOK, "none configured, not checked", ""}
	case s.status != nil:
		return finding{"state-dir", checkOK, s.stateDir + ", in use by the running powerd", ""}
	}
	var room unix.Statfs_t
	if err := unix.Statfs(s.stateDir, &room); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return finding{"state-dir", checkOK, s.stateDir + " does not exist yet; powerd run creates it", ""}
		}
		return finding{"state-dir", checkFail, fmt.Sprintf("%s: %v", s.stateDir, err), "state_dir: in powerd.yaml must be a directory that powerd may write"}
	}
	if err := unix.Access(s.stateDir, unix.W_OK); err != nil {
		return finding{"state-dir", checkFail, fmt.Sprintf("%s is not writable as user %s", s.stateDir, cli.Actor()), "state_dir: in powerd.yaml must be a directory that powerd may write"}
	}
	if free := room.Bavail * uint64(room.Bsize); free < stateRoom {
		return finding{"state-dir", checkFail, fmt.Sprintf("%s has %d kB free", s.stateDir, free>>10), "free some space; originals are saved there before the first write"}
	}
	left, err := agent.Leftovers(s.stateDir)
	switch {
	case err != nil:
		return finding{"state-dir", checkFail, fmt.Sprintf("%s: %v", filepath.Join(s.stateDir, statedir.JournalFile), err), "powerd run and powerd limit restore refuse this file; restore it from a copy"}
	case left.Journal:
		return finding{
			"state-dir", checkWarn, fmt.Sprintf("powerd is not running; %s not restored", plural(left.Controls, "saved control is", "saved controls are")),
			"start powerd, which takes them over, or run powerd limit restore",
		}
	case left.Probe != "":
		return finding{"state-dir", checkWarn, "an interrupted probe may have left this limit a fraction of a watt low: " + left.Probe, "write the value back, or reboot; then delete " + agent.ProbeFile}
	}
	return finding{"state-dir", checkOK, s.stateDir + ", writable", ""}
}

// roomText returns headroom in words; negative headroom is a shortfall.
func roomText(p units.Power) string {
	if p < 0 {
		return cli.Watts(-p) + " of shortfall"
	}
	return cli.Watts(p) + " of headroom"
}
