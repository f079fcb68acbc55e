package buffers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Discipline is how the dispatcher treats a running job and the classes.
type Discipline string

// The disciplines, as configurations name them.
const (
	Shared Discipline = "shared"
	P      Discipline = "p"
	NP     Discipline = "np"
	DA     Discipline = "da"
	NPS    Discipline = "nps"
	DIAS   Discipline = "dias"
)

// Disciplines returns all of them, in the order in which they are explained.
func Disciplines() []Discipline { return []Discipline{Shared, P, NP, DA, NPS, DIAS} }

// preempts reports whether a job of a higher class kills the running one.
func (d Discipline) preempts() bool { return d == P }

// Deflates reports whether jobs run with their class's drop ratio.
func (d Discipline) Deflates() bool { return d == DA || d == DIAS }

// Sprints reports whether jobs get their class's sprint timer.
func (d Discipline) Sprints() bool { return d == NPS || d == DIAS }

// Errors of this package.
var (
	errDiscipline = errors.New("unknown discipline")
	errClass      = errors.New("unknown class")
	errTheta      = errors.New("drop ratio outside 0 to 1")
	errWidth      = errors.New("fewer than one job at once")
)

// Class is a priority class with its operating point.
type Class struct {
	Name string
	// Theta is the drop ratio that its jobs start with, 0 to 1.
	Theta float64
	// Sprint is whether its jobs sprint, SprintAfter how long after their dispatch.
	Sprint      bool
	SprintAfter time.Duration
}

// Settings of a dispatcher.
type Settings struct {
	Discipline Discipline
	// Classes, highest priority first.
	Classes []Class
	// Width is how many jobs run at once; the paper's is 1. It means nothing to Shared.
	Width int
}

func (s Settings) check() error {
	if !slices.Contains(Disciplines(), s.Discipline) {
		return fmt.Errorf("discipline %q: %w", s.Discipline, errDiscipline)
	}
	if len(s.Classes) == 0 {
		return fmt.Errorf("no class: %w", errClass)
	}
	if s.Width < 1 && s.Discipline != Shared {
		return fmt.Errorf("width %d: %w", s.Width, errWidth)
	}
	return checkThetas(s.Classes)
}

func checkThetas(classes []Class) error {
	for _, c := range classes {
		if math.IsNaN(c.Theta) || c.Theta < 0 || c.Theta > 1 {
			return fmt.Errorf("class %s: theta %v: %w", c.Name, c.Theta, errTheta)
		}
	}
	return nil
}

// Job is a job of the dispatcher.
type Job struct {
	ID string
	// Class counts from 0, the highest.
	Class int
	// Submitted orders the jobs of a class; jobs of one moment are ordered by ID.
	Submitted time.Time
}

// Run is one execution of a job.
type Run struct {
	Job
	// Number counts the runs of a job from 1; only "p" makes a second one.
	Number uint32
	// Began is when it was dispatched.
	Began time.Time
	// Theta is its drop ratio.
	Theta float64
	// SprintAfter is its sprint timer; meaningless where Sprint is false.
	Sprint      bool
	SprintAfter time.Duration
	// Due is whether the timer has fired, Stopping whether the run was told to end.
	Due, Stopping bool
	// Back is whether it was told to end for a higher class: then its job goes back into its buffer.
	Back bool
}

// Action is an action for the caller: a Start, a Kill or a SprintDue.
type Action interface{ action() }

// Start begins a run of a job that has waited.
type Start struct{ Run Run }

// Kill ends a run. Ended confirms it; until then it counts as running.
type Kill struct {
	Run Run
	// For is the job that preempts it; empty for a cancelled job.
	For string
}

// SprintDue reports that a run's sprint timer has fired.
type SprintDue struct{ Run Run }

func (Start) action()     {}
func (Kill) action()      {}
func (SprintDue) action() {}

// Waste is the machine time of "p": that of killed runs, and that of all runs that
// have ended. Their ratio is the paper's resource waste.
type Waste struct{ Killed, Total time.Duration }

// Ratio returns Killed over Total; false while nothing has ended.
func (w Waste) Ratio() (ratio float64, known bool) {
	if w.Total <= 0 {
		return 0, false
	}
	return float64(w.Killed) / float64(w.Total), true
}

// Buffers is a dispatcher with its jobs. It is not safe for concurrent use.
type Buffers struct {
	Settings
	waiting [][]Job // by class, the next one first
	running []Run   // in order of their dispatch
	runs    map[string]uint32
	drained bool
	held    bool
	waste   Waste
	actions []Action
}

