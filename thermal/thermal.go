// Package thermal reads temperatures of a machine and detects thermal throttling: hwmon
// chips, thermal zones, throttle counters, and the kernel's thermal events.
//
// The one idea: only a plausible reading is a number. Drivers report an unknown value as
// -274 C, as 4294967295000 uW, or as a temporary error; all of these are returned as unknown
// with the reason.
//
// Guarantees: every path is resolved inside one os.Root; no sensor keeps a descriptor, because
// a machine may have thousands of them; a failing sensor does not stop the others; nothing is
// written. A machine without sensors gives an empty Sensors, and Missing
// lists the kinds. The package does not decide what is too hot: the trip points are those of
// the hardware, the rest is the caller's.
package thermal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Temp is a temperature in thousandths of a degree Celsius; it may be negative.
type Temp int64

// Degree is one degree Celsius.
const Degree Temp = 1000

// celsius is t in degrees.
func (t Temp) celsius() float64 { return float64(t) / float64(Degree) }

// String is t for an operator, e.g. "61 C".
func (t Temp) String() string { return strconv.Itoa(int(math.Round(t.celsius()))) + " C" }

// Sources of a reading.
const (
	sourceHwmon   = "hwmon"
	sourceThermal = "thermal"
)

// Reading is one sensor's answer.
type Reading struct {
	// Source is SourceHwmon or SourceThermal.
	Source string
	// Name is which one of its source, e.g. "coretemp Package id 0".
	Name string
	// Temp is set when the sensor is a thermometer, Power when it is a power meter.
	// Both are 0 when Known is false.
	Temp  Temp
	Power units.Power
	// Meter reports whether the sensor is a power meter.
	Meter bool
	// Known reports whether the figure can be believed; Err is why not.
	Known bool
	Err   error
}

// Most that is used of each kind: what the largest known machines have.
const (
	sensorsMax = 1024
	cpusMax    = 8192
)

// Sensors are all sensors of one machine. They are for one goroutine at a time.
type Sensors struct {
	root     *os.Root
	files    *sysfs.Files // of root
	bound    units.Power
	thermo   []*Thermometer
	meters   []*PowerMeter
	zones    []*Zone
	throttle throttles
	missing  []Missing
}

// Missing is a kind of sensor that a machine lacks.
type Missing struct {
	// Source is where the kernel would show it, as in Reading.
	Source string
	// Kind is what it would be, e.g. "power meter".
	Kind string
}

