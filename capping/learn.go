package capping

import (
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// WallReading is a BMC's reading of wall power.
type WallReading struct {
	Power units.Power
	// Known is false where the BMC did not answer, or answered nonsense.
	Known bool
	// Serial changes whenever the value changed: a BMC that freezes answers as
	// quickly as one that works, so freshness is judged by change alone.
	Serial uint64
	// ChangedAt is when the change was seen, on the clock of the law.
	ChangedAt time.Duration
	// AskedAt is when the BMC last answered with it, on the same clock: a value that
	// stands counts again only when it was told again.
	AskedAt time.Duration
}

// Constants of the outer, slow half of the control.
const (
	// lagCount and spanCount: how many ages and lengths of the BMC's mean are thought possible.
	lagCount, spanCount = 8, 5
	// lookBack is the oldest power that a reading can be about.
	lookBack = 15 * time.Second
	// heldSamples bounds the history; at 100 ms a turn it still covers lookBack.
	heldSamples = 192
	// freshFor is how long after its change a reading counts as fresh; the slowest
	// BMC meant to be followed changes every 10 s.
	freshFor = 30 * time.Second
	// repeatFor is for how long an unchanged value is read again, or two and a half
	// periods, whatever is longer.
	repeatFor = 12 * time.Second
	// periodLeast and periodMost bound the BMC's period as it is learned; periodGuess
	// stands for it until the value has changed twice.
	periodLeast, periodMost = time.Second / 2, 10 * time.Second
	periodGuess             = 2 * time.Second
	// marginMost is set aside, as a ratio of the cap, when nothing was heard for
	// marginAge or ever; in between it grows evenly, and it goes by marginFade.
	marginMost = 0.03
	marginAge  = 10 * time.Minute
	marginFade = 0.01 // a second
	// sane: a wall reading outside these multiples of the model is no reading.
	saneLow, saneHigh = 0.4, 2.5
	// wallMost is above what any single machine draws.
	wallMost = 100 * units.Kilowatt
	// What may be learned: the wall against the model, as ratios. Up is narrow: a
	// BMC that reads low must not lift the node far over its cap.
	learnedLow, learnedHigh = 0.88, 2.0
	slopeLow, slopeHigh     = 0.80, 2.0
	// First doubts, as standard deviations: of the constant (ratio of the power)
	// and of the slope.
	doubtConstant, doubtSlope = 0.08, 0.05
	// doubtBetter is the part of the doubt about the constant when the first reading
	// is below the model.
	doubtBetter = 0.1
	// How both wander in a second, and what a slope stays open to.
	wanderConstant, wanderSlope = 0.0007, 0.0008
	// noise of a reading: 1 W of rounding and a share of the power.
	noiseWatts, noiseRatio = 0.5, 0.004
	// agreeWithin is how far the wall may be above the model as configured, agreeBelow how
	// far below it: a BMC that reads low lifts the node, so less of that is normal.
	agreeWithin, agreeBelow = 0.10, 0.07
	// agreeAfter is how many readings an opinion needs.
	agreeAfter = 3
	// forget is what is kept of old evidence about the BMC's lag at each reading.
	forget = 0.97
	// outlier is how many standard deviations off a reading is not believed at once.
	outlier = 4.0
	// telling is how many standard deviations of noise the candidates must be apart
	// before a reading says which is right.
	telling = 5.0
	// What the line may be wrong by when candidates are weighed: an offset that all
	// readings share must not look like evidence about time.
	biasWatts, biasRatio = 1.5, 0.01
)

func lags() [lagCount]time.Duration {
	const s = time.Second
	return [...]time.Duration{0, s / 4, s / 2, s, 3 * s / 2, 2 * s, 3 * s, 5 * s}
}

func spans() [spanCount]time.Duration {
	const s = time.Second
	return [...]time.Duration{s / 4, s, 2 * s, 5 * s, 10 * s}
}

// moment is one step of the inner loop, with the sums up to its end.
type moment struct {
	at      time.Duration
	joules  float64 // of the model's wall power
	unknown time.Duration
}

// Learner is the slow half of the two-speed control: it learns how wall power differs from
// the model of package and DRAM, from a BMC that is late, averages, updates every second
// to ten, and may freeze or be wrong.
//
// The one idea: the wall is a straight line over the model, wall = a + b*model,
// and such a line is the model again with another Other and another Efficiency.
// So what was learned goes back into Config, and Step stays as fast as RAPL.
//
// A reading is compared with the model's mean over the time that it covers. That time is
// unknown: a grid of ages and lengths is kept, each weighted by how well it explained the
// readings so far. Where they disagree (soon after a change of power) the reading has
// little weight.
//
// Guarantees: only changed and plausible readings are learned from; the correction is
// bounded; without fresh readings it does not change and a margin grows. A Learner belongs
// to one goroutine and allocates nothing.
type Learner struct {
	config Config
	fit    line
	began  bool // fit stands on a reading

	ring  [heldSamples]moment
	last  int // newest in ring
	count int

	weights [lagCount * spanCount]float64 // logarithms, the best is 0
	means   [lagCount * spanCount]float64

	serial   uint64
	heard    bool
	changed  time.Duration // when the value last changed
	period   time.Duration // between changes, the least of late; 0: not known
	barred   bool          // what stands there now was insane: it is not read again
	again    time.Duration // when an unchanged value counts once more
	freshAt  time.Duration
	movedAt  time.Duration
	doubted  int     // outliers in a row, signed
	margin   float64 // set aside now
	marginAt time.Duration
	ratio    float64 // wall over model less 1, smoothed
	opinions int
	model    float64 // model's wall power in the last reading, W
}

// NewLearner returns a Learner with the configured model.
func NewLearner(c Config) *Learner {
	l := &Learner{config: c, fit: line{b: 1}, margin: marginMost}
	for i := range l.weights {
		l.weights[i] = guessed(i)
	}
	return l
}

// guessed returns the initial weight of a candidate: a fast BMC is likelier than a slow
// one.
func guessed(i int) float64 {
	return -(lags()[i/spanCount] + spans()[i%spanCount]).Seconds() / 4
}

// Observe adds one sample of the inner loop, ending now.
func (l *Learner) Observe(now time.Duration, in Sample) {
	in = in.sane()
	if in.Elapsed <= 0 && l.count > 0 {
		return
	}
	before := l.ring[l.last]
	if l.count > 0 && now <= before.at {
		return
	}
	next := moment{at: now, joules: before.joules, unknown: before.unknown}
	switch passed := now - before.at; {
	case l.count == 0:
	case in.Package.Known && (in.DRAM.Known || !l.config.HasDRAM) && passed < 2*in.Elapsed+time.Second/2:
		next.joules += l.config.wallOf(in) * passed.Seconds()
	default:
		next.unknown += passed
	}
	l.last = (l.last + 1) % heldSamples
	l.ring[l.last] = next
	l.count = min(l.count+1, heldSamples)
	l.fade(now)
}

// wallOf returns the model's wall power for a sample, in W.
func (c Config) wallOf(in Sample) float64 {
	dc := in.Package.Power.Watts() + c.Other.Watts()
	if c.HasDRAM {
		dc += in.DRAM.Power.Watts()
	}
	return dc / c.Efficiency
}

// Learn uses the BMC's newest reading and reports whether it was learned from. The same
// reading may be passed any number of times. One that changed recently and stays for
// another period of the BMC counts as a new one: under steady power nothing changes.
func (l *Learner) Learn(now time.Duration, w WallReading) bool {
	if !w.Known {
		return false
	}
	if l.heard && w.Serial == l.serial {
		if l.barred || now < l.again || now-l.changed > l.repeated() || w.AskedAt < l.again-l.pace() {
			return false
		}
		l.again = now + l.pace()
		if !l.reading(now, now, w.Power) {
			return false
		}
		l.freshAt = max(l.freshAt, l.changed) // its first sight may have come before any power was known
		return true
	}
	l.serial, l.barred = w.Serial, false
	if w.Power <= 0 || w.Power > wallMost || w.ChangedAt > now || now-w.ChangedAt > freshFor || w.ChangedAt < l.changed {
		l.barred = true
		return false
	}
	if l.heard && w.ChangedAt > l.changed {
		interval := w.ChangedAt - l.changed
		if l.period > 0 {
			interval = min(interval, l.period+l.period/8)
		}
		l.period = clamp(interval, periodLeast, periodMost)
	}
	l.heard, l.changed = true, w.ChangedAt
	l.again = w.ChangedAt + l.pace()
	if !l.reading(now, w.ChangedAt, w.Power) {
		return false
	}
	l.freshAt = w.ChangedAt
	return true
}

// pace returns the time between two readings of an unchanged value.
func (l *Learner) pace() time.Duration {
	if l.period == 0 {
		return periodGuess
	}
	return l.period
}

// repeated bounds the time for which an unchanged value counts: it may be frozen.
func (l *Learner) repeated() time.Duration { return max(repeatFor, 5*l.period/2) }

// reading handles a BMC reading of wall at the time at.
func (l *Learner) reading(now, at time.Duration, wall units.Power) bool {
	y := wall.Watts()
	low, high := l.compare(at)
	if math.IsNaN(low) {
		return false // the power of that time is not known
	}
	x, spread := l.mixed()
	if y < saneLow*low || y > saneHigh*high {
		l.barred = true
		return false
	}
	l.judge(x, y)
	return l.take(now, x, y, spread)
}

// take updates the line, unless the reading is an outlier.
func (l *Learner) take(now time.Duration, x, y, spread float64) bool {
	if !l.began {
		l.began = true
		l.fit = line{b: 1, paa: sq(doubtConstant * x), pbb: sq(doubtSlope)}
		if y < x {
			// A supply that is better than configured, by a share: as a constant it would
			// weigh double at half the power, on the wrong side of the cap.
			l.fit.paa = sq(doubtConstant * doubtBetter * x)
		}
	} else {
		dt := min((now - l.movedAt).Seconds(), lookBack.Seconds())
		l.fit.drift(sq(wanderConstant*x)*dt, sq(wanderSlope)*dt)
	}
	l.movedAt, l.model = now, x
	r := sq(noiseWatts+noiseRatio*y) + sq(spread)
	guess, variance := l.fit.at(x)
	miss := y - guess
	if sq(miss) > sq(outlier)*(variance+r) && l.opinions > 1 {
		// Once is chance, twice the same way is a change of the machine: the line is
		// open again.
		if miss > 0 != (l.doubted > 0) {
			l.doubted = 0
		}
		l.doubted += int(math.Copysign(1, miss))
		if l.doubted > -2 && l.doubted < 2 {
			return false
		}
		l.fit.drift(sq(miss), 0)
	}
	l.doubted = 0
	l.weigh(y, variance)
	l.fit.learn(x, y, r)
	l.bound(x)
	return true
}

// bound keeps the line within plausible values.
func (l *Learner) bound(x float64) {
	l.fit.b = clamp(l.fit.b, slopeLow, slopeHigh)
	y := l.fit.a + l.fit.b*x
	l.fit.a += clamp(y, learnedLow*x, learnedHigh*x) - y
}

// compare computes the model's mean over each time that a reading may cover, and their
// minimum and maximum; NaN if too little is known.
func (l *Learner) compare(at time.Duration) (low, high float64) {
	low, high = math.NaN(), math.NaN()
	i := 0
	for _, lag := range lags() {
		for _, span := range spans() {
			m := l.mean(at-lag-span, at-lag)
			l.means[i] = m
			i++
			if !math.IsNaN(m) && !(m >= low) {
				low = m
			}
			if !math.IsNaN(m) && !(m <= high) {
				high = m
			}
		}
	}
	return low, high
}

// mixed returns the weighted mean of the candidates, and their spread.
func (l *Learner) mixed() (x, spread float64) {
	var sum, first, second float64
	for i, m := range l.means {
		if !math.IsNaN(m) {
			w := math.Exp(l.weights[i])
			sum, first, second = sum+w, first+w*m, second+w*m*m
		}
	}
	x = first / sum
	return x, math.Sqrt(max(0, second/sum-x*x))
}

// weigh moves the weights by how well each candidate explains the reading. Under
// steady power all explain it alike, and what differs is rounding and the law's own
// slow correction, from which many readings would make a false certainty.
func (l *Learner) weigh(y, variance float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range l.means {
		if !math.IsNaN(m) {
			low, high = min(low, m), max(high, m)
		}
	}
	if high-low < telling*(noiseWatts+noiseRatio*y) {
		return
	}
	r := sq(biasWatts+biasRatio*y) + variance
	best := math.Inf(-1)
	for i, m := range l.means {
		if !math.IsNaN(m) {
			guess, _ := l.fit.at(m)
			l.weights[i] = guessed(i) + (l.weights[i]-guessed(i))*forget - min(sq(y-guess)/(2*r), 8)
		}
		best = max(best, l.weights[i])
	}
	for i := range l.weights {
		l.weights[i] = max(l.weights[i]-best, -20)
	}
}

// mean returns the model's wall power between two times; NaN if more than a tenth of it is
// unknown or no longer stored.
func (l *Learner) mean(from, to time.Duration) float64 {
	span, newest := to-from, l.ring[l.last].at
	if to > newest && to <= newest+time.Second {
		to = newest // a turn may not have come yet
	}
	a, okA := l.sums(to - span)
	b, okB := l.sums(to)
	unknown := b.unknown - a.unknown
	if !okA || !okB || unknown*10 > span {
		return math.NaN()
	}
	return (b.joules - a.joules) / (span - unknown).Seconds()
}

// sums returns the sums at a time, interpolated between two steps.
func (l *Learner) sums(at time.Duration) (moment, bool) {
	after := l.ring[l.last]
	if l.count == 0 || at > after.at {
		return moment{}, false
	}
	if at == after.at {
		return after, true
	}
	for i := 1; i < l.count; i++ {
		before := l.ring[(l.last-i+heldSamples)%heldSamples]
		if before.at <= at {
			part := float64(at-before.at) / float64(after.at-before.at)
			return moment{
				joules:  before.joules + part*(after.joules-before.joules),
				unknown: before.unknown + time.Duration(part*float64(after.unknown-before.unknown)),
			}, true
		}
		after = before
	}
	return moment{}, false
}

// fade lets the margin follow the age of the newest reading.
func (l *Learner) fade(now time.Duration) {
	want := marginMost
	if l.began {
		want = marginMost * clamp((now-l.freshAt-freshFor).Seconds()/marginAge.Seconds(), 0, 1)
	}
	l.margin = max(want, l.margin-marginFade*clamp((now-l.marginAt).Seconds(), 0, 1))
	l.marginAt = now
}

// judge updates the agreement with the configured model.
func (l *Learner) judge(x, y float64) {
	part := max(0.25, 1/float64(l.opinions+1))
	l.ratio += (y/x - 1 - l.ratio) * part
	l.opinions = min(l.opinions+1, 1000)
}

// Config returns the learned model with the current margin, for Step: a cap is met at the
// wall, not only by the configured model.
func (l *Learner) Config() Config { return l.learned(l.margin) }

// Model returns the learned model without margin, for display and reports.
func (l *Learner) Model() Config { return l.learned(0) }

// learned converts the line into a model: (a + b*(p+other)/e) * (1+m) is
// (p + other + a*e/b) / (e/(b*(1+m))).
func (l *Learner) learned(margin float64) Config {
	c := l.config
	c.Other += units.FromWatts(l.fit.a * c.Efficiency / l.fit.b)
	c.Efficiency /= l.fit.b * (1 + margin)
	return c
}

// Margin returns the current margin for a late BMC, as a ratio.
func (l *Learner) Margin() float64 { return l.margin }

// Other returns the power behind the supply that is neither package nor DRAM, at the
// present power, and whether it was learned.
func (l *Learner) Other() (units.Power, bool) {
	if !l.began {
		return l.config.Other, false
	}
	off := l.fit.a + (l.fit.b-1)*l.model
	return l.config.Other + units.FromWatts(off*l.config.Efficiency), true
}

// AgreementState is the agreement of package power and wall power.
type AgreementState int

// Agreement states.
const (
	AgreementUnknown AgreementState = iota // too few fresh readings
	Agrees                                 // at most 10 % above and 7 % below
	Disagrees                              // one of both is wrong: the wall is more than 10 % above or 7 % below
)

// Agreement compares the wall with the configured model of RAPL. The counters of a
// processor that filters its energy readings (SGX, INTEL-SA-01103) may be wrong by half.
type Agreement struct {
	State AgreementState
	// Ratio is wall over model less 1; 0 while unknown.
	Ratio float64
}

// String returns the agreement in words.
func (a Agreement) String() string {
	switch a.State {
	case Agrees:
		return fmt.Sprintf("agrees (%+.1f %%)", 100*a.Ratio)
	case Disagrees:
		return fmt.Sprintf("disagrees by %+.0f %%", 100*a.Ratio)
	case AgreementUnknown:
	}
	return "unknown"
}

// Agreement returns the agreement of the configured model with the wall; unknown while
// there are few readings, or none within a minute.
func (l *Learner) Agreement(now time.Duration) Agreement {
	switch {
	case l.opinions < agreeAfter || now-l.freshAt > 2*freshFor:
		return Agreement{}
	case l.ratio <= agreeWithin && l.ratio >= -agreeBelow:
		return Agreement{State: Agrees, Ratio: l.ratio}
	}
	return Agreement{State: Disagrees, Ratio: l.ratio}
}

func sq(x float64) float64 { return x * x }
