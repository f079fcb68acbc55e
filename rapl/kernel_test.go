// Claims: what the kernel's RAPL driver really answers, error by error, is taken
// for what it means: a write that changed nothing is a lock and not a success, a
// limit too high or zero never reaches a file, and rounding is no failure.
package rapl

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// kernel stands between the files and whoever opens them, and answers as the
// driver does: it rounds, cuts and refuses. Its fields are faults.
type kernel struct {
	disk    sysfs.Opener
	reading map[string]error  // by file name: reads fail with it
	writing map[string]error  // writes fail with it, the value stays
	opening map[string]error  // opening fails with it
	ignored map[string]bool   // writes succeed, the value stays
	texts   map[string]string // reads give this
	written []string          // "file=value" of each write that came, in order
}

func newKernel(m *machine) *kernel {
	return &kernel{
		disk: sysfs.Disk(m.root), reading: map[string]error{}, writing: map[string]error{}, opening: map[string]error{},
		ignored: map[string]bool{}, texts: map[string]string{},
	}
}

func (k *kernel) open(name string, write bool) (sysfs.File, error) {
	if err := k.opening[path.Base(name)]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f, err := k.disk(name, write)
	if err != nil {
		return nil, err
	}
	return &kernelFile{File: f, k: k, name: path.Base(name)}, nil
}

type kernelFile struct {
	sysfs.File
	k    *kernel
	name string
}

func (f *kernelFile) Pread(buf []byte) (int, error) {
	if err := f.k.reading[f.name]; err != nil {
		return 0, err
	}
	if text, ok := f.k.texts[f.name]; ok {
		return copy(buf, text), nil
	}
	return f.File.Pread(buf)
}

// Pwrite does to the value what the register does.
func (f *kernelFile) Pwrite(text []byte) (int, error) {
	value := strings.TrimSpace(string(text))
	f.k.written = append(f.k.written, f.name+"="+value)
	switch {
	case f.k.writing[f.name] != nil:
		return 0, f.k.writing[f.name]
	case f.k.ignored[f.name]:
		return len(text), nil
	}
	v, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, unix.EINVAL
	}
	if strings.HasSuffix(f.name, "power_limit_uw") {
		v = v / uint64(Rounding) & (1<<15 - 1) * uint64(Rounding) // cut to 15 bits, not clamped
	}
	if _, err := f.File.Pwrite([]byte(strconv.FormatUint(v, 10) + "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// longFile is the long-term limit of packageFiles, shortFile the other.
const (
	longFile  = "constraint_1_power_limit_uw"
	shortFile = "constraint_0_power_limit_uw"
)

// onePackage is a machine of one package behind a kernel.
func onePackage(t testing.TB) (*machine, *kernel, *Tree, *Limiter) {
	t.Helper()
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	k := newKernel(m)
	tree, err := openTree(m.root, k.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	l, err := tree.Zones()[0].Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return m, k, tree, l
}

// Lesson 5: the kernel's errors do not say what happened; reading back does.
func TestKernelWriteErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fault  func(k *kernel)
		want   units.Power
		got    units.Power // as returned
		err    error       // in the chain
		locked bool
		writes int // of the long-term file
	}{
		{name: "taken", want: 95 * units.Watt, got: 95 * units.Watt, writes: 1},
		{name: "rounded down to 1/8 W", want: 25_060_000, got: 25 * units.Watt, writes: 1},
		{
			name: "ENODATA: any failed limit write", fault: func(k *kernel) { k.writing[longFile] = unix.ENODATA },
			want: 95 * units.Watt, got: 200 * units.Watt, err: unix.ENODATA, locked: true, writes: 1,
		},
		{
			name: "EACCES of a later kernel", fault: func(k *kernel) { k.writing[longFile] = unix.EACCES },
			want: 95 * units.Watt, got: 200 * units.Watt, err: fs.ErrPermission, locked: true, writes: 1,
		},
		{
			name: "accepted and ignored, as Linux 6.1 does", fault: func(k *kernel) { k.ignored[longFile] = true },
			want: 95 * units.Watt, got: 200 * units.Watt, err: ErrNotTaken, locked: true, writes: 1,
		},
		{
			name: "EIO is a failure and no lock", fault: func(k *kernel) { k.writing[longFile] = unix.EIO },
			want: 95 * units.Watt, got: 200 * units.Watt, err: unix.EIO, writes: 1,
		},
		{
			name: "EINVAL", fault: func(k *kernel) { k.writing[longFile] = unix.EINVAL },
			want: 95 * units.Watt, got: 200 * units.Watt, err: unix.EINVAL, writes: 1,
		},
		{
			name: "reported as failed, but the value stands", fault: func(k *kernel) { k.writing[longFile] = unix.ENODATA },
			want: 200 * units.Watt, got: 200 * units.Watt, writes: 1,
		},
		{
			name: "cannot be read back", fault: func(k *kernel) { k.reading[longFile] = unix.EINVAL },
			want: 95 * units.Watt, err: unix.EINVAL, writes: 1,
		},
		{name: "0 W", want: 0, err: ErrZeroLimit},
		{name: "less than one count, which becomes 0 W", want: 124_999, err: ErrZeroLimit},
		{name: "negative", want: -units.Watt, err: ErrZeroLimit},
		// 99,999,999,999 uW would read back as 1695.875 W.
		{name: "too high for 15 bits", want: 99_999_999_999, err: ErrTooHigh},
		{name: "highest that fits", want: LimitMax, got: LimitMax, writes: 1},
		{name: "one more", want: LimitMax + 1, err: ErrTooHigh},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, k, _, l := onePackage(t)
			if c.fault != nil {
				c.fault(k)
			}
			got, err := l.SetPower(LongTerm, c.want)
			if got != c.got || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("got %v, %v; want %v, %v", got, err, c.got, c.err)
			}
			var locked *LockedError
			if errors.As(err, &locked) != c.locked || (l.Lock() == Locked) != c.locked {
				t.Errorf("error %v, lock %v; want locked %v", err, l.Lock(), c.locked)
			}
			if c.locked && locked.How == "" {
				t.Errorf("a lock without how it was found: %+v", locked)
			}
			if len(k.written) != c.writes {
				t.Errorf("writes %v, want %d", k.written, c.writes)
			}
		})
	}
}

