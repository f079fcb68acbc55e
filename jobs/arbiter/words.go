package arbiter

import (
	"fmt"
	"strconv"
	"time"

	"headroom/units"
)

// What moves say in words, with their costs.

func times(s float64) string { return fmt.Sprintf("%.2f times as fast", s) }

// mark is a ratio as the mark of a move.
func mark(theta float64) string { return strconv.FormatFloat(theta, 'f', 4, 64) }

// aim says the goal against what is foreseen without a sprint.
func (c *Contender) aim() string {
	goal, deadline := c.goal()
	what := "its uncapped finish"
	if deadline {
		what = "its deadline"
	}
	slow := c.Outlook.Slow
	switch {
	case goal == 0:
		return "it has no deadline, and no cap slows it"
	case !slow.Known:
		return fmt.Sprintf("%s is at %.0f s; when it will end is not known yet", what, goal.Seconds())
	case slow.At > goal:
		return fmt.Sprintf("it would end at %.0f s, %.0f s after %s at %.0f s", slow.At.Seconds(), (slow.At - goal).Seconds(), what, goal.Seconds())
	}
	return fmt.Sprintf("it will end at %.0f s, %.0f s before %s at %.0f s", slow.At.Seconds(), (goal - slow.At).Seconds(), what, goal.Seconds())
}

// granted is the move of a job that begins to sprint.
func (d *doings) granted(c *Contender, g *Grant) Move {
	d.count++
	why := c.aim()
	if c.Due {
		why = "its sprint timer is due"
	}
	how := "how much faster that is, is not known yet"
	if s, known := c.speed(); known {
		how = times(s)
	}
	m := Move{Kind: MoveSprint, Energy: g.Escrow, Mark: fmt.Sprint("sprint ", d.count)}
	m.Reason = fmt.Sprintf("%s: %d nodes sprint for at most %.0f s by %v above their caps, %s; %v of the %v of %s are put aside",
		why, c.Offer.Nodes, g.Duration.Seconds(), c.Offer.Rise, how, g.Escrow, c.Offer.Balance, c.Offer.pot())
	m.Time, m.TimeKnown = shift(c.Outlook.Slow, c.Outlook.Fast)
	if s, known := c.speed(); known {
		m.Time = max(m.Time, -time.Duration((s-1)*float64(g.Duration))) // it may be over before the job is
	}
	return m
}

// pot names the pot that pays.
func (o *Offer) pot() string {
	if o.Pot == "" {
		return o.Domain
	}
	return o.Domain + ", class " + o.Pot
}

// sprinting is the move of a job that sprints.
func (d *doings) sprinting(c *Contender) Move {
	if d.begun && d.move.Kind == MoveSprint {
		return d.move
	}
	m := Move{Kind: MoveSprint, Mark: c.Sprint, Reason: fmt.Sprintf("sprint %s is open; %s without it", c.Sprint, c.aim())}
	m.Time, m.TimeKnown = shift(c.Outlook.Slow, c.Outlook.Fast)
	return m
}

// deflateWords say why a ratio rises.
func (d *doings) deflateWords(now time.Duration, c *Contender, theta float64) string {
	helps := "that meets it"
	if least := c.least(); c.Outlook.PerTask <= 0 {
		helps = "what that saves is not known yet"
	} else if units.Ratio(least).Above(units.Ratio(theta)) {
		helps = fmt.Sprintf("a ratio of %.2f would meet it, its floor and the tasks that have not begun leave %.2f", least, theta)
	}
	return fmt.Sprintf("%s; %s; its drop ratio rises from %.2f to %.2f, its floor is %.2f of its tasks: %s",
		c.aim(), d.unhelped(now, c), c.Theta, theta, c.Floor, helps)
}

