package arbitration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/jobs/buffers"
	"headroom/ledger"
)

const (
	// OwnSprint is how the ids of sprints begin that the job loop grants.
	OwnSprint = "job/"
)

// EngineDeflates reports whether an engine takes a drop ratio while a job runs. Hadoop's
// hooks drop under an early stop alone.
func EngineDeflates(engine string) bool { return engine != engineYarn }

const (
	// EngineLocal is the scheduler itself; the log keeps it as no engine.
	EngineLocal = "local"
	// engineYarn is the engine whose hooks drop tasks under an early stop.
	engineYarn = "yarn"
)

// contender is a job as arbiter.Movers take it. now is the wall clock.
func (x *Job) contender(seen *Seen, o arbiter.Outlook) arbiter.Contender {
	p := x.Progress
	j := x.arbitrated()
	c := arbiter.Contender{
		ID: j.ID, Class: x.Job.Class, Rank: int(x.Job.Rank), Tasks: j.Tasks, Dropped: j.Dropped, Running: j.Running, Pending: j.Pending, Floor: cmp.Or(x.Job.Floor, 1), Elapsed: j.Elapsed, Run: p.GetRun(),
		Ahead:   x.Job.Engine != "", // Spark's hook thins stages that are not known yet
		Outlook: o, Due: p.GetSprintDue(), Seed: seedOf(x.Job), Offer: x.offered(),
	}
	if x.Job.Deadline > 0 {
		began := seen.Wall.Add(-j.Elapsed)
		c.Deadline = max(1, time.UnixMicro(x.Job.Submitted).Add(x.Job.Deadline).Sub(began))
	}
	c.MaySprint, c.SprintWords = seen.maySprint(x)
	c.MayDeflate, c.DeflateWords = seen.mayDeflate(x)
	if i := slices.IndexFunc(seen.Classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.Job.Class }); i >= 0 {
		c.ClassTheta = seen.Classes[i].GetTheta()
	}
	if d := x.Job.Deflation; d != nil {
		c.Theta = d.Theta
	}
	if x.Sprint != nil {
		c.Sprint = x.Sprint.ID
	}
	return c
}

// seedOf is the seed of a job's drop ratio: the one in force, else the one that the scheduler would take.
func seedOf(j ledger.Job) uint64 {
	if j.Deflation != nil {
		return j.Deflation.Seed
	}
	return buffers.Seed(j.ID)
}

// offered is the offer as arbiter.Movers take it.
func (x *Job) offered() arbiter.Offer {
	o := x.Offer
	out := arbiter.Offer{Domain: o.Domain, Pot: o.Pot, Balance: o.Balance, Rise: o.Rise, Nodes: len(o.Caps), Why: o.Why}
	if r := x.Rival; r != nil {
		out.Busy, out.BusyRank, out.Ending = r.ID, x.RivalRank, r.Ended != ""
		out.Yields = strings.HasPrefix(r.ID, OwnSprint)
	}
	return out
}

// maySprint tells whether the job's class may sprint by the arbiter's word, and why not.
func (s *Seen) maySprint(x *Job) (may bool, why string) {
	switch s.Discipline {
	case "p", "np", "da":
		return false, fmt.Sprintf("discipline %s sprints nobody", s.Discipline)
	case "nps", "dias":
		i := slices.IndexFunc(s.Classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.Job.Class })
		if i < 0 || s.Classes[i].SprintAfterS == nil {
			return false, fmt.Sprintf("class %s has no sprint timer", x.Job.Class)
		}
		return true, ""
	}
	if x.Job.Deadline == 0 {
		return false, "it has no deadline, and its class no sprint timer"
	}
	return true, ""
}

// mayDeflate tells whether the job's drop ratio may rise while it runs, and why not.
func (s *Seen) mayDeflate(x *Job) (may bool, why string) {
	switch engine := cmp.Or(x.Job.Engine, EngineLocal); {
	case s.Discipline == "p" || s.Discipline == "np" || s.Discipline == "nps":
		return false, fmt.Sprintf("discipline %s has exact results", s.Discipline)
	case !EngineDeflates(engine):
		return false, fmt.Sprintf("engine %s drops tasks by an early stop alone", engine)
	}
	return true, ""
}

// Move is a move as it is told, with what tells it from the one before.
type Move struct {
	Message *headroomv1.JobMove
	Mark    string
}

// move lets the movers look at all jobs, and takes what they decide.
func (a *arbiters) move(now time.Duration, seen *Seen, outlooks map[string]arbiter.Outlook, out *Decided) {
	var jobs []arbiter.Contender
	by := map[string]*Job{}
	for i := range seen.Jobs {
		x := &seen.Jobs[i]
		by[x.Job.ID] = x
		jobs = append(jobs, x.contender(seen, outlooks[x.Job.ID]))
	}
	moves := a.movers.Step(now, arbiter.Look{Jobs: jobs})
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

// sprintID is a new id: a job begins no two sprints in one millisecond.
func sprintID(job string, wall time.Time) string {
	return fmt.Sprintf("%s%s/%d", OwnSprint, job, wall.UnixMilli())
}

// moveMessage is a move as it is told; what is unknown or nothing is absent.
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
	}
	return headroomv1.MoveKind_MOVE_KIND_UNSPECIFIED
}

// Sprint is a sprint that is to be granted, and why.
type Sprint struct {
	ledger.GrantSprint

	Reason string
}

// Deflate is a drop ratio that is to be set, and why.
type Deflate struct {
	ledger.DeflateJob

	Reason string
}
