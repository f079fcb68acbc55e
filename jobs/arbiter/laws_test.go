// Claims: whatever is reported, in whatever order, each running job gets one move in words; shares fit the pool and
// name each running job once; grants fit their joules, one in a domain; ratios rise within floors; holds end by
// themselves, and nothing is held where a job would be late by it. What is decided does not depend on when one
// begins, on the order of jobs and nodes, or on the unit of joules; more joules make no sprint shorter, a higher price
// gives up no more tasks, and a lower class takes nothing from a higher one.
package arbiter_test

import (
	"fmt"
	"math"
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

func TestMoveLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a, b, c arbiter.Movers
		later := time.Duration(rapid.IntRange(0, 1_000_000).Draw(t, "later")) * second
		var last arbiter.Look
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			look := drawLook(t)
			if rapid.Bool().Draw(t, "same") && step > 0 {
				look = last
			}
			last = look
			now := time.Duration(step) * every
			out := a.Step(now, look)
			lawful(t, look, out)
			other := look
			other.Jobs, other.Nodes = slices.Clone(look.Jobs), slices.Clone(look.Nodes)
			slices.Reverse(other.Jobs)
			slices.Reverse(other.Nodes)
			if again := b.Step(now, other); !reflect.DeepEqual(out, again) {
				t.Fatalf("in reverse:\n%+v\n%+v", out, again)
			}
			if again := c.Step(now+later, look); !reflect.DeepEqual(out, again) {
				t.Fatalf("%v later:\n%+v\n%+v", later, out, again)
			}
		}
	})
}

