// Claims: none of its own; what other tests read of a policy and its ceiling and the agent does not need.
package dvfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// turboStep is how acpi-cpufreq shows turbo on processors that hide it: one step
// of 1 MHz above the base clock stands for every frequency above it.
const turboStep = units.Megahertz

// hiddenTurbo is the table's highest frequency when it stands for all of turbo.
func hiddenTurbo(table []units.Freq) (units.Freq, bool) {
	n := len(table)
	if n < 2 || table[n-1]-table[n-2] != turboStep {
		return 0, false
	}
	return table[n-1], true
}

// measured reads the frequency reported by the hardware: the mean of newer kernels,
// otherwise cpuinfo_cur_freq, which only root may read. Without either it returns
// fs.ErrNotExist or fs.ErrPermission.
func (p *Policy) measured() (units.Freq, error) {
	mean, errMean := p.freq("cpuinfo_avg_freq") // EAGAIN while the CPUs idle
	if errMean == nil && mean > 0 {
		return mean, nil
	}
	f, err := p.freq("cpuinfo_cur_freq") // "<unknown>" where the driver cannot tell
	if err != nil {
		return 0, fmt.Errorf("dvfs: %s: %w", p.Name, offlineOnly(err))
	}
	return f, nil
}

// floor reads scaling_min_freq, the lowest frequency that may be asked for.
func (p *Policy) floor() (units.Freq, error) {
	f, err := p.freq("scaling_min_freq")
	return f, offline(err)
}

// base is the frequency without turbo, 0 if the driver does not report it.
func (p *Policy) base() units.Freq {
	f, err := p.freq("base_frequency")
	if err != nil {
		return 0
	}
	return f
}

// turboMax is the lowest ceiling that lets the CPUs run above their base clock, and
// whether such a one is known. A ceiling at or above it allows every turbo
// frequency where the driver hides them in one step (acpi-cpufreq: 1 MHz above
// base), so it says nothing about how fast the CPUs will run.
func (p *Policy) turboMax() (units.Freq, bool) {
	if f, ok := hiddenTurbo(p.Table); ok {
		return f, true
	}
	base := p.base()
	if base <= 0 || base >= p.Max {
		return 0, false
	}
	if len(p.Table) == 0 {
		return base + 1, true
	}
	return above(p.Table, base+1), true
}

// offlineOnly marks EBUSY and ENODEV alone: a file that is not there is an answer
// of its own for values that only some drivers have.
func offlineOnly(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return offline(err)
}

// epps returns the named preferences of the policy, nil without any.
func (p *Policy) epps() []EPP {
	text, err := p.text(eppListFile)
	if err != nil {
		return nil
	}
	var list []EPP
	for word := range strings.FieldsSeq(text) {
		if e, err := ParseEPP(word); err == nil {
			list = append(list, e)
		}
	}
	return list
}

// fileControl returns the file of the ceiling, for saving and restoring it.
func (c *Ceiling) fileControl() *sysfs.Control { return c.control }

// clamp returns the ceiling nearest to f within the range of the hardware.
func (c *Ceiling) clamp(f units.Freq) units.Freq { return c.policy.within(f) }

// Policy returns the policy of the ceiling.
func (c *Ceiling) Policy() *Policy { return c.policy }

// Set writes the ceiling f to every policy, each within its own range; a failing policy
// does not stop the others.
func (c *Ceilings) Set(f units.Freq) Report {
	return c.SetEach(func(*Policy) units.Freq { return f })
}
