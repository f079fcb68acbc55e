// Claims: registers are shown as the zones of a powercap tree; a unit register
// of 0 is no RAPL; a locked register is refused and said; encoding and decoding
// are each other's inverse, and a write changes its own field only.
package msr

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// file is a register file: a map for each CPU. What is not in it is EIO.
type file struct {
	cpus   map[int]map[uint32]uint64
	gone   map[int]bool // CPUs that are offline
	writes int
	closed int
}

func (f *file) Read(cpu int, reg uint32) (uint64, error) {
	if f.gone[cpu] {
		return 0, unix.ENXIO
	}
	v, ok := f.cpus[cpu][reg]
	if !ok {
		return 0, unix.EIO
	}
	return v, nil
}

func (f *file) Write(cpu int, reg uint32, v uint64) error {
	old, err := f.Read(cpu, reg)
	if err != nil {
		return err
	}
	f.writes++
	if old>>lockBit == 1 {
		return unix.EIO
	}
	for _, regs := range f.cpus { // one package in these tests: all its CPUs show one register
		if _, ok := regs[reg]; ok {
			regs[reg] = v
		}
	}
	return nil
}

func (f *file) Close() error { f.closed++; return nil }

// unitsUsual is 1/8 W, 61 uJ, 976 us.
const unitsUsual = 3 | 14<<8 | 10<<16

// limitUsual is 200 W over 1 s and 240 W over 2.44 ms, both on and clamped.
const limitUsual = uint64(1600|1<<15|1<<16|10<<17) | uint64(1920|1<<15|1<<16|(1|1<<5)<<17)<<32

func intel() map[uint32]uint64 {
	return map[uint32]uint64{
		unitReg: unitsUsual, packageLimitReg: limitUsual, packageReg: 16384, packageInfoReg: 1600 | 2000<<32, dramReg: 1000,
		coreReg: 0, // a server without a core counter
	}
}

