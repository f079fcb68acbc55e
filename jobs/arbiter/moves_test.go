// Claims: each running job gets one move, with its reason in numbers and what it costs; timers come first, and are
// all that sprints where the levers are not weighed jointly; a decision in force keeps its move; in closed loop, with
// noise, neither sprints nor ratios nor shares nor holds swing.
package arbiter_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

func at(s float64) progress.Finish {
	d := time.Duration(s * float64(second))
	return progress.Finish{At: d, Low: d * 9 / 10, High: d * 11 / 10, Known: true}
}

// rest is so much work that is left, in tasks of so many seconds, learned from 20.
func rest(work float64, task int) progress.Rest {
	return progress.Rest{Work: work, Task: time.Duration(task) * second, Ended: 20, Known: true}
}

// offer is a sprint of two nodes by 100 W, from a pot of 20 kJ.
func offer(joules int) arbiter.Offer {
	return arbiter.Offer{Domain: "site/lab", Balance: units.Energy(joules) * units.Joule, Capacity: 20 * units.Kilojoule, Rise: 100 * watt, Nodes: 2}
}

// busy is a job of class low: 20 of its 100 tasks of 10 s are done, 20 run on two nodes, 60 have not begun. A cap
// makes it end at 200 s instead of 150 s, a sprint at 120 s.
func busy(id string) arbiter.Contender {
	return arbiter.Contender{
		ID: id, Class: "low", Rank: 1, Tasks: 100, Running: 20, Pending: 60, Floor: 0.5, Age: 25 * second, Elapsed: 20 * second, Run: 1,
		MaySprint: true, MayDeflate: true, Seed: 7, On: map[string]int{"n1": 10, "n2": 10}, Offer: offer(20_000),
		Outlook: arbiter.Outlook{Slow: at(200), Fast: at(120), Uncapped: 150 * second, Capped: true, CapShare: 0.6, PerTask: 18 * second / 10, Rest: rest(70, 10), Speed: 1.5},
	}
}

// urgent is busy as a job of the highest class that computes all of its tasks.
func urgent(id string) arbiter.Contender {
	c := busy(id)
	c.Class, c.Rank, c.Floor, c.MayDeflate = "high", 0, 1, false
	return c
}

// waiting is a small job of the highest class that waits: what it may need is reserved.
func waiting() arbiter.Contender {
	return changed(urgent("w"), func(c *arbiter.Contender) {
		c.Waiting, c.Tasks, c.Running, c.Pending, c.On, c.Outlook.Rest = true, 1, 0, 1, nil, rest(1, 10)
	})
}

// changed is a contender with a change.
func changed(c arbiter.Contender, f func(c *arbiter.Contender)) arbiter.Contender {
	f(&c)
	return c
}

// jointly is a joint look at jobs of one engine with 40 containers.
func jointly(jobs ...arbiter.Contender) arbiter.Look {
	return arbiter.Look{Jobs: jobs, Joint: true, Pools: map[string]arbiter.Pool{"": {Containers: 40}}}
}

