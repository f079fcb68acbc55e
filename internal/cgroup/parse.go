package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// ErrNone is returned where a process has no cgroup of version 2.
var ErrNone = errors.New("no cgroup of version 2 is mounted here")

var errMalformed = errors.New("malformed")

// Find returns the folder of a process's own cgroup from its /proc/PID/mountinfo and /proc/PID/cgroup, whether version
// 2 is mounted alone or beside version 1.
func Find(mountinfo, membership string) (dir string, err error) {
	own := ""
	for line := range strings.Lines(membership) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = name
		}
	}
	if !path.IsAbs(own) || path.Clean(own) != own || strings.HasPrefix(own, "/..") { // outside of its namespace
		return "", fmt.Errorf("own cgroup %q: %w", own, ErrNone)
	}
	longest := ""
	for line := range strings.Lines(mountinfo) {
		root, at, ok := mountOf(line)
		rest, inside := strings.CutPrefix(own, strings.TrimSuffix(root, "/"))
		if ok && inside && (rest == "" || rest[0] == '/') && len(root) >= len(longest) {
			longest, dir = root, path.Join(at, rest) // of equal ones, the later mount covers the earlier
		}
	}
	if dir == "" {
		return "", ErrNone
	}
	return dir, nil
}

// mountOf returns the root and the mount point of a line of mountinfo, its fourth and fifth field, if it mounts cgroups of
// version 2.
func mountOf(line string) (root, at string, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	fields := strings.Fields(before)
	if len(fields) < 6 || !strings.HasPrefix(after, "cgroup2 ") || !path.IsAbs(fields[3]) || !path.IsAbs(fields[4]) {
		return "", "", false
	}
	escapes := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	return escapes.Replace(fields[3]), escapes.Replace(fields[4]), true
}

// ParseUsage returns the CPU time in cpu.stat.
func ParseUsage(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
				return 0, fmt.Errorf("CPU time %q: %w", v, errMalformed)
			}
			return time.Duration(n) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("cpu.stat without usage_usec: %w", errMalformed)
}
