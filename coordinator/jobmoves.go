package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headroom/coordinator/arbitration"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/streams"
	"headroom/ledger"
	"headroom/units"
)

// What the job loop does about each job beside containers: it gathers what sprints would
// take and what the classes' operating points are, lets arbiter.Movers decide, commits
// sprints and drop ratios, and tells the scheduler. Sprints of jobs that are over are ended
// here, whoever has granted them: no arbiter looks at a job that does not run.

const (
	// movesKept is how many moves are kept of one job, movesMost of all jobs together.
	movesKept, movesMost = 64, 100_000
)

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
func (d *desk) seeSprint(s *ledger.State, x *arbitration.Job) {
	x.Offer = ledger.OfferSprint(s, slices.Sorted(maps.Keys(x.Progress.GetRunningOn())), x.Job.Class)
	if p, ok := sprintOf(s, x.Job.ID); ok {
		x.Sprint = &p
	}
	if p, ok := s.Sprints[x.Offer.Open]; ok && p.Job != x.Job.ID {
		x.Rival = &p
		if j, known := s.Jobs[p.Job]; known {
			x.RivalRank = int(j.Rank)
		}
	}
	x.Base, x.Fast = d.speedsOf(s, x)
}

// speedsOf is what the job's nodes may draw without a sprint, and what in one: means over its
// containers, 0 while unknown, fast also where no sprint is possible.
func (d *desk) speedsOf(s *ledger.State, x *arbitration.Job) (base, fast units.Power) {
	caps := map[string]units.Power{}
	for _, c := range x.Offer.Caps {
		caps[c.Node] = c.Cap
	}
	var count units.Power
	for _, name := range slices.Sorted(maps.Keys(x.Progress.GetRunningOn())) {
		n, known := s.Nodes[name]
		if !known {
			continue
		}
		held, known := d.heldBy(n)
		if !known {
			continue
		}
		on := units.Power(x.Progress.GetRunningOn()[name])
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
		case !known && !strings.HasPrefix(p.ID, arbitration.OwnSprint): // an operator's word for it
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
	case x == nil && d.now() > arbitration.Patience:
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

// keepMoves notes the moves that differ from those before, the newest last.
func (d *desk) keepMoves() {
	l := d.jobs
	for id, x := range l.decided.Moves {
		kept := l.moves[id]
		delete(l.unmoved, id)
		if n := len(kept); n > 0 && kept[n-1].GetKind() == x.Message.GetKind() && l.marks[id] == x.Mark {
			x.Message.AtUs = kept[n-1].GetAtUs() // it stands since then
			if x.Message.GetKind() == headroomv1.MoveKind_MOVE_KIND_SPRINT {
				x.Message.CostUj = kept[n-1].CostUj
			}
			kept[n-1] = x.Message
			continue
		}
		if n := len(kept); n > 0 {
			kept[n-1] = d.answered(id, kept[n-1])
		}
		d.counts.Moved(arbiterKind(x.Message.GetKind()))
		l.marks[id] = x.Mark
		l.moves[id] = append(kept[max(0, len(kept)-movesKept+1):], x.Message)
	}
	d.machine.View(func(s *ledger.State) {
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
func (d *desk) moveOrders(s *ledger.State) (out []streams.Order) {
	now := time.Now()
	for _, j := range s.JobsByTime() {
		if j.State != ledger.JobAccepted {
			continue
		}
		if o, ok := d.sprintOrder(s, j); ok {
			out = append(out, o)
		}
		p := d.board.of(j.ID, now)
		if j.Deflation == nil || p == nil || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING || !arbitration.EngineDeflates(cmp.Or(j.Engine, arbitration.EngineLocal)) {
			continue
		}
		subject := deflateSubject + j.ID
		if _, told := d.jobs.told[subject]; !told && units.Ratio(p.GetTheta()).Reaches(units.Ratio(j.Deflation.Theta)) {
			continue // it began with it
		}
		out = append(out, streams.Order{
			Subject: subject, Reason: fmt.Sprintf("%s runs with a drop ratio of %.4g: %s", j.ID, j.Deflation.Theta, cmp.Or(j.Deflation.Reason, "no reason was given")),
			Deflate: &headroomv1.DeflateDirective{Id: j.ID, Theta: j.Deflation.Theta, Seed: j.Deflation.Seed},
		})
	}
	return out
}

// sprintOrder is what the scheduler is told of a job's sprint; false when there is nothing.
func (d *desk) sprintOrder(s *ledger.State, j ledger.Job) (streams.Order, bool) {
	subject := sprintSubject + j.ID
	if p, ok := sprintOf(s, j.ID); ok {
		x := &headroomv1.SprintDirective{Id: j.ID, Sprint: p.ID, Nodes: slices.Sorted(maps.Keys(p.Shares)), DurationMs: p.Duration.Milliseconds()}
		for _, node := range x.GetNodes() {
			if n := s.Nodes[node].Sprint; n != nil {
				x.CapUw = max(x.GetCapUw(), int64(n.Cap))
			}
		}
		return streams.Order{Subject: subject, Reason: fmt.Sprintf("%s sprints on %d nodes for at most %v", j.ID, len(x.GetNodes()), p.Duration.Round(time.Second)), Sprint: x}, true
	}
	if _, told := d.jobs.told[subject]; told {
		return streams.Order{Subject: subject, Reason: j.ID + " sprints no more", Sprint: &headroomv1.SprintDirective{Id: j.ID}}, true
	}
	return streams.Order{}, false
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
