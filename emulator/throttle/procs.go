package throttle

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxFamily bounds a walk over descendants: more processes than this on one
// emulated node is a mistake, and they are slowed at the next walk.
const maxFamily = 4096

// Children are the direct children of a process, of whichever of its threads. A
// process that is gone has none.
func Children(pid int) []int {
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil
	}
	var children []int
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", task.Name(), "children"))
		if errors.Is(err, os.ErrNotExist) && !hasChildrenFiles() {
			return childrenByScan(pid)
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// hasChildrenFiles tells whether this kernel has /proc/PID/task/TID/children.
func hasChildrenFiles() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}

// childrenByScan finds children by their parent field, for kernels without
// CONFIG_PROC_CHILDREN.
func childrenByScan(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var children []int
	for _, e := range entries {
		candidate, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(candidate); ok && s.parent == pid {
			children = append(children, candidate)
		}
	}
	return children
}

// Descendants are roots and everything below them, each once, parents first.
func Descendants(roots []int) []int {
	seen := make(map[int]bool, len(roots))
	var all []int
	queue := append([]int(nil), roots...)
	for len(queue) > 0 && len(all) < maxFamily {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		all = append(all, pid)
		queue = append(queue, Children(pid)...)
	}
	return all
}

// stat is what is used of /proc/PID/stat.
type stat struct {
	parent int
	state  byte
	cpu    time.Duration // the process's own, all threads, in steps of 10 ms
	start  uint64        // clock ticks after boot: with the pid, an identity
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(string(text))
}

// parseStat reads the fields behind the command name, which may hold anything
// but ends at the last ")".
func parseStat(text string) (stat, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, false
	}
	// proc(5): state is field 3, ppid 4, utime 14, stime 15, starttime 22.
	fields := strings.Fields(text[end+1:])
	if len(fields) < 20 || fields[0] == "" {
		return stat{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	user, err2 := strconv.ParseUint(fields[11], 10, 62)
	system, err3 := strconv.ParseUint(fields[12], 10, 62)
	start, err4 := strconv.ParseUint(fields[19], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || parent < 0 {
		return stat{}, false
	}
	ticks := time.Duration(min(user+system, 1<<36)) //nolint:gosec // bounded by min
	return stat{parent: parent, state: fields[0][0], cpu: ticks * time.Second / ticksPerSecond, start: start}, true
}

// cpuTime is the CPU time that all threads of a process have used, from the
// process's own CPU clock (exact, one system call) or else from /proc/PID/stat.
func cpuTime(pid int) (time.Duration, bool) {
	var ts unix.Timespec
	// clock_getcpuclockid(3): the clock of process p is (~p << 3) | CPUCLOCK_SCHED.
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err == nil { //nolint:gosec // pids are below 2^22
		return time.Duration(ts.Nano()), true
	}
	s, ok := readStat(pid)
	return s.cpu, ok
}
