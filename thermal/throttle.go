package thermal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"headroom/rapl/sysfs"
)

// cpuDir is where the kernel lists CPUs; thermal_throttle below one of them counts
// how often it or its package was slowed for its heat (x86, Intel).
const cpuDir = "sys/devices/system/cpu"

// Throttle is how often the hardware slowed itself for its heat since the kernel
// started. The counts of CPUs that share a core, and of CPUs that share a package,
// are the same counter and count once.
type Throttle struct {
	// Cores and Packages are events, summed over cores and over packages.
	Cores, Packages uint64
	// CoresKnown and PackagesKnown are false when any counter could not be read.
	CoresKnown, PackagesKnown bool
}

// Since is what happened since an earlier reading. A counter that is unknown on
// either side, or went back (a CPU was taken away or came back), gives unknown.
func (t Throttle) Since(before Throttle) Throttle {
	d := Throttle{
		CoresKnown:    t.CoresKnown && before.CoresKnown && t.Cores >= before.Cores,
		PackagesKnown: t.PackagesKnown && before.PackagesKnown && t.Packages >= before.Packages,
	}
	if d.CoresKnown {
		d.Cores = t.Cores - before.Cores
	}
	if d.PackagesKnown {
		d.Packages = t.Packages - before.Packages
	}
	return d
}

// throttles are the counters, one for each core and one for each package.
type throttles struct {
	cores, packages []*sysfs.Attr
}

// Throttled reads the throttle counters.
func (s *Sensors) Throttled() (Throttle, error) {
	var t Throttle
	var errCores, errPackages error
	t.Cores, t.CoresKnown, errCores = sum(s.throttle.cores)
	t.Packages, t.PackagesKnown, errPackages = sum(s.throttle.packages)
	return t, errors.Join(errCores, errPackages)
}

// sum adds counters; it is known when there are some and all could be read.
func sum(attrs []*sysfs.Attr) (total uint64, known bool, err error) {
	for _, a := range attrs {
		v, err := a.Int()
		if err != nil {
			return 0, false, gone(err)
		}
		total += uint64(v)
	}
	return total, len(attrs) > 0, nil
}

func (s *Sensors) findThrottles() error {
	cpus, err := list(s.root, cpuDir, "cpu")
	cores, packages := map[string]string{}, map[string]string{}
	for _, cpu := range cpus {
		counter := join(cpuDir, cpu, "thermal_throttle")
		core, pkg := s.place(cpu)
		if _, known := cores[core]; !known {
			cores[core] = join(counter, "core_throttle_count")
		}
		if _, known := packages[pkg]; !known {
			packages[pkg] = join(counter, "package_throttle_count")
		}
	}
	s.throttle.cores = openCounters(s.root, cores)
	s.throttle.packages = openCounters(s.root, packages)
	return err
}

// place tells the core and the package of a CPU, as far as the topology says; a
// CPU without one stands alone.
func (s *Sensors) place(cpu string) (core, pkg string) {
	topology := join(cpuDir, cpu, "topology")
	p, errPackage := sysfs.ReadInt(s.root, join(topology, "physical_package_id"))
	c, errCore := sysfs.ReadInt(s.root, join(topology, "core_id"))
	pkg, core = "of "+cpu, "of "+cpu
	if errPackage == nil {
		pkg = fmt.Sprint(p)
		if errCore == nil {
			core = fmt.Sprint(p, "/", c)
		}
	}
	return core, pkg
}

// openCounters opens the counters that exist, in a fixed order.
func openCounters(root *os.Root, files map[string]string) []*sysfs.Attr {
	var attrs []*sysfs.Attr
	for _, file := range slices.Sorted(maps.Values(files)) {
		if a, err := sysfs.Open(root, file); err == nil {
			attrs = append(attrs, a)
		}
	}
	return attrs
}

func (t throttles) close() error {
	var errs []error
	for _, a := range slices.Concat(t.cores, t.packages) {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}
