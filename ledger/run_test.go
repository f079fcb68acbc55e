package ledger_test

import (
	"errors"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"headroom/ledger"
)

// withRun returns a state with a job of 40 tasks, of which half must be done, whose first run is recorded.
func withRun(t testing.TB) *ledger.State {
	s := admitted(t, 800, "n01")
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted, Floor: 0.5, Inputs: &ledger.JobInputs{Tasks: 40}}})
	do(t, s, ledger.Command{RunJob: &ledger.RunJob{ID: "j", Run: ledger.JobRun{Number: 1, Began: 5}}})
	return s
}

func runs(run ledger.JobRun, drop ...ledger.TaskRange) ledger.Command {
	return ledger.Command{RunJob: &ledger.RunJob{ID: "j", Run: run, Drop: drop}}
}

// A run is recorded once and for all: the log refuses what would break the job's floor, an older run, and a drop ratio
// that nobody has committed.
func TestRunJob(t *testing.T) {
	t.Parallel()
	twenty := ledger.TaskRange{First: 0, Last: 19}
	for name, x := range map[string]struct {
		before []ledger.Command
		c      ledger.Command
		want   error
	}{
		"drops to the floor":          {c: runs(ledger.JobRun{Number: 1}, twenty)},
		"drops below the floor":       {c: runs(ledger.JobRun{Number: 1}, ledger.TaskRange{First: 0, Last: 20}), want: ledger.ErrFloor},
		"drops in two steps":          {before: []ledger.Command{runs(ledger.JobRun{Number: 1}, twenty)}, c: runs(ledger.JobRun{Number: 1}, ledger.TaskRange{First: 39, Last: 39}), want: ledger.ErrFloor},
		"the same drops again":        {before: []ledger.Command{runs(ledger.JobRun{Number: 1}, twenty)}, c: runs(ledger.JobRun{Number: 1}, twenty)},
		"drops of a run to come":      {c: runs(ledger.JobRun{Number: 2}, twenty), want: ledger.ErrJob},
		"drops of the next run":       {before: []ledger.Command{runs(ledger.JobRun{Number: 1}, twenty), runs(ledger.JobRun{Number: 2})}, c: runs(ledger.JobRun{Number: 2}, ledger.TaskRange{First: 20, Last: 39})},
		"a task that is not there":    {c: runs(ledger.JobRun{Number: 1}, ledger.TaskRange{First: 40, Last: 40}), want: ledger.ErrStop},
		"a range backwards":           {c: runs(ledger.JobRun{Number: 1}, ledger.TaskRange{First: 4, Last: 3}), want: ledger.ErrStop},
		"an older run":                {before: []ledger.Command{runs(ledger.JobRun{Number: 3})}, c: runs(ledger.JobRun{Number: 2}), want: ledger.ErrJob},
		"a run that was over":         {before: []ledger.Command{runs(ledger.JobRun{Number: 1, Over: true})}, c: runs(ledger.JobRun{Number: 1}), want: ledger.ErrJob},
		"no number":                   {c: runs(ledger.JobRun{}), want: ledger.ErrJob},
		"a ratio not yet decided":     {c: runs(ledger.JobRun{Number: 1, Theta: 0.2, Seed: 3})},
		"a ratio not committed":       {c: runs(ledger.JobRun{Number: 1, Theta: 0.2, Seed: 3, Decided: true}), want: ledger.ErrDeflation},
		"a ratio committed":           {before: []ledger.Command{{DeflateJob: &ledger.DeflateJob{ID: "j", Theta: 0.2, Seed: 3}}}, c: runs(ledger.JobRun{Number: 1, Theta: 0.2, Seed: 3, Decided: true})},
		"another seed than committed": {before: []ledger.Command{{DeflateJob: &ledger.DeflateJob{ID: "j", Theta: 0.2, Seed: 3}}}, c: runs(ledger.JobRun{Number: 1, Theta: 0.2, Seed: 4, Decided: true}), want: ledger.ErrDeflation},
		"a ratio below the floor":     {c: runs(ledger.JobRun{Number: 1, Theta: 0.6, Seed: 3}), want: ledger.ErrFloor},
		"a job that has ended":        {before: []ledger.Command{{Finish: &ledger.FinishJob{ID: "j", State: ledger.JobCancelled}}}, c: runs(ledger.JobRun{Number: 1}), want: ledger.ErrJob},
		"no such job":                 {c: ledger.Command{RunJob: &ledger.RunJob{ID: "k", Run: ledger.JobRun{Number: 1}}}, want: ledger.ErrUnknownJob},
		"drops that the caller wrote": {c: runs(ledger.JobRun{Number: 1, Dropped: []byte{1}}), want: ledger.ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withRun(t)
			for _, c := range x.before {
				do(t, s, c)
			}
			before := snapshot(t, s)
			c := x.c
			c.Epoch = s.Epoch
			if _, err := s.Apply(c); !errors.Is(err, x.want) {
				t.Fatalf("got %v, want %v", err, x.want)
			}
			if x.want != nil && snapshot(t, s) != before {
				t.Error("a refused run has changed the state")
			}
			if _, err := ledger.Restore([]byte(snapshot(t, s))); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever is asked, a run never keeps fewer tasks than the floor, and never takes back a dropped one.
func TestRunsKeepFloor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := withRun(t)
		for range rapid.IntRange(1, 20).Draw(rt, "commands") {
			old := s.Jobs["j"].Run
			run := ledger.JobRun{Number: rapid.Uint32Range(0, 3).Draw(rt, "number"), Over: rapid.IntRange(0, 9).Draw(rt, "over") == 0}
			first := rapid.Uint32Range(0, 41).Draw(rt, "first")
			c := runs(run, ledger.TaskRange{First: first, Last: first + rapid.Uint32Range(0, 9).Draw(rt, "more")})
			c.Epoch = s.Epoch
			_, err := s.Apply(c)
			now := s.Jobs["j"].Run
			if gone := now.DroppedTasks(); gone > 20 {
				rt.Fatalf("%d of 40 tasks dropped after %+v: %v", gone, c.RunJob, err)
			}
			if now.Number == old.Number && !now.Over {
				for i := range old.Dropped {
					if bits.OnesCount8(old.Dropped[i]&^now.Dropped[i]) > 0 {
						rt.Fatalf("%v became %v", old.Dropped, now.Dropped)
					}
				}
			}
		}
	})
}

// A job keeps the inputs with which it was accepted: a repeated request that has listed others is refused.
func TestInputsOfAJobStay(t *testing.T) {
	t.Parallel()
	s := withRun(t)
	again := ledger.Job{ID: "j", State: ledger.JobAccepted, Floor: 0.5, Inputs: &ledger.JobInputs{Tasks: 40}}
	do(t, s, ledger.Command{Job: &again})
	other := again
	other.Inputs = &ledger.JobInputs{Tasks: 41}
	if _, err := s.Apply(ledger.Command{Epoch: s.Epoch, Job: &other}); !errors.Is(err, ledger.ErrJob) {
		t.Errorf("other inputs: %v", err)
	}
	for name, x := range map[string]*ledger.JobInputs{"none": {}, "too many": {Tasks: ledger.MaxTasks + 1}, "half a digest": {Tasks: 4, Digest: make([]byte, 16)}} {
		if _, err := s.Apply(ledger.Command{Epoch: s.Epoch, Job: &ledger.Job{ID: "k", State: ledger.JobAccepted, Inputs: x}}); !errors.Is(err, ledger.ErrJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
