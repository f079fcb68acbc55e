package kernel

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"headroom/units"
)

const cpuDevices = "sys/devices/system/cpu"

// driver is what a cpufreq driver offers.
type driver struct {
	name      string
	governors []string
	ladder    bool   // a table of frequencies: what is between them is rounded
	setpolicy bool   // governors of its own: powersave follows load, no setspeed
	epp       bool   // energy_performance_preference
	dir       string // its own folder of switches below sys/devices/system/cpu
	status    string
	boost     bool // cpufreq/boost turns turbo off
}

// generic are the governors of drivers without their own.
func generic() []string { return []string{"ondemand", "powersave", "performance", "schedutil"} }

// drivers are the cpufreq drivers; intel_cpufreq is intel_pstate in passive mode.
func drivers() []driver {
	own := []string{"performance", "powersave"}
	return []driver{
		{name: "acpi-cpufreq", governors: generic(), ladder: true, boost: true},
		{name: "intel_pstate", governors: own, setpolicy: true, epp: true, dir: "intel_pstate", status: "active"},
		{name: "intel_cpufreq", governors: generic(), dir: "intel_pstate", status: "passive"},
		{name: "amd-pstate-epp", governors: own, setpolicy: true, epp: true, dir: "amd_pstate", status: "active", boost: true},
		{name: "cppc_cpufreq", governors: generic(), boost: true},
	}
}

// turbo is what all policies of a machine share.
type turbo struct {
	off     bool
	percent int64 // max_perf_pct
}

// policy is the cpufreq policy of one virtual CPU.
type policy struct {
	tree     *Tree
	driver   driver
	cpu      int
	governor string
	min, max units.Freq // requested, within the hardware's range
	speed    units.Freq // what the userspace governor was set to
	epp      string
	late     []func() // for the worker to carry out
}

// cpufreq builds one policy for each virtual CPU.
func (t *Tree) cpufreq() {
	dir := path.Join(cpuDevices, "cpufreq")
	t.dirs = append(t.dirs, dir)
	i := slices.IndexFunc(drivers(), func(d driver) bool { return d.name == t.shape.Driver })
	if i < 0 {
		return
	}
	d := drivers()[i]
	if t.shape.Userspace && !d.setpolicy {
		d.governors = append([]string{"userspace"}, d.governors...)
	}
	t.turbo = &turbo{percent: 100}
	t.switches(d)
	for cpu := range t.plant.Spec().Cores {
		t.policy(d, cpu)
	}
}

// switches adds what acts on the whole machine.
func (t *Tree) switches(d driver) {
	spec := t.plant.Spec()
	if d.boost && spec.Base() < spec.FreqMax {
		t.control(path.Join(cpuDevices, "cpufreq/boost"), Soon,
			func() (string, error) { return formatBool(!t.turbo.off), nil }, t.storeSwitch(false))
	}
	if d.dir == "" {
		return
	}
	dir := path.Join(cpuDevices, d.dir)
	t.control(path.Join(dir, "status"), Seldom, say(d.status), func(text string) error {
		switch text {
		case d.status:
			return nil
		case "active", "passive", "off", "guided":
			return syscall.EBUSY // this machine cannot change its driver
		}
		return syscall.EINVAL
	})
	if d.dir != "intel_pstate" {
		return
	}
	t.control(path.Join(dir, "no_turbo"), Soon,
		func() (string, error) { return formatBool(t.turbo.off), nil }, t.storeSwitch(true))
	t.control(path.Join(dir, "max_perf_pct"), Soon,
		number(func() int64 { return t.turbo.percent }), t.storePercent)
	t.control(path.Join(dir, "min_perf_pct"), Seldom, number(func() int64 { return int64(spec.FreqMin * 100 / spec.FreqMax) }), checkScan)
	steps := int64((spec.FreqMax-spec.FreqMin)/spec.FreqStep) + 1
	t.fixed(dir, "num_pstates", format(steps), "turbo_pct", format(int64((spec.FreqMax-spec.Base())*100/(spec.FreqMax-spec.FreqMin+1))))
}

// storeSwitch takes a turbo switch: offMeans is the value that turns turbo off.
func (t *Tree) storeSwitch(offMeans bool) func(string) error {
	return func(text string) error {
		v, err := ParseScan(text)
		if err != nil || v > 1 {
			return syscall.EINVAL
		}
		if t.faults.NoTurbo {
			return syscall.EPERM // "Turbo disabled by BIOS or unavailable on processor"
		}
		t.turbo.off = v == 1 == offMeans
		t.boundAnew()
		t.applyAll()
		return nil
	}
}

