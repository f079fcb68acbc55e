package ledger

import (
	"fmt"

	"headroom/units"
)

// Deflation is the drop ratio that a job runs with. Which of its tasks run follows from
// it and the seed alone, so that reruns, copies and re-attempts leave out the same ones;
// of an engine that chooses late (YARN) it is what Job.Dropped records.
type Deflation struct {
	// Theta is the ratio, 0 to 1: of n tasks ceil(n (1 - Theta)) run.
	Theta float64 `json:"theta"`
	Seed  uint64  `json:"seed"`
	// Of is how many map tasks the job has, where its dropped tasks are recorded one by one; 0 before the first.
	Of uint32 `json:"of,omitempty"`
	// Reason in words, and At, when it was committed, microseconds since the Unix epoch.
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at_us,omitempty"`
}

// KeptTasks is how many of so many tasks run under a drop ratio: ceil(n (1 - theta)), and
// one where there are any.
func KeptTasks(theta float64, tasks uint32) uint32 {
	if !(theta > 0) {
		return tasks
	}
	return uint32(units.Ratio(1 - theta).Kept(int(tasks)))
}

// DeflatedTasks is how many of so many tasks the job's drop ratio leaves out.
func (j Job) DeflatedTasks(tasks uint32) uint32 {
	if j.Deflation == nil {
		return 0
	}
	return tasks - KeptTasks(j.Deflation.Theta, tasks)
}

// MostTheta is the highest drop ratio that a floor leaves; a floor of 0 counts as 1.
func MostTheta(floor float64) float64 {
	if floor == 0 {
		return 0
	}
	return 1 - floor
}

// bears refuses a drop ratio that would leave fewer tasks than the job's floor (P9).
func (j Job) bears(theta float64) error {
	switch most := MostTheta(j.Floor); {
	case !(theta >= 0 && theta <= 1):
		return fmt.Errorf("job %q: a drop ratio of %v; it must be from 0 to 1: %w", j.ID, theta, ErrDeflation)
	case units.Ratio(theta).Above(units.Ratio(most)):
		return fmt.Errorf("job %q: a drop ratio of %v leaves %.4g of its tasks, its floor is %.4g of them; at most %.4g may be dropped: %w",
			j.ID, theta, 1-theta, 1-most, most, ErrFloor)
	}
	return nil
}

// deflateJob puts a drop ratio in force, or raises the one in force. The seed stays for
// the job's whole life, started anew too: what was left out once is never computed.
func (t *tx) deflateJob(c Command, x *DeflateJob) error {
	j, err := t.running(x.ID)
	if err != nil {
		return err
	}
	if old := j.Deflation; old != nil {
		switch {
		case old.Theta == x.Theta && old.Seed == x.Seed:
			return nil
		case old.Seed != x.Seed:
			return fmt.Errorf("job %q: its dropped tasks are chosen by seed %d, not by %d: run it with the seed in force: %w", j.ID, old.Seed, x.Seed, ErrDeflation)
		case x.Theta < old.Theta:
			return fmt.Errorf("job %q: a drop ratio of %v is below the %v in force, which may only rise: run it with that: %w", j.ID, x.Theta, old.Theta, ErrDeflation)
		}
	}
	if err := j.bears(x.Theta); err != nil {
		return err
	}
	d := Deflation{Theta: x.Theta, Seed: x.Seed, Reason: c.Reason, At: c.At}
	if old := j.Deflation; old != nil {
		d.Of = old.Of
	}
	j.Deflation = &d
	if len(j.Dropped) > 0 {
		if _, err := j.with(nil); err != nil { // with the tasks that it has dropped already
			return err
		}
	}
	put(t, t.Jobs, j.ID, j)
	t.record(c, fmt.Sprintf("job %s runs with a drop ratio of %.4g", j.ID, x.Theta))
	return nil
}