// Lesson 5: a locked zone answers ENOSYS to its switch, or takes the write and stays off.
func TestKernelSwitch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fault  func(k *kernel)
		err    error
		locked bool
	}{
		{name: "on"},
		{name: "ENOSYS on a locked zone", fault: func(k *kernel) { k.writing["enabled"] = unix.ENOSYS; k.texts["enabled"] = "0\n" }, err: unix.ENOSYS, locked: true},
		{name: "accepted, reads 0", fault: func(k *kernel) { k.texts["enabled"] = "0\n" }, err: ErrNotTaken, locked: true},
		{name: "EIO", fault: func(k *kernel) { k.writing["enabled"] = unix.EIO; k.texts["enabled"] = "0\n" }, err: unix.EIO},
		{name: "unreadable", fault: func(k *kernel) { k.reading["enabled"] = unix.EIO }, err: unix.EIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, k, _, l := onePackage(t)
			if c.fault != nil {
				c.fault(k)
			}
			err := l.Enable()
			var locked *LockedError
			if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) || errors.As(err, &locked) != c.locked {
				t.Errorf("error %v, want %v, locked %v", err, c.err, c.locked)
			}
		})
	}
}

func TestKernelReadErrors(t *testing.T) {
	t.Parallel()
	_, k, tree, _ := onePackage(t)
	z := tree.Zones()[0]
	meter := NewMeter(z)
	// Lesson 13: a counter that may not be read is an error, and never a silent 0.
	for _, c := range []struct {
		err  error
		text string
	}{{err: unix.EINVAL}, {err: unix.EACCES}, {err: unix.ENODEV}, {text: "\n"}, {text: "-1\n"}, {text: "18446744073709551615\n"}, {text: "nan\n"}} {
		delete(k.texts, "energy_uj")
		if k.reading["energy_uj"] = c.err; c.err == nil {
			delete(k.reading, "energy_uj")
			k.texts["energy_uj"] = c.text
		}
		r, err := meter.Look(time.Second)
		if err == nil || r.Known || r.Energy != 0 || r.Why != WhyFailed {
			t.Errorf("%+v: reading %+v, error %v", c, r, err)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("error %v, want %v in it", err, c.err)
		}
	}
	if _, known := meter.Total(); known {
		t.Error("a total without one known reading")
	}
}

// A constraint whose highest limit answers ENODATA is a constraint all the same.
func TestNoHighestLimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	k := newKernel(m)
	k.reading["constraint_1_max_power_uw"] = unix.ENODATA
	tree, err := openTree(m.root, k.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	if c, err := tree.Zones()[0].Constraint(LongTerm); err != nil || c.PowerMax != 0 {
		t.Errorf("constraint %+v, %v", c, err)
	}
}

// Lesson 2: energy_uj is for root alone since Linux 5.10: the zone stays, in words.
func TestCounterDenied(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	k := newKernel(m)
	k.opening["energy_uj"] = unix.EACCES
	tree, err := openTree(m.root, k.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	if _, err := tree.Zones()[0].Energy(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v, want permission denied", err)
	}
	if r := tree.Remarks(); len(r) != 1 || r[0].Code != RemarkDenied {
		t.Errorf("remarks %+v", r)
	}
	meter := NewMeter(tree.Zones()[0])
	delete(k.opening, "energy_uj") // somebody puts it right while we run
	if c, err := tree.Refresh(); err != nil || len(c.Back) != 1 {
		t.Errorf("changes %+v, %v", c, err)
	}
	if r, err := meter.Look(time.Second); err != nil || r.Known {
		t.Errorf("first look after the permission came: %+v, %v", r, err)
	}
}

// Lesson 6: hardware that makes 0 W of a limit gets the old one back at once.
func TestZeroReadBackIsUndone(t *testing.T) {
	t.Parallel()
	_, _, _, l := onePackage(t)
	r := &zeroing{value: 200_000_000}
	var err error
	l.power[LongTerm], err = sysfs.NewControl("limit", func(string, bool) (sysfs.File, error) { return r, nil })
	if err != nil {
		t.Fatal(err)
	}
	stands, err := l.SetPower(LongTerm, 95*units.Watt)
	if err == nil {
		t.Error("0 W passed for a limit")
	}
	if stands != 200*units.Watt {
		t.Errorf("returned %v, but 200 W stands there again", stands)
	}
	if r.value != 200_000_000 || r.writes != 2 {
		t.Errorf("left at %d after %d writes", r.value, r.writes)
	}
}

// zeroing is a limit that makes 0 of its first write.
type zeroing struct {
	value  int64
	writes int
}

func (z *zeroing) Pread(buf []byte) (int, error) {
	return copy(buf, strconv.FormatInt(z.value, 10)), nil
}

func (z *zeroing) Pwrite(text []byte) (int, error) {
	z.writes++
	if z.value = 0; z.writes > 1 {
		z.value, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return len(text), nil
}

func (z *zeroing) Close() error { return nil }
