package lease_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/lease"
	"headroom/units"
)

const (
	process  = 77
	duration = 10 * time.Second
)

func at(d time.Duration) lease.Instant { return lease.Instant{Boot: d, Awake: d} }

func grant(seq, heartbeat uint64, watts units.Power) lease.Grant {
	return lease.Grant{
		Stamp: lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 3}, Seq: seq}, Cap: watts * units.Watt,
		FailSafe: 90 * units.Watt, Duration: duration, Heartbeat: heartbeat, Process: process,
	}
}

func holder() *lease.Holder {
	return lease.New(process, lease.Memory{FailSafe: 95 * units.Watt}, at(0))
}

// P2: the lease counts from the sending of the heartbeat, not from the arrival of the answer.
func TestLeaseCountsFromSending(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(time.Second))
	if err := h.Take(grant(5, 1, 190), at(9*time.Second)); err != nil {
		t.Fatal(err)
	}
	h.Advance(at(11*time.Second - 1))
	if p, s := h.Cap(); p != 190*units.Watt || s != lease.Held {
		t.Errorf("just before the end: %v %v, want 190 W held", p, s)
	}
	h.Advance(at(11 * time.Second))
	if p, s := h.Cap(); p != 90*units.Watt || s != lease.FailSafe {
		t.Errorf("at the end: %v %v, want the granted fail-safe cap of 90 W", p, s)
	}
}

// Lesson 15: P2: a suspend ends the lease, even when the suspend was shorter than the
// lease.
func TestSuspendEndsLease(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(0))
	if err := h.Take(grant(5, 1, 190), at(0)); err != nil {
		t.Fatal(err)
	}
	h.Advance(lease.Instant{Boot: 3 * time.Second, Awake: time.Second})
	if _, s := h.Cap(); s != lease.FailSafe || h.Why() != lease.Suspended {
		t.Errorf("after a suspend of 2 s: %v, %v", s, h.Why())
	}
}

// A node that is held up between reading its one clock and the other was not
// suspended; a suspend after that still ends the lease.
func TestHeldUpBetweenTheClocks(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(0))
	if err := h.Take(grant(5, 1, 190), at(0)); err != nil {
		t.Fatal(err)
	}
	h.Advance(lease.Instant{Boot: time.Second, Awake: 1500 * time.Millisecond})
	h.Advance(at(2 * time.Second))
	if _, s := h.Cap(); s != lease.Held {
		t.Errorf("after half a second between the clocks: %v, %v", s, h.Why())
	}
	h.Advance(lease.Instant{Boot: 3 * time.Second, Awake: 2800 * time.Millisecond})
	if _, s := h.Cap(); s != lease.FailSafe || h.Why() != lease.Suspended {
		t.Errorf("after a suspend of 0.2 s: %v, %v", s, h.Why())
	}
}

