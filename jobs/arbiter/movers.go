package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"headroom/progress"
	"headroom/units"
)

// MoveKind is the kind of a decision about a job.
type MoveKind int

// The kinds of moves.
const (
	// MoveNone: nothing.
	MoveNone MoveKind = iota
	// MoveSprint: its nodes run faster for a while, with energy of the sprint budget.
	MoveSprint
	// MoveCap: it runs under the cap of its nodes, or under one that was lowered for others.
	MoveCap
	// MoveReallocate: it gets more or fewer containers.
	MoveReallocate
	// MoveDeflate: it runs fewer of its tasks.
	MoveDeflate
	// MoveCopy: stragglers run a second time, and the first copy that finishes counts.
	MoveCopy
)

// MoveKinds returns all of them.
func MoveKinds() []MoveKind {
	return []MoveKind{MoveNone, MoveSprint, MoveCap, MoveReallocate, MoveDeflate, MoveCopy}
}

// String returns the kind as it is shown.
func (k MoveKind) String() string {
	return [...]string{"none", "sprint", "cap", "reallocate", "deflate", "copy"}[max(0, min(k, MoveCopy))]
}

// Move is the decision about one job.
type Move struct {
	ID   string
	Kind MoveKind
	// Reason is why, in words, with the numbers.
	Reason string
	// Energy is what it takes of the sprint budget; 0 for nothing.
	Energy units.Energy
	// Quality is the fraction of its tasks that this drops; 0 for none.
	Quality float64
	// Time is by how much its end changes: negative is earlier. Known with TimeKnown.
	Time      time.Duration
	TimeKnown bool
	// Mark distinguishes moves of one kind: another share, ratio or sprint is another move.
	Mark string
	// Candidates are the candidates for its promise while that is at risk, the best first.
	Candidates []Candidate
}

// Division is the division of an engine's containers.
type Division struct {
	// Changed is true if Shares replace the previous ones.
	Changed bool
	// Shares are those of its running jobs, in the order in which free containers are assigned. They never exceed the
	// pool; a share of 0 waits.
	Shares []Share
}

// Foreseen is what the joint decision expects of a job.
type Foreseen struct {
	// Left is its expected end, from now. Containers is its share; 0 if the engine divides, or if it waits.
	Left       time.Duration
	Containers int
}

// Moves is the result of one decision.
type Moves struct {
	// Moves are those of all running jobs, by ID.
	Moves    []Move
	Grants   []Grant
	Ends     []EndSprint
	Deflates []Deflate
	Holds    []Hold
	// Divisions are those of the engines with pools, by engine, and Foreseen the expected ends of all jobs, by job.
	// Both are empty unless the levers are weighed jointly.
	Divisions map[string]Division
	Foreseen  map[string]Foreseen
}

// history is the state of one job.
type history struct {
	run      uint32
	sprints  int           // how many were granted
	deflated time.Duration // when its ratio was last raised here, with raised
	raised   bool
	move     Move
	// kept is true if its promise was kept the last time.
	kept bool
	// share is its share as last decided, with shared, and had the one before, with hadShare.
	share, had       int
	shared, hadShare bool
}

// division is the previous decision about one engine.
type division struct {
	total  int
	shares map[string]int
	copies map[string]int
	at     time.Duration
}

// Movers decide about each job. Every lever is weighed in one unit, the weighted seconds by which jobs end earlier
// (goal.go), against its cost:
//   - containers go to the jobs in an order (order.go): classes first, then arrival, except for small jobs and for
//     deadlines that would be missed; each gets what it can use, and the rest goes to the next;
//   - a sprint goes to the job for which a joule saves most (sprints.go), from the part of the pot above a reserve for
//     the highest class;
//   - a task is dropped when its container time is worth more than its price (drops.go), within the floor (P9), and as
//     late as that can be decided;
//   - a node is held below its share of the power if a watt is worth several times as much elsewhere (holds.go).
//
// Fired sprint timers come first, as far as energy and power suffice. Without Look.Joint they are all that Movers
// decide.
//
// The same inputs give the same moves, at whatever time they start; the order of jobs and nodes does not matter;
// nothing is kept of a job that is no longer named. The zero value is ready. It is not safe for concurrent use.
type Movers struct {
	jobs     map[string]*history
	engines  map[string]*division
	reserves reserves
	// holdSince is since when holding a node has been worthwhile without interruption.
	holdSince map[string]time.Duration
	// looked is when the last look was, with began.
	looked time.Duration
	began  bool
}

