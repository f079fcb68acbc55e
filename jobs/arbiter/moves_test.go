// Claims: each job gets one move, with its reason in numbers and what it costs; a sprint
// goes to whom the timer or the goal says, the highest class first, one in a domain, and
// within its joules; a ratio rises by the least that meets the goal, within the floor, and
// never falls; who decides nothing new does nothing new, so that nothing swings, with the
// budget's loop and the nodes' below; the order of jobs does not matter.
package arbiter_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

func at(s float64) progress.Finish {
	d := time.Duration(s * float64(second))
	return progress.Finish{At: d, Low: d * 9 / 10, High: d * 11 / 10, Known: true}
}

// offer is a sprint of two nodes by 100 W.
func offer(joules int) arbiter.Offer {
	return arbiter.Offer{Domain: "site/lab", Balance: units.Energy(joules) * units.Joule, Rise: 100 * watt, Nodes: 2}
}

// late is a job of 100 tasks that ends at 200 s by a cap, 150 s without; 120 s if it sprints.
func late(id string) arbiter.Contender {
	return arbiter.Contender{
		ID: id, Class: "low", Rank: 1, Tasks: 100, Pending: 80, Floor: 0.5, Elapsed: 20 * second, Run: 1, MaySprint: true, MayDeflate: true, Seed: 7, Offer: offer(20_000),
		Outlook: arbiter.Outlook{Slow: at(200), Fast: at(120), Uncapped: 150 * second, Capped: true, CapShare: 0.6, PerTask: 18 * second / 10},
	}
}

// looks lets Movers look some times, 5 s apart, and gives the last decision.
func looks(m *arbiter.Movers, n int, jobs ...arbiter.Contender) (out arbiter.Moves) {
	for i := range n {
		out = m.Step(time.Duration(i)*every, jobs)
	}
	return out
}

func kinds(out arbiter.Moves) (text string) {
	for _, m := range out.Moves {
		text += m.ID + ":" + m.Kind.String() + " "
	}
	return strings.TrimSpace(text)
}

