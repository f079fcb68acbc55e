package progress

import (
	"math"
	"time"

	"headroom/units"
)

const (
	// tailPart is what shuffle and reduce take of a job's map time where nothing is known.
	tailPart = 0.1
	// tailNoise is how sure that is: log scale.
	tailNoise = 1.0
)

// tail is what comes after a job's map tasks: shuffle and reduce.
type tail struct {
	begun   bool
	at      time.Duration // when the map tasks were over, as seen
	before  time.Duration // the look before that
	reduced float64       // reduce work done by then
	total   Coefficient   // ln of its seconds, as it has shown itself; SD 0: not yet
}

func (x *tail) begin(before time.Duration, o Observation) {
	*x = tail{begun: true, at: o.Elapsed, before: before, reduced: max(o.Reduced, 0)}
}

// step takes in an observation after the map part.
func (x *tail) step(t *Tracker, o Observation) {
	if !x.begun {
		x.begin(t.last.Elapsed, t.last)
	}
	part := (o.Reduced - x.reduced) / (1 - x.reduced)
	if seconds := (o.Elapsed - x.at).Seconds(); part > 0.01 && seconds > 0 {
		part = min(part, 1)
		// Shuffle, sort and reduce go at rates of their own.
		x.total = Coefficient{Value: math.Log(seconds / part), SD: 0.05 + 0.3*math.Sqrt((1-part)/part)}
	}
}

// left returns the seconds that are left of it after the map part (of so many seconds
// from now), and the variance of their logarithm.
func (x *tail) left(t *Tracker, maps float64, power units.Power, target float64) (seconds, variance float64) {
	if t.last.Reduced < 0 {
		return 0, 0
	}
	guess := x.expected(t, maps, power, target)
	if !x.begun {
		return math.Exp(guess.Value), square(guess.SD)
	}
	if x.total.SD > 0 {
		guess = combined(guess, x.total)
	}
	gone := (t.last.Elapsed - x.at).Seconds()
	if t.last.Reduced >= 1 {
		return 0, 0
	}
	total := math.Exp(guess.Value)
	// It has lasted longer than expected: then a part of that is still to come.
	left := max(total-gone, 0.1*total)
	return left, square(guess.SD * total / left)
}

// expected returns ln of the seconds of the whole tail, from earlier jobs or from the map work.
func (x *tail) expected(t *Tracker, maps float64, power units.Power, target float64) Coefficient {
	if p := t.prior.Tail; p != nil && target > 0 {
		slower := 0.0
		if t.model.set {
			slower = -math.Log(t.model.speed(t.model.u(power), t.full()))
		}
		return Coefficient{Value: p.Value + math.Log(target) + slower, SD: p.SD}
	}
	whole := maps + t.last.Elapsed.Seconds()
	if x.begun {
		whole = x.at.Seconds()
	}
	return Coefficient{Value: math.Log(max(tailPart*whole, 1e-3)), SD: tailNoise}
}

// combined returns what two estimates of one number say together.
func combined(a, b Coefficient) Coefficient {
	wa, wb := 1/(a.SD*a.SD), 1/(b.SD*b.SD)
	return Coefficient{Value: (wa*a.Value + wb*b.Value) / (wa + wb), SD: 1 / math.Sqrt(wa+wb)}
}

// End states when the job was done, and on how many map tasks. Between two looks much of
// a short tail goes by unseen: what is known of it then is when it was over, and about
// when it began.
func (t *Tracker) End(at time.Duration, tasks int) {
	if t.policy != Learned || !t.seen || at <= t.last.Elapsed || at > longest {
		return
	}
	if !t.tail.begun && t.last.Reduced >= 0 {
		// What was left of the map part comes first, but leaves a part of the time.
		gone := (at - t.last.Elapsed).Seconds()
		maps, _, known := t.maps(t.last.Power, t.last.Containers, float64(tasks))
		if !known {
			return
		}
		from := t.last.Elapsed + time.Duration(min(maps, (1-tailLeast)*gone)*float64(time.Second))
		t.tail = tail{begun: true, at: from, before: from}
	}
	t.ended, t.on = at, tasks
}

// tailLeast is the least part of the time from the last look to the end that is taken
// for the tail, where the map part was seen last.
const tailLeast = 0.25

// tailSeen returns ln of the seconds per map task, at full power, that the tail of an ended
// job took: from the middle of the looks that its map part ended between.
func (t *Tracker) tailSeen() (float64, bool) {
	seconds := (max(t.ended, t.last.Elapsed) - (t.tail.before+t.tail.at)/2).Seconds()
	tasks := max(t.on, t.last.Done)
	if !t.tail.begun || t.last.Reduced < 0 || seconds <= 0 || tasks == 0 {
		return 0, false
	}
	faster := 0.0
	if t.model.set {
		faster = math.Log(t.model.speed(t.model.u(t.last.Power), t.full()))
	}
	return math.Log(seconds/float64(tasks)) + faster, true
}
