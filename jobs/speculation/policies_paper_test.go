// Claims: the policies do what GRASS's examples say they do, decision by decision and to their ends.
package speculation

import (
	"slices"
	"testing"
	"time"
)

const second = time.Second

func waiting(id int, fresh float64) Task {
	return Task{ID: id, New: time.Duration(fresh * 1e9)}
}

func running(id int, left, fresh float64) Task {
	return Task{ID: id, State: Running, Copies: 1, Remaining: time.Duration(left * 1e9), New: time.Duration(fresh * 1e9)}
}

// fig1 is the left of Fig. 1 at time 1, when T2 ends; the deadline is since the job's start.
func fig1(deadline time.Duration) View {
	v := View{Bound: Bound{ByDeadline: true, Left: deadline - second}, Slots: 1, Tasks: []Task{running(1, 5, 2), {ID: 2, State: Done}}}
	for id := 3; id <= 8; id++ {
		v.Tasks = append(v.Tasks, waiting(id, 1))
	}
	v.Tasks = append(v.Tasks, waiting(9, 3))
	return v
}

// fig2 has the outcome of Fig. 2, whose own numbers are lost, at time 5, when T2 ends.
func fig2(err float64) View {
	return View{Bound: Bound{Error: err}, Slots: 1, Tasks: []Task{
		running(1, 1, 2), {ID: 2, State: Done}, running(3, 3, 2), waiting(4, 3), waiting(5, 3), waiting(6, 3),
	}}
}

// decide is the policy's actions.
func decide(t testingT, p Policy, v View) []Action {
	t.Helper()
	d, err := Decide(p, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Actions
}

type testingT interface {
	Helper()
	Fatal(args ...any)
}

// play plays the job to its end by the policy if all estimates hold.
func play(t testingT, p Policy, v View) (done int, end time.Duration) {
	t.Helper()
	state := newPlant(&v)
	s := search{need: v.Bound.Need(len(v.Tasks))}
	at := v
	for {
		at.Slots, at.Bound.Left, at.Tasks = state.free, v.Bound.Left-state.now, slices.Clone(v.Tasks)
		for i := range at.Tasks {
			for _, x := range state.tasks {
				if x.ID == at.Tasks[i].ID {
					at.Tasks[i] = x.Task
					at.Tasks[i].Remaining = x.end - state.now
				}
			}
		}
		d, err := Decide(p, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		at.Greedy = d.Greedy
		for _, a := range d.Actions {
			if a.Kind != Wait {
				state.start(slices.IndexFunc(state.tasks, func(x played) bool { return x.ID == a.Task }))
			}
		}
		before := *state
		if s.over(state) || !state.advance() || v.Bound.ByDeadline && state.now > v.Bound.Left {
			return before.done, before.now
		}
	}
}

// Fig. 1: with 6 s GS ends on 7 of 9 and RAS on 8; with 3 s GS ends on 3 and RAS on 2.
func TestGRASSFig1(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p        Policy
		deadline time.Duration
		first    Action
		done     int
	}{
		{GS, 6 * second, Action{Kind: Launch, Task: 3}, 7},
		{RAS, 6 * second, Action{Kind: Copy, Task: 1}, 8},
		{GS, 3 * second, Action{Kind: Launch, Task: 3}, 3},
		{RAS, 3 * second, Action{Kind: Copy, Task: 1}, 2},
		{Strawman, 6 * second, Action{Kind: Copy, Task: 1}, 8},
		{Strawman, 3 * second, Action{Kind: Launch, Task: 3}, 3},
		{Ours, 6 * second, Action{Kind: Copy, Task: 1}, 8},
		{None, 6 * second, Action{Kind: Launch, Task: 3}, 7},
		{LATE, 6 * second, Action{Kind: Launch, Task: 3}, 7},
	} {
		if got := decide(t, c.p, fig1(c.deadline)); len(got) != 1 || got[0] != c.first {
			t.Errorf("%s to %v: %v, want %v", c.p, c.deadline, got, c.first)
		}
		if done, _ := play(t, c.p, fig1(c.deadline)); done != c.done {
			t.Errorf("%s to %v: %d done, want %d", c.p, c.deadline, done, c.done)
		}
	}
	v := fig1(6 * second)
	best, err := v.Search()
	if err != nil || best.Done != 8 {
		t.Errorf("oracle: %+v, %v", best, err)
	}
	v = fig1(3 * second)
	if best, err = v.Search(); err != nil || best.Done != 3 {
		t.Errorf("oracle: %+v, %v", best, err)
	}
}

// Fig. 2: GS copies T3 and is the quicker one for 3 tasks, RAS starts T4 and is for 4.
func TestGRASSFig2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p     Policy
		err   float64
		first Action
		end   time.Duration
	}{
		{GS, 0.4, Action{Kind: Copy, Task: 3}, 7 * second},
		{RAS, 0.4, Action{Kind: Launch, Task: 4}, 8 * second},
		{GS, 0.2, Action{Kind: Copy, Task: 3}, 9 * second},
		{RAS, 0.2, Action{Kind: Launch, Task: 4}, 8 * second},
	} {
		got := decide(t, c.p, fig2(c.err))
		if len(got) != 1 || got[0] != c.first {
			t.Errorf("%s at error %v: %v, want %v", c.p, c.err, got, c.first)
		}
		if _, end := play(t, c.p, fig2(c.err)); end+5*second != c.end {
			t.Errorf("%s at error %v: ends at %v, want %v", c.p, c.err, end+5*second, c.end)
		}
	}
}

// Section 1: a straggler needs 5 more, a copy 4, another task 5: GS copies, RAS does not.
func TestGRASSIntroduction(t *testing.T) {
	t.Parallel()
	v := View{Bound: Bound{ByDeadline: true, Left: 10 * second}, Slots: 1, Tasks: []Task{running(1, 5, 4), waiting(2, 5)}}
	if got := decide(t, GS, v); got[0] != (Action{Kind: Copy, Task: 1}) {
		t.Errorf("GS: %v", got)
	}
	if got := decide(t, RAS, v); got[0] != (Action{Kind: Launch, Task: 2}) {
		t.Errorf("RAS: %v", got)
	}
}
