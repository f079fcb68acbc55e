package command

// Jobs with a deadline, with real processes: a straggler is copied, the first copy wins and the other is killed; at its
// deadline a job ends with what is done.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"headroom/internal/testkit"
)

// stuck is the text whose task hangs: the first attempt, or all.
const stuck = 5

// stuckJob counts words; the task of one text hangs in a child process. Attempts write the nodes that they run on into
// ran-INDEX, and the hanging children their pids into pid-NODE. Beside the first attempt others wait for the file go.
func (c *cluster) stuckJob(more string, always bool) string {
	c.t.Helper()
	testkit.Check(c.t, os.RemoveAll(filepath.Join(c.dir, "seen")))
	testkit.Check(c.t, os.Mkdir(filepath.Join(c.dir, "seen"), 0o700))
	first := "mkdir first 2>/dev/null"
	if always {
		first = "true"
	}
	script := strings.Join([]string{
		"cd " + filepath.Join(c.dir, "seen"), "echo $HEADROOM_NODE >> ran-$HEADROOM_INDEX",
		fmt.Sprintf("if [ $HEADROOM_INDEX = %d ]", stuck),
		"then if " + first, "then sleep 600 & echo $! > .pid", "mv .pid pid-$HEADROOM_NODE", "wait", "fi",
		"while [ ! -e go ]", "do sleep 0.05", "done", "fi", `exec "$0" app wordcount "$1"`,
	}, "; ")
	return strings.Replace(wordsJob(1), "["+os.Args[0]+", app, wordcount, \"--passes=1\"",
		"[sh, -c, '"+script+"', "+os.Args[0], 1) + more
}

func (c *cluster) seen(name string) string {
	data, err := os.ReadFile(filepath.Join(c.dir, "seen", name))
	if err != nil {
		return ""
	}
	return string(data)
}

// copied waits until a copy of the task that hangs runs, and returns the node of the original.
func (c *cluster) copied(id string) (original string) {
	c.t.Helper()
	ran := "ran-" + fmt.Sprint(stuck)
	testkit.Eventually(c.t, patience, "a copy of the straggler", func() bool { return strings.Count(c.seen(ran), "\n") == 2 })
	testkit.Eventually(c.t, patience, "the copy in the progress report", func() bool {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		p := c.coords.progress[id]
		return p.GetCopies() == 1 && p.GetContainers() == p.GetRunning()+1
	})
	nodes := strings.Fields(c.seen(ran))
	if nodes[0] == nodes[1] {
		c.t.Errorf("the copy runs beside the original on %s", nodes[0])
	}
	return nodes[0]
}