// Step decides about the jobs of all engines. now is the time since any fixed moment.
func (m *Movers) Step(now time.Duration, look Look) Moves {
	jobs := byID(look.Jobs)
	m.remember(jobs)
	out := Moves{Divisions: map[string]Division{}, Foreseen: map[string]Foreseen{}}
	rows := newRows(jobs)
	m.arrange(now, rows, look, &out)
	decided, values := map[string]Move{}, nodeValues(rows)
	m.sprints(now, rows, values, look.Joint, decided, &out)
	if look.Joint {
		gains := m.holds(now, rows, values, look.Nodes, &out)
		for _, r := range rows {
			if r.risk {
				r.weighHolds(gains)
			}
		}
	}
	m.settle(now, rows, decided, &out)
	m.looked, m.began = now, true
	return out
}

// byID returns the jobs tidied, each once, by ID.
func byID(jobs []Contender) []Contender {
	order := make([]*Contender, len(jobs))
	for i := range jobs {
		order[i] = &jobs[i]
	}
	slices.SortStableFunc(order, func(a, b *Contender) int { return cmp.Compare(a.ID, b.ID) })
	out := make([]Contender, 0, len(jobs))
	for _, c := range order {
		if n := len(out); n == 0 || out[n-1].ID != c.ID {
			out = append(out, *c)
			out[n].tidy()
		}
	}
	return out
}

// since returns the time since the last look; 0 at the first.
func (m *Movers) since(now time.Duration) time.Duration {
	if !m.began {
		return 0
	}
	return max(0, now-m.looked)
}

// remember updates the memory to the given jobs.
func (m *Movers) remember(jobs []Contender) {
	if m.jobs == nil {
		m.jobs, m.engines, m.holdSince = map[string]*history{}, map[string]*division{}, map[string]time.Duration{}
		m.reserves.parts = map[string]float64{}
	}
	named := make(map[string]bool, len(jobs))
	for i := range jobs {
		c := &jobs[i]
		named[c.ID] = true
		if h := m.jobs[c.ID]; h == nil || h.run != c.Run {
			m.jobs[c.ID] = &history{run: c.Run}
		}
	}
	maps.DeleteFunc(m.jobs, func(id string, _ *history) bool { return !named[id] })
}

// arrange predicts the ends of the jobs of each engine, divides its containers and drops tasks of its jobs.
func (m *Movers) arrange(now time.Duration, rows []*row, look Look, out *Moves) {
	engines := map[string][]*row{}
	for _, r := range rows {
		engines[r.Engine] = append(engines[r.Engine], r)
	}
	maps.DeleteFunc(m.engines, func(engine string, _ *division) bool { return len(engines[engine]) == 0 || !look.Joint })
	for _, engine := range slices.Sorted(maps.Keys(engines)) {
		of, p := engines[engine], look.Pools[engine]
		m.order(of, p, look.Joint)
		if look.Joint {
			share(of, p)
			m.drops(now, of, p, out)
			for i, r := range of {
				if r.risk {
					r.weighPlace(p.Containers > 0, i == 0)
					r.weighCopies(p.Containers > 0)
				}
			}
		}
		if look.Joint && p.Containers > 0 {
			out.Divisions[engine] = m.divide(now, engine, of, p)
		} else {
			delete(m.engines, engine)
			for _, r := range of {
				m.jobs[r.ID].told(0, false)
			}
		}
		for _, r := range of {
			if look.Joint {
				out.Foreseen[r.ID] = Foreseen{Left: span(r.left), Containers: m.jobs[r.ID].share}
			}
		}
	}
}

// spanMost is the longest time that is predicted: anything longer is unknown in effect.
const spanMost = 1000 * 24 * time.Hour

// span returns seconds as a time.
func span(s float64) time.Duration {
	return time.Duration(min(s, spanMost.Seconds()) * float64(time.Second))
}

const (
	// shareMove is by how many containers some share must differ for shares to be sent at once, and shareEvery how long
	// smaller differences wait.
	shareMove, shareEvery = 2, 20 * time.Second
)

