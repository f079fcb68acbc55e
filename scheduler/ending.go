package scheduler

import (
	"cmp"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/admission"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

// ending is the end of a job, to be committed with how it went.
type ending struct {
	dispatch.EndJob

	went *headroomv1.JobEnd
}

// went returns how an ended job went, as far as this process has seen it.
func (r *record) went(now time.Time, a dispatch.EndJob) *headroomv1.JobEnd {
	e := &headroomv1.JobEnd{
		EndedUs: now.UnixMicro(), WastedS: r.wasted.Seconds(), WorkS: a.Work.Seconds(), LongestS: a.Longest.Seconds(), InputBytes: r.inputBytes(),
		Slots: count(a.Course.Slots),
	}
	if r.started != nil && !r.started.After(now) {
		e.BeganUs = r.started.UnixMicro()
	}
	return e
}

// wentUntil is went of a job that is cancelled now.
func (v jobAndSpec) wentUntil(now time.Time) *headroomv1.JobEnd {
	e := &headroomv1.JobEnd{EndedUs: now.UnixMicro(), WorkS: v.Work.Seconds(), WastedS: (v.Wasted.Total() + v.Work + v.Busy).Seconds()}
	if v.Started {
		e.BeganUs = now.Add(-v.Runtime).UnixMicro()
	}
	return e
}

func (r *record) inputBytes() (sum int64) {
	for _, size := range r.inputs.Sizes {
		sum += max(0, size)
	}
	return sum
}

// judgedEvent is the coordinators' verdict on an ended job.
type judgedEvent struct {
	id  string
	end *headroomv1.JobEnd
}

func (e judgedEvent) apply(l *loop, _ time.Time) {
	if r := l.records[e.id]; r != nil {
		r.end = e.end
	}
}

// knownAs identifies the earlier runs of a job. For a Spark application the same arguments stand for the same input.
func knownAs(f *jobfile.File) admission.Known {
	name := f.Name
	if f.Spark != nil {
		name = strings.Join(append([]string{f.Name, f.Spark.Application}, f.Spark.Args...), "\x00")
	}
	return admission.Known{User: f.Submitter, Name: name}
}

// inputOf returns what a job reads: bytes where they are known, otherwise tasks. part is how much of it counts.
func inputOf(f *jobfile.File, bytes int64, tasks int, part float64) admission.Input {
	if f.Spark != nil {
		return admission.Input{Size: 1, Part: 1}
	}
	return admission.Input{Size: cmp.Or(bytes, int64(tasks)), Part: part}
}

// earlier returns the earlier runs of a new job.
func (l *loop) earlier(r *record) []admission.Run {
	tasks := len(r.inputs.Names)
	part := 1.0
	if tasks > 0 {
		part = float64(units.Ratio(r.floor.Fraction).Least(tasks)) / float64(tasks)
	}
	return l.admitter.earlier.Of(knownAs(r.file), inputOf(r.file, r.inputBytes(), tasks, part))
}

// pastRun is a run that ended with a result, as later jobs of its name are compared with it.
type pastRun struct {
	known admission.Known
	in    admission.Input
	run   admission.Run
}

// pastOf returns the run of an ended job; false if it was not seen from its beginning, or has no result.
func pastOf(f *jobfile.File, state dispatch.State, tasks, done int, runtime time.Duration, e *headroomv1.JobEnd) (p pastRun, ok bool) {
	if f == nil || state != dispatch.Done || e.GetSlots() == 0 || runtime <= 0 || done > tasks {
		return p, false
	}
	part := 1.0
	if tasks > 0 {
		part = float64(done) / float64(tasks)
	}
	return pastRun{knownAs(f), inputOf(f, e.GetInputBytes(), tasks, part), admission.Run{
		Slots: int(e.GetSlots()), Runtime: runtime, Work: inSeconds(e.GetWorkS()), Longest: inSeconds(e.GetLongestS()),
	}}, true
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
