package bad

import (
	"headroom/rapl"
	"headroom/rapl/sysfs"
)

func cut(l *rapl.Limiter, c *sysfs.Control) error {
	_, _ = l.SetPower("long_term", 95) // want `SetPower writes hardware, and neither`
	defer l.SetPower("long_term", 200) // want `SetPower writes hardware, and neither`
	_, err := c.Write(95)              // want `Write writes hardware and nothing reads back`
	return err
}
