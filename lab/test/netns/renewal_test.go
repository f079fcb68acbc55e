package netns

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// shortLife is how long the certificates of TestCertificatesAreRenewed are valid.
const shortLife = 40 * time.Second

// renew replaces the certificates of the identities ROLE/NAME by new ones, as tools do.
func (c *cluster) renew(who ...string) {
	c.t.Helper()
	for _, id := range who {
		fresh := testkit.Need(os.MkdirTemp(c.dir, "renewed"))(c.t)
		must(c.t, tool("coordinator"), "tls", "cert", "create", "--for", shortLife.String(), "--dir", fresh, "--ca-dir", c.dir, id)
		role, name, _ := strings.Cut(id, "/")
		file := name
		if role == "worker" { // beside the certificate of its node
			file = strings.Replace(name, "n0", "w", 1)
		}
		for _, ext := range []string{".key", ".crt"} {
			testkit.Check(c.t, os.Rename(filepath.Join(fresh, name+ext), c.path(file+ext)))
		}
	}
}

// schedule starts the scheduler and what belongs to it, each with a certificate of its own: a
// master, a worker of the scheduler's and one of the master's.
func (c *cluster) schedule() {
	c.t.Helper()
	group := "rack/r1"
	c.write("s1.yaml", fmt.Sprintf("listen: 127.0.0.1:7410\ndir: %q\ncoordinators: [%s]\n%sclasses: [high, low]\ndispatch: {groups: {%s: [\"127.0.0.1:7420\"]}}\n",
		c.path("s1"), quoted(c.addresses("7400")), c.identity("s1"), group))
	start := func(name string, argv ...string) {
		c.launch(name, operator, slices.Concat([]string{tool("scheduler")}, argv, c.shown(name))...)
	}
	c.launch("s1", operator, tool("scheduler"), "run", "--config", c.path("s1.yaml"))
	start("m1", "master", "--name", "m1", "--group", group, "--listen", "127.0.0.1:7420", "--coordinators", strings.Join(c.addresses("7400"), ","))
	start("w1", "worker", "--node", "w1", "--scheduler", "127.0.0.1:7410", "--slots", "1", "--dir", c.path("w1"))
	start("w2", "worker", "--node", "n02", "--scheduler", "127.0.0.1:7420", "--slots", "1", "--dir", c.path("w2"))
}

// shown are the flags of a client's certificate.
func (c *cluster) shown(name string) []string {
	return []string{"--ca", c.path("ca.crt"), "--cert", c.path(name + ".crt"), "--key", c.path(name + ".key")}
}

// ended reports whether so many jobs are done.
func (c *cluster) ended(jobs int) bool {
	argv := inside(operator, append([]string{tool("scheduler"), "job", "list", "-o", "json", "--addr", "127.0.0.1:7410"}, c.shown(operator)...)...)
	out, _ := exec.Command(argv[0], argv[1:]...).Output() // no answer has no jobs
	var a answer[struct{ State string }]
	_ = json.Unmarshal(out, &a)
	return len(a.Items) == jobs && !slices.ContainsFunc(a.Items, func(j struct{ State string }) bool { return j.State != "done" })
}

// lasting submits a job whose one task runs until the file go is there, and waits until it runs.
func (c *cluster) lasting(name, more string) {
	c.t.Helper()
	dir := c.path("jobs", name)
	testkit.Check(c.t, os.MkdirAll(dir, 0o755))
	c.write(filepath.Join("jobs", name, "job.yaml"), fmt.Sprintf("name: %s\nclass: low\n%s\noutput: out\nmap: {tasks: 1, command: [sh, -c, %q]}\n",
		name, more, "echo >>begun; until test -e go; do sleep 0.2; done"))
	c.until("the job "+name+" is accepted", func() bool {
		argv := append([]string{tool("scheduler"), "job", "submit", filepath.Join(dir, "job.yaml"), "--request-id", name, "--addr", "127.0.0.1:7410"}, c.shown(operator)...)
		return run(c.t, "", inside(operator, argv...)...) == nil
	})
	c.until("the job "+name+" runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "begun"))
		return err == nil
	})
}

// Every program's certificate is renewed again and again, half way to its end: through two
// ends no lease expires, no leader changes, no stream is refused and no task starts again.
func TestCertificatesAreRenewed(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: shortLease, budget: 600})
	who := []string{"scheduler/s1", "master/m1", "worker/w1", "worker/n02", "observer/watch"}
	for _, id := range c.servers {
		who = append(who, "server/"+id)
	}
	for _, name := range c.nodes {
		who = append(who, "node/"+name)
	}
	c.renew(who...)
	c.schedule()
	c.launch("watch", operator, slices.Concat([]string{tool("coordinator"), "budget", "show", "--watch", "--addr", strings.Join(c.addresses("7400"), ",")}, c.shown("watch"))...)
	jobs := map[string]string{"shared": "slots: 1", "masters": "dispatch: pigeon"}
	for name, more := range jobs {
		c.lasting(name, more)
	}
	_, epoch := c.leader()
	for range 4 {
		c.pass(shortLife / 2)
		c.renew(who...)
		c.leased(c.nodes...)
	}
	c.pass(shortLife / 4)
	c.leased(c.nodes...)
	if _, now := c.leader(); now != epoch {
		t.Errorf("epoch %d became %d", epoch, now)
	}
	for name := range jobs {
		c.write(filepath.Join("jobs", name, "go"), "")
	}
	c.until("both jobs are done", func() bool { return c.ended(len(jobs)) })
	for name := range jobs {
		if begun := testkit.Need(os.ReadFile(c.path("jobs", name, "begun")))(t); len(begun) != 1 {
			t.Errorf("the task of %s was begun %d times", name, len(begun))
		}
	}
	logs := []string{}
	for _, name := range []string{"s1", "m1", "w1", "w2", "watch"} {
		logs = append(logs, c.path(name+".log"))
		if !c.running[name].alive() {
			t.Errorf("%s has ended", name)
		}
	}
	for _, name := range c.nodes {
		logs = append(logs, c.path("nodes", name, "powerd.log"))
	}
	for _, name := range logs {
		log := string(testkit.Need(os.ReadFile(name))(t))
		for _, trouble := range []string{"lease expired", "stream closed", "no stream to the leader", "stepping down"} {
			if strings.Contains(log, trouble) {
				t.Errorf("%s: %s", name, trouble)
			}
		}
		// While the programs start, one may find that another does not listen yet.
		for _, once := range []string{"scheduler unreachable", "no stream to master", "caps not updated", "worker lost", "denied certificates not read"} {
			if strings.Count(log, once) > 1 {
				t.Errorf("%s: %s", name, once)
			}
		}
	}
}