func TestMoves(t *testing.T) {
	t.Parallel()
	change := func(f func(c *arbiter.Contender)) arbiter.Contender {
		c := late("a")
		f(&c)
		return c
	}
	for name, x := range map[string]struct {
		job  arbiter.Contender
		kind arbiter.MoveKind
		says string
	}{
		"nothing is wrong": {change(func(c *arbiter.Contender) { c.Outlook.Slow, c.Outlook.Capped, c.Outlook.CapShare = at(100), false, 1 }), arbiter.MoveNone, "no cap slows it"},
		"it is threatened": {late("a"), arbiter.MoveSprint, "it would end at 200 s, 50 s after its uncapped finish at 150 s"},
		"its timer is due": {change(func(c *arbiter.Contender) {
			c.Due, c.MaySprint, c.Outlook.Slow, c.Outlook.Fast = true, false, at(100), at(60)
		}), arbiter.MoveSprint, "its sprint timer is due"},
		"its deadline is near": {
			change(func(c *arbiter.Contender) { c.Deadline, c.Outlook.Capped = 160*second, false }), arbiter.MoveSprint,
			"it would end at 200 s, 40 s after its deadline at 160 s",
		},
		"its deadline is far": {change(func(c *arbiter.Contender) { c.Deadline = 300 * second }), arbiter.MoveCap, "100 s before its deadline at 300 s"},
		"it may not sprint": {
			change(func(c *arbiter.Contender) { c.MaySprint, c.SprintWords = false, "discipline p" }), arbiter.MoveDeflate,
			"it cannot sprint: discipline p; its drop ratio rises from 0.00 to 0.30, its floor is 0.50 of its tasks: that meets it",
		},
		"there are no joules": {change(func(c *arbiter.Contender) { c.Offer.Balance = 900 * units.Joule }), arbiter.MoveDeflate, "has 0.90 kJ, 10 s take 1.00 kJ"},
		"there are no watts":  {change(func(c *arbiter.Contender) { c.Offer.Rise = 0 }), arbiter.MoveDeflate, "no watts are left above the caps of its nodes"},
		"no budget at all":    {change(func(c *arbiter.Contender) { c.Offer = arbiter.Offer{Why: "site/lab has no sprint budget"} }), arbiter.MoveDeflate, "site/lab has no sprint budget"},
		"it would not help":   {change(func(c *arbiter.Contender) { c.Outlook.Fast = at(199) }), arbiter.MoveDeflate, "hardly be faster"},
		"the floor binds": {
			change(func(c *arbiter.Contender) { c.MaySprint, c.Floor = false, 0.9 }), arbiter.MoveDeflate,
			"a ratio of 0.30 would meet it, its floor and the tasks that have not begun leave 0.10",
		},
		"the floor is reached": {
			change(func(c *arbiter.Contender) { c.MaySprint, c.Floor, c.Theta, c.ClassTheta = false, 0.9, 0.1, 0.1 }), arbiter.MoveCap,
			"its floor of 0.90 leaves no more than its ratio of 0.10; it runs with a drop ratio of 0.10",
		},
		"few have not begun": {change(func(c *arbiter.Contender) { c.MaySprint, c.Pending = false, 20 }), arbiter.MoveDeflate, "rises from 0.00 to 0.20"},
		"all have begun":     {change(func(c *arbiter.Contender) { c.MaySprint, c.Pending = false, 0 }), arbiter.MoveCap, "all but 0 of its tasks have begun"},
		"stages will come":   {change(func(c *arbiter.Contender) { c.MaySprint, c.Pending = false, -1 }), arbiter.MoveDeflate, "rises from 0.00 to 0.30"},
		"it is exact":        {change(func(c *arbiter.Contender) { c.MaySprint, c.Floor = false, 1 }), arbiter.MoveCap, "its floor is all of its tasks"},
		"its discipline is exact": {
			change(func(c *arbiter.Contender) {
				c.MaySprint, c.MayDeflate, c.DeflateWords = false, false, "discipline np has exact results"
			}),
			arbiter.MoveCap, "discipline np has exact results",
		},
		"nobody knows when it ends": {change(func(c *arbiter.Contender) { c.Outlook.Slow = progress.Finish{} }), arbiter.MoveCap, "when it will end is not known yet"},
		"that is uncertain": {
			change(func(c *arbiter.Contender) { c.MaySprint, c.Outlook.Slow.High = false, 500*second }), arbiter.MoveCap,
			"not certain enough",
		},
		"its share has changed": {
			change(func(c *arbiter.Contender) {
				c.MaySprint, c.Outlook.Moved, c.Outlook.Had, c.Outlook.Containers = false, true, 4, 9
			}),
			arbiter.MoveReallocate, "gives it 9 containers instead of 4",
		},
		"another sprints": {change(func(c *arbiter.Contender) { c.Offer.Busy = "s9" }), arbiter.MoveDeflate, "sprint s9 is open in site/lab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			move := looks(&m, 2, x.job).Moves[0]
			if move.Kind != x.kind || !strings.Contains(move.Reason, x.says) {
				t.Errorf("%v: %s", move.Kind, move.Reason)
			}
		})
	}
}

// What a move costs is said: joules put aside, tasks given up, seconds borne or won.
func TestMovesCost(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	out := looks(&m, 2, late("a"))
	// 180 s are left, 130 s remain: 50 s must be won at 1.8 times the speed, in 62.5 s, and a fifth more.
	if g := out.Grants[0]; len(out.Grants) != 1 || g.ID != "a" || g.Domain != "site/lab" || g.Duration.Round(second) != 75*second || g.Escrow.Joules() != out.Moves[0].Energy.Joules() || math.Abs(g.Escrow.Joules()-7500) > 1 {
		t.Errorf("%+v", out.Grants)
	}
	if move := out.Moves[0]; !move.TimeKnown || math.Abs(move.Time.Seconds()+60) > 1 || !strings.Contains(move.Reason, "1.80 times as fast") {
		t.Errorf("%+v", move)
	}
	c := late("a")
	c.MaySprint = false
	m = arbiter.Movers{}
	out = looks(&m, 2, c)
	if x := out.Deflates[0]; len(out.Deflates) != 1 || math.Abs(x.Theta-0.3) > 1e-9 || x.Seed != 7 || math.Abs(out.Moves[0].Quality-0.3) > 1e-9 || math.Abs(out.Moves[0].Time.Seconds()+54) > 1 {
		t.Errorf("%+v, %+v", out.Deflates, out.Moves)
	}
	c.Floor = 1
	m = arbiter.Movers{}
	if move := looks(&m, 2, c).Moves[0]; !move.TimeKnown || move.Time != 50*second || move.Energy != 0 || move.Quality != 0 {
		t.Errorf("%+v", move)
	}
}

