package dias

import (
	"math"
	"time"
)

// A sprint in the paper (section 5.1): 800 MHz to 2.4 GHz makes a job 2.5 times as
// fast and a server draw 270 instead of 180 W.
const (
	speedup     = 2.5
	busyWatts   = 180
	sprintWatts = 270
	extraWatts  = sprintWatts - busyWatts
	// idleWatts is ours, the paper gives none for idle servers: it is that of the
	// emulated plant, 100 of 350 W, at the paper's 270 W.
	idleWatts = 77
)

// The limited budget (section 5.3), refilled at 6 minutes of sprint an hour (section 3.3).
const (
	budgetJoules = 22_000
	refillWatts  = extraWatts * 6 / 60.
	sprintAfter  = 65 * time.Second
)

// pot is a sprint budget as the ledger keeps it: a sprint puts its joules aside before
// it starts and gives back what it has not spent; it refills up to its capacity.
type pot struct {
	capacity, refill float64 // J, W
	balance          float64
	at               time.Duration
}

func limited() *pot   { return &pot{capacity: budgetJoules, refill: refillWatts, balance: budgetJoules} }
func unlimited() *pot { return &pot{capacity: math.Inf(1), balance: math.Inf(1)} }

func (p *pot) fill(now time.Duration) {
	p.balance = min(p.capacity, p.balance+p.refill*(now-p.at).Seconds())
	p.at = now
}

// escrow puts aside all that there is: how long the job will sprint is not known.
func (p *pot) escrow(now time.Duration) float64 {
	p.fill(now)
	all := p.balance
	if !math.IsInf(all, 1) {
		p.balance = 0
	}
	return all
}

// refund takes back what a sprint has left.
func (p *pot) refund(now time.Duration, left float64) {
	p.fill(now)
	p.balance = min(p.capacity, p.balance+left)
}