// New returns a dispatcher without jobs.
func New(s Settings) (*Buffers, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.Classes = slices.Clone(s.Classes)
	return &Buffers{Settings: s, waiting: make([][]Job, len(s.Classes)), runs: map[string]uint32{}}, nil
}

// Point changes the operating points of the classes, for later runs: those in progress keep theirs.
func (b *Buffers) Point(classes []Class) error {
	if len(classes) != len(b.Classes) {
		return fmt.Errorf("%d classes, there are %d: %w", len(classes), len(b.Classes), errClass)
	}
	if err := checkThetas(classes); err != nil {
		return err
	}
	b.Classes = slices.Clone(classes)
	return nil
}

// Drain stops the start of jobs; false resumes it.
func (b *Buffers) Drain(on bool) { b.drained = on }

// Hold is a temporary Drain by the caller: nothing can start now.
func (b *Buffers) Hold(on bool) { b.held = on }

// Drained reports whether no further job starts.
func (b *Buffers) Drained() bool { return b.drained }

// Add puts a job into the buffer of its class. Adding a known job changes nothing.
func (b *Buffers) Add(j Job) error {
	if j.Class < 0 || j.Class >= len(b.Classes) {
		return fmt.Errorf("job %s: class %d of %d: %w", j.ID, j.Class, len(b.Classes), errClass)
	}
	if b.knows(j.ID) {
		return nil
	}
	b.wait(j, 0)
	return nil
}

// Return is Add for a job whose earlier runs were preempted under another dispatcher: it comes before those that have
// not run.
func (b *Buffers) Return(j Job, runs uint32) error {
	if b.knows(j.ID) {
		return nil
	}
	if err := b.Add(j); err != nil || runs == 0 {
		return err
	}
	b.leaves(j.ID)
	b.wait(j, runs)
	return nil
}

// wait puts a job with this number of runs into its buffer.
func (b *Buffers) wait(j Job, runs uint32) {
	b.runs[j.ID] = runs
	at, _ := slices.BinarySearchFunc(b.waiting[j.Class], j, b.before)
	b.waiting[j.Class] = slices.Insert(b.waiting[j.Class], at, j)
}

// before returns the order inside a buffer: killed jobs, then by submission.
func (b *Buffers) before(x, y Job) int {
	return cmp.Or(-cmp.Compare(min(b.runs[x.ID], 1), min(b.runs[y.ID], 1)), x.Submitted.Compare(y.Submitted), cmp.Compare(x.ID, y.ID))
}

// Adopt takes over a run that an earlier dispatcher has started.
func (b *Buffers) Adopt(r Run) error {
	if err := b.Add(r.Job); err != nil {
		return err
	}
	if !b.leaves(r.ID) {
		return nil // it runs here already
	}
	b.runs[r.ID] = max(r.Number, 1)
	r.Number = b.runs[r.ID]
	b.running = append(b.running, r)
	return nil
}

// knows reports whether the job waits or runs.
func (b *Buffers) knows(id string) bool { _, known := b.runs[id]; return known }

// Cancel removes a waiting job; a running one is killed, and Ended confirms it.
func (b *Buffers) Cancel(id string) {
	if b.leaves(id) {
		delete(b.runs, id)
		return
	}
	if i := b.at(id); i >= 0 {
		r := &b.running[i]
		r.Back = false
		if !r.Stopping {
			b.kill(r, "")
		}
	}
}

// Ended reports that the run of a job is over, by itself or because it was killed. A run that was preempted leaves its
// job at the head of its buffer; any other job is removed.
func (b *Buffers) Ended(now time.Time, id string) {
	i := b.at(id)
	if i < 0 {
		return
	}
	r := b.running[i]
	b.running = slices.Delete(b.running, i, i+1)
	took := max(0, now.Sub(r.Began))
	b.waste.Total += took
	if !r.Back {
		delete(b.runs, id)
		return
	}
	b.waste.Killed += took
	b.wait(r.Job, b.runs[id])
}

// Completed is Ended for a run that reached its end although it had been told to stop: its job is done and does not go
// back.
func (b *Buffers) Completed(now time.Time, id string) {
	if i := b.at(id); i >= 0 {
		b.running[i].Back = false
	}
	b.Ended(now, id)
}

// Begin removes a waiting job from its buffer and counts it as running: for Shared, where the owner of the slots
// decides when.
func (b *Buffers) Begin(now time.Time, id string) (Run, bool) {
	for _, w := range b.waiting {
		if i := slices.IndexFunc(w, func(j Job) bool { return j.ID == id }); i >= 0 {
			return b.begin(now, w[i]), true
		}
	}
	return Run{}, false
}

