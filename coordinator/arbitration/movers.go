package arbitration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/jobs/buffers"
	"headroom/jobs/containers"
	"headroom/ledger"
)

const (
	// OwnSprint is the prefix of the ids of sprints that the job loop grants.
	OwnSprint = "job/"
)

const (
	// EngineLocal is the scheduler itself; the log keeps it as no engine.
	EngineLocal = "local"
	// engineYarn is the engine whose hooks drop tasks under an early stop.
	engineYarn = "yarn"
)

// contender returns a job as input of arbiter.Movers.
func (x *Job) contender(seen *Seen, o arbiter.Outlook) arbiter.Contender {
	p := x.Progress
	j := x.arbitrated(seen.joint())
	c := arbiter.Contender{
		ID: j.ID, Class: x.Job.Class, Engine: x.engine(), Rank: int(x.Job.Rank), Waiting: x.Waiting, Tasks: j.Tasks, Dropped: j.Dropped, Running: j.Running, Pending: j.Pending,
		Ahead: p.GetAhead(), Floor: cmp.Or(x.Job.Floor, 1), Age: max(j.Elapsed, seen.Wall.Sub(time.UnixMicro(x.Job.Submitted))), Elapsed: j.Elapsed, Run: p.GetRun(),
		On: map[string]int{}, Most: int(p.GetMost()), Outlook: o, Due: p.GetSprintDue(), Seed: seedOf(x.Job), Offer: x.offered(),
		Promised: x.promised(), ErrorBound: j.Error, Copies: int(p.GetCopies()), CopiesWanted: int(p.GetCopiesWanted()), CopiesSave: Seconds(p.GetCopiesSaveS()),
		Curve: j.Curve,
	}
	if c.Curve != nil {
		c.CurveWords = fmt.Sprintf("learned from %d runs", x.Job.Scaling.Runs)
	}
	for node, n := range p.GetRunningOn() {
		c.On[node] = int(n)
	}
	if x.Job.Deadline > 0 {
		began := seen.Wall.Add(-j.Elapsed)
		c.Deadline = max(1, time.UnixMicro(x.Job.Submitted).Add(x.Job.Deadline).Sub(began))
	}
	c.MaySprint, c.SprintWords = seen.maySprint(x, c.Due || c.Deadline > 0 && o.Slow.Known && o.Slow.At > c.Deadline)
	c.MayDeflate, c.DeflateWords = seen.mayDeflate(x)
	if i := slices.IndexFunc(seen.Classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.Job.Class }); i >= 0 {
		c.ClassTheta = seen.Classes[i].GetTheta()
		c.Percent = Seconds(seen.Classes[i].GetQualityPriceS())
	}
	if d := x.Job.Deflation; d != nil {
		c.Theta = d.Theta
	}
	if x.Sprint != nil {
		c.Sprint = x.Sprint.ID
	}
	return c
}

// Seconds returns a time that a scheduler has reported, limited to a plausible range.
func Seconds(s float64) time.Duration {
	return time.Duration(min(max(0, s), runtimeMost.Seconds()) * float64(time.Second))
}

// curve returns the job's scaling curve, nil while unknown.
func (x *Job) curve() *containers.Curve {
	c, err := x.Job.Scaling.Curve()
	if err != nil {
		return nil // the log has checked it
	}
	return c
}

// promised returns the task containers that the job was promised: as its scheduler reports, otherwise as committed in the log.
func (x *Job) promised() int {
	if n := x.Progress.GetPromised(); n > 0 {
		return int(n)
	}
	if a := x.Job.Admission; a != nil && a.Decision == ledger.AdmissionAdmitted {
		return int(a.Slots)
	}
	return 0
}

// held reports whether the job waits for admission: it gets nothing before it is admitted, so no other job is limited for it.
func (x *Job) held() bool {
	a := x.Job.Admission
	return x.Waiting && a != nil && a.Decision == ledger.AdmissionQueued
}

