// Claim: Apply refuses whatever would break a promise, whoever wrote it, and
// says why; a refused command leaves the state as it was, byte for byte.
package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	later := lease.Epoch{Incarnation: 1, Term: 2}
	stale := uint64(1)
	stranger, broken, lostRack := sighting("n01"), sighting("n03"), sighting("n03")
	stranger.MachineID = "another"
	broken.Floor = 0
	lostRack.Domain = "rack/none"
	for name, c := range map[string]struct {
		command ledger.Command
		want    error
	}{
		"a tick of a later leadership":         {ledger.Command{Epoch: later, Tick: &ledger.Tick{}}, ledger.ErrEpoch},
		"a tick of no leadership":              {ledger.Command{Tick: &ledger.Tick{}}, ledger.ErrEpoch},
		"a leadership that began before":       {ledger.Command{Epoch: first(), Lead: &ledger.Lead{Server: "c2"}}, ledger.ErrEpoch},
		"a second founding":                    {ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains(site(1000))}}, ledger.ErrFounded},
		"nothing":                              {ledger.Command{}, ledger.ErrUnknownCommand},
		"two things at once":                   {ledger.Command{Tick: &ledger.Tick{}, Release: &ledger.Release{}}, ledger.ErrUnknownCommand},
		"planned before nodes came":            {ledger.Command{Check: &stale, Budget: set("site/lab", 600)}, ledger.ErrConflict},
		"a raise that does not fit":            {targets("n01", 220, "n02", 220), ledger.ErrOverBudget},
		"a target below the fail-safe cap":     {targets("n01", 89), ledger.ErrTarget},
		"a target above what the node can use": {targets("n01", 221), ledger.ErrTarget},
		"a target of an unknown node":          {targets("n09", 100), ledger.ErrUnknownNode},
		"a target of a node not admitted":      {targets("new", 100), ledger.ErrNotGrantable},
		"admission of an unknown node":         {ledger.Command{Tick: &ledger.Tick{Admit: []string{"n09"}}}, ledger.ErrUnknownNode},
		"admission of one that only observes":  {ledger.Command{Tick: &ledger.Tick{Admit: []string{"plain"}}}, ledger.ErrNotGrantable},
		"a name used by another machine":       {seen(stranger), ledger.ErrIdentity},
		"a declaration that makes no sense":    {seen(broken), ledger.ErrDeclaration},
		"a node of an unknown domain":          {seen(lostRack), ledger.ErrUnknownDomain},
		"a budget of an unknown domain":        {ledger.Command{Budget: set("rack/none", 600)}, ledger.ErrUnknownDomain},
		"a budget of nothing":                  {ledger.Command{Budget: set("site/lab", 0)}, budget.ErrAmount},
		"a budget change that raises a node": {ledger.Command{Budget: &ledger.SetBudget{
			Domain: "site/lab", Budget: 900 * watt, Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}},
		}}, ledger.ErrTarget},
		"a budget change for an unknown node": {ledger.Command{Budget: &ledger.SetBudget{
			Domain: "site/lab", Budget: 900 * watt, Targets: []ledger.Target{{Node: "n09", Cap: 100 * watt}},
		}}, ledger.ErrUnknownNode},
		"the release of an unknown node":   {ledger.Command{Release: &ledger.Release{Node: "n09"}}, ledger.ErrUnknownNode},
		"the release of another machine":   {ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "another"}}, ledger.ErrIdentity},
		"a release that does not fit":      {ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}}, ledger.ErrOverBudget},
		"a job without id":                 {ledger.Command{Job: &ledger.Job{State: ledger.JobAccepted}}, ledger.ErrJob},
		"a job that has ended already":     {ledger.Command{Job: &ledger.Job{ID: "j2", State: ledger.JobDone}}, ledger.ErrJob},
		"a job file without end":           {ledger.Command{Job: &ledger.Job{ID: "j2", State: ledger.JobAccepted, Spec: make([]byte, ledger.MaxJobSpec+1)}}, ledger.ErrJob},
		"another job of the same id":       {ledger.Command{Job: &ledger.Job{ID: "j1", State: ledger.JobAccepted, Spec: []byte("other")}}, ledger.ErrJob},
		"the end of an unknown job":        {ledger.Command{Finish: &ledger.FinishJob{ID: "j9", State: ledger.JobDone}}, ledger.ErrUnknownJob},
		"an end that is none":              {ledger.Command{Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobAccepted}}, ledger.ErrJob},
		"a second, other end":              {ledger.Command{Finish: &ledger.FinishJob{ID: "over", State: ledger.JobFailed}}, ledger.ErrJob},
		"a good part before a refused one": {targets("n01", 180, "n09", 100), ledger.ErrUnknownNode},
		"a sighting before a refused target": {ledger.Command{Tick: &ledger.Tick{
			Seen: []ledger.Sighting{sighting("n03")}, Targets: []ledger.Target{{Node: "n09", Cap: watt}},
		}}, ledger.ErrUnknownNode},
		"an admission before a refused target": {ledger.Command{Tick: &ledger.Tick{
			Admit: []string{"new"}, Targets: []ledger.Target{{Node: "n09", Cap: watt}},
		}}, ledger.ErrUnknownNode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := crowded(t)
			before := snapshot(t, s)
			if c.command.Epoch == (lease.Epoch{}) && !strings.HasSuffix(name, "no leadership") {
				c.command.Epoch = first()
			}
			c.command.RequestID = "r1"
			_, err := s.Apply(c.command)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if after := snapshot(t, s); after != before {
				t.Errorf("a refused command changed the state:\n%s\n%s", before, after)
			}
		})
	}
}

