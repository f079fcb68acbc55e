package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

const w = units.Watt

func testHub() *hub { return newHub("c1", slog.New(slog.DiscardHandler)) }

// Lesson 18: a node that does not read loses the oldest messages, never the newest,
// and holds nobody up.
func TestMailboxDropsTheOldest(t *testing.T) {
	t.Parallel()
	h := testHub()
	s, _ := h.join(origin{node: "n1", machine: "m1"})
	for i := range uint64(3 * mailbox) {
		h.grant(ledger.NodeGrant{Node: "n1", Grant: lease.Grant{Heartbeat: i + 1, Cap: w, Duration: time.Second}})
	}
	h.grant(ledger.NodeGrant{Node: "nobody"})
	want := uint64(2*mailbox + 1)
	for range mailbox {
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
	h := testHub()
	who := origin{node: "n1", machine: "m1", boot: "b1", process: 1}
	old, _ := h.join(who)
	again, _ := h.join(who)
	if !h.touch(old) || !h.touch(again) {
		t.Error("a second stream of one process silences the first")
	}
	who.process = 2
	next, _ := h.join(who)
	if h.touch(old) || h.touch(again) || !h.touch(next) {
		t.Error("streams of an earlier process still count")
	}
	h.leave(old)
	h.leave(again)
	if h.nodes["n1"] != next {
		t.Error("the newest stream is gone")
	}
	who.machine = "m2"
	if s, by := h.join(who); s != nil || by == "" {
		t.Error("another machine took the name")
	}
	h.leave(next)
	if s, _ := h.join(who); s == nil {
		t.Error("a name that nobody uses was refused")
	}
}

func directiveOf(t *testing.T, s *schedulerStream) *headroomv1.Directive {
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
	h := testHub()
	first := lease.Epoch{Incarnation: 1, Term: 3}
	s := h.enlist("s1")
	h.lead(first)
	h.direct(first, []leader.Cap{{Node: "a", Cap: 100 * w}, {Node: "b", Cap: 90 * w}})
	h.direct(first, []leader.Cap{{Node: "a", Cap: 80 * w}})
	for i, want := range []units.Power{100 * w, 90 * w, 80 * w} {
		d := directiveOf(t, s)
		if d.GetSeq() != uint64(i+1) || d.GetEpoch().GetTerm() != 3 || d.GetCap().GetCapUw() != int64(want) {
			t.Errorf("directive %d is %v", i+1, d)
		}
	}
	late := h.enlist("s2")
	for i, want := range []units.Power{80 * w, 90 * w} {
		if d := directiveOf(t, late); d.GetSeq() != uint64(4+i) || d.GetCap().GetCapUw() != int64(want) {
			t.Errorf("the late scheduler got %v", d)
		}
	}
	h.lead(lease.Epoch{Incarnation: 1, Term: 4})
	h.direct(first, []leader.Cap{{Node: "a", Cap: 300 * w}})
	h.direct(lease.Epoch{Incarnation: 1, Term: 4}, []leader.Cap{{Node: "b", Cap: 70 * w}})
	if d := directiveOf(t, s); d.GetSeq() != 1 || d.GetCap().GetNode() != "b" {
		t.Errorf("the new leadership began with %v", d)
	}
}

// A scheduler that opens a stream to the leader of the largest cluster loses no cap.
func TestEnlistHoldsTheLargestCluster(t *testing.T) {
	t.Parallel()
	h := testHub()
	e := lease.Epoch{Incarnation: 1, Term: 1}
	h.lead(e)
	var caps []leader.Cap
	for i := range ledger.MaxNodes {
		caps = append(caps, leader.Cap{Node: fmt.Sprintf("n%05d", i), Cap: w})
	}
	h.direct(e, caps)
	s := h.enlist("s1")
	if got := len(s.box); got != ledger.MaxNodes+1 {
		t.Errorf("%d messages, want %d caps and who leads", got, ledger.MaxNodes)
	}
}

// An acknowledgement of another leadership says nothing about this one's directives.
func TestAcknowledgementsOfThisLeadership(t *testing.T) {
	t.Parallel()
	b, e := newJobBoard(), lease.Epoch{Incarnation: 1, Term: 4}
	b.ack(e, &headroomv1.DirectiveAck{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 3}, Seq: 500}, "")
	b.ack(e, &headroomv1.DirectiveAck{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 4}, Seq: 2, Error: "no such node"}, "")
	if b.acked != 0 || b.refused != 2 {
		t.Errorf("acknowledged %d, refused %d", b.acked, b.refused)
	}
}

