package command

// The disciplines with real processes: a killed job starts anew and its result is right, a drop ratio is the same after
// every kill -9, a drained scheduler stays drained, an application of Spark outlives the scheduler.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
)

// discipline gives the cluster's scheduler.yaml a discipline and classes.
func (c *cluster) discipline(name, high, low string) {
	c.t.Helper()
	path := filepath.Join(c.dir, "scheduler.yaml")
	data := testkit.Need(os.ReadFile(path))(c.t)
	text := fmt.Sprintf("discipline: %s\nclasses:\n  - {name: high%s}\n  - {name: low%s}", name, high, low)
	c.write("scheduler.yaml", strings.Replace(string(data), "classes: [high, low]", text, 1))
}

// stubborn is a job whose tasks ignore SIGTERM, note that they ran, and go on when the file "go" is there.
func (c *cluster) stubborn(class string) string {
	return fmt.Sprintf(`name: %[2]s
class: %[2]s
slots: 2
map:
  input: text/*.txt
  command: [sh, -c, 'trap "" TERM; echo $HEADROOM_INDEX >> %[3]s/ran-%[2]s; until [ $HEADROOM_INDEX = 0 ] || [ -e %[3]s/go ]; do sleep 0.05; done; exec "$0" app wordcount "$1"', %[1]s, "{input}"]
reduce:
  command: [%[1]s, app, merge]
output: out
`, os.Args[0], class, c.dir)
}

func (c *cluster) lines(name string) []string {
	data, _ := os.ReadFile(filepath.Join(c.dir, name))
	return strings.Fields(string(data))
}

// Under p a low job whose tasks ignore SIGTERM makes room for a high one, is back at the head of its buffer although the
// scheduler is killed meanwhile, and runs again from the beginning to the right result.
func TestKilledJobStartsAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.discipline("p", "", "")
	want := c.texts(3)
	s := c.scheduler()
	c.worker("n01", 2)
	c.ready(1)
	low := c.submit(c.stubborn("low"))
	testkit.Eventually(t, patience, "one task of low done, others running", func() bool { j := c.show(low); return j.Done == 1 && j.Running == 2 })
	later := c.submit(strings.Replace(c.stubborn("low"), "name: low", "name: later", 1))
	high := c.submit(c.stubborn("high"))
	testkit.Eventually(t, patience, "high runs, low is back", func() bool {
		h, l, next := c.show(high), c.show(low), c.show(later)
		return h.State == "running" && l.State == "queued" && l.Place != nil && *l.Place == 1 && next.Place != nil && *next.Place == 2
	})
	if left, _ := filepath.Glob(filepath.Join(c.dir, "out", low, "map-*")); len(left) > 0 {
		t.Errorf("outputs of the killed run are left: %v", left)
	}
	s.end(syscall.SIGKILL)
	c.scheduler()
	testkit.Eventually(t, patience, "low waits after the restart", func() bool { l := c.show(low); return l.State == "queued" && *l.Place == 1 })
	c.write("go", "")
	c.ends(high, "done")
	j := c.ends(low, "done")
	if j.Run == nil || *j.Run != 2 || j.Done != 3 {
		t.Errorf("low ended as %+v, want its second run with all tasks", j)
	}
	if got := slices.Sorted(slices.Values(c.lines("ran-low"))); len(got) < 6 { // later's, too
		t.Errorf("tasks of low ran as %v, want the first one twice", got)
	}
	c.ends(later, "done")
	if got := c.result(); got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "out", low, "run-2", "result"))
	if err != nil || string(data) != want {
		t.Errorf("result of low %q (%v), want %q", data, err, want)
	}
	out, _, _ := c.run("list")
	if !strings.Contains(out, "discipline p, 1 at a time; killed runs took") || !strings.Contains(out, "wasted") {
		t.Errorf("list does not tell the waste:\n%s", out)
	}
}

