// Claims: a sprint raises the cap for its time and ends by itself: by time, by
// escrow, by heat, with its lease, or by a newer sequence; its end never raises
// the cap; it is told only after the base cap was read back; no joule above the
// base cap goes uncounted, and what was not measured counts at the worst.
package capping_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/units"
)

const (
	baseCap   = 100 * units.Watt
	sprintCap = 150 * units.Watt
)

func offer(d time.Duration, escrow units.Energy) capping.SprintOffer {
	return capping.SprintOffer{ID: "s1", Cap: sprintCap, Duration: d, Escrow: escrow}
}

// runner is a node that draws what it may, and reads back what it holds.
type runner struct {
	sprint capping.Sprint
	in     capping.SprintInput
	now    time.Duration
	held   units.Power
	drawn  units.Energy // above base while a sprint was under way
}

func (r *runner) turn() units.Power {
	r.now += period
	r.in.Elapsed, r.in.Effective = period, capping.Reading{Power: r.held, Known: true}
	if r.in.Wall.Known {
		r.in.Wall.Power = r.held
	}
	if _, on := r.sprint.Status(r.now); on {
		r.drawn += max(0, r.held-baseCap).For(period)
	}
	r.held = r.sprint.Step(r.now, r.in, capping.SprintConfig{Rated: 250 * units.Watt})
	r.in.Newer = false
	return r.held
}

func newRunner(o capping.SprintOffer) *runner {
	return &runner{held: baseCap, in: capping.SprintInput{Base: baseCap, Held: true, Offer: o, Wall: capping.Reading{Known: true}}}
}

func TestSprintEndsByItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		escrow units.Energy
		change func(in *capping.SprintInput)
	}{
		{"time", 10 * units.Kilojoule, func(*capping.SprintInput) {}},
		{"escrow", 100 * units.Joule, func(*capping.SprintInput) {}},
		{"thermal", 10 * units.Kilojoule, func(in *capping.SprintInput) { in.Hot = true }},
		{"lease", 10 * units.Kilojoule, func(in *capping.SprintInput) { in.Held, in.Base = false, 95*units.Watt }},
		{"superseded", 10 * units.Kilojoule, func(in *capping.SprintInput) { in.Newer, in.Offer = true, capping.SprintOffer{} }},
		{"stopped", 10 * units.Kilojoule, func(in *capping.SprintInput) { in.Stop = true }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			r := newRunner(offer(5*time.Second, c.escrow))
			if got := r.turn(); got != sprintCap {
				t.Fatalf("cap %v at the beginning, want %v", got, sprintCap)
			}
			for range 3 {
				r.turn()
			}
			c.change(&r.in)
			for i := range 40 {
				before := r.held
				if r.turn(); r.held > before {
					t.Fatalf("the cap rose from %v to %v after %d turns", before, r.held, i)
				}
			}
			ended := r.sprint.Ended()
			if len(ended) != 1 || ended[0].ID != "s1" || ended[0].Reason.String() != c.reason || !ended[0].Measured {
				t.Fatalf("ended %+v", ended)
			}
			if spent := ended[0].Spent; spent < r.drawn || spent > c.escrow {
				t.Errorf("spent %v, drawn %v, escrow %v", spent, r.drawn, c.escrow)
			}
			r.in.Newer = true
			if r.turn(); len(r.sprint.Ended()) != 0 {
				t.Errorf("still told after a newer sequence: %+v", r.sprint.Ended())
			}
		})
	}
}

// Not before the base cap reads back is a sprint reported ended.
func TestSprintIsNotOverUntilReadBack(t *testing.T) {
	t.Parallel()
	r := newRunner(offer(time.Second, 10*units.Kilojoule))
	for range 10 {
		r.turn()
		r.held = sprintCap // the hardware does not follow
	}
	if s, on := r.sprint.Status(r.now); !on || !s.Ending || len(r.sprint.Ended()) != 0 {
		t.Fatalf("%+v, ended %+v while %v reads back", s, r.sprint.Ended(), r.held)
	}
	r.turn()
	r.turn()
	if ended := r.sprint.Ended(); len(ended) != 1 || ended[0].Spent < r.drawn {
		t.Errorf("ended %+v, drawn %v", ended, r.drawn)
	}
}

