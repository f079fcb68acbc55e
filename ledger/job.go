package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// acceptJob stores a job. The same job again is no error: a scheduler may ask
// twice when the first answer was lost.
func (t *tx) acceptJob(c Command, j Job) error {
	switch {
	case j.ID == "" || j.State != JobAccepted:
		return fmt.Errorf("job %q: it needs an id and starts as accepted: %w", j.ID, ErrJob)
	case len(j.Spec) > MaxJobSpec:
		return fmt.Errorf("job %q: its file has %d bytes, at most %d are taken: %w", j.ID, len(j.Spec), MaxJobSpec, ErrJob)
	}
	if old, ok := t.Jobs[j.ID]; ok {
		if bytes.Equal(old.Spec, j.Spec) {
			return nil
		}
		return fmt.Errorf("job %q exists with another file: %w", j.ID, ErrJob)
	}
	if t.Rules >= 2 && len(t.Jobs) >= maxJobs+keptJobs {
		return fmt.Errorf("job %q: %d jobs: %w", j.ID, len(t.Jobs), ErrFull)
	}
	put(t, t.Jobs, j.ID, j)
	t.record(c, fmt.Sprintf("job %s accepted, class %s", j.ID, j.Class))
	t.pruneJobs()
	return nil
}

func (t *tx) finishJob(c Command, f *FinishJob) error {
	j, ok := t.Jobs[f.ID]
	switch {
	case !ok:
		return fmt.Errorf("job %q: %w", f.ID, ErrUnknownJob)
	case f.State != JobDone && f.State != JobFailed && f.State != JobCancelled:
		return fmt.Errorf("job %q: %q is no end: %w", f.ID, f.State, ErrJob)
	case j.State == f.State:
		return nil
	case j.State != JobAccepted:
		return fmt.Errorf("job %q ended as %s before: %w", f.ID, j.State, ErrJob)
	}
	j.State, j.Outcome, j.Tasks, j.Done, j.Runtime = f.State, f.Outcome, f.Tasks, f.Done, f.Runtime
	put(t, t.Jobs, f.ID, j)
	t.record(c, fmt.Sprintf("job %s %s, %d of %d tasks", j.ID, j.State, j.Done, j.Tasks))
	return nil
}

// pruneJobs forgets the oldest ended jobs beyond keptJobs.
func (t *tx) pruneJobs() {
	var ended []Job
	for _, j := range t.Jobs {
		if j.State != JobAccepted {
			ended = append(ended, j)
		}
	}
	if len(ended) <= keptJobs {
		return
	}
	slices.SortFunc(ended, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range ended[:len(ended)-keptJobs] {
		drop(t, t.Jobs, j.ID)
	}
}