// Head returns the job that starts next; false when none waits or none may start.
func (b *Buffers) Head() (Job, bool) {
	if b.drained || b.held {
		return Job{}, false
	}
	for _, w := range b.waiting {
		if len(w) > 0 {
			return w[0], true
		}
	}
	return Job{}, false
}

// Step decides what to do now.
func (b *Buffers) Step(now time.Time) []Action {
	b.fire(now)
	if b.Discipline != Shared {
		b.dispatch(now)
	}
	out := b.actions
	b.actions = nil
	return out
}

// Next returns when Step has something to do by the clock alone; false for never.
func (b *Buffers) Next() (at time.Time, ok bool) {
	for i := range b.running {
		r := &b.running[i]
		if t := r.Began.Add(r.SprintAfter); r.Sprint && !r.Due && !r.Stopping && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// fire starts the sprints that are due.
func (b *Buffers) fire(now time.Time) {
	for i := range b.running {
		r := &b.running[i]
		if r.Sprint && !r.Due && !r.Stopping && now.Sub(r.Began) >= r.SprintAfter {
			r.Due = true
			b.actions = append(b.actions, SprintDue{*r})
		}
	}
}

// dispatch starts jobs while fewer than Width run, and kills for higher classes.
func (b *Buffers) dispatch(now time.Time) {
	for {
		j, waits := b.Head()
		if !waits {
			return
		}
		if len(b.running) < b.Width {
			b.actions = append(b.actions, Start{b.begin(now, j)})
			continue
		}
		if b.Discipline.preempts() {
			b.preempt()
		}
		return
	}
}

// preempt kills runs of lower classes for the jobs that wait above them: as many as
// there are such jobs beyond the runs that stop already.
func (b *Buffers) preempt() {
	stopping := 0
	for i := range b.running {
		if b.running[i].Stopping {
			stopping++
		}
	}
	for class, w := range b.waiting {
		for _, j := range w {
			if stopping > 0 {
				stopping--
				continue
			}
			r := b.victim(class)
			if r == nil {
				return
			}
			r.Back = true
			b.kill(r, j.ID)
		}
	}
}

// victim returns the run to kill for a job of a class: the lowest below it, the latest among equals; nil for none.
func (b *Buffers) victim(class int) *Run {
	var v *Run
	for i := range b.running {
		r := &b.running[i]
		if !r.Stopping && r.Class > class && (v == nil || r.Class >= v.Class) {
			v = r
		}
	}
	return v
}

func (b *Buffers) kill(r *Run, reason string) {
	r.Stopping = true
	b.actions = append(b.actions, Kill{Run: *r, For: reason})
}

// begin moves a job from its buffer to the running ones.
func (b *Buffers) begin(now time.Time, j Job) Run {
	b.leaves(j.ID)
	b.runs[j.ID]++
	c := b.Classes[j.Class]
	r := Run{Job: j, Number: b.runs[j.ID], Began: now}
	if b.Discipline.Deflates() {
		r.Theta = c.Theta
	}
	if b.Discipline.Sprints() {
		r.Sprint, r.SprintAfter = c.Sprint, c.SprintAfter
	}
	b.running = append(b.running, r)
	return r
}

// leaves removes a job from its buffer, and reports whether it was there.
func (b *Buffers) leaves(id string) bool {
	for class, w := range b.waiting {
		if i := slices.IndexFunc(w, func(j Job) bool { return j.ID == id }); i >= 0 {
			b.waiting[class] = slices.Delete(w, i, i+1)
			return true
		}
	}
	return false
}

func (b *Buffers) at(id string) int {
	return slices.IndexFunc(b.running, func(r Run) bool { return r.ID == id })
}

// Waiting returns the waiting jobs of a class, the next one first.
func (b *Buffers) Waiting(class int) []Job { return slices.Clone(b.waiting[class]) }

// Running returns the runs in progress, in order of their dispatch.
func (b *Buffers) Running() []Run { return slices.Clone(b.running) }

// Waste returns the machine time of the ended runs.
func (b *Buffers) Waste() Waste { return b.waste }

// Resume takes over the waste that an earlier dispatcher has counted.
func (b *Buffers) Resume(w Waste) { b.waste = w }

// Run returns the run of a job; false if it does not run.
func (b *Buffers) Run(id string) (Run, bool) {
	if i := b.at(id); i >= 0 {
		return b.running[i], true
	}
	return Run{}, false
}

// Place returns the place of a job in its buffer, 1 is next; 0 if it does not wait.
func (b *Buffers) Place(id string) int {
	for _, w := range b.waiting {
		if i := slices.IndexFunc(w, func(j Job) bool { return j.ID == id }); i >= 0 {
			return i + 1
		}
	}
	return 0
}
