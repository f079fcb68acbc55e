package command

// Jobs with dispatch: pigeon run through masters, all as real processes: whatever is killed in between, each task's output is
// there once, and what waits is bounded.

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// site is a cluster with two groups: the first has a standby.
type site struct {
	*cluster
	a, standby, b string
	masters       map[string]*proc
}

func newSite(t *testing.T, maxTasks int) *site {
	t.Helper()
	s := &site{cluster: newCluster(t, 1), a: freeAddress(t), standby: freeAddress(t), b: freeAddress(t), masters: map[string]*proc{}}
	config := string(testkit.Need(os.ReadFile(filepath.Join(s.dir, "scheduler.yaml")))(t))
	s.write("scheduler.yaml", config+fmt.Sprintf("dispatch:\n  groups: {rack/r1: [%q, %q], rack/r2: [%q]}\n  max_tasks: %d\n", s.a, s.standby, s.b, maxTasks))
	s.master("m1", "rack/r1", s.a, "--peer", s.standby)
	s.master("m3", "rack/r2", s.b)
	testkit.Eventually(t, patience, "m1 is active", func() bool {
		conn, err := net.Dial("tcp", s.a)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	s.master("m2", "rack/r1", s.standby, "--peer", s.a)
	s.start("worker", "--dev", "--node", "n01", "--scheduler", s.a+","+s.standby, "--slots", "4", "--dir", filepath.Join(s.dir, "n01"))
	s.start("worker", "--dev", "--node", "n02", "--scheduler", s.b, "--slots", "4", "--dir", filepath.Join(s.dir, "n02"))
	return s
}

func (s *site) master(name, group, address string, more ...string) {
	s.t.Helper()
	s.masters[name] = s.start(append([]string{"master", "--dev", "--name", name, "--group", group, "--listen", address}, more...)...)
}

// groups are the groups as scheduler list shows them.
func (s *site) groups() []jsonGroup {
	out, _, _ := s.run("list", "--groups", "-o", "json")
	var answer struct{ Items []jsonGroup }
	if json.Unmarshal([]byte(out), &answer) != nil {
		return nil
	}
	return answer.Items
}

// whole waits until both groups have an active master with a worker.
func (s *site) whole() {
	s.t.Helper()
	testkit.Eventually(s.t, patience, "both groups work", func() bool {
		groups := s.groups()
		return len(groups) == 2 && !slices.ContainsFunc(groups, func(g jsonGroup) bool { return g.Workers == nil || *g.Workers != 1 })
	})
}

// active is the name of the active master of the first group.
func (s *site) active() string {
	for _, m := range s.groups()[0].Masters {
		if m.State == "active" && m.Name != nil {
			return *m.Name
		}
	}
	return ""
}

// burst is a job whose tasks note that they have run, and sleep.
func (s *site) burst(tasks int, sleep string) string {
	return fmt.Sprintf(`name: burst
class: low
dispatch: pigeon
length: short
map:
  tasks: %d
  command: [sh, -c, 'echo "$HEADROOM_INDEX" >> ran; sleep %s; echo "$1"', sh, "{index}"]
reduce:
  command: [sh, -c, 'cat "$@" | sort -n | uniq | wc -l', sh]
output: out
`, tasks, sleep)
}

func TestJobThroughMasters(t *testing.T) {
	t.Parallel()
	s := newSite(t, 400)
	scheduler := s.scheduler()
	s.whole()
	out, _, _ := s.run("list", "--groups", "-o", "wide")
	if !strings.Contains(out, "m1 ") || !strings.Contains(out, "m2 ") || !strings.Contains(out, "m3 active") || !strings.Contains(out, "0+0") {
		t.Errorf("groups:\n%s", out)
	}
	const tasks = 300
	id := s.submit(s.burst(tasks, "0.1"))
	_, errs, exit := s.run("submit", s.write("job.yaml", s.burst(tasks, "0")))
	if exit != cli.ExitRefused || !strings.Contains(errs, "would exceed dispatch.max_tasks of 400") {
		t.Errorf("too many tasks: exit %d, %s", exit, errs)
	}
	if j := s.show(id); j.Engine != "pigeon" || j.Tasks != tasks {
		t.Errorf("shown as %+v", j)
	}
	testkit.Eventually(t, patience, "some tasks done", func() bool { return s.show(id).Done >= 20 })
	lost := s.active()
	s.masters[lost].end(syscall.SIGKILL) // its standby goes on
	testkit.Eventually(t, patience, "the standby is active", func() bool { a := s.active(); return a != "" && a != lost })
	scheduler.end(syscall.SIGKILL)
	before, _ := filepath.Glob(filepath.Join(s.dir, "out", id, "map-*"))
	stamps := modTimes(t, before)
	s.scheduler()
	j := s.ends(id, "done")
	if j.Done != tasks || j.Outcome != fmt.Sprintf("%d of %d tasks done", tasks, tasks) || j.Length == nil || *j.Length != "short" {
		t.Errorf("ended as %+v", j)
	}
	if got := strings.TrimSpace(s.result()); got != fmt.Sprint(tasks) {
		t.Errorf("%s different outputs, want %d", got, tasks)
	}
	for name, at := range modTimes(t, before) {
		if stamps[name] != at {
			t.Errorf("%s was made again", name)
		}
	}
	s.cancelled()
}

// cancelled checks that a cancelled job leaves nothing running.
func (s *site) cancelled() {
	s.t.Helper()
	id := s.submit(s.burst(20, "300"))
	testkit.Eventually(s.t, patience, "tasks run", func() bool { return s.show(id).Running == 20 })
	if _, errs, exit := s.run("cancel", id); exit != cli.ExitOK {
		s.t.Errorf("cancel: exit %d: %s", exit, errs)
	}
	testkit.Eventually(s.t, patience, "nothing is left", func() bool {
		return !slices.ContainsFunc(s.groups(), func(g jsonGroup) bool {
			return g.RunningHigh == nil || *g.RunningHigh+*g.RunningLow+*g.WaitingHigh+*g.WaitingLow+g.Outstanding+g.Waiting > 0
		})
	})
}

// Without groups a job that asks for masters is refused, with the way out.
func TestNoMasters(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.serveHere()
	c.ready(0)
	s := &site{cluster: c}
	_, errs, exit := c.run("submit", c.write("job.yaml", s.burst(1, "0")))
	if exit != cli.ExitUsage || !strings.Contains(errs, "job.yaml:3:11: this scheduler has no masters configured") || !strings.Contains(errs, "hint: configure groups") {
		t.Errorf("exit %d: %s", exit, errs)
	}
}
