package throttle

import (
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
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	var children []int
	for _, task := range names(tasks) {
		text, _ := read(tasks + "/" + task + "/children")
		for field := range strings.FieldsSeq(text) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// readMax bounds a file of /proc: some thousands of children, or one stat line.
const readMax = 32 << 10

// read is a small file of /proc. It spares the poller and the finalizer of an
// os.File, which cost more than the reading: this runs twenty times a second for
// every thread of the node's processes.
func read(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [512]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil || n < len(buf) {
		return string(buf[:max(0, n)]), err
	}
	long := append(make([]byte, 0, readMax), buf[:]...)
	for n > 0 && len(long) < readMax {
		if n, err = unix.Read(fd, long[len(long):readMax]); err != nil {
			return "", err
		}
		long = long[:len(long)+n]
	}
	return string(long), nil
}

// names are the entries of a folder of /proc; none when it is gone.
func names(path string) []string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var entries []string
	var buf [4096]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		if err != nil || n <= 0 {
			return entries
		}
		_, _, entries = unix.ParseDirent(buf[:n], -1, entries)
	}
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
	state byte
	start uint64 // clock ticks after boot: with the pid, an identity
}

func readStat(pid int) (stat, bool) {
	text, err := read("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// parseStat reads the fields behind the command name, which may hold anything
// but ends at the last ")".
func parseStat(text string) (stat, bool) {
	// proc(5): state is field 3, starttime 22.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, false
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return stat{state: fields[0][0], start: start}, err == nil
}

// cpuTime is the CPU time that all threads of a process have used, by the process's own CPU clock.
func cpuTime(pid int) (time.Duration, bool) {
	var ts unix.Timespec
	// clock_getcpuclockid(3): the clock of process p is (~p << 3) | CPUCLOCK_SCHED.
	err := unix.ClockGettime(int32(^pid<<3|2), &ts)
	return time.Duration(ts.Nano()), err == nil
}
