package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
	"headroom/units"
)

// capDirective tells the scheduler what a node may draw now.
type capDirective struct {
	node             string
	cap, floor, most units.Power
}

// schedulerStream is one open stream to a scheduler.
type schedulerStream struct {
	id  string
	box chan *headroomv1.DirectorMessage
}

func (s *schedulerStream) post(m *headroomv1.DirectorMessage) {
	for {
		select {
		case s.box <- m:
			return
		default:
		}
		select {
		case <-s.box:
		default:
		}
	}
}

// enlist opens a stream for a scheduler: it is told who leads, and every cap that this leadership has given out.
func (h *hub) enlist(id string) *schedulerStream {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &schedulerStream{id: id, box: make(chan *headroomv1.DirectorMessage, directives)}
	h.schedulers[s] = struct{}{}
	s.post(&headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Leader{Leader: h.leader}})
	for _, name := range slices.Sorted(maps.Keys(h.caps)) {
		s.post(h.directive(h.caps[name], "cap in force"))
	}
	return s
}

func (h *hub) dismiss(s *schedulerStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.schedulers, s)
}

// direct implements postbox.
func (h *hub) direct(e lease.Epoch, caps []capDirective) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told != e {
		return
	}
	for _, c := range caps {
		reason := fmt.Sprintf("cap of %s is %v", c.node, c.cap)
		if old, ok := h.caps[c.node]; ok {
			reason = fmt.Sprintf("cap of %s %v -> %v", c.node, old.cap, c.cap)
		}
		h.caps[c.node] = c
		m := h.directive(c, reason)
		for s := range h.schedulers {
			s.post(m)
		}
	}
}

// directive numbers a cap directive. The caller holds the lock.
func (h *hub) directive(c capDirective, reason string) *headroomv1.DirectorMessage {
	h.sequence++
	return &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Directive{Directive: &headroomv1.Directive{
		Epoch: epochMessage(h.told), Seq: h.sequence, Reason: reason,
		Action: &headroomv1.Directive_Cap{Cap: &headroomv1.CapDirective{
			Node: c.node, CapUw: int64(c.cap), FloorUw: int64(c.floor), MaxUw: int64(c.most),
		}},
	}}}
}

const (
	// boardedJobs bounds the progress samples kept.
	boardedJobs = 10_000
	// sampleLife is how long a job's progress counts as known.
	sampleLife = 10 * time.Second
)

// jobBoard holds the newest progress of each job. It never enters the log. It is the desk's.
type jobBoard struct {
	samples map[string]sample
	// acked is the newest directive that a scheduler has acknowledged, refused the newest it could not carry out.
	acked, refused uint64
	refusal        string
}

type sample struct {
	progress *headroomv1.JobProgress
	at       time.Time
}

func newJobBoard() *jobBoard { return &jobBoard{samples: map[string]sample{}} }

// report takes in the progress of the jobs that are not finished.
func (b *jobBoard) report(jobs []*headroomv1.JobProgress, at time.Time) {
	for _, p := range jobs {
		if _, ok := b.samples[p.GetId()]; ok || len(b.samples) < boardedJobs {
			b.samples[p.GetId()] = sample{progress: p, at: at}
		}
	}
	maps.DeleteFunc(b.samples, func(_ string, s sample) bool { return at.Sub(s.at) > time.Hour })
}

// of is the newest progress of a job, nil while unknown or too old.
func (b *jobBoard) of(id string, now time.Time) *headroomv1.JobProgress {
	s, ok := b.samples[id]
	if !ok || now.Sub(s.at) > sampleLife {
		return nil
	}
	return s.progress
}

// ack takes in a scheduler's acknowledgement of a directive of the given
// leadership. Sequences begin anew with each, so another's say nothing here.
func (b *jobBoard) ack(e lease.Epoch, a *headroomv1.DirectiveAck) {
	if epochOf(a.GetEpoch()) != e {
		return
	}
	if a.GetError() != "" {
		b.refused, b.refusal = a.GetSeq(), a.GetError()
		return
	}
	b.acked = max(b.acked, a.GetSeq())
}
