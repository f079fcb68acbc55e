// Package msr reads RAPL from model-specific registers of the processor, for machines whose
// kernel has no powercap driver, and only if the operator selects it (rapl.source: msr).
//
// The one idea: the registers are presented as a powercap tree. Each zone is a set of small
// text attributes, so all of package rapl (zones, counters, locks, reading back) works
// unchanged, and the result is a *rapl.Tree. Two attributes are not in powercap: "clamp"
// beside "enabled", and "locked".
//
// Guarantees: a unit register of 0 means "no RAPL", never units of 1 W; a limit that does not
// fit its 15 bits, or would be 0 W, is refused before the write; a write changes only the
// bits of its own field; registers are written only through a rapl.Limiter or OpenControl,
// never by opening the tree.
//
// Registers are read by one pread on an open descriptor of dev/cpu/N/msr below the caller's
// os.Root. Existing libraries use the absolute path of that device and open it for each
// read, so a test could not replace it.
package msr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"headroom/internal/each"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Registers (Intel SDM vol. 4; AMD PPR for family 17h and later).
const (
	unitReg         = 0x606
	packageLimitReg = 0x610
	packageReg      = 0x611
	packageInfoReg  = 0x614
	dramReg         = 0x619
	coreReg         = 0x639
	uncoreReg       = 0x641
	psysReg         = 0x64d

	amdUnitReg    = 0xc0010299
	amdCoreReg    = 0xc001029a
	amdPackageReg = 0xc001029b
)

// top is the made-up directory of the zones: no file of that name exists.
const top = "msr"

// counterMask is the width of every energy counter.
const counterMask = 1<<32 - 1

// ErrNoRAPL reports a unit register that reads 0, as in virtual machines.
var ErrNoRAPL = errors.New("the unit register reads 0: no RAPL (virtual machine?)")

// registers are the registers of a machine's CPUs. They are for one goroutine.
type registers interface {
	// Read reads register reg on a CPU. EIO means that the CPU has no such register.
	Read(cpu int, reg uint32) (uint64, error)
	// Write writes it.
	Write(cpu int, reg uint32, value uint64) error
	// Close closes descriptors; a later Read may open them again.
	Close() error
}

// Open shows the registers of dev/cpu/N/msr below root as RAPL zones. It fails
// with rapl.ErrNoTree without such devices (module msr is not loaded), and with
// ErrNoRAPL, which is also a rapl.ErrNoZone, when they hold no RAPL. Nothing is
// written.
func Open(root *os.Root) (*rapl.Tree, error) { return openWith(root, &devices{root: root}) }

// openWith is Open with registers of the caller's. CPUs, their packages and
// their make are read below root, from sys/devices/system/cpu and proc/cpuinfo.
func openWith(root *os.Root, regs registers) (*rapl.Tree, error) {
	s, err := newSource(root, regs)
	if err != nil {
		return nil, err
	}
	dirs := each.List(s.zones, func(z *zone) rapl.Dir { return rapl.Dir{Path: z.dir, Control: rapl.ControlRegs} })
	return rapl.OpenZones(s.open, dirs)
}

// Owns reports whether a control's path is one of this package's, and no file.
func Owns(path string) bool { return strings.HasPrefix(path, top+"/") }

// OpenControl opens one control by its path, for putting back what a Limiter of
// an earlier process wrote.
func OpenControl(root *os.Root, path string) (*sysfs.Control, error) {
	s, err := newSource(root, &devices{root: root})
	if err != nil {
		return nil, err
	}
	return sysfs.NewControl(path, s.open)
}

// source is the registers of one machine, as zones.
type source struct {
	regs  registers
	refs  int // open files
	units Units
	zones []*zone
}

// zone is one domain: a directory of attributes.
type zone struct {
	dir    string
	name   string
	cpus   []int // that have the domain's registers; the first online one is read
	energy func() (units.Energy, error)
	span   units.Energy // 0: the counter does not wrap
	limits bool         // packageLimitReg is there
}