// gone waits until a hanging process has ended.
func (c *cluster) gone(node string) {
	c.t.Helper()
	var pid int
	if err := sscan(c.seen("pid-"+node), &pid); err != nil {
		c.t.Fatalf("pid on %s: %v", node, err)
	}
	testkit.Eventually(c.t, patience, "the loser's child killed", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
}

func (c *cluster) letGo() {
	c.t.Helper()
	testkit.WriteFile(c.t, filepath.Join(c.dir, "seen", "go"), "")
}

// tidy checks that a job has left nothing unfinished, and the outputs of its tasks. A task may end while it is dropped.
func (c *cluster) tidy(id string, outputs int) {
	c.t.Helper()
	left, _ := filepath.Glob(filepath.Join(c.dir, "out", id, ".*"))
	made, _ := filepath.Glob(filepath.Join(c.dir, "out", id, "map-*"))
	if len(left) > 0 || len(made) < outputs {
		c.t.Errorf("%d outputs, want at least %d; left unfinished: %v", len(made), outputs, left)
	}
}

// stragglerIsCopied runs a job whose straggler hangs for ever: a copy of it ends the job.
func (c *cluster) stragglerIsCopied(want string) {
	c.t.Helper()
	id := c.submit(c.stuckJob("deadline: 10m\n", false))
	original := c.copied(id)
	c.letGo()
	j := c.ends(id, "done")
	if j.Outcome != "10 of 10 tasks done" || c.result() != want {
		c.t.Errorf("ended as %+v; the result is right: %v", j, c.result() == want)
	}
	c.gone(original)
	c.tidy(id, 10)
}

// deadlineEndsJob runs a job whose straggler and its copies hang for ever: at the deadline it ends with what is done.
func (c *cluster) deadlineEndsJob() {
	c.t.Helper()
	id := c.submit(c.stuckJob("deadline: 5s\nmin_tasks: 50%\n", true))
	j := c.ends(id, "done")
	dropped := c.dropped(id)
	if j.Done < 5 || int(j.Done)+len(dropped) != 10 || !slices.Contains(dropped, stuck) || *j.RuntimeS < 3 {
		c.t.Errorf("dropped %v, ended as %+v", dropped, j)
	}
	if want := fmt.Sprintf("%d of 10 tasks done, %d dropped (at least 5 required), error %d %%", j.Done, len(dropped), 10*len(dropped)); j.Outcome != want {
		c.t.Errorf("outcome %q, want %q", j.Outcome, want)
	}
	if got, want := c.result(), c.counted(dropped); got != want {
		c.t.Error("the result is not that of the tasks that are done")
	}
	for node := range strings.FieldsSeq(c.seen(fmt.Sprint("ran-", stuck))) {
		c.gone(node)
	}
	c.tidy(id, int(j.Done))
}

// cappedNodeIsCopied runs a job whose tasks hang on n01, which is capped: each that began there is copied on n02, and none
// that began on n02 is copied on n01.
func (c *cluster) cappedNodeIsCopied() {
	c.t.Helper()
	c.worker("n02", 2)
	c.ready(2)
	testkit.Check(c.t, os.Mkdir(filepath.Join(c.dir, "seen"), 0o700))
	script := "echo $HEADROOM_NODE >> " + filepath.Join(c.dir, "seen", "ran-$HEADROOM_INDEX") + "; if [ $HEADROOM_NODE = n01 ]; then sleep 600; fi; sleep 0.1"
	id := c.submit("name: capped\nclass: high\nslots: 4\ndeadline: 10m\nmap: {input: text/0*.txt, command: [sh, -c, '" + script + "']}\noutput: out\n")
	if j := c.ends(id, "done"); j.Outcome != "10 of 10 tasks done" {
		c.t.Errorf("ended as %+v", j)
	}
	copied := 0
	for i := range 10 {
		switch nodes := strings.Fields(c.seen(fmt.Sprint("ran-", i))); {
		case slices.Equal(nodes, []string{"n01", "n02"}):
			copied++
		case !slices.Equal(nodes, []string{"n02"}):
			c.t.Errorf("task %d ran on %q", i, nodes)
		}
	}
	if copied == 0 {
		c.t.Error("no task of the capped node was copied")
	}
	c.tidy(id, 10)
}

// errorEndsJob runs a job whose straggler and its copies hang for ever, and that may do without one task in five: it ends
// once eight are done.
func (c *cluster) errorEndsJob() {
	c.t.Helper()
	id := c.submit(c.stuckJob("error: 20%\n", true))
	j := c.ends(id, "done")
	dropped := c.dropped(id)
	if j.Outcome != "8 of 10 tasks done, 2 dropped (at least 8 required), error 20 %" || len(dropped) != 2 || !slices.Contains(dropped, stuck) {
		c.t.Errorf("dropped %v, ended as %+v", dropped, j)
	}
	if c.result() != c.counted(dropped) {
		c.t.Error("the result is not that of the tasks that are done")
	}
	for node := range strings.FieldsSeq(c.seen(fmt.Sprint("ran-", stuck))) {
		if c.seen("pid-"+node) != "" { // it had come so far
			c.gone(node)
		}
	}
}

// dropped are the tasks that the job has given up, as recorded in its folder.
func (c *cluster) dropped(id string) (indexes []int) {
	c.t.Helper()
	file := testkit.Need(os.Open(filepath.Join(c.dir, "out", id, "dropped")))(c.t)
	defer file.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var d struct{ Index int }
		testkit.Check(c.t, json.Unmarshal(lines.Bytes(), &d))
		indexes = append(indexes, d.Index)
	}
	return indexes
}

// counted is what wordcount over the texts prints, without those of some tasks.
func (c *cluster) counted(without []int) string {
	c.t.Helper()
	names, _ := filepath.Glob(filepath.Join(c.dir, "text", "*.txt"))
	var kept []string
	for i, name := range names {
		if !slices.Contains(without, i) {
			kept = append(kept, name)
		}
	}
	var out bytes.Buffer
	testkit.Check(c.t, words(append([]string{"wordcount"}, kept...), &out))
	return out.String()
}

// copiesOutliveScheduler kills the scheduler while a copy runs: the next one takes over both attempts.
func (c *cluster) copiesOutliveScheduler(s *proc, want string) {
	c.t.Helper()
	id := c.submit(c.stuckJob("deadline: 10m\n", false))
	original := c.copied(id)
	s.end(syscall.SIGKILL)
	c.scheduler()
	testkit.Eventually(c.t, patience, "both attempts taken over", func() bool { j := c.show(id); return j.Running == 1 && len(j.RunningOn) == 2 })
	c.letGo()
	j := c.ends(id, "done")
	if got := strings.Count(c.seen(fmt.Sprint("ran-", stuck)), "\n"); got != 2 || j.Done != j.Tasks || c.result() != want {
		c.t.Errorf("%d attempts, ended as %+v; the result is right: %v", got, j, c.result() == want)
	}
	c.gone(original)
	c.tidy(id, int(j.Tasks))
}

// copyOutlivesWorker kills the worker of the original: the copy ends the job.
func (c *cluster) copyOutlivesWorker(workers map[string]*proc, want string) {
	c.t.Helper()
	id := c.submit(c.stuckJob("deadline: 10m\n", false))
	workers[c.copied(id)].end(syscall.SIGKILL)
	c.letGo()
	j := c.ends(id, "done")
	if got := strings.Count(c.seen(fmt.Sprint("ran-", stuck)), "\n"); got != 2 || c.result() != want {
		c.t.Errorf("%d attempts, ended as %+v; the result is right: %v", got, j, c.result() == want)
	}
	c.tidy(id, int(j.Tasks))
}
