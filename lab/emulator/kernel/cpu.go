package kernel

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// userHz is the kernel's unit of CPU time in proc: 1/100 s.
const userHz = 100

// cpus builds the CPU devices: which are online, and where they are.
func (t *Tree) cpus() {
	cores := t.plant.Spec().Cores
	all := t.list(func(int) bool { return true })
	t.fixed(cpuDevices, "possible", all, "present", all)
	t.reading(path.Join(cpuDevices, "online"), Slow, func() (string, error) { return t.list(t.plant.Online), nil })
	t.reading(path.Join(cpuDevices, "offline"), Slow, func() (string, error) {
		return t.list(func(cpu int) bool { return !t.plant.Online(cpu) }), nil
	})
	perDie := cores / max(1, t.plant.Spec().Packages)
	perSocket := perDie * t.shape.dies()
	for cpu := range cores {
		dir := path.Join(cpuDevices, "cpu"+strconv.Itoa(cpu))
		socket := cpu / perSocket
		t.fixed(path.Join(dir, "topology"),
			"physical_package_id", strconv.Itoa(socket), "die_id", strconv.Itoa(cpu%perSocket/perDie), "core_id", strconv.Itoa(cpu%perSocket),
			"package_cpus_list", list(func(c int) bool { return c/perSocket == socket }, cores), "thread_siblings_list", strconv.Itoa(cpu))
		if cpu > 0 {
			t.control(path.Join(dir, "online"), Seldom,
				func() (string, error) { return formatBool(t.plant.Online(cpu)), nil },
				func(text string) error { return t.setOnline(cpu, text) })
		}
		if t.shape.Vendor == "GenuineIntel" && t.shape.Hwmon != "" {
			t.throttleCounts(path.Join(dir, "thermal_throttle"), cpu)
		}
	}
}

func (t *Tree) setOnline(cpu int, text string) error {
	on, err := ParseBool(text)
	if err != nil {
		return err
	}
	if t.faults.Offline == cpu && on {
		return syscall.EIO
	}
	t.plant.SetOnline(cpu, on)
	return nil
}

// throttleCounts adds the counts of how often and how long a CPU was too hot.
func (t *Tree) throttleCounts(dir string, cpu int) {
	d := t.plant.At(cpu)
	for _, level := range []string{"core", "package"} {
		t.reading(path.Join(dir, level+"_throttle_count"), Slow, number(func() int { n, _ := d.Trips(); return n }))
		t.reading(path.Join(dir, level+"_throttle_total_time_ms"), Slow, number(func() int64 { _, in := d.Trips(); return in.Milliseconds() }))
	}
}

func (t *Tree) list(in func(cpu int) bool) string { return list(in, t.plant.Spec().Cores) }

// list is a set of CPUs as the kernel writes it: "0-2,4".
func list(in func(cpu int) bool, cores int) string {
	var parts []string
	for first := 0; first < cores; first++ {
		if !in(first) {
			continue
		}
		last := first
		for last+1 < cores && in(last+1) {
			last++
		}
		part := strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
		first = last
	}
	return strings.Join(parts, ",")
}

// proc builds the part of proc that shows CPU use, pressure and identity.
func (t *Tree) proc(id Identity) {
	t.reading("proc/stat", Slow, func() (string, error) { return t.stat(), nil })
	t.fixed("proc", "cpuinfo", t.cpuinfo())
	const calm = " avg10=0.00 avg60=0.00 avg300=0.00 total=0"
	for _, what := range []string{"cpu", "memory", "io"} {
		t.fixed("proc/pressure", what, "some"+calm+"\nfull"+calm)
	}
	t.fixed("proc/sys/kernel/random", "boot_id", id.BootID)
	t.fixed("etc", "machine-id", id.MachineID)
}

// stat is proc/stat (proc_stat(5)): user and idle time of every virtual CPU.
func (t *Tree) stat() string {
	var user, idle int64
	var each strings.Builder
	running := 0
	for cpu, busy := range t.ticks {
		if !t.plant.Online(cpu) {
			continue
		}
		u, i := int64(busy), int64(t.elapsed)-int64(busy)
		fmt.Fprintf(&each, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", cpu, u, i)
		user, idle = user+u, idle+i
		if t.plant.At(cpu).Utilisation() > 0 {
			running++
		}
	}
	return fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0\n%sintr 0\nctxt 0\nbtime %d\nprocesses 1\nprocs_running %d\nprocs_blocked 0\n"+
		"softirq 0 0 0 0 0 0 0 0 0 0 0", user, idle, each.String(), t.booted.Unix(), running)
}

// cpuinfo is the part of proc/cpuinfo that identifies the processor.
func (t *Tree) cpuinfo() string {
	var parts []string
	for cpu := range t.plant.Spec().Cores {
		text := fmt.Sprintf("processor\t: %d\n", cpu)
		switch t.shape.Vendor {
		case "GenuineIntel":
			text += "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Emulated processor\n"
		case "AuthenticAMD":
			text += "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: Emulated processor\n"
		default:
			text += "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"
		}
		parts = append(parts, text)
	}
	return strings.TrimSuffix(strings.Join(parts, "\n"), "\n")
}