// looks lets Movers look some times, 5 s apart, and gives the last decision.
func looks(m *arbiter.Movers, n int, look arbiter.Look) (out arbiter.Moves) {
	for i := range n {
		out = m.Step(time.Duration(i)*every, look)
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
	still := changed(busy("a"), func(c *arbiter.Contender) { c.MaySprint = false })
	for name, x := range map[string]struct {
		job  arbiter.Contender
		kind arbiter.MoveKind
		says string
	}{
		"joules save time": {busy("a"), arbiter.MoveSprint, "finishes at 200 s, 50 s after its uncapped finish at 150 s: 2 nodes sprint for at most 18 s, 100.0 W above their caps, 1.50x as fast"},
		"its timer is due": {changed(still, func(c *arbiter.Contender) { c.Due = true }), arbiter.MoveSprint, "its sprint timer is due: 2 nodes sprint"},
		"it may not sprint": {
			changed(still, func(c *arbiter.Contender) { c.SprintWords = "discipline p" }), arbiter.MoveCap,
			"its nodes are capped at 60 % of their full power; finishes at 200 s, 50 s after its uncapped finish at 150 s; no sprint: discipline p",
		},
		"no cap slows it": {
			changed(still, func(c *arbiter.Contender) { c.Outlook.Slow, c.Outlook.Capped, c.Outlook.CapShare = at(100), false, 1 }), arbiter.MoveNone,
			"finishes at 100 s; no deadline, not slowed by a cap",
		},
		"its deadline is far": {changed(still, func(c *arbiter.Contender) { c.Deadline = 300 * second }), arbiter.MoveCap, "finishes at 200 s, 100 s before its deadline at 300 s"},
		"its deadline is past": {
			changed(still, func(c *arbiter.Contender) { c.Deadline = -10 * second }), arbiter.MoveCap, "210 s after its deadline at -10 s",
		},
		"there are no joules": {changed(busy("a"), func(c *arbiter.Contender) { c.Offer.Balance = 900 * units.Joule }), arbiter.MoveCap, "has 0.90 kJ; 10 s need 1.00 kJ"},
		"they are reserved": {
			changed(busy("a"), func(c *arbiter.Contender) { c.Offer.Balance = 16 * units.Kilojoule }), arbiter.MoveCap,
			"has 16.00 kJ; 80 % of 20.00 kJ are reserved for the highest class",
		},
		"there are no watts": {changed(busy("a"), func(c *arbiter.Contender) { c.Offer.Rise = 0 }), arbiter.MoveCap, "no power is left above the caps of its nodes"},
		"no budget at all":   {changed(busy("a"), func(c *arbiter.Contender) { c.Offer = arbiter.Offer{Why: "site/lab has no sprint budget"} }), arbiter.MoveCap, "site/lab has no sprint budget"},
		"it would not help":  {changed(busy("a"), func(c *arbiter.Contender) { c.Outlook.Speed = 1.01 }), arbiter.MoveCap, "the speed-up would be too small: 1.01x as fast"},
		"another sprints":    {changed(busy("a"), func(c *arbiter.Contender) { c.Offer.Busy = "s9" }), arbiter.MoveCap, "sprint s9 is in progress in site/lab"},
		"it sprints":         {changed(busy("a"), func(c *arbiter.Contender) { c.Sprint = "s1" }), arbiter.MoveSprint, "sprint s1 is in progress"},
		"speed is unknown":   {changed(busy("a"), func(c *arbiter.Contender) { c.Outlook.Speed = 0 }), arbiter.MoveSprint, "speed-up unknown"},
		"quality is expected": {changed(still, func(c *arbiter.Contender) {
			c.Percent, c.Pending, c.Floor, c.Outlook.Rest = second/10, 75, 0.9, rest(85, 10)
		}), arbiter.MoveCap, "or the decision can wait"},
		"quality is cheap": {
			changed(still, func(c *arbiter.Contender) { c.Percent, c.Pending, c.Outlook.Rest = second/10, 20, rest(30, 10) }), arbiter.MoveDeflate,
			"drop ratio 0.00 -> 0.20, floor 0.50 of its tasks",
		},
		"the floor is reached": {
			changed(still, func(c *arbiter.Contender) { c.Percent, c.Floor, c.Theta, c.Dropped = second/100, 0.9, 0.1, 10 }), arbiter.MoveCap,
			"its floor of 0.90 allows no more than its drop ratio of 0.10; drop ratio 0.10",
		},
		"all have begun":          {changed(still, func(c *arbiter.Contender) { c.Percent, c.Pending = second/100, 0 }), arbiter.MoveCap, "all of its tasks have started"},
		"it is exact":             {changed(still, func(c *arbiter.Contender) { c.Floor = 1 }), arbiter.MoveCap, "its floor is all tasks"},
		"its discipline is exact": {changed(still, func(c *arbiter.Contender) { c.MayDeflate, c.DeflateWords = false, "discipline np has exact results" }), arbiter.MoveCap, "discipline np has exact results"},
		"tasks of unknown time": {
			changed(still, func(c *arbiter.Contender) { c.Percent, c.Outlook.Rest = second/100, progress.Rest{} }), arbiter.MoveCap, "the duration of its tasks is unknown",
		},
		"nobody knows when it ends": {changed(still, func(c *arbiter.Contender) { c.Outlook.Slow = progress.Finish{} }), arbiter.MoveCap, "finish time unknown"},
		"CAB has moved its share": {
			changed(still, func(c *arbiter.Contender) { c.Outlook.Moved, c.Outlook.Had, c.Outlook.Containers = true, 4, 9 }), arbiter.MoveReallocate, "gives it 9 containers instead of 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			move := m.Step(0, jointly(x.job, waiting())).Moves[0]
			if move.Kind != x.kind || !strings.Contains(move.Reason, x.says) {
				t.Errorf("%v: %s", move.Kind, move.Reason)
			}
		})
	}
}

