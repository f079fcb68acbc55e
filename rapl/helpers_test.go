package rapl

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// swallow is a control that takes every write and keeps its old value: a file
// opened for appending, so that a write at 0 lands behind the first line.
func swallow(t *testing.T, m *machine) (*sysfs.Control, error) {
	t.Helper()
	m.write("locked", "200000000\n")
	c, err := sysfs.NewControl("locked", sysfs.Disk(m.root))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	for fd := range 4096 { // find the descriptor to put it into append mode
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
			continue
		}
		var a, b unix.Stat_t
		if unix.Fstat(fd, &a) != nil || unix.Stat(m.dir+"/locked", &b) != nil || a.Ino != b.Ino || a.Dev != b.Dev {
			continue
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_APPEND)
		return c, err
	}
	return nil, os.ErrNotExist
}

// benchmarkReads compares a sample with the bare pread it is made of.
func benchmarkReads(b *testing.B, root *os.Root) {
	b.Helper()
	attr, err := sysfs.NewAttr("e", sysfs.Disk(root))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = attr.Close() }()
	b.Run("bare pread", func(b *testing.B) {
		f, err := root.Open("e")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		buf, fd := make([]byte, 64), int(f.Fd())
		for b.Loop() {
			if _, err := unix.Pread(fd, buf, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("meter", func(b *testing.B) {
		m := NewMeter(&Zone{energy: attr, Range: 1 << 40})
		now := time.Duration(0)
		for b.Loop() {
			now += time.Second
			if _, err := m.Look(now); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Covered is the time that Total covers, and the time since the first look that
// it leaves out.
func (m *Meter) Covered() (covered, missed time.Duration) { return m.covered, m.missed }

// Of is the zone whose counter zone i repeats, or nil when it counts by itself.
func (m *Mirrors) Of(i int) *Zone {
	if m.of[i] == i {
		return nil
	}
	return m.zones[m.of[i]]
}

// Any reports whether something changed.
func (c Changes) Any() bool { return len(c.Gone)+len(c.Back)+len(c.Added) > 0 }

// Counted are the zones whose energies may be added up, each watt once: packages
// and memory. A package contains its cores and uncore; a platform zone contains
// all of them; an MMIO twin counts what its MSR zone counts.
func (t *Tree) Counted() []*Zone { return append(t.OfKind(Package), t.OfKind(DRAM)...) }

// Apply brings the zone to want and returns what reads back, every field of it.
// Fields that are zero in want are left as they are: no limit of 0 W and no
// switching off can be asked for. Limits come first (the short one never stands
// below the long one), then windows, then the switch. What was written before
// and still reads back is not written again. A field that fails does not stop
// the others.
func (l *Limiter) Apply(want Limits, note Note) (Limits, error) {
	var errs []error
	now, _ := l.Read() // what cannot be read is taken to be lower
	order := []string{ShortTerm, LongTerm}
	if want.Long < now.Long {
		order = []string{LongTerm, ShortTerm}
	}
	powers := map[string]units.Power{LongTerm: want.Long, ShortTerm: want.Short}
	for _, name := range order {
		if c, p := l.power[name], powers[name]; c != nil && p != 0 {
			errs = append(errs, l.step(c, int64(p), note, func() error { _, err := l.SetPower(name, p); return err }))
		}
	}
	windows := map[string]time.Duration{LongTerm: want.LongWindow, ShortTerm: want.ShortWindow}
	for _, name := range []string{LongTerm, ShortTerm} {
		if c, w := l.window[name], windows[name]; c != nil && w != 0 {
			errs = append(errs, l.step(c, w.Microseconds(), note, func() error { _, err := l.SetWindow(name, w); return err }))
		}
	}
	if want.Enable {
		errs = append(errs, l.SwitchOn(note))
	}
	got, err := l.Read()
	return got, errors.Join(append(errs, err)...)
}

// step writes one control unless it holds the value already.
func (l *Limiter) step(c *sysfs.Control, want int64, note Note, write func() error) error {
	before, err := l.read(c)
	if m, ok := l.written[c]; ok && err == nil && m.want == want && m.got == before {
		return nil
	}
	if note != nil {
		if err := note(c.Path(), want, before); err != nil {
			return err
		}
	}
	return write()
}
