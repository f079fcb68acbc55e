package capping

import (
	"time"

	"headroom/units"
)

// SprintOffer is a sprint received with a lease.
type SprintOffer struct {
	// ID of the escrow in the ledger; empty: no sprint.
	ID string
	// Cap while it lasts, at the wall; not above the base cap: nothing to sprint.
	Cap units.Power
	// Duration is the longest time from the first application.
	Duration time.Duration
	// Escrow is the energy above the base cap that may be spent on this node.
	Escrow units.Energy
}

// SprintEnding is the reason why a sprint ended.
type SprintEnding int

// Endings. The first four happen without a request.
const (
	EndedTime       SprintEnding = iota // its time was over
	EndedEscrow                         // its energy was spent, or would have been by the next turn
	EndedThermal                        // the machine is too hot
	EndedLease                          // the lease it came with ended
	EndedSuperseded                     // a newer sequence without it was taken
	EndedStopped                        // powerd stops, or may not sprint
)

// String returns the ending as reported to the coordinator.
func (e SprintEnding) String() string {
	return [...]string{"time", "escrow", "thermal", "lease", "superseded", "stopped"}[e]
}

// SprintEnd is the report once the node is back at its base cap.
type SprintEnd struct {
	ID string
	// Spent is the energy drawn above the base cap; where it was not measured all
	// the way, the most that it can have been.
	Spent units.Energy
	// Measured says that every moment of it was measured.
	Measured bool
	Reason   SprintEnding
}

// SprintInput is the input of one step of Sprint.
type SprintInput struct {
	// Base is the cap in force without the sprint: the lease's, or the fail-safe cap.
	Base units.Power
	// Held says that a lease is running.
	Held bool
	// Newer says that a newer sequence than the turn before was taken.
	Newer bool
	// Offer is the sprint of that lease; the zero offer without one.
	Offer SprintOffer
	// Wall is the mean power over Elapsed, as in Sample.
	Wall    Reading
	Elapsed time.Duration
	// Effective is the cap that the hardware holds as read back.
	Effective Reading
	// Hot says that the machine is at or above the temperature at which sprints
	// end, or that its processor tells of thermal trouble.
	Hot bool
	// Stop says that sprints are not allowed, or that powerd is about to stop.
	Stop bool
}

// SprintConfig configures a Sprint.
type SprintConfig struct {
	// Rated is the most that the node draws: what is not measured counts as that.
	Rated units.Power
	// Ahead is for how long the node may still draw the sprint's cap after its end
	// was decided: a turn of the loop and the settling of the limit. 0: 750 ms.
	Ahead time.Duration
}

const (
	// sprintAhead is the usual Ahead.
	sprintAhead = 750 * time.Millisecond
	// unmeasuredMost is for how long a sample may be awaited before the time counts
	// as not measured. A mean over longer tells too little of what lay above the base.
	unmeasuredMost = time.Second
	// closedKept is how many ended sprints are remembered and told.
	closedKept = 8
)

// Sprint is the node's side of a sprint: its effect on the cap, its end, and its report.
// It is a state machine over SprintInput; the zero Sprint has no sprint. It belongs to one
// goroutine.
//
// Guarantees: an ID is used once; the counted energy is never below the energy above the
// base cap, as far as the meter is correct; a sprint ends early enough that its end fits
// the escrow, if the node keeps the sprint's cap; the cap never rises when a sprint ends;
// an end is reported only after a cap at or below the base was read back.
type Sprint struct {
	offer   SprintOffer
	phase   sprintPhase
	base    units.Power
	began   time.Duration
	covered time.Duration // until when energy is counted
	spent   units.Energy
	blind   bool // some time was not measured
	reason  SprintEnding
	ended   [closedKept]SprintEnd
	count   int
	closed  [closedKept]string // ids that are not begun again, told or not
	next    int
}

type sprintPhase int

const (
	sprintNone sprintPhase = iota
	sprintRunning
	sprintEnding // the base cap is asked for, but has not been read back
)

// Step returns the cap to hold now: that of the sprint while one is active, otherwise the
// base cap. now is the clock of the lease.
func (p *Sprint) Step(now time.Duration, in SprintInput, c SprintConfig) units.Power {
	in = in.sane()
	if p.phase != sprintNone {
		p.tally(now, in, c)
	}
	if in.Newer {
		p.count = 0 // the coordinator has heard of what ended before
	}
	p.close(in)
	if p.phase == sprintNone && in.Held && in.Offer.ID != "" && !p.isClosed(in.Offer.ID) {
		p.phase, p.offer, p.base = sprintRunning, in.Offer, in.Base
		p.began, p.covered, p.spent, p.blind = now, now, 0, false
	}
	if p.phase == sprintRunning {
		if in.Newer && in.Offer.ID == p.offer.ID {
			p.base, p.offer.Cap = in.Base, in.Offer.Cap
		}
		if why, over := p.over(now, in, c); over {
			p.phase, p.reason = sprintEnding, why
		}
	}
	if p.phase == sprintRunning {
		return p.offer.Cap
	}
	return in.Base
}