// host is a root with a make and a topology: packages[i] is the package and die of CPU i.
func host(t *testing.T, vendor string, model int, packages ...[2]int) *os.Root {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o750), os.WriteFile(full, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/cpuinfo", fmt.Sprintf("processor\t: 0\nvendor_id\t: %s\ncpu family\t: 6\nmodel\t\t: %d\nmodel name\t: Something 3000\n\nprocessor\t: 1\nmodel\t: 1\n", vendor, model))
	for cpu, p := range packages {
		at := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, cpu)
		write(at+"physical_package_id", fmt.Sprintln(p[0]))
		write(at+"die_id", fmt.Sprintln(p[1]))
		write(at+"core_id", fmt.Sprintln(cpu/2))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func open(t *testing.T, root *os.Root, f *file) *rapl.Tree {
	t.Helper()
	tree, err := openWith(root, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func names(tree *rapl.Tree) string {
	var all []string
	for _, z := range tree.Zones() {
		all = append(all, z.Label)
	}
	return strings.Join(all, " ")
}

func TestZones(t *testing.T) {
	t.Parallel()
	amd := map[uint32]uint64{amdUnitReg: 16 << 8, amdPackageReg: 65536, amdCoreReg: 65536}
	client := intel()
	maps.Copy(client, map[uint32]uint64{coreReg: 5, uncoreReg: 6, psysReg: 7})
	for _, c := range []struct {
		name, vendor string
		model        int
		regs         map[uint32]uint64
		places       [][2]int
		want         string
	}{
		{"Xeon, two sockets", "GenuineIntel", 0x55, intel(), [][2]int{{0, 0}, {0, 0}, {1, 0}, {1, 0}}, "package-0 dram-0 package-1 dram-1"},
		{"Cascade Lake AP", "GenuineIntel", 0x55, intel(), [][2]int{{0, 0}, {0, 1}}, "package-0-die-0 dram-0-die-0 package-0-die-1 dram-0-die-1"},
		{"client", "GenuineIntel", 0x97, client, [][2]int{{0, 0}}, "package-0 core-0 uncore-0 dram-0 psys"},
		{"EPYC, dies told and not zones", "AuthenticAMD", 1, amd, [][2]int{{0, 0}, {0, 1}}, "package-0 core-0"},
		{"no topology", "GenuineIntel", 0x55, intel(), nil, "package-0 dram-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &file{cpus: map[int]map[uint32]uint64{}}
			for cpu := range 4 {
				f.cpus[cpu] = c.regs
			}
			tree := open(t, host(t, c.vendor, c.model, c.places...), f)
			if got := names(tree); got != c.want {
				t.Errorf("zones %s, want %s", got, c.want)
			}
			for _, z := range tree.Zones() {
				if _, err := z.Energy(); err != nil {
					t.Error(err)
				}
			}
			if f.writes != 0 {
				t.Errorf("%d writes by looking", f.writes)
			}
			if amd := c.vendor != "GenuineIntel"; tree.EnergyOnly() != amd {
				t.Errorf("energy only: %v", tree.EnergyOnly())
			}
		})
	}
}

// Lesson 8: virtual machines answer 0 to every register; that is no RAPL.
func TestNoRAPL(t *testing.T) {
	t.Parallel()
	zeros := map[uint32]uint64{unitReg: 0, packageReg: 0, packageLimitReg: 0}
	for _, c := range []struct {
		name string
		regs map[uint32]uint64
		want error
	}{
		{"all zero", zeros, ErrNoRAPL},
		{"no such register", map[uint32]uint64{}, unix.EIO},
		{"units, and a counter of 0", map[uint32]uint64{unitReg: unitsUsual, packageReg: 0}, rapl.ErrNoZone},
	} {
		f := &file{cpus: map[int]map[uint32]uint64{0: c.regs}}
		_, err := openWith(host(t, "GenuineIntel", 0x55), f)
		if !errors.Is(err, c.want) || !errors.Is(err, rapl.ErrNoZone) || f.closed == 0 {
			t.Errorf("%s: error %v, closed %d times", c.name, err, f.closed)
		}
	}
	if _, err := Open(host(t, "GenuineIntel", 0x55)); !errors.Is(err, rapl.ErrNoTree) {
		t.Errorf("no devices: %v", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := &file{cpus: map[int]map[uint32]uint64{0: intel()}}
	tree := open(t, host(t, "GenuineIntel", 0x55, [2]int{0, 0}), f)
	z := tree.OfKind(rapl.Package)[0]
	l, err := z.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if top, ok := z.PowerMax(); !ok || top != 250*units.Watt || l.Lock() != rapl.Unlocked {
		t.Errorf("highest %v, lock %v", top, l.Lock())
	}
	f.cpus[0][packageLimitReg] &^= 1<<enableBit | 1<<clampBit
	want := rapl.Limits{Long: 95 * units.Watt, Short: 114 * units.Watt, LongWindow: 250 * time.Millisecond, ShortWindow: 10 * time.Millisecond, Enable: true}
	_, errLong := l.SetPower(rapl.LongTerm, want.Long)
	_, errShort := l.SetPower(rapl.ShortTerm, want.Short)
	_, errLongWindow := l.SetWindow(rapl.LongTerm, want.LongWindow)
	_, errShortWindow := l.SetWindow(rapl.ShortTerm, want.ShortWindow)
	errOn := l.SwitchOn(nil)
	got, err := l.Read()
	if err = errors.Join(errLong, errShort, errLongWindow, errShortWindow, errOn, err); err != nil || got.Long != want.Long || got.Short != want.Short || !got.Enable || got.LongWindow != 250*time.Millisecond {
		t.Errorf("got %+v, %v", got, err)
	}
	reg := decodeLimit(f.cpus[0][packageLimitReg])
	if !reg.Long.Clamp || !reg.Long.Enable || reg.Long.Power != 760 || reg.Short.Power != 912 || reg.Locked {
		t.Errorf("register %+v", reg)
	}
	// 1/8 W holds 4095.875 W at most; half a watt is fine, 0.1 W is 0.
	for p, want := range map[units.Power]error{5 * units.Kilowatt: rapl.ErrTooHigh, units.Watt / 10: rapl.ErrZeroLimit} {
		if _, err := l.SetPower(rapl.LongTerm, p); !errors.Is(err, want) {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// A finer unit holds less: the register's own units decide, not the usual ones.
func TestTooHighByUnits(t *testing.T) {
	t.Parallel()
	regs := intel()
	regs[unitReg] = 5 | 14<<8 | 10<<16 // 1/32 W: 1023.97 W at most
	f := &file{cpus: map[int]map[uint32]uint64{0: regs}}
	l, err := open(t, host(t, "GenuineIntel", 0x55, [2]int{0, 0}), f).Zones()[0].Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.SetPower(rapl.LongTerm, 1100*units.Watt); !errors.Is(err, rapl.ErrTooHigh) || f.writes != 0 {
		t.Errorf("error %v, %d writes", err, f.writes)
	}
}

// Lesson 8: locked registers are common, and nothing else shows it as surely.
func TestLocked(t *testing.T) {
	t.Parallel()
	regs := intel()
	regs[packageLimitReg] |= 1 << lockBit
	f := &file{cpus: map[int]map[uint32]uint64{0: regs}}
	z := open(t, host(t, "GenuineIntel", 0x55, [2]int{0, 0}), f).Zones()[0]
	if locked, known := z.Locked(); !locked || !known {
		t.Errorf("locked %v, known %v", locked, known)
	}
	l, err := z.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got, err := l.SetPower(rapl.LongTerm, 95*units.Watt)
	var locked *rapl.LockedError
	if !errors.As(err, &locked) || got != 200*units.Watt || f.writes != 0 || l.Lock() != rapl.Locked {
		t.Errorf("reads %v, %v, %d writes, %v", got, err, f.writes, l.Lock())
	}
}

func TestOfflineCPU(t *testing.T) {
	t.Parallel()
	regs := intel()
	f := &file{cpus: map[int]map[uint32]uint64{0: regs, 1: regs}, gone: map[int]bool{}}
	z := open(t, host(t, "GenuineIntel", 0x55, [2]int{0, 0}, [2]int{0, 0}), f).Zones()[0]
	f.gone[0] = true
	if e, err := z.Energy(); err != nil || e != units.Joule {
		t.Errorf("with another CPU there: %v, %v", e, err)
	}
	f.gone[1] = true
	if _, err := z.Energy(); !errors.Is(err, unix.ENXIO) {
		t.Errorf("without any: %v", err)
	}
}

// Lesson 1: cores of AMD wrap one by one; their sum does not.
func TestCoreSum(t *testing.T) {
	t.Parallel()
	core := func(n uint64) map[uint32]uint64 {
		return map[uint32]uint64{amdUnitReg: 16 << 8, amdPackageReg: 9, amdCoreReg: n}
	}
	f := &file{cpus: map[int]map[uint32]uint64{0: core(1<<32 - 65536), 1: core(0), 2: core(0)}}
	tree := open(t, host(t, "AuthenticAMD", 1, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0}), f)
	z := tree.OfKind(rapl.Core)[0]
	f.cpus[0][amdCoreReg] = 65536 // wrapped: 2 J
	f.cpus[1][amdCoreReg] = 77    // the same core's other thread: not counted
	f.cpus[2][amdCoreReg] = 65536 // 1 J
	if e, err := z.Energy(); err != nil || e != 3*units.Joule {
		t.Errorf("energy %v, %v", e, err)
	}
}

// Lesson 1: memory counts in units of its own on servers.
func TestMemoryUnits(t *testing.T) {
	t.Parallel()
	f := &file{cpus: map[int]map[uint32]uint64{0: intel()}}
	if z := open(t, host(t, "GenuineIntel", 0x55), f).OfKind(rapl.DRAM)[0]; z.Range != 65712999613 {
		t.Errorf("range %d", z.Range)
	}
	if z := open(t, host(t, "GenuineIntel", 0x97), f).OfKind(rapl.DRAM)[0]; z.Range != 262143999938 {
		t.Errorf("range %d", z.Range)
	}
}

// What an earlier process wrote is put back by its path alone.
func TestOpenControlByPath(t *testing.T) {
	t.Parallel()
	f := &file{cpus: map[int]map[uint32]uint64{0: intel()}}
	root := host(t, "GenuineIntel", 0x55)
	l, err := open(t, root, f).Zones()[0].Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if !Owns(l.PowerPath(rapl.LongTerm)) || Owns("sys/class/powercap/intel-rapl:0/enabled") {
		t.Error("paths are told apart wrongly")
	}
	s, err := newSource(root, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.Controls() {
		back, err := sysfs.NewControl(c.Path(), s.open)
		if err != nil {
			t.Errorf("%s: %v", c.Path(), err)
			continue
		}
		v, err := back.Read()
		if err == nil {
			_, err = back.Write(v)
		}
		if err := errors.Join(err, back.Close()); err != nil {
			t.Error(err)
		}
	}
	if f.cpus[0][packageLimitReg] != limitUsual {
		t.Errorf("register %#x, want %#x", f.cpus[0][packageLimitReg], limitUsual)
	}
	for _, name := range []string{"msr/package-0/name", "msr/package-0/locked", "msr/package-9/enabled", "etc/passwd"} {
		if _, err := sysfs.NewControl(name, s.open); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsualWindows(t *testing.T) {
	t.Parallel()
	u, ok := decodeUnits(unitsUsual)
	if !ok || u.Window(10) != time.Second || u.Window(1|1<<5) != 2441406*time.Nanosecond {
		t.Errorf("units %+v: %v, %v", u, u.Window(10), u.Window(1|1<<5))
	}
	if u.Energy(1<<32-1) != 262143999938 || u.Power(1<<15-1) != rapl.LimitMax {
		t.Errorf("span %d, highest %d", u.Energy(1<<32-1), u.Power(1<<15-1))
	}
}

// Each window comes back as it was, through the microseconds that are shown.
func TestEveryWindowComesBack(t *testing.T) {
	t.Parallel()
	f := &file{cpus: map[int]map[uint32]uint64{0: intel()}}
	s, err := newSource(host(t, "GenuineIntel", 0x55), f)
	if err != nil {
		t.Fatal(err)
	}
	a := s.attr(s.zones[0], "constraint_0_time_window_us")
	for field := range uint64(26) { // longer ones than 2^25 units are a day and more
		for z := range uint64(4) {
			l := decodeLimit(limitUsual)
			l.Long.Window = field | z<<windowYBits
			f.cpus[0][packageLimitReg] = l.Encode(0)
			v, err := a.get()
			if err == nil {
				err = a.set(v)
			}
			if got := decodeLimit(f.cpus[0][packageLimitReg]); err != nil || got != l {
				t.Errorf("%d us: %+v came back as %+v, %v", v, l.Long, got.Long, err)
			}
		}
	}
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u, _ := decodeUnits(rapid.Uint64().Draw(t, "units"))
		n := rapid.Uint64Range(1, 1<<15-1).Draw(t, "count")
		if got, err := u.EncodePower(u.Power(n)); err == nil && u.Power(got) != u.Power(n) && u.PowerShift <= 6 {
			t.Fatalf("%d counts came back as %d", n, got)
		}
		p := units.Power(rapid.Int64Range(-10, 1<<45).Draw(t, "power"))
		if got, err := u.EncodePower(p); err == nil && (got == 0 || got >= 1<<15 || u.Power(got) > p) {
			t.Fatalf("%d encoded as %d, %d", p, got, u.Power(got))
		}
		d := time.Duration(rapid.Int64Range(1, int64(100*time.Second)).Draw(t, "window"))
		w := u.Window(u.EncodeWindow(d))
		if w > d && u.EncodeWindow(d) != 0 || d >= u.Window(0) && float64(d-w) > 0.25*float64(d) && d <= u.Window(windowYMax) {
			t.Fatalf("window %v encoded as %v", d, w)
		}
	})
}

func FuzzLimitRegister(f *testing.F) {
	f.Add(uint64(0))
	f.Add(limitUsual)
	f.Add(^uint64(0))
	f.Fuzz(func(t *testing.T, v uint64) {
		l := decodeLimit(v)
		if got := l.Encode(v); got != v {
			t.Fatalf("%#x came back as %#x", v, got)
		}
		if got := decodeLimit(l.Encode(0)); got != l {
			t.Fatalf("%+v came back as %+v", l, got)
		}
		other := l
		other.Long.Power ^= 0x7fff
		if diff := other.Encode(v) ^ v; diff != 0x7fff {
			t.Fatalf("a new power changed bits %#x", diff)
		}
	})
}

func FuzzMake(f *testing.F) {
	f.Add([]byte("vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t: 49\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { parseMake(text) })
}

// The machine's own devices, as powerd meets them.
func TestDevices(t *testing.T) {
	t.Parallel()
	root := host(t, "GenuineIntel", 0x55, [2]int{0, 0})
	dev := filepath.Join(root.Name(), "dev/cpu/0")
	if err := errors.Join(os.MkdirAll(dev, 0o750), os.WriteFile(filepath.Join(dev, "msr"), make([]byte, 0x606+8), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); !errors.Is(err, ErrNoRAPL) { // a plain file of zeros answers as a virtual machine does
		t.Errorf("zeros: %v", err)
	}
	d := &devices{root: root}
	if err := d.Write(0, 0x600, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	if v, err := d.Read(0, 0x600); err != nil || v != 0x1122334455667788 {
		t.Errorf("read %#x, %v", v, err)
	}
	if _, err := d.Read(0, 0x700); err == nil {
		t.Error("a short read passed")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if v, err := d.Read(0, 0x600); err != nil || v != 0x1122334455667788 {
		t.Errorf("after Close: %#x, %v", v, err)
	}
	_ = d.Close()
}
