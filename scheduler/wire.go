package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

func refFromProto(r *headroomv1.TaskRef) (dispatch.Ref, error) {
	ref := dispatch.Ref{Job: r.GetJob(), Index: int(r.GetIndex()), Attempt: r.GetAttempt()}
	switch r.GetPhase() {
	case dispatch.PhaseMap.String():
		ref.Phase = dispatch.PhaseMap
	case dispatch.PhaseReduce.String():
		ref.Phase = dispatch.PhaseReduce
	default:
		return ref, fmt.Errorf("phase %q: %w", r.GetPhase(), errUnknownPhase)
	}
	return ref, nil
}

func stateToProto(s dispatch.State) headroomv1.JobState {
	return [...]headroomv1.JobState{
		dispatch.Queued: headroomv1.JobState_JOB_STATE_QUEUED, dispatch.Running: headroomv1.JobState_JOB_STATE_RUNNING,
		dispatch.Done: headroomv1.JobState_JOB_STATE_DONE, dispatch.Failed: headroomv1.JobState_JOB_STATE_FAILED,
		dispatch.Cancelled: headroomv1.JobState_JOB_STATE_CANCELLED,
	}[s]
}

func stateFromProto(s headroomv1.JobState) dispatch.State {
	switch s {
	case headroomv1.JobState_JOB_STATE_RUNNING:
		return dispatch.Running
	case headroomv1.JobState_JOB_STATE_DONE:
		return dispatch.Done
	case headroomv1.JobState_JOB_STATE_FAILED:
		return dispatch.Failed
	case headroomv1.JobState_JOB_STATE_CANCELLED:
		return dispatch.Cancelled
	case headroomv1.JobState_JOB_STATE_UNSPECIFIED, headroomv1.JobState_JOB_STATE_QUEUED:
		return dispatch.Queued
	}
	return dispatch.Queued
}

func progressToProto(v jobAndSpec) *headroomv1.JobProgress {
	p := &headroomv1.JobProgress{
		Id: v.ID, State: stateToProto(v.State), RunningOn: make(map[string]uint32, len(v.RunningOn)), CpuOn: make(map[string]float64),
		Tasks: count(v.Tasks), Done: count(v.Done), Running: count(v.Running), Dropped: count(v.Dropped),
	}
	if v.RateKnown {
		p.RatePerS = &v.Rate
	}
	if v.Started {
		p.RuntimeS = new(v.Runtime.Seconds())
	}
	for node, n := range v.RunningOn {
		p.RunningOn[node] = count(n)
	}
	for node, cpu := range v.cpu {
		if p.CpuS += cpu; v.RunningOn[node] > 0 {
			p.CpuOn[node] = cpu
		}
	}
	p.Run, p.Place, p.SprintDue = v.Run.Number, count(v.Place), v.Due
	p.Most = count(v.Slots)
	p.Copies, p.CopiesWanted, p.WastedS = count(v.Copies), count(v.CopiesWanted), max(v.Wasted.Total(), v.wasted).Seconds()
	if v.end != nil {
		p.WastedS = v.end.GetWastedS()
	}
	p.Error, p.Promised = v.bound, count(v.promised)
	if v.CopiesKnown {
		p.CopiesSaveS = new(v.CopiesSave.Seconds())
	}
	p.Pending = count(v.Tasks - v.Done - v.Dropped - v.Running)
	switch v.Engine {
	case "":
		p.Containers = count(v.Held)
	case jobfile.Pigeon: // masters hold its slots; a drop ratio affects tasks that were not handed out
	default:
		p.Containers, p.Ahead = count(cmp.Or(v.Progress.Cores, v.Progress.Executors)), true
		p.Copies = count(v.Progress.Copies)
	}
	if v.State == dispatch.Running && v.Run.Decided {
		p.Theta = &v.Run.Theta
	}
	if v.State == dispatch.Running && v.Run.Sprint {
		p.SprintAfterS = new(v.Run.SprintAfter.Seconds())
	}
	return p
}

// sharesFromProto converts shares of slots for the core.
func sharesFromProto(d *headroomv1.ShareDirective) []dispatch.Share {
	shares := make([]dispatch.Share, 0, len(d.GetJobs()))
	for _, j := range d.GetJobs() {
		s := dispatch.Share{Job: j.GetId(), Slots: int(min(j.GetContainers(), math.MaxInt32))}
		if j.Copies != nil {
			s.Copies = new(int(min(j.GetCopies(), math.MaxInt32)))
		}
		shares = append(shares, s)
	}
	return shares
}

// detailToProto returns the run as shown in listings; nil before the first run.
func detailToProto(v jobAndSpec) *headroomv1.RunDetail {
	if v.Run.Number == 0 {
		return nil
	}
	d := &headroomv1.RunDetail{
		Id: v.ID, ThetaWhy: v.Run.Why, Seed: v.Run.Seed, Deciding: v.State == dispatch.Running && !v.Run.Decided, Stopping: v.Run.Stopping, Sprint: v.sprint,
		Trouble: v.Progress.Trouble, Executors: count(v.Progress.Executors), Source: v.Progress.Source, Cores: count(v.Progress.Cores), Surplus: count(v.Progress.Surplus),
		Speculation: v.Speculation, Length: v.length,
	}
	if !v.Run.Began.IsZero() {
		d.BeganUs = v.Run.Began.UnixMicro()
	}
	for _, s := range v.Progress.Stages {
		d.Stages = append(d.Stages, &headroomv1.StageDetail{
			Id: count(s.ID), Attempt: count(s.Attempt), Name: s.Name, Kept: count(s.Kept), Total: count(s.Total), Done: count(s.Done),
		})
	}
	return d
}

func jobToProto(v jobAndSpec) *headroomv1.Job {
	j := &headroomv1.Job{
		Id: v.ID, Name: v.Name, Class: v.Class, State: stateToProto(v.State), Spec: v.spec,
		SubmittedUs: v.Submitted.UnixMicro(), Progress: progressToProto(v), Outcome: v.Outcome, Floor: v.floor,
		Engine: v.Engine, Rank: count(v.Rank), Submitter: jobfile.SubmitterOf(v.spec),
		Admission: proto.CloneOf(v.admission), Scaling: proto.CloneOf(v.scaling), End: proto.CloneOf(v.end),
	}
	if v.deadline > 0 {
		j.DeadlineS = new(v.deadline.Seconds())
	}
	return j
}

func capFromProto(d *headroomv1.CapDirective) dispatch.Cap {
	return dispatch.Cap{Cap: units.Power(d.GetCapUw()), Floor: units.Power(d.GetFloorUw()), Max: units.Power(d.GetMaxUw())}
}

func submittedAt(j *headroomv1.Job) time.Time { return time.UnixMicro(j.GetSubmittedUs()) }

// count converts a small number to the protocol.
func count(n int) uint32 { return uint32(max(0, n)) }
