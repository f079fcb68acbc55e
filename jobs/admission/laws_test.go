// Claims: whatever comes, no more slots are held than there are, each job ends exactly once, and bad input is refused
// with its numbers; under exact estimates and constant capacity each admitted job meets its deadline.
package admission_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/jobs/admission"
)

// world is the controller with jobs that really run.
type world struct {
	*rapid.T

	c        *admission.Controller
	policy   admission.Policy
	capacity int
	now      float64
	open     map[string]bool
	slots    map[string]float64
	left     map[string]float64
	work     map[string]float64
}

// carryOut does what was decided, and checks it.
func (w *world) carryOut(out []admission.Decision, err error) {
	if err != nil {
		w.Fatal(err)
	}
	for _, d := range out {
		if !w.open[d.ID] {
			w.Fatalf("%s of %s, which has ended", d.Verdict, d.ID)
		}
		if d.Reason() == "" || d.Confidence < 0 || d.Confidence > 1 || math.IsNaN(d.Slots) {
			w.Fatalf("%+v", d)
		}
		if d.Verdict == admission.Refused || d.Verdict == admission.Stopped {
			delete(w.open, d.ID)
		}
	}
	w.slots = map[string]float64{}
	sum := 0.0
	for id, slots := range w.c.Running() {
		w.slots[id] = slots
		sum += slots
	}
	if sum > float64(w.capacity)+1e-6 {
		w.Fatalf("%v slots held of %d", sum, w.capacity)
	}
}

// pass lets time pass, and jobs end, up to a moment.
func (w *world) pass(until float64) {
	for range 100_000 {
		next, who := until, ""
		for id, slots := range w.slots {
			if slots > 0 && w.now+w.left[id]/slots < next {
				next, who = w.now+w.left[id]/slots, id
			}
		}
		tick, ok := w.c.NextTick()
		if t := tick.Sub(at(0)).Seconds(); ok && t < next {
			next, who = t, "tick"
		}
		for id, slots := range w.slots {
			w.left[id] = max(0, w.left[id]-slots*(next-w.now))
		}
		w.now = max(w.now, next)
		switch who {
		case "":
			return
		case "tick":
			w.carryOut(w.c.Tick(at(w.now)), nil)
		default:
			out, met, err := w.c.Finished(at(w.now), who, time.Duration(w.work[who]*1e9))
			delete(w.open, who)
			w.carryOut(out, err)
			if w.policy == admission.Oracle && !met && w.capacity == 50 {
				w.Fatalf("%s was admitted and missed its deadline", who)
			}
		}
	}
	w.Fatal("time stands still")
}

func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom(admission.Policies()).Draw(t, "policy")
		steady := rapid.Bool().Draw(t, "steady")
		c, err := admission.New(policy, 50)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, c: c, policy: policy, capacity: 50, open: map[string]bool{}, left: map[string]float64{}, work: map[string]float64{}}
		for i := range rapid.IntRange(1, 60).Draw(t, "events") {
			w.pass(w.now + rapid.Float64Range(0, 20).Draw(t, "wait"))
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0 && !steady:
				w.capacity = rapid.IntRange(0, 80).Draw(t, "capacity")
				if w.capacity == 50 {
					w.capacity = 51
				}
				w.carryOut(c.SetCapacity(at(w.now), w.capacity))
			case what == 1 && len(w.open) > 0:
				id := rapid.SampledFrom(sorted(w.open)).Draw(t, "withdrawn")
				// A clock that went back counts as the newest time. That is the true one only if the controller was told it:
				// otherwise a job would start later than its promise counts from.
				w.carryOut(c.Tick(at(w.now)), nil)
				if w.open[id] {
					delete(w.open, id)
					w.carryOut(c.Withdraw(at(w.now-5), id))
				}
			default:
				id := strconv.Itoa(i)
				tasks := rapid.IntRange(1, 70).Draw(t, "tasks")
				w.work[id] = rapid.Float64Range(0.01, 30).Draw(t, "length") * float64(tasks)
				w.left[id] = w.work[id]
				w.open[id] = true
				w.carryOut(c.Submit(at(w.now), admission.Job{
					ID: id, User: rapid.SampledFrom([]string{"", "u"}).Draw(t, "user"), Tasks: tasks, Work: time.Duration(w.work[id] * 1e9),
					Deadline: time.Duration(rapid.Float64Range(0.01, 100).Draw(t, "deadline") * 1e9),
				}))
			}
		}
		if w.capacity == 0 {
			w.capacity = 1
			w.carryOut(c.SetCapacity(at(w.now), 1))
		}
		w.pass(w.now + 1e7)
		if len(w.open) > 0 {
			t.Fatalf("%v never ended under %s", w.open, policy)
		}
	})
}

