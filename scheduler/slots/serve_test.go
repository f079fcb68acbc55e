// Claims: an application belongs to whoever is proven to have reported it; a standby grants nothing and refuses nothing; Await returns
// when there is a grant.
package slots

import (
	"context"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/scheduler/access"
)

// stand is a group whose owner is whoever holds the lock.
type stand struct {
	mu sync.Mutex
	*plant
}

func (s *stand) Book(_ context.Context, f func(*Book, time.Time)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.book, s.now)
	if s.book != nil {
		s.decide()
	}
	return nil
}

func (s *stand) Describe(_ context.Context, g *headroomv1.SlotGrants) error {
	g.Group = "rack/r1"
	return nil
}

func TestApplicationsAreTheirOwners(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	report := func(who string, r *headroomv1.SlotReport) {
		t.Helper()
		r.Application = own(access.Caller{Role: "submitter", Name: who}, "a")
		testkit.Check(t, p.book.Report(p.now, who, r))
		p.decide()
	}
	report("submitter/alice", &headroomv1.SlotReport{WantLow: 2})
	p.running(2)
	report("submitter/mallory", &headroomv1.SlotReport{Bye: true})
	report("submitter/mallory", &headroomv1.SlotReport{Incarnation: 2})
	p.running(2)
	if granted, _ := p.book.Grants(own(access.Caller{Name: "submitter/mallory"}, "a"), "", 0); len(granted) != 0 {
		t.Errorf("another's slots are told: %v", granted)
	}
	if in := own(access.Caller{}, "a"); in != "a" {
		t.Errorf("%q in the clear", in)
	}
}

func TestAwaitReturnsWithAGrant(t *testing.T) {
	s := &stand{plant: newPlant(t, "m1", 0)}
	service := Service{s}
	testkit.Need(service.Report(t.Context(), connect.NewRequest(&headroomv1.SlotReport{Application: "a", WantHigh: 1})))(t)
	granted := make(chan *headroomv1.SlotGrants, 1)
	go func() {
		g, err := service.Await(t.Context(), connect.NewRequest(&headroomv1.SlotAwait{Application: "a", WaitMs: 30_000}))
		if err != nil {
			t.Error(err)
			granted <- nil
			return
		}
		granted <- g.Msg
	}()
	testkit.Check(t, s.Book(t.Context(), func(*Book, time.Time) { s.join("n1", 0) }))
	if g := <-granted; len(g.GetSlots()) != 1 || !g.GetSlots()[0].GetHigh() {
		t.Errorf("%v", g)
	}
}

func TestStandbyGrantsNothing(t *testing.T) {
	s := &stand{plant: newPlant(t, "m1", 0, "n1")}
	s.book = nil
	g := testkit.Need(Service{s}.Report(t.Context(), connect.NewRequest(&headroomv1.SlotReport{Application: "a", WantLow: 1})))(t).Msg
	if g.GetActive() || len(g.GetSlots()) != 0 || g.GetGroup() != "rack/r1" {
		t.Errorf("%v", g)
	}
}
