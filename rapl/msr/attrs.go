package msr

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// attr is one register field shown as a text attribute.
type attr struct {
	s    *source
	text string // a fixed text, when not empty
	get  func() (int64, error)
	set  func(int64) error // nil: read-only
	done bool
}

// Pread prints the field as the kernel prints numbers.
func (a *attr) Pread(buf []byte) (int, error) {
	if a.done {
		return 0, fs.ErrClosed
	}
	if a.text != "" {
		return copy(buf, a.text+"\n"), nil
	}
	v, err := a.get()
	if err != nil {
		return 0, err
	}
	return len(append(strconv.AppendInt(buf[:0], v, 10), '\n')), nil
}

// Pwrite reads a number from text and writes the field.
func (a *attr) Pwrite(text []byte) (int, error) {
	if a.done {
		return 0, fs.ErrClosed
	}
	if a.set == nil {
		return 0, unix.EACCES
	}
	v, err := sysfs.ParseInt("", text)
	if err != nil {
		return 0, unix.EINVAL
	}
	if err := a.set(v); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Close gives the registers back with the last attribute.
func (a *attr) Close() error {
	if a.done {
		return fs.ErrClosed
	}
	a.done = true
	if a.s.refs--; a.s.refs == 0 {
		return a.s.regs.Close()
	}
	return nil
}

// open is the sysfs.Opener of the source.
func (s *source) open(name string, write bool) (sysfs.File, error) {
	dir, file := path.Split(name)
	for _, z := range s.zones {
		if z.dir+"/" != dir {
			continue
		}
		a := s.attr(z, file)
		switch {
		case a == nil:
		case write && a.set == nil:
			return nil, &os.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		default:
			a.s = s
			s.refs++
			return a, nil
		}
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// attr is the attribute of that name, nil when the zone has none.
func (s *source) attr(z *zone, file string) *attr {
	switch file {
	case "name":
		return &attr{text: z.name}
	case "energy_uj":
		return &attr{get: func() (int64, error) { e, err := z.energy(); return int64(e), err }}
	case "max_energy_range_uj":
		if z.span > 0 {
			return &attr{text: strconv.FormatInt(int64(z.span), 10)}
		}
	}
	if !z.limits {
		return nil
	}
	switch file {
	case "enabled":
		return s.flag(z, func(l *packageLimit) *bool { return &l.Long.Enable })
	case "clamp":
		return s.flag(z, func(l *packageLimit) *bool { return &l.Long.Clamp })
	case "locked":
		a := s.flag(z, func(l *packageLimit) *bool { return &l.Locked })
		a.set = nil // until the next reset there would be no way back
		return a
	}
	long := func(l *packageLimit) *Limit { return &l.Long }
	short := func(l *packageLimit) *Limit { return &l.Short }
	switch file {
	case "constraint_0_name":
		return &attr{text: rapl.LongTerm}
	case "constraint_0_power_limit_uw":
		return s.power(z, long)
	case "constraint_0_time_window_us":
		return s.window(z, long)
	case "constraint_0_max_power_uw":
		return s.info(z, 0)
	case "constraint_1_name":
		return &attr{text: rapl.ShortTerm}
	case "constraint_1_power_limit_uw":
		return s.power(z, short)
	case "constraint_1_time_window_us":
		return s.window(z, short)
	case "constraint_1_max_power_uw":
		return s.info(z, shortShift)
	}
	return nil
}

// limit reads the zone's limit register.
func (s *source) limit(z *zone) (packageLimit, error) {
	v, err := s.read(z.cpus, packageLimitReg)
	return decodeLimit(v), err
}

// flag is one bit of the register.
func (s *source) flag(z *zone, of func(*packageLimit) *bool) *attr {
	return &attr{
		get: func() (int64, error) {
			l, err := s.limit(z)
			if *of(&l) {
				return 1, err
			}
			return 0, err
		},
		set: func(v int64) error {
			if v != 0 && v != 1 {
				return unix.EINVAL
			}
			return s.change(z.cpus, func(l *packageLimit) error { *of(l) = v == 1; return nil })
		},
	}
}

// power is one of the two limits, in microwatts.
func (s *source) power(z *zone, of func(*packageLimit) *Limit) *attr {
	return &attr{
		get: func() (int64, error) {
			l, err := s.limit(z)
			return int64(s.units.Power(of(&l).Power)), err
		},
		set: func(v int64) error {
			n, err := s.units.EncodePower(units.Power(v))
			if err != nil {
				return err
			}
			return s.change(z.cpus, func(l *packageLimit) error { of(l).Power = n; return nil })
		},
	}
}

// window is one of the two averaging windows, in microseconds.
func (s *source) window(z *zone, of func(*packageLimit) *Limit) *attr {
	return &attr{
		get: func() (int64, error) {
			l, err := s.limit(z)
			return s.units.Window(of(&l).Window).Microseconds(), err
		},
		set: func(v int64) error {
			if v <= 0 || v > windowMax {
				return unix.EINVAL
			}
			// What get cut off comes back, so that a window put back is the same window.
			field := s.units.EncodeWindow(time.Duration(v+1)*time.Microsecond - 1)
			return s.change(z.cpus, func(l *packageLimit) error { of(l).Window = field; return nil })
		},
	}
}

// windowMax is one day in microseconds, far beyond any register's window.
const windowMax = int64(24 * time.Hour / time.Microsecond)

// info is a power of MSR_PKG_POWER_INFO: the design power at shift 0, the
// highest power at shift 32.
func (s *source) info(z *zone, shift uint) *attr {
	v, err := s.read(z.cpus, packageInfoReg)
	if err != nil {
		return nil
	}
	return &attr{text: strconv.FormatInt(int64(s.units.Power(v>>shift&(1<<limitBits-1))), 10)}
}
