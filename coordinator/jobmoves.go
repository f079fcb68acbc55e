package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/jobs/buffers"
	"headroom/ledger"
	"headroom/units"
)

// What the job loop does about each job beside containers: it gathers what sprints would
// take and what the classes' operating points are, lets arbiter.Movers decide, commits
// sprints and drop ratios, and tells the scheduler. Sprints of jobs that are over are ended
// here, whoever has granted them: no arbiter looks at a job that does not run.

const (
	// ownSprint is how the ids of sprints begin that the job loop grants.
	ownSprint = "job/"
	// movesKept is how many moves are kept of one job, movesMost of all jobs together.
	movesKept, movesMost = 64, 100_000
)

// engineDeflates tells whether an engine takes a drop ratio while a job runs. Hadoop's
// hooks drop under an early stop alone.
func engineDeflates(engine string) bool { return engine != engineYarn }

// engineYarn is the engine whose hooks drop tasks under an early stop.
const engineYarn = "yarn"

// sprintOf is the sprint of a job that no node was told to end; false without one.
func sprintOf(s *ledger.State, job string) (ledger.Sprint, bool) {
	for _, id := range slices.Sorted(maps.Keys(s.Sprints)) {
		if p := s.Sprints[id]; p.Job == job && p.Open() && p.Ended == "" {
			return p, true
		}
	}
	return ledger.Sprint{}, false
}

// seeSprint gathers what a sprint of the job would take, and the one that it has.
func (d *desk) seeSprint(s *ledger.State, x *seenJob) {
	x.offer = ledger.OfferSprint(s, slices.Sorted(maps.Keys(x.progress.GetRunningOn())), x.job.Class)
	if p, ok := sprintOf(s, x.job.ID); ok {
		x.sprint = &p
	}
	if p, ok := s.Sprints[x.offer.Open]; ok && p.Job != x.job.ID {
		x.rival = &p
		if j, known := s.Jobs[p.Job]; known {
			x.rivalRank = int(j.Rank)
		}
	}
	x.base, x.fast = d.speedsOf(s, x)
}

// speedsOf is what the job's nodes may draw without a sprint, and what in one: means over its
// containers, 0 while unknown, fast also where no sprint is possible.
func (d *desk) speedsOf(s *ledger.State, x *seenJob) (base, fast units.Power) {
	caps := map[string]units.Power{}
	for _, c := range x.offer.Caps {
		caps[c.Node] = c.Cap
	}
	var count units.Power
	for _, name := range slices.Sorted(maps.Keys(x.progress.GetRunningOn())) {
		n, known := s.Nodes[name]
		if !known {
			continue
		}
		held, known := d.heldBy(n)
		if !known {
			continue
		}
		on := units.Power(x.progress.GetRunningOn()[name])
		slow, quick := held, max(held, caps[name])
		if n.Sprint != nil {
			slow, quick = min(n.Target, held), max(held, n.Sprint.Cap)
		}
		base, fast, count = base+on*slow, fast+on*quick, count+on
	}
	if count == 0 {
		return 0, 0
	}
	if base, fast = base/count, fast/count; fast <= base {
		fast = 0
	}
	return base, fast
}

