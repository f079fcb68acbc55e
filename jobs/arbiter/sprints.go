package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Grant is a sprint to commit: all of the job's nodes with the offered power.
type Grant struct {
	ID, Class, Domain string
	Duration          time.Duration
	// Escrow is about the energy to reserve.
	Escrow units.Energy
}

// EndSprint is a sprint to end.
type EndSprint struct{ Sprint, Why string }

const (
	// sprintLeast is the shortest sprint that is granted, sprintMost the longest: unused energy is refunded, but waits
	// until the end.
	sprintLeast, sprintMost = 10 * time.Second, 10 * time.Minute
	// sprintMargin is the factor over the expected duration of a sprint.
	sprintMargin = 1.2
	// speedLeast is the minimum expected speed-up of a sprint, and the assumed one if it is unknown.
	speedLeast = 1.02
	// servedPart is the fraction of a job's containers on sprinting nodes from which on another job's sprint is as good
	// as its own.
	servedPart = 0.5
)

// The reserve of a pot for jobs of the highest class, as a fraction of its capacity. It rises each time one of these
// finds too little, and falls slowly otherwise.
const (
	reserveFirst, reserveLeast, reserveMost = 0.8, 0.5, 0.95
	reserveRise                             = 0.1 // per decision
	reserveForgets                          = 2 * time.Hour
	// reserveNeeded is how long energy is reserved after a job of the highest class was seen.
	reserveNeeded = time.Hour
)

// reserves are the reserves of the pots.
type reserves struct {
	parts map[string]float64
	// needed is how much longer something is reserved.
	needed time.Duration
}

// of returns the reserved fraction of a pot.
func (x *reserves) of(o *Offer) float64 {
	if x.needed <= 0 {
		return 0
	}
	return x.part(o.pot())
}

func (x *reserves) part(pot string) float64 {
	if r, known := x.parts[pot]; known {
		return r
	}
	return reserveFirst
}

// follow updates the reserves of the offered pots: short are those in which a job of the highest class finds too
// little. passed is the time since the last decision.
func (x *reserves) follow(rows []*row, short map[string]bool, passed time.Duration) {
	x.needed -= passed
	if slices.ContainsFunc(rows, func(r *row) bool { return r.Rank == 0 }) {
		x.needed = reserveNeeded
	}
	for pot, dry := range short {
		r := x.part(pot)
		if dry {
			x.parts[pot] = min(reserveMost, r+reserveRise)
			continue
		}
		x.parts[pot] = r + (reserveLeast-r)*min(1, passed.Seconds()/reserveForgets.Seconds())
	}
}

// available returns what a pot has for the job: the highest class and jobs whose sprint timers have fired may use
// everything, others the part above the reserve.
func (x *reserves) available(r *row) units.Energy {
	o := &r.Offer
	if r.Rank == 0 || r.Due || o.Capacity <= 0 {
		return max(0, o.Balance)
	}
	return max(0, o.Balance-units.Energy(x.of(o)*float64(o.Capacity)))
}

// speed returns how many times as fast the job is in a sprint; unknown if its speed over power is unknown.
func (r *row) speed() (times float64, known bool) { return r.Outlook.Speed, r.Outlook.Speed > 0 }

// gain returns the weighted seconds that a joule of the job's sprint saves.
func (r *row) gain(values map[string]float64) float64 {
	speed, known := r.speed()
	if !known {
		speed = speedLeast
	}
	sum := 0.0
	for _, p := range r.on {
		sum += values[p.node]
	}
	return (speed - 1) * sum / max(1e-9, r.Offer.Rise.Watts())
}

// spreadOut reports whether enough of the job runs for a sprint: only the nodes on which it runs at the start of the
// sprint take part, and a job that has just started runs on a few.
func (r *row) spreadOut() bool {
	return float64(r.containers) >= servedPart*float64(min(r.share, r.width))
}

// candidate is a job that may sprint, with the weighted seconds that a joule of that saves.
type candidate struct {
	*row

	gain float64
}