// A threat has to last before anything is spent; a timer does not.
func TestPatience(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	due := late("b")
	due.Due, due.Offer.Domain = true, "site/other"
	if got := kinds(looks(&m, 1, late("a"), due)); got != "a:cap b:sprint" {
		t.Errorf("%s", got)
	}
}

// The highest class sprints first, then who has the least slack, one in a domain; a sprint
// of a lower class ends for a higher one, and that waits until it is over.
func TestUrgency(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	a, b, c := late("a"), late("b"), late("c")
	b.Outlook.Slow, c.Rank, c.Offer.Domain = at(210), 0, "site/lab"
	for _, j := range []*arbiter.Contender{&a, &b, &c} {
		j.Floor = 1
	}
	if got := kinds(looks(&m, 2, a, b, c)); got != "a:cap b:cap c:sprint" {
		t.Errorf("%s", got)
	}
	m = arbiter.Movers{}
	if got := kinds(looks(&m, 2, a, b)); got != "a:cap b:sprint" {
		t.Errorf("%s", got)
	}
	// b sprints; c comes.
	m = arbiter.Movers{}
	b.Sprint, b.Own = "s1", true
	c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields = "s1", 1, true
	out := looks(&m, 2, b, c)
	if len(out.Ends) != 1 || out.Ends[0].Sprint != "s1" || !strings.Contains(out.Ends[0].Why, "job c is of a higher class") || len(out.Grants) != 0 || kinds(out) != "b:sprint c:none" {
		t.Errorf("%+v", out)
	}
	c.Rank, c.Offer.BusyRank = 1, 1
	m = arbiter.Movers{}
	if out = looks(&m, 2, b, c); len(out.Ends) != 0 {
		t.Errorf("a sprint ended for its equal: %+v", out.Ends)
	}
}

// A sprint is not ended because it works: only when the job is safe without it, and never
// one that the timer or an operator has begun.
func TestSprintEnds(t *testing.T) {
	t.Parallel()
	safe := late("a")
	safe.Sprint, safe.Own, safe.Outlook.Slow = "s1", true, at(140)
	for name, x := range map[string]struct {
		change func(c *arbiter.Contender)
		ends   int
	}{
		"safe":          {func(*arbiter.Contender) {}, 1},
		"fast alone":    {func(c *arbiter.Contender) { c.Outlook.Slow = at(170) }, 0},
		"by timer":      {func(c *arbiter.Contender) { c.Due = true }, 0},
		"by operator":   {func(c *arbiter.Contender) { c.Own = false }, 0},
		"unknown":       {func(c *arbiter.Contender) { c.Outlook.Slow = progress.Finish{} }, 0},
		"has no goal":   {func(c *arbiter.Contender) { c.Outlook.Capped = false }, 0},
		"a second life": {func(c *arbiter.Contender) { c.Run = 2 }, 1},
	} {
		var m arbiter.Movers
		c := safe
		x.change(&c)
		if out := looks(&m, 3, c); len(out.Ends) != x.ends {
			t.Errorf("%s: %+v", name, out.Ends)
		}
	}
	// After it the job rests before it sprints again.
	var m arbiter.Movers
	c := late("a")
	c.Floor, c.Sprint, c.Own = 1, "s1", true
	m.Step(0, []arbiter.Contender{c})
	c.Sprint = ""
	if out := m.Step(every, []arbiter.Contender{c}); len(out.Grants) != 0 || !strings.Contains(out.Moves[0].Reason, "its last sprint has just ended") {
		t.Errorf("%+v", out)
	}
	if out := m.Step(3*every, []arbiter.Contender{c}); len(out.Grants) != 1 {
		t.Errorf("%+v", out)
	}
}

// stage is a plant of jobs under caps: a closed loop of Movers, a budget of joules and
// deflation, looked at each 5 s, with noise on what is foreseen.
type stage struct {
	movers  arbiter.Movers
	jobs    []*actor
	balance float64 // J
	now     time.Duration
	noise   float64
	dice    *rand.Rand
	grants  int
	ends    int
}