// contender is a job as arbiter.Movers take it. now is the wall clock.
func (x *seenJob) contender(seen *seenJobs, o arbiter.Outlook) arbiter.Contender {
	p := x.progress
	j := x.arbitrated()
	c := arbiter.Contender{
		ID: j.ID, Class: x.job.Class, Rank: int(x.job.Rank), Tasks: j.Tasks, Dropped: j.Dropped, Pending: j.Pending, Floor: cmp.Or(x.job.Floor, 1), Elapsed: j.Elapsed, Run: p.GetRun(),
		Outlook: o, Due: p.GetSprintDue(), Seed: seedOf(x.job), Offer: x.offered(),
	}
	if x.job.Engine != "" {
		c.Pending = -1 // Spark's hook thins stages that are not known yet
	}
	if x.job.Deadline > 0 {
		began := seen.wall.Add(-j.Elapsed)
		c.Deadline = max(1, time.UnixMicro(x.job.Submitted).Add(x.job.Deadline).Sub(began))
	}
	c.MaySprint, c.SprintWords = seen.maySprint(x)
	c.MayDeflate, c.DeflateWords = seen.mayDeflate(x)
	if i := slices.IndexFunc(seen.classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.job.Class }); i >= 0 {
		c.ClassTheta = seen.classes[i].GetTheta()
	}
	if d := x.job.Deflation; d != nil {
		c.Theta, c.Deflated = d.Theta, true
	}
	if x.sprint != nil {
		c.Sprint, c.Own = x.sprint.ID, strings.HasPrefix(x.sprint.ID, ownSprint)
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
func (x *seenJob) offered() arbiter.Offer {
	o := x.offer
	out := arbiter.Offer{Domain: o.Domain, Pot: o.Pot, Balance: o.Balance, Rise: o.Rise, Nodes: len(o.Caps), Why: o.Why}
	if r := x.rival; r != nil {
		out.Busy, out.BusyRank, out.Ending = r.ID, x.rivalRank, r.Ended != ""
		out.Yields = strings.HasPrefix(r.ID, ownSprint)
	}
	return out
}

// maySprint tells whether the job's class may sprint by the arbiter's word, and why not.
func (s *seenJobs) maySprint(x *seenJob) (may bool, why string) {
	switch s.discipline {
	case "p", "np", "da":
		return false, fmt.Sprintf("discipline %s sprints nobody", s.discipline)
	case "nps", "dias":
		i := slices.IndexFunc(s.classes, func(k *headroomv1.ClassPoint) bool { return k.GetName() == x.job.Class })
		if i < 0 || s.classes[i].SprintAfterS == nil {
			return false, fmt.Sprintf("class %s has no sprint timer", x.job.Class)
		}
		return true, ""
	}
	if x.job.Deadline == 0 {
		return false, "it has no deadline, and its class no sprint timer"
	}
	return true, ""
}

// mayDeflate tells whether the job's drop ratio may rise while it runs, and why not.
func (s *seenJobs) mayDeflate(x *seenJob) (may bool, why string) {
	switch engine := cmp.Or(x.job.Engine, engineLocal); {
	case s.discipline == "p" || s.discipline == "np" || s.discipline == "nps":
		return false, fmt.Sprintf("discipline %s has exact results", s.discipline)
	case !engineDeflates(engine):
		return false, fmt.Sprintf("engine %s drops tasks by an early stop alone", engine)
	}
	return true, ""
}

// decidedMove is a move as it is told, with what tells it from the one before.
type decidedMove struct {
	message *headroomv1.JobMove
	mark    string
}

// move lets the movers look at all jobs, and takes what they decide.
func (a *arbiters) move(now time.Duration, seen *seenJobs, outlooks map[string]arbiter.Outlook, out *decidedJobs) {
	var jobs []arbiter.Contender
	by := map[string]*seenJob{}
	for i := range seen.jobs {
		x := &seen.jobs[i]
		by[x.job.ID] = x
		jobs = append(jobs, x.contender(seen, outlooks[x.job.ID]))
	}
	moves := a.movers.Step(now, jobs)
	for _, m := range moves.Moves {
		out.moves[m.ID] = decidedMove{moveMessage(m, seen.wall), m.Mark}
	}
	for _, e := range moves.Ends {
		out.ends = append(out.ends, ledger.EndSprint{ID: e.Sprint, Why: e.Why})
	}
	for _, g := range moves.Grants {
		x := by[g.ID]
		out.sprints = append(out.sprints, sprinting{ledger.GrantSprint{
			ID: sprintID(g.ID, seen.wall), Job: g.ID, Class: g.Class, Domain: g.Domain, Duration: g.Duration, Caps: x.offer.Caps,
		}, out.moves[g.ID].message.GetReason()})
	}
	for _, f := range moves.Deflates {
		out.deflates = append(out.deflates, deflating{ledger.DeflateJob{ID: f.ID, Theta: f.Theta, Seed: f.Seed}, f.Reason})
	}
}

// sprintID is a new id: a job begins no two sprints in one millisecond.
func sprintID(job string, wall time.Time) string {
	return fmt.Sprintf("%s%s/%d", ownSprint, job, wall.UnixMilli())
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

type sprinting struct {
	ledger.GrantSprint

	reason string
}

type deflating struct {
	ledger.DeflateJob

	reason string
}

// orphans are the sprints of jobs that are over or do not run any more. A job of which
// nothing is heard keeps its sprint for as long as a new leader may not know it yet.
func (d *desk) orphans(s *ledger.State) (out []ledger.EndSprint) {
	now := time.Now()
	for _, p := range s.SprintsByTime() {
		if !p.Open() || p.Ended != "" || p.Job == "" {
			continue
		}
		why := ""
		switch j, known := s.Jobs[p.Job]; {
		case !known && !strings.HasPrefix(p.ID, ownSprint): // an operator's word for it
		case !known:
			why = "the log has forgotten job " + p.Job
		case j.State != ledger.JobAccepted:
			why = fmt.Sprintf("job %s is %s", p.Job, j.State)
		default:
			why = d.evicted(p, now)
		}
		if why != "" {
			out = append(out, ledger.EndSprint{ID: p.ID, Why: why})
		}
	}
	return out
}

// evicted is why a sprint of a job that has not ended helps it no more, empty where it does.
func (d *desk) evicted(p ledger.Sprint, now time.Time) string {
	x := d.board.of(p.Job, now)
	switch {
	case x == nil && d.now() > arbiterPatience:
		return fmt.Sprintf("nothing is heard of job %s", p.Job)
	case x == nil:
		return ""
	case x.GetState() != headroomv1.JobState_JOB_STATE_RUNNING:
		return fmt.Sprintf("job %s does not run any more", p.Job)
	case len(x.GetRunningOn()) == 0: // it may be between two stages
		return ""
	}
	for node := range p.Shares {
		if x.GetRunningOn()[node] > 0 {
			return ""
		}
	}
	return fmt.Sprintf("job %s runs on none of its nodes any more", p.Job)
}

// moveCommands are the commits that moves need: ends first, whose joules come back.
func moveCommands(decided *decidedJobs) (out []ledger.Command) {
	for _, x := range decided.ends {
		out = append(out, ledger.Command{EndSprint: &x, Reason: x.Why})
	}
	for _, x := range decided.sprints {
		out = append(out, ledger.Command{Sprint: &x.GrantSprint, Reason: shortened(x.reason)})
	}
	for _, x := range decided.deflates {
		out = append(out, ledger.Command{DeflateJob: &x.DeflateJob, Reason: shortened(x.reason)})
	}
	return out
}

// reasonMost is how long a reason in the log may be, bytes; what is shown says all.
const reasonMost = 1000

func shortened(reason string) string {
	if len(reason) <= reasonMost {
		return reason
	}
	return strings.ToValidUTF8(reason[:reasonMost], "") + "..."
}

// keepMoves notes the moves that differ from those before, the newest last.
func (d *desk) keepMoves() {
	l := d.jobs
	for id, x := range l.decided.moves {
		kept := l.moves[id]
		delete(l.unmoved, id)
		if n := len(kept); n > 0 && kept[n-1].GetKind() == x.message.GetKind() && l.marks[id] == x.mark {
			x.message.AtUs = kept[n-1].GetAtUs() // it stands since then
			if x.message.GetKind() == headroomv1.MoveKind_MOVE_KIND_SPRINT {
				x.message.CostUj = kept[n-1].CostUj
			}
			kept[n-1] = x.message
			continue
		}
		if n := len(kept); n > 0 {
			kept[n-1] = d.answered(id, kept[n-1])
		}
		d.counts.Moved(arbiterKind(x.message.GetKind()))
		l.marks[id] = x.mark
		l.moves[id] = append(kept[max(0, len(kept)-movesKept+1):], x.message)
	}
	d.machine.view(func(s *ledger.State) {
		count := 0
		for id, kept := range l.moves {
			if _, known := s.Jobs[id]; !known {
				delete(l.moves, id)
				delete(l.marks, id)
				continue
			}
			count += len(kept)
		}
		if count <= movesMost {
			return
		}
		for id := range l.moves { // those of jobs that run are of use to somebody
			if s.Jobs[id].State != ledger.JobAccepted {
				delete(l.moves, id)
				delete(l.marks, id)
			}
		}
	})
}

func arbiterKind(k headroomv1.MoveKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "MOVE_KIND_"))
}

