package plant

import (
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// Class is how much more than its rating makes a breaker open at once: the range of
// its magnetic release.
type Class byte

// The classes of IEC 60898-1, table 2: B opens at once from 3 to 5 times its rating, C
// from 5 to 10 times, D from 10 to 20 times.
const (
	ClassB Class = 'B'
	ClassC Class = 'C'
	ClassD Class = 'D'
)

// The bimetal as a body of one time constant: what it settles at is the square of the
// load, and it opens at holdRatio squared.
const (
	// holdRatio is the load, in ratings, that it just carries forever. By table 7 it must carry
	// 1.13 for an hour, and open within one at 1.45.
	holdRatio = 1.2
	// warmth is its time constant. At 2.55 times the rating, from cold, it opens after
	// 50 s; table 7 requires 1 to 60 s up to 32 A, and up to 120 s above. At 1.45 times
	// it opens after 4 min.
	warmth = 200 * time.Second
)

// Breaker is a thermal-magnetic circuit breaker above the machines: a bimetal, which
// remembers I^2 t and cools, and a magnet, which does not wait. Its current is the power
// over a voltage that does not move, so it takes watts. Once open it stays open. It
// reads no clock and belongs to one goroutine.
type Breaker struct {
	rating  float64 // watts
	magnet  float64 // watts above which it opens at once
	heat    float64 // of the bimetal, 1: it opens
	hottest float64
	tripped bool
}

// Rate gives the breaker another rating and class and leaves it as warm, in shares of
// what opens it, as it is. It fails with ErrSpec where the
// rating is not above 0 W or there is no such class, and changes nothing then. A new
// breaker is cold, and needs a rating before its first step.
func (b *Breaker) Rate(rating units.Power, class Class) error {
	lowest := map[Class]float64{ClassB: 3, ClassC: 5, ClassD: 10}[class]
	if rating <= 0 || lowest == 0 {
		return fmt.Errorf("%w: breaker of class %q for %v", ErrSpec, class, rating)
	}
	// A magnet opens somewhere in its range; the least of it is the careful choice.
	b.rating, b.magnet = rating.Watts(), lowest*rating.Watts()
	return nil
}

// Step lets the breaker carry a power for a time and reports whether it is open at its
// end. Less than 0 W counts as 0 W, less time than none as none.
func (b *Breaker) Step(power units.Power, dt time.Duration) (tripped bool) {
	if dt <= 0 || b.tripped {
		return b.tripped
	}
	load := math.Max(0, power.Watts()) / b.rating
	settles := load * load / (holdRatio * holdRatio)
	b.heat += (settles - b.heat) * -math.Expm1(-dt.Seconds()/warmth.Seconds())
	b.hottest = math.Max(b.hottest, b.heat)
	b.tripped = b.heat >= 1 || load*b.rating > b.magnet
	return b.tripped
}

// Tripped reports whether it has opened.
func (b *Breaker) Tripped() bool { return b.tripped }

// Hottest is the most of that way that it ever went: 0 never warmed, 1 opened by heat.
func (b *Breaker) Hottest() float64 { return math.Min(1, b.hottest) }
