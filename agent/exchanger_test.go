// Claims: an exchanger is to a coordinator what powerd is: it takes a grant, holds
// it at once, acknowledges what it holds, and reports what its load draws and wants;
// it says when each of its heartbeats was answered; without answers its lease ends.
package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
	"headroom/units"
)

func TestExchanger(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t)
	c.set(func() { c.duration, c.granted = 3*time.Second, 120*units.Watt })
	cfg := Defaults()
	cfg.Node, cfg.Domain, cfg.Coordinators = "n01", "rack/r1", []string{c.addr}
	cfg.TLS.Mode = "off"
	cfg.Power = PowerConfig{Rated: 250 * units.Watt, Floor: 60 * units.Watt, Max: 200 * units.Watt, FailSafe: 80 * units.Watt, Other: 10 * units.Watt, SupplyEfficiency: 0.9}
	var mu sync.Mutex
	var stood []Standing
	var took []time.Duration
	x := NewExchanger(cfg, ExchangeWatch{
		Busy: func(time.Duration) float64 { return 0.9 },
		Stands: func(s Standing) {
			mu.Lock()
			defer mu.Unlock()
			stood = append(stood, s)
		},
		Answered: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
		},
	})
	newest := func() (Standing, int) {
		mu.Lock()
		defer mu.Unlock()
		if len(stood) == 0 {
			return Standing{}, len(took)
		}
		return stood[len(stood)-1], len(took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { x.Run(ctx) })
	defer running.Wait()
	defer cancel()

	waitFor(t, "the first lease is acknowledged", c.acknowledged)
	seq := c.grant(t, 110*units.Watt)
	waitFor(t, "the lower cap is acknowledged", func() bool { return c.last().GetHolding().GetApplied().GetSeq() == seq })
	if h := c.last().GetHolding(); h.GetState() != headroomv1.LeaseState_LEASE_STATE_HELD || h.GetEffectiveUw() != int64(110*units.Watt) {
		t.Errorf("acknowledged %v, want 110 W held", h)
	}
	waitFor(t, "it draws its cap, and wants 0.9 of the way from its floor to its most", func() bool {
		b := c.last()
		return b.GetPowerUw() == int64(110*units.Watt) && b.GetDemandUw() == int64(186*units.Watt)
	})
	if s, answers := newest(); s.Cap != 110*units.Watt || !s.Held || s.Stamp.Seq != seq || answers == 0 {
		t.Errorf("stands at %+v after %d answers", s, answers)
	}
	c.set(func() { c.silent = true })
	waitFor(t, "the lease ends, and the fail-safe cap of the grant is held", func() bool { s, _ := newest(); return !s.Held && s.Cap == 95*units.Watt && s.Why == lease.RanOut })
	for _, d := range took {
		if d < 0 || d > time.Minute {
			t.Errorf("an answer took %v", d)
		}
	}
}