// What a move costs is given: joules put aside, tasks given up, seconds borne or won.
func TestMovesCost(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	out := m.Step(0, jointly(busy("a")))
	// 70 tasks of 10 s on 40 containers, and half a task: 22.5 s, 15 s in a sprint, and a fifth more.
	if g := out.Grants[0]; len(out.Grants) != 1 || g.ID != "a" || g.Class != "low" || g.Domain != "site/lab" || g.Duration != 18*second || g.Escrow != 1800*units.Joule || out.Moves[0].Energy != g.Escrow {
		t.Errorf("%+v", out.Grants)
	}
	// A sprint of 18 s at 1.5 times the speed saves 9 s, whatever is expected of one to the job's end.
	if move := out.Moves[0]; !move.TimeKnown || move.Time != -9*second {
		t.Errorf("%+v", move)
	}
	cheap := changed(busy("a"), func(c *arbiter.Contender) {
		c.MaySprint, c.Percent, c.Pending, c.Outlook.Rest = false, second/10, 20, rest(30, 10)
	})
	m = arbiter.Movers{}
	out = m.Step(0, jointly(cheap))
	if x := out.Deflates[0]; len(out.Deflates) != 1 || math.Abs(x.Theta-0.2) > 1e-9 || x.Seed != 7 || math.Abs(out.Moves[0].Quality-0.2) > 1e-9 || math.Abs(out.Moves[0].Time.Seconds()+36) > 1 {
		t.Errorf("%+v, %+v", out.Deflates, out.Moves)
	}
	cheap.Floor = 1
	m = arbiter.Movers{}
	if move := m.Step(0, jointly(cheap)).Moves[0]; !move.TimeKnown || move.Time != 50*second || move.Energy != 0 || move.Quality != 0 {
		t.Errorf("%+v", move)
	}
}

// A decision keeps its move while it is in force.
func TestMovesStand(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	c := busy("a")
	first := m.Step(0, jointly(c)).Moves[0]
	c.Sprint = "job/a/1"
	if again := m.Step(every, jointly(c)).Moves[0]; !reflect.DeepEqual(again, first) {
		t.Errorf("%+v\n%+v", first, again)
	}
	c = changed(busy("a"), func(c *arbiter.Contender) {
		c.MaySprint, c.Percent, c.Pending, c.Outlook.Rest = false, second/10, 20, rest(30, 10)
	})
	m = arbiter.Movers{}
	look := jointly(c)
	look.Pools[""] = arbiter.Pool{Containers: 20}
	out := m.Step(0, look)
	c.Theta, c.Dropped, c.Pending = out.Deflates[0].Theta, 20, 0
	look.Jobs = []arbiter.Contender{c}
	if again := m.Step(every, look).Moves[0]; !reflect.DeepEqual(again, out.Moves[0]) {
		t.Errorf("%+v\n%+v", out.Moves[0], again)
	}
	look.Jobs[0].Run = 2 // another execution is a new beginning
	if again := m.Step(2*every, look).Moves[0]; again.Kind != arbiter.MoveCap {
		t.Errorf("%+v", again)
	}
}

