// Claims: a domain that is lost whole is one critical alarm; the begins and ends of alarms are remembered; a cause stands above its consequence; nodes without power or with a certificate that expires soon are
// alarms; power above what is charged is an alarm though a node is unknown; a job that ended below its quality floor is an alarm for a day; one that has not
// ended by its deadline is one until it ends.
package alarms

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/view"
	"headroom/ledger"
)

func TestEndBelowTheFloorIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"below": {Done: 29, Ended: now.Add(-23 * time.Hour).UnixMicro()}, "at": {Done: 30, Ended: now.UnixMicro()}, "long ago": {Done: 1, Ended: now.Add(-25 * time.Hour).UnixMicro()},
	} {
		j.ID, j.State, j.Floor, j.Tasks = id, ledger.JobDone, 0.75, 40
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].Key() != "quality-floor/below" || got[0].Severity != Fail || !strings.Contains(got[0].Text, "29 of 40 tasks, its quality floor is 30") {
		t.Errorf("alarms %+v", got)
	}
}

func TestMissedDeadlineIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"late": {State: ledger.JobAccepted, Deadline: time.Minute}, "in time": {State: ledger.JobAccepted, Deadline: time.Hour}, "none": {State: ledger.JobAccepted},
		"over": {State: ledger.JobDone, Deadline: time.Minute},
	} {
		j.ID, j.Submitted = id, now.Add(-10*time.Minute).UnixMicro()
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].Key() != "deadline-missed/late" || got[0].Severity != Warn || !strings.Contains(got[0].Text, "its deadline (1m00s after submission) passed 9m00s ago") {
		t.Errorf("alarms %+v", got)
	}
}

func TestCauseStandsAboveItsConsequence(t *testing.T) {
	t.Parallel()
	all := []Alarm{{Code: "measured-above-reserved", Severity: Fail}, {Code: "group-even", Severity: Warn}, {Code: "limit-drift", Severity: Warn}, {Code: "outgrown", Severity: Fail}}
	sortAlarms(all)
	var got []string
	for _, a := range all {
		got = append(got, a.Code)
	}
	if want := "limit-drift outgrown measured-above-reserved group-even"; strings.Join(got, " ") != want {
		t.Errorf("sorted %v, want %s", got, want)
	}
}

// A node whose limits do not bind takes watts from the others: it stands above the shortfall that it causes.
func TestUnboundLimitIsTheCauseOfAShortfall(t *testing.T) {
	t.Parallel()
	domains := []*headroomv1.Domain{{Name: "rack/r1", HeadroomUw: -40e6, ReservedUw: 740e6, BudgetUw: 700e6}}
	nodes := []*headroomv1.Node{{Name: "n01", Domain: "rack/r1", State: view.StateOK, Health: []*headroomv1.HealthItem{{Code: "limit-unbound", Severity: Fail, Text: "the node draws 400.0 W", Hint: "drain the node"}}}}
	got := Of(ledger.New(), domains, nodes, nil)
	if len(got) != 2 || got[0].Key() != "limit-unbound/n01" || got[0].Severity != Fail || got[0].Text != "n01: the node draws 400.0 W" || got[1].Key() != "shortfall/rack/r1" {
		t.Errorf("alarms %+v", got)
	}
}

func TestNodeAlarms(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, n := range map[string]*headroomv1.Node{
		"":                 {Name: "n1", State: "ok", HeardMs: new(int64(100)), PowerUw: new(int64(1)), CertificateEndsUs: new(now.Add(CertificateSoon + time.Minute).UnixMicro())},
		"node-lost/n1":     {Name: "n1", State: "lost", HeardMs: new(int64(9000))},
		"power-unknown/n1": {Name: "n1", State: "observing", HeardMs: new(int64(100)), StateSinceUs: new(now.Add(-view.StaleReport).UnixMicro())},
		"cert-expires/n1":  {Name: "n1", State: "ok", HeardMs: new(int64(100)), PowerUw: new(int64(1)), CertificateEndsUs: new(now.Add(CertificateSoon - time.Minute).UnixMicro())},
	} {
		got := nodeAlarms(n, now)
		if len(got) > 1 || len(got) == 0 && want != "" || len(got) == 1 && (got[0].Key() != want || got[0].Hint == "") {
			t.Errorf("%v, want %q", got, want)
		}
	}
}

