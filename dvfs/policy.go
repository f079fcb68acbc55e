package dvfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Policy is one cpufreq policy. Its readings, which open the files anew, are for one
// goroutine at a time.
type Policy struct {
	// Name is the policy's directory name, e.g. "policy0".
	Name string
	// Driver is the scaling driver: "intel_pstate", "acpi-cpufreq", "amd-pstate-epp".
	Driver string
	// Mode is what selects the frequency below the ceiling.
	Mode Mode
	// Min and Max are the range of the hardware. With acpi-cpufreq, Max may be the base
	// clock, with boost above it (Turbo).
	Min, Max units.Freq
	// Table lists the frequencies of the driver, lowest first, with those of turbo; empty
	// if it can set any (Autonomous and CPPC drivers).
	Table []units.Freq
	// CPUs are the numbers of the online CPUs that share the policy.
	CPUs []int

	open  sysfs.Opener
	files *sysfs.Files // as in Set
}

// find reads the policy for the first time.
func (p *Policy) find(status func(driver string) string) error {
	err := p.refresh(status)
	if err == nil {
		_, err = p.CeilingNow()
	}
	if err != nil {
		return fmt.Errorf("dvfs: %s: %w", p.Name, err)
	}
	return nil
}

// refresh reads the policy again; on an error nothing changes. status reads the status file
// of a driver.
func (p *Policy) refresh(status func(driver string) string) error {
	driver, err := p.text("scaling_driver")
	lowest, errMin := p.freq("cpuinfo_min_freq")
	highest, errMax := p.freq("cpuinfo_max_freq")
	if err := errors.Join(err, errMin, errMax); err != nil {
		return offline(err)
	}
	if lowest == 0 || lowest > highest || highest > freqMost { // a ceiling of 0 must never be written
		return fmt.Errorf("dvfs: %s: invalid range %v to %v", p.Name, lowest, highest)
	}
	p.Driver, p.Min, p.Max = driver, lowest, highest
	p.Mode = modeOf(driver, status(driver), p.governors)
	p.Table = p.table()
	if text, err := p.text("affected_cpus"); err == nil {
		p.CPUs = parseCPUs(text)
	}
	return nil
}

// table joins the plain and the boost frequencies.
func (p *Policy) table() []units.Freq {
	plain, err := p.text("scaling_available_frequencies")
	if err != nil {
		return nil
	}
	boost, err := p.text("scaling_boost_frequencies")
	if err != nil {
		boost = ""
	}
	return parseTable(plain + " " + boost)
}

// The limit of a policy.
const maxFile = "scaling_max_freq"

func (p *Policy) path(file string) string { return join(p.Name, file) }

func (p *Policy) text(file string) (string, error) { return p.open.ReadText(p.path(file)) }

func (p *Policy) freq(file string) (units.Freq, error) {
	v, err := p.open.ReadInt(p.path(file))
	return units.Freq(v), err
}

func (p *Policy) first() int {
	if len(p.CPUs) == 0 {
		return 1 << 30
	}
	return p.CPUs[0]
}

// Governor reads the governor in force, e.g. "performance".
func (p *Policy) Governor() (string, error) { return p.text("scaling_governor") }

// governors returns the governors of the policy, nil if unknown.
func (p *Policy) governors() []string {
	text, err := p.text("scaling_available_governors")
	if err != nil {
		return nil
	}
	return strings.Fields(text)
}

// Frequency reads the current frequency. If the hardware does not count its cycles, this is
// the last requested frequency, not the real one.
func (p *Policy) Frequency() (units.Freq, error) {
	f, err := p.freq("scaling_cur_freq") // some drivers have none
	return f, offline(err)
}

// CeilingNow reads the ceiling in force. ErrOffline when the CPUs are away.
func (p *Policy) CeilingNow() (units.Freq, error) {
	f, err := p.freq(maxFile)
	return f, offline(err)
}

// Nearest is the highest frequency at or below f that the policy can hold: of its
// table where there is one, else f itself within the range.
func (p *Policy) Nearest(f units.Freq) units.Freq {
	down, _ := p.neighbours(f)
	return down
}

// Travels reports whether the ceiling can be lowered at all: there is more than one frequency.
func (p *Policy) Travels() bool { return p.Nearest(p.Min) < p.Nearest(p.Max) }

// neighbours are the frequencies around f that the policy can hold, for a law
// that changes between two. They are equal where f itself can be held, and where
// f lies outside the range.
func (p *Policy) neighbours(f units.Freq) (down, up units.Freq) {
	f = p.within(f)
	if len(p.Table) == 0 {
		return f, f
	}
	// A table may reach beyond the range, e.g. with boost switched off.
	down, up = below(p.Table, f), above(p.Table, f)
	return p.within(down), p.within(up)
}

// within is f, clamped to the range.
func (p *Policy) within(f units.Freq) units.Freq { return min(max(f, p.Min), p.Max) }

// parseCPUs reads "0 1 2 3" as affected_cpus lists it; what is no number ends it.
func parseCPUs(text string) []int {
	var cpus []int
	for f := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			break
		}
		cpus = append(cpus, n)
	}
	return cpus
}