// Open finds the sensors below root. It fails only when the tree cannot be
// listed; for a machine without sensors Missing lists every kind.
func Open(root *os.Root) (*Sensors, error) {
	files, err := sysfs.NewFiles(root)
	if err != nil {
		return nil, fmt.Errorf("thermal: %w", err)
	}
	s := &Sensors{root: root, files: files, bound: powerMax}
	if err := s.find(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sensors) find() error {
	errs := []error{s.findHwmon(), s.findZones(), s.findThrottles()}
	s.distinguish()
	s.count(sourceHwmon, "thermometer", len(s.thermo))
	s.count(sourceHwmon, "power meter", len(s.meters))
	s.count(sourceThermal, "zone", len(s.zones))
	s.count(sourceThermal, "throttle counter", len(s.throttle.cores.attrs)+len(s.throttle.packages.attrs))
	return errors.Join(errs...)
}

// distinguish gives each hwmon sensor a name of its own: chips of one driver, such as memory modules
// or disks, have the same names and labels. Such a name gets the place of the sensor.
func (s *Sensors) distinguish() {
	at := map[*string]string{}
	seen := map[string]int{}
	for _, t := range s.thermo {
		at[&t.Name] = t.at
		seen[t.Name]++
	}
	for _, m := range s.meters {
		at[&m.Name] = m.at
		seen[m.Name]++
	}
	for name, place := range at {
		if seen[*name] > 1 {
			*name += " @" + place
		}
	}
}

// count notes a kind of sensor of which there is none.
func (s *Sensors) count(source, kind string, n int) {
	if n == 0 {
		s.missing = append(s.missing, Missing{source, kind})
	}
}

// Missing returns the kinds of sensor that the machine lacks.
func (s *Sensors) Missing() []Missing { return s.missing }

// Thermometers are those of hwmon, in the order of their chips.
func (s *Sensors) Thermometers() []*Thermometer { return s.thermo }

// powerMeters are those of hwmon, in the order of their chips.
func (s *Sensors) powerMeters() []*PowerMeter { return s.meters }

// Bound says the most power that the machine can draw: a power meter that shows
// more is not accepted. Without it the bound is 100 kW.
func (s *Sensors) Bound(most units.Power) {
	s.bound = most
	for _, m := range s.meters {
		m.bound = most
	}
}

// Sample reads every sensor once.
func (s *Sensors) Sample() []Reading {
	all := make([]Reading, 0, len(s.thermo)+len(s.meters)+len(s.zones))
	for _, t := range s.thermo {
		v, err := t.read()
		all = append(all, Reading{Source: sourceHwmon, Name: t.Name, Temp: v, Known: err == nil, Err: err})
	}
	for _, m := range s.meters {
		v, err := m.read()
		all = append(all, Reading{Source: sourceHwmon, Name: m.Name, Power: v, Meter: true, Known: err == nil, Err: err})
	}
	for _, z := range s.zones {
		v, err := z.read()
		all = append(all, Reading{Source: sourceThermal, Name: z.Name, Temp: v, Known: err == nil, Err: err})
	}
	return all
}

// Package is the temperature of the hottest processor package, and which sensor
// says so: of the thermometers that speak for a whole package, else of the
// processors' thermal zones. It is not known when none of them can be believed.
func (s *Sensors) Package() (hottest Reading, known bool) {
	take := func(source, name string, v Temp, err error) {
		if err == nil && (!known || v > hottest.Temp) {
			hottest, known = Reading{Source: source, Name: name, Temp: v, Known: true}, true
		}
	}
	for _, t := range s.thermo {
		if t.Package {
			v, err := t.read()
			take(sourceHwmon, t.Name, v, err)
		}
	}
	if known {
		return hottest, true
	}
	for _, z := range s.zones {
		if z.processor() {
			v, err := z.read()
			take(sourceThermal, z.Name, v, err)
		}
	}
	return hottest, known
}

// Refresh looks for the sensors again, for chips and processors that came or
// went. On an error everything stays as it was.
func (s *Sensors) Refresh() error {
	fresh := &Sensors{root: s.root, files: s.files, bound: s.bound}
	if err := fresh.find(); err != nil {
		return err
	}
	*s = *fresh
	return nil
}

// Close ends all reading.
func (s *Sensors) Close() error { return s.files.Close() }

// attr is a file that is opened for each reading.
func (s *Sensors) attr(file string) (*sysfs.Attr, error) { return sysfs.NewAttr(file, s.files.Open) }

// list names the entries of dir that start with prefix, in the order of the
// number that follows it. A folder that is not there has none.
func list(root *os.Root, dir, prefix string, most int) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("thermal: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := number(e.Name(), prefix); ok {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := number(a, prefix)
		y, _ := number(b, prefix)
		return cmp.Compare(x, y)
	})
	return names[:min(len(names), most)], nil
}

// number is the number that makes up the rest of name after prefix.
func number(name, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 31)
	return int(n), err == nil
}

// parseTemp reads a temperature as the kernel shows it: a whole number of
// millidegrees, which may be negative.
func parseTemp(file, text string) (Temp, error) {
	digits, negative := strings.CutPrefix(text, "-")
	v, err := sysfs.ParseInt(file, []byte(digits))
	if err != nil || (digits != "" && (digits[0] < '0' || digits[0] > '9')) {
		return 0, &sysfs.ParseError{File: file, Text: text[:min(len(text), 64)], Err: sysfs.ErrNotNumber}
	}
	if negative {
		v = -v
	}
	return Temp(v), nil
}

// Silicon and boards live between these; anything else is a driver's mistake.
const (
	tempMin = -55 * Degree
	tempMax = 150 * Degree
)

// judgeTemp rejects the values with which drivers signal an unknown temperature.
func judgeTemp(t Temp) error {
	switch int64(t) {
	case 127_000, 127_500, 127_875, 128_000, 255_000, // the largest of an 8-bit register
		-127_000, -128_000, -274_000: // the smallest; THERMAL_TEMP_INVALID
		return errSentinel
	}
	if t < tempMin || t > tempMax {
		return fmt.Errorf("%v: %w", t, errImplausible)
	}
	return nil
}

// readTemp reads and judges a held thermometer.
func readTemp(a *sysfs.Attr) (Temp, error) {
	text, err := a.Text()
	if err != nil {
		return 0, gone(err)
	}
	t, err := parseTemp(a.Path(), text)
	if err != nil {
		return 0, err
	}
	if err := judgeTemp(t); err != nil {
		return 0, fmt.Errorf("thermal: %s: %w", a.Path(), err)
	}
	return t, nil
}

// onceTemp reads a temperature that does not change, such as a trip; known is
// false where there is none or none that makes sense.
func onceTemp(root *os.Root, file string) (t Temp, known bool) {
	text, err := sysfs.ReadText(root, file)
	if err != nil {
		return 0, false
	}
	t, err = parseTemp(file, text)
	if err != nil || judgeTemp(t) != nil {
		return 0, false
	}
	return t, true
}

// gone marks the error of a descriptor that outlived its device.
func gone(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return errors.Join(errGone, err)
	}
	return err
}

func join(parts ...string) string { return path.Join(parts...) }
