package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/cgroup"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/scheduler"
	"headroom/scheduler/local"
)

// patience bounds what a test waits for: many times what it takes.
const patience = 30 * time.Second

// cluster is coordinators (a double), one scheduler and workers (processes).
type cluster struct {
	t       *testing.T
	dir     string
	coords  *coordinators
	address string
	log     string
}

func newCluster(t *testing.T, servers int) *cluster {
	t.Helper()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() //nolint:errcheck // only to find a free port
	c := &cluster{t: t, dir: t.TempDir(), coords: startCoordinators(t, servers), address: l.Addr().String()}
	write := fmt.Sprintf("dev: true\nlisten: %s\ndir: %s\ncoordinators: [%s]\nclasses: [high, low]\nlog_level: debug\n",
		c.address, filepath.Join(c.dir, "state"), strings.Join(c.coords.addresses, ", "))
	c.write("scheduler.yaml", write)
	c.log = filepath.Join(c.dir, "log")
	t.Cleanup(func() {
		if data, err := os.ReadFile(c.log); err == nil && t.Failed() {
			t.Logf("log of all processes:\n%s", data)
		}
	})
	return c
}

func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	testkit.WriteFile(c.t, path, text)
	return path
}

// proc is a process of the cluster.
type proc struct {
	t    *testing.T
	cmd  *exec.Cmd
	over chan struct{}
}

func (c *cluster) start(args ...string) *proc {
	c.t.Helper()
	log := testkit.Need(os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(c.t)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	testkit.Check(c.t, cmd.Start())
	p := &proc{t: c.t, cmd: cmd, over: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(p.over)
	}()
	c.t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// end sends a signal and waits until the process has ended.
func (p *proc) end(sig syscall.Signal) {
	p.t.Helper()
	select {
	case <-p.over:
		return
	default:
		_ = p.cmd.Process.Signal(sig)
	}
	select {
	case <-p.over:
	case <-time.After(10 * time.Second):
		p.t.Errorf("process %v did not end", p.cmd.Args)
		_ = p.cmd.Process.Kill()
	}
}

func (c *cluster) scheduler() *proc {
	c.t.Helper()
	return c.start("run", "--config", filepath.Join(c.dir, "scheduler.yaml"))
}

func (c *cluster) worker(node string, slots int) *proc {
	c.t.Helper()
	c.t.Cleanup(func() { testkit.Check(c.t, cgroup.Clean(filepath.Join(c.dir, node, local.RecordFile))) }) // after it was killed
	return c.start("worker", "--dev", "--node", node, "--scheduler", c.address, "--slots", fmt.Sprint(slots), "--dir", filepath.Join(c.dir, node))
}

// run is a command of the user.
func (c *cluster) run(args ...string) (stdout, stderr string, exit int) {
	c.t.Helper()
	var out, errs bytes.Buffer
	exit = cli.Run(context.Background(), New(), append(args, "--addr", c.address), &out, &errs)
	return out.String(), errs.String(), exit
}

// ready waits until the scheduler answers and n workers are connected.
func (c *cluster) ready(n int) {
	c.t.Helper()
	testkit.Eventually(c.t, patience, "scheduler and workers ready", func() bool {
		out, _, exit := c.run("list", "--workers", "-o", "json")
		return exit == cli.ExitOK && strings.Count(out, `"connected": true`) == n
	})
}

// submit submits a job that must be accepted, and returns its id.
func (c *cluster) submit(job string, args ...string) string {
	c.t.Helper()
	out, errs, exit := c.run(append([]string{"submit", c.write("job.yaml", job), "-o", "name"}, args...)...)
	if exit != cli.ExitOK {
		c.t.Fatalf("submit: exit %d: %s", exit, errs)
	}
	return strings.TrimSpace(out)
}

func (c *cluster) show(id string) jsonJob {
	c.t.Helper()
	out, _, _ := c.run("show", id, "-o", "json")
	var answer struct{ Items []jsonJob }
	if json.Unmarshal([]byte(out), &answer) != nil || len(answer.Items) != 1 {
		return jsonJob{}
	}
	return answer.Items[0]
}

// ends waits for the end of a job, as committed, and returns it.
func (c *cluster) ends(id, state string) jsonJob {
	c.t.Helper()
	testkit.Eventually(c.t, patience, "end of job "+id, func() bool {
		j := c.coords.job(id)
		return j != nil && ended(j)
	})
	j := c.show(id)
	if j.State != state {
		c.t.Fatalf("job ended as %+v, want %s", j, state)
	}
	return j
}

// texts writes n input files and returns what wordcount over all of them prints.
func (c *cluster) texts(n int) (want string) {
	c.t.Helper()
	var names []string
	for i := range n {
		words := strings.Repeat(fmt.Sprintf("the cap of node n%02d is what it may draw now\n", i), 400+i)
		names = append(names, c.write(fmt.Sprintf("text/%02d.txt", i), words))
	}
	var out bytes.Buffer
	testkit.Check(c.t, words(append([]string{"wordcount"}, names...), &out))
	return out.String()
}

func (c *cluster) result() string {
	c.t.Helper()
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "out", "result")))(c.t)
	return string(data)
}

// wordsJob counts words.
func wordsJob(passes int) string {
	return fmt.Sprintf(`name: words
class: high
slots: 4
map:
  input: text/*.txt
  command: [%[1]s, app, wordcount, "--passes=%[2]d", "{input}"]
reduce:
  command: [%[1]s, app, merge]
output: out
`, os.Args[0], passes)
}

// slowJob counts words, and takes its time for each text.
func slowJob() string {
	return strings.Replace(wordsJob(1), "["+os.Args[0]+", app, wordcount, \"--passes=1\"",
		"[sh, -c, 'sleep 0.3; exec \"$0\" app wordcount \"$1\"', "+os.Args[0], 1)
}

// serveHere runs the scheduler inside the test process.
func (c *cluster) serveHere() {
	c.t.Helper()
	cfg := testkit.Need(scheduler.LoadConfig(filepath.Join(c.dir, "scheduler.yaml")))(c.t)
	l := testkit.Need(rpc.Listen(cfg.Listen))(c.t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- scheduler.Run(ctx, *cfg, l, slog.New(slog.DiscardHandler)) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			c.t.Errorf("scheduler: %v", err)
		}
	})
}
