package kernel

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headroom/units"
)

// The faults by name.
const (
	FailRead   = "fail-read"   // [ZONE]: reading a counter fails
	FailWrite  = "fail-write"  // [ZONE]: writing a limit fails
	Frozen     = "frozen"      // [ZONE]: counters stand still
	Locked     = "locked"      // [silent|refuse]: the firmware has locked the limits
	Drift      = "drift"       // WATTS [EVERY]: another writer sets the packages' limits
	Reset      = "reset"       // counters start again at 0, once
	Jump       = "jump"        // counters leap by a thousand seconds' energy, once
	OfflineCPU = "offline-cpu" // N: a CPU goes offline and stays so
	Permission = "permission"  // [ZONE]: counters and limits cannot be opened
	Hot        = "hot"         // [CELSIUS]: every package is at least so hot
	Unbound    = "unbound"     // limits read back as written and bind nothing
	NoTurbo    = "no-turbo"    // the firmware holds the turbo switch
	Clear      = "clear"       // ends all of them
)

// faultNames are the faults that a tree supports, in the order that help lists them.
func faultNames() []string {
	return []string{FailRead, FailWrite, Frozen, Locked, Drift, Reset, Jump, OfflineCPU, Permission, Hot, Unbound, NoTurbo, Clear}
}

// faults are those that act now. A target is a zone by its folder's or its own
// name, or "" for every zone; a fault without a target does not act.
type faults struct {
	failRead, failWrite, permission, frozenAt *string
	frozen                                    map[*Attr]string
	locked                                    bool
	refuse                                    bool
	turboLocked                               bool
	offline                                   map[int]bool
	drift                                     units.Power
	driftEvery, driftDue                      time.Duration
}

func aims(target *string, z *zone) bool { return target != nil && z != nil && z.matches(*target) }

// reading is the error of reading a file.
func (f *faults) reading(a *Attr) error {
	if err := f.opening(a); err != nil {
		return err
	}
	if a.role == counter && aims(f.failRead, a.zone) {
		return syscall.EINVAL // powercap: whatever the driver returned
	}
	return nil
}

// opening is the error of opening a file.
func (f *faults) opening(a *Attr) error {
	if a.role != plain && aims(f.permission, a.zone) {
		return syscall.EACCES
	}
	return nil
}

// shown is the text that a reader sees in place of text.
func (f *faults) shown(a *Attr, text string) string {
	if a.role != counter || !aims(f.frozenAt, a.zone) {
		return text
	}
	if held, ok := f.frozen[a]; ok {
		return held
	}
	f.frozen[a] = text
	return text
}

// lockedAt reports whether writes to a zone's limits are lost; refuses, whether they
// fail.
func (f *faults) lockedAt(*zone) bool { return f.locked }

func (f *faults) refuses(z *zone) bool { return f.locked && f.refuse || aims(f.failWrite, z) }

// NeedsErrors reports whether a fault is one of error numbers, or of files that come
// and go, which plain files cannot show.
func NeedsErrors(name string, args []string) bool {
	switch name {
	case FailRead, FailWrite, Permission, OfflineCPU, NoTurbo:
		return true
	case Locked:
		return slices.Contains(args, "refuse")
	default:
		return false
	}
}

// Fault makes a fault act, or ends all with Clear. It fails with ErrFault when
// there is no such fault or it does not take these arguments; then nothing changes.
func (t *Tree) Fault(name string, args ...string) error {
	most := map[string]int{FailRead: 1, FailWrite: 1, Frozen: 1, Locked: 1, Drift: 2, OfflineCPU: 1, Permission: 1, Hot: 1}
	if !slices.Contains(faultNames(), name) {
		return fmt.Errorf("%w %q: must be one of %s", ErrFault, name, strings.Join(faultNames(), ", "))
	}
	if len(args) > most[name] {
		return fmt.Errorf("%w: %s takes at most %d arguments", ErrFault, name, most[name])
	}
	target := ""
	if len(args) > 0 {
		target = args[0]
	}
	switch name {
	case FailRead, FailWrite, Permission, Frozen:
		return t.aim(name, target)
	case Locked:
		return t.lock(target)
	case Drift:
		return t.setDrift(args)
	case OfflineCPU:
		return t.takeOffline(target)
	case Hot:
		return t.heat(target)
	case NoTurbo:
		return t.lockTurbo()
	case Reset:
		for _, d := range t.plant.Domains() {
			d.ResetEnergy()
		}
	case Jump:
		for _, d := range t.plant.Domains() {
			d.SkipEnergy(d.Package().For(1000 * time.Second))
		}
	case Unbound:
		for _, d := range t.plant.Domains() {
			d.Unbind(true)
		}
	case Clear:
		t.clear()
	}
	return nil
}

