package machine

import (
	"os"
	"path/filepath"

	"github.com/prometheus/procfs"
)

// cpuUse tells how much of the CPUs is in use, from /proc/stat (proc_stat(5)). A nil
// cpuUse knows nothing.
type cpuUse struct {
	fs   procfs.FS
	last cpuTimes
	// rest is how many readings are passed over: the file has a line for every CPU and every
	// interrupt, and taking it apart once a second would cost 0.5 % of a core where there
	// are 256 CPUs.
	rest, passed int
	use          float64
	known        bool
}

// cpusASecond is for how many CPUs the file is read every second.
const cpusASecond = 64

// cpuTimes is the time of all CPUs since boot, in seconds.
type cpuTimes struct {
	busy, total float64
	least       float64 // of the columns
}

// openCPUUse is nil where the kernel does not tell.
func openCPUUse(root *os.Root) *cpuUse {
	fs, err := procfs.NewFS(filepath.Join(root.Name(), "proc"))
	if err != nil {
		return nil
	}
	u := &cpuUse{fs: fs}
	s, err := fs.Stat()
	if err != nil {
		return nil
	}
	u.last, u.rest = timesOf(s), len(s.CPU)/cpusASecond
	return u
}

// busy is the share of CPU time in use when it was last looked at, and whether known. It is
// asked once a second.
func (u *cpuUse) busy() (float64, bool) {
	if u == nil {
		return 0, false
	}
	if u.passed++; u.passed <= u.rest {
		return u.use, u.known
	}
	u.passed = 0
	s, err := u.fs.Stat()
	if err != nil {
		u.last, u.known = cpuTimes{}, false
		return 0, false
	}
	before := u.last
	u.last = timesOf(s)
	if u.known = before.sound() && u.last.sound() && u.last.total > before.total; u.known {
		u.use = min(1, max(0, (u.last.busy-before.busy)/(u.last.total-before.total)))
	}
	return u.use, u.known
}

// timesOf is the time in use and in all; guest time is part of user time.
func timesOf(s procfs.Stat) cpuTimes {
	c := s.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	least := min(c.User, c.Nice, c.System, c.IRQ, c.SoftIRQ, c.Steal, c.Idle, c.Iowait)
	return cpuTimes{busy: busy, total: busy + c.Idle + c.Iowait, least: least}
}

// longest is more CPU time than any machine has had, in seconds.
const longest = 1e13

// sound reports whether these can be times.
func (t cpuTimes) sound() bool {
	return t.least >= 0 && t.total > 0 && t.total < longest
}

// Busy returns the share of CPU time in use, and whether it is known. It is asked once a
// second.
func (m *Machine) Busy() (float64, bool) { return m.cpu.busy() }
