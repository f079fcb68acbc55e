package arbiter

import (
	"cmp"
	"fmt"
	"strconv"

	"headroom/units"
)

// The reasons of moves, in words, with their costs.

func times(s float64) string { return fmt.Sprintf("%.2fx as fast", s) }

// mark returns a ratio as the mark of a move.
func mark(theta float64) string { return strconv.FormatFloat(theta, 'f', 4, 64) }

// aim compares the expected end of the job with its deadline, or with its uncapped finish if a cap slows it.
func (r *row) aim() string {
	slow := r.Outlook.Slow
	what, goal := "its deadline", r.Deadline
	if goal == 0 && r.Outlook.Capped {
		what, goal = "its uncapped finish", r.Outlook.Uncapped
	}
	switch {
	case goal == 0 && !slow.Known:
		return "no deadline; finish time unknown"
	case goal == 0 && r.Outlook.Capped:
		return fmt.Sprintf("finishes at %.0f s; no deadline, uncapped finish unknown", slow.At.Seconds())
	case goal == 0:
		return fmt.Sprintf("finishes at %.0f s; no deadline, not slowed by a cap", slow.At.Seconds())
	case !slow.Known:
		return fmt.Sprintf("%s is at %.0f s; finish time unknown", what, goal.Seconds())
	case slow.At > goal:
		return fmt.Sprintf("finishes at %.0f s, %.0f s after %s at %.0f s", slow.At.Seconds(), (slow.At - goal).Seconds(), what, goal.Seconds())
	}
	return fmt.Sprintf("finishes at %.0f s, %.0f s before %s at %.0f s", slow.At.Seconds(), (goal - slow.At).Seconds(), what, goal.Seconds())
}

// place explains the effect of the order of the jobs on this one.
func (r *row) place() string {
	return fmt.Sprintf("%s; can use %d%s; finishes in %.0f s in the current order of jobs", r.aim(), max(r.width, r.usable), r.scaled(), r.left)
}

// granted returns the move of a job that starts to sprint.
func (h *history) granted(c candidate, g *Grant) Move {
	h.sprints++
	why := c.aim()
	if c.Due {
		why = "its sprint timer is due"
	}
	how := "speed-up unknown"
	speed, known := c.speed()
	if known {
		how = fmt.Sprintf("%s, saves %.2g weighted seconds per kilojoule, more than any other sprint", times(speed), 1000*c.gain)
	}
	x := Move{Kind: MoveSprint, Energy: g.Escrow, Mark: fmt.Sprint("sprint ", h.sprints)}
	x.Reason = fmt.Sprintf("%s: %d nodes sprint for at most %.0f s, %v above their caps, %s; %v of the %v of %s are reserved",
		why, c.Offer.Nodes, g.Duration.Seconds(), c.Offer.Rise, how, g.Escrow, c.Offer.Balance, c.Offer.pot())
	x.Time, x.TimeKnown = shift(c.Outlook.Slow, c.Outlook.Fast)
	if known {
		x.Time = max(x.Time, -span((speed-1)*g.Duration.Seconds())) // it may be over before the job is
	}
	return x
}

// sprinting returns the move of a job that sprints.
func (h *history) sprinting(r *row) Move {
	if h.move.Kind == MoveSprint {
		return h.move
	}
	x := Move{Kind: MoveSprint, Mark: r.Sprint, Reason: fmt.Sprintf("sprint %s is in progress; without it: %s", r.Sprint, r.aim())}
	x.Time, x.TimeKnown = shift(r.Outlook.Slow, r.Outlook.Fast)
	return x
}

// deflateWords explains the rise of a ratio.
func (r *row) deflateWords(theta float64, n int, saves float64) string {
	return fmt.Sprintf("%s; dropping %d tasks saves this job and the jobs behind it %.2g weighted seconds each, and costs %.2g to %.2g of quality each; drop ratio %.2f -> %.2f, floor %.2f of its tasks",
		r.aim(), n, saves, r.price()/2, 1.5*r.price(), r.Theta, theta, r.Floor)
}

// deflate returns the move of a job whose ratio rises.
func (r *row) deflate(d Deflate) Move {
	x := Move{Kind: MoveDeflate, Reason: d.Reason, Quality: d.Theta - r.Theta, Mark: mark(d.Theta)}
	if r.Outlook.PerTask > 0 {
		x.Time, x.TimeKnown = -span(r.Outlook.PerTask.Seconds()*x.Quality*float64(r.Tasks)), true
	}
	return x
}

// reallocated returns the move of a job whose share has changed.
func (r *row) reallocated(now, had int, who, why string) Move {
	return Move{
		Kind: MoveReallocate, Mark: strconv.Itoa(now),
		Reason: fmt.Sprintf("%s it %d containers instead of %d: %s", who, now, had, why),
	}
}

// borne returns the move of a job under the cap of its nodes.
func (m *Movers) borne(r *row) Move {
	o := &r.Outlook
	x := Move{Kind: MoveCap}
	if o.Slow.Known && o.Uncapped > 0 {
		x.Time, x.TimeKnown = max(0, o.Slow.At-o.Uncapped), true
	}
	x.Reason = fmt.Sprintf("its nodes are capped at %.0f %% of their full power; %s", 100*o.CapShare, m.standing(r))
	return x
}

// standing explains the state of the job, and why nothing else is done.
func (m *Movers) standing(r *row) string {
	words := r.aim()
	switch {
	case r.Due:
		words = "sprint timer fired but it cannot sprint: " + m.unsprinted(r)
	case r.containers > 0:
		words += "; no sprint: " + m.unsprinted(r) + "; no further drops: " + r.undeflated()
	}
	if s := r.scaled(); s != "" {
		words += "; can use " + strconv.Itoa(r.usable) + s
	}
	if r.Theta > 0 {
		words += fmt.Sprintf("; drop ratio %.2f", r.Theta)
	}
	return words
}

// unsprinted explains why a job does not sprint.
func (m *Movers) unsprinted(r *row) string {
	if !r.Due && !r.MaySprint {
		return cmp.Or(r.SprintWords, "sprints are not allowed for its class")
	}
	return cmp.Or(m.hindered(r, false), "other jobs gain more from the energy")
}

// undeflated explains why a job drops no more tasks.
func (r *row) undeflated() string {
	switch {
	case r.droppable() == 0:
		return "its floor is all tasks"
	case !r.MayDeflate:
		return cmp.Or(r.DeflateWords, "its discipline allows no drops")
	case r.ErrorBound > 0:
		return fmt.Sprintf("its error bound of %s is used up", units.Percent(r.ErrorBound))
	case r.Dropped >= r.droppable():
		return fmt.Sprintf("its floor of %.2f allows no more than its drop ratio of %.2f", r.Floor, r.Theta)
	case !r.Ahead && r.Pending == 0:
		return "all of its tasks have started"
	case !r.Outlook.Rest.Known:
		return "the duration of its tasks is unknown"
	}
	return "no job behind it waits long enough, or the decision can wait"
}