// Subjects of orders about moves, before the job.
const (
	sprintSubject  = "the sprint of "
	deflateSubject = "the drop ratio of "
)

// moveOrders are the sprints that are open, those that are over for a scheduler that was told
// of them, and the drop ratios that a job does not run with yet.
func (d *desk) moveOrders(s *ledger.State) (out []order) {
	now := time.Now()
	for _, j := range s.JobsByTime() {
		if j.State != ledger.JobAccepted {
			continue
		}
		if o, ok := d.sprintOrder(s, j); ok {
			out = append(out, o)
		}
		p := d.board.of(j.ID, now)
		if j.Deflation == nil || p == nil || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING || !engineDeflates(cmp.Or(j.Engine, engineLocal)) {
			continue
		}
		subject := deflateSubject + j.ID
		if _, told := d.jobs.told[subject]; !told && units.Ratio(p.GetTheta()).Reaches(units.Ratio(j.Deflation.Theta)) {
			continue // it began with it
		}
		out = append(out, order{
			subject: subject, reason: fmt.Sprintf("%s runs with a drop ratio of %.4g: %s", j.ID, j.Deflation.Theta, cmp.Or(j.Deflation.Reason, "no reason was given")),
			deflate: &headroomv1.DeflateDirective{Id: j.ID, Theta: j.Deflation.Theta, Seed: j.Deflation.Seed},
		})
	}
	return out
}