// A drop ratio is committed before a task starts, leaves out the tasks that the seed says, and stays after a kill -9.
func TestDropRatioSurvives(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.discipline("dias", ", sprint_after: 0s", ", theta: 60%")
	c.texts(10)
	s := c.scheduler()
	c.ready(0)
	id := c.submit(strings.Replace(slowJob(), "class: high", "class: low\nmin_tasks: 50%", 1))
	if left, _ := filepath.Glob(filepath.Join(c.dir, "out", id, "map-*")); len(left) > 0 {
		t.Fatal("tasks ran without a worker")
	}
	c.worker("n01", 1)
	c.ready(1)
	testkit.Eventually(t, patience, "tasks done", func() bool { return c.show(id).Done >= 2 })
	d := c.coords.job(id).GetDeflation()
	if d.GetTheta() < 0.5-1e-9 || d.GetTheta() > 0.5+1e-9 || d.GetSeed() != buffers.Seed(id) {
		t.Errorf("committed %v, want the 50 %% that the floor leaves", d)
	}
	s.end(syscall.SIGKILL)
	c.scheduler()
	j := c.ends(id, "done")
	if j.Done != 5 || j.Dropped != 5 || !strings.Contains(j.ThetaWhy, "floor of 50 %") {
		t.Errorf("ended as %+v", j)
	}
	var dropped []int
	data, _ := os.ReadFile(filepath.Join(c.dir, "out", id, "dropped"))
	for line := range strings.Lines(string(data)) {
		var k struct {
			Index int `json:"index"`
		}
		testkit.Check(t, json.Unmarshal([]byte(line), &k))
		dropped = append(dropped, k.Index)
	}
	want := slices.Sorted(slices.Values(dispatch.DropOrder(10, rand.NewPCG(buffers.Seed(id), 0).Uint64)[:5]))
	if !slices.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
}

// Where the coordinators refuse a drop ratio a job runs on all of its tasks, and says why.
func TestRefusedDropRatio(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.coords.refuseDrops = true
	c.discipline("da", "", ", theta: 50%")
	c.texts(4)
	c.scheduler()
	c.worker("n01", 2)
	c.ready(1)
	id := c.submit(strings.Replace(wordsJob(1), "class: high", "class: low\nmin_tasks: 50%", 1))
	j := c.ends(id, "done")
	if j.Done != 4 || j.Dropped != 0 || !strings.Contains(j.ThetaWhy, "all tasks run: ") || !strings.Contains(j.ThetaWhy, "the floor forbids it") {
		t.Errorf("ended as %+v", j)
	}
}

// A sprint timer reaches the coordinators; what they say of the sprint is acknowledged and shown. A directive deflates a
// running job, never below its floor.
func TestDirectivesToARun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.discipline("dias", ", sprint_after: 0s, deadline: 1h", "")
	c.texts(6)
	c.scheduler()
	c.worker("n01", 1)
	c.ready(1)
	id := c.submit(strings.Replace(c.stubborn("high"), "slots: 2", "slots: 1\nmin_tasks: 50%", 1))
	testkit.Eventually(t, patience, "a report with a sprint that is due", func() bool {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		p := c.coords.progress[id]
		return p.GetSprintDue() && p.GetRun() == 1 && c.coords.last.GetDiscipline() == "dias" && len(c.coords.last.GetClasses()) == 2
	})
	if d := c.coords.job(id).GetDeadlineS(); d != 3600 {
		t.Errorf("deadline %v s, want its class's hour", d)
	}
	seq := uint64(0)
	direct := func(d *headroomv1.Directive) (refused string) {
		seq++
		d.Epoch, d.Seq, d.Reason = &headroomv1.Epoch{Term: 1}, seq, "test"
		testkit.Eventually(t, patience, "a stream", func() bool { return c.coords.direct(d) })
		testkit.Eventually(t, patience, "an answer", func() bool {
			c.coords.mu.Lock()
			defer c.coords.mu.Unlock()
			for _, a := range c.coords.acks {
				if a.GetSeq() == seq {
					refused = a.GetError()
					return true
				}
			}
			return false
		})
		return refused
	}
	sprint := &headroomv1.SprintDirective{Id: id, Sprint: "sp-1", Nodes: []string{"n01"}, CapUw: 250e6, DurationMs: 60000}
	if refused := direct(&headroomv1.Directive{Action: &headroomv1.Directive_Sprint{Sprint: sprint}}); refused != "" {
		t.Error(refused)
	}
	if j := c.show(id); j.Sprint == nil || j.Sprint.ID != "sp-1" || j.Sprint.CapW != 250 || !j.SprintDue || j.DeadlineLeftS == nil || *j.DeadlineLeftS > 3600 {
		t.Errorf("shown as %+v", j)
	}
	if out, _, _ := c.run("show", id); !strings.Contains(out, "escrow sp-1") || !strings.Contains(out, "left") {
		t.Errorf("show:\n%s", out)
	}
	over := &headroomv1.SprintDirective{Id: id}
	if refused := direct(&headroomv1.Directive{Action: &headroomv1.Directive_Sprint{Sprint: over}}); refused != "" || c.show(id).Sprint != nil {
		t.Errorf("%q, shown as %+v", refused, c.show(id).Sprint)
	}
	below := &headroomv1.DeflateDirective{Id: id, Theta: 0.9, Seed: 5}
	if refused := direct(&headroomv1.Directive{Action: &headroomv1.Directive_Deflate{Deflate: below}}); !strings.Contains(refused, "the floor is 3") || c.show(id).Dropped != 0 {
		t.Errorf("below the floor: %q, %d dropped", refused, c.show(id).Dropped)
	}
	some := &headroomv1.DeflateDirective{Id: id, Theta: 0.5, Seed: 5}
	if refused := direct(&headroomv1.Directive{Action: &headroomv1.Directive_Deflate{Deflate: some}}); refused != "" {
		t.Error(refused)
	}
	testkit.Eventually(t, patience, "tasks dropped", func() bool { return c.show(id).Dropped == 3 })
	if refused := direct(&headroomv1.Directive{Action: &headroomv1.Directive_Deflate{Deflate: &headroomv1.DeflateDirective{Id: "nobody", Theta: 0.5}}}); !strings.Contains(refused, "is not running") {
		t.Errorf("of an unknown job: %q", refused)
	}
	c.write("go", "")
	if j := c.ends(id, "done"); j.Done != 3 {
		t.Errorf("ended as %+v", j)
	}
}

