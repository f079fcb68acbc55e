package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/cluster"
)

func runningJob(class string, tasks, done, running uint32) *headroomv1.Job {
	return &headroomv1.Job{
		Id: class, Class: class, State: headroomv1.JobState_JOB_STATE_RUNNING,
		Progress: &headroomv1.JobProgress{Tasks: tasks, Done: done, Running: running, RunningOn: map[string]uint32{"n01": running}},
	}
}

// A node's energy goes to the jobs by the number of their tasks there, and to
// none while it runs none.
func TestEnergyIsShared(t *testing.T) {
	t.Parallel()
	b := newBoard(w)
	b.burnt("n01", 5)
	b.setJobs([]*headroomv1.Job{runningJob(classHigh, 9, 1, 3), runningJob(classLow, 9, 1, 1)})
	b.burnt("n01", 8)
	b.burnt("n02", 100)
	if b.energy[classHigh] != 6 || b.energy[classLow] != 2 {
		t.Errorf("%v", b.energy)
	}
}

// Only a newer revision changes the budget, and a cut is noted once.
func TestBudgetFollowsRevisions(t *testing.T) {
	t.Parallel()
	b := newBoard(964 * w)
	b.begin(time.Minute)
	b.commit(5, 964*w)
	b.commit(7, 578*w)
	b.commit(7, 578*w)
	b.commit(6, 964*w) // an answer from before the cut
	if b.budget != 578*w || len(b.cuts) != 1 {
		t.Errorf("budget %v, cuts %v", b.budget, b.cuts)
	}
}

// The feeder keeps a job of each class and starts no work that would not end in time.
func TestFeederFeedsInTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name string
		jobs []*headroomv1.Job
		end  time.Duration
		rush string
		want []string
	}{
		{"nothing runs", nil, time.Minute, "", []string{classHigh, classLow}},
		{"both run", []*headroomv1.Job{runningJob(classHigh, 16, 1, 4), runningJob(classLow, 60, 1, 4)}, time.Minute, "", nil},
		{"little is left of low", []*headroomv1.Job{runningJob(classHigh, 16, 1, 4), runningJob(classLow, 32, 31, 1)}, time.Minute, "", []string{classLow}},
		{"too late", nil, 4 * time.Second, "", nil},
		{"asked for", []*headroomv1.Job{runningJob(classLow, 60, 1, 4)}, 4 * time.Second, classHigh, []string{classHigh}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &feeder{tracker: newBoard(w), work: &workload{slots: 16}}
			f.tracker.begin(c.end)
			f.rate.look(now.Add(-6*time.Second), 0)
			f.rate.look(now, 60) // 10 tasks a second
			if got := f.want(c.jobs, now, c.rush); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// A job's inputs are links to the next parts of the text, and its file names
// real programs and its class.
func TestJobFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work := &workload{dir: dir, lab: "/bin/powerlab", text: corpus{parts: []string{"/text/a", "/text/b"}}, slots: 4, passes: 3, made: map[string]int{}}
	file, spec, err := work.job(classHigh)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: top-1\nclass: high\nslots: 1\n", `"topn"`, `"--passes", "3", "{input}"`, `"mergetop"`} {
		if !strings.Contains(string(spec), want) {
			t.Errorf("no %q in\n%s", want, spec)
		}
	}
	links, err := filepath.Glob(filepath.Join(dir, "top-1.in", "*.txt"))
	if err != nil || len(links) != 4 || file != filepath.Join(dir, "top-1.yaml") {
		t.Errorf("%v, %v, %s", links, err, file)
	}
	if to, err := os.Readlink(links[3]); err != nil || to != "/text/b" {
		t.Errorf("%s, %v", to, err)
	}
	if _, spec, err = work.job(classLow); err != nil || !strings.Contains(string(spec), "name: words-1\nclass: low\nslots: 4\n") {
		t.Errorf("%v\n%s", err, spec)
	}
}

// aFleet is a fleet that writes its logs into dir.
func aFleet(t *testing.T, dir string, detach bool) *fleet {
	t.Helper()
	return testkit.Need(newFleet(dir, detach))(t)
}

