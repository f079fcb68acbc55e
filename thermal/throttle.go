package thermal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
type throttles struct{ cores, packages counters }

// counters are files that count up. One look reads no more than countersAtOnce of them: there may be
// one for each of 1,024 cores, and what they count is not lost meanwhile.
type counters struct {
	attrs []*sysfs.Attr
	last  []uint64 // as read last
	next  int      // which one the next look begins with
	whole bool     // all have been read
}

const countersAtOnce = 512

// Throttled reads the throttle counters.
func (s *Sensors) Throttled() (Throttle, error) {
	var t Throttle
	var errCores, errPackages error
	t.Cores, t.CoresKnown, errCores = s.throttle.cores.sum()
	t.Packages, t.PackagesKnown, errPackages = s.throttle.packages.sum()
	return t, errors.Join(errCores, errPackages)
}

// sum adds the counters; it is known when there are some and all could be read.
func (c *counters) sum() (total uint64, known bool, err error) {
	n := len(c.attrs)
	if c.whole {
		n = min(n, countersAtOnce)
	}
	for range n {
		v, err := c.attrs[c.next].Int()
		if err != nil {
			c.next, c.whole = 0, false
			return 0, false, gone(err)
		}
		c.last[c.next], c.next = uint64(v), (c.next+1)%len(c.attrs)
	}
	c.whole = true
	for _, v := range c.last {
		total += v
	}
	return total, n > 0, nil
}

func (s *Sensors) findThrottles() error {
	cpus, err := list(s.root, cpuDir, "cpu", cpusMax)
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
	s.throttle.cores = s.counters(cores)
	s.throttle.packages = s.counters(packages)
	return err
}

// place tells the core and the package of a CPU, as far as the topology says; a
// CPU without one stands alone.
func (s *Sensors) place(cpu string) (core, pkg string) {
	topology := join(cpuDir, cpu, "topology")
	p, errPackage := s.files.ReadInt(join(topology, "physical_package_id"))
	c, errCore := s.files.ReadInt(join(topology, "core_id"))
	pkg, core = "of "+cpu, "of "+cpu
	if errPackage == nil {
		pkg = fmt.Sprint(p)
		if errCore == nil {
			core = fmt.Sprint(p, "/", c)
		}
	}
	return core, pkg
}

// counters are those that exist, in a fixed order.
func (s *Sensors) counters(files map[string]string) (c counters) {
	for _, file := range slices.Sorted(maps.Values(files)) {
		a, err := s.attr(file)
		if err == nil {
			_, err = a.Int()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			c.attrs = append(c.attrs, a)
		}
	}
	c.last = make([]uint64, len(c.attrs))
	return c
}
