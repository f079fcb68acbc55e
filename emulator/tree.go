package emulator

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/emulator/plant"
	"headroom/units"
)

// Paths of the tree, as on a real machine with its root elsewhere.
const (
	powercapDevices = "sys/devices/virtual/powercap"
	powercapClass   = "sys/class/powercap"
	controlType     = "intel-rapl"
	cpuDevices      = "sys/devices/system/cpu"
)

// tree is the kernel's view of one plant.
type tree struct {
	root  *os.Root
	plant *plant.Plant

	energy  [3]*attr   // package, core, DRAM
	freqs   []*attr    // scaling_cur_freq, one a policy
	stat    *attr      // proc/stat
	hot     []*control // the package's limits
	warm    []*control // cpufreq
	cold    []*control // what holds nothing and only puts its value back
	polls   int
	all     []*attr
	ticks   float64 // busy time of one virtual CPU, in USER_HZ
	elapsed float64 // all time of one virtual CPU, in USER_HZ
	boot    time.Time
	buf     []byte
}

// newTree writes the whole tree under root. What an earlier boot left of sys and
// proc is removed first: limits do not survive a reboot.
func newTree(root *os.Root, p *plant.Plant, boot time.Time) (*tree, error) {
	t := &tree{root: root, plant: p, boot: boot, buf: make([]byte, attrMax)}
	for _, old := range []string{"sys", "proc"} {
		if err := root.RemoveAll(old); err != nil {
			return nil, fmt.Errorf("emulator: clear %s: %w", old, err)
		}
	}
	if err := errors.Join(t.powercap(), t.cpufreq(), t.proc()); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tree) close() error {
	var errs []error
	for _, a := range t.all {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}

// add creates a file and keeps it open.
func (t *tree) add(name, value string, mode os.FileMode) (*attr, error) {
	a, err := create(t.root, name, value, mode)
	if err != nil {
		return nil, err
	}
	t.all = append(t.all, a)
	return a, nil
}

// fixed creates read-only files, given as name, value pairs, that never change.
func (t *tree) fixed(dir string, pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		a, err := create(t.root, path.Join(dir, pair[0]), pair[1], 0o444)
		if err != nil {
			return err
		}
		if err := a.close(); err != nil {
			return err
		}
	}
	return nil
}

// control creates a file that others write and puts it on the list of those that
// are polled together.
func (t *tree) control(list *[]*control, name, value string, store func(string) (string, error)) error {
	a, err := t.add(name, value, 0o644)
	if err != nil {
		return err
	}
	*list = append(*list, &control{attr: a, held: value, store: store})
	return nil
}

// inert creates a file that takes no value: whatever is written is put back.
func (t *tree) inert(name, value string) error {
	return t.control(&t.cold, name, value, func(string) (string, error) { return "", errMalformed })
}

// zoneNames are the zones in the order of their folders; the first holds the others.
func zoneNames() [3]string { return [3]string{"package-0", "core", "dram"} }

// zonePath is the folder of a zone below the control type.
func zonePath(i int) string {
	dir := path.Join(powercapDevices, controlType, controlType+":0")
	if i > 0 {
		dir = path.Join(dir, controlType+":0:"+strconv.Itoa(i-1))
	}
	return dir
}

// powercap builds the RAPL zones of one socket, and the class links to them.
func (t *tree) powercap() error {
	top := path.Join(powercapDevices, controlType)
	if err := errors.Join(t.inert(path.Join(top, "enabled"), "1"), t.fixed(top, "uevent", ""), t.link(top)); err != nil {
		return err
	}
	energies := [3]units.Energy{t.plant.PackageEnergy(), t.plant.CoreEnergy(), t.plant.DRAMEnergy()}
	for i, name := range zoneNames() {
		dir := zonePath(i)
		span := plant.PackageRange
		if name == "dram" {
			span = plant.DRAMRange
		}
		energy, err := t.add(path.Join(dir, "energy_uj"), format(energies[i]), 0o400)
		if err != nil {
			return err
		}
		t.energy[i] = energy
		if err := errors.Join(t.fixed(dir, "name", name, "max_energy_range_uj", format(span), "uevent", ""), t.link(dir)); err != nil {
			return err
		}
		if i > 0 {
			if err := t.partZone(dir); err != nil {
				return err
			}
		}
	}
	return t.packageZone(zonePath(0))
}