// crowded is a site of 530 W with two admitted nodes at 90 W, one that waits
// for its read-back and admission (charged its rated 250 W), one that only
// observes (rated 100 W), and two jobs.
func crowded(t *testing.T) *ledger.State {
	t.Helper()
	s := admitted(t, 530, "n01", "n02")
	plain := sighting("plain")
	plain.Controlled, plain.Rated, plain.Max = false, 100*watt, 95*watt
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("new"), plain}})
	must(t, s, ledger.Command{Epoch: first(), Job: &ledger.Job{ID: "j1", State: ledger.JobAccepted, Spec: []byte("spec")}})
	must(t, s, ledger.Command{Epoch: first(), Job: &ledger.Job{ID: "over", State: ledger.JobAccepted}})
	must(t, s, ledger.Command{Epoch: first(), Finish: &ledger.FinishJob{ID: "over", State: ledger.JobDone}})
	return s
}

func set(domain string, watts units.Power) *ledger.SetBudget {
	return &ledger.SetBudget{Domain: domain, Budget: watts * watt}
}

func seen(x ledger.Sighting) ledger.Command {
	return ledger.Command{Tick: &ledger.Tick{Seen: []ledger.Sighting{x}}}
}

// targets is a tick of caps: name, watts, name, watts.
func targets(pairs ...any) ledger.Command {
	var k ledger.Tick
	for i := 0; i < len(pairs); i += 2 {
		k.Targets = append(k.Targets, ledger.Target{Node: pairs[i].(string), Cap: units.Power(pairs[i+1].(int)) * watt})
	}
	return ledger.Command{Tick: &k}
}

// Lesson 15: P5: a budget below the sum of the fail-safe caps needs force, and then drives on.
func TestFloorNeedsForce(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	cut := ledger.Command{Epoch: first(), Budget: set("site/lab", 150)}
	_, err := s.Apply(cut)
	floor, ok := errors.AsType[*ledger.FloorError](err)
	if !ok || floor.Floor != 180*watt || floor.Nodes != 2 {
		t.Fatalf("got %v, want a floor of 180 W with 2 nodes", err)
	}
	cut.Budget.Force = true
	must(t, s, cut)
	if got := s.Totals()["site/lab"].Headroom(); got != -30*watt {
		t.Errorf("headroom %v, want -30.0 W", got)
	}
	// While it is short, nothing is raised and nobody admitted.
	if _, err := s.Apply(withEpoch(targets("n01", 100))); !errors.Is(err, ledger.ErrOverBudget) {
		t.Errorf("a raise in a shortfall: %v", err)
	}
	must(t, s, withEpoch(seen(sighting("n03"))))
	if _, err := s.Apply(ledger.Command{Epoch: first(), Tick: &ledger.Tick{Admit: []string{"n03"}}}); !errors.Is(err, ledger.ErrOverBudget) {
		t.Errorf("an admission in a shortfall: %v", err)
	}
	// Raising a budget that is still below the floor needs no force.
	must(t, s, ledger.Command{Epoch: first(), Budget: set("site/lab", 170)})
}

func withEpoch(c ledger.Command) ledger.Command {
	c.Epoch = first()
	return c
}

// The same request is carried out once, whoever leads when it comes again.
func TestRequestIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	c := ledger.Command{Epoch: first(), RequestID: "r1", Budget: set("site/lab", 700)}
	one := must(t, s, c)
	must(t, s, ledger.Command{Epoch: first(), Budget: set("site/lab", 750)})
	next := lease.Epoch{Incarnation: 1, Term: 9}
	must(t, s, ledger.Command{Epoch: next, Lead: &ledger.Lead{Server: "c2"}})
	before := snapshot(t, s)
	c.Epoch = next
	two := must(t, s, c)
	if !two.Already || two.Revision != one.Revision {
		t.Errorf("again: %+v, want revision %d, already", two, one.Revision)
	}
	if snapshot(t, s) != before {
		t.Error("the second time changed the state")
	}
	if got := s.Domains["site/lab"].Budget; got != 750*watt {
		t.Errorf("budget %v, want the newer 750.0 W", got)
	}
	same := ledger.Command{Epoch: next, Job: &ledger.Job{ID: "j1", State: ledger.JobAccepted, Spec: []byte("x")}}
	must(t, s, same)
	before = snapshot(t, s)
	must(t, s, same) // a scheduler asks again without a key
	if snapshot(t, s) != before {
		t.Error("the same job twice changed the state")
	}
}

