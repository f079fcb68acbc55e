// Claims: a grant survives its message; what a message cannot mean is bounded, not wrapped.
package wire_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

func TestGrantsSurvive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) uint64 { return rapid.Uint64Range(0, 1<<40).Draw(t, name) }
		ms := func(name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(t, name)) * time.Millisecond
		}
		g := lease.Grant{
			Stamp: lease.Stamp{Epoch: lease.Epoch{Incarnation: n("incarnation"), Term: n("term")}, Seq: n("seq")},
			Cap:   units.Power(n("cap")), FailSafe: units.Power(n("fail-safe")), Duration: ms("duration", time.Hour),
			Heartbeat: n("heartbeat"), Process: n("process"), BrakeLifted: n("lifted"),
		}
		if rapid.Bool().Draw(t, "sprints") {
			g.Sprint = lease.Sprint{ID: "s1", Cap: units.Power(n("sprint")), Escrow: units.Energy(n("escrow")), Duration: ms("sprinting", lease.MaxSprint)}
		}
		if got := wire.Grant(wire.LeaseMessage(g)); got != g {
			t.Errorf("%+v came out as %+v", g, got)
		}
	})
}

func TestAbsurdTimesAreBounded(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{math.MinInt64, -1, math.MaxInt64} {
		g := wire.Grant(&headroomv1.Lease{DurationMs: ms, Sprint: &headroomv1.Sprint{DurationMs: ms}})
		if g.Duration < 0 || g.Duration > time.Hour || g.Sprint.Duration < 0 || g.Sprint.Duration > 2*lease.MaxSprint {
			t.Errorf("%d ms: %v and %v", ms, g.Duration, g.Sprint.Duration)
		}
	}
}
