package view

import (
	"cmp"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/internal/each"
	"headroom/ledger"
)

// Job is a job as the log has it.
func Job(j ledger.Job) *headroomv1.Job {
	m := &headroomv1.Job{
		Id: j.ID, Name: j.Name, Class: j.Class, Spec: j.Spec, SubmittedUs: j.Submitted, Outcome: j.Outcome, State: headroomv1.JobState_JOB_STATE_QUEUED,
		Engine: cmp.Or(j.Engine, arbitration.EngineLocal), Queue: j.Queue, Floor: cmp.Or(j.Floor, 1), Dropped: TaskRanges(j.Dropped), Rank: j.Rank,
		Deflation: Deflation(j.Deflation), Energy: JobEnergy(j.Energy), Admission: Admission(j.Admission), Scaling: Scaling(j.Scaling), Run: jobRun(j.Run),
	}
	if x := j.Inputs; x != nil {
		m.Inputs = &headroomv1.JobInputs{Tasks: x.Tasks, Digest: x.Digest}
	}
	if j.Deadline > 0 {
		m.DeadlineS = new(j.Deadline.Seconds())
	}
	if j.Uncapped > 0 {
		m.UncappedS = new(j.Uncapped.Seconds())
	}
	if x := j.Stop; x != nil {
		m.Stop = &headroomv1.EarlyStop{Tasks: x.Tasks, MinTasks: x.MinTasks, Reason: x.Reason, AtUs: x.At}
	}
	switch j.State {
	case ledger.JobDone:
		m.State = headroomv1.JobState_JOB_STATE_DONE
	case ledger.JobFailed:
		m.State = headroomv1.JobState_JOB_STATE_FAILED
	case ledger.JobCancelled:
		m.State = headroomv1.JobState_JOB_STATE_CANCELLED
	case ledger.JobAccepted:
		return m
	}
	runtime := j.Runtime.Seconds()
	m.Progress = &headroomv1.JobProgress{Id: j.ID, State: m.State, Tasks: j.Tasks, Done: j.Done, RuntimeS: &runtime, Dropped: droppedAtEnd(j)}
	m.End = JobEnd(j)
	m.Progress.WastedS = m.GetEnd().GetWastedS()
	return m
}

// JobEnd is how a job went and whether it kept its deadline, nil until it has ended.
func JobEnd(j ledger.Job) *headroomv1.JobEnd {
	if j.State == ledger.JobAccepted {
		return nil
	}
	v, x := j.Verdict(), &headroomv1.JobEnd{EndedUs: j.Ended}
	if c := j.Course; c != nil {
		x = &headroomv1.JobEnd{
			BeganUs: c.Began, EndedUs: c.Ended, WastedS: c.Wasted.Seconds(), WorkS: c.Work.Seconds(), Slots: c.Slots, LongestS: c.Longest.Seconds(), InputBytes: c.Input,
		}
	}
	x.Verdict, x.Why = v.Word, v.Why
	if v.Late > 0 {
		x.LateS = new(v.Late.Seconds())
	}
	return x
}

// jobRun is the latest run of a job, nil before the first.
func jobRun(r *ledger.JobRun) *headroomv1.JobRun {
	if r == nil {
		return nil
	}
	return &headroomv1.JobRun{
		Number: r.Number, BeganUs: r.Began, StartedUs: r.Started, Theta: r.Theta, Seed: r.Seed, Decided: r.Decided, Why: r.Why,
		Sprint: r.Sprint, SprintAfterUs: r.SprintAfter.Microseconds(), Stopping: r.Stopping, Over: r.Over, Dropped: r.Dropped,
	}
}

// JobEnergy is what was drawn for a job, nil while unknown.
func JobEnergy(e *ledger.JobEnergy) *headroomv1.JobEnergy {
	if e == nil {
		return nil
	}
	return &headroomv1.JobEnergy{
		Uj: int64(e.Energy), MeasuredS: e.Measured.Seconds(), UnknownS: e.Unknown.Seconds(), SinceUs: e.Since, From: e.From,
	}
}

// Scaling is how a job's speed follows its containers, nil while unknown.
func Scaling(s *ledger.Scaling) *headroomv1.Scaling {
	if s == nil {
		return nil
	}
	out := &headroomv1.Scaling{Runs: s.Runs, Type: s.Type, Error: s.Error, Exploring: s.Exploring}
	for _, p := range s.Points {
		out.Points = append(out.Points, &headroomv1.ScalingPoint{Containers: p.Containers, Speedup: p.Speedup})
	}
	return out
}

// Admission is what was decided about a job's deadline at the door, nil where that was not asked.
func Admission(a *ledger.Admission) *headroomv1.Admission {
	if a == nil {
		return nil
	}
	out := &headroomv1.Admission{
		Decision: a.Decision, Slots: a.Slots, Need: a.Need, Free: a.Free, WorkS: a.Work, Confidence: a.Confidence, Samples: a.Samples, Reason: a.Reason,
	}
	if a.Until > 0 {
		out.UntilUs = &a.Until
	}
	if a.Finish > 0 {
		out.FinishUs = &a.Finish
	}
	return out
}

// TaskRanges are ranges of tasks.
func TaskRanges(ranges []ledger.TaskRange) []*headroomv1.TaskRange {
	return each.List(ranges, func(r ledger.TaskRange) *headroomv1.TaskRange {
		return &headroomv1.TaskRange{First: r.First, Last: r.Last}
	})
}

// droppedAtEnd is how many tasks an ended job did without. One that is done has done each of its tasks or dropped it; the
// log lists only those that an early stop dropped, not those that a drop ratio has left out.
func droppedAtEnd(j ledger.Job) uint32 {
	if j.State == ledger.JobDone && j.Done < j.Tasks {
		return max(j.DroppedTasks(), j.Tasks-j.Done)
	}
	return j.DroppedTasks()
}

// Deflation is a drop ratio, nil for none.
func Deflation(x *ledger.Deflation) *headroomv1.Deflation {
	if x == nil {
		return nil
	}
	return &headroomv1.Deflation{Theta: x.Theta, Seed: x.Seed, Reason: x.Reason, AtUs: x.At}
}
