// Claims: a value counts because it changes, not because it is answered; what cannot be
// true is unknown with the reason; one lost answer is no event.
package ipmi

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/units"
)

// story plays answers to a tracker, one a second.
type story struct {
	t     *testing.T
	track tracker
	now   time.Duration
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{t: t, now: time.Hour, track: newTracker(limits{
		least: plausibleLeast, most: plausibleMost, period: time.Second, timeout: 2 * time.Second,
	})}
}

func (s *story) answers(watts ...float64) {
	for _, w := range watts {
		s.now += time.Second
		s.track.good(s.now-10*time.Millisecond, s.now, units.FromWatts(w), SourceDCMI, "")
	}
}

// same answers one value for a while.
func (s *story) same(watts float64, d time.Duration) {
	for range int(d / time.Second) {
		s.answers(watts)
	}
}

func (s *story) want(state State, why string) Reading {
	s.t.Helper()
	r := s.track.reading(s.now)
	if r.State != state || !strings.Contains(r.Why, why) {
		s.t.Errorf("state %s (%s), want %s (%s)", r.State, r.Why, state, why)
	}
	if r.Known != (state == StateOK) || (!r.Known && r.Power != 0) {
		s.t.Errorf("a number in state %s: %+v", r.State, r)
	}
	return r
}

func TestIntervalIsLearnedFromChanges(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.want(StateUnknown, "not read yet")
	s.answers(140, 140, 150, 150, 145, 145, 145, 145, 160, 160, 140, 140, 130)
	r := s.want(StateOK, "")
	if r.Interval != 2*time.Second {
		t.Errorf("interval %v, want 2s: 145 W happened to stay for one update", r.Interval)
	}
	if r.Serial != 6 || r.ChangedAt != s.now || r.AskedAt != s.now-10*time.Millisecond {
		t.Errorf("serial %d changed %v asked %v at %v", r.Serial, r.ChangedAt, r.AskedAt, s.now)
	}
}

// Lesson 11: BMCs go on answering the last value for ever; freshness is judged by changes.
func TestFrozenValueIsStale(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.answers(140, 150, 140, 150, 140)
	s.same(140, 14*time.Second)
	s.want(StateOK, "")
	s.same(140, 3*time.Second)
	s.want(StateStale, "the same value for")
	s.answers(141)
	s.want(StateOK, "")

	s = newStory(t)
	s.same(140, time.Minute)
	s.want(StateOK, "")
	s.same(140, 5*time.Second)
	s.want(StateStale, "the same value for")
}

// Lesson 11: a slow BMC, which renews its value once a minute, is not stale between
// two values.
func TestSlowBMCIsNotStale(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	for _, w := range []float64{140, 150, 160, 150, 140} {
		s.same(w, 50*time.Second)
	}
	s.same(140, 4*time.Minute)
	s.want(StateOK, "")
}

func TestReferenceTellsFrozenFromSteady(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	reference := func(watts float64, d time.Duration) {
		for range int(d / time.Second) {
			s.track.observeReference(s.now, units.FromWatts(watts))
			s.answers(140)
		}
	}
	s.answers(150, 140, 150, 140)
	reference(120, 5*time.Minute) // a steady node is steady at the wall
	s.want(StateOK, "")
	reference(160, 25*time.Second)
	s.want(StateStale, "while the load changed")
	s.answers(180)
	s.want(StateOK, "")
}

// A step that the reference, a mean, shows later than the BMC does not speak against the
// value that both come to.
func TestReferenceMayBeLate(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	second := func(reference, wall float64) {
		s.answers(wall)
		s.track.observeReference(s.now, units.FromWatts(reference))
	}
	for range 30 {
		second(100, 120)
	}
	second(100, 220) // the BMC has it at once
	second(150, 220)
	for range 3600 {
		second(200, 220)
	}
	s.want(StateOK, "")
	for range 15 {
		second(230, 220)
	}
	s.want(StateStale, "while the load changed")
}

