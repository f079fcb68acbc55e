// Package dvfs reads and limits processor frequency through the kernel's cpufreq policies.
//
// A Policy is a group of CPUs that share one frequency. Its limit is scaling_max_freq, the
// one setting that every cpufreq driver has: acpi-cpufreq, cppc_cpufreq, amd-pstate and
// intel_pstate in either mode differ in governors, frequency tables and the meaning of their
// requests, but all of them stay below this ceiling. The package therefore probes the driver
// and its status file, never the vendor; uses a list of frequencies if there is one; and
// never changes a governor.
//
// A policy has no descriptor of its own but for its ceiling, while that may be written: a
// machine may have 2,048 policies.
//
// Guarantees: every path is resolved inside one os.Root; reading (Policy, Turbo) never
// changes the machine; separate types write (Ceiling, Ceilings, Preference, TurboSwitch), and
// each write is read back, because the kernel clamps and rounds without an error; a ceiling
// is clamped to the range of the hardware before it is written; every writable setting has
// its sysfs.Control, so that its original value can be saved and restored exactly; a failing
// policy does not stop the others. The package does not relate frequency to power; the
// control law does.
package dvfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"headroom/rapl/sysfs"
)

// cpufreqDir is where the kernel keeps its policies (admin-guide/pm/cpufreq.rst).
const cpufreqDir = "sys/devices/system/cpu/cpufreq"

// policiesMax bounds the number of policies: one for each CPU of the largest known machine.
const policiesMax = 8192

// Set holds all policies of one machine. It is for one goroutine at a time.
type Set struct {
	root     *os.Root
	open     sysfs.Opener
	files    *sysfs.Files // nil: open keeps the descriptor of every file, as in tests
	own      bool         // files are closed with the set
	policies []*Policy
}

// Count is how many policies there may be below a folder; 0 where that is not known.
func Count(root string) int {
	entries, err := os.ReadDir(filepath.Join(root, cpufreqDir))
	if err != nil {
		return 0
	}
	return len(entries)
}

// Open finds the policies below root. It returns ErrNoPolicy without any. An unreadable
// policy (its CPUs are offline) is skipped until Refresh finds it.
func Open(root *os.Root) (*Set, error) {
	files, err := sysfs.NewFiles(root)
	if err != nil {
		return nil, fmt.Errorf("dvfs: %w", err)
	}
	s, err := OpenIn(files)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	s.own = true
	return s, nil
}

// OpenIn is Open with files that others use too.
func OpenIn(files *sysfs.Files) (*Set, error) {
	return find(&Set{root: files.Root(), open: Files(files), files: files})
}

// Files opens files as numbers for a journal, except that an energy preference, which the
// kernel shows as a word, is the number of its EPP. Controls of this package are saved and
// restored through Files.
func Files(files *sysfs.Files) sysfs.Opener { return numbered(files.Open) }

func find(s *Set) (*Set, error) {
	_, failed, err := s.discover(s.modes())
	if err != nil {
		return nil, err
	}
	if len(s.policies) == 0 {
		return nil, noPolicy(s.root, failed)
	}
	return s, nil
}

// modes reads the status file of each driver once: it is one for all policies.
func (s *Set) modes() func(driver string) string {
	known := map[string]string{}
	return func(driver string) string {
		text, ok := known[driver]
		if !ok {
			text = statusOf(s.open, driver)
			known[driver] = text
		}
		return text
	}
}

// discover opens new policies.
func (s *Set) discover(status func(driver string) string) (added []*Policy, failed []error, err error) {
	entries, err := fs.ReadDir(s.root.FS(), cpufreqDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("dvfs: %w", err)
	}
	known := make(map[string]bool, len(s.policies))
	for _, p := range s.policies {
		known[p.Name] = true
	}
	for _, e := range entries[:min(len(entries), policiesMax)] {
		if known[e.Name()] || !strings.HasPrefix(e.Name(), "policy") {
			continue
		}
		p := &Policy{Name: e.Name(), open: s.open, files: s.files}
		if err := p.find(status); err != nil {
			failed = append(failed, err)
			continue
		}
		added = append(added, p)
	}
	s.policies = append(s.policies, added...)
	slices.SortFunc(s.policies, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.first(), b.first()), cmp.Compare(a.Name, b.Name))
	})
	return added, failed, nil
}

// Policies returns the policies in the order of their first CPU.
func (s *Set) Policies() []*Policy { return s.policies }

// Refresh reads again what changes at run time: the range of a policy (turbo switched, a
// new firmware limit), its CPUs, and policies whose CPUs came online. It returns the new
// policies. An offline policy keeps its place and its last values.
func (s *Set) Refresh() (added []*Policy, err error) {
	var errs []error
	status := s.modes()
	for _, p := range s.policies {
		if err := p.refresh(status); err != nil && !errors.Is(err, ErrOffline) {
			errs = append(errs, err)
		}
	}
	added, failed, err := s.discover(status)
	for _, f := range failed {
		if !errors.Is(offline(f), ErrOffline) {
			errs = append(errs, f)
		}
	}
	return added, Several(append(errs, err))
}

// Close closes the set's own files.
func (s *Set) Close() error {
	if !s.own {
		return nil
	}
	return s.files.Close()
}

// Knob is one control that a type of this package may write.
type Knob struct {
	// Label is shown to operators: "policy0 frequency ceiling".
	Label string
	// Control reads and writes it as a number: kHz for ceilings and floors, the
	// number of EPP for preferences, 0 or 1 for the turbo switch as in its file. It
	// belongs to the type that returned it.
	Control *sysfs.Control
}

// join returns the path of a file of the policy called name.
func join(name, file string) string { return path.Join(cpufreqDir, name, file) }