// The alarm of a certificate outlives its end, and a node that is lost for it says so.
func TestExpiredCertificateIsNamed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ended := now.Add(-3 * time.Minute).UnixMicro()
	got := nodeAlarms(&headroomv1.Node{Name: "n1", State: "lost", HeardMs: new(int64(200_000)), CertificateEndsUs: &ended}, now)
	if len(got) != 2 || got[0].Key() != "node-lost/n1" || got[1].Key() != "cert-expires/n1" {
		t.Fatalf("alarms %v", got)
	}
	for i, want := range []string{"its certificate expired at", "expired 3m00s ago, at"} {
		if !strings.Contains(got[i].Text, want) || !strings.Contains(got[i].Hint, "tls cert create node/n1") {
			t.Errorf("%s: %q, hint %q, want %q", got[i].Key(), got[i].Text, got[i].Hint, want)
		}
	}
	if off := nodeAlarms(&headroomv1.Node{Name: "n1", State: "off", CertificateEndsUs: &ended}, now); len(off) != 0 {
		t.Errorf("a machine that is off: %v", off)
	}
}

func TestLowerBoundAboveTheCharge(t *testing.T) {
	t.Parallel()
	d := &headroomv1.Domain{Name: "rack/r1", ReservedUw: 100e6, UnmanagedUw: 40e6, UnmeteredUw: 40e6, PowerKnownUw: new(int64(101e6)), PowerUnknownNodes: new(uint32(1))}
	got := domainAlarms([]*headroomv1.Domain{d})
	if len(got) != 1 || got[0].Text != "rack/r1 draws at least 101.0 W (power of 1 node unknown), but only 100.0 W is charged" {
		t.Errorf("alarms %v", got)
	}
	d.PowerKnownUw = new(int64(100e6))
	if got := domainAlarms([]*headroomv1.Domain{d}); len(got) != 0 {
		t.Errorf("alarms %v", got)
	}
}

func TestDomainLostIsOneAlarm(t *testing.T) {
	t.Parallel()
	domains := []*headroomv1.Domain{{Name: "site/lab"}, {Name: "rack/r1", Parent: "site/lab"}, {Name: "rack/r2", Parent: "site/lab"}, {Name: "rack/r3", Parent: "site/lab"}}
	var nodes []*headroomv1.Node
	for i := range 60 {
		nodes = append(nodes, &headroomv1.Node{Name: fmt.Sprintf("n%02d", i+1), Domain: "rack/r1", State: view.StateLost, ChargeUw: 190e6})
	}
	nodes = append(nodes,
		&headroomv1.Node{Name: "n61", Domain: "rack/r1", State: view.StateOff}, &headroomv1.Node{Name: "n62", Domain: "rack/r3", State: view.StateLost},
		&headroomv1.Node{Name: "n63", Domain: "rack/r2", State: view.StateOK})
	var got []string
	for _, a := range Of(ledger.New(), domains, nodes, nil) {
		got = append(got, a.Severity+" "+a.Key()+": "+a.Text)
	}
	want := "fail domain-lost/rack/r1: all 60 nodes of rack/r1 are lost, charged 11400.0 W: n[01-60]"
	if len(got) != 2 || got[0] != want || !strings.HasPrefix(got[1], "warn node-lost/n62: ") {
		t.Errorf("alarms %q, want %q and node-lost of n62", got, want)
	}
	nodes[len(nodes)-1].State = view.StateLost
	if all := Of(ledger.New(), domains, nodes, nil); len(all) != 1 || all[0].Key() != "domain-lost/site/lab" {
		t.Errorf("alarms %+v, want one of the whole site", all)
	}
}

func TestTurnsAreRemembered(t *testing.T) {
	t.Parallel()
	tracker, now := NewTracker(), time.Now()
	lost := New("node-lost", Warn, "n1", "n1 is lost", "")
	tracker.Look([]Alarm{lost, lost}, now, 4)
	tracker.Look([]Alarm{lost}, now.Add(time.Second), 5)
	tracker.Look(nil, now.Add(2*time.Second), 6)
	want := []Turn{{"alarm node-lost/n1 began", "n1 is lost", now, 4}, {"alarm node-lost/n1 ended", "", now.Add(2 * time.Second), 6}}
	if got := tracker.Turns(); !slices.Equal(got, want) {
		t.Errorf("turns %+v, want %+v", got, want)
	}
	for i := range 2 * turnsMost {
		tracker.Look([]Alarm{New("node-lost", Warn, fmt.Sprint(i), "", "")}, now, 7)
	}
	if n := len(tracker.Turns()); n != turnsMost {
		t.Errorf("%d turns are remembered, at most %d may be", n, turnsMost)
	}
}
