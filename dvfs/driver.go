package dvfs

import (
	"slices"
	"strings"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Where drivers say in which mode they work (admin-guide/pm/intel_pstate.rst,
// admin-guide/pm/amd-pstate.rst).
const (
	intelStatus = "sys/devices/system/cpu/intel_pstate/status"
	amdStatus   = "sys/devices/system/cpu/amd_pstate/status"
)

// Mode is who chooses the frequency below the ceiling.
type Mode string

// Modes of a policy.
const (
	// Governed: a governor of the kernel asks for each frequency. acpi-cpufreq,
	// cppc_cpufreq, amd-pstate (passive, guided), intel_pstate passive
	// (intel_cpufreq).
	Governed Mode = "governed"
	// Autonomous: the processor chooses by itself between floor and ceiling; the
	// governors "performance" and "powersave" are mere hints, and there is no
	// "userspace". intel_pstate active, amd-pstate-epp.
	Autonomous Mode = "autonomous"
)

// Names of scaling drivers that the rules below know. A driver that is not named
// here works all the same, by what its files show.
const (
	driverIntelActive  = "intel_pstate"
	driverIntelCpufreq = "intel_cpufreq"
	driverAMDEPP       = "amd-pstate-epp"
	driverAMD          = "amd-pstate"
)

// modeOf tells the mode from the scaling driver, the driver's status file and the
// governors, in this order of trust; never from the vendor of the processor.
func modeOf(driver, status string, governors func() []string) Mode {
	switch driver {
	case driverIntelActive:
		// Kernels before 5.x named the passive driver so too; the status file knows.
		if status == "passive" {
			return Governed
		}
		return Autonomous
	case driverAMDEPP:
		return Autonomous
	case driverIntelCpufreq, driverAMD, "acpi-cpufreq", "cppc_cpufreq", "pcc-cpufreq":
		return Governed
	}
	// A driver of the other kind (setpolicy) offers these two and nothing else.
	hint := func(g string) bool { return g == "performance" || g == "powersave" }
	if g := governors(); len(g) == 2 && hint(g[0]) && hint(g[1]) && g[0] != g[1] {
		return Autonomous
	}
	return Governed
}

// statusOf reads the status file that belongs to driver, "" where there is none.
func statusOf(open sysfs.Opener, driver string) string {
	file := ""
	switch driver {
	case driverIntelActive, driverIntelCpufreq:
		file = intelStatus
	case driverAMD, driverAMDEPP:
		file = amdStatus
	default:
		return ""
	}
	text, err := open.ReadText(file)
	if err != nil {
		return ""
	}
	return text
}

// freqMost is above what any processor runs at: a file that says more is broken.
const freqMost = 20 * units.Gigahertz

// tableMax bounds a list of frequencies: tables have at most a few dozen.
const tableMax = 1024

// parseTable reads a list of frequencies in kHz, as scaling_available_frequencies
// has it (highest first), and returns it lowest first without repeats. A word that
// is no frequency ends it.
func parseTable(text string) []units.Freq {
	var table []units.Freq
	for f := range strings.FieldsSeq(text) {
		v, err := sysfs.ParseInt("", []byte(f))
		if err != nil || v <= 0 || units.Freq(v) > freqMost || len(table) == tableMax {
			break
		}
		table = append(table, units.Freq(v))
	}
	slices.Sort(table)
	return slices.Compact(table)
}

// below is the highest frequency of table at or below f, or its lowest.
func below(table []units.Freq, f units.Freq) units.Freq {
	i, found := slices.BinarySearch(table, f)
	switch {
	case found:
		return f
	case i == 0:
		return table[0]
	}
	return table[i-1]
}

// above is the lowest frequency of table at or above f, or its highest.
func above(table []units.Freq, f units.Freq) units.Freq {
	i, _ := slices.BinarySearch(table, f)
	return table[min(i, len(table)-1)]
}
