package progress

import (
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// Finish is when a job will end, from its start.
type Finish struct {
	At time.Duration
	// Low and High bound At in 9 of 10 cases; the policies Paper and Released, which
	// know no doubt, give At for both.
	Low, High time.Duration
	Known     bool
}

// Tracker follows one job. It is not safe for concurrent use.
type Tracker struct {
	policy Policy
	prior  Prior
	last   Observation
	seen   bool

	// Policies Paper and Released: the last samples, newest first, and the last finish time.
	history []Sample
	kept    Finish

	// Policy Learned.
	model    model
	wave     wave
	open     batch
	counted  float64 // tasks done when the last batch was closed
	exposure exposure
	tail     tail
	// begun is when the last task had begun, as far as it was seen; known with allBegun.
	begun    time.Duration
	allBegun bool
	// ended is when the job was done, on how many map tasks; 0 while that is not known.
	ended time.Duration
	on    int
}

// NewTracker returns a tracker of a job of which nothing is known.
func NewTracker(policy Policy) *Tracker { return NewTrackerWith(policy, DefaultPrior()) }

// NewTrackerWith returns a tracker of a job of which something is held: what Pool.Prior
// says for its name. Only the policy Learned uses it.
func NewTrackerWith(policy Policy, prior Prior) *Tracker {
	return &Tracker{policy: policy, prior: prior}
}

// Policy returns the tracker's policy.
func (t *Tracker) Policy() Policy { return t.policy }

// Observe takes in how far the job is. The first observations of a job may come
// late; the policies Paper and Released then begin from there. An error wraps
// ErrNonsense or ErrTimeBack (the observation was passed over), or ErrRestarted (it
// was taken as a new beginning).
func (t *Tracker) Observe(o Observation) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Done >= t.last.Done && o.Elapsed > t.last.Elapsed {
		t.follow(&o)
	}
	switch {
	case !t.seen:
		t.begin(o)
		return nil
	case o.Elapsed < t.last.Elapsed:
		return fmt.Errorf("%w: %v, the last was at %v", errTimeBack, o.Elapsed, t.last.Elapsed)
	case o.Done < t.last.Done:
		err := fmt.Errorf("%w: %d at %v, %d at %v", errRestarted, o.Done, o.Elapsed, t.last.Done, t.last.Elapsed)
		t.restart(o)
		return err
	case o.Elapsed == t.last.Elapsed:
		return nil
	}
	t.step(o)
	t.last = o
	t.keep()
	return nil
}

// follow puts into o what the ages of the running tasks tell of the work done, for the
// policy Learned. Before a task has ended, jobs of its name say how long one takes.
func (t *Tracker) follow(o *Observation) {
	if t.policy != Learned || o.Phase == Waiting || o.mapped() {
		return
	}
	t.wave.step(&t.last, o)
	expected := t.wave.length
	if rate, _, known := t.rate(o.Power, o.Containers); expected == 0 && known && positive(rate) && positive(o.Containers) {
		expected = o.Containers / rate
	}
	o.Work = t.wave.work(o, expected)
}

// begin takes the first observation. A job that is met in the middle of its life has
// shown its mean rate since its start, under conditions that nobody has seen.
func (t *Tracker) begin(o Observation) {
	t.seen = true
	t.last = Observation{Phase: Map, Work: min(o.Work, 0), Power: o.Power, Full: o.Full, Containers: o.Containers, Tasks: o.Tasks}
	if t.policy == Learned && o.Elapsed > 0 {
		t.learn(o, true)
	}
	t.last = o
	t.keep()
}

// restart counts anew from o.
func (t *Tracker) restart(o Observation) {
	t.exposure.plain += o.Elapsed - t.last.Elapsed
	t.open, t.wave, t.tail, t.allBegun = batch{}, wave{}, tail{}, false
	t.counted = float64(o.Done)
	t.last = o
}

// step takes in the interval from the last observation to o.
func (t *Tracker) step(o Observation) {
	if t.policy == Learned {
		t.learn(o, false)
		return
	}
	if o.Phase == Waiting || t.last.mapped() {
		return
	}
	interval := o.Elapsed - t.last.Elapsed
	s := Sample{
		Rate: float64(o.Done-t.last.Done) / interval.Seconds(), Power: o.Power, Containers: o.Containers, Interval: interval,
		Settling: o.Power != t.last.Power || o.Containers != t.last.Containers,
	}
	t.history = append([]Sample{s}, t.history[:min(len(t.history), window-1)]...)
}

// filter returns the rate by the policy's equation.
func (t *Tracker) filter(power units.Power, containers float64) (float64, bool) {
	if t.policy == Released {
		return FilterReleased(t.history, power)
	}
	return Filter(t.history, power, containers)
}

// keep keeps the finish time as things are: it stands while no sample is usable.
func (t *Tracker) keep() {
	if t.policy == Learned {
		return
	}
	if f := t.filtered(t.last.Power, t.last.Containers, float64(t.last.Tasks)); f.Known {
		t.kept = f
	}
}

