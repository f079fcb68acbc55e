package command

import (
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

// jsonAdmission is what was decided about a job's deadline; unknown values are null.
type jsonAdmission struct {
	Decision   string   `json:"decision"`
	Slots      uint32   `json:"slots"`
	Need       *uint32  `json:"need"`
	Free       uint32   `json:"free"`
	WorkS      *float64 `json:"work_s"`
	Confidence *float64 `json:"confidence"`
	Samples    uint32   `json:"samples"`
	Until      *string  `json:"until" of:"until_us"`
	Finish     *string  `json:"finish" of:"finish_us"`
	NearestS   *float64 `json:"nearest_s"`
	Reason     string   `json:"reason"`
}

// admissionItem is an admission for programs, nil for none.
func admissionItem(a *headroomv1.Admission) *jsonAdmission {
	if a == nil {
		return nil
	}
	item := &jsonAdmission{}
	cli.Fill(item, a)
	return item
}

// errorBound is the part of its tasks that a job may leave out; nil for none.
func errorBound(j *headroomv1.Job) *float64 {
	if p := j.GetProgress(); p != nil {
		return p.Error
	}
	return nil
}

// leftOut is the part of its tasks that a job has left out which is done; nil for others.
func leftOut(j *headroomv1.Job) *float64 {
	p := j.GetProgress()
	if j.GetState() != headroomv1.JobState_JOB_STATE_DONE || p.GetTasks() == 0 || p.GetDone() > p.GetTasks() {
		return nil
	}
	return new(1 - float64(p.GetDone())/float64(p.GetTasks()))
}

// admissionRows are the lines about what was promised to a job; none for one that was not asked about.
func admissionRows(j *headroomv1.Job) (rows [][]string) {
	a := j.GetAdmission()
	if a == nil {
		return nil
	}
	rows = append(rows, []string{"admission", a.GetDecision() + ": " + a.GetReason()})
	if n := j.GetProgress().GetPromised(); n > 0 && !ended(j) {
		rows = append(rows, []string{"promised", fmt.Sprintf("%d slots", n)})
	}
	var known []string
	if a.GetNeed() > 0 {
		known = append(known, fmt.Sprintf("%d slots for %s of work", a.GetNeed(), cli.Age(seconds(a.GetWorkS()))))
	}
	if a.Confidence != nil {
		known = append(known, fmt.Sprintf("confidence %s from %d ended jobs", units.Percent(a.GetConfidence()), a.GetSamples()))
	}
	if len(known) > 0 {
		rows = append(rows, []string{"need", strings.Join(known, ", ")})
	}
	if a.FinishUs != nil && !ended(j) {
		rows = append(rows, []string{"expected end", cli.Clock(time.UnixMicro(a.GetFinishUs()))})
	}
	if a.UntilUs != nil && !ended(j) {
		rows = append(rows, []string{"waits until", cli.Clock(time.UnixMicro(a.GetUntilUs())) + ", then it is refused"})
	}
	return rows
}

// copiesRows are the lines about copies of a job's tasks and wasted work, as far as there are any.
func copiesRows(j *headroomv1.Job, d *headroomv1.RunDetail) (rows [][]string) {
	p := j.GetProgress()
	if p.GetCopies()+p.GetCopiesWanted() > 0 {
		text := fmt.Sprintf("%d run, %d more wanted", p.GetCopies(), p.GetCopiesWanted())
		if p.CopiesSaveS != nil && p.GetCopiesWanted() > 0 {
			text += fmt.Sprintf(", which would save %s", cli.Age(seconds(p.GetCopiesSaveS())))
		}
		rows = append(rows, []string{"copies", text})
	}
	if d.GetSpeculation() != "" {
		rows = append(rows, []string{"speculation", d.GetSpeculation()})
	}
	if p.GetWastedS() > 0 {
		rows = append(rows, []string{"wasted", cli.Age(seconds(p.GetWastedS())) + " of slots"})
	}
	return rows
}

// jsonMove is what the coordinators have decided about a job.
type jsonMove struct {
	Kind       string          `json:"kind" of:"-"`
	Reason     string          `json:"reason"`
	Candidates []jsonCandidate `json:"candidates" of:"-"`
}

// jsonCandidate is one way to keep a promise that is at risk, as in coordinator job explain.
type jsonCandidate struct {
	Kind        string   `json:"kind" of:"-"`
	TimeS       *float64 `json:"time_s"`
	CostJ       *float64 `json:"cost_j"`
	CostQuality *float64 `json:"cost_quality"`
	Worth       float64  `json:"worth"`
	Chosen      bool     `json:"chosen"`
	Why         string   `json:"why"`
}

// moveItem is nil if nothing was decided, or the decision is unknown.
func moveItem(m *headroomv1.JobMove) *jsonMove {
	if m == nil {
		return nil
	}
	item := &jsonMove{}
	cli.Fill(item, m)
	item.Kind, item.Candidates = moveName(m.GetKind()), cli.Filled[jsonCandidate](m.GetCandidates())
	for i, c := range m.GetCandidates() {
		item.Candidates[i].Kind = moveName(c.GetKind())
	}
	return item
}

func moveName(k headroomv1.MoveKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "MOVE_KIND_"))
}

// moveRows are the lines about what the coordinators have decided, and about what they could for a promise at risk.
func moveRows(m *headroomv1.JobMove) (rows [][]string) {
	if m == nil {
		return nil
	}
	rows = append(rows, []string{"decided", moveName(m.GetKind()) + ": " + m.GetReason()})
	for _, c := range m.GetCandidates() {
		text := moveName(c.GetKind())
		if c.GetChosen() {
			text += ", chosen"
		}
		if c.TimeS != nil {
			text += fmt.Sprintf(", moves its end by %+.0f s", c.GetTimeS())
		}
		rows = append(rows, []string{"at risk", text + ": " + c.GetWhy()})
	}
	return rows
}
