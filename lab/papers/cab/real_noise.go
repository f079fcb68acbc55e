package cab

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// hostUse is how busy the machine was over a time.
type hostUse struct {
	// busy and steal are parts of all CPU time: used by anybody, and taken by the host of
	// a virtual machine. load is the load average at the end.
	busy, steal, load float64
}

func (h hostUse) String() string {
	return fmt.Sprintf("CPUs %.0f %% busy, %.0f %% stolen, load %.1f", 100*h.busy, 100*h.steal, h.load)
}

// observeHost begins to look at the machine; what it returns ends that.
func observeHost() func() hostUse {
	before := readFile("/proc/stat")
	return func() hostUse {
		h := cpuTimes(before).until(cpuTimes(readFile("/proc/stat")))
		_, _ = fmt.Sscan(readFile("/proc/loadavg"), &h.load) // 0 where there is none
		return h
	}
}

// readFile is a file's text; empty where it cannot be read.
func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// cpuTime are ticks of all CPUs since the machine's start.
type cpuTime struct{ all, idle, steal float64 }

// cpuTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq, steal; what follows is part of user.
func cpuTimes(stat string) (c cpuTime) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, word := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(word, 64)
		if err != nil || i > 8 {
			continue
		}
		c.all += ticks
		switch i {
		case 4, 5:
			c.idle += ticks
		case 8:
			c.steal += ticks
		}
	}
	return c
}

// until is how busy the CPUs were between two readings; zero where no time went by.
func (c cpuTime) until(after cpuTime) hostUse {
	all := after.all - c.all
	if all <= 0 {
		return hostUse{}
	}
	return hostUse{busy: 1 - (after.idle-c.idle)/all, steal: (after.steal - c.steal) / all}
}

// burnBlocks of a MiB each are hashed to time the machine: half a second of one CPU or less.
const burnBlocks = 128

// burn does a fixed piece of work and returns how long it took. Where other work takes the
// CPUs, or the host of a virtual machine does, it takes longer.
func burn() time.Duration {
	block, start := make([]byte, 1<<20), time.Now()
	for range burnBlocks {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
	return time.Since(start)
}