func drawLook(t *rapid.T) arbiter.Look {
	look := arbiter.Look{Joint: rapid.IntRange(0, 4).Draw(t, "joint") > 0}
	for i := range rapid.IntRange(0, 6).Draw(t, "jobs") {
		look.Jobs = append(look.Jobs, drawContender(t, string(rune('a'+i))))
	}
	if rapid.Bool().Draw(t, "pools") {
		look.Pools = map[string]arbiter.Pool{}
		for _, engine := range []string{"", "spark"} {
			look.Pools[engine] = arbiter.Pool{Containers: rapid.IntRange(-2, 60).Draw(t, "containers"), Overhead: rapid.IntRange(-1, 2).Draw(t, "overhead")}
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "nodes") {
		w := func(name string) units.Power { return units.Power(rapid.IntRange(-10, 300).Draw(t, name)) * watt }
		n := arbiter.Node{Name: fmt.Sprint("n", i), Target: 120 * watt, Floor: 60 * watt, Most: 200 * watt}
		for _, odd := range []func(){
			func() { n.Target = w("target") },
			func() { n.Floor, n.Most = w("floor"), w("most") },
			func() { n.Held = w("held") },
			func() { n.Sprints = true },
		} {
			if rapid.IntRange(0, 4).Draw(t, "odd") == 0 {
				odd()
			}
		}
		look.Nodes = append(look.Nodes, n)
	}
	return look
}

func drawContender(t *rapid.T, id string) arbiter.Contender {
	some := func(name string) float64 {
		return rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 0.3, 0.5, 1, 50, 100, 160, 400, 1e9, 1e300}).Draw(t, name)
	}
	duration := func(name string) time.Duration {
		return rapid.SampledFrom([]time.Duration{math.MinInt64, -second, 0, 1, second, 30 * second, 200 * second, 1e6 * second, math.MaxInt64}).Draw(t, name)
	}
	count := func(name string) int {
		return rapid.SampledFrom([]int{-3, 0, 1, 5, 20, 40, 100, 1000, math.MaxInt32}).Draw(t, name)
	}
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	finish := func(name string) progress.Finish {
		return progress.Finish{At: duration(name), Known: yes("known")}
	}
	c := busy(id)
	if yes("urgent") {
		c = urgent(id)
	}
	c.Rank, c.Engine = c.Rank+rapid.IntRange(0, 1).Draw(t, "rank"), rapid.SampledFrom([]string{"", "spark"}).Draw(t, "engine")
	c.Waiting, c.Ahead, c.Due, c.MaySprint, c.MayDeflate = rapid.IntRange(0, 4).Draw(t, "waiting") == 0, yes("ahead"), yes("due"), yes("may sprint"), yes("may deflate")
	c.Pending = rapid.IntRange(0, 80).Draw(t, "pending")
	c.Outlook.Rest = rest(float64(10+c.Pending), rapid.IntRange(1, 60).Draw(t, "task"))
	c.Run, c.Offer = uint32(rapid.IntRange(1, 2).Draw(t, "run")), offer(rapid.IntRange(0, 20_000).Draw(t, "joules"))
	c.On = map[string]int{"n0": rapid.IntRange(0, 20).Draw(t, "on n0"), "n1": rapid.IntRange(0, 20).Draw(t, "on n1")}
	c.Percent = rapid.SampledFrom([]time.Duration{0, time.Millisecond, second}).Draw(t, "percent")
	c.Floor = rapid.SampledFrom([]float64{0.3, 0.5, 0.9, 1}).Draw(t, "floor")
	c.Deadline = rapid.SampledFrom([]time.Duration{0, 0, -second, 30 * second, 1000 * second}).Draw(t, "deadline")
	c.Promised = rapid.SampledFrom([]int{0, 0, 5, 20, 50}).Draw(t, "promised")
	c.ErrorBound = rapid.SampledFrom([]float64{0, 0, 0, 0.1}).Draw(t, "error")
	c.CopiesWanted, c.CopiesSave = rapid.SampledFrom([]int{0, 0, 3, 40}).Draw(t, "copies wanted"), time.Duration(rapid.IntRange(0, 60).Draw(t, "save"))*second
	// A few numbers are invalid.
	for _, odd := range []func(){
		func() { c.Rank = rapid.SampledFrom([]int{-1, 1 << 40}).Draw(t, "odd rank") },
		func() { c.Tasks = count("odd tasks") },
		func() { c.Dropped = count("odd dropped") },
		func() { c.Running = count("odd running") },
		func() { c.Pending = count("odd pending") },
		func() { c.Floor = some("odd floor") },
		func() { c.Theta, c.ClassTheta = some("odd theta"), some("odd class theta") },
		func() { c.Age, c.Elapsed = duration("odd age"), duration("odd elapsed") },
		func() { c.Deadline, c.Percent = duration("odd deadline"), duration("odd percent") },
		func() { c.On = nil },
		func() { c.On = map[string]int{"n0": count("odd n0"), "n1": count("odd n1")} },
		func() { c.Outlook.Slow, c.Outlook.Fast = finish("slow"), finish("fast") },
		func() { c.Outlook.Uncapped, c.Outlook.PerTask = max(0, duration("uncapped")), duration("each") },
		func() { c.Outlook.Speed = some("speed") },
		func() {
			c.Outlook.Rest = progress.Rest{Work: some("work"), Task: duration("task"), Ended: count("ended"), Tail: duration("tail"), Known: yes("rest")}
		},
		func() {
			c.Offer.Rise = rapid.SampledFrom([]units.Power{-watt, 0, 1, watt, math.MaxInt64}).Draw(t, "rise")
		},
		func() {
			c.Offer.Balance = rapid.SampledFrom([]units.Energy{-1, math.MinInt64, math.MaxInt64}).Draw(t, "balance")
		},
		func() {
			c.Offer.Capacity = rapid.SampledFrom([]units.Energy{-1, 0, math.MaxInt64}).Draw(t, "capacity")
		},
		func() { c.Promised, c.ErrorBound = count("odd promise"), some("odd error") },
		func() {
			c.Copies, c.CopiesWanted, c.CopiesSave = count("odd copies"), count("odd wanted"), duration("odd save")
		},
		func() { c.Sprint = "s" + id },
		func() { c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields = "s9", 1, true },
	} {
		if rapid.IntRange(0, 24).Draw(t, "odd") == 0 {
			odd()
		}
	}
	return c
}