// A drained scheduler lets what runs end and begins nothing, after a kill -9 too, until it is told to.
func TestDrainOutlivesTheScheduler(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(2)
	s := c.scheduler()
	c.worker("n01", 2)
	c.ready(1)
	first := c.submit(wordsJob(1))
	c.ends(first, "done")
	if out, errs, exit := c.run("drain", "--wait", "--reason", "new kernel"); exit != cli.ExitOK || out != "drained: no job begins; 0 running, 0 waiting\n" {
		t.Fatalf("drain: %d %q %q", exit, out, errs)
	}
	id := c.submit(strings.Replace(wordsJob(1), "name: words", "name: second", 1))
	s.end(syscall.SIGKILL)
	c.scheduler()
	c.ready(1)
	if out, _, _ := c.run("drain", "-o", "json"); !strings.Contains(out, `"waiting": 1`) || !strings.Contains(out, `"drained": true`) {
		t.Errorf("after a restart: %s", out)
	}
	if j := c.show(id); j.State != "queued" || *j.Place != 1 {
		t.Errorf("drained, and %+v", j)
	}
	if out, _, exit := c.run("drain", "--off"); exit != cli.ExitOK || !strings.HasPrefix(out, "not drained") {
		t.Errorf("drain --off: %d %q", exit, out)
	}
	c.ends(id, "done")
	if _, _, exit := c.run("drain", "--off", "--wait"); exit != cli.ExitUsage {
		t.Errorf("--off with --wait: exit %d", exit)
	}
}

// A drain that cannot be recorded is refused and not done: nobody may rely on what a restart forgets.
func TestDrainThatCannotBeKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.scheduler()
	c.ready(0)
	c.write("state/dispatch.json/in-the-way", "")
	if _, errs, exit := c.run("drain"); exit != cli.ExitFailed || !strings.Contains(errs, "drain state not changed") {
		t.Errorf("drain: exit %d: %s", exit, errs)
	}
	testkit.Check(t, os.RemoveAll(filepath.Join(c.dir, "state", "dispatch.json")))
	if out, _, exit := c.run("drain", "--off"); exit != cli.ExitOK || !strings.HasPrefix(out, "not drained") {
		t.Errorf("afterwards: %d %q", exit, out)
	}
}

