package netns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/ledger"
)

const (
	// smallDisk is room for one file of a server's log, 16 MiB, and little else.
	smallDisk = 24 << 20
	// frozenDisk is room for a log and for the file system's own journal.
	frozenDisk = 128 << 20
	// manyJobs are more than fit on a small disk, fewJobs so few that their files fit
	// into one answer: after those the same ones are sent again.
	manyJobs, fewJobs = 1000, 50
)

// tmpfs makes a file system of so many bytes in memory, for the test's time.
func (c *cluster) tmpfs(dir string, bytes int64) {
	c.t.Helper()
	testkit.Check(c.t, os.MkdirAll(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		testkit.NotRun(c.t, fmt.Sprintf("a tmpfs cannot be mounted: %v", err))
	}
	c.undo.later("umount --lazy %q", dir)
}

// ext4 makes a file system of its own on a loop device, for the test's time. It is
// thawed at the end, whatever became of the test.
func (c *cluster) ext4(dir string, bytes int64) {
	c.t.Helper()
	image := dir + ".img"
	testkit.Check(c.t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes)))
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if err := run(c.t, "", argv...); err != nil {
			testkit.NotRun(c.t, "a loop device with ext4 cannot be mounted: "+err.Error())
		}
	}
	c.undo.later("fsfreeze --unfreeze %q 2>/dev/null; umount --lazy %q", dir, dir)
}

// The kernel's FIFREEZE and FITHAW, _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// freeze has every write to the file system hang, thaw lets them go on.
func freeze(dir string) error { return control(dir, fiFreeze) }
func thaw(dir string) error   { return control(dir, fiThaw) }

func control(dir string, request uint) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(f.Fd()), request, 0), f.Close())
}

// fill takes what room is left on a disk and returns the file that holds it.
func fill(dir string) (string, error) {
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		return path, err
	}
	block := make([]byte, 1<<16)
	for len(block) > 0 && err == nil {
		if _, err = f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block, err = block[:len(block)/2], nil
		}
	}
	return path, errors.Join(err, f.Close())
}

// health is the leader's report on a server.
type health struct {
	ID      string `json:"id"`
	Healthy bool   `json:"healthy"`
	Role    string `json:"role"`
	Health  []struct {
		Code string `json:"code"`
		Text string `json:"text"`
	} `json:"health"`
}

func (h health) has(code string) bool {
	for _, x := range h.Health {
		if x.Code == code {
			return true
		}
	}
	return false
}

// health returns the leader's report on a server; false while no server answers. A check
// that finds failures ends with 1 and prints them all the same.
func (c *cluster) health(id string) (h health, known bool) {
	c.t.Helper()
	a, _ := ask[health](c, "member", "health")
	for _, x := range a.Items {
		if x.ID == id {
			return x, true
		}
	}
	return h, false
}

// unhealthy waits until the leader names the server, with one of the codes.
func (c *cluster) unhealthy(id string, codes ...string) {
	c.t.Helper()
	var h health
	c.until(fmt.Sprintf("%s named with %v", id, codes), func() bool {
		h, _ = c.health(id)
		return !h.Healthy && slices.ContainsFunc(codes, h.has)
	})
	c.t.Logf("of %s is said: %+v", id, h.Health)
}

// alarmed waits until one of the alarms is active, as the health of the servers has it.
func (c *cluster) alarmed(keys ...string) {
	c.t.Helper()
	type alarm struct {
		Key string `json:"key"`
	}
	c.until(fmt.Sprintf("one of the alarms %v", keys), func() bool {
		a, _ := ask[alarm](c, "alarm", "list")
		return slices.ContainsFunc(a.Items, func(x alarm) bool { return slices.Contains(keys, x.Key) })
	})
}

// revive starts the server whenever it has ended, until the leader calls it healthy.
func (c *cluster) revive(id string) {
	c.t.Helper()
	c.until(id+" healthy", func() bool {
		if !c.running[id].alive() {
			c.start(id)
		}
		h, known := c.health(id)
		return known && h.Healthy && h.Role != "unreachable"
	})
}