// Lesson 15: P3: grants that are older, foreign, unanswerable or too late are
// refused, each with its reason.
func TestRefusals(t *testing.T) {
	t.Parallel()
	foreign := grant(6, 2, 100)
	foreign.Process = 78
	late := grant(6, 1, 100)
	late.Duration = 500 * time.Millisecond
	braked := lease.New(process, lease.Memory{FailSafe: 95 * units.Watt, Brake: 4}, at(0))
	braked.Sent(2, at(time.Second))
	zero := grant(6, 2, 0)
	low := withSprint(grant(6, 2, 100), 100*units.Watt)
	nameless := withSprint(grant(6, 2, 100), 120*units.Watt)
	nameless.Sprint.ID = ""
	doubled := withSprint(grant(5, 2, 190), 220*units.Watt)
	for name, c := range map[string]struct {
		h    *lease.Holder
		g    lease.Grant
		want error
	}{
		"foreign process":   {nil, foreign, lease.ErrOtherProcess},
		"unknown heartbeat": {nil, grant(6, 9, 100), lease.ErrUnknownHeartbeat},
		"older":             {nil, grant(4, 2, 100), lease.ErrStale},
		"contradiction":     {nil, grant(5, 2, 100), lease.ErrContradiction},
		"too late":          {nil, late, lease.ErrRanOut},
		"braked":            {braked, grant(6, 2, 100), lease.ErrBraked},
		"zero cap":          {nil, zero, lease.ErrMalformed},
		"sprint not above":  {nil, low, lease.ErrMalformed},
		"sprint without id": {nil, nameless, lease.ErrMalformed},
		"another sprint":    {nil, doubled, lease.ErrContradiction},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := c.h
			if h == nil {
				h = holder()
				h.Sent(1, at(0))
				h.Sent(2, at(time.Second))
				if err := h.Take(grant(5, 1, 190), at(0)); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Take(c.g, at(time.Second)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func withSprint(g lease.Grant, most units.Power) lease.Grant {
	g.Sprint = lease.Sprint{ID: "s1", Cap: most, Duration: time.Minute, Escrow: 900 * units.Joule}
	return g
}

// P8: a sprint belongs to its grant. A newer stamp replaces both together, and
// with the lease the sprint is gone too; the cap never counts it in.
func TestSprintIsReplacedWithItsBase(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(0))
	if err := h.Take(withSprint(grant(5, 1, 150), 190*units.Watt), at(0)); err != nil {
		t.Fatal(err)
	}
	if s, ok := h.Sprint(); !ok || s.ID != "s1" || s.Cap != 190*units.Watt {
		t.Errorf("sprint %+v, %v", s, ok)
	}
	if p, _ := h.Cap(); p != 150*units.Watt {
		t.Errorf("cap %v, want the base", p)
	}
	if err := h.Take(grant(6, 1, 140), at(time.Second)); err != nil {
		t.Fatal(err)
	}
	if s, ok := h.Sprint(); ok {
		t.Errorf("a newer grant without a sprint left %+v", s)
	}
	if err := h.Take(withSprint(grant(7, 1, 150), 190*units.Watt), at(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	h.Advance(at(duration))
	if s, ok := h.Sprint(); ok {
		t.Errorf("the lease ended and left %+v", s)
	}
}

// The brake ends the lease at once, and only a grant that knows it lifted is taken afterwards.
func TestBrake(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(0))
	if err := h.Take(grant(5, 1, 190), at(0)); err != nil {
		t.Fatal(err)
	}
	if m := h.Brake(3); m.Brake != 3 {
		t.Errorf("memory %+v", m)
	}
	if _, s := h.Cap(); s != lease.FailSafe {
		t.Error("a braked node holds a lease")
	}
	lifted := grant(5, 1, 190)
	lifted.BrakeLifted = 3
	if err := h.Take(lifted, at(time.Second)); err != nil {
		t.Errorf("a grant that lifts the brake: %v", err)
	}
}

// A node that was away while the brake was set and lifted takes a lease that says
// so; a replay of that brake then is stored and ends nothing, and a newer one does.
func TestReplayOfALiftedBrake(t *testing.T) {
	t.Parallel()
	h := holder()
	h.Sent(1, at(0))
	g := grant(5, 1, 190)
	g.BrakeLifted = 3
	if err := h.Take(g, at(0)); err != nil {
		t.Fatal(err)
	}
	if m := h.Brake(3); m.Brake != 3 {
		t.Errorf("the replay is not stored: %+v", m)
	}
	if _, s := h.Cap(); s != lease.Held {
		t.Error("the replay of a lifted brake ended the lease")
	}
	below := grant(6, 1, 180)
	below.BrakeLifted = 2
	if err := h.Take(below, at(time.Second)); !errors.Is(err, lease.ErrBraked) {
		t.Errorf("a lease below what is stored: %v", err)
	}
	h.Brake(4)
	if _, s := h.Cap(); s != lease.FailSafe || h.Why() != lease.Braked {
		t.Errorf("a new brake: %v, %v", s, h.Why())
	}
}

// Whatever brakes and grants come, in whatever order, doubled, lost, and through
// restarts: no node holds a lease that does not say that the highest brake
// generation it has heard is lifted, and what it has heard it never forgets.
func TestNoLeaseBelowTheBrake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := holder()
		now, number, heard, lifted := time.Duration(0), uint64(0), uint64(0), uint64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			h.Advance(at(now))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				number++
				h.Sent(number, at(now))
			case 1:
				g := grant(rapid.Uint64Range(1, 6).Draw(t, "seq"), rapid.Uint64Range(0, number).Draw(t, "hb"), 150)
				g.BrakeLifted = rapid.Uint64Range(0, 5).Draw(t, "lifted")
				if h.Take(g, at(now)) == nil {
					lifted = g.BrakeLifted
				}
			case 2:
				generation := rapid.Uint64Range(0, 5).Draw(t, "generation")
				h.Brake(generation)
				heard = max(heard, generation)
			case 3:
				if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
					h = lease.New(process, h.Memory(), at(now))
				}
			}
			if h.Memory().Brake != heard {
				t.Fatalf("remembers brake %d after %d", h.Memory().Brake, heard)
			}
			if _, s := h.Cap(); s == lease.Held && lifted < heard {
				t.Fatalf("holds a lease that says brake %d is lifted and has heard %d", lifted, heard)
			}
		}
	})
}

// Whatever is lost, late, doubled or reordered: a held cap was granted, with
// the highest stamp taken so far, in answer to a heartbeat of this process
// that is younger than the lease is long; anything else is the fail-safe cap.
func TestHeldCapIsAlwaysGranted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := holder()
		now, number := time.Duration(0), uint64(0)
		sent := map[uint64]time.Duration{}
		var granted []lease.Grant
		var highest lease.Stamp
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			h.Advance(at(now))
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				number++
				sent[number] = now
				h.Sent(number, at(now))
			case 1:
				seq := rapid.Uint64Range(1, 6).Draw(t, "seq")
				granted = append(granted, grant(seq, rapid.Uint64Range(0, number+1).Draw(t, "hb"), units.Power(100+seq)))
			case 2:
				if len(granted) > 0 && h.Take(granted[rapid.IntRange(0, len(granted)-1).Draw(t, "which")], at(now)) == nil {
					if m := h.Memory(); m.Highest.Compare(highest) < 0 {
						t.Fatalf("stamp went back from %v to %v", highest, m.Highest)
					}
					highest = h.Memory().Highest
				}
			}
			p, state := h.Cap()
			if state == lease.Held && !justified(p, highest, granted, sent, now) {
				t.Fatalf("holds %v at %v with no grant for it", p, now)
			}
		}
	})
}

func justified(p units.Power, highest lease.Stamp, granted []lease.Grant, sent map[uint64]time.Duration, now time.Duration) bool {
	for _, g := range granted {
		s, ok := sent[g.Heartbeat]
		if ok && g.Cap == p && g.Stamp == highest && now < s+g.Duration {
			return true
		}
	}
	return false
}