func lawful(t *rapid.T, look arbiter.Look, out arbiter.Moves) {
	t.Helper()
	by, running := map[string]arbiter.Contender{}, 0
	for _, c := range look.Jobs {
		by[c.ID] = c
		if !c.Waiting {
			running++
		}
	}
	if len(out.Moves) != running {
		t.Fatalf("%d moves of %d running jobs", len(out.Moves), running)
	}
	for _, m := range out.Moves {
		if m.Reason == "" || strings.Contains(m.Reason, "NaN") || strings.Contains(m.Reason, "Inf") || m.Energy < 0 || !(m.Quality >= 0 && m.Quality <= 1) || by[m.ID].Waiting {
			t.Fatalf("%+v of %+v", m, by[m.ID])
		}
		lawfulCandidates(t, look, out, m)
	}
	domains := map[string]bool{}
	for _, g := range out.Grants {
		c := by[g.ID]
		if domains[g.Domain] || g.Duration < 10*second || g.Duration > 10*time.Minute || g.Escrow > c.Offer.Balance || g.Escrow <= 0 || c.Sprint != "" || !c.Due && !(c.MaySprint && look.Joint) {
			t.Fatalf("%+v of %+v", out.Grants, c)
		}
		high := slices.ContainsFunc(look.Jobs, func(c arbiter.Contender) bool { return c.Rank <= 0 })
		if high && c.Rank > 0 && !c.Due && c.Offer.Capacity > 0 && c.Offer.Balance-g.Escrow < c.Offer.Capacity/2-1 {
			t.Fatalf("%+v leaves less than half of %+v", g, c.Offer)
		}
		domains[g.Domain] = true
	}
	for _, d := range out.Deflates {
		c := by[d.ID]
		if !(d.Theta > c.Theta || math.IsNaN(c.Theta)) || !(d.Theta <= 1-c.Floor+1e-9) || !c.MayDeflate || d.Reason == "" || !look.Joint {
			t.Fatalf("%+v of %+v", d, c)
		}
		if kept := units.Ratio(1 - d.Theta).Kept(c.Tasks); !c.Ahead && c.Tasks-kept-max(0, c.Dropped) > c.Pending {
			t.Fatalf("%+v drops more than has not begun of %+v", d, c)
		}
	}
	for engine, d := range out.Divisions {
		lawfulShares(t, look, engine, d)
	}
	for _, h := range out.Holds {
		if h.For <= 0 || h.For > time.Minute || h.Most <= 0 || h.Reason == "" {
			t.Fatalf("%+v", h)
		}
		for id, c := range by {
			if left := out.Foreseen[id].Left; c.On[h.Node] > 0 && c.Deadline != 0 && left.Seconds()/0.75 > (c.Deadline-max(0, c.Elapsed)).Seconds()+1e-6 {
				t.Fatalf("%+v, and %s ends in %v, its deadline is at %v", h, id, left, c.Deadline)
			}
		}
	}
}

// Candidates are those of jobs that may be late, one of each lever, the best first; those that are chosen are what is
// decided.
func lawfulCandidates(t *rapid.T, look arbiter.Look, out arbiter.Moves, m arbiter.Move) {
	t.Helper()
	if len(m.Candidates) == 0 {
		return
	}
	seen := map[arbiter.MoveKind]arbiter.Candidate{}
	for i, c := range m.Candidates {
		odd := math.IsNaN(c.Worth) || math.IsInf(c.Worth, 0) || c.Energy < 0 || !(c.Quality >= 0 && c.Quality <= 1) || strings.Contains(c.Why, "NaN") || strings.Contains(c.Why, "Inf")
		if _, twice := seen[c.Kind]; odd || twice || c.Why == "" || i > 0 && c.Worth > m.Candidates[i-1].Worth {
			t.Fatalf("%+v of %+v", c, m)
		}
		seen[c.Kind] = c
	}
	sprints := slices.ContainsFunc(out.Grants, func(g arbiter.Grant) bool { return g.ID == m.ID })
	open := slices.ContainsFunc(look.Jobs, func(c arbiter.Contender) bool { return c.ID == m.ID && c.Sprint != "" })
	drops := slices.ContainsFunc(out.Deflates, func(d arbiter.Deflate) bool { return d.ID == m.ID })
	if len(seen) != 5 || !look.Joint || seen[arbiter.MoveSprint].Chosen != (sprints || open) || seen[arbiter.MoveDeflate].Chosen != drops ||
		seen[arbiter.MoveCap].Chosen && len(out.Holds) == 0 {
		t.Fatalf("%+v of %+v", m, out)
	}
}

