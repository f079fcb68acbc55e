package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"headroom/units"
)

// EarlyStop is the decision that map tasks of a job that have not begun may be dropped.
type EarlyStop struct {
	// Tasks are the job's map tasks, MinTasks the least that must not be dropped.
	Tasks    uint32 `json:"tasks"`
	MinTasks uint32 `json:"min_tasks"`
	// Reason in words, and At, when it was committed, microseconds since the Unix epoch.
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at_us,omitempty"`
}

// TaskRange is the map tasks First to Last, both included, counted from 0.
type TaskRange struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// maxUncapped bounds what a job may be said to take: ten years are no job.
const maxUncapped = 10 * 365 * 24 * time.Hour

// LeastTasks is how many of a job's map tasks must be left at the end: its floor,
// rounded up to whole tasks, and one where there are any.
func LeastTasks(floor float64, tasks uint32) uint32 {
	return uint32(units.Ratio(floor).Least(int(tasks)))
}

// BelowFloor reports whether the job says that it is done on fewer tasks than the floor that it was promised.
func (j Job) BelowFloor() bool {
	return j.State == JobDone && j.Floor > 0 && j.Done < LeastTasks(j.Floor, j.Tasks)
}

// sound reports whether the numbers can be those of a measurement; unknown can.
func (e *JobEnergy) sound() bool {
	return e == nil || e.Energy >= 0 && e.Measured >= 0 && e.Unknown >= 0 && len(e.From) <= maxSources
}

// maxSources bounds by what nodes measure: there are two.
const maxSources = 8

// promise checks what is said of the job's floor, deadline, engine and queue.
func (j Job) promise() error {
	switch {
	case !(j.Floor >= 0 && j.Floor <= 1):
		return fmt.Errorf("job %q: its floor is %v of its tasks; it must be from 0 to 1: %w", j.ID, j.Floor, ErrJob)
	case j.Deadline < 0 || j.Deadline > maxUncapped:
		return fmt.Errorf("job %q: its deadline is %v after it was submitted; it must be from 0 s, for none, to %v: %w", j.ID, j.Deadline, maxUncapped, ErrJob)
	case len(j.Engine) > maxName || len(j.Queue) > maxName:
		return fmt.Errorf("job %q: the names of its engine and queue have %d and %d bytes, at most %d are taken: %w",
			j.ID, len(j.Engine), len(j.Queue), maxName, ErrJob)
	}
	return cmp.Or(j.Admission.Check(j.ID), j.Scaling.Check(j.ID), j.Inputs.sound(j.ID))
}

