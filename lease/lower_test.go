package lease

import (
	"testing"
	"time"

	"headroom/units"
)

// What grants take away holds before their memory is stored, the lowest of several,
// until one of them is taken or they would have run out.
func TestLowerHoldsBeforeItIsStored(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) Instant { return Instant{Boot: time.Hour + d, Awake: time.Hour + d} }
	grant := func(seq uint64, to units.Power) Grant {
		return Grant{
			Stamp: Stamp{Epoch: Epoch{Incarnation: 1, Term: 1}, Seq: seq}, Cap: to, FailSafe: 95 * units.Watt,
			Duration: 10 * time.Second, Heartbeat: 1, Process: 7,
		}
	}
	most := func(h *Holder) units.Power { p, _ := h.Most(""); return p }
	h := New(7, Memory{FailSafe: 95 * units.Watt}, at(0))
	h.Sent(1, at(0))
	if err := h.Take(grant(1, 200*units.Watt), at(0)); err != nil || most(h) != 0 {
		t.Fatal(err, most(h))
	}
	cut, raise := grant(2, 100*units.Watt), grant(3, 150*units.Watt)
	raise.Sprint = Sprint{ID: "s", Cap: 180 * units.Watt, Duration: time.Minute, Escrow: units.Joule}
	for _, g := range []Grant{cut, raise} { // the raise comes while the cut waits
		if err := h.Lower(g, at(time.Second)); err != nil || most(h) != 100*units.Watt {
			t.Errorf("%v: most %v, %v", g.Stamp, most(h), err)
		}
	}
	if p, _ := h.Most("s"); p != 180*units.Watt {
		t.Errorf("most %v in the sprint that goes on", p)
	}
	if c, _ := h.Cap(); c != 200*units.Watt || h.Memory().Highest.Seq != 1 {
		t.Error("a grant that is not stored was acknowledged")
	}
	if err := h.Take(cut, at(time.Second)); err != nil || most(h) != 100*units.Watt {
		t.Errorf("the older one taken: most %v, %v", most(h), err)
	}
	if err := h.Take(raise, at(time.Second)); err != nil || most(h) != 0 {
		t.Errorf("the newest taken: most %v, %v", most(h), err)
	}
	if err := h.Lower(cut, at(time.Second)); err == nil || most(h) != 0 {
		t.Error("a stale grant lowers")
	}
	if err := h.Lower(grant(4, 90*units.Watt), at(time.Second)); err != nil || most(h) != 90*units.Watt {
		t.Fatal(err, most(h))
	}
	if h.Advance(at(10 * time.Second)); most(h) != 0 {
		t.Error("a grant that has run out bounds the fail-safe cap")
	}
}