// Without weighing the levers jointly, sprint timers that are due are all that is decided.
func TestTimersAlone(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	due := changed(busy("b"), func(c *arbiter.Contender) { c.Due, c.MaySprint, c.Offer.Balance = true, false, 3*units.Kilojoule })
	cheap := changed(busy("c"), func(c *arbiter.Contender) { c.Percent, c.Pending = time.Millisecond, 10 })
	look := jointly(urgent("a"), due, cheap)
	look.Joint, look.Nodes = false, twoNodes()
	out := looks(&m, 5, look)
	if kinds(out) != "a:cap b:sprint c:cap" || len(out.Grants) != 1 || len(out.Deflates)+len(out.Holds)+len(out.Ends)+len(out.Divisions)+len(out.Foreseen) != 0 {
		t.Errorf("%+v", out)
	}
	// Jointly they come first too, though the others gain more by joules; one that is due takes the reserve.
	m = arbiter.Movers{}
	look.Joint = true
	if out = m.Step(0, look); len(out.Grants) != 1 || out.Grants[0].ID != "b" {
		t.Errorf("%+v", out.Grants)
	}
}

// stage is a plant of one machine that runs jobs under a cap as a fluid: a closed loop of Movers, a budget of joules
// and deflation, looked at each 5 s, with noise on what is foreseen.
type stage struct {
	movers  arbiter.Movers
	jobs    []*actor
	pool    int
	balance float64 // J
	now     time.Duration
	noise   float64
	rng     *rand.Rand
	speed   float64 // under the cap
	grants  int
	turns   int // of shares that rise again after they fell, or fall after they rose
	holds   int // that begin
	held    map[string]units.Power
}

type actor struct {
	arbiter.Contender
	comes    time.Duration
	work     float64 // left, in tasks
	share    int
	way      int           // the last change of its share
	until    time.Duration // of its sprint
	end      time.Duration
	deflates int
}

const stageTask = 10 // s at full speed

// look is one joint look at the jobs that have come and not ended.
func (s *stage) look() arbiter.Look {
	look := arbiter.Look{Joint: true, Pools: map[string]arbiter.Pool{"": {Containers: s.pool}}}
	for _, j := range s.jobs {
		if j.end > 0 || j.comes > s.now {
			continue
		}
		c := j.Contender
		c.Age, c.Elapsed = s.now-j.comes, max(1, s.now-j.comes)
		hum := 1 + s.noise*(2*s.rng.Float64()-1)
		c.Running = min(j.share, int(math.Ceil(j.work)))
		c.Pending = max(0, int(math.Ceil(j.work))-c.Running)
		c.On = map[string]int{"n1": (c.Running + 1) / 2, "n2": c.Running / 2}
		done := float64(c.Tasks-c.Dropped) - j.work
		c.Outlook = arbiter.Outlook{
			Slow: at(c.Elapsed.Seconds() + hum*j.work), CapShare: 0.7, Capped: true, Speed: 1 / s.speed,
			Rest: progress.Rest{Work: j.work, Task: time.Duration(hum * stageTask / s.speed * float64(second)), Ended: int(done), Known: done >= 1},
		}
		c.Offer = offer(int(s.balance))
		c.Offer.Capacity = 10 * units.Kilojoule
		if j.until > s.now {
			c.Sprint = "s-" + j.ID
		}
		for _, o := range s.jobs {
			if o != j && o.until > s.now && o.end == 0 {
				c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields = "s-"+o.ID, o.Rank, true
			}
		}
		look.Jobs = append(look.Jobs, c)
	}
	for _, n := range []string{"n1", "n2"} {
		target := 150 * watt
		if h := s.held[n]; h > 0 {
			target = min(target, h)
		}
		look.Nodes = append(look.Nodes, arbiter.Node{Name: n, Target: target, Floor: 60 * watt, Most: 200 * watt, Held: s.held[n]})
	}
	return look
}