// TestLateEvent is a case that TestLaws found: a withdrawal with a time in the past frees slots for a queued job. The job
// gets the slots that it needs from the newest time that the controller was told, so it keeps its deadline only if it
// starts then. With the true time it gets one slot more.
func TestLateEvent(t *testing.T) {
	t.Parallel()
	seconds := func(s float64) time.Duration { return time.Duration(s * 1e9) }
	for name, c := range map[string]struct {
		withdrawn, slots, finish float64
	}{
		"in the past": {-3, 48, 1.75 + 405.625/48},
		"on time":     {1.875, 49, 1.875 + 405.625/49},
	} {
		control := newController(t, admission.Oracle, 50)
		for _, j := range []struct{ at, tasks, length, deadline float64 }{{1, 1, 1, 1}, {1.5, 2, 0.375, 0.5}, {1.75, 59, 6.875, 8.5}} {
			_, err := control.Submit(at(j.at), admission.Job{
				ID: fmt.Sprint(j.at), Tasks: int(j.tasks), Work: seconds(j.length * j.tasks), Deadline: seconds(j.deadline),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		out, err := control.Withdraw(at(c.withdrawn), "1.5")
		if err != nil {
			t.Fatal(err)
		}
		d, err := admission.Of(out, "1.75")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.Slots != c.slots || math.Abs(d.Finish.Sub(at(c.finish)).Seconds()) > 1e-6 || d.Finish.After(d.Due) {
			t.Errorf("%s: %g slots, finishes %s, due %s; want %g slots, %s", name, d.Slots, d.Finish, d.Due, c.slots, at(c.finish))
		}
	}
}

func sorted(set map[string]bool) []string {
	var out []string
	for i := range 100 {
		if id := strconv.Itoa(i); set[id] {
			out = append(out, id)
		}
	}
	return out
}

// What cannot be judged is refused with an error, and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  admission.Job
		want error
	}{
		"no id":       {admission.Job{Tasks: 1, Deadline: 1, Work: 1}, admission.ErrJob},
		"no tasks":    {admission.Job{ID: "a", Deadline: 1, Work: 1}, admission.ErrJob},
		"many tasks":  {admission.Job{ID: "a", Tasks: 1e9, Deadline: 1, Work: 1}, admission.ErrJob},
		"past":        {admission.Job{ID: "a", Tasks: 1, Deadline: -1, Work: 1}, admission.ErrJob},
		"no deadline": {admission.Job{ID: "a", Tasks: 1, Work: 1}, admission.ErrJob},
		"far":         {admission.Job{ID: "a", Tasks: 1, Deadline: math.MaxInt64, Work: 1}, admission.ErrJob},
		"no work":     {admission.Job{ID: "a", Tasks: 1, Deadline: 1}, admission.ErrJob},
		"negative":    {admission.Job{ID: "a", Tasks: 1, Deadline: 1, Work: -1}, admission.ErrJob},
		"twice":       {admission.Job{ID: "there", Tasks: 1, Deadline: 1, Work: 1}, admission.ErrKnown},
	} {
		control := newController(t, admission.Oracle, 10)
		submit(t, control, 0, "there", 1, time.Minute)
		if _, err := control.Submit(at(1), c.job); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	c := newController(t, admission.Adaptive, 10)
	if _, _, err := c.Finished(at(1), "nobody", 1); !errors.Is(err, admission.ErrUnknown) {
		t.Error(err)
	}
	if _, err := c.SetCapacity(at(1), -1); !errors.Is(err, admission.ErrCapacity) {
		t.Error(err)
	}
	if _, err := admission.New(99, 1); !errors.Is(err, admission.ErrPolicy) {
		t.Error(err)
	}
}

// A deadline that has passed is no matter of slots, and the words say so.
func TestPassedDeadlineIsSaid(t *testing.T) {
	t.Parallel()
	c, err := admission.New(admission.Adaptive, 16)
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Ask(at(0), admission.Job{ID: "a", Tasks: 4, Deadline: time.Millisecond, Waited: time.Second}, 16, 0)
	if err != nil || d.Verdict != admission.Refused || d.Reason() != "its deadline has passed" {
		t.Errorf("%v, %v: %s", err, d.Verdict, d.Reason())
	}
}