func (t *Tracker) filtered(power units.Power, containers, target float64) Finish {
	left := target - float64(t.last.Done)
	rate, _ := t.filter(power, containers) // 0 when unknown: unknown too, unless nothing is left
	at, known := FinishTime(t.last.Elapsed, left, rate)
	if !known || !t.seen {
		return Finish{}
	}
	return Finish{At: at, Low: at, High: at, Known: true}
}

// Finish returns when the job ends under a cap with so many task containers, when its map
// part ends with target tasks completed. Under the policies Paper and Released it is
// the map part's end (CAB knows no other), and while none of their samples is
// usable the last that was known. A power of 0 stands for the last one observed.
func (t *Tracker) Finish(power units.Power, containers, target float64) Finish {
	if power <= 0 {
		power = t.last.Power
	}
	if t.policy != Learned {
		if f := t.filtered(power, containers, target); f.Known {
			return f
		}
		return t.kept
	}
	return t.finish(t.last.Elapsed, part{}, power, containers, target)
}

// Uncapped returns when the job would end without a cap: under the policies Paper and
// Released as if the cap were lifted now, under Learned as if there had never been one.
func (t *Tracker) Uncapped(containers, target float64) Finish {
	full := t.full()
	if t.policy != Learned {
		return t.Finish(full, containers, target)
	}
	past, least := t.exposure.uncapped(&t.model, full)
	past.variance *= t.model.doubt()
	f := t.finish(t.exposure.plain, past, full, containers, target)
	f.Low = max(f.Low, min(f.At, t.exposure.plain+time.Duration(least*float64(time.Second))))
	return f
}

// full returns the power at full speed; the last one observed where the engine does not tell.
func (t *Tracker) full() units.Power {
	if t.last.Full > 0 {
		return t.last.Full
	}
	return t.last.Power
}

// Exponents returns those by which the rate follows power and containers, at the power
// last observed. Those of the policies Paper (both 1) and Released (both 0) are sure.
func (t *Tracker) Exponents() (power, containers Coefficient) {
	switch {
	case t.policy == Paper:
		return Coefficient{Value: 1}, Coefficient{Value: 1}
	case t.policy == Released:
		return Coefficient{}, Coefficient{}
	case !t.model.set:
		return t.prior.Power, t.prior.Containers
	}
	return t.model.exponent(t.last.Power), t.model.coefficient(scaling)
}

// learn takes in the interval from the last observation to o for the policy Learned.
func (t *Tracker) learn(o Observation, unsure bool) {
	interval := o.Elapsed - t.last.Elapsed
	power, containers := between(t.last.Power, o.Power), between(t.last.Containers, o.Containers)
	t.model.refer(t.prior, power, o.Full, containers)
	if o.Phase == Waiting || !t.model.set || power <= 0 {
		t.exposure.plain += interval
	} else {
		t.exposure.add(t.model.u(power), interval.Seconds())
	}
	if t.last.mapped() {
		t.tail.step(t, o)
		return
	}
	if o.Phase != Waiting && t.model.set && containers > 0 {
		changed := t.last.Power != o.Power || power <= 0
		t.open.add(interval.Seconds(), t.worked(o), t.model.u(power), t.model.l(containers), unsure || changed)
		t.model.pass(t.worked(o) / float64(max(o.Tasks, 1)))
		if !t.ending(o) {
			t.allBegun = false
			t.close(o)
		} else if !t.allBegun {
			t.allBegun, t.begun = true, t.last.Elapsed
		}
	}
	if o.mapped() {
		t.tail.begin(t.last.Elapsed, o)
	}
}

// ending reports whether all tasks that are left run already. Then containers fall
// idle one by one, which says nothing about what more of them would do.
func (t *Tracker) ending(o Observation) bool {
	return float64(o.Tasks-o.Done) <= o.Containers || o.Containers < t.last.Containers && float64(o.Tasks-o.Done) <= t.last.Containers
}

// worked returns the map work between the last observation and o, in tasks.
func (t *Tracker) worked(o Observation) float64 {
	if o.Work >= 0 && t.last.Work >= 0 {
		return max(o.Work-t.last.Work, 0)
	}
	return float64(o.Done - t.last.Done)
}

// between returns the mean of two values of which either may be unknown.
func between[T units.Power | float64](a, b T) T {
	switch {
	case a <= 0:
		return b
	case b <= 0:
		return a
	}
	return a + (b-a)/2
}

// close gives the open batch to the model once it tells a rate. Tasks of one length
// end in waves: where only ends are counted, a batch lasts until half of a wave has
// ended, so that each begins and ends in the middle of one.
func (t *Tracker) close(o Observation) {
	enough, noise := workBatch, workNoise
	if o.Work < 0 {
		enough, noise = max(1, o.Containers/2), 1
	}
	if t.open.work < enough {
		return
	}
	if o.Work < 0 && t.model.samples == 0 {
		t.model.learn(t.firstWave().sample(workNoise))
	} else {
		t.model.learn(t.open.sample(noise))
	}
	t.open = batch{}
	t.counted = float64(o.Done)
}

