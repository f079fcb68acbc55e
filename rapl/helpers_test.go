package rapl

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
)

// swallow is a control that takes every write and keeps its old value: a file
// opened for appending, so that a write at 0 lands behind the first line.
func swallow(t *testing.T, m *machine) (*sysfs.Control, error) {
	t.Helper()
	m.write("locked", "200000000\n")
	c, err := sysfs.OpenControl(m.root, "locked")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	for fd := range 4096 { // find the write descriptor to put it into append mode
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE != unix.O_WRONLY {
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
	attr, err := sysfs.Open(root, "e")
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