func (in SprintInput) sane() SprintInput {
	s := Sample{Package: in.Wall, Elapsed: in.Elapsed}.sane()
	in.Wall, in.Elapsed = s.Package, s.Elapsed
	return in
}

// over reports whether the active sprint must end now, and why.
func (p *Sprint) over(now time.Duration, in SprintInput, c SprintConfig) (SprintEnding, bool) {
	ahead := c.Ahead
	if ahead == 0 {
		ahead = sprintAhead
	}
	pending := p.offer.Cap
	if !in.Wall.Known {
		pending = p.worst(c)
	}
	foreseen := p.spent + above(pending, p.base, now-p.covered) + above(p.offer.Cap, p.base, ahead)
	switch {
	case !in.Held:
		return EndedLease, true
	case in.Offer.ID != p.offer.ID:
		return EndedSuperseded, true
	case in.Stop || p.offer.Cap <= in.Base:
		return EndedStopped, true
	case in.Hot:
		return EndedThermal, true
	case foreseen >= p.offer.Escrow:
		return EndedEscrow, true
	case now-p.began >= p.offer.Duration:
		return EndedTime, true
	}
	return 0, false
}

// worst returns the most that the node may draw while power is unknown.
func (p *Sprint) worst(c SprintConfig) units.Power { return max(c.Rated, p.offer.Cap) }

// tally adds the energy above the base cap since the last call.
func (p *Sprint) tally(now time.Duration, in SprintInput, c SprintConfig) {
	from := now - in.Elapsed
	switch {
	case in.Wall.Known && in.Elapsed > 0:
		if from > p.covered { // somewhere a sample was missing
			p.spent, p.blind = p.spent+above(p.worst(c), p.base, from-p.covered), true
		}
		drawn := in.Wall.Power
		if from < p.began { // a mean over the time before, too: it hides how much came after
			drawn = max(drawn, p.offer.Cap)
		}
		if in.Elapsed > unmeasuredMost {
			drawn = p.most(drawn)
		}
		p.spent += above(drawn, p.base, now-max(from, p.covered))
		p.covered = max(p.covered, now)
	case now-p.covered > unmeasuredMost:
		p.spent, p.blind = p.spent+above(p.worst(c), p.base, now-p.covered), true
		p.covered = now
	}
}

// most is the draw that counts for a mean over long, as of a powerd that stood
// still: what was drawn below the base hides what was drawn above it. The worst is
// the sprint's cap for a part of the time, and nothing for the rest.
func (p *Sprint) most(mean units.Power) units.Power {
	if mean >= p.offer.Cap {
		return mean
	}
	return p.base + units.Power(float64(p.offer.Cap-p.base)*float64(mean)/float64(p.offer.Cap))
}

// above returns the energy of a draw above the base cap in d.
func above(draw, base units.Power, d time.Duration) units.Energy {
	if draw <= base || d <= 0 {
		return 0
	}
	return (draw - base).For(d)
}

// close records the end once the base cap has been read back.
func (p *Sprint) close(in SprintInput) {
	if p.phase != sprintEnding || !in.Effective.Known || in.Effective.Power > in.Base {
		return
	}
	if p.count == closedKept {
		copy(p.ended[:], p.ended[1:])
		p.count--
	}
	p.ended[p.count] = SprintEnd{ID: p.offer.ID, Spent: p.spent, Measured: !p.blind, Reason: p.reason}
	p.count++
	p.closed[p.next] = p.offer.ID
	p.next = (p.next + 1) % closedKept
	p.phase, p.offer = sprintNone, SprintOffer{}
}

func (p *Sprint) isClosed(id string) bool {
	for _, c := range p.closed {
		if c == id {
			return true
		}
	}
	return false
}

// Ended returns the ended sprints to report, newest last: at most eight, each until a newer
// sequence is accepted. The caller must not change it.
func (p *Sprint) Ended() []SprintEnd { return p.ended[:p.count] }

// SprintStatus is an active sprint.
type SprintStatus struct {
	SprintOffer
	// Base is the cap that it stands on.
	Base units.Power
	// Remaining is the time until it ends at the latest.
	Remaining time.Duration
	// Spent so far, and whether all of it was measured.
	Spent    units.Energy
	Measured bool
	// Ending says that it is over, but the base cap has not been read back.
	Ending bool
}

// Status returns the active sprint; false without one. While it is true the heartbeat
// contains its ID.
func (p *Sprint) Status(now time.Duration) (SprintStatus, bool) {
	if p.phase == sprintNone {
		return SprintStatus{}, false
	}
	return SprintStatus{
		SprintOffer: p.offer, Base: p.base, Remaining: max(0, p.offer.Duration-(now-p.began)),
		Spent: p.spent, Measured: !p.blind, Ending: p.phase == sprintEnding,
	}, true
}
