// Claims, with everything together (the package's cluster with our plug-in in its
// ResourceManager, and a coordinator, a scheduler and a powerd for each node): a job whose
// sprint timer is due has its nodes run above their caps. When a budget is cut under a
// running job, its queue is held to what the coordinator gives it, and it gives up tasks,
// not below its floor: by a drop ratio where the levers are weighed jointly, by an early
// stop under CAB's policy. What was dropped is in its counters, and what they count as read
// and as dropped is together its whole input.
package hadoop

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

// site is a coordinator, a scheduler and a powerd for each emulated node of the lab.
type site struct {
	*lab
	t        *testing.T
	dir      string
	group    *cluster.Group
	programs []*cluster.Program // in the order of their starts
	agents   []string           // nodes that had a powerd
	// rpc, raft and gossip are the coordinator's addresses, tasks the scheduler's, hooks
	// the one that the plug-ins query.
	rpc, raft, gossip, tasks, hooks string
}

// What an emulated node may draw at the most, and without a lease, in whole watts.
const (
	rated    = 242
	failSafe = 72
)

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{lab: shared(t), t: t, dir: t.TempDir()}
	var err error
	if s.group, err = cluster.NewGroup(filepath.Join(s.dir, "logs")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range slices.Backward(s.programs) {
			p.Stop(stopGrace)
		}
		if err := s.group.Close(); err != nil {
			t.Error(err)
		}
		s.restore()
		if t.Failed() {
			s.say()
		}
	})
	ports := testkit.Need(cluster.FreePorts(5))(t)
	s.rpc, s.raft, s.gossip, s.tasks, s.hooks = ports[0], ports[1], ports[2], ports[3], ports[4]
	var key [32]byte
	_, _ = rand.Read(key[:])
	s.write("gossip.key", base64.StdEncoding.EncodeToString(key[:])+"\n", 0o600)
	s.certificates()
	s.write("c1.yaml", fmt.Sprintf("id: c1\nstate_dir: %s\n"+s.identity("c1")+"servers:\n  - {id: c1, rpc: %q, raft: %q}\n"+
		"gossip: {bind: %q, join: [%q], key_file: %s}\nsite:\n  - {name: site/lab, budget: %dW, unmanaged: 0W}\n"+
		"  - {name: rack/r1, parent: site/lab, budget: %dW, unmanaged: 0W}\nlease: 10s\n",
		s.path("c1"), s.rpc, s.raft, s.gossip, s.gossip, s.path("gossip.key"), 2*rated, 2*rated), 0o644)
	return s
}