// divide sends the shares of an engine if they differ by enough. Waiting jobs have none.
func (m *Movers) divide(now time.Duration, engine string, rows []*row, p Pool) Division {
	last, fresh := m.engines[engine], make(map[string]int, len(rows))
	var copies map[string]int // of the few jobs that want any
	var shares []Share
	for _, r := range rows {
		if !r.Waiting {
			fresh[r.ID] = r.share
			s := Share{ID: r.ID, Containers: r.share}
			if s.Bounded = r.Copies > 0 || r.CopiesWanted > 0; s.Bounded {
				s.Copies = r.Copies + r.copies
				if copies == nil {
					copies = map[string]int{}
				}
				copies[r.ID] = s.Copies
			}
			shares = append(shares, s)
		}
	}
	changed := last == nil || last.total != p.Containers || last.differs(fresh, now) || !maps.Equal(last.copies, copies)
	if changed {
		m.engines[engine] = &division{total: p.Containers, shares: fresh, copies: copies, at: now}
	} else {
		for i := range shares {
			shares[i].Containers = last.shares[shares[i].ID]
		}
	}
	for _, r := range rows {
		n, has := m.engines[engine].shares[r.ID]
		m.jobs[r.ID].told(n, has)
	}
	return Division{Changed: changed, Shares: shares}
}

// differs reports whether new shares are worth sending: for other jobs, by enough, or for long enough.
func (d *division) differs(fresh map[string]int, now time.Duration) bool {
	if len(fresh) != len(d.shares) {
		return true
	}
	most := 0
	for id, n := range fresh {
		old, known := d.shares[id]
		if !known {
			return true
		}
		most = max(most, n-old, old-n)
	}
	return most >= shareMove || most > 0 && now-d.at >= shareEvery
}

// told records the job's present share.
func (h *history) told(share int, has bool) {
	h.had, h.hadShare = h.share, h.shared
	h.share, h.shared = share, has
}

// settle gives each running job its one move: the most expensive comes first.
func (m *Movers) settle(now time.Duration, rows []*row, decided map[string]Move, out *Moves) {
	deflates := map[string]Deflate{}
	for _, x := range out.Deflates {
		deflates[x.ID] = x
	}
	held := map[string]Hold{}
	for _, x := range out.Holds {
		held[x.Node] = x
	}
	for _, r := range rows {
		if r.Waiting {
			continue
		}
		h := m.jobs[r.ID]
		move, done := decided[r.ID]
		x, drops := deflates[r.ID]
		switch {
		case drops:
			h.deflated, h.raised = now, true
			if !done || move.Kind != MoveSprint || h.move.Mark == move.Mark { // a sprint that has been sent does not hide it
				move = r.deflate(x)
			}
		case !done:
			move = m.otherwise(h, r, held)
		}
		move.ID = r.ID
		move.Candidates = r.ranked()
		h.move = move
		out.Moves = append(out.Moves, move)
	}
}

// otherwise returns the move of a job that neither sprints nor drops tasks.
func (m *Movers) otherwise(h *history, r *row, held map[string]Hold) Move {
	for _, p := range r.on {
		if x, is := held[p.node]; is {
			return Move{Kind: MoveCap, Reason: x.Reason, Mark: "hold " + p.node}
		}
	}
	o := &r.Outlook
	switch {
	case r.copies > 0:
		return r.copied()
	case r.Copies > 0 && h.move.Kind == MoveCopy:
		return h.move
	case o.Moved && o.Had > 0:
		return r.reallocated(o.Containers, o.Had, string(o.Policy)+" gives", o.Why)
	case h.shared && h.hadShare && h.share != h.had:
		return r.reallocated(h.share, h.had, "the arbiter gives", r.place())
	case r.Theta > r.ClassTheta && h.move.Kind == MoveDeflate && h.move.Mark == mark(r.Theta):
		return h.move
	case o.CapShare > 0 && o.CapShare < bite:
		return m.borne(r)
	}
	return Move{Kind: MoveNone, Reason: m.standing(r)}
}

// shift returns by how much the end changes from one finish time to another.
func shift(from, to progress.Finish) (time.Duration, bool) {
	if !from.Known || !to.Known {
		return 0, false
	}
	return to.At - from.At, true
}