type actor struct {
	arbiter.Contender
	work     float64 // tasks' seconds left at full speed
	perTask  float64
	speed    float64 // under the cap
	until    time.Duration
	end      time.Duration
	deflates int
}

// step lets one look pass: 5 s of work in quarters of a second.
func (s *stage) step(t *testing.T) {
	t.Helper()
	var jobs []arbiter.Contender
	for _, j := range s.jobs {
		if j.end > 0 {
			continue
		}
		c := j.Contender
		c.Elapsed, c.Pending = s.now, -1
		hum := 1 + s.noise*(2*s.dice.Float64()-1)
		c.Outlook.Slow, c.Outlook.Fast = at(s.now.Seconds()+hum*j.work/j.speed), at(s.now.Seconds()+hum*j.work)
		c.Outlook.PerTask = time.Duration(j.perTask / j.speed * float64(second))
		c.Offer = offer(int(s.balance))
		if j.until > s.now {
			c.Sprint, c.Own = "s", true
		}
		for _, o := range s.jobs {
			if o != j && o.until > s.now && o.end == 0 {
				c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields = "s-"+o.ID, o.Rank, true
			}
		}
		jobs = append(jobs, c)
	}
	out := s.movers.Step(s.now, jobs)
	for _, g := range out.Grants {
		j := s.find(g.ID)
		s.grants++
		j.until = s.now + g.Duration
		if s.balance -= g.Escrow.Joules(); s.balance < 0 {
			t.Fatalf("at %v: the budget is overspent by %v J", s.now, -s.balance)
		}
	}
	for _, e := range out.Ends {
		s.ends++
		id, _ := strings.CutPrefix(e.Sprint, "s-")
		if e.Job != "" {
			id = e.Job
		}
		j := s.find(id)
		s.balance += 100 * (j.until - s.now).Seconds()
		j.until = s.now
	}
	for _, d := range out.Deflates {
		j := s.find(d.ID)
		if d.Theta <= j.Theta || d.Theta > 1-j.Floor+1e-9 {
			t.Fatalf("the ratio goes from %v to %v, the floor is %v", j.Theta, d.Theta, j.Floor)
		}
		j.work -= (d.Theta - j.Theta) * float64(j.Tasks) * j.perTask
		j.Theta, j.Deflated, j.Dropped, j.deflates = d.Theta, true, int(d.Theta*float64(j.Tasks)), j.deflates+1
	}
	for range 20 {
		s.now += every / 20
		s.balance = min(10_000, s.balance+20*0.25)
		for _, j := range s.jobs {
			if j.end > 0 {
				continue
			}
			speed := j.speed
			if j.until > s.now {
				speed = 1
			}
			if j.work -= 0.25 * speed; j.work <= 0 {
				j.end = s.now
			}
		}
	}
}

func (s *stage) find(id string) *actor {
	return s.jobs[slices.IndexFunc(s.jobs, func(j *actor) bool { return j.ID == id })]
}

// With jobs of two classes under a cap that steps, joules that run out and come back, and
// finish times that are a twentieth off at every look: goals are met where they can be, and
// neither sprints nor ratios swing.
func TestMovesDoNotSwing(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.03} {
		for seed := range uint64(20) {
			s := &stage{balance: 5000, noise: noise, dice: rand.New(rand.NewPCG(seed, 1))}
			high, low := &actor{Contender: late("high"), work: 200, speed: 0.7}, &actor{Contender: late("low"), work: 300, perTask: 3, speed: 0.7}
			high.Rank, high.Floor, high.Deadline, high.Outlook.Uncapped = 0, 1, 260*second, 0
			low.Outlook.Uncapped, low.MaySprint = 300*second, false
			s.jobs = []*actor{high, low}
			for s.now < time.Hour && (high.end == 0 || low.end == 0) {
				if s.now == 100*second {
					high.speed, low.speed = 0.6, 0.6 // the budget's loop has cut
				}
				s.step(t)
			}
			if high.end > 270*second || low.end > 320*second {
				t.Errorf("noise %v, seed %d: high ends at %v of 260 s, low at %v of 300 s with ratio %v", noise, seed, high.end, low.end, low.Theta)
			}
			// 10.3 kJ come in 265 s; a sprint after the first takes 3 kJ.
			if s.grants > 4 || s.ends > 3 || low.deflates > 4 || low.Theta > 0.5+1e-9 {
				t.Errorf("noise %v, seed %d: %d sprints, %d ended, %d rises to %v", noise, seed, s.grants, s.ends, low.deflates, low.Theta)
			}
		}
	}
}

