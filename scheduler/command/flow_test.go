package command

// An accepted job runs to the right result, with real processes, whatever is
// killed in between; what is refused leaves nothing behind.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func TestJobRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	want := c.texts(10)
	c.scheduler()
	c.worker("n01", 2)
	c.worker("n02", 2)
	c.ready(2)
	id := c.submit(wordsJob(1))
	j := c.ends(id, "done")
	if j.Tasks != 10 || j.Done != 10 || j.RuntimeS == nil || j.Outcome != "10 of 10 tasks done" {
		t.Errorf("ended as %+v", j)
	}
	if got := c.result(); got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "out", id, ".*")); len(left) > 0 {
		t.Errorf("unfinished outputs left behind: %v", left)
	}
	c.stragglerIsCopied(want)
	c.deadlineEndsJob()
	c.errorEndsJob()
	c.doorKeepsPromises(want)
}

func TestSchedulerKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	want := c.texts(12)
	s := c.scheduler()
	workers := map[string]*proc{"n01": c.worker("n01", 2), "n02": c.worker("n02", 2)}
	c.ready(2)
	id := c.submit(slowJob())
	testkit.Eventually(t, patience, "some tasks done", func() bool { return c.show(id).Done >= 3 })
	s.end(syscall.SIGKILL)
	before, _ := filepath.Glob(filepath.Join(c.dir, "out", id, "map-*"))
	stamps := modTimes(t, before)
	c.coords.lead(1) // the leader changes while the scheduler is down
	s = c.scheduler()
	j := c.ends(id, "done")
	if j.Done != 12 {
		t.Errorf("ended as %+v", j)
	}
	if got := c.result(); got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	for name, at := range modTimes(t, before) {
		if stamps[name] != at {
			t.Errorf("%s was made again", name)
		}
	}
	c.copiesOutliveScheduler(s, want)
	c.copyOutlivesWorker(workers, want)
}

func modTimes(t *testing.T, names []string) map[string]time.Time {
	t.Helper()
	m := make(map[string]time.Time)
	for _, n := range names {
		info := testkit.Need(os.Stat(n))(t)
		m[n] = info.ModTime()
	}
	return m
}

func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"at once": syscall.SIGKILL, "asked to": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			want := c.texts(8)
			c.scheduler()
			doomed := c.worker("n01", 2)
			c.worker("n02", 2)
			c.ready(2)
			id := c.submit(slowJob())
			testkit.Eventually(t, patience, "tasks on n01", func() bool { return c.show(id).RunningOn["n01"] == 2 })
			doomed.end(sig)
			c.ends(id, "done")
			if got := c.result(); got != want {
				t.Errorf("result %q, want %q", got, want)
			}
		})
	}
}

func TestCancelStopsTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(4)
	c.scheduler()
	c.worker("n01", 2)
	c.ready(1)
	id := c.submit(fmt.Sprintf("name: sleep\nclass: low\nslots: 2\nmap: {input: text/*.txt, command: [sh, -c, 'sleep 600 & echo $! > %s/pid-$HEADROOM_INDEX; wait']}\noutput: out\n", c.dir))
	pids := filepath.Join(c.dir, "pid-*")
	testkit.Eventually(t, patience, "tasks running", func() bool { m, _ := filepath.Glob(pids); return len(m) == 2 && c.show(id).Running == 2 })
	if out, errs, exit := c.run("cancel", id, "--reason", "wrong input"); exit != cli.ExitOK || !strings.Contains(out, "cancelled at revision") {
		t.Fatalf("cancel: %d %q %q", exit, out, errs)
	}
	j := c.ends(id, "cancelled")
	if !strings.Contains(j.Outcome, "wrong input") {
		t.Errorf("outcome %q", j.Outcome)
	}
	names, _ := filepath.Glob(pids)
	for _, n := range names {
		var pid int
		if data, err := os.ReadFile(n); err != nil || sscan(string(data), &pid) != nil {
			t.Fatalf("%s: %v", n, err)
		}
		testkit.Eventually(t, patience, "the task's child ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
	}
	testkit.Eventually(t, patience, "slots free", func() bool {
		out, _, _ := c.run("list", "--workers", "-o", "csv", "--no-headers")
		return strings.HasPrefix(out, "n01,2,2,0,true,")
	})
	if out, _, exit := c.run("cancel", id); exit != cli.ExitOK || !strings.Contains(out, "already cancelled") {
		t.Errorf("second cancel: %d %q", exit, out)
	}
}

