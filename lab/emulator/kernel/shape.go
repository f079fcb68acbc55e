package kernel

import (
	"fmt"
	"strconv"
	"time"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Powercap describes the powercap tree of a machine.
type Powercap int

// Kinds of powercap tree.
const (
	NoPowercap Powercap = iota // there is none
	Limits                     // zones count energy and packages take limits
	Counters                   // zones count energy and nothing else, as on AMD
)

// Shape describes a machine: its parts, and its appearance to the kernel.
type Shape struct {
	Name string
	// Spec describes the machine's parts. Spec.Packages is Sockets times Dies.
	Spec plant.Spec

	// Powercap is what its RAPL zones can do; Core, Uncore and DRAM determine which zones
	// a package has below it, Psys whether there is one of the whole platform.
	Powercap           Powercap
	Core, Uncore, DRAM bool
	Psys               bool
	// Dies counts the dies of a socket that have zones of their own; 0 counts as 1.
	Dies int
	// Mirrored makes every die of a socket show the whole socket's counter.
	Mirrored bool
	// MaxShort is the value of constraint_1_max_power_uw.
	MaxShort units.Power

	// Driver is the cpufreq driver by the name in scaling_driver, "" for none.
	Driver string
	// Userspace is true if the userspace governor is loaded.
	Userspace bool
	// Hwmon is the name of the temperature driver in hwmon, "" for none; Zones reports
	// whether there are thermal zones.
	Hwmon string
	Zones bool
	// Vendor is vendor_id in proc/cpuinfo.
	Vendor string
}

func (s Shape) dies() int { return max(1, s.Dies) }

// sockets counts the processor packages.
func (s Shape) sockets() int { return max(1, s.Spec.Packages) / s.dies() }

// packageName is what the kernel calls package i.
func (s Shape) packageName(i int) string {
	if s.dies() == 1 {
		return "package-" + strconv.Itoa(i)
	}
	return fmt.Sprintf("package-%d-die-%d", i/s.dies(), i%s.dies())
}

// ShapeOf is the shape of that name. It fails when there is none.
func ShapeOf(name string) (Shape, error) {
	for _, s := range Shapes() {
		if s.Name == name {
			return s, nil
		}
	}
	return Shape{}, fmt.Errorf("kernel: no machine shape %q", name)
}

// amdSpan is the highest value of a counter of 32 bits of 15.258 uJ.
const amdSpan units.Energy = 65532610987

// Shapes are the machines that there are, the default first.
func Shapes() []Shape {
	return []Shape{
		{
			Name: "xeon-1s", Spec: plant.DefaultSpec(), Powercap: Limits, Core: true, DRAM: true,
			Driver: "acpi-cpufreq", Hwmon: "coretemp", Zones: true, Vendor: "GenuineIntel",
		},
		{
			Name: "xeon-2s", Spec: server(2, 8), Powercap: Limits, DRAM: true, MaxShort: 376 * units.Watt,
			Driver: "intel_pstate", Hwmon: "coretemp", Zones: true, Vendor: "GenuineIntel",
		},
		{
			Name: "xeon-4die", Spec: server(4, 8), Powercap: Limits, DRAM: true, Dies: 2, MaxShort: 376 * units.Watt,
			Driver: "intel_cpufreq", Userspace: true, Hwmon: "coretemp", Zones: true, Vendor: "GenuineIntel",
		},
		{
			Name: "client-psys-mmio", Spec: client(), Powercap: Limits, Core: true, Uncore: true, Psys: true,
			Driver: "intel_pstate", Hwmon: "coretemp", Zones: true, Vendor: "GenuineIntel",
		},
		{Name: "epyc", Spec: amd(), Powercap: Counters, Core: true, Driver: "amd-pstate-epp", Hwmon: "k10temp", Vendor: "AuthenticAMD"},
		{
			Name: "epyc-mirrored", Spec: amdDies(), Powercap: Counters, Core: true, Dies: 2, Mirrored: true,
			Driver: "amd-pstate-epp", Hwmon: "k10temp", Vendor: "AuthenticAMD",
		},
		{Name: "arm-cppc", Spec: arm(), Driver: "cppc_cpufreq", Userspace: true, Zones: true},
		{Name: "bare-vm", Spec: vm(), Vendor: "GenuineIntel"},
	}
}

// server is a machine of packages of 150 W each.
func server(packages, cores int) plant.Spec {
	s := plant.DefaultSpec()
	s.Packages, s.Cores = packages, cores
	s.Idle, s.Dynamic = 24*units.Watt, 128*units.Watt
	s.FreqMax, s.FreqBase = 3600*units.Megahertz, 2400*units.Megahertz
	s.TDP, s.Peak = 150*units.Watt, 180*units.Watt
	s.ShortWindow = 11712 * time.Microsecond
	s.Other = 60 * units.Watt
	s.FailSafe = s.Floor() + s.Floor()/4
	return s
}

// client is a desktop with limits below its appetite.
func client() plant.Spec {
	s := plant.DefaultSpec()
	s.Twin = true
	s.Idle, s.Dynamic = 6*units.Watt, 110*units.Watt
	s.FreqMax, s.FreqBase = 4800*units.Megahertz, 2800*units.Megahertz
	s.TDP, s.Peak = 65*units.Watt, 125*units.Watt
	s.LongWindow, s.ShortWindow = 27983872*time.Microsecond, 1952*time.Microsecond
	s.DRAMIdle, s.DRAMDynamic, s.Other = 2*units.Watt, 4*units.Watt, 14*units.Watt
	s.FailSafe = 45 * units.Watt
	return s
}

// amd is a machine whose counters wrap in minutes.
func amd() plant.Spec {
	s := server(2, 8)
	s.PackageSpan, s.DRAMSpan = amdSpan, amdSpan
	s.Idle, s.Dynamic = 55*units.Watt, 225*units.Watt
	s.FreqMin, s.FreqMax, s.FreqBase = 400*units.Megahertz, 3700*units.Megahertz, 2450*units.Megahertz
	s.TDP, s.Peak = 280*units.Watt, 400*units.Watt
	s.FailSafe = s.Floor() + s.Floor()/4
	return s
}

func amdDies() plant.Spec {
	s := amd()
	s.Packages = 4
	s.Idle, s.Dynamic = s.Idle/2, s.Dynamic/2
	s.DRAMIdle, s.DRAMDynamic = s.DRAMIdle/2, s.DRAMDynamic/2
	s.TDP, s.Peak = s.TDP/2, s.Peak/2
	return s
}

// arm has no limits of its own worth the name: what the board lets it draw.
func arm() plant.Spec {
	s := plant.DefaultSpec()
	s.Cores = 8
	s.Idle, s.Dynamic = 45*units.Watt, 165*units.Watt
	s.FreqMin, s.FreqMax = 1000*units.Megahertz, 3000*units.Megahertz
	s.TDP, s.Peak = 250*units.Watt, 300*units.Watt
	s.FailSafe = s.Floor() + s.Floor()/4
	return s
}

func vm() plant.Spec {
	s := plant.DefaultSpec()
	s.Cores = 2
	s.FailSafe = s.Rated()
	return s
}