// Time without a meter counts at the node's rated draw, and is said.
func TestSprintCountsWhatIsNotMeasuredAtTheWorst(t *testing.T) {
	t.Parallel()
	r := newRunner(offer(time.Minute, 1000*units.Joule))
	r.turn()
	r.in.Wall.Known = false
	for range 60 {
		r.turn()
	}
	ended := r.sprint.Ended()
	if len(ended) != 1 || ended[0].Measured || ended[0].Spent < r.drawn || ended[0].Reason != capping.EndedEscrow {
		t.Errorf("ended %+v, drawn %v", ended, r.drawn)
	}
}

// Whatever happens: the cap is the base or the running sprint's, an id runs once,
// and what is told is at least what was drawn above the base.
// A powerd that stood still wakes up with one mean over all of it, in which the
// time after a watchdog had lowered the limit hides the sprint before.
func TestSprintIsNotHiddenInALongMean(t *testing.T) {
	t.Parallel()
	r := newRunner(offer(time.Minute, 10*units.Kilojoule))
	r.turn()
	r.now += 10 * time.Second
	r.in.Elapsed, r.in.Held, r.in.Base = 10*time.Second, false, 60*units.Watt
	r.in.Wall.Power = (6*sprintCap + 4*60*units.Watt) / 10 // 6 s of the sprint, then 4 s at 60 W
	r.in.Effective.Power = 60 * units.Watt
	r.sprint.Step(r.now, r.in, capping.SprintConfig{Rated: 250 * units.Watt})
	r.held = 60 * units.Watt
	r.turn()
	ended := r.sprint.Ended()
	if len(ended) != 1 || !ended[0].Measured {
		t.Fatalf("ended %+v", ended)
	}
	if drawn := (sprintCap - baseCap).For(6 * time.Second); ended[0].Spent < drawn || ended[0].Spent > 2*drawn {
		t.Errorf("counted %v, drawn were %v", ended[0].Spent, drawn)
	}
}

func TestSprintLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRunner(capping.SprintOffer{})
		told := map[string]bool{}
		for range rapid.IntRange(1, 150).Draw(t, "turns") {
			if rapid.IntRange(0, 9).Draw(t, "event") == 0 {
				r.in.Newer = true
				r.in.Offer = capping.SprintOffer{
					ID:       rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "id"),
					Cap:      units.Power(rapid.Int64Range(50, 200).Draw(t, "cap_w")) * units.Watt,
					Duration: time.Duration(rapid.IntRange(0, 20).Draw(t, "s")) * time.Second,
					Escrow:   units.Energy(rapid.Int64Range(0, 2000).Draw(t, "escrow_j")) * units.Joule,
				}
			}
			r.in.Held = rapid.IntRange(0, 30).Draw(t, "held") > 0
			r.in.Hot = rapid.IntRange(0, 30).Draw(t, "hot") == 0
			r.in.Wall.Known = rapid.IntRange(0, 4).Draw(t, "known") > 0
			got := r.turn()
			s, on := r.sprint.Status(r.now)
			if got != r.in.Base && (!on || s.Ending || got != s.Cap || got <= r.in.Base) {
				t.Fatalf("cap %v, base %v, sprint %+v (%v)", got, r.in.Base, s, on)
			}
			if on && !s.Ending && told[s.ID] {
				t.Fatalf("%s runs again", s.ID)
			}
			for _, e := range r.sprint.Ended() {
				told[e.ID] = true
			}
			if len(r.sprint.Ended()) > 8 {
				t.Fatalf("%d ends told", len(r.sprint.Ended()))
			}
		}
	})
}