// A burst that falls between two readings of a slow BMC does not speak against it; bursts
// that it can only have slept through do.
func TestShortBurstsAreNoEvidence(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	bursts := func(n int) {
		for range n {
			for i := range 600 {
				s.answers(120)
				reference := 100.0
				if i >= 300 && i < 304 {
					reference = 130
				}
				s.track.observeReference(s.now, units.FromWatts(reference))
			}
		}
	}
	bursts(1)
	s.want(StateOK, "")
	bursts(5)
	s.want(StateStale, "while the load changed")
}

// Without a reference, a BMC whose statistics move measures.
func TestStatisticsShowThatItMeasures(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	for minute := range 10 {
		s.track.measured(s.now, statistics{least: 100, most: 300, mean: uint16(140 + minute)})
		s.same(140, time.Minute)
	}
	s.want(StateOK, "")
	s.same(140, 5*time.Second)
	s.want(StateStale, "the same value for")
}

func TestSilence(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.answers(140)
	s.now += time.Second
	s.track.failed("busy")
	s.want(StateOK, "") // one lost answer is no event
	s.now += 5 * time.Second
	s.want(StateStale, "no answer for 6s: busy")
	s.answers(140)
	s.want(StateOK, "")
	s.now += time.Hour // suspended, or a call that hangs: nothing was noted
	s.want(StateStale, "no answer for 1h0m0s")
	s.track.absent("no /dev/ipmi0")
	s.want(StateAbsent, "no /dev/ipmi0")
}

// Lesson 11: one BMC in a fleet answers a thousand times too much or too little.
func TestThousandfoldJumpIsInsane(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.track.limits.least, s.track.limits.most = units.Milliwatt, 1000*plausibleMost
	s.answers(140, 141)
	s.answers(141_000)
	s.want(StateInsane, "is implausible")
	s.answers(0.141)
	s.want(StateInsane, "is implausible")
	s.answers(142)
	s.want(StateOK, "")
	for range 200 {
		s.answers(142_000, 143_000) // it stays: then the old value was the mistake
	}
	s.want(StateOK, "")
}

// A jump is not trusted because it was answered twice: only because it lasts, and one that
// is interrupted begins again.
func TestJumpMustLast(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.track.limits.least, s.track.limits.most = units.Milliwatt, 1000*plausibleMost
	s.answers(140)
	for range int(jumpTrust/time.Second) / 2 {
		s.answers(142_000)
		s.want(StateInsane, "is implausible")
	}
	s.answers(141)
	s.want(StateOK, "")
	for range int(jumpTrust / time.Second) {
		s.answers(142_000)
		s.want(StateInsane, "is implausible")
	}
	s.answers(142_000)
	if r := s.want(StateOK, ""); r.Power != 142_000*units.Watt {
		t.Errorf("it lasted, and is %v", r.Power)
	}
}

func TestImpossiblePowerIsInsane(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.answers(25_000)
	s.want(StateInsane, "above the maximum of this node")
	s.answers(2)
	s.want(StateInsane, "below the minimum of this node")
	s.answers(140)
	s.want(StateOK, "")
}

// Whatever is answered, a number is only given inside the node's bounds, not older than
// the silence allows, and Serial and ChangedAt never go back.
func TestReadingLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		track := newTracker(limits{least: plausibleLeast, most: plausibleMost, period: time.Second, timeout: 2 * time.Second})
		now, last := time.Hour, Reading{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(t, "gap"))
			p := units.Power(rapid.Int64().Draw(t, "power"))
			if rapid.Bool().Draw(t, "usual") {
				p = units.Power(rapid.Int64Range(100, 300).Draw(t, "watts")) * units.Watt
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				track.failed("lost")
			case 1:
				track.insane("odd")
			case 2:
				track.observeReference(now, p)
			default:
				track.good(now, now, p, SourceDCMI, "")
			}
			r := track.reading(now)
			switch {
			case r.Known != (r.State == StateOK), r.Known == (r.Why != ""), !r.Known && r.Power != 0:
				t.Fatalf("state and number disagree: %+v", r)
			case r.Known && (r.Power < plausibleLeast || r.Power > plausibleMost || now-r.AskedAt > track.silence()):
				t.Fatalf("not to be believed at %v: %+v", now, r)
			case r.Serial < last.Serial, r.ChangedAt < last.ChangedAt, r.Interval < 0:
				t.Fatalf("%+v after %+v", r, last)
			}
			last = r
		}
	})
}
