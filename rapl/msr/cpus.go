package msr

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// cpuDir is where the kernel shows the CPUs.
const cpuDir = "sys/devices/system/cpu"

// cpuinfoMax bounds what is read of proc/cpuinfo: the first CPU's part is 2 KiB.
const cpuinfoMax = 16 << 10

// cpusMax bounds the CPUs looked at.
const cpusMax = 8192

// processor is the make of the machine's processors.
type processor struct {
	amd           bool
	family, model int
}

// serverModels are the family 6 models whose memory counts in units of their own
// (15.3 uJ), whatever the unit register says (kernel: intel_rapl_common.c).
func serverModels() []int {
	return []int{0x3f, 0x4f, 0x56, 0x55, 0x57, 0x85, 0x6a, 0x6c, 0x8f, 0xcf}
}

// jouleModels count the platform's energy in whole joules.
func jouleModels() []int { return []int{0x8f, 0xcf} }

// dramEnergy is what counts of memory energy mean.
func (p processor) dramEnergy(u Units) func(uint64) units.Energy {
	if p.family == 6 && slices.Contains(serverModels(), p.model) {
		return func(n uint64) units.Energy { return units.Energy(n * 153 / 10) }
	}
	return u.Energy
}

// psysEnergy is what counts of platform energy mean.
func (p processor) psysEnergy(u Units) func(uint64) units.Energy {
	if p.family == 6 && slices.Contains(jouleModels(), p.model) {
		return func(n uint64) units.Energy { return units.Energy(n) * units.Joule }
	}
	return u.Energy
}

// readMake reads the first CPU's part of proc/cpuinfo.
func readMake(root *os.Root) (p processor, err error) {
	f, err := root.Open("proc/cpuinfo")
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil // nothing said: Intel's registers, in the units that they state
	}
	if err != nil {
		return p, fmt.Errorf("msr: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, cpuinfoMax))
	if err != nil {
		return p, fmt.Errorf("msr: %w", err)
	}
	return parseMake(text), nil
}

func parseMake(text []byte) processor {
	var p processor
	for line := range bytes.Lines(text) {
		key, value, ok := strings.Cut(string(line), ":")
		if !ok {
			break // the empty line after the first CPU
		}
		value = strings.TrimSpace(value)
		n, _ := strconv.Atoi(value)
		switch strings.TrimSpace(key) {
		case "vendor_id":
			p.amd = value == "AuthenticAMD" || value == "HygonGenuine"
		case "cpu family":
			p.family = n
		case "model":
			p.model = n
		}
	}
	return p
}

// place is one package, or one die of it.
type place struct {
	socket, die int   // die is -1 where a package is not told apart
	cpus        []int // in rising order
	firsts      []int // the first CPU of each core
}

// name is the zone's name, as the kernel names it.
func (p place) name() string {
	if p.die < 0 {
		return fmt.Sprintf("package-%d", p.socket)
	}
	return fmt.Sprintf("package-%d-die-%d", p.socket, p.die)
}

// topology groups the CPUs by package, and by die where dies is set and a package
// has several. Without a topology to read, CPU 0 stands for package 0.
func topology(root *os.Root, dies bool) []place {
	type id struct{ socket, die int }
	groups := map[id]*place{}
	cores := map[[3]int]bool{}
	multi := false
	for _, cpu := range cpus(root) {
		dir := path.Join(cpuDir, fmt.Sprintf("cpu%d", cpu), "topology")
		socket, err := sysfs.ReadInt(root, path.Join(dir, "physical_package_id"))
		if err != nil {
			continue // offline
		}
		die, err := sysfs.ReadInt(root, path.Join(dir, "die_id"))
		if err != nil || !dies {
			die = 0
		}
		core, err := sysfs.ReadInt(root, path.Join(dir, "core_id"))
		if err != nil {
			core = int64(cpu)
		}
		at := id{int(socket), int(die)}
		if groups[at] == nil {
			groups[at] = &place{socket: at.socket, die: at.die}
		}
		g := groups[at]
		g.cpus = append(g.cpus, cpu)
		if key := [3]int{at.socket, at.die, int(core)}; !cores[key] {
			cores[key] = true
			g.firsts = append(g.firsts, cpu)
		}
		multi = multi || at.die != 0
	}
	if len(groups) == 0 {
		return []place{{die: -1, cpus: []int{0}, firsts: []int{0}}}
	}
	all := make([]place, 0, len(groups))
	for _, g := range groups {
		if !multi {
			g.die = -1
		}
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Or(cmp.Compare(a.socket, b.socket), cmp.Compare(a.die, b.die)) })
	return all
}

// cpus are the numbers of the CPUs that the kernel shows, rising.
func cpus(root *os.Root) []int {
	entries, err := fs.ReadDir(root.FS(), cpuDir)
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "cpu")
		if n, err := strconv.ParseUint(digits, 10, 16); ok && err == nil && len(found) < cpusMax {
			found = append(found, int(n))
		}
	}
	slices.Sort(found)
	return found
}

// devices are the registers behind dev/cpu/N/msr. Each is opened when it is first
// needed, for writing only when it is written.
type devices struct {
	root        *os.Root
	read, write map[int]*os.File
	buf         [8]byte
}

// Read is one pread of eight bytes at the register's number.
func (d *devices) Read(cpu int, reg uint32) (uint64, error) {
	f, err := d.file(&d.read, cpu, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	n, err := unix.Pread(int(f.Fd()), d.buf[:], int64(reg))
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: registerPath(cpu, reg), Err: err}
	}
	if n != len(d.buf) {
		return 0, &os.PathError{Op: "read", Path: registerPath(cpu, reg), Err: io.ErrUnexpectedEOF}
	}
	return binary.LittleEndian.Uint64(d.buf[:]), nil
}

// Write is one pwrite of eight bytes at the register's number.
func (d *devices) Write(cpu int, reg uint32, value uint64) error {
	f, err := d.file(&d.write, cpu, os.O_WRONLY)
	if err != nil {
		return err
	}
	n, err := unix.Pwrite(int(f.Fd()), binary.LittleEndian.AppendUint64(nil, value), int64(reg))
	if err == nil && n != len(d.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: registerPath(cpu, reg), Err: err}
	}
	return nil
}

// Close closes every device.
func (d *devices) Close() error {
	var errs []error
	for _, set := range []map[int]*os.File{d.read, d.write} {
		for _, f := range set {
			errs = append(errs, f.Close())
		}
	}
	d.read, d.write = nil, nil
	return errors.Join(errs...)
}

func (d *devices) file(set *map[int]*os.File, cpu, flag int) (*os.File, error) {
	if f := (*set)[cpu]; f != nil {
		return f, nil
	}
	f, err := d.root.OpenFile(fmt.Sprintf("dev/cpu/%d/msr", cpu), flag, 0)
	if err != nil {
		return nil, err
	}
	if *set == nil {
		*set = map[int]*os.File{}
	}
	(*set)[cpu] = f
	return f, nil
}

func registerPath(cpu int, reg uint32) string { return fmt.Sprintf("dev/cpu/%d/msr@%#x", cpu, reg) }