// seedOf returns the seed of a job's drop ratio: the one in force, otherwise the one that the scheduler would use.
func seedOf(j ledger.Job) uint64 {
	if j.Deflation != nil {
		return j.Deflation.Seed
	}
	return buffers.Seed(j.ID)
}

// offered returns the offer as input of arbiter.Movers.
func (x *Job) offered() arbiter.Offer {
	o := x.Offer
	out := arbiter.Offer{Domain: o.Domain, Pot: o.Pot, Balance: o.Balance, Capacity: o.Capacity, Rise: o.Rise, Nodes: len(o.Caps), Why: o.Why}
	if r := x.Rival; r != nil {
		out.Busy, out.BusyRank, out.Ending = r.ID, x.RivalRank, r.Ended != ""
		out.Yields = strings.HasPrefix(r.ID, OwnSprint)
		out.BusyOn = slices.Sorted(maps.Keys(r.Shares))
	}
	return out
}

// maySprint reports whether the arbiter may let the job sprint, and why not. A class with a sprint timer waits for it,
// unless the job would miss its deadline.
func (s *Seen) maySprint(x *Job, pressed bool) (may bool, why string) {
	switch s.Discipline {
	case "p", "np", "da":
		return false, fmt.Sprintf("discipline %s sprints nobody", s.Discipline)
	case "nps", "dias":
		i := slices.IndexFunc(s.Classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.Job.Class })
		if i < 0 || s.Classes[i].SprintAfterS == nil {
			return false, fmt.Sprintf("class %s has no sprint timer", x.Job.Class)
		}
		return pressed, "its sprint timer has not fired, and no deadline would be missed"
	}
	return true, ""
}

// mayDeflate reports whether the job's drop ratio may rise while it runs, and why not.
func (s *Seen) mayDeflate(x *Job) (may bool, why string) {
	switch {
	case s.Discipline == "p" || s.Discipline == "np" || s.Discipline == "nps":
		return false, fmt.Sprintf("discipline %s has exact results", s.Discipline)
	case x.engine() == engineYarn && x.Progress.Theta == nil:
		return false, "its application master has no hook that drops tasks, or its owner does not allow it"
	}
	return true, ""
}

// Move is a move as a message, with a mark that distinguishes it from the previous one.
type Move struct {
	Message *headroomv1.JobMove
	Mark    string
}

// move runs the movers on all jobs and stores their decisions.
func (a *arbiters) move(now time.Duration, seen *Seen, outlooks map[string]arbiter.Outlook, out *Decided) {
	look := arbiter.Look{Joint: seen.joint(), Pools: map[string]arbiter.Pool{}, Nodes: seen.Nodes}
	for engine, e := range seen.Engines {
		look.Pools[engine] = arbiter.Pool{Containers: int(e.GetContainers()), Overhead: int(e.GetOverhead())}
	}
	by := map[string]*Job{}
	for i := range seen.Jobs {
		x := &seen.Jobs[i]
		if x.held() {
			continue
		}
		by[x.Job.ID] = x
		look.Jobs = append(look.Jobs, x.contender(seen, outlooks[x.Job.ID]))
	}
	out.Behind = behind(look.Jobs)
	moves := a.movers.Step(now, look)
	out.Holds = moves.Holds
	a.divide(moves, seen, out)
	for _, m := range moves.Moves {
		out.Moves[m.ID] = Move{moveMessage(m, seen.Wall), m.Mark}
	}
	for _, e := range moves.Ends {
		out.Ends = append(out.Ends, ledger.EndSprint{ID: e.Sprint, Why: e.Why})
	}
	for _, g := range moves.Grants {
		x := by[g.ID]
		out.Sprints = append(out.Sprints, Sprint{ledger.GrantSprint{
			ID: sprintID(g.ID, seen.Wall), Job: g.ID, Class: g.Class, Domain: g.Domain, Duration: g.Duration, Caps: x.Offer.Caps,
		}, out.Moves[g.ID].Message.GetReason()})
	}
	for _, f := range moves.Deflates {
		out.Deflates = append(out.Deflates, Deflate{ledger.DeflateJob{ID: f.ID, Theta: f.Theta, Seed: f.Seed}, f.Reason})
	}
}