func sscan(s string, n *int) error {
	_, err := fmt.Sscan(s, n)
	return err
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(data), ") Z ")
}

func TestCapDirective(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.texts(100)
	c.serveHere()
	c.worker("n01", 4)
	c.ready(1)
	id := c.submit(strings.Replace(slowJob(), "slots: 4", "slots: 8", 1))
	testkit.Eventually(t, patience, "all slots used", func() bool { return c.show(id).Running == 4 })
	directive := func(term, seq uint64, watts int64) {
		d := &headroomv1.Directive{
			Epoch: &headroomv1.Epoch{Incarnation: 1, Term: term}, Seq: seq, Reason: "budget cut",
			Action: &headroomv1.Directive_Cap{Cap: &headroomv1.CapDirective{Node: "n01", CapUw: watts * 1e6, FloorUw: 70e6, MaxUw: 220e6}},
		}
		testkit.Eventually(t, patience, "a stream to the scheduler", func() bool { return c.coords.direct(d) })
	}
	acks := func() map[string]string {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		m := make(map[string]string)
		for _, a := range c.coords.acks {
			m[fmt.Sprint(a.GetEpoch().GetTerm(), "/", a.GetSeq())] = a.GetError()
		}
		return m
	}
	directive(7, 3, 110) // 4 * 40/150 = 1.07: one slot
	testkit.Eventually(t, patience, "tasks drained to one slot", func() bool { return c.show(id).Running == 1 })
	directive(7, 2, 220) // older: refused
	testkit.Eventually(t, patience, "two acknowledgements", func() bool { return len(acks()) == 2 })
	c.coords.lead(1)
	directive(8, 1, 220)
	testkit.Eventually(t, patience, "all slots used again", func() bool { return c.show(id).Running == 4 })
	testkit.Eventually(t, patience, "three acknowledgements", func() bool { return len(acks()) == 3 })
	if a := acks(); a["7/3"] != "" || a["8/1"] != "" || !strings.Contains(a["7/2"], "older") {
		t.Errorf("acknowledged %v", a)
	}
	testkit.Eventually(t, patience, "progress at the coordinators", func() bool {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		p := c.coords.progress[id]
		return p.GetTasks() == 100 && p.GetRunningOn()["n01"] > 0 && p.RatePerS != nil && p.RuntimeS != nil
	})
	if _, errs, exit := c.run("cancel", id); exit != cli.ExitOK {
		t.Fatal(errs)
	}
	directive(8, 2, 110)
	testkit.Eventually(t, patience, "four acknowledgements", func() bool { return len(acks()) == 4 })
	c.cappedNodeIsCopied()
}

func TestLeastFractionOfTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(4)
	c.serveHere()
	c.worker("n01", 4)
	c.ready(1)
	job := func(name, least string) string {
		return fmt.Sprintf("name: %s\nclass: low\nslots: 4\nmin_tasks: %s\nmax_attempts: 2\nmap:\n  input: text/*.txt\n"+
			"  command: [sh, -c, 'if [ $HEADROOM_INDEX = 2 ]; then echo broken disk >&2; exit 3; fi; echo $HEADROOM_INDEX']\n"+
			"reduce: {command: [cat]}\noutput: out\n", name, least)
	}
	j := c.ends(c.submit(job("some", "75%")), "done")
	if j.Done != 3 || j.Dropped != 1 {
		t.Errorf("ended as %+v", j)
	}
	if got := c.result(); got != "0\n1\n3\n" {
		t.Errorf("result %q", got)
	}
	drops, err := os.ReadFile(filepath.Join(c.dir, "out", j.ID, "dropped"))
	if err != nil || bytes.Count(drops, []byte("\n")) != 1 || !bytes.Contains(drops, []byte(`"index":2,`)) {
		t.Errorf("recorded %q, %v", drops, err)
	}
	j = c.ends(c.submit(job("all", "0.76")), "failed")
	if !strings.Contains(j.Outcome, "map task 2 failed 2 times, last on n01: exit status 3: broken disk") {
		t.Errorf("outcome %q", j.Outcome)
	}
}

