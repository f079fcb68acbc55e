package netns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/testkit"
)

// smallPipe is the least that a pipe may hold, a page: it is full at once.
const smallPipe = 4096

// reader reads what a program writes, into NAME.log, until it is stopped.
type reader struct {
	from, to *os.File // both ends of the pipe
	stop     chan struct{}
	over     chan struct{}
}

// read is the end of a pipe for a program to write to.
func (c *cluster) read(name string) *os.File {
	c.t.Helper()
	var fds [2]int
	testkit.Check(c.t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, smallPipe); err != nil {
		c.t.Fatal(err)
	}
	log := testkit.Need(os.OpenFile(c.path(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644))(c.t)
	r := &reader{os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), make(chan struct{}), make(chan struct{})}
	c.readers = append(c.readers, r)
	c.t.Cleanup(func() {
		_ = r.from.SetReadDeadline(time.Now())
		<-r.over
		_ = errors.Join(r.from.Close(), r.to.Close(), log.Close())
	})
	go func() {
		defer close(r.over)
		b := make([]byte, smallPipe)
		for {
			n, err := r.from.Read(b)
			if _, werr := log.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}()
	return r.to
}

// hang stops reading and fills the pipe: every writer now waits.
func (r *reader) hang(t *testing.T) {
	t.Helper()
	testkit.Check(t, r.from.SetReadDeadline(time.Now()))
	<-r.over
	fd := testkit.Need(unix.Dup(int(r.to.Fd())))(t) // Fd leaves the pipe as the programs have it, in blocking mode
	defer func() { _ = unix.Close(fd) }()
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(poll, 0); n == 0 || err != nil {
			return
		}
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			return
		}
	}
}

// empty lets the programs go on writing.
func (r *reader) empty() {
	_ = r.from.SetReadDeadline(time.Time{})
	go func() { _, _ = io.Copy(io.Discard, r.from) }()
}

// written is the sum of a machine's package limits in watts, as its own tree has them.
func (c *cluster) written(name string) (watts float64, err error) {
	files, err := filepath.Glob(c.path("nodes", name, "root", "sys", "class", "powercap", "intel-rapl:?", "constraint_0_power_limit_uw"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("limits of %s: %w", name, errors.Join(err, os.ErrNotExist))
	}
	for _, file := range files {
		text, err := line(file)
		if err != nil {
			return 0, err
		}
		uw, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, errMoving
		}
		watts += uw / 1e6
	}
	return watts, nil
}

// The reader of the logs of the servers and machines has stopped and the pipes are full, and
// the state disk of a node hangs: a cut still reaches the hardware of every node, well within
// a lease; what the hanging disk cannot acknowledge stays charged; and the leader goes on
// leading. (powerd's own log is a file here; TestCutWaitsForNeitherDiskNorLog of agent has it
// in a pipe.)
func TestCutWhileReadersAndADiskHang(t *testing.T) { //nolint:paralleltest // uses the whole machine
	const frozen = "n01"
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: longLease, budget: 420, piped: true, disk: func(c *cluster) (string, string) {
		c.ext4(c.path("nodes", frozen, "state"), frozenDisk)
		return "c1", c.path("c1")
	}})
	c.leads("c1")
	before := map[string]float64{}
	for _, name := range c.nodes {
		watts := testkit.Need(c.written(name))(t)
		before[name] = watts
	}
	disk := c.path("nodes", frozen, "state")
	if err := freeze(disk); err != nil {
		testkit.NotRun(t, fmt.Sprintf("ext4 on a loop device cannot be frozen: %v", err))
	}
	defer func() { _ = thaw(disk) }()
	for _, r := range c.readers {
		r.hang(t)
	}
	c.checker.allow(420)
	began := time.Now()
	c.until("a cut with all readers stopped", func() bool {
		_, refused := ask[struct{}](c, "budget", "set", "300W", "--reason", "while everything hangs", "--request-id", "hang", "--yes", "--wait", "0s")
		return refused == nil
	})
	for _, name := range c.nodes {
		if !c.within(longLease/2, func() bool {
			watts, err := c.written(name)
			return err == nil && watts < before[name]-20
		}) {
			watts, err := c.written(name)
			t.Errorf("%s held %.1f W before the cut and holds %.1f W %v after it (%v)", name, before[name], watts, time.Since(began), err)
		}
	}
	took := time.Since(began)
	t.Logf("the hardware of all nodes obeys after %v", took)
	if n := c.table()[frozen]; n.ChargeW < before[frozen] {
		t.Errorf("%s is charged %.1f W: nothing on its disk says that it has taken the cut", frozen, n.ChargeW)
	}
	for _, r := range c.readers {
		r.empty()
	}
	testkit.Check(t, thaw(disk))
	c.until("caps of together 300 W", func() bool {
		s, err := c.checker.look()
		return err == nil && s.held <= 300+rounding
	})
	c.checker.allow(300)
	c.pass(3 * time.Second)
	c.leased(c.nodes...)
	c.oneLeader()
}