// The fleet ends what it started with all that is below it, and reports a
// program that ended by itself.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := aFleet(t, t.TempDir(), false)
	family := testkit.Need(f.start("family", "/bin/sh", "-c", "sleep 60 & sleep 60"))(t)
	if _, err := f.start("short", "/bin/sh", "-c", "exit 3"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-f.ended:
		if !errors.Is(err, cluster.ErrEnded) || !strings.Contains(err.Error(), "short") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody told that a program ended")
	}
	if n := len(f.running()); n != 1 {
		t.Errorf("%d programs run", n)
	}
	f.stopAll(func(string) bool { return true })
	if err := f.close(); err != nil {
		t.Error(err)
	}
	select {
	case <-family.Done():
	default:
		t.Error("a program still runs")
	}
	select {
	case err := <-f.ended:
		t.Errorf("told of an end that was meant: %v", err)
	default:
	}
}

// A kept cluster outlives the demo, and stop.sh ends it: what was started in its
// folder, and nothing else.
func TestKeptClusterIsStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &lab{dir: dir, bin: "/bin", nodes: []string{"n01"}, servers: &cluster.Servers{}, fleet: aFleet(t, dir, true)}
	for _, name := range []string{"a", "b"} {
		if _, err := l.fleet.start(name, "/bin/sh", "-c", "sleep 9; :", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	other := aFleet(t, dir, false)
	stranger := testkit.Need(other.start("stranger", "/bin/sh", "-c", "sleep 9; :"))(t)
	var said strings.Builder
	if err := l.keep(&said); err != nil || !strings.Contains(said.String(), filepath.Join(dir, stopScript)) {
		t.Fatalf("%v: %s", err, said.String())
	}
	pids := testkit.Need(os.OpenFile(filepath.Join(dir, pidFile), os.O_APPEND|os.O_WRONLY, 0))(t)
	if _, err := fmt.Fprintln(pids, stranger.Pid()); err != nil { // as if its id had been used before
		t.Fatal(err)
	}
	testkit.Check(t, pids.Close())
	if n := len(keptPIDs(dir)); n != 2 {
		t.Errorf("%d processes are kept", n)
	}
	if err := clearOut(dir, nil); err == nil {
		t.Error("the folder of a running cluster was cleared")
	}
	for _, p := range l.fleet.running() {
		p.meant.Store(true)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, stopScript)).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, p := range l.fleet.programs {
		<-p.Done()
	}
	if len(other.running()) != 1 || len(keptPIDs(dir)) != 0 {
		t.Errorf("%d strangers left, %v kept", len(other.running()), keptPIDs(dir))
	}
	stranger.kill()
	if err := errors.Join(other.close(), l.fleet.close()); err != nil {
		t.Error(err)
	}
}

// Flags are checked before anything is touched; another's folder is never replaced.
func TestBadInput(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	testkit.WriteFile(t, filepath.Join(foreign, "thesis.txt"), "mine")
	for _, c := range []struct {
		name string
		args []string
		exit int
	}{
		{"too short", []string{"--for", "5s"}, cli.ExitUsage},
		{"no unit", []string{"--for", "60"}, cli.ExitUsage},
		{"no nodes", []string{"--nodes", "0"}, cli.ExitUsage},
		{"unknown throttle", []string{"--throttle", "ropes"}, cli.ExitUsage},
		{"long folder", []string{"--out", "/tmp/" + strings.Repeat("x", 90)}, cli.ExitUsage},
		{"no programs", []string{"--bin", foreign}, cli.ExitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			if got := cli.Run(t.Context(), NewCommand(), c.args, &out, &errs); got != c.exit || strings.Count(errs.String(), "\n") > 2 {
				t.Errorf("exit %d, want %d: %s", got, c.exit, errs.String())
			}
		})
	}
	err := prepareOut(foreign)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitConflict {
		t.Errorf("a foreign folder was taken: %v", err)
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.txt")); err != nil {
		t.Error(err)
	}
}

// The folder of an earlier demo is replaced, unless that demo still runs.
func TestOutIsReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	for range 2 {
		testkit.Check(t, prepareOut(dir))
		testkit.Check(t, os.WriteFile(filepath.Join(dir, "power.csv"), nil, 0o600))
	}
	testkit.Check(t, prepareOut(dir))
	if _, err := os.Stat(filepath.Join(dir, "power.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old output is still there: %v", err)
	}
}

// Waiting ends with the context.
func TestAwaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if await(ctx, time.Hour, func() bool { return false }) || pause.For(ctx, time.Hour) {
		t.Error("waited without a context")
	}
}
