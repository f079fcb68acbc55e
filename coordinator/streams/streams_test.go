// Claims: nobody who sends waits, and the newest messages are kept; one machine has a name at
// a time; directives are numbered within a leadership, told once, and told again to whoever
// connects later; those of a leadership that is over are told to nobody.
package streams

import (
	"fmt"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// Lesson 18: a node that does not read loses the oldest messages, never the newest,
// and holds nobody up.
func TestMailboxDropsTheOldest(t *testing.T) {
	t.Parallel()
	h := New("c1")
	s, _ := h.Nodes.Open(Origin{Node: "n1", Machine: "m1"})
	for i := range uint64(3 * nodeBox) {
		h.Nodes.Grant(ledger.NodeGrant{Node: "n1", Grant: lease.Grant{Heartbeat: i + 1, Cap: units.Watt, Duration: time.Second}})
	}
	h.Nodes.Grant(ledger.NodeGrant{Node: "nobody"})
	want := uint64(2*nodeBox + 1)
	for range nodeBox {
		if got := (<-s.box).GetLease().GetHeartbeat(); got != want {
			t.Fatalf("heartbeat %d, want %d", got, want)
		}
		want++
	}
	if len(s.box) != 0 {
		t.Errorf("%d more messages", len(s.box))
	}
}

// A stream of the same boot replaces an older one; leaving the older one then
// takes nothing from the newer.
func TestStreamIsReplaced(t *testing.T) {
	t.Parallel()
	h := New("c1")
	who := Origin{Node: "n1", Machine: "m1", Boot: "b1", Process: 1}
	old, _ := h.Nodes.Open(who)
	again, _ := h.Nodes.Open(who)
	if !h.Nodes.Touch(old) || !h.Nodes.Touch(again) {
		t.Error("a second stream of one process silences the first")
	}
	who.Process = 2
	next, _ := h.Nodes.Open(who)
	if h.Nodes.Touch(old) || h.Nodes.Touch(again) || !h.Nodes.Touch(next) {
		t.Error("streams of an earlier process still count")
	}
	h.Nodes.Close(old)
	h.Nodes.Close(again)
	if h.Nodes.open["n1"] != next {
		t.Error("the newest stream is gone")
	}
	who.Machine = "m2"
	if s, by := h.Nodes.Open(who); s != nil || by == "" {
		t.Error("another machine took the name")
	}
	h.Nodes.Close(next)
	if s, _ := h.Nodes.Open(who); s == nil {
		t.Error("a name that nobody uses was refused")
	}
}

func directiveOf(t *testing.T, s *Scheduler) *headroomv1.Directive {
	t.Helper()
	for {
		select {
		case m := <-s.box:
			if d := m.GetDirective(); d != nil {
				return d
			}
		default:
			t.Fatal("no directive")
		}
	}
}

// Directives count 1, 2, 3 ... within one leadership and begin anew with the
// next; a scheduler that opens a stream later is told every cap in force, under
// numbers of its own; another leadership's caps are told to nobody.
func TestDirectivesAreNumbered(t *testing.T) {
	t.Parallel()
	h := New("c1")
	first := lease.Epoch{Incarnation: 1, Term: 3}
	s := h.Schedulers.Open()
	h.Lead(first)
	h.Schedulers.PushCaps(first, []leader.Cap{{Node: "a", Cap: 100 * units.Watt}, {Node: "b", Cap: 90 * units.Watt}})
	h.Schedulers.PushCaps(first, []leader.Cap{{Node: "a", Cap: 80 * units.Watt}})
	for i, want := range []units.Power{100 * units.Watt, 90 * units.Watt, 80 * units.Watt} {
		d := directiveOf(t, s)
		if d.GetSeq() != uint64(i+1) || d.GetEpoch().GetTerm() != 3 || d.GetCap().GetCapUw() != int64(want) {
			t.Errorf("directive %d is %v", i+1, d)
		}
	}
	late := h.Schedulers.Open()
	for i, want := range []units.Power{80 * units.Watt, 90 * units.Watt} {
		if d := directiveOf(t, late); d.GetSeq() != uint64(4+i) || d.GetCap().GetCapUw() != int64(want) {
			t.Errorf("the late scheduler got %v", d)
		}
	}
	h.Lead(lease.Epoch{Incarnation: 1, Term: 4})
	h.Schedulers.PushCaps(first, []leader.Cap{{Node: "a", Cap: 300 * units.Watt}})
	h.Schedulers.PushCaps(lease.Epoch{Incarnation: 1, Term: 4}, []leader.Cap{{Node: "b", Cap: 70 * units.Watt}})
	if d := directiveOf(t, s); d.GetSeq() != 1 || d.GetCap().GetNode() != "b" {
		t.Errorf("the new leadership began with %v", d)
	}
}

// A scheduler that opens a stream to the leader of the largest cluster loses no cap.
func TestOpenHoldsTheLargestCluster(t *testing.T) {
	t.Parallel()
	h := New("c1")
	e := lease.Epoch{Incarnation: 1, Term: 1}
	h.Lead(e)
	var caps []leader.Cap
	for i := range ledger.MaxNodes {
		caps = append(caps, leader.Cap{Node: fmt.Sprintf("n%05d", i), Cap: units.Watt})
	}
	h.Schedulers.PushCaps(e, caps)
	s := h.Schedulers.Open()
	if got := len(s.box); got != ledger.MaxNodes+1 {
		t.Errorf("%d messages, want %d caps and who leads", got, ledger.MaxNodes)
	}
}

// Orders are numbered with the caps; a scheduler that comes later is told those in
// force, under numbers of its own; those of another leadership are told to nobody,
// and what is over to nobody either.
func TestOrdersAreNumbered(t *testing.T) {
	t.Parallel()
	h := New("c1")
	first := lease.Epoch{Incarnation: 1, Term: 3}
	s := h.Schedulers.Open()
	h.Lead(first)
	share := Order{Subject: "the shares of yarn", Reason: "twelve", Share: &headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: "j1", Containers: 12}}}}
	stop := Order{Subject: "the early stop of j1", Reason: "late", Stop: &headroomv1.StopDirective{Id: "j1", Tasks: 40, MinTasks: 30}}
	h.Schedulers.PushCaps(first, []leader.Cap{{Node: "a", Cap: 100 * units.Watt}})
	h.Schedulers.PushOrders(first, []Order{share, stop})
	for i, want := range []string{"cap", "twelve", "late"} {
		if d := directiveOf(t, s); d.GetSeq() != uint64(i+1) || d.GetEpoch().GetTerm() != 3 || !strings.Contains(d.GetReason(), want) {
			t.Errorf("directive %d is %v", i+1, d)
		}
	}
	for seq, want := range map[uint64]string{1: "", 2: share.Subject, 3: stop.Subject, 9: ""} {
		if got, newest := h.Schedulers.Subject(seq); got != want || !newest {
			t.Errorf("directive %d is about %q, newest %v; want %q", seq, got, newest, want)
		}
	}
	late := h.Schedulers.Open()
	directiveOf(t, late)
	if d := directiveOf(t, late); d.GetSeq() != 5 || d.GetStop().GetMinTasks() != 30 {
		t.Errorf("the late scheduler got %v", d)
	}
	if d := directiveOf(t, late); d.GetSeq() != 6 || d.GetShare().GetJobs()[0].GetContainers() != 12 {
		t.Errorf("the late scheduler got %v", d)
	}
	h.Schedulers.DropOrders(func(subject string) bool { return subject == stop.Subject })
	later := h.Schedulers.Open()
	directiveOf(t, later)
	if d := directiveOf(t, later); d.GetShare() == nil || len(later.box) != 0 {
		t.Errorf("the third scheduler got %v and %d more", d, len(later.box))
	}
	h.Lead(lease.Epoch{Incarnation: 1, Term: 4})
	h.Schedulers.PushOrders(first, []Order{share}) // of a leadership that is over
	if m := <-h.Schedulers.Open().box; m.GetLeader() == nil || len(h.Schedulers.orders) != 0 {
		t.Errorf("the new leadership began with %v and %v", m, h.Schedulers.orders)
	}
}