// sound checks what the log has decided of a job that no Apply has shown to be right.
func (j Job) sound() error {
	if err := j.promise(); err != nil {
		return err
	}
	if !j.Energy.sound() {
		return fmt.Errorf("%w: job %q: its energy is %+v", ErrSnapshot, j.ID, *j.Energy)
	}
	if !j.Course.sound() {
		return fmt.Errorf("%w: job %q: its course is %+v", ErrSnapshot, j.ID, *j.Course)
	}
	if j.Deflation != nil {
		if err := j.bears(j.Deflation.Theta); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	if j.Stop != nil {
		if err := j.allows(*j.Stop); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	if j.Run != nil {
		if err := cmp.Or(j.runs(), j.Run.bounded(j.ID)); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	if d := j.Deflation; d != nil && d.Of > 0 && (!j.named() || j.Stop != nil && j.Stop.Tasks != d.Of) {
		return fmt.Errorf("%w: job %q: its drop ratio is of %d tasks", ErrSnapshot, j.ID, d.Of)
	}
	if len(j.Dropped) == 0 {
		return nil
	}
	all, err := j.with(nil)
	if err != nil || !slices.Equal(all, j.Dropped) {
		return fmt.Errorf("%w: job %q: dropped are %v: %w", ErrSnapshot, j.ID, j.Dropped, cmp.Or(err, ErrStop))
	}
	return nil
}

// acceptJob stores a job. The same job again is no error: a scheduler may ask
// twice when the first answer was lost.
func (t *tx) acceptJob(c Command, j Job) error {
	switch {
	case j.ID == "" || j.State != JobAccepted:
		return fmt.Errorf("job %q: it needs an id and starts as accepted: %w", j.ID, ErrJob)
	case len(j.Spec) > MaxJobSpec:
		return fmt.Errorf("job %q: its file has %d bytes, at most %d are taken: %w", j.ID, len(j.Spec), MaxJobSpec, ErrJob)
	case j.Uncapped != 0 || j.Stop != nil || j.Dropped != nil || j.Ended != 0 || j.Deflation != nil || j.Energy != nil || j.Run != nil || j.Course != nil:
		return fmt.Errorf("job %q: a new job must have no early stop, drops or result: %w", j.ID, ErrJob)
	}
	if err := j.promise(); err != nil {
		return err
	}
	if old, ok := t.Jobs[j.ID]; ok {
		if err := old.again(j); err != nil {
			return err
		}
		if err := t.readmit(c, old, j.Admission); err != nil {
			return err
		}
		t.rescale(c, j.ID, j.Scaling)
		return nil
	}
	if len(t.Jobs) >= maxJobs+keptJobs {
		return fmt.Errorf("job %q: %d jobs: %w", j.ID, len(t.Jobs), ErrFull)
	}
	put(t, t.Jobs, j.ID, j)
	what := fmt.Sprintf("job %s accepted, class %s", j.ID, j.Class)
	if j.Admission != nil {
		what += ", " + j.Admission.words()
	}
	if j.Scaling != nil {
		what += ", " + j.Scaling.words()
	}
	t.record(c, what)
	t.pruneJobs()
	return nil
}

// again refuses another job under the id of this one. What an older scheduler did not say may be said now; it changes nothing
// but the admission and the scaling curve.
func (j Job) again(x Job) error {
	switch {
	case !bytes.Equal(j.Spec, x.Spec):
		return fmt.Errorf("job %q exists with another file: %w", j.ID, ErrJob)
	case j.Floor != 0 && j.Floor != x.Floor:
		return fmt.Errorf("job %q was promised %v of its tasks, not %v: %w", j.ID, j.Floor, x.Floor, ErrJob)
	case j.Engine != "" && j.Engine != x.Engine:
		return fmt.Errorf("job %q is of engine %q, not of %q: %w", j.ID, j.Engine, x.Engine, ErrJob)
	case j.Inputs != nil && x.Inputs != nil && (j.Inputs.Tasks != x.Inputs.Tasks || !bytes.Equal(j.Inputs.Digest, x.Inputs.Digest)):
		return fmt.Errorf("job %q was accepted with other inputs: %w", j.ID, ErrJob)
	}
	return nil
}

// finishJob stores how a job ended. What has happened is taken as it is, below the floor too, and said.
func (t *tx) finishJob(c Command, f *FinishJob) error {
	j, ok := t.Jobs[f.ID]
	switch {
	case !ok:
		return fmt.Errorf("job %q: %w", f.ID, ErrUnknownJob)
	case f.State != JobDone && f.State != JobFailed && f.State != JobCancelled:
		return fmt.Errorf("job %q: %q is not a final state: %w", f.ID, f.State, ErrJob)
	case j.State == f.State:
		return nil
	case j.State != JobAccepted:
		return fmt.Errorf("job %q has already ended as %s: %w", f.ID, j.State, ErrJob)
	case !f.Energy.sound():
		return fmt.Errorf("job %q: its energy is %+v; measured values cannot be negative: %w", f.ID, *f.Energy, ErrJob)
	case f.Course != nil && t.Rules < RulesOfCourses:
		return fmt.Errorf("job %q: its course needs rules %d, %d are in force: %w", f.ID, RulesOfCourses, t.Rules, ErrRules)
	case !f.Course.sound():
		return fmt.Errorf("job %q: its course is %+v; it must begin before it ends, and no time can be negative: %w", f.ID, *f.Course, ErrJob)
	}
	j.State, j.Outcome, j.Tasks, j.Done, j.Runtime, j.Energy, j.Course = f.State, f.Outcome, f.Tasks, f.Done, f.Runtime, f.Energy, f.Course
	j.Ended = c.At
	if j.Run != nil { // the driver of a cancelled job's run may have to be ended
		run := *j.Run
		run.Dropped, j.Run = nil, &run
	}
	put(t, t.Jobs, f.ID, j)
	what := fmt.Sprintf("job %s %s, %d of %d tasks", j.ID, j.State, j.Done, j.Tasks)
	if j.BelowFloor() {
		what += fmt.Sprintf(", below its quality floor of %d", LeastTasks(j.Floor, j.Tasks))
	}
	switch v := j.Verdict(); {
	case t.Rules < RulesOfCourses: // older servers write another line
	case v.Late > 0:
		what += ", deadline missed by " + spent(v.Late)
	case v.Word != "":
		what += ", deadline " + v.Word
	}
	t.record(c, what)
	return nil
}

// running is an accepted job that has not ended.
func (t *tx) running(id string) (Job, error) {
	j, ok := t.Jobs[id]
	switch {
	case !ok:
		return j, fmt.Errorf("job %q: %w", id, ErrUnknownJob)
	case j.State != JobAccepted:
		return j, fmt.Errorf("job %q has ended as %s: %w", id, j.State, ErrJob)
	}
	return j, nil
}

// setUncapped keeps when a job would end without a cap. It counts a revision and
// writes no line into the audit: it is an estimate that is made again and again.
func (t *tx) setUncapped(x *SetUncapped) error {
	j, err := t.running(x.ID)
	switch {
	case err != nil:
		return err
	case x.Uncapped <= 0 || x.Uncapped > maxUncapped:
		return fmt.Errorf("job %q: its uncapped runtime is %v; it must be above 0 s and at most %v: %w", x.ID, x.Uncapped, maxUncapped, ErrJob)
	case x.Uncapped == j.Uncapped:
		return nil
	}
	j.Uncapped = x.Uncapped
	t.Revision++
	put(t, t.Jobs, j.ID, j)
	return nil
}

// stopJob puts an early stop in force, or raises what one in force leaves.
func (t *tx) stopJob(c Command, x *StopJob) error {
	j, err := t.running(x.ID)
	if err != nil {
		return err
	}
	stop := EarlyStop{Tasks: x.Tasks, MinTasks: x.MinTasks, Reason: c.Reason, At: c.At}
	if old := j.Stop; old != nil {
		switch {
		case old.Tasks == x.Tasks && old.MinTasks == x.MinTasks:
			return nil
		case old.Tasks != x.Tasks || x.MinTasks < old.MinTasks:
			return fmt.Errorf("job %q is stopped at %d of %d tasks; a later stop, at %d of %d, may only raise the first number: %w",
				j.ID, old.MinTasks, old.Tasks, x.MinTasks, x.Tasks, ErrStop)
		}
	}
	if err := cmp.Or(j.allows(stop), j.counts(x.Tasks)); err != nil {
		return err
	}
	j.Stop = &stop
	if _, err := j.with(nil); err != nil { // it has dropped some already
		return err
	}
	put(t, t.Jobs, j.ID, j)
	t.record(c, fmt.Sprintf("job %s stops at %d of %d tasks", j.ID, x.MinTasks, x.Tasks))
	return nil
}

// allows refuses a stop below the job's floor (P9).
func (j Job) allows(s EarlyStop) error {
	switch least := LeastTasks(j.Floor, s.Tasks); {
	case s.Tasks == 0 || s.MinTasks > s.Tasks:
		return fmt.Errorf("job %q: a stop at %d of %d tasks: %w", j.ID, s.MinTasks, s.Tasks, ErrStop)
	case s.MinTasks < least:
		return fmt.Errorf("job %q: a stop at %d of %d tasks, its floor is %d: %w", j.ID, s.MinTasks, s.Tasks, least, ErrFloor)
	}
	return nil
}

// dropTasks records tasks as dropped, all of them or none.
func (t *tx) dropTasks(c Command, x *DropTasks) error {
	j, known := t.Jobs[x.ID]
	switch {
	case !known:
		return fmt.Errorf("job %q: %w", x.ID, ErrUnknownJob)
	case j.Stop == nil && !(j.named() && j.Deflation != nil && x.Of > 0):
		return fmt.Errorf("job %q: %w", x.ID, ErrNoStop)
	}
	if j.named() && j.Deflation != nil && x.Of > 0 {
		if err := j.counts(x.Of); err != nil {
			return err
		}
		d := *j.Deflation
		d.Of = x.Of
		j.Deflation = &d
	}
	all, err := j.with(x.Ranges)
	if err != nil || slices.Equal(all, j.Dropped) {
		return err
	}
	if _, err := t.running(x.ID); err != nil { // what is recorded may be asked again after the end
		return err
	}
	more := countTasks(all) - countTasks(j.Dropped)
	j.Dropped = all
	put(t, t.Jobs, j.ID, j)
	of, _, _ := j.room()
	t.record(c, fmt.Sprintf("job %s drops %d tasks, %d of %d are left", j.ID, more, of-uint32(countTasks(all)), of))
	return nil
}

// namedEngine is the engine whose dropped tasks are recorded one by one under a drop ratio too: it chooses them as late
// as it can. What the ratio of another engine's job leaves out follows from the seed.
const namedEngine = "yarn"

func (j Job) named() bool { return j.Engine == namedEngine }

// counts refuses another number of map tasks than the job was said to have.
func (j Job) counts(tasks uint32) error {
	switch d := j.Deflation; {
	case j.Stop != nil && j.Stop.Tasks != tasks:
		return fmt.Errorf("job %q has %d map tasks by its early stop, not %d: %w", j.ID, j.Stop.Tasks, tasks, ErrStop)
	case d != nil && d.Of > 0 && d.Of != tasks:
		return fmt.Errorf("job %q has %d map tasks by its drops, not %d: %w", j.ID, d.Of, tasks, ErrStop)
	}
	return nil
}

// room returns of how many map tasks how many may be recorded as dropped, and how many its drop ratio leaves out beside
// those. Of a job whose drops are named the ratio is a bound as an early stop is one, and the lower one counts.
func (j Job) room() (of, may, beside uint32) {
	if j.Stop != nil {
		of, may = j.Stop.Tasks, j.Stop.Tasks-j.Stop.MinTasks
	}
	if d := j.Deflation; d != nil && j.named() {
		of = max(of, d.Of)
		return of, max(may, j.DeflatedTasks(of)), 0
	}
	return of, may, j.DeflatedTasks(of)
}

// with is the dropped tasks together with more, in order and merged, as far as the stop and the drop ratio in force allow them (P9).
func (j Job) with(more []TaskRange) ([]TaskRange, error) {
	if len(more) > maxRanges {
		return nil, fmt.Errorf("job %q: %d ranges of tasks, at most %d are taken: %w", j.ID, len(more), maxRanges, ErrFull)
	}
	all := slices.Concat(j.Dropped, more)
	for _, r := range all {
		if r.First > r.Last {
			return nil, fmt.Errorf("job %q: tasks %d to %d: %w", j.ID, r.First, r.Last, ErrStop)
		}
	}
	all = merged(all)
	of, may, beside := j.room()
	if n := len(all); n > 0 && all[n-1].Last >= of {
		return nil, fmt.Errorf("job %q: task %d of %d, counted from 0: %w", j.ID, all[n-1].Last, of, ErrStop)
	}
	switch gone := countTasks(all); {
	case gone > 0 && gone+uint64(beside) > uint64(may) && beside > 0:
		return nil, fmt.Errorf("job %q: %d of %d tasks would be dropped beside the %d that its drop ratio of %v leaves out, %d must be left, so %d may be in all: %w",
			j.ID, gone, of, beside, j.Deflation.Theta, of-may, may, ErrFloor)
	case gone > uint64(may):
		return nil, fmt.Errorf("job %q: %d of %d tasks would be dropped, %d must be left, so %d may be: %w",
			j.ID, gone, of, of-may, may, ErrFloor)
	case len(all) > maxRanges:
		return nil, fmt.Errorf("job %q: %d ranges of dropped tasks, at most %d are kept: %w", j.ID, len(all), maxRanges, ErrFull)
	}
	return all, nil
}

// merged are ranges in order, those that touch each other as one; nil for none.
func merged(ranges []TaskRange) []TaskRange {
	slices.SortFunc(ranges, func(a, b TaskRange) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last)) })
	var out []TaskRange
	for _, r := range ranges {
		if n := len(out); n > 0 && uint64(r.First) <= uint64(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// countTasks is how many tasks are in merged ranges.
func countTasks(ranges []TaskRange) (n uint64) {
	for _, r := range ranges {
		n += uint64(r.Last) - uint64(r.First) + 1
	}
	return n
}

// DroppedTasks is how many map tasks of the job will never run.
func (j Job) DroppedTasks() uint32 { return uint32(countTasks(j.Dropped)) }

// ContainerPolicies are the names of the policies that divide containers among
// jobs. They are part of the rules: Apply takes no other.
func ContainerPolicies() []string {
	return []string{JointPolicy, "stretch", "paper", "released", "equal", "fair"}
}

const (
	// JointPolicy weighs containers against sprints, tasks and watts. Under the other policies containers are divided
	// without a look at these.
	JointPolicy = "joint"
	// DefaultContainerPolicy divides containers where nobody has named a policy.
	DefaultContainerPolicy = JointPolicy
)

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