// unhelped says why neither a sprint nor containers help.
func (d *doings) unhelped(now time.Duration, c *Contender) string {
	words := "containers do not help: the engine divides them"
	if n := c.Outlook.Containers; n > 0 {
		words = fmt.Sprintf("its share of %d containers does not help", n)
	}
	return words + ", and it cannot sprint: " + d.unsprinted(now, c)
}

// unsprinted says why a job does not sprint.
func (d *doings) unsprinted(now time.Duration, c *Contender) string {
	if !c.Due && !c.MaySprint {
		return orElse(c.SprintWords, "its class may not")
	}
	if why := d.hindered(now, c, false); why != "" {
		return why
	}
	return "others need the joules more"
}

func orElse(words, otherwise string) string {
	if words == "" {
		return otherwise
	}
	return words
}

// deflate is the move of a job whose ratio rises.
func (d *doings) deflate(c *Contender, x Deflate) Move {
	m := Move{Kind: MoveDeflate, Reason: x.Reason, Quality: x.Theta - c.Theta, Mark: mark(x.Theta)}
	if c.Outlook.PerTask > 0 {
		m.Time, m.TimeKnown = -time.Duration(float64(c.Outlook.PerTask)*m.Quality*float64(c.Tasks)), true
	}
	return m
}

// reallocated is the move of a job whose share has changed.
func (c *Contender) reallocated() Move {
	o := &c.Outlook
	m := Move{Kind: MoveReallocate, Mark: strconv.Itoa(o.Containers)}
	m.Reason = fmt.Sprintf("policy %s gives it %d containers instead of %d: %s", o.Policy, o.Containers, o.Had, o.Why)
	return m
}

// borne is the move of a job that bears the cap of its nodes.
func (d *doings) borne(now time.Duration, c *Contender) Move {
	o := &c.Outlook
	m := Move{Kind: MoveCap}
	if o.Slow.Known && o.Uncapped > 0 {
		m.Time, m.TimeKnown = max(0, o.Slow.At-o.Uncapped), true
	}
	m.Reason = fmt.Sprintf("its nodes are capped at %.0f %% of their full power; %s", 100*o.CapShare, d.standing(now, c))
	return m
}

// none is the move of a job that nothing is done about.
func (d *doings) none(now time.Duration, c *Contender) Move {
	return Move{Kind: MoveNone, Reason: d.standing(now, c)}
}

// standing says how the job stands, and what keeps it from being helped where it is in need.
func (d *doings) standing(now time.Duration, c *Contender) string {
	words := c.aim()
	switch {
	case c.Due:
		words = "its sprint timer is due, and it cannot sprint: " + d.unsprinted(now, c)
	case d.threatened && !d.pressed(now, c):
		words += "; nothing is spent on it before that has lasted"
	case d.threatened:
		words += "; it cannot sprint: " + d.unsprinted(now, c) + "; it is not deflated: " + d.undeflated(now, c)
	}
	if c.Theta > 0 {
		words += fmt.Sprintf("; it runs with a drop ratio of %.2f", c.Theta)
	}
	return words
}

// undeflated says why a job that is in need is not deflated.
func (d *doings) undeflated(now time.Duration, c *Contender) string {
	switch {
	case c.Floor <= 0 || c.Floor >= 1:
		return "its floor is all of its tasks"
	case !c.MayDeflate:
		return orElse(c.DeflateWords, "its discipline has exact results")
	case c.Theta > 1-c.Floor-thetaStep/5:
		return fmt.Sprintf("its floor of %.2f leaves no more than its ratio of %.2f", c.Floor, c.Theta)
	case c.Pending >= 0 && float64(c.Dropped+c.Pending) < (c.Theta+thetaStep/5)*float64(c.Tasks):
		return fmt.Sprintf("all but %d of its tasks have begun", c.Pending)
	case d.raised && now-d.deflated < deflateEvery:
		return "its ratio has just risen"
	case !sure(c.Outlook.Slow, c.Elapsed):
		return "its finish time is not certain enough"
	}
	return "its share has just changed"
}