// A server whose disk is full ends itself and logs why; the others go on. With room
// again it starts and has everything: of what did not fit nothing is half there.
func TestFullDisk(t *testing.T) { //nolint:paralleltest // uses the whole machine
	const full = "c3"
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: longLease, budget: 360, disk: func(c *cluster) (string, string) {
		dir := c.path("small")
		c.tmpfs(dir, smallDisk)
		return full, filepath.Join(dir, full)
	}})
	c.leads(full)
	disk := c.path("small")
	ballast := testkit.Need(fill(disk))(t)
	c.unhealthy(full, "member-disk-full")
	c.alarmed("member-disk-full/" + full)
	c.budget(340, "with a full disk")
	// A full disk is met when the log outgrows the room that it has reserved.
	accepted := c.submit(full)
	c.until(full+" to end itself", func() bool { return !c.running[full].alive() })
	log, err := os.ReadFile(c.path(full + ".log"))
	if err != nil || !strings.Contains(string(log), "no space left on device") {
		t.Errorf("%s ended and its log does not say why: %v", full, err)
	}
	c.unhealthy(full, "member-ended", "member-silent")
	c.alarmed("member-ended/"+full, "member-silent/"+full)
	// Its supervisor starts it again, while there is no room yet.
	c.start(full)
	c.budget(330, "without "+full)
	c.leased(c.nodes...)
	c.checker.noFall()

	testkit.Check(t, os.Remove(ballast))
	testkit.Check(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", 16*smallDisk)))
	c.revive(full)
	c.same(full)
	jobs := c.jobs(full)
	if len(jobs) != fewJobs || !slices.Equal(jobs, accepted) {
		t.Errorf("%d jobs were accepted, %s has %d", len(accepted), full, len(jobs))
	}
	for _, id := range c.others(full) {
		if other := c.jobs(id); !slices.Equal(jobs, other) {
			t.Errorf("%s has %d jobs, %s has %d", full, len(jobs), id, len(other))
		}
	}
	c.oneLeader()
}

// submit has a leader take jobs, each with as large a file as it takes, again and
// again until it ends. It returns those that it has accepted.
func (c *cluster) submit(leader string) (accepted []string) {
	c.t.Helper()
	peers := rpc.UnixPeers(c.path(leader + ".sock"))
	client := headroomv1connect.NewJobServiceClient(peers.HTTP(), peers.URL("unix"), peers.Options()...)
	spec := make([]byte, ledger.MaxJobSpec)
	_, _ = rand.Read(spec)
	for i := range manyJobs {
		id := fmt.Sprintf("j%02d", i%fewJobs)
		ctx, cancel := context.WithTimeout(c.t.Context(), answerMost)
		_, err := client.CommitJob(ctx, connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: id, Name: id, Class: "low", Spec: spec}}))
		cancel()
		if err != nil {
			c.t.Logf("%d times a job was accepted, then: %v", i, err)
			break
		}
		if i < fewJobs {
			accepted = append(accepted, id)
		}
	}
	return accepted
}

// jobs are those that a server has by itself.
func (c *cluster) jobs(id string) (all []string) {
	c.t.Helper()
	type job struct {
		ID string `json:"id"`
	}
	a, refused := askAt[job](c, id, "job", "list", "--stale")
	if refused != nil {
		c.t.Error(refused)
	}
	for _, x := range a.Items {
		all = append(all, x.ID)
	}
	slices.Sort(all)
	return all
}

// same checks that a server has by itself the budgets' history that the leader has.
func (c *cluster) same(id string) {
	c.t.Helper()
	want := c.history()
	c.until(id+" has the leader's history", func() bool {
		a, refused := askAt[change](c, id, "budget", "history", "site/lab", "--stale")
		if refused != nil || len(a.Items) != len(want) {
			return false
		}
		for i, x := range a.Items {
			if x != want[i] {
				return false
			}
		}
		return true
	})
}

// A leader whose disk hangs no longer leads, though its process cannot even end; the
// others go on and report what became of it. When the disk goes on it ends, starts, and
// has everything.
func TestFrozenDisk(t *testing.T) { //nolint:paralleltest // uses the whole machine
	const frozen = "c1"
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: longLease, budget: 360, disk: func(c *cluster) (string, string) {
		dir := c.path("frozen")
		c.ext4(dir, frozenDisk)
		return frozen, filepath.Join(dir, frozen)
	}})
	_, epoch := c.leads(frozen) // the first that every command queries
	disk := c.path("frozen")
	began := time.Now()
	if err := freeze(disk); err != nil {
		testkit.NotRun(t, fmt.Sprintf("ext4 on a loop device cannot be frozen: %v", err))
	}
	thawed := false
	defer func() {
		if !thawed {
			_ = thaw(disk)
		}
	}()
	id, next := c.follows(frozen, epoch)
	t.Logf("%s leads in epoch %d after %v", id, next, c.ledAfter(id, next, began))
	c.budget(340, "with a frozen disk")
	c.unhealthy(frozen, "member-ended", "member-silent")
	c.leased(c.nodes...)
	c.checker.noFall()

	thawed = true
	testkit.Check(t, thaw(disk))
	c.until(frozen+" to end", func() bool { return !c.running[frozen].alive() })
	c.revive(frozen)
	c.same(frozen)
	c.oneLeader()
}
