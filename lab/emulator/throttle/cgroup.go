package throttle

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cgroup"
)

// Cgroup slows processes by the kernel's CPU bandwidth control (version 1 or 2).
type Cgroup struct {
	version int
	parents []string // one per hierarchy; shared by the nodes of one run
	groups  []string // the node's own, same order
	period  time.Duration

	quota *os.File // held open: cpu.cfs_quota_us or cpu.max
	usage *os.File // held open: cpuacct.usage or cpu.stat

	moved    map[int]bool
	written  time.Duration // quota in force
	age      time.Duration // since it was written
	lastUsed time.Duration
	excess   time.Duration // CPU time used beyond the share, to be taken back
}

// NewCgroup makes the group run/node under the host's CPU controller: run is
// unique to a run's folder, so that two runs never share a group. least is the
// smallest number of CPUs that the node will be held to. Processes that an
// earlier run left in a group of this name are ended. The error wraps errNoCgroup
// where the host or the user's rights do not permit it.
func NewCgroup(run, node string, least float64) (*Cgroup, error) {
	version, roots, err := hierarchies("/sys/fs/cgroup")
	if err != nil {
		return nil, err
	}
	c := &Cgroup{version: version, period: periodFor(least), moved: make(map[int]bool)}
	for _, root := range roots {
		c.parents = append(c.parents, filepath.Join(root, run))
		c.groups = append(c.groups, filepath.Join(root, run, node))
	}
	if err := c.make(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	return c, nil
}

// hierarchies are the version that the host has its CPU controller in, and its folders: that of
// the controller, and of version 1 that of cpuacct.
func hierarchies(mount string) (version int, roots []string, err error) {
	first := filepath.Join(mount, "cpu")
	if _, err := os.Stat(filepath.Join(first, "cpu.cfs_quota_us")); err == nil {
		return 1, []string{first, filepath.Join(mount, "cpuacct")}, nil
	}
	controllers, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(controllers)), "cpu") {
		return 0, nil, fmt.Errorf("%w: no CPU controller under %s", errNoCgroup, mount)
	}
	return 2, []string{mount}, nil
}

// file is what version 1, or version 2, calls a control file.
func (c *Cgroup) file(one, two string) string {
	if c.version == 1 {
		return one
	}
	return two
}

// periodFor is the shortest period in which the smallest share is still as much
// as the kernel deals out.
func periodFor(least float64) time.Duration {
	if least <= 0 {
		return periodMax
	}
	return min(max(period, time.Duration(float64(quotaMin)/least)), periodMax)
}

// make creates the group afresh and opens its files.
func (c *Cgroup) make() error {
	if err := c.clear(); err != nil {
		return err
	}
	if c.version == 2 {
		if err := c.delegate(); err != nil {
			return err
		}
	}
	for _, group := range c.groups {
		if err := mkdirBeside(group); err != nil {
			return err
		}
	}
	if c.version == 1 {
		text := strconv.FormatInt(c.period.Microseconds(), 10)
		if err := put(filepath.Join(c.groups[0], "cpu.cfs_period_us"), text); err != nil {
			return err
		}
	}
	var err error
	if c.quota, err = os.OpenFile(filepath.Join(c.groups[0], c.file("cpu.cfs_quota_us", "cpu.max")), os.O_WRONLY, 0); err != nil {
		return err
	}
	c.usage, err = os.Open(filepath.Join(c.groups[len(c.groups)-1], c.file("cpuacct.usage", "cpu.stat")))
	return err
}

// delegate hands the cpu controller of version 2 down to the run's group.
func (c *Cgroup) delegate() error {
	err := mkdirBeside(c.parents[0])
	for _, group := range []string{filepath.Dir(c.parents[0]), c.parents[0]} {
		if err == nil {
			err = put(filepath.Join(group, "cgroup.subtree_control"), "+cpu")
		}
	}
	return err
}

