package leading

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/ledger"
)

// What the job loop does about each job beside containers: it gathers what sprints would
// take and what the classes' operating points are, lets arbiter.Movers decide, commits
// sprints and drop ratios, and tells the scheduler. Sprints of jobs that are over are ended
// here, whoever has granted them: no arbiter looks at a job that does not run.

const (
	// movesKept is how many moves are kept of one job, movesMost of all jobs together.
	movesKept, movesMost = 64, 100_000
	// weighedKept is for how many of a job's newest moves it is kept what else could have been done.
	weighedKept = 4
)

// moveHistory remembers the newest moves of each job, with what the log and the scheduler said to them.
type moveHistory struct {
	*leadership

	reports *jobReports
	// moves of each job, oldest first; marks tell the newest ones from those before.
	moves map[string][]*headroomv1.JobMove
	marks map[string]string
	// refused is why the log did not take what follows from a job's newest move.
	refused map[string]string
}

func newMoveHistory(l *leadership, reports *jobReports) *moveHistory {
	return &moveHistory{
		leadership: l, reports: reports, moves: map[string][]*headroomv1.JobMove{}, marks: map[string]string{}, refused: map[string]string{},
	}
}

// keep notes the moves that differ from those before, the newest last.
func (h *moveHistory) keep(decided map[string]arbitration.Move) {
	for id, x := range decided {
		kept := h.moves[id]
		delete(h.refused, id)
		if n := len(kept); n > 0 && kept[n-1].GetKind() == x.Message.GetKind() && h.marks[id] == x.Mark {
			x.Message.AtUs = kept[n-1].GetAtUs() // it stands since then
			if x.Message.GetKind() == headroomv1.MoveKind_MOVE_KIND_SPRINT {
				x.Message.CostUj = kept[n-1].CostUj
			}
			kept[n-1] = x.Message
			continue
		}
		if n := len(kept); n > 0 {
			kept[n-1] = h.answered(id, kept[n-1])
		}
		if n := len(kept); n >= weighedKept {
			old := proto.CloneOf(kept[n-weighedKept]) // an answer may still hold the one that is kept
			old.Candidates = nil
			kept[n-weighedKept] = old
		}
		h.counts.Moved(arbiterKind(x.Message.GetKind()))
		h.marks[id] = x.Mark
		h.moves[id] = append(kept[max(0, len(kept)-movesKept+1):], x.Message)
	}
	h.machine.View(func(s *ledger.State) {
		count := 0
		for id, kept := range h.moves {
			if _, known := s.Jobs[id]; !known {
				delete(h.moves, id)
				delete(h.marks, id)
				continue
			}
			count += len(kept)
		}
		if count <= movesMost {
			return
		}
		for id := range h.moves { // those of jobs that run are of use to somebody
			if s.Jobs[id].State != ledger.JobAccepted {
				delete(h.moves, id)
				delete(h.marks, id)
			}
		}
	})
}

func arbiterKind(k headroomv1.MoveKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "MOVE_KIND_"))
}

// newest is the move of a job as it stands, with what the scheduler and the log said to it;
// nil while unknown.
func (h *moveHistory) newest(id string) *headroomv1.JobMove {
	kept := h.moves[id]
	if len(kept) == 0 {
		return nil
	}
	return h.answered(id, kept[len(kept)-1])
}

// answered fills in whether what follows from a job's newest move was acknowledged.
func (h *moveHistory) answered(id string, m *headroomv1.JobMove) *headroomv1.JobMove {
	m, subject := proto.CloneOf(m), ""
	switch m.GetKind() {
	case headroomv1.MoveKind_MOVE_KIND_SPRINT:
		subject = sprintSubject + id
	case headroomv1.MoveKind_MOVE_KIND_DEFLATE:
		subject = deflateSubject + id
	case headroomv1.MoveKind_MOVE_KIND_UNSPECIFIED, headroomv1.MoveKind_MOVE_KIND_NONE, headroomv1.MoveKind_MOVE_KIND_CAP, headroomv1.MoveKind_MOVE_KIND_REALLOCATE,
		headroomv1.MoveKind_MOVE_KIND_COPY:
		m.Acknowledged, m.Refused = true, ""
		return m
	}
	switch why, refused := h.reports.refusals[subject]; {
	case h.refused[id] != "":
		m.Acknowledged, m.Refused = false, h.refused[id]+"; it is tried again at the next look"
	case refused:
		m.Acknowledged, m.Refused = false, why+"; it is told again after the next look"
	default:
		m.Acknowledged, m.Refused = h.reports.acked[subject], ""
	}
	return m
}

// all are the moves of a job that are remembered, oldest first.
func (h *moveHistory) all(id string) []*headroomv1.JobMove {
	kept := slices.Clone(h.moves[id])
	if n := len(kept); n > 0 {
		kept[n-1] = h.answered(id, kept[n-1])
	}
	return kept
}