// A refused command forgets no line of a full audit log, and leaves none of its own.
func TestRefusalKeepsFullAuditLog(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	for i := range 1100 {
		must(t, s, ledger.Command{Epoch: first(), Budget: set("site/lab", units.Power(800+i%2))})
	}
	before := snapshot(t, s)
	c := seen(sighting("n02"))
	c.Tick.Targets = []ledger.Target{{Node: "none", Cap: watt}}
	if _, err := s.Apply(withEpoch(c)); err == nil {
		t.Fatal("not refused")
	}
	if snapshot(t, s) != before {
		t.Errorf("the audit log changed")
	}
}

// What is kept is bounded, however long a cluster runs.
func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	for i := range 1500 {
		id := fmt.Sprintf("j%04d", i)
		must(t, s, ledger.Command{Epoch: first(), RequestID: id, Job: &ledger.Job{ID: id, Submitted: int64(i), State: ledger.JobAccepted}})
		must(t, s, ledger.Command{Epoch: first(), Finish: &ledger.FinishJob{ID: id, State: ledger.JobDone}})
	}
	if len(s.Events) > 1000 || len(s.Requests) > 1000 || len(s.Jobs) > 501 {
		t.Errorf("kept %d events, %d requests, %d jobs", len(s.Events), len(s.Requests), len(s.Jobs))
	}
	for i := range 100 {
		tick(t, s, target(units.Power(100+i%20)))
	}
	if n := s.Nodes["n01"]; len(n.Pending) > 16 {
		t.Errorf("kept %d pending targets", len(n.Pending))
	}
}

// P1: a node that claims to draw without measure is charged for it and cannot
// make the sums run over, which would look like room.
func TestAbsurdReadBackLeavesNoRoom(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02", "n03")
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{
		{Node: "n01", Process: process, Number: 9, Seq: 1, Effective: math.MaxInt64, Stored: 90 * watt},
		{Node: "n02", Process: process, Number: 9, Seq: 1, Effective: math.MaxInt64, Stored: math.MaxInt64},
	}})
	if got := s.Totals()["site/lab"].Headroom(); got >= 0 {
		t.Errorf("headroom %v", got)
	}
	if _, err := s.Apply(withEpoch(targets("n03", 100))); !errors.Is(err, ledger.ErrOverBudget) {
		t.Errorf("a raise beside it: %v", err)
	}
}

// So is one that was never admitted. Its read-back may be one that an earlier
// process sent before the release, and that comes only now: it proves nothing.
func TestReleaseOfOneThatWaits(t *testing.T) {
	t.Parallel()
	s := founded(t, site(800))
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}, Acks: reads("n01", 1, 0, 90).Acks})
	do(t, s, ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}})
	earlier := sighting("n01")
	earlier.Process++
	late := reads("n01", 1, 0, 90).Acks
	late[0].Process++
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{earlier}, Acks: late})
	wantCharge(t, s, 250, "nobody has taken a lease since the release")
	late[0].Number, late[0].Seq = 2, s.Nodes["n01"].Seq
	tick(t, s, ledger.Tick{Acks: late})
	wantCharge(t, s, 90, "it is alive")
}

// P6: a released node is charged its rated watts until its next process has taken a lease and read back.
func TestReleaseChargesRated(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	must(t, s, ledger.Command{Epoch: first(), Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}})
	if got := s.Nodes["n01"].Charge(); got != 250*watt {
		t.Errorf("released: charged %v, want its rated 250.0 W", got)
	}
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: process, Number: 9, Effective: 90 * watt, Stored: 90 * watt}}})
	if got := s.Nodes["n01"].Charge(); got != 250*watt {
		t.Errorf("a late read-back of the released process: charged %v, want 250.0 W", got)
	}
	back := sighting("n01")
	back.Process = 78
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{back}})
	if n := s.Nodes["n01"]; n.Charge() != 250*watt || n.Released || n.Target != 90*watt {
		t.Errorf("came back: %+v", n)
	}
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 78, Number: 1, Seq: 2, Effective: 90 * watt, Stored: 90 * watt}}})
	if got := s.Nodes["n01"].Charge(); got != 90*watt {
		t.Errorf("read back: charged %v, want 90.0 W", got)
	}
}
