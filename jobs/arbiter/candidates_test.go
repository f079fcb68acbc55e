// Claims: a job whose promise is at risk has one candidate of each lever, with the numbers that have decided and why the others
// were not chosen; copies run where they save more than they take from others, and on containers that nobody else can use.
package arbiter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/jobs/arbiter"
)

// candidate returns what a lever is worth for a job.
func candidate(t *testing.T, out arbiter.Moves, id string, kind arbiter.MoveKind) arbiter.Candidate {
	t.Helper()
	for _, m := range out.Moves {
		if m.ID == id {
			if i := slices.IndexFunc(m.Candidates, func(c arbiter.Candidate) bool { return c.Kind == kind }); i >= 0 {
				return m.Candidates[i]
			}
		}
	}
	t.Fatalf("%s has no candidate %v: %+v", id, kind, out.Moves)
	return arbiter.Candidate{}
}

// pressed is busy with a deadline that it would miss.
func pressed() arbiter.Contender {
	return changed(busy("a"), func(c *arbiter.Contender) { c.Deadline, c.Floor = 25*second, 1 })
}

// straggling wants n copies, which would save so many seconds.
func straggling(c arbiter.Contender, n, save int) arbiter.Contender {
	c.Running, c.Pending, c.CopiesWanted, c.CopiesSave = 20, 0, n, time.Duration(save)*second
	c.Outlook.Rest = rest(20, 10)
	return c
}

func TestNoCandidatesWithoutRisk(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	early := changed(busy("a"), func(c *arbiter.Contender) { c.Deadline = 1000 * second })
	for _, x := range m.Step(0, jointly(early, busy("b"))).Moves {
		if x.Candidates != nil {
			t.Errorf("%+v", x)
		}
	}
}