// certificates makes an authority, a certificate for each party, and the tokens of the hooks.
func (s *site) certificates() {
	s.t.Helper()
	for _, argv := range [][]string{
		{"tls", "ca", "create", "--dir", s.dir},
		{"tls", "cert", "create", "--dir", s.dir, "--ca-dir", s.dir, "admin/op", "server/c1", "scheduler/s1", "node/n1", "node/n2"},
	} {
		if out, err := exec.CommandContext(s.t.Context(), filepath.Join(s.bin, "coordinator"), argv...).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	s.write("hooks.key", base64.StdEncoding.EncodeToString(key[:])+"\n", 0o600)
	s.write("hooks.yaml", s.scheduling(fmt.Sprintf("  resourcemanager: [\"http://rm:8088\"]\n  queues: [{name: root.q1}]\n"+
		"  hooks: %q\n  hooks_auth: job\n  hooks_key_file: %s\n", s.hooks, s.path("hooks.key"))), 0o644)
	s.write("hooks.token", s.token("--shares"), 0o600)
	s.write("user.json", s.token("--user", testkit.Need(user.Current())(s.t).Username), 0o600)
}

// scheduling is a scheduler's configuration with these lines in its section yarn.
func (s *site) scheduling(yarn string) string {
	return fmt.Sprintf(s.identity("s1")+"listen: %q\ndir: %s\ncoordinators: [%q]\nclasses: [high]\nyarn:\n%s", s.tasks, s.path("scheduler"), s.rpc, yarn)
}

// token is what `scheduler hook token` prints.
func (s *site) token(of ...string) string {
	s.t.Helper()
	argv := append([]string{"hook", "token", "--config", s.path("hooks.yaml")}, of...)
	return string(testkit.Need(exec.CommandContext(s.t.Context(), filepath.Join(s.bin, "scheduler"), argv...).Output())(s.t))
}

// identity is the tls section of a program's configuration.
func (s *site) identity(name string) string {
	return fmt.Sprintf("tls: {mode: on, ca: %q, cert: %q, key: %q}\n", s.path("ca.crt"), s.path(name+".crt"), s.path(name+".key"))
}

// asked is where and as whom Hadoop's processes query the scheduler: by a token that reads
// shares. A job has another one, in its credentials.
func (s *site) asked() map[string]string {
	return map[string]string{"headroom.url": "https://" + s.hooks, "headroom.ca": s.path("ca.crt"), "headroom.token-file": s.path("hooks.token")}
}

// hidden checks, while a job runs, that the user's token has not got to the cluster and
// that the job's is in no configuration, which other users can read.
func (s *site) hidden() {
	s.t.Helper()
	carried := 0
	err := filepath.WalkDir(s.Dir(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file of a container that has ended meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Contains(text, []byte("headroom-user-1.")) {
			s.t.Errorf("%s holds the user's token", path)
		}
		if bytes.Contains(text, []byte("headroom-job-1.")) {
			carried++
			if filepath.Ext(path) == ".xml" {
				s.t.Errorf("%s holds the job's token", path)
			}
		}
		return nil
	})
	if err != nil || carried == 0 {
		s.t.Errorf("%d files hold the job's token, %v", carried, err)
	}
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	testkit.Check(s.t, os.WriteFile(s.path(name), []byte(text), mode))
}

func (s *site) start(name string, argv ...string) {
	s.t.Helper()
	p := testkit.Need(s.group.Start(name, nil, append([]string{filepath.Join(s.bin, argv[0])}, argv[1:]...)...))(s.t)
	s.programs = append(s.programs, p)
}

// agent starts powerd for an emulated node of the lab. Its fail-safe cap is near its
// floor, so that a budget may be cut that far: a job must be slowed more than this
// machine's other work slows it.
func (s *site) agent(name string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.nodes, name, "powerd.yaml"))
	edited := regexp.MustCompile(`fail_safe: [0-9.]+W`).ReplaceAll(text, fmt.Appendf(nil, "fail_safe: %dW", failSafe))
	if err != nil || bytes.Equal(edited, text) {
		s.t.Fatalf("powerd.yaml of %s: %v, or it names no fail-safe cap:\n%s", name, err, text)
	}
	s.write(name+".yaml", fmt.Sprintf("%sgossip: {bind: \"127.0.0.1:0\", join: [%q], key_file: %s}\n%s",
		edited, s.gossip, s.path("gossip.key"), s.identity(name)), 0o644)
	s.agents = append(s.agents, name)
	s.start("powerd-"+name, "powerd", "run", "--config", s.path(name+".yaml"))
}

// restore takes back what the powerd have set; they have ended.
func (s *site) restore() {
	s.t.Helper()
	for _, name := range s.agents {
		cmd := exec.Command(filepath.Join(s.bin, "powerd"), "limit", "restore", "--yes", "--force", "--config", s.path(name+".yaml"))
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Errorf("restore the limits of %s: %v: %s", name, err, out)
		}
	}
}

// limitOf is the power limit of an emulated node's package, in microwatts.
func (s *site) limitOf(node string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.nodes, node, "root", packageLimit))
	if err != nil {
		s.t.Fatal(err)
	}
	return testkit.Need(strconv.Atoi(strings.TrimSpace(string(text))))(s.t)
}

// say shows the ends of the logs.
func (s *site) say() {
	for _, p := range s.programs {
		text, err := os.ReadFile(p.Log)
		s.t.Logf("%s: %v\n%s", p.Name, err, text[max(0, len(text)-4000):])
	}
}

