// Claim (P7, P8): what nobody measured of a sprint counts at its watts until a read-back,
// through changes of the leader and whatever the wall clocks show.
package ledger_test

import (
	"testing"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// begin begins another leadership at a wall clock, with a gap that its server has measured.
func begin(t *testing.T, s *ledger.State, wall time.Time, gap time.Duration) {
	t.Helper()
	e := lease.Epoch{Incarnation: s.Epoch.Incarnation, Term: s.Epoch.Term + 1}
	must(t, s, ledger.Command{Epoch: e, At: wall.UnixMicro(), Lead: &ledger.Lead{Server: "c2", Gap: gap}})
}

// killed grants a sprint of 110 W above the base for 10 s; powerd of n01 is killed in it.
// What pass lets go by, the hardware stays at 200 W; then another process reads back 90 W.
func killed(t *testing.T, pass func(s *ledger.State, wall time.Time)) *ledger.State {
	t.Helper()
	s := full(t)
	wall := at("2026-11-22T12:00:00Z")
	do(t, s, ledger.Command{At: wall.UnixMicro(), Tick: &ledger.Tick{Elapsed: second}})
	do(t, s, sprint("s1", "n01"))
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1", Why: "time"}})
	pass(s, wall)
	again := sighting("n01")
	again.Process = 900
	do(t, s, ledger.Command{At: s.Ticked, Tick: &ledger.Tick{Seen: []ledger.Sighting{again}}})
	n := s.Nodes["n01"]
	do(t, s, ledger.Command{At: s.Ticked, Tick: &ledger.Tick{Acks: []ledger.Ack{
		{Node: "n01", Process: 900, Number: 3, Seq: n.Seq, Effective: 90 * watt, Stored: 90 * watt},
	}}})
	return s
}

func TestKilledInASprintMakesDebt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pass func(s *ledger.State, wall time.Time)
		want units.Energy
	}{
		"under one leader": {func(s *ledger.State, wall time.Time) {
			for i := range 600 {
				do(t, s, ledger.Command{At: wall.Add(time.Duration(i) * second).UnixMicro(), Tick: &ledger.Tick{Elapsed: second}})
			}
		}, 66_000 * units.Joule},
		"a gap that the next leader measured, its wall clock behind": {func(s *ledger.State, wall time.Time) {
			begin(t, s, wall.Add(-time.Hour), 10*time.Minute)
		}, 66_550 * units.Joule}, // and 5 s that nobody can tell
		"a gap that only the wall clocks show": {func(s *ledger.State, wall time.Time) {
			begin(t, s, wall.Add(10*time.Minute), 0)
		}, 66_550 * units.Joule},
		"no time at all": {func(*ledger.State, time.Time) {}, 1100 * units.Joule},
		"a clock that is years ahead counts a day": {func(s *ledger.State, wall time.Time) {
			begin(t, s, wall.AddDate(5, 0, 0), 0)
		}, 110 * 24 * 3600 * units.Joule},
	} {
		s := killed(t, c.pass)
		p := s.Sprints["s1"]
		if !p.Closed || p.Spent() != c.want {
			t.Errorf("%s: closed %v, charged %v, want %v", name, p.Closed, p.Spent(), c.want)
		}
		if got := balance(s); c.want > 10*units.Kilojoule && got >= 0 {
			t.Errorf("%s: %v left, no debt", name, got)
		}
		restored(t, s)
	}
}

// A node that is taken for gone between two ticks has drawn since the newest of them, too.
func TestGoneBetweenTwoTicks(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, ledger.Command{At: 1, Tick: &ledger.Tick{Elapsed: second}})
	do(t, s, sprint("s1", "n01"))
	for range 20 {
		do(t, s, ledger.Command{At: 1, Tick: &ledger.Tick{Elapsed: second}})
	}
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "bmc"}}) // up to a second later
	if p := s.Sprints["s1"]; !p.Closed || p.Spent() < 21*110*units.Joule {
		t.Errorf("closed %v, charged %v; 110 W above the base were drawn for up to 21 s", p.Closed, p.Spent())
	}
}