// An accuracy is a floor by the profile of the day of submission, whatever becomes of
// the profile; without one all tasks must be done, and show says why.
func TestAccuracyIsAFloor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(4)
	profile := c.write("profiles/words.json", `{"name":"words","engine":"local","points":[{"fraction":0.75,"accuracy":0.95,"low":0.9,"high":1,"runs":3}]}`)
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	c.write("scheduler.yaml", string(data)+"profiles: "+filepath.Dir(profile)+"\n")
	first := c.scheduler()
	c.ready(0)
	job := func(name, asks string) string {
		return fmt.Sprintf("name: %s\nclass: low\nslots: 4\n%s\nmax_attempts: 1\nmap:\n  input: text/*.txt\n"+
			"  command: [sh, -c, 'if [ $HEADROOM_INDEX = 2 ]; then exit 3; fi; echo $HEADROOM_INDEX']\noutput: out\n", name, asks)
	}
	text := job("some", "quality: 90%\nprofile: words")
	id := c.submit(text, "--request-id", "r1")
	if j := c.coords.job(id); j.GetFloor() != 0.75 {
		t.Errorf("committed %v", j)
	}
	testkit.Check(t, os.Remove(profile))
	if again := c.submit(text, "--request-id", "r1"); again != id {
		t.Errorf("the same request made %s and %s", id, again)
	}
	first.end(syscall.SIGKILL) // the next one reads the job from the log
	c.scheduler()
	c.worker("n01", 4)
	c.ready(1)
	if j := c.ends(id, "done"); j.Done != 3 || j.Dropped != 1 || j.Floor == nil || *j.Floor != 0.75 || !strings.Contains(j.FloorReason, "needs 75 %") {
		t.Errorf("ended as %+v", j)
	}
	out, _, _ := c.run("show", id)
	if !strings.Contains(out, `75 % of the map tasks: quality: 90% needs 75 % of the tasks by profile "words"`) {
		t.Errorf("show: %s", out)
	}
	id = c.submit(job("words", "min_tasks: 50%\nquality: 0.9"))
	c.ends(id, "failed")
	out, _, _ = c.run("show", id)
	if !strings.Contains(out, `100 % of the map tasks: quality: 0.9: running all tasks, because profile "words" cannot be used: there is no "words.json"`) ||
		!strings.Contains(out, "beside min_tasks: 50%") {
		t.Errorf("show: %s", out)
	}
	c.ends(c.submit(job("fewer", "min_tasks: 75%")), "done")
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.coords.lead(2)
	c.texts(1)
	c.serveHere()
	c.worker("n01", 1)
	c.ready(1)
	c.coords.mu.Lock()
	c.coords.commitThenFail = connect.NewError(connect.CodeDeadlineExceeded, io.ErrUnexpectedEOF)
	c.coords.mu.Unlock()
	id := c.submit(wordsJob(1), "--request-id", "r1")
	if again := c.submit(wordsJob(1), "--request-id", "r1"); again != id {
		t.Errorf("the same request made %s and %s", id, again)
	}
	c.ends(id, "done")
	if n := c.coords.count(); n != 1 {
		t.Errorf("%d jobs committed, want 1", n)
	}
	_, errs, exit := c.run("submit", c.write("other.yaml", wordsJob(2)), "--request-id", "r1")
	if exit != cli.ExitConflict || !strings.Contains(errs, "hint: ") {
		t.Errorf("another job under the same request: exit %d, %s", exit, errs)
	}
}

func TestNoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.texts(1)
	c.serveHere()
	c.worker("n01", 1)
	c.ready(1)
	c.coords.lead(-1)
	_, errs, exit := c.run("submit", c.write("job.yaml", wordsJob(1)))
	if exit != cli.ExitUnreachable || !strings.Contains(errs, "no leader") || !strings.Contains(errs, "\nhint: ") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "out")); !os.IsNotExist(err) {
		t.Error("the refused job left a folder")
	}
	c.coords.lead(1)
	c.ends(c.submit(wordsJob(1)), "done")
	if n := c.coords.count(); n != 1 {
		t.Errorf("%d jobs committed, want 1", n)
	}
}

func TestBadJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(1)
	testkit.Check(t, os.Symlink("nowhere", filepath.Join(c.dir, "dangling.txt")))
	c.serveHere()
	c.ready(0)
	good := wordsJob(1)
	for name, k := range map[string]struct{ from, to, want string }{
		"empty glob":       {"text/*.txt", "none/*.txt", "job.yaml:5:10: no file matches"},
		"unreadable input": {"text/*.txt", "dangling.txt", "job.yaml:5:10: input file cannot be read"},
		"unknown class":    {"class: high", "class: urgent", `job.yaml:2:8: unknown class "urgent"`},
		"no slots":         {"slots: 4", "slots: 0", "job.yaml:3:8: slots is 0"},
		"nothing needed":   {"slots: 4", "slots: 4\nmin_tasks: 0", "job.yaml:4:12: min_tasks"},
		"more than all":    {"slots: 4", "slots: 4\nmin_tasks: 101%", "job.yaml:4:12: min_tasks"},
		"unknown key":      {"slots: 4", "slots: 4\nslot: 4", `job.yaml:4:1: unknown key "slot"`},
		"no program":       {os.Args[0] + ", app, word", "nowhere-to-be-found, word", "job.yaml:6:13: program"},
		"output in a file": {"output: out", "output: text/00.txt", "job.yaml:9:9: cannot create the output folder"},
	} {
		path := c.write(strings.ReplaceAll(name, " ", "-")+"/job.yaml", strings.Replace(strings.Replace(good, "text/", c.dir+"/text/", 1),
			strings.Replace(k.from, "text/", c.dir+"/text/", 1), strings.ReplaceAll(strings.ReplaceAll(k.to, "dangling", c.dir+"/dangling"), "output: text", "output: "+c.dir+"/text"), 1))
		out, errs, exit := c.run("submit", path)
		if exit != cli.ExitUsage || out != "" || !strings.Contains(errs, k.want) || strings.Count(errs, "\n") != 2 || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%s: exit %d, %q, %s", name, exit, out, errs)
		}
	}
	if n := c.coords.count(); n != 0 {
		t.Errorf("%d jobs committed", n)
	}
	out, _, exit := c.run("submit", c.write("job.yaml", good), "--dry-run")
	if exit != cli.ExitOK || !strings.Contains(out, "dry run") || c.coords.count() != 0 {
		t.Errorf("dry run: exit %d, %q, %d jobs", exit, out, c.coords.count())
	}
	if _, err := os.Stat(filepath.Join(c.dir, "out")); !os.IsNotExist(err) {
		t.Error("the dry run left a folder")
	}
}

// A killed worker leaves none of its tasks behind.
func TestKilledWorkerTakesItsTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(2)
	c.serveHere()
	w := c.worker("n01", 2)
	c.ready(1)
	id := c.submit(fmt.Sprintf("name: sleep\nclass: low\nslots: 2\nmap: {input: text/*.txt, command: [sh, -c, 'echo $$ > %s/pid-$HEADROOM_INDEX; exec sleep 600']}\noutput: out\n", c.dir))
	pids := make([]int, 2)
	testkit.Eventually(t, patience, "tasks running", func() bool {
		for i := range pids {
			data, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("pid-%d", i)))
			if sscan(string(data), &pids[i]) != nil {
				return false
			}
		}
		return c.show(id).Running == 2
	})
	w.end(syscall.SIGKILL)
	for _, pid := range pids {
		testkit.Eventually(t, patience, "the task ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
	}
	testkit.Eventually(t, patience, "the tasks wait for another worker", func() bool { j := c.show(id); return j.State == "running" && j.Running == 0 })
}

