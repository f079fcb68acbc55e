package agent

import (
	"os"
	"strconv"
	"strings"

	"headroom/rapl/sysfs"
)

// cpuUse tells how much of the CPUs is in use, from the first line of /proc/stat
// (proc_stat(5)). The lines of the single CPUs are left alone: to take them apart
// once a second costs 0.2 % of a core on a machine of 64, and 0.5 % on one of 256.
// A nil cpuUse knows nothing.
type cpuUse struct {
	stat *sysfs.Attr
	last cpuTimes
}

// cpuTimes is the time of all CPUs since boot, in clock ticks.
type cpuTimes struct {
	busy, total float64
	known       bool
}

// openCPUUse is nil where the kernel does not tell.
func openCPUUse(root *os.Root) *cpuUse {
	a, err := sysfs.Open(root, "proc/stat")
	if err != nil {
		return nil
	}
	return &cpuUse{stat: a}
}

// busy is the share of CPU time in use since it was last asked, and whether known.
func (u *cpuUse) busy() (float64, bool) {
	if u == nil {
		return 0, false
	}
	before := u.last
	u.last = u.read()
	if !before.known || !u.last.known || u.last.total <= before.total {
		return 0, false
	}
	return min(1, max(0, (u.last.busy-before.busy)/(u.last.total-before.total))), true
}

func (u *cpuUse) read() cpuTimes {
	line, err := u.stat.Text()
	if err != nil {
		return cpuTimes{}
	}
	return parseCPUTimes(line)
}

// Columns of the first line of /proc/stat; guest time, which comes later, is part
// of user time.
const (
	columnIdle   = 3
	columnIOWait = 4
	columns      = 8 // as far as steal
)

// parseCPUTimes reads the first line of /proc/stat; unknown is what it is not.
func parseCPUTimes(line string) cpuTimes {
	fields := strings.Fields(line)
	if len(fields) <= columns || fields[0] != "cpu" {
		return cpuTimes{}
	}
	t := cpuTimes{known: true}
	for i, text := range fields[1 : 1+columns] {
		ticks, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return cpuTimes{}
		}
		t.total += float64(ticks)
		if i != columnIdle && i != columnIOWait {
			t.busy += float64(ticks)
		}
	}
	return t
}

func (u *cpuUse) close() error {
	if u == nil {
		return nil
	}
	return u.stat.Close()
}