// sprints decides who sprints: in each domain the job whose sprint saves most per joule, among those with available
// energy. Fired timers come first.
func (m *Movers) sprints(now time.Duration, rows []*row, values map[string]float64, joint bool, decided map[string]Move, out *Moves) {
	var want []candidate
	taken, short := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		if r.Waiting {
			continue
		}
		switch {
		case r.Sprint != "":
			decided[r.ID] = m.jobs[r.ID].sprinting(r)
			taken[r.Offer.Domain] = true
		case r.Due || joint && r.MaySprint && r.containers > 0 && r.spreadOut():
			want = append(want, candidate{r, r.gain(values)})
		}
		if r.Offer.Why == "" && r.Offer.Domain != "" {
			short[r.Offer.pot()] = short[r.Offer.pot()] || r.short()
		}
	}
	if joint {
		m.reserves.follow(rows, short, m.since(now))
	}
	slices.SortFunc(want, func(a, b candidate) int {
		return cmp.Or(compareDue(a.row, b.row), cmp.Compare(b.gain, a.gain), cmp.Compare(b.slope, a.slope), cmp.Compare(a.ID, b.ID))
	})
	ended := map[string]bool{}
	for _, c := range want {
		m.sprint(c, taken, ended, decided, out)
	}
	for _, r := range rows {
		if r.risk {
			move, done := decided[r.ID]
			m.weighSprint(r, values, move, done, taken[r.Offer.Domain])
		}
	}
}

// compareDue orders jobs whose sprint timers have fired first.
func compareDue(a, b *row) int {
	switch {
	case a.Due == b.Due:
		return 0
	case a.Due:
		return -1
	}
	return 1
}

// short reports whether the job is of the highest class and finds too little in its pot for the shortest sprint.
func (r *row) short() bool {
	o := &r.Offer
	return r.Rank == 0 && r.Sprint == "" && r.MaySprint && o.Busy == "" && o.Rise > 0 && energyOf(o.Rise, sprintLeast) > o.Balance
}

// sprint grants a job its sprint, or ends that of a lower class for it, if possible.
func (m *Movers) sprint(c candidate, taken, ended map[string]bool, decided map[string]Move, out *Moves) {
	o := &c.Offer
	if o.Busy != "" && o.Yields && !o.Ending && o.BusyRank > c.Rank && !ended[o.Busy] && o.Why == "" && c.partOn(o.BusyOn) < servedPart {
		ended[o.Busy] = true
		out.Ends = append(out.Ends, EndSprint{Sprint: o.Busy, Why: "job " + c.ID + " has a higher class"})
		decided[c.ID] = Move{Kind: MoveNone, Reason: c.aim() + "; it sprints after sprint " + o.Busy + " of a lower class has ended for it"}
		return
	}
	if m.hindered(c.row, taken[o.Domain]) != "" {
		return
	}
	g := Grant{ID: c.ID, Class: c.Class, Domain: o.Domain, Duration: m.duration(c.row)}
	g.Escrow = min(energyOf(o.Rise, g.Duration), o.Balance)
	taken[o.Domain] = true
	out.Grants = append(out.Grants, g)
	decided[c.ID] = m.jobs[c.ID].granted(c, &g)
}

// partOn returns the fraction of the job's containers that are on these nodes.
func (r *row) partOn(nodes []string) float64 {
	on := 0
	for _, p := range r.on {
		if slices.Contains(nodes, p.node) {
			on += p.containers
		}
	}
	return float64(on) / float64(max(1, r.containers))
}

// hindered returns why the job cannot sprint now, in words; empty when it can.
func (m *Movers) hindered(r *row, taken bool) string {
	o := &r.Offer
	speed, known := r.speed()
	switch {
	case o.Why != "":
		return o.Why
	case o.Busy != "":
		return "sprint " + o.Busy + " is in progress in " + o.Domain
	case taken:
		return "another job is sprinting in " + o.Domain
	case o.Rise <= 0:
		return "no power is left above the caps of its nodes"
	case known && speed < speedLeast:
		return "the speed-up would be too small: " + times(speed)
	}
	need := energyOf(o.Rise, sprintLeast)
	switch {
	case need > o.Balance:
		return fmt.Sprintf("the sprint budget of %s has %v; %.0f s need %v", o.pot(), o.Balance, sprintLeast.Seconds(), need)
	case need > m.reserves.available(r):
		return fmt.Sprintf("the sprint budget of %s has %v; %.0f %% of %v are reserved for the highest class",
			o.pot(), o.Balance, 100*m.reserves.of(o), o.Capacity)
	}
	return ""
}

// duration returns the duration of a sprint: to the job's end, limited by the available energy.
func (m *Movers) duration(r *row) time.Duration {
	needs := sprintMost.Seconds()
	if speed, known := r.speed(); known && r.Outlook.Rest.Known {
		needs = max(sprintLeast.Seconds(), sprintMargin*r.left/speed)
	}
	longest := m.reserves.available(r).Joules() / r.Offer.Rise.Watts()
	return time.Duration(min(needs, longest, sprintMost.Seconds()) * float64(time.Second)).Truncate(time.Millisecond)
}

// energyOf returns the energy of a power over a time.
func energyOf(p units.Power, d time.Duration) units.Energy {
	return units.Energy(math.Ceil(float64(p) * d.Seconds()))
}