func lawfulShares(t *rapid.T, look arbiter.Look, engine string, d arbiter.Division) {
	t.Helper()
	sum, named := 0, map[string]bool{}
	for _, s := range d.Shares {
		if named[s.ID] || s.Containers < 0 {
			t.Fatalf("%+v", d)
		}
		named[s.ID] = true
		sum += s.Containers
	}
	if sum > look.Pools[engine].Containers {
		t.Fatalf("shares of %d in a pool of %+v", sum, look.Pools[engine])
	}
	for _, c := range look.Jobs {
		if c.Engine == engine && named[c.ID] == c.Waiting {
			t.Fatalf("%s: waiting %v, named %v", c.ID, c.Waiting, named[c.ID])
		}
	}
}

// Looks that mean something: some jobs of two classes that run on two nodes.
func drawJobs(t *rapid.T) []arbiter.Contender {
	var jobs []arbiter.Contender
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		make := busy
		if rapid.Bool().Draw(t, "urgent") {
			make = urgent
		}
		c := make(string(rune('a' + i)))
		c.Pending = rapid.IntRange(0, 75).Draw(t, "pending")
		c.Outlook.Rest = rest(float64(10+c.Pending), rapid.IntRange(1, 60).Draw(t, "task"))
		c.Age = time.Duration(rapid.IntRange(1, 300).Draw(t, "age")) * second
		if rapid.Bool().Draw(t, "due") {
			c.Deadline = time.Duration(rapid.IntRange(1, 200).Draw(t, "deadline")) * second
		}
		c.On = map[string]int{"n1": rapid.IntRange(0, 10).Draw(t, "n1"), "n2": 10}
		c.Offer.Balance = units.Energy(rapid.IntRange(0, 20).Draw(t, "joules")) * units.Kilojoule
		jobs = append(jobs, c)
	}
	return jobs
}

// Joules and watts are of no unit: with k times as many of both, the same jobs sprint for as long.
func TestJoulesScale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		k := rapid.IntRange(2, 50).Draw(t, "k")
		scaled := slices.Clone(jobs)
		for i := range scaled {
			o := &scaled[i].Offer
			o.Balance, o.Capacity, o.Rise = o.Balance*units.Energy(k), o.Capacity*units.Energy(k), o.Rise*units.Power(k)
		}
		var a, b arbiter.Movers
		one, more := a.Step(0, jointly(jobs...)), b.Step(0, jointly(scaled...))
		if len(one.Grants) != len(more.Grants) || kinds(one) != kinds(more) {
			t.Fatalf("%+v\n%+v", one.Grants, more.Grants)
		}
		for i, g := range one.Grants {
			if x := more.Grants[i]; g.ID != x.ID || (g.Duration-x.Duration).Abs() > time.Millisecond {
				t.Fatalf("%+v\n%+v", g, x)
			}
		}
	})
}

// With k times as many containers for k times as many tasks, each gets k times as many.
func TestSharesScale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		k := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "k") // so that nothing is rounded
		wide := slices.Clone(jobs)
		for i := range wide {
			c := &wide[i]
			c.Tasks, c.Running, c.Pending = k*c.Tasks, k*c.Running, k*c.Pending
			c.Outlook.Rest.Work *= float64(k)
		}
		var a, b arbiter.Movers
		look := jointly(wide...)
		look.Pools[""] = arbiter.Pool{Containers: 40 * k}
		one, more := a.Step(0, jointly(jobs...)).Divisions[""].Shares, b.Step(0, look).Divisions[""].Shares
		for i, s := range one {
			if more[i].ID != s.ID || more[i].Containers != k*s.Containers {
				t.Fatalf("%v\n%v", one, more)
			}
		}
	})
}

func TestMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		step := func(change func(c *arbiter.Contender)) arbiter.Moves {
			var m arbiter.Movers
			other := slices.Clone(jobs)
			for i := range other {
				change(&other[i])
			}
			return m.Step(0, jointly(other...))
		}
		plain := step(func(*arbiter.Contender) {})
		richer := step(func(c *arbiter.Contender) { c.Offer.Balance = 20 * units.Kilojoule })
		if len(plain.Grants) > len(richer.Grants) {
			t.Fatalf("more joules, fewer sprints: %+v\n%+v", plain.Grants, richer.Grants)
		}
		for _, g := range plain.Grants {
			if x := richer.Grants[0]; x.ID == g.ID && x.Duration < g.Duration {
				t.Fatalf("more joules, a shorter sprint: %+v\n%+v", g, x)
			}
		}
		ratio := func(out arbiter.Moves, id string) float64 {
			for _, d := range out.Deflates {
				if d.ID == id {
					return d.Theta
				}
			}
			return 0
		}
		cheap, dear := step(func(c *arbiter.Contender) { c.Percent = second / 4 }), step(func(c *arbiter.Contender) { c.Percent = second / 2 })
		for _, c := range jobs {
			if begins := 1 + 40*5/max(1, int(c.Outlook.Rest.Task.Seconds())); ratio(dear, c.ID) > ratio(cheap, c.ID)+1e-9 && c.Pending <= begins {
				t.Fatalf("%s: %v at the higher price, %v at the lower", c.ID, ratio(dear, c.ID), ratio(cheap, c.ID))
			}
		}
		// The jobs of the highest class alone get what they get with the others.
		var m arbiter.Movers
		var high []arbiter.Contender
		for _, c := range jobs {
			if c.Deadline = 0; c.Rank == 0 {
				high = append(high, c)
			}
		}
		alone := m.Step(0, jointly(high...)).Divisions[""].Shares
		for i, s := range step(func(c *arbiter.Contender) { c.Deadline = 0 }).Divisions[""].Shares {
			if i < len(alone) && alone[i] != s {
				t.Fatalf("alone %v, with others %v", alone, s)
			}
		}
	})
}

// Odd looks are harmless: nothing panics, and what holds for all looks holds.
func TestOddLooks(t *testing.T) {
	t.Parallel()
	short := changed(urgent("a"), func(c *arbiter.Contender) { c.Deadline, c.Outlook.Rest = second, rest(70, 60) })
	for name, look := range map[string]arbiter.Look{
		"nothing":                        {},
		"nothing jointly":                {Joint: true},
		"no pools":                       {Joint: true, Jobs: []arbiter.Contender{busy("a"), urgent("b")}},
		"no containers":                  {Joint: true, Jobs: []arbiter.Contender{busy("a")}, Pools: map[string]arbiter.Pool{"": {}}},
		"fewer containers than jobs":     {Joint: true, Jobs: []arbiter.Contender{busy("a"), busy("b"), busy("c")}, Pools: map[string]arbiter.Pool{"": {Containers: 2, Overhead: 1}}},
		"an unknown engine":              jointly(changed(busy("a"), func(c *arbiter.Contender) { c.Engine = "other" })),
		"one job twice":                  jointly(busy("a"), busy("a")),
		"an empty job":                   jointly(arbiter.Contender{}),
		"a job without a name":           jointly(changed(busy(""), func(c *arbiter.Contender) { c.Class = "" })),
		"a deadline shorter than a task": jointly(short),
		"a deadline in the past":         jointly(changed(busy("a"), func(c *arbiter.Contender) { c.Deadline = -time.Hour }), busy("b")),
		"nodes of nothing":               {Joint: true, Jobs: []arbiter.Contender{busy("a")}, Nodes: []arbiter.Node{{}, {Name: "n1"}, {Name: "n1", Target: -watt}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			for i := range 4 {
				out := m.Step(time.Duration(i)*every, look)
				seen := map[string]bool{}
				for _, x := range out.Moves {
					if seen[x.ID] || x.Reason == "" {
						t.Errorf("%+v", out.Moves)
					}
					seen[x.ID] = true
				}
				for engine, d := range out.Divisions {
					sum := 0
					for _, s := range d.Shares {
						sum += s.Containers
					}
					if sum > look.Pools[engine].Containers {
						t.Errorf("%+v", d)
					}
				}
			}
		})
	}
}

// A sprint whose joules run out ends below the movers: the next needs joules again.
func TestJoulesRunOut(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	c := urgent("a")
	if out := m.Step(0, jointly(c)); len(out.Grants) != 1 {
		t.Fatalf("%+v", out)
	}
	c.Offer.Balance = 500 * units.Joule // it was ended early, and what it drew is gone
	if out := m.Step(every, jointly(c)); len(out.Grants) != 0 || out.Moves[0].Kind != arbiter.MoveCap {
		t.Errorf("%+v", out)
	}
	c.Offer.Balance = 1500 * units.Joule
	if out := m.Step(2*every, jointly(c)); len(out.Grants) != 1 || out.Grants[0].Duration > 15*second {
		t.Errorf("%+v", out)
	}
}