// firstWave returns the open batch where it is the job's first and only ends are counted:
// its tasks began together, so when the first have ended each container has done
// about the work of one.
func (t *Tracker) firstWave() *batch {
	b := t.open
	b.work = max(b.work, t.model.number*math.Exp(b.l/b.seconds))
	return &b
}

// finish returns the policy Learned: now is the time that has passed, in the life that is
// asked for, and past what has passed of it that is known only up to a doubt.
func (t *Tracker) finish(now time.Duration, past part, power units.Power, containers, target float64) Finish {
	if !t.seen || math.IsNaN(target) || now < 0 {
		return Finish{}
	}
	maps, mapsVar, known := t.maps(power, containers, min(target, float64(t.last.Tasks)))
	if !known {
		return Finish{}
	}
	rest, restVar := t.tail.left(t, maps, power, target)
	return span(now, past, part{maps, mapsVar}, part{rest, restVar})
}

// part is some seconds, and the variance of their logarithm.
type part struct{ seconds, variance float64 }

// within returns the seconds by which a part may be shorter and longer in 9 of 10 cases.
func (p part) within() (shorter, longer float64) {
	width := math.Exp(ninety * math.Sqrt(min(p.variance, doubtMax)))
	return p.seconds - p.seconds/width, p.seconds*width - p.seconds
}

// span returns when parts, one after the other and independent, are over.
func span(now time.Duration, parts ...part) Finish {
	var total, shorter, longer float64
	for _, p := range parts {
		s, l := p.within()
		total, shorter, longer = total+p.seconds, math.Hypot(shorter, s), math.Hypot(longer, l)
	}
	at, known := after(now, total)
	if !known {
		return Finish{}
	}
	low, _ := after(now, max(total-shorter, 0))
	high, known := after(now, total+longer)
	if !known {
		high = longest
	}
	return Finish{At: at, Low: low, High: max(high, at), Known: true}
}

// maps returns the seconds until target map tasks are done.
func (t *Tracker) maps(power units.Power, containers, target float64) (seconds, variance float64, known bool) {
	missing := target - float64(t.last.Done)
	if missing <= 0 || t.last.mapped() {
		return 0, 0, true
	}
	// More containers than tasks that are left help nobody.
	running := min(containers, float64(t.last.Tasks-t.last.Done))
	if !positive(running) {
		return 0, 0, false
	}
	rate, variance, known := t.rate(power, running)
	if !known || !positive(rate) {
		return 0, 0, false
	}
	left, lag := t.left(target, running)
	seconds = (left + lag) / rate
	if t.allBegun && t.last.Work >= 0 {
		// The last task ends a task's length after it began.
		length, gone := running/rate, (t.last.Elapsed - t.begun).Seconds()
		seconds = min(seconds, max(left/rate, length-gone))
	}
	part := left / float64(max(t.last.Tasks, 1))
	variance += drift*drift*part/3 + workNoise*workNoise/max(missing, 1) + square(t.endNoise()*running/rate/max(seconds, 1e-9))
	return seconds, variance, positive(seconds)
}

// endNoise returns how sure the end of the last wave is, in lengths of a task.
func (t *Tracker) endNoise() float64 {
	if t.last.Work < 0 {
		return 0.35
	}
	return 0.25
}

// left returns the work that is missing, in tasks, and by how much the last task's end
// comes after the moment when the containers together would be through with it.
func (t *Tracker) left(target, running float64) (work, lag float64) {
	if t.last.Work >= 0 {
		work = max(target-t.last.Work, 0)
		return work, min(0.6*running, work) * (running - 1) / (running + 1)
	}
	// Where only ends are counted they lag behind by as much already.
	expected := 0.0
	if t.model.known && t.open.seconds > 0 {
		expected = t.open.seconds * math.Exp(t.model.at(t.open.u/t.open.seconds, t.open.l/t.open.seconds))
	}
	expected = min(max(expected, t.open.work), t.open.work+running)
	return max(target-t.counted-expected, 0.5), 0
}

// rate returns the tasks per second and the variance of its logarithm. Before the first
// wave has ended the tasks that have tell how long one takes.
func (t *Tracker) rate(power units.Power, containers float64) (rate, variance float64, known bool) {
	m := t.model
	if !m.known {
		if t.open.work <= 0 || !m.set {
			return 0, 0, false
		}
		first := &t.open
		if t.last.Work < 0 {
			first = t.firstWave()
		}
		m.learn(first.sample(workNoise))
	}
	mean, variance := m.rate(power, containers)
	return math.Exp(mean), variance * m.doubt(), true
}

func square(x float64) float64 { return x * x }
