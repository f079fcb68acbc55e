package speculation

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Bounds of the oracle.
const (
	// searchTasksMost are the unfinished tasks of a case.
	searchTasksMost = 12
	// searchStepsMost bounds the schedules that are begun: some seconds.
	searchStepsMost = 5_000_000
)

// Schedule is the best that can become of a job whose estimates all hold.
type Schedule struct {
	// First are the actions of the present moment.
	First []Action
	// Done is how many tasks are completed by the deadline, or what the error bound needs.
	Done int
	// End is when the error bound is met, from now; 0 for a deadline.
	End time.Duration
}

// plant plays a job whose estimates hold: the fastest copy of a task ends after its t_rem,
// a new copy after its t_new, and the end of one frees the slots of all its copies.
type plant struct {
	bound Bound
	now   time.Duration
	tasks []played
	free  int
	done  int
}

type played struct {
	Task
	end time.Duration
}

func newPlant(v *View) *plant {
	p, usual := &plant{bound: v.Bound, free: v.Slots}, median(v.news())
	for _, t := range v.Tasks {
		if t.State == Done {
			p.done++
			continue
		}
		t.New = cmp.Or(t.New, usual)
		if t.State == Running {
			t.Copies = max(1, t.Copies)
			if t.Remaining < 0 {
				t.Remaining = t.New
			}
		}
		p.tasks = append(p.tasks, played{Task: t, end: t.Remaining})
	}
	return p
}

// start launches or copies a task.
func (p *plant) start(i int) {
	t := &p.tasks[i]
	end := p.now + t.New
	if t.State == Running {
		end = min(end, t.end)
	}
	t.State, t.Copies, t.end = Running, t.Copies+1, end
	p.free--
}

// advance goes to the next moment at which tasks end, and reports whether there is one.
func (p *plant) advance() bool {
	next := time.Duration(-1)
	for i := range p.tasks {
		if t := &p.tasks[i]; t.State == Running && (next < 0 || t.end < next) {
			next = t.end
		}
	}
	if next < 0 {
		return false
	}
	p.now = next
	for i := range p.tasks {
		if t := &p.tasks[i]; t.State == Running && t.end == next {
			t.State = Done
			p.free += t.Copies
			p.done++
		}
	}
	return true
}

func (p *plant) clone() *plant {
	c := *p
	c.tasks = slices.Clone(p.tasks)
	return &c
}

// search is the oracle at work.
type search struct {
	need  int
	steps int
	found bool
	best  Schedule
	first []Action
}

// Search finds the best schedule by trying all. A slot is never left free while a task
// could use it: whatever uses it later could begin now and end earlier. Alike tasks are
// tried once.
func (v *View) Search() (Schedule, error) {
	if err := v.Check(); err != nil {
		return Schedule{}, err
	}
	p := newPlant(v)
	if len(p.tasks) > searchTasksMost {
		return Schedule{}, fmt.Errorf("%w: %d unfinished tasks; the maximum is %d", ErrTooLarge, len(p.tasks), searchTasksMost)
	}
	s := &search{need: v.Bound.Need(len(v.Tasks))}
	s.from(p, 0, true)
	if s.steps > searchStepsMost {
		return Schedule{}, fmt.Errorf("%w: more than %d schedules; use fewer tasks or slots", ErrTooLarge, searchStepsMost)
	}
	if len(s.best.First) < v.Slots {
		s.best.First = append(s.best.First, Action{Kind: Wait, Slot: len(s.best.First)})
	}
	return s.best, nil
}

// from tries all that can be done from a state on. Tasks before least were passed over at
// this moment; present: no time has passed yet.
func (s *search) from(p *plant, least int, present bool) {
	if s.steps++; s.steps > searchStepsMost || s.hopeless(p) {
		return
	}
	tried := false
	for i := least; p.free > 0 && i < len(p.tasks); i++ {
		if !p.useful(i) || p.alike(i, least) {
			continue
		}
		tried = true
		if present {
			s.first = append(s.first, action(&p.tasks[i].Task, len(s.first)))
		}
		next := p.clone()
		next.start(i)
		s.from(next, i+1, present)
		if present {
			s.first = s.first[:len(s.first)-1]
		}
	}
	if tried {
		return
	}
	next := p.clone()
	if s.over(p) || !next.advance() || p.bound.ByDeadline && next.now > p.bound.Left {
		s.keep(p)
		return
	}
	s.from(next, 0, false)
}

// useful reports whether a slot can help the task.
func (p *plant) useful(i int) bool {
	t := &p.tasks[i]
	if p.bound.ByDeadline && p.now+t.New > p.bound.Left {
		return false
	}
	return t.State == Waiting || t.State == Running && p.now+t.New < t.end
}

// alike reports whether a task before it, from least on, is the same but for its ID.
func (p *plant) alike(i, least int) bool {
	t := &p.tasks[i]
	return slices.ContainsFunc(p.tasks[least:i], func(o played) bool {
		return o.State == t.State && o.New == t.New && o.Copies == t.Copies && (t.State == Waiting || o.end == t.end)
	})
}

// over reports whether the promise is kept, or nothing is left to do.
func (s *search) over(p *plant) bool { return !p.bound.ByDeadline && p.done >= s.need }

// hopeless reports whether the state cannot lead to anything better.
func (s *search) hopeless(p *plant) bool {
	if !s.found {
		return false
	}
	var ends []time.Duration
	for i := range p.tasks {
		switch t := &p.tasks[i]; t.State {
		case Running:
			ends = append(ends, min(t.end, p.now+t.New))
		case Waiting:
			ends = append(ends, p.now+t.New)
		case Done:
		}
	}
	if p.bound.ByDeadline {
		can := p.done
		for _, e := range ends {
			if e <= p.bound.Left {
				can++
			}
		}
		return can <= s.best.Done
	}
	left := s.need - p.done
	if left <= 0 {
		return p.now >= s.best.End
	}
	slices.Sort(ends)
	return ends[left-1] >= s.best.End
}

// keep takes the schedule if it is better.
func (s *search) keep(p *plant) {
	got := Schedule{Done: p.done}
	if !p.bound.ByDeadline {
		got.Done, got.End = min(p.done, s.need), p.now
	}
	better := !s.found || got.Done > s.best.Done || !p.bound.ByDeadline && got.Done == s.best.Done && got.End < s.best.End
	if better {
		got.First = slices.Clone(s.first)
		s.found, s.best = true, got
	}
}
