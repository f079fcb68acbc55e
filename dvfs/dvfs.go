// Package dvfs reads and bounds processor frequency through the kernel's cpufreq
// policies.
//
// A Policy is a group of CPUs that share one frequency. What bounds it is
// scaling_max_freq, the one knob that every cpufreq driver has: acpi-cpufreq,
// amd-pstate and intel_pstate differ in governors, in frequency tables and in
// what their requests mean, but all of them keep below this ceiling. So the
// package never assumes a list of frequencies and never touches a governor.
//
// Guarantees: every path is resolved inside one os.Root; reading (Policy) never
// changes the machine; the hand that writes is another type (Ceiling), and each
// write is read back, because the kernel clamps and rounds a ceiling without an
// error. A ceiling is clamped to what the hardware can do before it is written,
// and the value that was there before can be put back exactly. The package does
// not know what a watt costs in hertz; that is the control law's part.
package dvfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// cpufreqDir is where the kernel keeps its policies (admin-guide/pm/cpufreq.rst).
const cpufreqDir = "sys/devices/system/cpu/cpufreq"

// policiesMax bounds the walk: one policy a CPU on the largest machine known.
const policiesMax = 8192

// ErrNoPolicy reports a machine without cpufreq: a virtual machine, or a kernel
// without a driver for its processor.
var ErrNoPolicy = errors.New("no cpufreq policy")

// ErrNotTaken reports a ceiling that was written without an error and then did
// not read back at or below what was asked for.
var ErrNotTaken = errors.New("written, but a higher ceiling reads back")

// WriteError reports a ceiling that the driver did not take.
type WriteError struct {
	Policy    string
	Want, Got units.Freq
	Err       error // the system's error, or ErrNotTaken
	Hint      string
}

// Error names the policy and both values.
func (e *WriteError) Error() string {
	return fmt.Sprintf("dvfs: %s: wrote ceiling %v, reads %v: %v", e.Policy, e.Want, e.Got, e.Err)
}

// Unwrap is the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Policy is one cpufreq policy, open for reading. Its readings are for one
// goroutine at a time.
type Policy struct {
	// Name is the policy's directory name, e.g. "policy0".
	Name string
	// Driver is the scaling driver: "intel_pstate", "acpi-cpufreq", "amd-pstate-epp".
	Driver string
	// Min and Max are what the hardware can do. With acpi-cpufreq, Max may be the
	// base clock, and boost lies hidden above it.
	Min, Max units.Freq
	// CPUs are the numbers of the CPUs that share the policy.
	CPUs []int

	root *os.Root
	cur  *sysfs.Attr
	max  *sysfs.Attr
}

// Set is all policies of one machine.
type Set struct {
	policies []*Policy
}

// Open finds the policies below root. It fails with ErrNoPolicy when there is
// none; a policy that cannot be read (its CPUs are offline) is left out.
func Open(root *os.Root) (*Set, error) {
	entries, err := fs.ReadDir(root.FS(), cpufreqDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("dvfs: %w", err)
	}
	s := &Set{}
	var failed []error
	for _, e := range entries[:min(len(entries), policiesMax)] {
		if !strings.HasPrefix(e.Name(), "policy") {
			continue
		}
		p, err := openPolicy(root, e.Name())
		if err != nil {
			failed = append(failed, err)
			continue
		}
		s.policies = append(s.policies, p)
	}
	if len(s.policies) == 0 {
		return nil, errors.Join(append(failed, fmt.Errorf("dvfs: %s: %w", cpufreqDir, ErrNoPolicy))...)
	}
	slices.SortFunc(s.policies, func(a, b *Policy) int { return cmp.Or(cmp.Compare(a.first(), b.first()), cmp.Compare(a.Name, b.Name)) })
	return s, nil
}

// Policies are in the order of their first CPU.
func (s *Set) Policies() []*Policy { return s.policies }

// Close gives all descriptors back.
func (s *Set) Close() error {
	var errs []error
	for _, p := range s.policies {
		errs = append(errs, p.max.Close())
		if p.cur != nil {
			errs = append(errs, p.cur.Close())
		}
	}
	return errors.Join(errs...)
}

