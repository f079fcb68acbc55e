package faults

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// change is one request of an operator, sent again under its key until it is answered.
type change struct {
	id       string
	watts    float64
	call     time.Time
	ret      time.Time // zero while no answer has come
	revision uint64
}

// read is one answered question for the budget.
type read struct {
	watts     float64
	call, ret time.Time
}

// history holds the operators' requests and the answers.
type history struct {
	mu      sync.Mutex
	first   float64
	changes []*change
	reads   []read
}

// begin notes that a change is about to be sent.
func (h *history) begin(id string, watts float64) *change {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &change{id: id, watts: watts, call: time.Now()}
	h.changes = append(h.changes, x)
	return x
}

// answered notes the acknowledgement of a change.
func (h *history) answered(x *change, revision uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.ret, x.revision = time.Now(), revision
}

func (h *history) read(watts float64, call time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = append(h.reads, read{watts: watts, call: call, ret: time.Now()})
}

// most is the highest budget that may have been in force at any moment from since until
// now: a change counts from its first sending, until a later one was acknowledged.
func (h *history) most(since time.Time) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := func(end time.Time) bool { // replaced before since
		return !end.IsZero() && slices.ContainsFunc(h.changes, func(y *change) bool {
			return y.call.After(end) && !y.ret.IsZero() && y.ret.Before(since)
		})
	}
	most := 0.0
	if !slices.ContainsFunc(h.changes, func(y *change) bool { return !y.ret.IsZero() && y.ret.Before(since) }) {
		most = h.first
	}
	for _, x := range h.changes {
		if !over(x.ret) {
			most = max(most, x.watts)
		}
	}
	return most
}

// question of the register: a change to watts, or a read.
type question struct {
	isRead bool
	watts  float64
}

// linearMost bounds the search for an order.
const linearMost = 30 * time.Second

// linear checks that there is one order of all changes and reads, each between its
// sending and its answer, in which every read finds the change before it. A change
// without an answer may come at any time.
func (h *history) linear() (checked int, wrong string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ops []porcupine.Operation
	for i, x := range h.changes {
		end := int64(math.MaxInt64)
		if !x.ret.IsZero() {
			end = x.ret.UnixNano()
		}
		ops = append(ops, porcupine.Operation{ClientId: i, Input: question{watts: x.watts}, Call: x.call.UnixNano(), Return: end})
	}
	for i, r := range h.reads {
		ops = append(ops, porcupine.Operation{
			ClientId: len(h.changes) + i, Input: question{isRead: true}, Output: r.watts,
			Call: r.call.UnixNano(), Return: r.ret.UnixNano(),
		})
	}
	model := porcupine.Model{
		Init: func() any { return h.first },
		Step: func(state, input, output any) (bool, any) {
			q, _ := input.(question)
			if q.isRead {
				return state == output, state
			}
			return true, q.watts
		},
	}
	switch porcupine.CheckOperationsTimeout(model, ops, linearMost) {
	case porcupine.Illegal:
		return len(ops), fmt.Sprintf("not linearizable: no order explains %d changes and %d reads of the budget", len(h.changes), len(h.reads))
	case porcupine.Ok:
		return len(ops), ""
	default: // the search took too long
		return 0, ""
	}
}

// event is a row of the audit log.
type event struct {
	Revision  uint64 `json:"revision"`
	Reason    string `json:"reason"`
	RequestID string `json:"request_id"`
}

// record is a row of the history of budgets.
type record struct {
	Revision uint64  `json:"revision"`
	FromW    float64 `json:"from_w"`
	ToW      float64 `json:"to_w"`
	Reason   string  `json:"reason"`
}

// audited checks that each acknowledged change stands in the audit log and in the
// history of budgets exactly once, as it was requested and under its revision, and
// that both name no unrequested change.
func (h *history) audited(events []event, records []record) (checked int, wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := map[string]*change{}
	for _, x := range h.changes {
		asked[x.id] = x
	}
	count := map[string]int{}
	for _, e := range events {
		count[e.RequestID]++
	}
	recorded := map[string]int{}
	for _, r := range records {
		recorded[r.Reason]++
		x := asked[r.Reason]
		switch {
		case x == nil:
			wrong = append(wrong, fmt.Sprintf("revision %d set the budget to %g W without a request (reason %q)", r.Revision, r.ToW, r.Reason))
		case r.ToW != x.watts:
			wrong = append(wrong, fmt.Sprintf("change %s requested %g W, but the audit log has %g W", x.id, x.watts, r.ToW))
		case x.revision != 0 && r.Revision != x.revision:
			wrong = append(wrong, fmt.Sprintf("change %s was acknowledged as revision %d, but the audit log has %d", x.id, x.revision, r.Revision))
		}
	}
	for _, x := range h.changes {
		if x.ret.IsZero() {
			continue
		}
		checked++
		if count[x.id] != 1 || recorded[x.id] != 1 {
			wrong = append(wrong, fmt.Sprintf("acknowledged change %s is %d times in the audit log and %d times in the budget history", x.id, count[x.id], recorded[x.id]))
		}
	}
	slices.SortFunc(records, func(a, b record) int { return int(a.Revision) - int(b.Revision) })
	for i, r := range records {
		if i > 0 && r.FromW != records[i-1].ToW {
			wrong = append(wrong, fmt.Sprintf("revision %d changed the budget from %g W, but the revision before set %g W", r.Revision, r.FromW, records[i-1].ToW))
		}
	}
	return checked, wrong
}