// sparkHere gives the scheduler a Spark whose drivers are a script: it notes its process, ignores SIGTERM, and ends when the
// file that its application names is there.
func (c *cluster) sparkHere() {
	c.t.Helper()
	script := c.write("spark/bin/spark-submit", fmt.Sprintf("#!/bin/sh\ntrap '' TERM\nfor last; do :; done\necho $$ >> %[1]s/drivers\nuntil [ -e \"$last\" ]; do sleep 0.05; done\n", c.dir))
	testkit.Check(c.t, os.Chmod(script, 0o700))
	path := filepath.Join(c.dir, "scheduler.yaml")
	data, _ := os.ReadFile(path)
	c.write("scheduler.yaml", string(data)+fmt.Sprintf("spark: {home: %s/spark, master: \"spark://127.0.0.1:1\", plugin: %s, kill_after: 200ms}\n", c.dir, c.write("headroom-spark.jar", "")))
	c.write("app.py", "")
	c.t.Cleanup(func() { // whatever the test left
		for _, text := range c.lines("drivers") {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

func (c *cluster) sparkJob(class string) string {
	return fmt.Sprintf("name: %[1]s\nclass: %[1]s\nslots: 2\nspark: {application: app.py, args: [%[2]s/end-%[1]s]}\n", class, c.dir)
}

// A driver outlives the scheduler and is taken over; for a higher class it is ended although it ignores SIGTERM, and its job
// runs again afterwards; a cancelled one is ended too.
func TestSparkJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.discipline("p", "", "")
	c.sparkHere()
	s := c.scheduler()
	c.ready(0)
	low := c.submit(c.sparkJob("low"))
	testkit.Eventually(t, patience, "a driver", func() bool { return len(c.lines("drivers")) == 1 })
	if j := c.show(low); j.Engine != "spark" || j.State != "running" {
		t.Errorf("shown as %+v", j)
	}
	s.end(syscall.SIGKILL)
	s = c.scheduler()
	c.ready(0)
	testkit.Eventually(t, patience, "the run taken over", func() bool { return c.show(low).State == "running" })
	high := c.submit(c.sparkJob("high"))
	testkit.Eventually(t, patience, "the driver of high", func() bool { return len(c.lines("drivers")) == 2 })
	pid, _ := strconv.Atoi(c.lines("drivers")[0])
	if syscall.Kill(pid, 0) == nil && !zombie(pid) {
		t.Error("the driver of low lives on")
	}
	if j := c.show(low); j.State != "queued" || *j.Run != 1 {
		t.Errorf("low is %+v", j)
	}
	c.write("end-high", "")
	c.ends(high, "done")
	testkit.Eventually(t, patience, "low's second driver", func() bool { return len(c.lines("drivers")) == 3 })
	s.end(syscall.SIGKILL)
	c.write("end-low", "") // it ends while no scheduler is there
	third, _ := strconv.Atoi(c.lines("drivers")[2])
	testkit.Eventually(t, patience, "the driver's end", func() bool { return syscall.Kill(third, 0) != nil || zombie(third) })
	c.scheduler()
	if j := c.ends(low, "done"); *j.Run != 2 {
		t.Errorf("low ended as %+v", j)
	}
	testkit.Check(t, os.Remove(filepath.Join(c.dir, "end-low")))
	again := c.submit(strings.Replace(c.sparkJob("low"), "name: low", "name: again", 1))
	testkit.Eventually(t, patience, "another driver", func() bool { return len(c.lines("drivers")) == 4 })
	if out, errs, exit := c.run("cancel", again); exit != cli.ExitOK {
		t.Fatalf("cancel: %d %q %q", exit, out, errs)
	}
	fourth, _ := strconv.Atoi(c.lines("drivers")[3])
	testkit.Eventually(t, patience, "the cancelled driver's end", func() bool { return syscall.Kill(fourth, 0) != nil || zombie(fourth) })
	testkit.Eventually(t, patience, "its supervisor's last word", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "state", "jobs", again, "run-1", "exit.json"))
		return err == nil
	})
}

// What is wrong with a section spark, or with where it is submitted, is told with its place.
func TestSparkJobRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.scheduler()
	c.ready(0)
	for name, k := range map[string]struct{ job, want string }{
		"no Spark":       {c.sparkJob("low"), "job.yaml:4:8: Spark is not configured on this scheduler"},
		"no application": {"name: a\nclass: low\nslots: 1\nspark: {args: [x]}\n", "spark.application is missing"},
		"beside map":     {c.sparkJob("low") + "map: {input: x, command: [y]}\n", "job.yaml:5:6: map and spark exclude each other"},
		"odd property":   {"name: a\nclass: low\nslots: 1\nspark:\n  application: a.py\n  conf: {x: y}\n", `job.yaml:6:9: spark.conf: "x" is not a property`},
		"odd deadline":   {c.sparkJob("low") + "deadline: soon\n", "job.yaml:5:11: deadline"},
	} {
		_, errs, exit := c.run("submit", c.write("job.yaml", k.job))
		if exit != cli.ExitUsage || !strings.Contains(errs, k.want) {
			t.Errorf("%s: exit %d: %s, want %s", name, exit, errs, k.want)
		}
	}
}