func openPolicy(root *os.Root, name string) (*Policy, error) {
	p := &Policy{Name: name, root: root}
	var errs [4]error
	p.Driver, errs[0] = sysfs.ReadText(root, p.path("scaling_driver"))
	p.Min, errs[1] = p.readFreq("cpuinfo_min_freq")
	p.Max, errs[2] = p.readFreq("cpuinfo_max_freq")
	p.max, errs[3] = sysfs.Open(root, p.path("scaling_max_freq"))
	if err := errors.Join(errs[:]...); err != nil {
		if p.max != nil {
			err = errors.Join(err, p.max.Close())
		}
		return nil, fmt.Errorf("dvfs: %s: %w", name, err)
	}
	if a, err := sysfs.Open(root, p.path("scaling_cur_freq")); err == nil {
		p.cur = a // some drivers have none
	}
	if text, err := sysfs.ReadText(root, p.path("affected_cpus")); err == nil {
		p.CPUs = parseCPUs(text)
	}
	return p, nil
}

func (p *Policy) path(file string) string { return path.Join(cpufreqDir, p.Name, file) }

func (p *Policy) readFreq(file string) (units.Freq, error) {
	v, err := sysfs.ReadInt(p.root, p.path(file))
	return units.Freq(v), err
}

func (p *Policy) first() int {
	if len(p.CPUs) == 0 {
		return 1 << 30
	}
	return p.CPUs[0]
}

// Governor reads the governor in force, e.g. "performance".
func (p *Policy) Governor() (string, error) {
	return sysfs.ReadText(p.root, p.path("scaling_governor"))
}

// Frequency reads the current frequency. Where the hardware does not count its
// cycles this is what was last asked for, not what runs.
func (p *Policy) Frequency() (units.Freq, error) {
	if p.cur == nil {
		return 0, fmt.Errorf("dvfs: %s: scaling_cur_freq: %w", p.Name, fs.ErrNotExist)
	}
	v, err := p.cur.Int()
	return units.Freq(v), err
}

// CeilingNow reads the ceiling in force.
func (p *Policy) CeilingNow() (units.Freq, error) {
	v, err := p.max.Int()
	return units.Freq(v), err
}

// Ceiling is the hand on a policy's highest frequency. There is at most one for
// a policy. It is for one goroutine.
type Ceiling struct {
	policy  *Policy
	control *sysfs.Control
}

// Ceiling opens the policy's ceiling for writing; nothing is written yet.
func (p *Policy) Ceiling() (*Ceiling, error) {
	c, err := sysfs.OpenControl(p.root, p.path("scaling_max_freq"))
	if err != nil {
		return nil, fmt.Errorf("dvfs: %s: %w", p.Name, err)
	}
	return &Ceiling{policy: p, control: c}, nil
}

// Control is the file behind the ceiling, for saving and putting back.
func (c *Ceiling) Control() *sysfs.Control { return c.control }

// Clamp is the nearest ceiling to f that the hardware can hold.
func (c *Ceiling) Clamp(f units.Freq) units.Freq { return min(max(f, c.policy.Min), c.policy.Max) }

// Set writes a ceiling, clamped to what the hardware can do, and returns what
// reads back. The driver may round down to a frequency it has; a ceiling that
// reads back higher than the clamped one is a *WriteError.
func (c *Ceiling) Set(f units.Freq) (units.Freq, error) {
	want := c.Clamp(f)
	v, err := c.control.Write(int64(want))
	got := units.Freq(v)
	if err == nil && got > want {
		err = ErrNotTaken
	}
	if err == nil {
		return got, nil
	}
	return got, &WriteError{
		Policy: c.policy.Name, Want: want, Got: got, Err: err,
		Hint: "another program may hold the ceiling: look for tuned, thermald, power-profiles-daemon or an EAR daemon",
	}
}

// Close gives the descriptors back. The ceiling stays as it is.
func (c *Ceiling) Close() error { return c.control.Close() }

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