func newSource(root *os.Root, regs registers) (*source, error) {
	m, err := readMake(root)
	if err != nil {
		return nil, err
	}
	places := topology(root, !m.amd)
	s := &source{regs: regs}
	reg := uint32(unitReg)
	if m.amd {
		reg = amdUnitReg
	}
	v, err := s.read(places[0].cpus, reg)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("msr: %w: %w; the kernel module msr may not be loaded", rapl.ErrNoTree, err)
	case err != nil:
		return nil, fmt.Errorf("msr: %w: unit register: %w", rapl.ErrNoZone, errors.Join(err, regs.Close()))
	}
	var ok bool
	if s.units, ok = decodeUnits(v); !ok {
		return nil, fmt.Errorf("msr: %w: %w", rapl.ErrNoZone, errors.Join(ErrNoRAPL, regs.Close()))
	}
	for _, p := range places {
		s.addPackage(p, m)
	}
	if len(s.zones) == 0 {
		return nil, fmt.Errorf("msr: no energy counter advances: %w", errors.Join(rapl.ErrNoZone, regs.Close()))
	}
	return s, nil
}

// addPackage adds the domains of one package. A missing counter, or one at 0, is no domain
// of this machine.
func (s *source) addPackage(p place, m processor) {
	dir := path.Join(top, p.name())
	if m.amd {
		if s.add(dir, p.name(), p.cpus, amdPackageReg, s.units.Energy) {
			s.addCores(path.Join(dir, "core"), p.firsts)
		}
		return
	}
	if !s.add(dir, p.name(), p.cpus, packageReg, s.units.Energy) {
		return
	}
	_, err := s.read(p.cpus, packageLimitReg)
	s.zones[len(s.zones)-1].limits = err == nil
	s.add(path.Join(dir, "core"), "core", p.cpus, coreReg, s.units.Energy)
	s.add(path.Join(dir, "uncore"), "uncore", p.cpus, uncoreReg, s.units.Energy)
	s.add(path.Join(dir, "dram"), "dram", p.cpus, dramReg, m.dramEnergy(s.units))
	name := "psys"
	if p.socket > 0 {
		name = fmt.Sprintf("psys-%d", p.socket)
	}
	if p.die <= 0 {
		s.add(path.Join(top, name), name, p.cpus, psysReg, m.psysEnergy(s.units))
	}
}

func (s *source) add(dir, name string, cpus []int, reg uint32, scale func(uint64) units.Energy) bool {
	if v, err := s.read(cpus, reg); err != nil || v&counterMask == 0 {
		return false
	}
	s.zones = append(s.zones, &zone{dir: dir, name: name, cpus: cpus, span: scale(counterMask), energy: func() (units.Energy, error) {
		v, err := s.read(cpus, reg)
		return scale(v & counterMask), err
	}})
	return true
}

// addCores adds the cores of an AMD package as one zone: each core counts for
// itself and wraps by itself, so their counts are carried on here.
func (s *source) addCores(dir string, firsts []int) {
	last := make([]uint64, len(firsts))
	var counts uint64
	for i, cpu := range firsts {
		v, err := s.read([]int{cpu}, amdCoreReg)
		if err != nil {
			return
		}
		last[i] = v & counterMask
	}
	s.zones = append(s.zones, &zone{dir: dir, name: "core", cpus: firsts, energy: func() (units.Energy, error) {
		for i, cpu := range firsts {
			v, err := s.read([]int{cpu}, amdCoreReg)
			if err != nil {
				return 0, err
			}
			counts += (v - last[i]) & counterMask
			last[i] = v & counterMask
		}
		return s.units.Energy(counts), nil
	}})
}

// read reads a register on the first CPU that answers: one that was taken
// offline does not.
func (s *source) read(cpus []int, reg uint32) (uint64, error) {
	var last error
	for _, cpu := range cpus {
		v, err := s.regs.Read(cpu, reg)
		if err == nil {
			return v, nil
		}
		if last = err; !offline(err) {
			break
		}
	}
	return 0, last
}

func (s *source) write(cpus []int, reg uint32, v uint64) error {
	var last error
	for _, cpu := range cpus {
		if last = s.regs.Write(cpu, reg, v); last == nil || !offline(last) {
			break
		}
	}
	return last
}

// offline reports whether the CPU is not there to be asked.
func offline(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

// change rewrites a package limit register by edit. A locked one is EACCES.
func (s *source) change(cpus []int, edit func(*packageLimit) error) error {
	old, err := s.read(cpus, packageLimitReg)
	if err != nil {
		return err
	}
	l := decodeLimit(old)
	if l.Locked {
		return unix.EACCES
	}
	if err := edit(&l); err != nil {
		return err
	}
	return s.write(cpus, packageLimitReg, l.Encode(old))
}
