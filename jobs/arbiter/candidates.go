package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"headroom/units"
)

// Candidate is one lever for a job whose promise is at risk: it is expected to miss its deadline, or was before the
// levers were applied. The numbers are those of the decision.
type Candidate struct {
	Kind MoveKind
	// Time is by how much its end would change: negative is earlier. Known with TimeKnown.
	Time      time.Duration
	TimeKnown bool
	// Energy is what it takes of the sprint budget, Quality the fraction of dropped tasks; 0 for nothing.
	Energy  units.Energy
	Quality float64
	// Worth is the weighted seconds that it saves in total, minus what it costs others and in quality.
	Worth  float64
	Chosen bool
	// Why states why it was chosen or not, in words.
	Why string
}

// leverage is the result of the levers that consider one job after the other, in seconds and weighted seconds.
type leverage struct {
	// passed is what it has gained by passing others, blocked what it would gain by passing one more, and promised what
	// it gains by its reserved containers.
	passed, blocked, promised passage
	// copied is what its copies would save, with the wanted number.
	copied passage
}

// passage is the effect of one change of place or share of a job: how much later it ends, what that saves in total,
// whom it concerns, and how often that was done.
type passage struct {
	time, worth float64
	who         string
	count       int
}

// shifted sets by how many seconds the job's end would change.
func (x *Candidate) shifted(s float64) {
	if s < 0 {
		x.Time = -span(-s)
	} else {
		x.Time = span(s)
	}
	x.TimeKnown = true
}

// weigh stores the result of a lever for the job.
func (r *row) weigh(x Candidate) { r.candidates = append(r.candidates, x) }

// ranked returns the candidates of the job, the best first.
func (r *row) ranked() []Candidate {
	slices.SortStableFunc(r.candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Worth, a.Worth), cmp.Compare(a.Kind, b.Kind))
	})
	return r.candidates
}

// weighPlace computes what another share of the containers is worth.
func (r *row) weighPlace(divided, first bool) {
	x := Candidate{Kind: MoveReallocate}
	l := &r.leverage
	switch {
	case !divided:
		x.Why = "its engine assigns containers itself"
	case l.passed.count > 0 || l.promised.count > 0:
		x.Chosen, x.Worth = true, l.passed.worth+l.promised.worth
		x.shifted(l.passed.time + l.promised.time)
		var words []string
		if l.passed.count > 0 {
			words = append(words, fmt.Sprintf("served before %d others, the last %s: it gains more than they lose", l.passed.count, l.passed.who))
		}
		if l.promised.count > 0 {
			words = append(words, fmt.Sprintf("%d containers are reserved for it, as promised", l.promised.count))
		}
		if l.blocked.who != "" {
			words = append(words, fmt.Sprintf("serving it before %s as well would cost %.3g weighted seconds more than it gains", l.blocked.who, max(0, -l.blocked.worth)))
		}
		x.Why = strings.Join(words, "; ")
	case l.blocked.who != "":
		x.Worth = l.blocked.worth
		x.shifted(l.blocked.time)
		x.Why = fmt.Sprintf("serving it before %s would cost that job and others %.3g weighted seconds more than it gains", l.blocked.who, max(0, -l.blocked.worth))
	case first:
		x.Why = "already served first, with all containers that it can use"
	default:
		x.Why = "the jobs before it gain more from their places"
	}
	r.weigh(x)
}

// weighDrops computes what dropping tasks is worth, if each saves perTask weighted seconds; d is the decision.
func (r *row) weighDrops(d Deflate, decided bool, saves, room float64) {
	x := Candidate{Kind: MoveDeflate, Chosen: decided}
	all := r.droppable()
	n := 1
	if decided {
		n = max(1, units.Ratio(d.Theta).Of(r.Tasks)-r.Dropped)
	}
	able := r.MayDeflate && r.ErrorBound == 0 && r.Outlook.Rest.Known && (r.Ahead || r.Pending > 0) && r.Dropped < all
	if !decided && !able {
		x.Why = r.undeflated()
		r.weigh(x)
		return
	}
	x.Quality = float64(n) / float64(max(1, r.Tasks))
	more := float64(n)
	price := r.price() * more * (0.5 + (float64(r.Dropped)+(more+1)/2)/float64(max(1, all))) // the price of each rises by a step
	if r.ErrorBound > 0 {
		price = 0 // its owner does not need more
	}
	x.Worth = more*saves - price
	x.shifted(-more * r.task / room)
	switch {
	case decided:
		x.Why = fmt.Sprintf("dropping %d tasks saves more than it costs", n)
	case x.Worth > 0:
		x.Why = "dropping a task saves more than it costs; decided when no more tasks would start anyway, or in the next step"
	default:
		x.Why = fmt.Sprintf("dropping a task saves %.3g weighted seconds and costs %.3g", saves, price)
	}
	r.weigh(x)
}

// weighSprint computes what a sprint is worth.
func (m *Movers) weighSprint(r *row, values map[string]float64, move Move, decided, taken bool) {
	x := Candidate{Kind: MoveSprint, Chosen: decided && move.Kind == MoveSprint}
	lasts := min(r.left, sprintMost.Seconds())
	if r.Sprint == "" && r.Offer.Rise > 0 {
		lasts = max(m.duration(r), sprintLeast).Seconds()
		x.Energy = max(0, energyOf(r.Offer.Rise, span(lasts)))
	}
	if speed, known := r.speed(); known && r.containers > 0 {
		x.Worth = r.gain(values) * max(1e-9, r.Offer.Rise.Watts()) * lasts
		x.shifted(-min(r.left, (speed-1)*lasts))
	}
	switch {
	case x.Chosen && r.Sprint != "":
		x.Why = "sprint " + r.Sprint + " is in progress"
	case x.Chosen:
		x.Why = "it saves the most per joule of all sprints in " + r.Offer.Domain
	case decided:
		x.Why = "it sprints after a sprint of a lower class has ended for it"
	case !r.Due && !r.MaySprint:
		x.Why = cmp.Or(r.SprintWords, "sprints are not allowed for its class")
	case r.containers == 0 || !r.spreadOut():
		x.Why = "too few of its containers are running"
	default:
		x.Why = cmp.Or(m.hindered(r, taken), "other jobs gain more from the energy")
	}
	r.weigh(x)
}

// watts is the worth of holds.
type watts struct {
	// gainer is the node on which a watt is worth most; empty for none. worth is the weighted seconds that it gains
	// while the others are held, count how many they are.
	gainer string
	worth  float64
	count  int
	// refused is the most that one more hold would be worth, and hold why there is none.
	refused float64
	hold    refusedHold
}

// refuse stores the best hold that was refused.
func (w *watts) refuse(worth float64, hold refusedHold) {
	if worth > w.refused {
		w.refused, w.hold = worth, hold
	}
}

// weighHolds computes what the caps of other jobs' nodes are worth.
func (r *row) weighHolds(w watts) {
	x := Candidate{Kind: MoveCap}
	here := slices.ContainsFunc(r.on, func(p placed) bool { return p.node == w.gainer })
	switch {
	case w.gainer == "":
		x.Why = "no node lacks power that others could give"
	case !here:
		x.Why = fmt.Sprintf("a watt is worth more on %s than on its nodes", w.gainer)
	case w.count > 0:
		x.Chosen, x.Worth = true, w.worth
		x.Why = fmt.Sprintf("%d nodes whose jobs have slack are held at a lower cap for %.0f s; %s gets their power", w.count, holdFor.Seconds(), w.gainer)
	default:
		x.Worth, x.Why = w.refused, w.hold.why()
	}
	r.weigh(x)
}