// boundAnew is what cppc_cpufreq does when boost is switched: the highest frequency
// becomes another one, and every policy's ceiling with it, whatever was set.
func (t *Tree) boundAnew() {
	for _, p := range t.policies {
		if p.driver.name == "cppc_cpufreq" {
			p.later(func() { p.max = p.top() })
		}
	}
}

func (t *Tree) storePercent(text string) error {
	v, err := ParseScan(text)
	if err != nil {
		return err
	}
	spec := t.plant.Spec()
	t.turbo.percent = min(100, max(v, int64(spec.FreqMin*100/spec.FreqMax)))
	t.applyAll()
	return nil
}

func checkScan(text string) error { _, err := ParseScan(text); return err }

func (t *Tree) applyAll() {
	for _, p := range t.policies {
		p.apply()
	}
}

func (t *Tree) policy(d driver, cpu int) {
	spec := t.plant.Spec()
	n := strconv.Itoa(cpu)
	dir := path.Join(cpuDevices, "cpufreq", "policy"+n)
	p := &policy{tree: t, driver: d, cpu: cpu, governor: "schedutil", min: spec.FreqMin, max: spec.FreqMax, speed: spec.FreqMin, epp: "balance_performance"}
	if d.setpolicy {
		p.governor = "powersave"
	}
	t.policies = append(t.policies, p)
	first := len(t.attrs)
	t.fixed(dir, "scaling_driver", d.name, "scaling_available_governors", strings.Join(d.governors, " ")+" ",
		"cpuinfo_min_freq", format(spec.FreqMin),
		"cpuinfo_transition_latency", map[bool]string{true: "0", false: "10000"}[d.setpolicy],
		"affected_cpus", n, "related_cpus", n)
	t.reading(path.Join(dir, "cpuinfo_max_freq"), Slow, number(p.highest))
	p.only(dir)
	t.reading(path.Join(dir, "scaling_cur_freq"), Slow, number(func() units.Freq { return t.plant.CoreFreq(cpu) }))
	t.control(path.Join(dir, "scaling_governor"), Soon, func() (string, error) { return p.governor, nil }, p.setGovernor)
	t.control(path.Join(dir, "scaling_min_freq"), Soon, number(p.shownMin), p.store(&p.min)).bounds = p
	t.control(path.Join(dir, "scaling_max_freq"), Soon, number(p.shownMax), p.store(&p.max)).bounds = p
	t.control(path.Join(dir, "scaling_setspeed"), Seldom, p.showSpeed, p.setSpeed)
	for _, a := range t.attrs[first:] {
		a.cpu = cpu
	}
	t.link(path.Join(cpuDevices, "cpu"+n, "cpufreq"), dir)
}

// highest is cpuinfo_max_freq, which moves with boost where the driver makes it.
func (p *policy) highest() units.Freq {
	if p.driver.name == "cppc_cpufreq" && p.tree.turbo.off {
		return p.tree.plant.Spec().Base()
	}
	return p.tree.plant.Spec().FreqMax
}

// only adds what some drivers have and others have not.
func (p *policy) only(dir string) {
	t, spec := p.tree, p.tree.plant.Spec()
	if p.driver.ladder {
		var ladder strings.Builder
		for _, f := range spec.Frequencies() {
			ladder.WriteString(format(f) + " ")
		}
		t.fixed(dir, "scaling_available_frequencies", ladder.String())
		a := t.reading(path.Join(dir, "cpuinfo_cur_freq"), Slow, number(func() units.Freq { return t.plant.CoreFreq(p.cpu) }))
		a.Mode = 0o400
	}
	if p.driver.epp {
		t.fixed(dir, "energy_performance_available_preferences", strings.Join(preferences(), " ")+" ")
		t.control(path.Join(dir, "energy_performance_preference"), Soon, p.showEPP, p.setEPP)
	}
	switch p.driver.name {
	case "intel_pstate", "intel_cpufreq":
		t.fixed(dir, "base_frequency", format(spec.Base()))
	case "amd-pstate-epp":
		t.fixed(dir, "amd_pstate_max_freq", format(spec.FreqMax), "amd_pstate_highest_perf", "255",
			"amd_pstate_lowest_nonlinear_freq", format((spec.FreqMin+spec.Base())/2))
	case "cppc_cpufreq":
		t.fixed(path.Join(cpuDevices, "cpu"+strconv.Itoa(p.cpu), "acpi_cppc"),
			"highest_perf", format(spec.FreqMax/1000/10), "nominal_perf", format(spec.Base()/1000/10), "lowest_perf", format(spec.FreqMin/1000/10),
			"nominal_freq", format(spec.Base()/1000), "lowest_freq", format(spec.FreqMin/1000))
	}
}

// preferences are the energy-performance preferences by name.
func preferences() []string {
	return []string{"default", "performance", "balance_performance", "balance_power", "power"}
}