// Each candidate says what the lever has decided, and its reason.
func TestCandidates(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		jobs   []arbiter.Contender
		kind   arbiter.MoveKind
		chosen bool
		worth  int // -1 below 0, 1 above
		says   string
	}{
		"a sprint": {[]arbiter.Contender{pressed()}, arbiter.MoveSprint, true, 1, "saves the most per joule"},
		"a sprint without joules": {
			[]arbiter.Contender{changed(pressed(), func(c *arbiter.Contender) { c.Offer = offer(0) })}, arbiter.MoveSprint, false, 1, "has 0.00 kJ",
		},
		"a sprint that its class may not": {
			[]arbiter.Contender{changed(pressed(), func(c *arbiter.Contender) { c.MaySprint, c.SprintWords = false, "discipline np sprints nobody" })},
			arbiter.MoveSprint, false, 1, "np sprints nobody",
		},
		"served first": {[]arbiter.Contender{pressed()}, arbiter.MoveReallocate, false, 0, "already served first"},
		"it passes": {
			[]arbiter.Contender{fresh(busy("b"), 100, 20), changed(fresh(busy("a"), 60, 10), func(c *arbiter.Contender) { c.Deadline = 30 * second })},
			arbiter.MoveReallocate, true, 1, "before 1 others, the last b",
		},
		"others lose more": {
			[]arbiter.Contender{
				changed(fresh(busy("b"), 200, 20), func(c *arbiter.Contender) { c.Deadline = 56 * second }),
				changed(fresh(busy("a"), 200, 10), func(c *arbiter.Contender) { c.Deadline = 90 * second }),
			}, arbiter.MoveReallocate, false, -1, "serving it before b would cost",
		},
		"a promise": {
			[]arbiter.Contender{
				changed(fresh(busy("b"), 120, 90), func(c *arbiter.Contender) { c.Deadline = 30 * second }),
				pledged(changed(fresh(busy("a"), 40, 10), func(c *arbiter.Contender) { c.Deadline = 30 * second }), 10),
			}, arbiter.MoveReallocate, true, 1, "",
		},
		"exact results":      {[]arbiter.Contender{pressed()}, arbiter.MoveDeflate, false, 0, "its floor is all tasks"},
		"tasks are given up": {[]arbiter.Contender{changed(pressed(), func(c *arbiter.Contender) { c.Floor, c.Pending, c.Percent = 0.5, 20, second/10 })}, arbiter.MoveDeflate, true, 1, "tasks saves more"},
		"tasks are worth more": {
			[]arbiter.Contender{changed(pressed(), func(c *arbiter.Contender) { c.Floor, c.Percent = 0.5, 100*second })}, arbiter.MoveDeflate, false, -1, "dropping a task saves",
		},
		"nobody has watts":   {[]arbiter.Contender{pressed()}, arbiter.MoveCap, false, 0, "no node lacks power"},
		"no straggler":       {[]arbiter.Contender{pressed()}, arbiter.MoveCopy, false, 0, "no straggler"},
		"copies":             {[]arbiter.Contender{straggling(pressed(), 5, 20)}, arbiter.MoveCopy, true, 1, "5 copies save more"},
		"copies cost others": {[]arbiter.Contender{straggling(pressed(), 5, 0), fresh(busy("b"), 400, 1)}, arbiter.MoveCopy, false, -1, "would cost the jobs behind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			look := jointly(x.jobs...)
			look.Pools[""] = arbiter.Pool{Containers: 40}
			c := candidate(t, m.Step(0, look), "a", x.kind)
			sign := 0
			if c.Worth != 0 {
				sign = 1
			}
			if c.Worth < 0 {
				sign = -1
			}
			if c.Chosen != x.chosen || sign != x.worth || !strings.Contains(c.Why, x.says) || (c.Worth > 0) != c.TimeKnown && x.worth > 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// A hold that gives a pressed job's node watts is one of its candidates.
func TestHoldIsCandidate(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	a := changed(urgent("a"), func(c *arbiter.Contender) { c.On, c.Deadline, c.MaySprint = map[string]int{"n1": 20}, 25*second, false })
	b := changed(busy("b"), func(c *arbiter.Contender) { c.On, c.MaySprint = map[string]int{"n2": 20}, false })
	look := jointly(a, b)
	for _, name := range []string{"n1", "n2"} {
		look.Nodes = append(look.Nodes, arbiter.Node{Name: name, Target: 120 * watt, Floor: 60 * watt, Most: 200 * watt})
	}
	early := candidate(t, m.Step(0, look), "a", arbiter.MoveCap)
	if early.Chosen || early.Worth <= 0 || !strings.Contains(early.Why, "n2 is held after") {
		t.Errorf("%+v", early)
	}
	out := m.Step(every, look)
	if c := candidate(t, out, "a", arbiter.MoveCap); !c.Chosen || c.Worth != early.Worth || len(out.Holds) != 1 {
		t.Errorf("%+v of %+v", c, out.Holds)
	}
}

// Copies run where the job's end is worth more than what they take from those behind it, else on what nobody else can use.
func TestCopies(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		jobs []arbiter.Contender
		want string
	}{
		"nobody wants any":              {[]arbiter.Contender{busy("a")}, "a:40"},
		"containers are left over":      {[]arbiter.Contender{straggling(busy("a"), 5, 0)}, "a:25/5"},
		"as far as they are left over":  {[]arbiter.Contender{straggling(busy("a"), 30, 0)}, "a:40/20"},
		"they save more than they take": {[]arbiter.Contender{straggling(urgent("a"), 5, 10), fresh(busy("b"), 100, 1)}, "a:25/5 b:15"},
		"they take more than they save": {[]arbiter.Contender{straggling(busy("a"), 20, 1), fresh(busy("b"), 100, 1)}, "a:20/0 b:20"},
		"its own seconds are no cost":   {[]arbiter.Contender{straggling(busy("a"), 30, 1)}, "a:40/30"},
		"room beside a lower promise":   {[]arbiter.Contender{straggling(urgent("a"), 15, 10), fresh(busy("b"), 100, 90), pledged(fresh(busy("c"), 10, 1), 10)}, "a:35/15 b:0 c:5"},
		"copies that run stay":          {[]arbiter.Contender{changed(straggling(busy("a"), 0, 0), func(c *arbiter.Contender) { c.Copies = 3 })}, "a:23/3"},
		"no more than it may hold": {
			[]arbiter.Contender{changed(straggling(busy("a"), 9, 30), func(c *arbiter.Contender) { c.Most = 24 })}, "a:24/4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			out, got := m.Step(0, jointly(x.jobs...)), ""
			for _, s := range out.Divisions[""].Shares {
				got += fmt.Sprintf(" %s:%d", s.ID, s.Containers)
				if s.Bounded {
					got += fmt.Sprintf("/%d", s.Copies)
				}
			}
			if got != " "+x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
	// It is the job's move while copies run, unless something else is.
	var m arbiter.Movers
	c := straggling(changed(busy("a"), func(c *arbiter.Contender) { c.MaySprint, c.MayDeflate = false, false }), 5, 10)
	x := m.Step(0, jointly(c)).Moves[0]
	var plain arbiter.Movers
	if sooner, later := m.Step(0, jointly(c)).Foreseen["a"].Left, plain.Step(0, jointly(straggling(busy("a"), 0, 0))).Foreseen["a"].Left; later-sooner != 10*second {
		t.Errorf("it ends in %v with copies, in %v without", sooner, later)
	}
	if x.Kind != arbiter.MoveCopy || x.Kind.String() != "copy" || x.Time != -10*second || !strings.Contains(x.Reason, "5 more copies") {
		t.Errorf("%+v", x)
	}
	c.Copies, c.CopiesWanted = 5, 0
	if again := m.Step(every, jointly(c)).Moves[0]; again.Kind != arbiter.MoveCopy || again.Mark != x.Mark {
		t.Errorf("%+v", again)
	}
	// New copies are told at once, with the shares.
	c.Copies, c.CopiesWanted = 5, 1
	if d := m.Step(every+second, jointly(c)).Divisions[""]; !d.Changed || d.Shares[0].Copies != 6 {
		t.Errorf("%+v", d)
	}
}