// divide applies the containers of the joint decision.
func (a *arbiters) divide(moves arbiter.Moves, seen *Seen, out *Decided) {
	for engine, d := range moves.Divisions {
		if e := a.engines[engine]; e != nil && d.Changed {
			e.change(d.Shares, seen.policy(), int(seen.Engines[engine].GetContainers()))
		}
	}
	if !seen.joint() {
		return
	}
	for engine, e := range a.engines {
		if _, divided := moves.Divisions[engine]; !divided && len(e.shares) > 0 {
			e.change(nil, seen.policy(), int(seen.Engines[engine].GetContainers()))
		}
	}
	for id, f := range moves.Foreseen {
		o := out.Outlooks[id]
		if o == nil {
			continue
		}
		if o.Policy = ledger.JointPolicy; f.Containers > 0 {
			o.Containers = new(uint32(f.Containers))
		}
	}
}

// behind returns the nodes that run jobs predicted to miss their deadlines.
func behind(jobs []arbiter.Contender) map[string]bool {
	out := map[string]bool{}
	for i := range jobs {
		if c := &jobs[i]; c.Deadline > 0 && c.Outlook.Slow.Known && c.Outlook.Slow.At > c.Deadline {
			for node := range c.On {
				out[node] = true
			}
		}
	}
	return out
}

// sprintID returns a new id: a job never begins two sprints in one millisecond.
func sprintID(job string, wall time.Time) string {
	return fmt.Sprintf("%s%s/%d", OwnSprint, job, wall.UnixMilli())
}

// moveMessage returns a move as a message; unknown and zero fields are absent.
func moveMessage(m arbiter.Move, at time.Time) *headroomv1.JobMove {
	out := &headroomv1.JobMove{Kind: moveKind(m.Kind), Reason: m.Reason, AtUs: at.UnixMicro()}
	if m.Energy > 0 {
		out.CostUj = new(int64(m.Energy))
	}
	if m.Quality > 0 {
		out.CostQuality = &m.Quality
	}
	if m.TimeKnown {
		out.TimeS = new(m.Time.Seconds())
	}
	for _, c := range m.Candidates {
		out.Candidates = append(out.Candidates, candidateMessage(c))
	}
	return out
}

// candidateMessage returns one lever for a promise at risk as a message.
func candidateMessage(c arbiter.Candidate) *headroomv1.Candidate {
	out := &headroomv1.Candidate{Kind: moveKind(c.Kind), Worth: c.Worth, Chosen: c.Chosen, Why: c.Why}
	if c.TimeKnown {
		out.TimeS = new(c.Time.Seconds())
	}
	if c.Energy > 0 {
		out.CostUj = new(int64(c.Energy))
	}
	if c.Quality > 0 {
		out.CostQuality = &c.Quality
	}
	return out
}

func moveKind(k arbiter.MoveKind) headroomv1.MoveKind {
	switch k {
	case arbiter.MoveNone:
		return headroomv1.MoveKind_MOVE_KIND_NONE
	case arbiter.MoveSprint:
		return headroomv1.MoveKind_MOVE_KIND_SPRINT
	case arbiter.MoveCap:
		return headroomv1.MoveKind_MOVE_KIND_CAP
	case arbiter.MoveReallocate:
		return headroomv1.MoveKind_MOVE_KIND_REALLOCATE
	case arbiter.MoveDeflate:
		return headroomv1.MoveKind_MOVE_KIND_DEFLATE
	case arbiter.MoveCopy:
		return headroomv1.MoveKind_MOVE_KIND_COPY
	}
	return headroomv1.MoveKind_MOVE_KIND_UNSPECIFIED
}

// Sprint is a sprint to be granted, and why.
type Sprint struct {
	ledger.GrantSprint

	Reason string
}

// Deflate is a drop ratio to be set, and why.
type Deflate struct {
	ledger.DeflateJob

	Reason string
}