// packageZone adds the controls of the one zone whose limits act.
func (t *tree) packageZone(dir string) error {
	enabled := func(text string) (string, error) {
		on, err := parseBool(text)
		if err == nil {
			t.plant.SetEnabled(on)
		}
		return formatBool(t.plant.Enabled()), err
	}
	if err := t.control(&t.hot, path.Join(dir, "enabled"), "1", enabled); err != nil {
		return err
	}
	spec := t.plant.Spec()
	most := [2]units.Power{spec.TDP, 0}
	for c := plant.LongTerm; c <= plant.ShortTerm; c++ {
		if err := t.constraint(dir, c); err != nil {
			return err
		}
		name := fmt.Sprintf("constraint_%d_", c)
		if err := t.fixed(dir, name+"name", c.String(), name+"max_power_uw", format(most[c])); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) constraint(dir string, c plant.Constraint) error {
	limit := func(text string) (string, error) {
		v, err := parseUint(text)
		if err != nil {
			return "", err
		}
		return format(t.plant.SetLimit(c, units.Power(v))), nil
	}
	window := func(text string) (string, error) {
		v, err := parseUint(text)
		if err != nil {
			return "", err
		}
		held := t.plant.SetWindow(c, time.Duration(min(v, windowMax))*time.Microsecond)
		return format(held.Microseconds()), nil
	}
	name := path.Join(dir, fmt.Sprintf("constraint_%d_", c))
	return errors.Join(
		t.control(&t.hot, name+"power_limit_uw", format(t.plant.Limit(c)), limit),
		t.control(&t.hot, name+"time_window_us", format(t.plant.Window(c).Microseconds()), window),
	)
}

// windowMax keeps microseconds inside a time.Duration; far above what hardware holds.
const windowMax = 1 << 50

// partZone adds the controls of core and dram, which exist and hold nothing: the
// firmware has them off, and turning them on is undone.
func (t *tree) partZone(dir string) error {
	return errors.Join(
		t.fixed(dir, "constraint_0_name", plant.LongTerm.String()),
		t.inert(path.Join(dir, "enabled"), "0"),
		t.inert(path.Join(dir, "constraint_0_power_limit_uw"), "0"),
		t.inert(path.Join(dir, "constraint_0_time_window_us"), "976"),
	)
}

// link makes the class's relative link to a powercap device, and the device's own
// links back.
func (t *tree) link(dir string) error {
	if err := t.root.MkdirAll(powercapClass, 0o755); err != nil {
		return err
	}
	below := strings.Count(strings.TrimPrefix(dir, "sys/"), "/") + 1
	target := path.Join("..", "..", strings.TrimPrefix(dir, "sys/"))
	if err := t.root.Symlink(target, path.Join(powercapClass, path.Base(dir))); err != nil {
		return fmt.Errorf("emulator: link %s: %w", dir, err)
	}
	subsystem := strings.Repeat("../", below) + "class/powercap"
	if err := t.root.Symlink(subsystem, path.Join(dir, "subsystem")); err != nil {
		return fmt.Errorf("emulator: link %s: %w", dir, err)
	}
	if path.Base(dir) == controlType {
		return nil
	}
	return t.root.Symlink("../../"+path.Base(path.Dir(dir)), path.Join(dir, "device"))
}

// publish writes the energy counters, which move at every step.
func (t *tree) publish() error {
	return errors.Join(
		t.energy[0].put(format(t.plant.PackageEnergy())),
		t.energy[1].put(format(t.plant.CoreEnergy())),
		t.energy[2].put(format(t.plant.DRAMEnergy())),
	)
}

// Polls of the frequency files (warm) and of the files that hold nothing (cold)
// are spread over the steps of a round, so that a step costs little.
const (
	warmRound = 2
	coldRound = 10
)

// poll takes over what was written since the last poll: the package's controls
// at every step, the others when it is their turn.
func (t *tree) poll() error {
	t.polls++
	var errs []error
	for _, c := range t.hot {
		errs = append(errs, c.poll(t.buf))
	}
	for i := t.polls % warmRound; i < len(t.warm); i += warmRound {
		errs = append(errs, t.warm[i].poll(t.buf))
	}
	for i := t.polls % coldRound; i < len(t.cold); i += coldRound {
		errs = append(errs, t.cold[i].poll(t.buf))
	}
	return errors.Join(errs...)
}

// format is a kernel value as text.
func format[T ~int | ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }

func formatBool(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
