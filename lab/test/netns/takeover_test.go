package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// Two schedulers of one cluster, each with a certificate, a state folder and a network of its
// own. The active one is paused, and later the other one is killed, while jobs run on workers
// and through a master: each time the other takes over, tasks of workers go on, nothing runs
// twice beside itself, and the paused one no longer acts when it wakes up.
func TestSchedulerTakesOver(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: shortLease, budget: 600})
	must(t, tool("coordinator"), "tls", "cert", "create", "--dir", c.dir, "--ca-dir", c.dir, "scheduler/s1", "scheduler/s2", "master/m1", "worker/w1", "worker/w2")
	hosts := map[string]string{"s1": operator, "s2": "n01"}
	addrs := []string{c.at(operator) + ":7410", c.at("n01") + ":7410"}
	for name, host := range hosts {
		c.write(name+".yaml", fmt.Sprintf("listen: %s:7410\ndir: %q\ncoordinators: [%s]\n%sclasses: [high, low]\ndispatch: {groups: {rack/r1: [%q]}}\n",
			c.at(host), c.path(name), quoted(c.addresses("7400")), c.identity(name), c.at("n02")+":7420"))
	}
	serve := func(name string) {
		c.launch(name, hosts[name], tool("scheduler"), "run", "--config", c.path(name+".yaml"))
	}
	start := func(name, host string, argv ...string) {
		c.launch(name, host, slices.Concat([]string{tool("scheduler")}, argv, c.shown(name))...)
	}
	ask := func(argv ...string) (string, error) {
		all := inside(operator, slices.Concat([]string{tool("scheduler")}, argv, []string{"--addr", strings.Join(addrs, ",")}, c.shown(operator))...)
		out, err := exec.Command(all[0], all[1:]...).CombinedOutput()
		return string(out), err
	}
	active := func(name string) {
		t.Helper()
		began := time.Now()
		c.until(name+" is active", func() bool {
			out, _ := ask("status")
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, c.at(hosts[name])+":") && strings.Contains(line, "active") {
					return true
				}
			}
			return false
		})
		t.Logf("%s is active after %v", name, time.Since(began).Round(100*time.Millisecond))
	}
	serve("s1")
	active("s1")
	serve("s2")
	start("m1", "n02", "master", "--name", "m1", "--group", "rack/r1", "--listen", c.at("n02")+":7420") // w2 is no node of the site, which it would learn
	start("w1", "n02", "worker", "--node", "w1", "--scheduler", strings.Join(addrs, ","), "--slots", "2", "--dir", c.path("w1"))
	start("w2", "n02", "worker", "--node", "w2", "--scheduler", c.at("n02")+":7420", "--slots", "1", "--dir", c.path("w2"))
	jobs := map[string]string{"shared": "slots: 2", "masters": "dispatch: pigeon"}
	for name, more := range jobs {
		dir := c.path("jobs", name)
		testkit.Check(t, os.MkdirAll(dir, 0o755))
		c.write(filepath.Join("jobs", name, "job.yaml"), fmt.Sprintf("name: %s\nclass: low\n%s\noutput: out\nmap: {tasks: 2, command: [sh, -c, %q]}\n",
			name, more, "echo >>begun-{index}; until test -e go; do sleep 0.2; done"))
		c.until("the job "+name+" runs", func() bool {
			_, err := ask("job", "submit", filepath.Join(dir, "job.yaml"), "--request-id", name)
			_, begun := os.Stat(filepath.Join(dir, "begun-0"))
			return err == nil && begun == nil
		})
	}

	c.running["s1"].signal(t, syscall.SIGSTOP)
	active("s2")
	c.running["s1"].signal(t, syscall.SIGCONT)
	c.until("the paused scheduler has noticed", func() bool {
		log := string(testkit.Need(os.ReadFile(c.path("s1.log")))(t))
		return strings.Contains(log, "lease lost") && strings.Contains(log, "on standby")
	})
	out, err := ask("job", "list")
	if err != nil || strings.Count(out, "running") != len(jobs) {
		t.Errorf("after the takeover: %v\n%s", err, out)
	}
	c.running["s2"].kill(t)
	active("s1")
	for name := range jobs {
		c.write(filepath.Join("jobs", name, "go"), "")
	}
	c.until("the jobs are done", func() bool {
		out, err := ask("job", "list")
		return err == nil && strings.Count(out, "done") == len(jobs)
	})
	for i := range 2 {
		if begun := testkit.Need(os.ReadFile(c.path("jobs", "shared", fmt.Sprintf("begun-%d", i))))(t); len(begun) != 1 {
			t.Errorf("task %d of the workers was begun %d times", i, len(begun))
		}
	}
}