// command runs the coordinator's command line and reads its JSON.
func (s *site) command(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "coordinator"), append(args, "--addr", s.rpc, "-o", "json",
		"--ca", s.path("ca.crt"), "--cert", s.path("op.crt"), "--key", s.path("op.key"))...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%v: %w: %s", args, err, exit.Stderr)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// await looks every half second until done is true.
func (s *site) await(ctx context.Context, not string, done func() bool) {
	s.t.Helper()
	for !done() {
		if !pause.For(ctx, 500*time.Millisecond) {
			s.t.Fatal(not)
		}
	}
}

// jobView is a job in the output of `coordinator job show -o json`.
type jobView struct {
	State     string
	Tasks     int
	Done      int
	Dropped   int
	Floor     float64
	UncappedS *float64 `json:"uncapped_s"`
	CapShare  *float64 `json:"cap_share"`
	Given     *int     `json:"containers_given"`
	Stop      *struct {
		MinTasks int `json:"min_tasks"`
		Reason   string
	}
	Deflation *struct {
		Theta  float64
		Reason string
	}
	Why     *string
	Outcome string
}

// job is the job as the coordinator has it; ok is false until then.
func (s *site) job(ctx context.Context, id string) (view jobView, ok bool) {
	var answer struct{ Items []jobView }
	if err := s.command(ctx, &answer, "job", "show", id); err != nil || len(answer.Items) != 1 {
		return jobView{}, false
	}
	return answer.Items[0], true
}

// nodesHold reports whether so many nodes have a lease.
func (s *site) nodesHold(ctx context.Context, n int) bool {
	var answer struct {
		Items []struct {
			Heard *float64 `json:"heard_s"`
			Held  *float64 `json:"effective_w"`
		}
	}
	err := s.command(ctx, &answer, "node", "list")
	for _, node := range answer.Items {
		if node.Heard != nil && node.Held != nil {
			n--
		}
	}
	return err == nil && n == 0
}

// running starts a coordinator, the nodes and the scheduler.
func running(t *testing.T) (*site, context.Context) {
	t.Helper()
	s := newSite(t)
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute)
	t.Cleanup(cancel)

	s.start("c1", "coordinator", "run", "--config", s.path("c1.yaml"))
	s.agent("n1")
	s.agent("n2")
	s.await(ctx, "the nodes hold no lease", func() bool { return s.nodesHold(ctx, 2) })
	testkit.Check(t, s.ReplaceScheduler(hadoop.LiveFairScheduler, s.asked()))
	testkit.Check(t, s.AwaitNodes(ctx, "n1", "n2"))
	// A task costs little: what decides is not how fast this machine is.
	s.write("scheduler.yaml", fmt.Sprintf(s.identity("s1")+"listen: %q\ndir: %s\ncoordinators: [%q]\nclasses: [{name: high, quality_price: 50ms}]\n"+
		"yarn:\n  resourcemanager: [%q]\n  queues: [{name: root.q1, guarantee: 40%%}, {name: root.q2, guarantee: 80%%}, {name: root.q3, overrides: true}]\n"+
		"  container: {memory_mb: 2048, vcores: 1}\n  hooks: %q\n  hooks_auth: job\n  hooks_key_file: %s\n",
		s.tasks, s.path("scheduler"), s.rpc, s.RM(), s.hooks, s.path("hooks.key")), 0o644)
	s.start("scheduler", "scheduler", "run", "--config", s.path("scheduler.yaml"))

	return s, ctx
}

// counted writes the text that the jobs count, and returns its length in bytes.
func counted(t *testing.T) (in string, bytes int64) {
	t.Helper()
	text := hadoop.Text{Files: 16, Bytes: 200_000, Spread: 0.3, Topical: 0.5, Seed: 4}
	in = filepath.Join(t.TempDir(), "in")
	return in, testkit.Need(text.Write(in))(t)
}

func TestAJobUnderACut(t *testing.T) {
	s, ctx := running(t)
	s.sprint(ctx)
	in, input := counted(t)
	view, r := s.cut(ctx, "q2", in, filepath.Join(t.TempDir(), "joint"))
	if d := view.Deflation; d == nil || view.Stop != nil {
		t.Errorf("no drop ratio, or an early stop beside it: %+v", view)
	} else {
		judge(t, view, int(math.Ceil((1-d.Theta)*float64(view.Tasks)-1e-9)), r, input)
	}
}

