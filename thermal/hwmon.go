package thermal

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// hwmonDir is where the kernel lists its sensor chips (hwmon/sysfs-interface.rst).
const hwmonDir = "sys/class/hwmon"

// Thermometer is one hwmon temperature. It is for one goroutine at a time.
type Thermometer struct {
	// Name is chip and label, e.g. "coretemp Package id 0", "k10temp Tctl".
	Name string
	// Chip is the driver's name for the chip, e.g. "coretemp".
	Chip string
	// Label is what the chip calls it, e.g. "Core 3", or "temp1" without a label.
	Label string
	// Package reports whether it stands for a whole processor package.
	Package bool

	attr *sysfs.Attr
	at   string
}

// placeOf is where a sensor is: the address of the chip's device on its bus, which outlives a
// reboot, else hwmonN, and the file, e.g. "0000:00:18.3/temp1".
func (s *Sensors) placeOf(dir, name string) string {
	chip := path.Base(strings.TrimSuffix(dir, "/device"))
	if link, err := s.root.Readlink(join(hwmonDir, chip, "device")); err == nil {
		chip = path.Base(link)
	}
	return chip + "/" + name
}

// read reads the temperature: an error where it cannot be believed.
func (t *Thermometer) read() (Temp, error) { return readTemp(t.attr) }

// PowerMeter is one hwmon power meter: of a supply (power_meter), a processor, a
// card. Which one it is its chip says. It is for one goroutine at a time.
type PowerMeter struct {
	// Name is chip and label, e.g. "power_meter power1".
	Name string
	// Chip is the driver's name for the chip: "power_meter" is ACPI's, of the whole
	// machine.
	Chip string

	attr  *sysfs.Attr
	at    string
	bound units.Power
	last  units.Power // last figure that was believed, 0: none yet
}

// read reads the power: an error where it cannot be believed.
func (m *PowerMeter) read() (units.Power, error) {
	v, err := m.attr.Int()
	if err != nil {
		return 0, gone(err)
	}
	p := units.Power(v)
	if err := judgePower(p, m.last, m.bound, m.Chip == acpiMeter); err != nil {
		return 0, fmt.Errorf("thermal: %s: %w", m.attr.Path(), err)
	}
	m.last = p
	return p, nil
}

// acpiMeter is ACPI's meter of the whole machine, which draws never 0 W.
const acpiMeter = "power_meter"

// powerMax is more than any machine with hwmon draws.
const powerMax = 100 * 1000 * units.Watt

// leap is by how much a figure may differ from the one before: a unit mistaken by
// a thousand is out, an accelerator that starts from its idle watts is not.
const leap = 500

// judgePower rejects the values with which drivers signal an unknown power: last is
// the last accepted value (0: none yet).
func judgePower(p, last, bound units.Power, wall bool) error {
	const watt = int64(units.Watt)
	switch int64(p) {
	case 0:
		if wall {
			return errSentinel
		}
		return nil
	// All bits of a 32- or 16-bit register, in uW, mW or W.
	case 1<<32 - 1, 1<<31 - 1, (1<<32 - 1) * 1000, (1<<31 - 1) * 1000,
		(1<<32 - 1) * watt, (1<<31 - 1) * watt, (1<<16 - 1) * watt, (1<<15 - 1) * watt:
		return errSentinel
	}
	if p > bound {
		return fmt.Errorf("%v, above %v: %w", p, bound, errImplausible)
	}
	if last >= units.Watt && (p/leap > last || last/leap > p) {
		return fmt.Errorf("%v after %v: %w", p, last, errImplausible)
	}
	return nil
}

// findHwmon opens the sensors of all chips.
func (s *Sensors) findHwmon() error {
	chips, err := list(s.root, hwmonDir, "hwmon", sensorsMax)
	for _, chip := range chips {
		s.openChip(join(hwmonDir, chip))
	}
	return err
}

func (s *Sensors) openChip(dir string) {
	chip, err := sysfs.ReadText(s.root, join(dir, "name"))
	if err != nil {
		// Older drivers keep their files one folder further down.
		dir = join(dir, "device")
		if chip, err = sysfs.ReadText(s.root, join(dir, "name")); err != nil {
			return
		}
	}
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if err != nil {
		return
	}
	first := len(s.thermo)
	inputs := map[string]bool{}
	for _, e := range entries {
		inputs[e.Name()] = true
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case is(name, "temp", "_input"):
			s.openThermometer(dir, chip, strings.TrimSuffix(name, "_input"))
		case is(name, "power", "_average"):
			s.openMeter(dir, chip, name)
		case is(name, "power", "_input") && !inputs[strings.TrimSuffix(name, "_input")+"_average"]:
			s.openMeter(dir, chip, name)
		}
	}
	packages(s.thermo[first:])
}

// is reports whether name is prefix, a number and suffix.
func is(name, prefix, suffix string) bool {
	trunk, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return false
	}
	_, ok = number(trunk, prefix)
	return ok
}

func (s *Sensors) openThermometer(dir, chip, name string) {
	a, err := s.attr(join(dir, name+"_input"))
	if err != nil || len(s.thermo) >= sensorsMax {
		return
	}
	t := &Thermometer{Chip: chip, Label: s.label(dir, name), attr: a, at: s.placeOf(dir, name)}
	t.Name = chip + " " + t.Label
	s.thermo = append(s.thermo, t)
}

func (s *Sensors) openMeter(dir, chip, file string) {
	a, err := s.attr(join(dir, file))
	if err != nil || len(s.meters) >= sensorsMax {
		return
	}
	name, _, _ := strings.Cut(file, "_")
	s.meters = append(s.meters, &PowerMeter{Name: chip + " " + s.label(dir, name), Chip: chip, attr: a, at: s.placeOf(dir, name), bound: s.bound})
}

func (s *Sensors) label(dir, name string) string {
	label, err := sysfs.ReadText(s.root, join(dir, name+"_label"))
	if err != nil || label == "" {
		return name
	}
	return label
}

// packages marks those of one chip's thermometers that speak for the package.
func packages(chip []*Thermometer) {
	die := false
	for _, t := range chip {
		die = die || t.Label == "Tdie"
	}
	for _, t := range chip {
		switch t.Chip {
		case "coretemp":
			t.Package = strings.HasPrefix(t.Label, "Package id ")
		case "k10temp", "zenpower", "fam15h_power":
			// Tctl steers fans and may carry an offset of 10 to 49 degrees; where
			// there is Tdie, that one is the silicon.
			t.Package = t.Label == "Tdie" || (!die && (t.Label == "Tctl" || t.Label == "temp1"))
		}
	}
}
