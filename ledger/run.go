package ledger

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// JobInputs is what the map tasks of a job are, as it was accepted.
type JobInputs struct {
	// Tasks is their number, at least 1 and at most MaxTasks.
	Tasks uint32 `json:"tasks"`
	// Digest is that of the list of their input files: 32 bytes; empty for tasks without files.
	Digest []byte `json:"digest,omitempty"`
}

// JobRun is what a scheduler must know of the latest run of a job to go on with it, in this process or another.
type JobRun struct {
	// Number counts the runs from 1.
	Number uint32 `json:"number"`
	// Began is when the run was dispatched, and Started when the job's first task was, microseconds since the Unix epoch.
	Began   int64 `json:"began_us"`
	Started int64 `json:"started_us,omitempty"`
	// Theta is the drop ratio that it is to have, and has once it is decided; Seed chooses the dropped tasks.
	Theta   float64 `json:"theta,omitempty"`
	Seed    uint64  `json:"seed,omitempty"`
	Decided bool    `json:"decided,omitempty"`
	Why     string  `json:"why,omitempty"`
	// Sprint is whether it sprints, SprintAfter after it was dispatched.
	Sprint      bool          `json:"sprint,omitempty"`
	SprintAfter time.Duration `json:"sprint_after_ns,omitempty"`
	// Stopping names the class for which it is killed; Over is whether it has ended so, and the job waits again.
	Stopping string `json:"stopping,omitempty"`
	Over     bool   `json:"over,omitempty"`
	// Dropped is a bit for each map task that was given up, the lowest bit of the first byte for task 0.
	// Invariant: it only grows during a run, and leaves the job's floor.
	Dropped []byte `json:"dropped,omitempty"`
}

// RunJob records the latest run of a job, before that has any effect; Run.Dropped must be empty. With Drop it records
// further map tasks that the run gives up, and only the number of Run counts.
type RunJob struct {
	ID   string      `json:"id"`
	Run  JobRun      `json:"run"`
	Drop []TaskRange `json:"drop,omitempty"`
}

const (
	// MaxTasks bounds the map tasks of a job whose inputs are in the log.
	MaxTasks = 1 << 20
	// MaxDrops bounds the ranges of one command.
	MaxDrops = 4096
	// digestSize is the length of SHA-256 in bytes.
	digestSize = 32
)

// runJob records a run. The log refuses what would break the job's quality floor (P9), and a drop ratio that is not
// committed: whoever reads it after a takeover needs to trust it.
func (t *tx) runJob(c Command, x *RunJob) error {
	j, err := t.running(x.ID)
	switch {
	case err != nil:
		return err
	case t.Rules < RulesOfRuns:
		return fmt.Errorf("job %q: its run needs rules %d, %d are in force: %w", j.ID, RulesOfRuns, t.Rules, ErrRules)
	}
	run := x.Run
	if err := cmp.Or(j.follows(run), run.bounded(j.ID)); err != nil {
		return err
	}
	if len(run.Dropped) > 0 || len(x.Drop) > MaxDrops {
		return fmt.Errorf("job %q: %d ranges of tasks, at most %d are taken: %w", j.ID, len(x.Drop), MaxDrops, ErrFull)
	}
	old := j.Run
	switch {
	case len(x.Drop) > 0 && (old == nil || old.Number != run.Number || old.Over):
		return fmt.Errorf("job %q: tasks of run %d are dropped, which is not the one recorded: %w", j.ID, run.Number, ErrJob)
	case len(x.Drop) > 0:
		run = *old
	}
	if old != nil && old.Number == run.Number && !run.Over {
		run.Dropped = slices.Clone(old.Dropped)
	}
	before := run.DroppedTasks()
	if err := run.drop(j, x.Drop); err != nil {
		return err
	}
	j.Run = &run
	if err := j.runs(); err != nil {
		return err
	}
	put(t, t.Jobs, j.ID, j)
	if more := run.DroppedTasks() - before; more > 0 {
		t.record(c, fmt.Sprintf("job %s gives up %d tasks, %d of %d are left", j.ID, more, j.Inputs.Tasks-run.DroppedTasks(), j.Inputs.Tasks))
		return nil
	}
	t.Revision++
	return nil
}

