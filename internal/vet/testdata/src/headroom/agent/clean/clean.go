package clean

import (
	"os"

	"headroom/rapl"
	"headroom/rapl/sysfs"
)

func cut(l *rapl.Limiter, c, d *sysfs.Control) (int64, error) {
	if _, err := l.SetPower("long_term", 95); err != nil { // the error compares
		return 0, err
	}
	if _, err := d.Write(1); err != nil {
		return d.Read()
	}
	got, err := c.Write(95)
	return got, err
}

func note() error { return os.WriteFile("/sys/class/powercap/intel-rapl:0/enabled", nil, 0) }