// Whatever is reported, in whatever order: one move for each job, with words; grants within
// the joules, one in a domain; ratios within floors, above the one in force.
func TestMoveLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a, b arbiter.Movers
		for step := range rapid.IntRange(1, 10).Draw(t, "steps") {
			var jobs []arbiter.Contender
			for i := range rapid.IntRange(0, 5).Draw(t, "jobs") {
				jobs = append(jobs, drawContender(t, string(rune('a'+i))))
			}
			now := time.Duration(step) * every
			out := a.Step(now, jobs)
			lawful(t, jobs, out)
			slices.Reverse(jobs)
			if again := b.Step(now, jobs); !reflect.DeepEqual(out, again) {
				t.Fatalf("in reverse:\n%+v\n%+v", out, again)
			}
		}
	})
}

func drawContender(t *rapid.T, id string) arbiter.Contender {
	some := func(name string) float64 {
		return rapid.SampledFrom([]float64{-1, 0, 0.3, 0.5, 1, 50, 100, 140, 160, 400, 1e9}).Draw(t, name)
	}
	finish := func(name string) progress.Finish {
		f := at(some(name))
		f.Known = rapid.IntRange(0, 5).Draw(t, "known") > 0
		return f
	}
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	c := arbiter.Contender{
		ID: id, Class: "low", Rank: rapid.IntRange(0, 2).Draw(t, "rank"), Tasks: rapid.IntRange(0, 100).Draw(t, "tasks"), Dropped: rapid.IntRange(0, 60).Draw(t, "dropped"), Pending: rapid.IntRange(-1, 60).Draw(t, "pending"),
		Floor: some("floor"), Elapsed: time.Duration(rapid.IntRange(0, 200).Draw(t, "elapsed")) * second, Run: uint32(rapid.IntRange(1, 2).Draw(t, "run")),
		Deadline: max(0, at(some("deadline")).At), Due: yes("due"), MaySprint: yes("may sprint"), MayDeflate: yes("may deflate"), Theta: max(0, min(1, some("theta"))),
		Deflated: yes("deflated"), Own: yes("own"), Offer: offer(rapid.IntRange(-100, 20_000).Draw(t, "joules")),
	}
	c.Outlook = arbiter.Outlook{Slow: finish("slow"), Fast: finish("fast"), Uncapped: max(0, at(some("uncapped")).At), Capped: yes("capped"), CapShare: 0.6, PerTask: at(some("each")).At}
	c.Offer.Rise = units.Power(rapid.IntRange(-1, 100).Draw(t, "rise")) * watt
	if rapid.IntRange(0, 5).Draw(t, "sprints") == 0 {
		c.Sprint = "s" + id
	}
	return c
}

func lawful(t *rapid.T, jobs []arbiter.Contender, out arbiter.Moves) {
	t.Helper()
	if len(out.Moves) != len(jobs) {
		t.Fatalf("%d moves of %d jobs", len(out.Moves), len(jobs))
	}
	by := map[string]arbiter.Contender{}
	for _, c := range jobs {
		by[c.ID] = c
	}
	for _, m := range out.Moves {
		if m.Reason == "" || strings.Contains(m.Reason, "NaN") || m.Energy < 0 || m.Quality < 0 || m.Quality > 1 {
			t.Fatalf("%+v of %+v", m, by[m.ID])
		}
	}
	for i, g := range out.Grants {
		c := by[g.ID]
		if i > 0 || g.Duration < 10*second || g.Escrow > c.Offer.Balance || c.Sprint != "" || !c.Due && !c.MaySprint {
			t.Fatalf("%+v of %+v", out.Grants, c)
		}
	}
	for _, d := range out.Deflates {
		if c := by[d.ID]; d.Theta <= c.Theta || d.Theta > 1-c.Floor+1e-9 || !c.MayDeflate || d.Reason == "" {
			t.Fatalf("%+v of %+v", d, c)
		}
	}
}