// follows refuses a run that is older than the one recorded.
func (j Job) follows(run JobRun) error {
	switch old := j.Run; {
	case run.Number == 0:
		return fmt.Errorf("job %q: a run needs a number: %w", j.ID, ErrJob)
	case old == nil:
	case run.Number < old.Number, run.Number == old.Number && old.Over && !run.Over:
		return fmt.Errorf("job %q: run %d is recorded, over %t; run %d cannot follow: %w", j.ID, old.Number, old.Over, run.Number, ErrJob)
	}
	return nil
}

// bounded refuses texts that are too long.
func (r *JobRun) bounded(id string) error {
	if len(r.Why) > maxText || len(r.Stopping) > maxName {
		return fmt.Errorf("job %q: its run has texts of %d and %d bytes, at most %d and %d are taken: %w", id, len(r.Why), len(r.Stopping), maxText, maxName, ErrJob)
	}
	return nil
}

// drop marks tasks as given up.
func (r *JobRun) drop(j Job, ranges []TaskRange) error {
	for _, x := range ranges {
		if x.First > x.Last || j.Inputs == nil || x.Last >= j.Inputs.Tasks {
			return fmt.Errorf("job %q: tasks %d to %d: %w", j.ID, x.First, x.Last, ErrStop)
		}
		if len(r.Dropped) == 0 {
			r.Dropped = make([]byte, (j.Inputs.Tasks+7)/8)
		}
		for i := x.First; i <= x.Last; i++ {
			r.Dropped[i/8] |= 1 << (i % 8)
		}
	}
	return nil
}

// DroppedTasks is how many map tasks the run has given up.
func (r *JobRun) DroppedTasks() (n uint32) {
	if r == nil {
		return 0
	}
	for _, b := range r.Dropped {
		n += uint32(bits.OnesCount8(b))
	}
	return n
}

// runs checks the job's run and its inputs against its floor and its drop ratio.
func (j Job) runs() error {
	if err := j.Inputs.sound(j.ID); err != nil || j.Run == nil {
		return err
	}
	r := j.Run
	if r.Theta != 0 {
		if err := j.bears(r.Theta); err != nil {
			return err
		}
	}
	if d := j.Deflation; r.Decided && r.Theta > 0 && (d == nil || r.Theta > d.Theta || r.Seed != d.Seed) {
		return fmt.Errorf("job %q: its run has a drop ratio of %v by seed %d, which is not committed: %w", j.ID, r.Theta, r.Seed, ErrDeflation)
	}
	if len(r.Dropped) == 0 {
		return nil
	}
	if j.Inputs == nil || len(r.Dropped) != int(j.Inputs.Tasks+7)/8 {
		return fmt.Errorf("job %q: its dropped tasks take %d bytes: %w", j.ID, len(r.Dropped), ErrStop)
	}
	if of, gone := j.Inputs.Tasks, r.DroppedTasks(); gone > of || of-gone < LeastTasks(j.Floor, of) {
		return fmt.Errorf("job %q: %d of %d tasks would be dropped, %d must be left: %w", j.ID, gone, of, LeastTasks(j.Floor, of), ErrFloor)
	}
	return nil
}

// sound checks the number of tasks and the length of the digest; nil is sound.
func (x *JobInputs) sound(id string) error {
	switch {
	case x == nil:
		return nil
	case x.Tasks == 0 || x.Tasks > MaxTasks:
		return fmt.Errorf("job %q: %d tasks; it must be from 1 to %d: %w", id, x.Tasks, MaxTasks, ErrJob)
	case len(x.Digest) != 0 && len(x.Digest) != digestSize:
		return fmt.Errorf("job %q: the digest of its inputs has %d bytes instead of %d: %w", id, len(x.Digest), digestSize, ErrJob)
	}
	return nil
}