// Every refusal tells the operator what was wrong, with a code, an exit code and
// a way out; and what certainly changed nothing never says that it is unknown.
func TestEveryRefusalHasAWayOut(t *testing.T) {
	t.Parallel()
	s := &server{logger: slog.New(slog.DiscardHandler)}
	type want struct {
		code string
		exit int
	}
	for name, c := range map[string]struct {
		err  error
		want want
	}{
		"floor":                        {&ledger.FloorError{Domain: "site/lab", Budget: w, Floor: 2 * w}, want{"infeasible", cli.ExitRefused}},
		"conflict":                     {&ledger.ConflictError{Planned: 1, Now: 2}, want{"conflict", cli.ExitConflict}},
		"over budget":                  {&ledger.OverBudgetError{Domain: "site/lab"}, want{"over-budget", cli.ExitRefused}},
		"domain":                       {ledger.ErrUnknownDomain, want{"unknown-domain", cli.ExitUsage}},
		"node":                         {ledger.ErrUnknownNode, want{"unknown-node", cli.ExitUsage}},
		"job":                          {ledger.ErrUnknownJob, want{"unknown-job", cli.ExitUsage}},
		"job differs":                  {ledger.ErrJob, want{"bad-job", cli.ExitConflict}},
		"identity":                     {ledger.ErrIdentity, want{"name-taken", cli.ExitConflict}},
		"target":                       {ledger.ErrTarget, want{"moved", cli.ExitConflict}},
		"not grantable":                {ledger.ErrNotGrantable, want{"moved", cli.ExitConflict}},
		"epoch":                        {ledger.ErrEpoch, want{"no-leader", cli.ExitUnreachable}},
		"not founded":                  {ledger.ErrNotFounded, want{"not-founded", cli.ExitUnreachable}},
		"full":                         {ledger.ErrFull, want{"full", cli.ExitRefused}},
		"zero budget":                  {budget.ErrAmount, want{"usage", cli.ExitUsage}},
		"too large":                    {consensus.ErrTooLarge, want{"too-large", cli.ExitUsage}},
		"busy":                         {consensus.ErrBusy, want{"busy", cli.ExitUnreachable}},
		"any other that Apply refused": {ledger.ErrDeclaration, want{"refused", cli.ExitRefused}},
	} {
		got := rpc.AsCLI(s.refuse(fmt.Errorf("ledger: %w", leader.RefusedError{Err: c.err})), "test", "addr")
		if got.Code != c.want.code || got.Exit != c.want.exit || got.Hint == "" || got.Message == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := rpc.AsCLI(s.refuse(consensus.ErrUnknownOutcome), "test", "addr")
	if got.Exit != cli.ExitUnknown || got.Hint == "" {
		t.Errorf("unknown outcome: %+v", got)
	}
	for _, r := range refusals() {
		if r.code == 0 || r.short == "" || r.exit == 0 || r.hint == "" {
			t.Errorf("rule for %v is not complete: %+v", r.when, r)
		}
	}
	if errors.Is(leader.RefusedError{Err: ledger.ErrFull}, ledger.ErrFounded) {
		t.Error("errors are mixed up")
	}
	if c := connect.CodeOf(nameTaken("n1", "m2")); c != connect.CodeAlreadyExists {
		t.Errorf("name taken is %v", c)
	}
}
