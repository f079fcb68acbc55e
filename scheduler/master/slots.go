package master

import (
	"context"
	"fmt"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/scheduler/slots"
)

// open begins a book of the slots that frameworks ask for.
func (g *group) open(now time.Time) {
	g.slots = slots.NewBook(fmt.Sprintf("%s-%x", g.cfg.Name, now.UnixNano()), granter{g})
}

// granter grants slots of the group's workers: a wish is a task that no worker is told of.
type granter struct{ *group }

// Wish puts a wish into the queue of its priority.
func (g granter) Wish(s *slots.Slot) bool {
	t := &task{slot: s, high: s.High}
	id, ok := g.core.Place(t, s.High)
	t.id, s.Ref = id, id
	return ok
}

// Withdraw takes a waiting wish back.
func (g granter) Withdraw(s *slots.Slot) { g.core.Cancel(s.Ref) }

// Adopt occupies a slot that was granted before, by this master or another one of the group.
func (g granter) Adopt(s *slots.Slot) bool {
	n := g.nodes[s.Node]
	if n.running >= n.slots {
		return false
	}
	t := &task{slot: s, high: s.High}
	g.adopt(n, t)
	s.Ref = t.id
	return true
}

// Key returns the key of the worker on a node.
func (g granter) Key(node string) (key []byte, connected bool) {
	n := g.nodes[node]
	if n == nil || n.session == nil {
		return nil, false
	}
	return n.grants, true
}

// Size returns the slots of all workers.
func (g granter) Size() (slots int) {
	for _, n := range g.nodes {
		slots += n.slots
	}
	return slots
}

// Release frees a granted slot.
func (g granter) Release(s *slots.Slot) {
	if t, ok := g.core.End(s.Ref); ok {
		t.on.running--
	}
}

// frameworks is the group as SlotService needs it.
type frameworks struct{ *Master }

// Book runs f in the owner's goroutine; the owner decides after each event.
func (m frameworks) Book(ctx context.Context, f func(*slots.Book, time.Time)) error {
	_, err := ask(ctx, m.Master, func(g *group) struct{} {
		f(g.slots, time.Now())
		return struct{}{}
	})
	return err
}

// Describe states who answers.
func (m frameworks) Describe(ctx context.Context, d *headroomv1.SlotGrants) error {
	usable, err := ask(ctx, m.Master, func(g *group) int { return g.core.State().Usable })
	d.Group, d.Master, d.Usable = m.cfg.Group, m.cfg.Name, uint32(usable)
	return err
}
