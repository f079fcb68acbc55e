package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/testkit"
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
	b := newTracker(w)
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
	b := newTracker(964 * w)
	b.commit(5, 964*w)
	b.commit(7, 578*w)
	b.commit(7, 578*w)
	b.commit(6, 964*w) // an answer from before the cut
	if b.budget != 578*w || len(b.cuts) != 1 {
		t.Errorf("budget %v, cuts %v", b.budget, b.cuts)
	}
}

// Both classes have work at any time.
func TestWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		jobs []*headroomv1.Job
		want []string
	}{
		{"nothing runs", nil, []string{classHigh, classLow}},
		{"both run", []*headroomv1.Job{runningJob(classHigh, 16, 1, 4), runningJob(classLow, 60, 1, 4)}, nil},
		{"little is left of low", []*headroomv1.Job{runningJob(classHigh, 16, 1, 4), runningJob(classLow, 32, 31, 1)}, []string{classLow}},
		{"high has ended", []*headroomv1.Job{runningJob(classLow, 60, 1, 4), doneJob("high", classHigh)}, []string{classHigh}},
	} {
		if got := wanted(c.jobs, 16); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
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