// aim makes a fault act on the zones that target names.
func (t *Tree) aim(name, target string) error {
	counters := make(map[*Attr]string)
	for _, a := range t.attrs {
		if a.role == counter && a.zone.matches(target) {
			counters[a], _ = a.show()
		}
	}
	if len(counters) == 0 {
		return fmt.Errorf("%w: no zone %q on this machine", ErrFault, target)
	}
	switch name {
	case FailRead:
		t.faults.failRead = &target
	case FailWrite:
		t.faults.failWrite = &target
	case Permission:
		t.faults.permission = &target
	case Frozen:
		t.faults.frozenAt, t.faults.frozen = &target, counters
	}
	return nil
}

func (t *Tree) lock(how string) error {
	switch how {
	case "", "silent", "refuse":
	default:
		return fmt.Errorf("%w: locked takes silent or refuse, not %q", ErrFault, how)
	}
	t.faults.locked, t.faults.refuse = true, how == "refuse"
	return nil
}

func (t *Tree) setDrift(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: drift needs the limit that the other writer sets, such as 120W", ErrFault)
	}
	to, err := units.ParsePower(args[0])
	if err != nil || to < 0 {
		return fmt.Errorf("%w: drift takes a power such as 120W, not %q", ErrFault, args[0])
	}
	every := time.Duration(0)
	if len(args) > 1 {
		if every, err = time.ParseDuration(args[1]); err != nil || every < rivalEvery {
			return fmt.Errorf("%w: drift is repeated every %v at most, not %q", ErrFault, rivalEvery, args[1])
		}
	}
	t.faults.drift, t.faults.driftEvery, t.faults.driftDue = to, every, t.plant.Elapsed()
	t.writeRival()
	return nil
}

// rival lets the other writer write again when it is time.
func (t *Tree) rival() {
	f := &t.faults
	if f.driftEvery == 0 || t.plant.Elapsed() < f.driftDue+f.driftEvery {
		return
	}
	f.driftDue = t.plant.Elapsed()
	t.writeRival()
}

func (t *Tree) writeRival() {
	if t.faults.locked {
		return // no file can be written
	}
	t.plant.SetLimit(0, t.faults.drift)
}

func (t *Tree) takeOffline(text string) error {
	cpu, err := strconv.Atoi(text)
	if err != nil || cpu < 1 || cpu >= t.plant.Spec().Cores {
		return fmt.Errorf("%w: offline-cpu takes a CPU from 1 to %d, not %q", ErrFault, t.plant.Spec().Cores-1, text)
	}
	if t.faults.offline == nil {
		t.faults.offline = make(map[int]bool)
	}
	t.faults.offline[cpu] = true
	t.plant.SetOnline(cpu, false)
	return nil
}

func (t *Tree) heat(text string) error {
	celsius := t.plant.Spec().Trip() + 2
	if text != "" {
		v, err := strconv.ParseFloat(strings.TrimSuffix(text, "C"), 64)
		if err != nil || !(v > 0 && v <= 150) {
			return fmt.Errorf("%w: hot takes degrees Celsius above 0 and up to 150, not %q", ErrFault, text)
		}
		celsius = v
	}
	for _, d := range t.plant.Domains() {
		d.SetHeat(celsius)
	}
	return nil
}

// lockTurbo makes the turbo switch refuse writes.
func (t *Tree) lockTurbo() error {
	if t.byPath[path.Join(cpuDevices, "intel_pstate/no_turbo")] == nil && t.byPath[path.Join(cpuDevices, "cpufreq/boost")] == nil {
		return fmt.Errorf("%w: this machine has no turbo switch", ErrFault)
	}
	t.faults.turboLocked = true
	return nil
}

func (t *Tree) clear() {
	for cpu := range maps.Keys(t.faults.offline) {
		t.plant.SetOnline(cpu, true)
	}
	for _, d := range t.plant.Domains() {
		d.SetHeat(0)
		d.Unbind(false)
	}
	t.faults = faults{}
}