// showEPP is the preference; the performance governor pins it.
func (p *policy) showEPP() (string, error) {
	if p.governor == "performance" {
		return "performance", nil
	}
	return p.epp, nil
}

// setEPP takes a preference by name, and with intel_pstate also by number.
func (p *policy) setEPP(text string) error {
	name := strings.TrimSpace(text)
	if !slices.Contains(preferences(), name) {
		v, err := ParseUint(name)
		if err != nil || v > 255 || p.driver.name != "intel_pstate" {
			return syscall.EINVAL
		}
		name = format(v)
	}
	if p.governor == "performance" && name != "performance" && name != "0" && name != "default" {
		return syscall.EBUSY
	}
	if name == "default" {
		name = "balance_performance"
	}
	p.epp = name
	return nil
}

func (p *policy) setGovernor(text string) error {
	name := strings.TrimSpace(text)
	if !slices.Contains(p.driver.governors, name) {
		return syscall.EINVAL
	}
	if name == "userspace" && p.governor != name {
		p.speed = max(p.tree.plant.CoreFreq(p.cpu), p.shownMin())
	}
	p.governor = name
	p.apply()
	return nil
}

// store takes a bound: what is out of range is clamped without an error.
func (p *policy) store(bound *units.Freq) func(text string) error {
	return func(text string) error {
		v, err := ParseScan(text)
		if err != nil {
			return err
		}
		spec := p.tree.plant.Spec()
		p.later(func() { *bound = min(max(units.Freq(v), spec.FreqMin), spec.FreqMax) })
		return nil
	}
}

// DeferBounds has scaling_max_freq and scaling_min_freq be carried out by a worker, as
// Linux does since 5.5: who reads a bound back right after writing it sees the old one
// once; the new one stands after that, or after the next Step.
func (t *Tree) DeferBounds() { t.deferred = true }

// later carries a change of the policy's bounds out, or leaves it to the worker.
func (p *policy) later(change func()) {
	p.late = append(p.late, change)
	if !p.tree.deferred {
		p.work()
	}
}

// work is the worker's turn.
func (p *policy) work() {
	if len(p.late) == 0 {
		return
	}
	for _, change := range p.late {
		change()
	}
	p.late = nil
	p.apply()
}

// top is the most that turbo switches leave.
func (p *policy) top() units.Freq {
	spec := p.tree.plant.Spec()
	most := spec.FreqMax * units.Freq(p.tree.turbo.percent) / 100
	if p.tree.turbo.off {
		most = min(most, spec.Base())
	}
	return max(most, spec.FreqMin)
}

// shownMax is the ceiling that holds: with a table the rung at or below it. A
// ceiling that a switch lowered comes back with the switch. max_perf_pct acts
// without showing here.
func (p *policy) shownMax() units.Freq {
	held := p.max
	if p.tree.turbo.off {
		held = min(held, p.tree.plant.Spec().Base())
	}
	if p.driver.ladder {
		held = p.tree.plant.Spec().RoundFreq(held)
	}
	return held
}

// shownMin is the lowest frequency, with a table the rung at or above it, and
// never above the ceiling.
func (p *policy) shownMin() units.Freq {
	held := p.min
	if p.driver.ladder {
		held = p.roundUp(held)
	}
	return min(held, p.shownMax())
}

// roundUp is the lowest rung not below f.
func (p *policy) roundUp(f units.Freq) units.Freq {
	spec := p.tree.plant.Spec()
	if down := spec.RoundFreq(f); down < f {
		ladder := spec.Frequencies()
		return ladder[max(0, slices.Index(ladder, down)-1)]
	}
	return f
}

func (p *policy) showSpeed() (string, error) {
	if p.governor != "userspace" {
		return "<unsupported>", nil
	}
	return format(p.speed), nil
}

// setSpeed takes a frequency from the userspace governor's user: clamped, and with
// a table rounded up.
func (p *policy) setSpeed(text string) error {
	if p.governor != "userspace" {
		return syscall.EINVAL
	}
	v, err := ParseScan(text)
	if err != nil {
		return err
	}
	p.speed = min(max(units.Freq(v), p.shownMin()), p.shownMax())
	if p.driver.ladder {
		p.speed = p.roundUp(p.speed)
	}
	p.apply()
	return nil
}

// apply sets the plant's ceiling to what the governor requests under load.
func (p *policy) apply() {
	ask := p.shownMax()
	switch {
	case p.governor == "powersave" && !p.driver.setpolicy:
		ask = p.shownMin()
	case p.governor == "userspace":
		ask = min(max(p.speed, p.shownMin()), ask)
	}
	p.tree.plant.SetCeiling(p.cpu, min(ask, p.top()))
}