// mkdirBeside makes a group and its parent, either of which may be there. Another node of the run
// may remove the empty parent meanwhile: it is tried again.
func mkdirBeside(group string) (err error) {
	for range 5 {
		if err = os.MkdirAll(group, 0o755); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

// put writes one value to a control file, which is there already.
func put(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Weigh makes the processes of the run's nodes together weigh so many times what other
// work of the host does when CPUs are short: 1 is the kernel's default, 100 the most.
func (c *Cgroup) Weigh(times int) error {
	usual := 100
	if c.version == 1 {
		usual = 1024
	}
	if err := put(filepath.Join(c.parents[0], c.file("cpu.shares", "cpu.weight")), strconv.Itoa(times*usual)); err != nil {
		return fmt.Errorf("throttle: weigh: %w", err)
	}
	return nil
}

// Kind is "cgroup".
func (c *Cgroup) Kind() string { return "cgroup" }

// String names the group.
func (c *Cgroup) String() string {
	return fmt.Sprintf("cgroup version %d: %s", c.version, c.groups[0])
}

// Hold moves roots that are new, and what they have started so far, into the
// group; their later children are born in it.
func (c *Cgroup) Hold(roots []int) error {
	var errs []error
	here := make(map[int]bool, len(roots))
	for _, root := range roots {
		here[root] = true
		if c.moved[root] {
			continue
		}
		errs = append(errs, c.moveFamily(root))
	}
	c.moved = here
	return errors.Join(errs...)
}

// moveFamily moves a process and its descendants, and walks again until a walk
// finds no new process: a child forked before its parent was moved is born outside.
func (c *Cgroup) moveFamily(root int) error {
	inside := make(map[int]bool)
	var errs []error
	for range 10 { // a family that forks while it is moved
		before := len(inside)
		for _, pid := range Descendants([]int{root}) {
			if !inside[pid] {
				inside[pid] = true
				errs = append(errs, c.move(pid))
			}
		}
		if len(inside) == before {
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Cgroup) move(pid int) error {
	for _, group := range c.groups {
		err := put(filepath.Join(group, "cgroup.procs"), strconv.Itoa(pid))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("throttle: move process %d: %w", pid, err)
		}
	}
	return nil
}

// Writing a quota refills the group for the period that runs, so it is written
// when it has really changed, and otherwise seldom.
const (
	quotaBig    = 0.10 // relative change that is written at once
	quotaSmall  = 0.02 // relative change that waits for quotaAge
	quotaAge    = 500 * time.Millisecond
	quotaAlways = time.Duration(math.MaxInt64)
	// payback is over how long CPU time used beyond the share is taken back.
	payback = time.Second
)

// Step reads the group's CPU time and sets the quota where it changed. The kernel
// deals a little more than the quota (each CPU keeps up to 1 ms, each write
// refills): what was used too much is taken back.
func (c *Cgroup) Step(dt time.Duration, cores float64) (time.Duration, error) {
	used, err := c.used()
	if err != nil {
		return 0, err
	}
	share := time.Duration(cores * float64(dt))
	c.excess = min(max(c.excess+used-share, 0), time.Duration(cores*float64(payback)/2))
	c.age = min(c.age, quotaAlways-dt) + dt
	cores -= float64(c.excess) / float64(payback)
	quota := max(time.Duration(cores*float64(c.period)), time.Millisecond)
	change := math.Abs(float64(quota-c.written)) / float64(quota)
	if change <= quotaBig && (change <= quotaSmall || c.age < quotaAge) {
		return used, nil
	}
	line := strconv.FormatInt(quota.Microseconds(), 10)
	if c.version == 2 {
		line += " " + strconv.FormatInt(c.period.Microseconds(), 10)
	}
	if _, err := c.quota.WriteAt([]byte(line), 0); err != nil {
		return used, fmt.Errorf("throttle: set quota: %w", err)
	}
	c.written, c.age = quota, 0
	return used, nil
}

// used is the group's CPU time since the last look.
func (c *Cgroup) used() (time.Duration, error) {
	var buf [1024]byte
	n, _ := c.usage.ReadAt(buf[:], 0)
	text := string(buf[:n])
	total, err := cgroup.ParseUsage(text)
	if c.version == 1 {
		total, err = time.ParseDuration(strings.TrimSpace(text) + "ns")
	}
	if err != nil {
		return 0, fmt.Errorf("throttle: read CPU time of the group: %w", err)
	}
	used := max(0, total-c.lastUsed)
	c.lastUsed = total
	return used, nil
}

// Next is 0: the kernel does the slowing.
func (c *Cgroup) Next() time.Duration { return 0 }

// pids are the processes in the group now.
func (c *Cgroup) pids() (pids []int) {
	for _, group := range c.groups {
		text, _ := os.ReadFile(filepath.Join(group, "cgroup.procs")) // none where there is no group
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// clear ends what is left in the group and removes it. A group that is not there
// is clear.
func (c *Cgroup) clear() error {
	var err error
	for range 200 { // until its processes have died
		for _, pid := range c.pids() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		err = nil
		for _, group := range c.groups {
			if e := os.Remove(group); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = e
			}
		}
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Close ends what is still in the group and removes it, and the run's group with
// its last node.
func (c *Cgroup) Close() error {
	_, _ = c.quota.Close(), c.usage.Close() // of a group that was never made: nothing
	err := c.clear()
	for _, parent := range c.parents {
		_ = os.Remove(parent) // refused while other nodes of the run are in it
	}
	return err
}
