package capping

import (
	"math"
	"time"

	"headroom/units"
)

// Constants of Bind. A cut that does not bind is found after bindSettle + bindRun and a block
// of each, at most: below 8 s with counters.
const (
	// bindSettle is how long after a cut power may stand above the new cap: with package
	// limits 99 % of all cuts are met in 1 s, with frequencies the power follows at once.
	bindSettle = 2 * time.Second
	// bindBlock is the time that power is averaged over: ten RAPL windows. Single samples
	// of late counters are off by 10 %.
	bindBlock = time.Second
	// bindRun is for how long, and bindBlocks in how many blocks in a row, power must stand
	// above the cap.
	bindRun    = 3 * time.Second
	bindBlocks = 2
	// bindOver is the ratio above the cap, and bindOffset the watts, that are an excess. The
	// law keeps means over 1 s within 3 % when load rises; coarse sensors round.
	bindOver   = 0.03
	bindOffset = units.Watt
	// bindHold is for how long there must be no excess until it ends. Load that comes and
	// goes would make it end and begin.
	bindHold = 30 * time.Second
	// bindGap is the longest time without a reading that a run may bridge.
	bindGap = 5 * time.Second
)

// The caps of late are kept in slots.
const (
	capSlot  = 500 * time.Millisecond
	capSlots = 64
)

// BindLook is one look at what a node draws under its cap.
type BindLook struct {
	// Cap in force from now on, or what reads back where that is more.
	Cap units.Power
	// Drawn is the mean power at the wall over Elapsed; 0 Elapsed: nothing new was measured.
	Drawn   Reading
	Elapsed time.Duration
	// Late is how much older than now a reading may be: 0 for counters, the time between
	// two readings for a BMC.
	Late time.Duration
}

// Bind watches whether the limits that hold a cap bind: a limit may be written and read back
// well, and power stand above it. It compares the mean power at the wall with the highest
// cap that was in force while it was drawn or that it may still be settling from, and calls
// a limit unbound when it was exceeded for seconds without a break. Such a node is charged
// the highest mean of late, until the cap has been met for half a minute.
//
// The wall counts, whatever measures it (counters and the learned model, or the BMC alone),
// because caps and charges are watts at the wall; a package below its limit on a machine
// whose other parts draw more than the cap leaves is an excess just as well, and a package
// above its limit below the cap takes nobody's watts.
//
// Unknown power is neither an excess nor the end of one. The zero Bind has seen nothing. It
// belongs to one goroutine.
type Bind struct {
	caps  [capSlots]units.Power // highest in each slot, the newest at slot%capSlots
	slot  int64
	began time.Duration // of the watch
	cap   units.Power   // of the look before
	looks bool

	block   stretch
	run     time.Duration // for how long blocks in a row were over the cap
	blocks  int           // in the run
	heardAt time.Duration // last known reading

	unbound bool
	draws   units.Power   // highest mean of late
	drawsAt time.Duration // when that was last seen
	overAt  time.Duration // when bindBlocks in a row last were over the cap
}

// stretch is a time with what was drawn in it.
type stretch struct {
	length, above time.Duration // and for how long of it power was above the cap
	joules, most  float64       // drawn, and what the cap would have allowed
}

// Observe takes one look, at now on any clock that only goes forward.
func (b *Bind) Observe(now time.Duration, in BindLook) {
	seen := Sample{Package: in.Drawn, Elapsed: in.Elapsed}.sane()
	reference, known := b.highest(now, bindSettle+seen.Elapsed+max(0, in.Late))
	b.take(now, in.Cap)
	if seen.Elapsed == 0 || !seen.Package.Known {
		return
	}
	if now-b.heardAt > bindGap+seen.Elapsed {
		b.block, b.run, b.blocks = stretch{}, 0, 0
	}
	b.heardAt = now
	if !known {
		return
	}
	b.block.add(seen.Package.Power, reference, seen.Elapsed)
	if b.block.length >= bindBlock {
		b.judge(now)
		b.block = stretch{}
	}
}

func (s *stretch) add(p, reference units.Power, d time.Duration) {
	s.length += d
	s.joules += p.Watts() * d.Seconds()
	s.most += reference.Watts() * d.Seconds()
	if p > reference {
		s.above += d
	}
}

// over reports whether the mean stands above the cap by more than the tolerance, and power
// does for most of the time: one sample that is insane is no excess.
func (s *stretch) over() bool {
	return s.joules > s.most*(1+bindOver)+bindOffset.Watts()*s.length.Seconds() && 2*s.above > s.length
}

// judge takes in one whole block.
func (b *Bind) judge(now time.Duration) {
	mean := units.FromWatts(math.Ceil(b.block.joules/b.block.length.Seconds() - 1e-6)) // no change of the charge for noise
	if b.block.over() {
		b.run, b.blocks = b.run+b.block.length, b.blocks+1
	} else {
		b.run, b.blocks = 0, 0
	}
	if b.blocks >= bindBlocks {
		b.overAt = now
	}
	switch {
	case b.unbound && now-b.overAt >= bindHold:
		b.unbound, b.draws = false, 0
	case !b.unbound && b.blocks >= bindBlocks && b.run >= bindRun:
		b.unbound, b.draws, b.drawsAt = true, mean, now
	case b.unbound && (mean >= b.draws || now-b.drawsAt >= bindHold):
		b.draws, b.drawsAt = mean, now
	}
}

// take keeps the cap in force from now on.
func (b *Bind) take(now time.Duration, granted units.Power) {
	slot := int64(now / capSlot)
	if !b.looks {
		b.looks, b.began, b.slot = true, now, slot
	}
	for missing := min(slot-b.slot, capSlots); missing > 0; missing-- {
		b.caps[(slot-missing+1)%capSlots] = b.cap // in force all the while
	}
	b.slot = max(b.slot, slot)
	at := &b.caps[b.slot%capSlots]
	*at = max(*at, granted)
	b.cap = granted
}

// highest returns the highest cap in force since back before now; false where the watch is
// younger than that.
func (b *Bind) highest(now, back time.Duration) (units.Power, bool) {
	if !b.looks || now-back < b.began || now < 0 {
		return 0, false
	}
	most := b.cap
	oldest := max(int64((now-back)/capSlot), b.slot-capSlots+1)
	for slot := b.slot; slot >= oldest; slot-- {
		most = max(most, b.caps[slot%capSlots])
	}
	return most, true
}

// Draws returns what a node whose limits do not bind is to be charged at least; 0 while
// they bind, as far as is known.
func (b *Bind) Draws() units.Power { return b.draws }
