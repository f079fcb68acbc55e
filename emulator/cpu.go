package emulator

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/units"
)

// governors are those that acpi-cpufreq offers here. All but powersave ask for
// the ceiling under load; powersave asks for the lowest frequency.
func governors() []string { return []string{"ondemand", "powersave", "performance", "schedutil"} }

// policy is the cpufreq policy of one virtual CPU.
type policy struct {
	tree     *tree
	cpu      int
	governor string
	min, max units.Freq // what was asked for, within the hardware's range
}

// cpufreq builds the CPU devices with one policy each.
func (t *tree) cpufreq() error {
	cores := t.plant.Spec().Cores
	online := "0"
	if cores > 1 {
		online = "0-" + strconv.Itoa(cores-1)
	}
	if err := t.fixed(cpuDevices, "online", online, "possible", online, "present", online, "offline", ""); err != nil {
		return err
	}
	for cpu := range cores {
		if err := t.policy(cpu); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) policy(cpu int) error {
	spec := t.plant.Spec()
	number := strconv.Itoa(cpu)
	dir := path.Join(cpuDevices, "cpufreq", "policy"+number)
	p := &policy{tree: t, cpu: cpu, governor: "schedutil", min: spec.FreqMin, max: spec.FreqMax}
	var ladder strings.Builder
	for _, f := range spec.Frequencies() {
		ladder.WriteString(format(f) + " ")
	}
	err := t.fixed(dir,
		"scaling_driver", "acpi-cpufreq",
		"scaling_available_governors", strings.Join(governors(), " ")+" ",
		"scaling_available_frequencies", ladder.String(),
		"cpuinfo_min_freq", format(spec.FreqMin), "cpuinfo_max_freq", format(spec.FreqMax),
		"cpuinfo_transition_latency", "10000",
		"affected_cpus", number, "related_cpus", number)
	if err != nil {
		return err
	}
	current, err := t.add(path.Join(dir, "scaling_cur_freq"), format(t.plant.CoreFreq(cpu)), 0o444)
	if err != nil {
		return err
	}
	t.freqs = append(t.freqs, current)
	for _, c := range []struct {
		name, value string
		store       func(string) (string, error)
	}{
		{"scaling_governor", p.governor, p.setGovernor},
		{"scaling_min_freq", format(p.min), p.setMin},
		{"scaling_max_freq", format(p.max), p.setMax},
	} {
		if err := t.control(&t.warm, path.Join(dir, c.name), c.value, c.store); err != nil {
			return err
		}
	}
	// Without the userspace governor, as the kernel shows it.
	return errors.Join(t.inert(path.Join(dir, "scaling_setspeed"), "<unsupported>"), t.cpuLink(number))
}

// cpuLink makes cpuN with its link to the policy.
func (t *tree) cpuLink(number string) error {
	dir := path.Join(cpuDevices, "cpu"+number)
	if err := t.root.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("emulator: create %s: %w", dir, err)
	}
	return t.root.Symlink("../cpufreq/policy"+number, path.Join(dir, "cpufreq"))
}

func (p *policy) setGovernor(text string) (string, error) {
	name := strings.TrimSpace(text)
	if !slices.Contains(governors(), name) {
		return "", errMalformed
	}
	p.governor = name
	p.apply()
	return name, nil
}

// setMax takes a ceiling: out of range is clamped, between rungs goes down.
func (p *policy) setMax(text string) (string, error) {
	v, err := parseScan(text)
	if err != nil {
		return "", err
	}
	p.max = p.tree.plant.Spec().RoundFreq(units.Freq(v))
	p.apply()
	return format(p.max), nil
}

// setMin takes the lowest frequency that the governor may ask for.
func (p *policy) setMin(text string) (string, error) {
	v, err := parseScan(text)
	if err != nil {
		return "", err
	}
	p.min = p.tree.plant.Spec().RoundFreq(units.Freq(v))
	p.apply()
	return format(p.min), nil
}

// apply sets the plant's ceiling to what the governor asks for under load.
func (p *policy) apply() {
	ask := p.max
	if p.governor == "powersave" {
		ask = min(p.min, p.max)
	}
	p.tree.plant.SetCeiling(p.cpu, ask)
}

// proc builds the part of /proc that tells CPU use.
func (t *tree) proc() error {
	stat, err := t.add("proc/stat", t.statText(), 0o444)
	t.stat = stat
	return err
}

// userHz is the kernel's unit of CPU time in /proc: 1/100 s.
const userHz = 100

// account adds a step to the CPU time of the virtual CPUs, all equally busy.
func (t *tree) account(dt time.Duration, util float64) {
	t.elapsed += dt.Seconds() * userHz
	t.ticks += dt.Seconds() * userHz * util
}

// observe writes what moves slower than energy: CPU use and frequencies.
func (t *tree) observe() error {
	errs := []error{t.stat.put(t.statText())}
	for cpu, a := range t.freqs {
		errs = append(errs, a.put(format(t.plant.CoreFreq(cpu))))
	}
	return errors.Join(errs...)
}

// statText is /proc/stat (proc_stat(5)): user and idle time of every virtual CPU.
func (t *tree) statText() string {
	user, idle := int64(t.ticks), int64(t.elapsed)-int64(t.ticks)
	cores := t.plant.Spec().Cores
	var b strings.Builder
	fmt.Fprintf(&b, "cpu  %d 0 0 %d 0 0 0 0 0 0\n", user*int64(cores), idle*int64(cores))
	for cpu := range cores {
		fmt.Fprintf(&b, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", cpu, user, idle)
	}
	running := 0
	if t.plant.Utilisation() > 0 {
		running = cores
	}
	fmt.Fprintf(&b, "intr 0\nctxt 0\nbtime %d\nprocesses 1\nprocs_running %d\nprocs_blocked 0\n", t.boot.Unix(), running)
	b.WriteString("softirq 0 0 0 0 0 0 0 0 0 0 0")
	return b.String()
}
