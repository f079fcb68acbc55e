// Claims: containers go to the jobs in the order of their classes and of their submission, except for small jobs and
// deadlines, and never exceed the pool; a joule goes where it saves most, one sprint a domain, and lower classes leave
// the reserve, which adapts; a task is dropped late, at a price that rises, within floor and pending; a node is held
// only where a watt is worth more elsewhere, and never where that would make a job miss its deadline.
package arbiter_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"headroom/jobs/arbiter"
	"headroom/units"
)

// shares are the shares of the one engine, in their order.
func shares(out arbiter.Moves) (text string) {
	for _, s := range out.Divisions[""].Shares {
		text += fmt.Sprintf("%s:%d ", s.ID, s.Containers)
	}
	return strings.TrimSpace(text)
}

func TestOrder(t *testing.T) {
	t.Parallel()
	sized := func(c arbiter.Contender, tasks int, age int) arbiter.Contender {
		c.Tasks, c.Running, c.Pending, c.Age, c.Elapsed = tasks, 0, tasks, time.Duration(age)*second, 1
		c.Outlook.Rest = rest(float64(tasks), 10)
		return c
	}
	for name, x := range map[string]struct {
		jobs []arbiter.Contender
		want string
	}{
		"classes first":         {[]arbiter.Contender{sized(busy("a"), 100, 900), sized(urgent("b"), 30, 0)}, "b:30 a:10"},
		"then who came first":   {[]arbiter.Contender{sized(busy("a"), 100, 10), sized(busy("b"), 100, 20)}, "b:40 a:0"},
		"small ones pass":       {[]arbiter.Contender{sized(busy("a"), 400, 20), sized(busy("b"), 10, 10)}, "b:10 a:30"},
		"for a bounded time":    {[]arbiter.Contender{sized(busy("a"), 400, 90), sized(busy("b"), 10, 10)}, "a:40 b:0"},
		"all of it is given on": {[]arbiter.Contender{sized(urgent("a"), 10, 3), sized(urgent("b"), 10, 2), sized(busy("c"), 100, 1)}, "a:10 b:10 c:20"},
		"a deadline passes": {
			[]arbiter.Contender{sized(busy("a"), 100, 20), changed(sized(busy("b"), 60, 10), func(c *arbiter.Contender) { c.Deadline = 30 * second })}, "b:40 a:0",
		},
		"not if it is met anyway": {
			[]arbiter.Contender{sized(busy("a"), 100, 20), changed(sized(busy("b"), 100, 10), func(c *arbiter.Contender) { c.Deadline = 300 * second })}, "a:40 b:0",
		},
		"not if others lose more": {
			[]arbiter.Contender{
				changed(sized(busy("a"), 200, 20), func(c *arbiter.Contender) { c.Deadline = 56 * second }),
				changed(sized(busy("b"), 200, 10), func(c *arbiter.Contender) { c.Deadline = 90 * second }),
			}, "a:40 b:0",
		},
		"a job that waits is served in its place": {
			[]arbiter.Contender{sized(busy("a"), 100, 20), changed(sized(urgent("b"), 30, 0), func(c *arbiter.Contender) { c.Waiting = true })}, "a:10",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			if got := shares(m.Step(0, jointly(x.jobs...))); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
	// What jobs take for themselves is given first.
	var m arbiter.Movers
	look := jointly(sized(busy("a"), 100, 20), sized(busy("b"), 100, 10))
	look.Pools[""] = arbiter.Pool{Containers: 40, Overhead: 1}
	if got := shares(m.Step(0, look)); got != "a:39 b:1" {
		t.Errorf("%s", got)
	}
}

// Shares are told anew when jobs come or the pool changes, when one moves by 2, and each 20 s.
func TestSharesWait(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	job := func(width int) arbiter.Contender {
		return changed(urgent("a"), func(c *arbiter.Contender) { c.Running, c.Pending = 0, width })
	}
	for i, x := range []struct {
		look    arbiter.Look
		changed bool
		want    string
	}{
		{jointly(job(20), busy("b")), true, "a:20 b:20"},
		{jointly(job(20), busy("b")), false, "a:20 b:20"},
		{jointly(job(19), busy("b")), false, "a:20 b:20"},
		{jointly(job(18), busy("b")), true, "a:18 b:22"},
		{jointly(job(17), busy("b")), false, "a:18 b:22"},
		{jointly(job(17), busy("b")), false, "a:18 b:22"},
		{jointly(job(17), busy("b")), false, "a:18 b:22"},
		{jointly(job(17), busy("b")), true, "a:17 b:23"}, // 20 s after the last
		{jointly(job(17), busy("b"), busy("c")), true, "a:17 b:23 c:0"},
		{jointly(job(17)), true, "a:17"},
		{arbiter.Look{Joint: true, Jobs: []arbiter.Contender{job(17)}}, false, ""}, // the engine divides
	} {
		out := m.Step(time.Duration(i)*every, x.look)
		if got := shares(out); got != x.want || out.Divisions[""].Changed != x.changed {
			t.Errorf("look %d: %s, changed %v; want %s, %v", i, got, out.Divisions[""].Changed, x.want, x.changed)
		}
		if moved := strings.Contains(kinds(out), "b:reallocate"); moved != (i == 3 || i == 7) && i < 8 {
			t.Errorf("look %d: %s", i, kinds(out))
		}
	}
}

// A joule goes where it saves most: to the class whose seconds count most, then to who is late, and to the nodes on
// which most of that runs. One sprint is open in a domain.
func TestSprintGoesWhereJoulesSaveMost(t *testing.T) {
	t.Parallel()
	late := changed(busy("late"), func(c *arbiter.Contender) { c.Deadline = 21 * second })
	wide := changed(busy("wide"), func(c *arbiter.Contender) { c.Offer.Rise, c.On = 50*watt, map[string]int{"n1": 20} })
	for name, x := range map[string]struct {
		jobs []arbiter.Contender
		want string
	}{
		"the highest class":      {[]arbiter.Contender{busy("a"), urgent("b")}, "b"},
		"who is late":            {[]arbiter.Contender{busy("a"), late}, "late"},
		"most per joule":         {[]arbiter.Contender{busy("a"), wide}, "wide"},
		"who is faster by it":    {[]arbiter.Contender{busy("a"), changed(busy("b"), func(c *arbiter.Contender) { c.Outlook.Speed = 1.6 })}, "b"},
		"one in each domain":     {[]arbiter.Contender{busy("a"), changed(busy("b"), func(c *arbiter.Contender) { c.Offer.Domain = "site/two" })}, "a b"},
		"not beside an open one": {[]arbiter.Contender{changed(busy("a"), func(c *arbiter.Contender) { c.Sprint = "s1" }), urgent("b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			got := ""
			for _, g := range m.Step(0, jointly(x.jobs...)).Grants {
				got += g.ID + " "
			}
			if strings.TrimSpace(got) != x.want {
				t.Errorf("%q, want %q", got, x.want)
			}
		})
	}
}

// A job of a higher class ends the sprint of a lower one, unless most of it runs on the nodes of that anyway.
func TestHigherClassEndsSprint(t *testing.T) {
	t.Parallel()
	base := changed(urgent("c"), func(c *arbiter.Contender) {
		c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields, c.Offer.BusyOn = "s1", 1, true, []string{"n1"}
		c.On = map[string]int{"n1": 9, "n2": 11}
	})
	for name, x := range map[string]struct {
		change func(c *arbiter.Contender)
		ends   int
	}{
		"a lower class":    {func(*arbiter.Contender) {}, 1},
		"its equal":        {func(c *arbiter.Contender) { c.Offer.BusyRank = 0 }, 0},
		"an operator's":    {func(c *arbiter.Contender) { c.Offer.Yields = false }, 0},
		"it ends already":  {func(c *arbiter.Contender) { c.Offer.Ending = true }, 0},
		"it is served too": {func(c *arbiter.Contender) { c.On = map[string]int{"n1": 11, "n2": 9} }, 0},
		"it may not":       {func(c *arbiter.Contender) { c.MaySprint = false }, 0},
	} {
		var m arbiter.Movers
		out := m.Step(0, jointly(changed(busy("b"), func(c *arbiter.Contender) { c.Sprint = "s1" }), changed(base, x.change)))
		if len(out.Ends) != x.ends || len(out.Grants) != 0 || x.ends == 1 && (out.Ends[0].Sprint != "s1" || !strings.Contains(out.Ends[0].Why, "job c has a higher class")) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// Lower classes leave the reserve; the highest class may use all of a pot, and a pot without a capacity has none.
func TestReserve(t *testing.T) {
	t.Parallel()
	long := func(c arbiter.Contender, kilojoules float64) arbiter.Contender {
		c.Offer.Balance, c.Outlook.Rest = units.FromJoules(1000*kilojoules), rest(1000, 10)
		return c
	}
	free := long(busy("a"), 18)
	free.Offer.Capacity = 0
	for name, x := range map[string]struct {
		job  arbiter.Contender
		want time.Duration
	}{
		"above it":             {long(busy("a"), 18), 20 * second},
		"at it":                {long(busy("a"), 16), 0},
		"the highest class":    {long(urgent("a"), 18), 180 * second},
		"in an empty pot":      {long(urgent("a"), 0.9), 0},
		"a timer":              {changed(long(busy("a"), 3), func(c *arbiter.Contender) { c.Due = true }), 30 * second},
		"without a capacity":   {free, 180 * second},
		"no longer than it is": {changed(urgent("a"), func(c *arbiter.Contender) { c.Outlook.Rest = rest(10, 10) }), 10 * second},
	} {
		var m arbiter.Movers
		got := time.Duration(0)
		for _, g := range m.Step(0, jointly(x.job, waiting())).Grants {
			got = g.Duration
		}
		if got != x.want {
			t.Errorf("%s: a sprint of %v, want %v", name, got, x.want)
		}
	}
}

// Nothing is reserved where no job of the highest class was named for an hour. Else the reserve rises while one finds
// no joules, and falls in hours while none does.
func TestReserveAdapts(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	low := changed(busy("low"), func(c *arbiter.Contender) { c.Offer.Balance, c.Outlook.Rest = 20*units.Kilojoule, rest(10_000, 10) })
	dry := changed(urgent("dry"), func(c *arbiter.Contender) { c.Offer.Balance = 0 })
	kept := func(what string, now time.Duration, want float64, jobs ...arbiter.Contender) {
		t.Helper()
		got := 1.0
		for _, g := range m.Step(now, jointly(append(jobs, low)...)).Grants {
			got = 1 - g.Escrow.Joules()/20_000
		}
		if math.Abs(got-want) > 0.005 {
			t.Errorf("%s: %.3f are kept, want %.3f", what, got, want)
		}
	}
	kept("while nobody may need them", 0, 0)
	kept("for a job that waits", every, 0.8, waiting())
	m.Step(2*every, jointly(dry))
	kept("after a look without joules", 3*every, 0.9)
	for i := range 10 {
		m.Step(time.Duration(4+i)*every, jointly(dry))
	}
	kept("at the most", 14*every, 0.95)
	kept("within an hour", 30*time.Minute, 0.95-0.45/4, waiting())
	kept("after 2 hours more", 150*time.Minute, 0.5, waiting())
	kept("after an hour without a job of the highest class", 211*time.Minute, 0)
}

// crowd is a job that drops tasks, with so many like it behind it.
func crowd(n int, change func(c *arbiter.Contender)) arbiter.Look {
	first := changed(busy("a"), func(c *arbiter.Contender) { c.MaySprint, c.Pending, c.Outlook.Rest = false, 20, rest(30, 10) })
	change(&first)
	look := jointly(first)
	for i := range n {
		look.Jobs = append(look.Jobs, changed(busy(fmt.Sprintf("b%02d", i)), func(c *arbiter.Contender) { c.Age, c.MaySprint, c.MayDeflate = 1, false, false }))
	}
	return look
}

func TestDrops(t *testing.T) {
	t.Parallel()
	none := func(*arbiter.Contender) {}
	last := -1.0
	for _, behind := range []int{0, 5, 9, 12, 15, 20} { // the more wait, the more is dropped
		var m arbiter.Movers
		theta := 0.0
		for _, d := range m.Step(0, crowd(behind, none)).Deflates {
			theta = d.Theta
		}
		// A task saves a quarter of a second for each of the jobs, which is worth it between 1.5 and 4.5 of them and
		// their sixths: from 6 on, all that have not begun from 11 on.
		want := min(0.2, max(0, math.Floor((float64(behind+1)/12-0.5)*50)/100))
		if math.Abs(theta-want) > 1e-9 || theta < last {
			t.Errorf("%d behind: %v, want %v", behind, theta, want)
		}
		last = theta
	}
	for name, x := range map[string]struct {
		change func(c *arbiter.Contender)
		want   float64
	}{
		"all that have not begun":  {none, 0.2},
		"what the floor leaves":    {func(c *arbiter.Contender) { c.Floor = 0.9 }, 0.1},
		"nothing of an exact job":  {func(c *arbiter.Contender) { c.Floor = 1 }, 0},
		"on top of what was":       {func(c *arbiter.Contender) { c.Theta, c.Dropped = 0.1, 10 }, 0.3},
		"not while many wait":      {func(c *arbiter.Contender) { c.Pending, c.Floor, c.Outlook.Rest = 75, 0.9, rest(75, 10) }, 0},
		"as soon as few begin":     {func(c *arbiter.Contender) { c.Pending, c.Floor, c.Outlook.Rest = 50, 0.9, rest(50, 10) }, 0.1},
		"in stages to come, early": {func(c *arbiter.Contender) { c.Ahead, c.Pending, c.Outlook.Rest = true, 75, rest(75, 10) }, 0.5},
		"not below the one in force": {func(c *arbiter.Contender) {
			c.Theta, c.Dropped = 0.5, 0 // its engine has not dropped yet
		}, 0},
	} {
		var m arbiter.Movers
		theta := 0.0
		for _, d := range m.Step(0, crowd(40, x.change)).Deflates {
			theta = d.Theta
		}
		if math.Abs(theta-x.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, theta, x.want)
		}
	}
	// A job behind it would miss its deadline by it: what it gives up is decided early.
	var m arbiter.Movers
	look := crowd(40, func(c *arbiter.Contender) { c.Pending, c.Floor, c.Outlook.Rest = 75, 0.9, rest(75, 10) })
	look.Jobs[1].Deadline, look.Jobs[1].Elapsed = 30*second, 1
	look.Jobs[0].Rank, look.Jobs[0].Percent = 0, second/10
	if out := m.Step(0, look); len(out.Deflates) != 1 || out.Deflates[0].ID != "a" {
		t.Errorf("%+v", out.Deflates)
	}
}

// A ratio that acts on stages to come rises in steps of 0.05, at most each 20 s.
func TestDropsAhead(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	theta, rises := 0.0, []int{}
	for i := range 20 {
		look := crowd(4+i, func(c *arbiter.Contender) { c.Ahead, c.Theta, c.Dropped = true, theta, int(100*theta) })
		for _, d := range m.Step(time.Duration(i)*every, look).Deflates {
			if steps := d.Theta / 0.05; math.Abs(steps-math.Round(steps)) > 1e-6 || d.Theta < theta+0.05-1e-9 {
				t.Errorf("look %d: from %v to %v", i, theta, d.Theta)
			}
			theta, rises = d.Theta, append(rises, i)
		}
	}
	for i := 1; i < len(rises); i++ {
		if rises[i]-rises[i-1] < 4 {
			t.Errorf("rises at looks %v", rises)
		}
	}
	if theta != 0.5 || len(rises) < 2 {
		t.Errorf("%v by rises at looks %v", theta, rises)
	}
}

func twoNodes() []arbiter.Node {
	return []arbiter.Node{
		{Name: "n1", Target: 120 * watt, Floor: 60 * watt, Most: 200 * watt},
		{Name: "n2", Target: 120 * watt, Floor: 60 * watt, Most: 200 * watt},
	}
}

// held are two jobs: an urgent one on n1, a tolerant one on n2.
func heldLook(change func(look *arbiter.Look)) arbiter.Look {
	look := jointly(
		changed(urgent("a"), func(c *arbiter.Contender) { c.On, c.MaySprint = map[string]int{"n1": 20}, false }),
		changed(busy("b"), func(c *arbiter.Contender) { c.On, c.MaySprint = map[string]int{"n2": 20}, false }),
	)
	look.Nodes = twoNodes()
	change(&look)
	return look
}

func TestHolds(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(look *arbiter.Look)
		want   units.Power
	}{
		"a watt is worth more elsewhere": {func(*arbiter.Look) {}, 90 * watt},
		"down to the floor":              {func(l *arbiter.Look) { l.Nodes[1].Floor = 100 * watt }, 100 * watt},
		"not at the floor":               {func(l *arbiter.Look) { l.Nodes[1].Floor = 120 * watt }, 0},
		"nobody can use them":            {func(l *arbiter.Look) { l.Nodes[0].Most = 121 * watt }, 0},
		"the one that gains sprints":     {func(l *arbiter.Look) { l.Nodes[0].Sprints = true }, 0},
		"the one that gives sprints":     {func(l *arbiter.Look) { l.Nodes[1].Sprints = true }, 0},
		"they are worth the same":        {func(l *arbiter.Look) { l.Jobs[1].Rank = 0 }, 0},
		"its jobs would be late":         {func(l *arbiter.Look) { l.Jobs[1].Deadline = 70 * second }, 0},
		"its jobs have time":             {func(l *arbiter.Look) { l.Jobs[1].Deadline = 170 * second }, 90 * watt},
		"its jobs are late anyway":       {func(l *arbiter.Look) { l.Jobs[1].Deadline = -second }, 0},
		"nothing runs there":             {func(l *arbiter.Look) { l.Jobs = l.Jobs[:1] }, 0},
		"it is held already": {func(l *arbiter.Look) {
			l.Nodes[1].Held, l.Nodes[1].Target = 80*watt, 80*watt
		}, 80 * watt},
		"no nodes": {func(l *arbiter.Look) { l.Nodes = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			out := looks(&m, 2, heldLook(x.change))
			got := units.Power(0)
			for _, h := range out.Holds {
				if got = h.Most; h.Node != "n2" || h.For != 15*second || !strings.Contains(h.Reason, "a watt on n1 is worth") {
					t.Errorf("%+v", h)
				}
			}
			if got != x.want {
				t.Errorf("n2 is held at %v, want %v", got, x.want)
			}
			if moves := kinds(out); x.want > 0 && moves != "a:cap b:cap" {
				t.Errorf("%s", moves)
			}
		})
	}
	// A hold waits for 5 s of patience, without a break.
	var m arbiter.Movers
	for i, x := range []struct {
		look  arbiter.Look
		holds int
	}{
		{heldLook(func(*arbiter.Look) {}), 0},
		{heldLook(func(l *arbiter.Look) { l.Jobs[1].Rank = 0 }), 0},
		{heldLook(func(*arbiter.Look) {}), 0},
		{heldLook(func(*arbiter.Look) {}), 1},
	} {
		if out := m.Step(time.Duration(i)*every, x.look); len(out.Holds) != x.holds {
			t.Errorf("look %d: %+v", i, out.Holds)
		}
	}
}