// What a task has put into a session of its own outlives neither its attempt nor, after kill -9, its worker's next start.
// Its CPU time is its job's.
func TestProcessesInSessionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(1)
	c.serveHere()
	w := c.worker("n01", 1)
	c.ready(1)
	testkit.Eventually(t, patience, "what the worker can do is shown", func() bool {
		out, _, _ := c.run("list", "--workers", "-o", "json")
		return strings.Contains(out, `"trouble": "`)
	})
	if out, _, _ := c.run("list", "--workers"); !strings.Contains(out, "kill,freeze,cpu,memory") {
		testkit.NotRun(t, "no cgroup can be made here: "+out)
	}
	job := func(name, end string) (id string, pid int) {
		file := filepath.Join(c.dir, "pid-"+name)
		id = c.submit(fmt.Sprintf("name: %s\nclass: low\nslots: 1\nmap: {tasks: 1, command: [sh, -c, 'setsid -f sh -c \"echo \\$\\$ > %s; while :; do :; done\" </dev/null >/dev/null 2>&1; %s']}\noutput: out\n", name, file, end))
		testkit.Eventually(t, patience, "the process runs", func() bool {
			data, _ := os.ReadFile(file)
			return sscan(string(data), &pid) == nil && pid > 0
		})
		return id, pid
	}
	ended := func(pid int) func() bool {
		return func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) }
	}
	id, pid := job("done", "sleep 2")
	testkit.Eventually(t, patience, "CPU time of a running task", func() bool { return c.show(id).CPUS > 0.1 })
	c.ends(id, "done")
	if !ended(pid)() {
		t.Error("a process outlives its attempt")
	}
	_, pid = job("killed", "exec sleep 600")
	w.end(syscall.SIGKILL)
	if ended(pid)() {
		t.Fatal("the process ended by itself")
	}
	w = c.worker("n01", 1)
	testkit.Eventually(t, patience, "the next worker has ended the process", ended(pid))
	w.end(syscall.SIGTERM)
}

func TestCoordinatorsUnreachable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	dead := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	config := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	c.write("scheduler.yaml", strings.Replace(string(config), c.coords.addresses[0], dead.Addr().String(), 1))
	_ = dead.Close()
	c.texts(1)
	job := c.write("job.yaml", wordsJob(1))
	if _, errs, exit := c.run("submit", job); exit != cli.ExitUnreachable || !strings.Contains(errs, "cannot reach "+c.address) {
		t.Errorf("no scheduler: exit %d, %s", exit, errs)
	}
	c.serveHere()
	for _, args := range [][]string{{"submit", job}, {"list"}, {"show", "x"}, {"cancel", "x"}} {
		if _, errs, exit := c.run(args...); exit != cli.ExitUnreachable || !strings.Contains(errs, "has not yet read its jobs") || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%v: exit %d, %s", args, exit, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "out")); !os.IsNotExist(err) {
		t.Error("the refused job left a folder")
	}
}

func TestUnknownJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.serveHere()
	c.ready(0)
	for _, args := range [][]string{{"show", "words-1"}, {"cancel", "words-1"}} {
		if _, errs, exit := c.run(args...); exit != cli.ExitUsage || errs != "error: no such job: \"words-1\"\nhint: list jobs with scheduler job list\n" {
			t.Errorf("%v: exit %d, %s", args, exit, errs)
		}
	}
	out, _, exit := c.run("list", "-o", "json")
	var answer struct {
		Kind, API string
		Items     []jsonJob
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || exit != 0 || answer.Kind != "JobList" || answer.API != "v1" || answer.Items == nil {
		t.Errorf("list: exit %d, %v, %s", exit, err, out)
	}
}