// sprintOrder is what the scheduler is told of a job's sprint; false when there is nothing.
func (d *desk) sprintOrder(s *ledger.State, j ledger.Job) (order, bool) {
	subject := sprintSubject + j.ID
	if p, ok := sprintOf(s, j.ID); ok {
		x := &headroomv1.SprintDirective{Id: j.ID, Sprint: p.ID, Nodes: slices.Sorted(maps.Keys(p.Shares)), DurationMs: p.Duration.Milliseconds()}
		for _, node := range x.GetNodes() {
			if n := s.Nodes[node].Sprint; n != nil {
				x.CapUw = max(x.GetCapUw(), int64(n.Cap))
			}
		}
		return order{subject: subject, reason: fmt.Sprintf("%s sprints on %d nodes for at most %v", j.ID, len(x.GetNodes()), p.Duration.Round(time.Second)), sprint: x}, true
	}
	if _, told := d.jobs.told[subject]; told {
		return order{subject: subject, reason: j.ID + " sprints no more", sprint: &headroomv1.SprintDirective{Id: j.ID}}, true
	}
	return order{}, false
}

// moveOf is the move of a job as it stands, with what the scheduler and the log said to it;
// nil while unknown.
func (d *desk) moveOf(id string) *headroomv1.JobMove {
	kept := d.jobs.moves[id]
	if len(kept) == 0 {
		return nil
	}
	return d.answered(id, kept[len(kept)-1])
}

// answered fills in whether what follows from a job's newest move was acknowledged.
func (d *desk) answered(id string, m *headroomv1.JobMove) *headroomv1.JobMove {
	m, subject := proto.CloneOf(m), ""
	switch m.GetKind() {
	case headroomv1.MoveKind_MOVE_KIND_SPRINT:
		subject = sprintSubject + id
	case headroomv1.MoveKind_MOVE_KIND_DEFLATE:
		subject = deflateSubject + id
	case headroomv1.MoveKind_MOVE_KIND_UNSPECIFIED, headroomv1.MoveKind_MOVE_KIND_NONE, headroomv1.MoveKind_MOVE_KIND_CAP, headroomv1.MoveKind_MOVE_KIND_REALLOCATE:
		m.Acknowledged, m.Refused = true, ""
		return m
	}
	switch why, refused := d.board.refusals[subject]; {
	case d.jobs.unmoved[id] != "":
		m.Acknowledged, m.Refused = false, d.jobs.unmoved[id]+"; it is tried again at the next look"
	case refused:
		m.Acknowledged, m.Refused = false, why+"; it is told again after the next look"
	default:
		m.Acknowledged, m.Refused = d.board.heeded[subject], ""
	}
	return m
}

// ExplainJob implements headroomv1connect.JobServiceHandler.
func (j jobService) ExplainJob(ctx context.Context, r *connect.Request[headroomv1.ExplainJobRequest]) (*connect.Response[headroomv1.ExplainJobResponse], error) {
	out := &headroomv1.ExplainJobResponse{}
	var err, refused error
	out.Meta, err = j.read(ctx, false, func(s *ledger.State, d *desk) {
		job, known := s.Jobs[r.Msg.GetId()]
		if !known {
			refused = j.refuse(fmt.Errorf("job %q: %w", r.Msg.GetId(), ledger.ErrUnknownJob))
			return
		}
		out.Job, out.Moves = jobMessage(job, d), d.movesOf(job.ID)
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// movesOf are the moves of a job that are remembered, oldest first.
func (d *desk) movesOf(id string) []*headroomv1.JobMove {
	if d == nil {
		return nil
	}
	kept := slices.Clone(d.jobs.moves[id])
	if n := len(kept); n > 0 {
		kept[n-1] = d.answered(id, kept[n-1])
	}
	return kept
}