// step lets one look pass: 5 s of work in quarters of a second.
func (s *stage) step(t *testing.T) {
	t.Helper()
	out := s.movers.Step(s.now, s.look())
	for _, g := range out.Grants {
		j := s.find(g.ID)
		s.grants++
		j.until = s.now + g.Duration
		if s.balance -= g.Escrow.Joules(); s.balance < 0 {
			t.Fatalf("at %v: the budget is overspent by %v J", s.now, -s.balance)
		}
	}
	for _, e := range out.Ends {
		id, _ := strings.CutPrefix(e.Sprint, "s-")
		j := s.find(id)
		s.balance += 100 * (j.until - s.now).Seconds()
		j.until = s.now
	}
	for _, d := range out.Deflates {
		j := s.find(d.ID)
		if d.Theta <= j.Theta || d.Theta > 1-j.Floor+1e-9 {
			t.Fatalf("the ratio goes from %v to %v, the floor is %v", j.Theta, d.Theta, j.Floor)
		}
		dropped := int(math.Round(d.Theta * float64(j.Tasks)))
		j.work -= float64(dropped - j.Dropped)
		j.Theta, j.Dropped, j.deflates = d.Theta, dropped, j.deflates+1
	}
	if d := out.Divisions[""]; d.Changed {
		sum := 0
		for _, x := range d.Shares {
			j := s.find(x.ID)
			if way := x.Containers - j.share; way != 0 {
				if way*j.way < 0 {
					s.turns++
				}
				j.way = way
			}
			j.share = x.Containers
			sum += x.Containers
		}
		if sum > s.pool {
			t.Fatalf("at %v: shares of %d in a pool of %d", s.now, sum, s.pool)
		}
	}
	held := map[string]units.Power{}
	for _, h := range out.Holds {
		if s.held[h.Node] == 0 {
			s.holds++
		}
		held[h.Node] = h.Most
	}
	s.held = held
	for range 20 {
		s.now += every / 20
		s.pass()
	}
}

// pass is a quarter of a second.
func (s *stage) pass() {
	s.balance = min(10_000, s.balance+20*0.25)
	speed := s.speed
	if slices.ContainsFunc(s.jobs, func(j *actor) bool { return j.until > s.now && j.end == 0 }) {
		speed = 1
	}
	for _, j := range s.jobs {
		if j.end > 0 || j.comes > s.now {
			continue
		}
		if j.work -= 0.25 * speed * float64(j.share) / stageTask; j.work <= 0 {
			j.end = s.now
			s.balance += max(0, 100*(j.until-s.now).Seconds())
			j.until = 0
		}
	}
}

func (s *stage) find(id string) *actor {
	return s.jobs[slices.IndexFunc(s.jobs, func(j *actor) bool { return j.ID == id })]
}

// actors are jobs that come at these seconds.
func actors(make func(id string) arbiter.Contender, name string, comes ...int) (out []*actor) {
	for i, at := range comes {
		c := make(name + string(rune('a'+i)))
		out = append(out, &actor{Contender: c, comes: time.Duration(at) * second, work: float64(c.Tasks)})
	}
	return out
}

// With jobs of two classes under a cap that steps, joules that run out and come back, and task times that are a
// twentieth off at every look: urgent jobs meet their deadlines, and neither sprints nor ratios nor shares nor holds
// swing.
func TestMovesDoNotSwing(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.05} {
		for seed := range uint64(20) {
			high := actors(func(id string) arbiter.Contender {
				return changed(urgent(id), func(c *arbiter.Contender) { c.Tasks, c.Deadline = 80, 90*second })
			}, "high", 0, 60, 150, 160)
			low := actors(func(id string) arbiter.Contender {
				return changed(busy(id), func(c *arbiter.Contender) { c.Tasks, c.Deadline = 200, 0 })
			}, "low", 0, 40, 45)
			s := &stage{pool: 40, balance: 5000, noise: noise, rng: rand.New(rand.NewPCG(seed, 1)), speed: 0.7, jobs: append(high, low...)}
			left := func(j *actor) bool { return j.end == 0 }
			for s.now < time.Hour && slices.ContainsFunc(s.jobs, left) {
				if s.now == 100*second {
					s.speed = 0.6 // the budget's loop has cut
				}
				s.step(t)
			}
			rises := 0
			for _, j := range s.jobs {
				if took := j.end - j.comes; j.end == 0 || j.Rank == 0 && took > j.Deadline {
					t.Errorf("noise %v, seed %d: %s ends after %v", noise, seed, j.ID, took)
				}
				rises += j.deflates
			}
			// A share turns when a job comes or ends.
			if s.grants > 2*len(s.jobs) || rises > 2*len(low) || s.turns > 2*len(s.jobs) || s.holds > len(high) {
				t.Errorf("noise %v, seed %d: %d sprints, %d rises, %d turns of shares, %d holds in %v", noise, seed, s.grants, rises, s.turns, s.holds, s.now)
			}
		}
	}
}