// Where another policy than the joint one divides the containers, the job stops early.
func TestEarlyStopUnderACut(t *testing.T) {
	testkit.Engines(t, "hadoop "+release())
	s, ctx := running(t)
	testkit.Check(t, s.command(ctx, nil, "policy", "set", "stretch", "--for", "containers", "--reason", "test", "--yes"))
	in, input := counted(t)
	view, r := s.cut(ctx, "q1", in, filepath.Join(t.TempDir(), "stretch"))
	if view.Stop == nil || view.Deflation != nil {
		t.Errorf("no early stop, or a drop ratio beside it: %+v", view)
	} else {
		judge(t, view, view.Stop.MinTasks, r, input)
	}
}

const (
	// sprintTimer is the timer of the job that sprints.
	sprintTimer = 3 * time.Second
	// sprintWithin is how soon a timer that is due has its sprint, by the design: the scheduler looks at its jobs each
	// second, and so do the coordinators. On a machine that other work keeps busy it is longer.
	sprintWithin, busy = 2 * time.Second, 10
)

// sprint runs a job with a sprint timer, on nodes that are capped below what they can do.
func (s *site) sprint(ctx context.Context) {
	s.t.Helper()
	const low = 100
	nodes := []string{"n1", "n2"}
	for _, n := range nodes {
		testkit.Check(s.t, s.command(ctx, nil, "node", "set", n, "--max", fmt.Sprintf("%dW", low), "--reason", "test", "--yes"))
	}
	// What a node holds its package to is less than its cap.
	s.await(ctx, "the nodes are not capped", func() bool { return s.limitOf("n1") < low*1e6 && s.limitOf("n2") < low*1e6 })
	testkit.Check(s.t, s.command(ctx, nil, "sprint", "budget", "50kJ", "--refill", "500W", "--reason", "test", "--yes"))
	sleep := s.Sleep("q3", 200, time.Second)
	sleep.Properties = maps.Clone(sleep.Properties)
	if sleep.Properties == nil {
		sleep.Properties = map[string]string{}
	}
	sleep.Properties["headroom.sprint-after"] = sprintTimer.String()
	job := testkit.Need(s.Submit(ctx, sleep))(s.t)
	var id string
	s.await(ctx, "the job does not sprint", func() bool {
		var answer struct {
			Items []struct {
				Sprint *struct{ ID, Job string }
			}
		}
		err := s.command(ctx, &answer, "job", "explain", job.ID)
		if err != nil || len(answer.Items) != 1 || answer.Items[0].Sprint == nil || answer.Items[0].Sprint.Job != job.ID {
			return false
		}
		id = answer.Items[0].Sprint.ID
		return true
	})
	due := testkit.Need(job.Began(ctx))(s.t).Add(sprintTimer)
	_, stamp, _ := strings.Cut(strings.TrimPrefix(id, "job/"), "/") // a sprint's id ends in when it was granted
	late := time.UnixMilli(testkit.Need(strconv.ParseInt(stamp, 10, 64))(s.t)).Sub(due)
	s.t.Logf("the sprint was granted %v after its timer was due", late)
	if late < -time.Second || late > busy*sprintWithin {
		s.t.Errorf("the sprint was granted %v after its timer was due; the design says %v", late, sprintWithin)
	}
	s.await(ctx, "its nodes do not run above their caps", func() bool { return s.limitOf("n1") > low*1e6 && s.limitOf("n2") > low*1e6 })
	testkit.Check(s.t, job.Kill(ctx))
	s.await(ctx, "the sprint does not end with its job", func() bool { return s.limitOf("n1") < low*1e6 && s.limitOf("n2") < low*1e6 })
	s.await(ctx, "the sprint is not settled", func() bool { return s.command(ctx, nil, "sprint", "budget", "0J", "--reason", "test", "--yes") == nil })
	for _, n := range nodes {
		testkit.Check(s.t, s.command(ctx, nil, "node", "set", n, "--clear", "max", "--reason", "test", "--yes"))
	}
}

// cut runs a job, cuts the budget under it, and returns the coordinator's view of it at its end.
func (s *site) cut(ctx context.Context, queue, in, out string) (jobView, hadoop.Result) {
	s.t.Helper()
	properties := s.asked()
	for _, memory := range []string{"mapreduce.map.memory.mb", "mapreduce.reduce.memory.mb", "yarn.app.mapreduce.am.resource.mb"} {
		properties[memory] = "2048" // two containers on a node: the job must outlast the cut
	}
	properties["mapreduce.job.credentials.json"] = s.path("user.json")
	maps.Copy(properties, map[string]string{
		"mapreduce.framework.name": "yarn-headroom", "headroom.early-stop": "speculator", "mapreduce.job.reduce.slowstart.completedmaps": "1.0",
	})
	job := testkit.Need(s.Submit(ctx, hadoop.Job{
		Program: "wordcount", Queue: queue, LibJars: []string{s.plugin}, Args: []string{in, out}, Properties: properties,
	}))(s.t)
	s.await(ctx, "no uncapped finish time is committed", func() bool {
		view, ok := s.job(ctx, job.ID)
		return ok && view.UncappedS != nil && view.Done >= 5
	})
	s.hidden()
	before, _ := s.job(ctx, job.ID)
	s.t.Logf("uncapped finish time %.0f s, %d of %d tasks done: the budget is cut", *before.UncappedS, before.Done, before.Tasks)
	testkit.Check(s.t, s.command(ctx, nil, "budget", "set", fmt.Sprintf("%dW", 2*failSafe+2), "--reason", "test"))
	s.await(ctx, "the queue is not held to a share", func() bool {
		view, ok := s.job(ctx, job.ID)
		if ok && (view.State != "running" || view.Dropped > 0) {
			s.t.Fatalf("the job went on without a share: %+v", view)
		}
		uses, err := s.QueueUses(ctx)
		at := slices.IndexFunc(uses, func(u hadoop.QueueUse) bool { return u.Name == "root."+queue })
		return ok && err == nil && view.Given != nil && at >= 0 && uses[at].Max.VCores == int64(*view.Given)
	})
	r, err := job.Wait(ctx)
	if err != nil || !r.Succeeded() || r.History == nil {
		s.t.Fatalf("%+v, %v", r, err)
	}
	s.await(ctx, "the coordinator does not know the end", func() bool {
		view, ok := s.job(ctx, job.ID)
		return ok && view.State == "done"
	})
	view, _ := s.job(ctx, job.ID)
	s.t.Logf("took %v: %+v, stop %+v, drop ratio %+v", r.Elapsed(), view, view.Stop, view.Deflation)
	return view, r
}

// judge holds the coordinator's view of the ended job, which had to do so many tasks at the least, against its own history.
func judge(t *testing.T, view jobView, least int, r hadoop.Result, input int64) {
	t.Helper()
	if floor := int(math.Ceil(view.Floor*float64(view.Tasks) - 1e-9)); view.Dropped == 0 || least < floor {
		t.Fatalf("nothing was dropped, or more than the floor of %d tasks leaves: %+v", floor, view)
	}
	if view.Done < least || view.Done+view.Dropped != view.Tasks {
		t.Errorf("%d tasks done and %d dropped of %d, of which %d had to be done", view.Done, view.Dropped, view.Tasks, least)
	}
	const early = "headroom.hadoop.EarlyStopCounter"
	dropped, _ := r.History.Counters.Get(early, "DROPPED_TASKS")
	if done := len(r.History.Of("MAP", "SUCCEEDED")); int(dropped) != view.Dropped || done != view.Done {
		t.Errorf("the coordinator says %d done and %d dropped, the job's history %d and %d", view.Done, view.Dropped, done, dropped)
	}
	read, _ := r.History.Counters.Get("org.apache.hadoop.mapreduce.lib.input.FileInputFormatCounter", "BYTES_READ")
	unread, _ := r.History.Counters.Get(early, "DROPPED_BYTES")
	if read+unread != input || unread == 0 {
		t.Errorf("%d bytes were read and %d dropped of %d", read, unread, input)
	}
}
