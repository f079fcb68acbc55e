package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/lab/experiment"
	"headroom/units"
)

// Job is a job that arrives.
type Job struct {
	Name, Class string
	// At is its arrival, since the run began.
	At    time.Duration
	Tasks int
	// Floor is the least part of its tasks, 0 for all; Error the part that it may leave out of an answer.
	Floor, Error float64
	// Slots is the most that it uses at once, of the scheduler's own; 0 for all.
	Slots int
	// Deadline counts from its submission; 0 for none.
	Deadline time.Duration
	// Waits: it is queued where too few slots are free for its deadline.
	Waits bool
	// Slow returns how many times as long an attempt of a task takes; nil for 1.
	Slow func(task, attempt int) float64
}

// Need is the number of tasks that the job may end on.
func (j *Job) Need() int {
	switch {
	case j.Error > 0:
		return units.Ratio(1 - j.Error).Least(j.Tasks)
	case j.Floor > 0:
		return units.Ratio(j.Floor).Least(j.Tasks)
	}
	return j.Tasks
}

// Step is the caps of the nodes from a moment on, as parts of what they are rated.
type Step struct {
	At   time.Duration
	Caps []float64
}

// Variant is one choice of policies: the coordinators' container policy and the scheduler's configuration.
type Variant struct {
	Name, Policy, Scheduler string
	// Exact: the engine and the job files allow no task to be dropped.
	Exact bool
	// Stock: jobs do not use Headroom, and have these properties of their engine.
	Stock map[string]string
}

// Setup is a cluster under a load.
type Setup struct {
	// Dir is the site's folder; "" for one below the run's.
	Dir                 string
	Coordinators, Nodes int
	// Slots is the number of slots of each worker; 0 for half of LocalSlots.
	Slots   int
	Engine  Engine
	Variant Variant
	Steps   []Step
	// Margin is what the budget leaves above the caps, as a part of full power.
	Margin float64
	// Sprint is the sprint budget in seconds of full power, Refill its refill as a part of full power.
	Sprint, Refill float64
	Jobs           []Job
	// For is the least time of a run.
	For time.Duration
}

// Engine runs the tasks on a site's nodes.
type Engine struct {
	// Files are the jars that it needs.
	Files []string
	// Workers: the scheduler's own workers run the tasks.
	Workers bool
	// Blind: it does not report copies, or work that copies and failed attempts wasted.
	Blind bool
	// Prepare writes the inputs, before anything is started.
	Prepare func(ctx context.Context, r *experiment.Run, s *Setup) error
	// Begin starts the engine on the nodes of a site.
	Begin func(ctx context.Context, l *Lab, s *Setup) (*Running, error)
}

// Running is an engine that runs on a site.
type Running struct {
	// Name is its name and release, Section its part of the scheduler's configuration.
	Name, Section string
	// Submit submits a job and returns its id, Cancel ends one.
	Submit func(ctx context.Context, j *Job) (string, error)
	Cancel func(ctx context.Context, id string) error
	// Wrong returns by how many percent a job's answer misses the exact one; nil where there is none.
	Wrong func(id string) (float64, error)
	// Queues are what its queues have now, by its own account; nil where it has none.
	Queues func(ctx context.Context) ([]Queue, error)
	// Dropped returns how many tasks a job that is done has dropped by its own counters, nil where that is not known.
	Dropped func(ctx context.Context, id string) *int
	// Pages are addresses of its own to look at.
	Pages []string
	Close func() error
}

// Queue is a queue, or a class where the engine has no queues, at one moment.
type Queue struct {
	Name string
	// Used are the containers that it has, Share those that it may have; nil for no bound.
	Used  int
	Share *int
}

// Start starts a cluster with an engine: it returns when all are ready for jobs.
func Start(ctx context.Context, run *experiment.Run, s *Setup) (*Lab, error) {
	if err := s.Engine.Prepare(ctx, run, s); err != nil {
		return nil, err
	}
	run.Note("starting %d coordinators and %d nodes", s.Coordinators, s.Nodes)
	l, err := NewLab(ctx, run, cluster.Config{Dir: s.Dir, Coordinators: s.Coordinators, Nodes: s.Nodes, Workers: s.workers()})
	if err != nil {
		return nil, err
	}
	if err := l.start(ctx, s); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// workers is the number of slots of the worker on each node.
func (s *Setup) workers() int {
	if !s.Engine.Workers {
		return 0
	}
	return cmp.Or(s.Slots, LocalSlots/2)
}

// Serve runs a cluster under a load and returns what happened.
func Serve(ctx context.Context, run *experiment.Run, s *Setup) (seen *Seen, err error) {
	l, err := Start(ctx, run, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	run.Note("%d jobs arrive", len(s.Jobs))
	seen = newSeen(s)
	before, err := l.Site.Drawn()
	if err != nil {
		return nil, err
	}
	if err := l.serve(ctx, s, seen); err != nil {
		return nil, err
	}
	after, err := l.Site.Drawn()
	seen.Energy = after - before
	return seen, errors.Join(err, l.ended(ctx, seen))
}

// start starts the engine and the scheduler, and sets policy, sprint budget and the first caps.
func (l *Lab) start(ctx context.Context, s *Setup) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if l.Engine, err = s.Engine.Begin(ctx, l, s); err != nil {
		return err
	}
	full, workers := float64(l.Site.Full()), 0
	if s.Engine.Workers {
		workers = s.Nodes
	}
	err = errors.Join(
		l.Site.StartScheduler(s.Variant.Scheduler+l.Engine.Section),
		l.Containers(ctx, s.Variant.Policy),
		l.SetSprint(ctx, units.Energy(s.Sprint*full), units.Power(s.Refill*full)),
		l.hold(ctx, s, 1, &s.Steps[0]),
	)
	if err != nil {
		return err
	}
	return l.Await(ctx, "nodes, scheduler and workers are not ready", func(ctx context.Context) bool {
		answer, err := l.List(ctx)
		connected := slices.DeleteFunc(answer.GetWorkers(), func(w *headroomv1.Worker) bool { return !w.GetConnected() })
		return err == nil && len(connected) == workers && l.Held(ctx, s.Steps[0].Caps...)
	})
}

// hold goes to a step from a budget that is a part of full power. The budget never is below the caps on the way.
func (l *Lab) hold(ctx context.Context, s *Setup, was float64, to *Step) error {
	next := s.budget(to)
	if next > was {
		return errors.Join(l.Budget(ctx, next), l.Cap(ctx, to.Caps...))
	}
	return errors.Join(l.Cap(ctx, to.Caps...), l.Budget(ctx, next))
}

// budget is the site's budget at a step, as a part of full power.
func (s *Setup) budget(at *Step) float64 {
	sum := s.Margin
	for i := range s.Nodes {
		sum += at.Caps[min(i, len(at.Caps)-1)] / float64(s.Nodes)
	}
	return min(1, sum)
}

// submitted is a job that was submitted, or could not be.
type submitted struct {
	job int
	id  string
	// sent is when its client began, taken when the engine had accepted it, since the run began.
	sent, taken time.Duration
	err         error
}

// serve submits the jobs when they are due, steps the caps, and watches until all have ended.
func (l *Lab) serve(ctx context.Context, s *Setup, seen *Seen) error {
	var clients sync.WaitGroup
	submitting, cancel := context.WithCancel(ctx)
	defer clients.Wait()
	defer cancel()
	taken, steps, next, began := make(chan submitted, len(s.Jobs)), s.Steps, 0, time.Now()
	var failed error
	err := l.Await(ctx, "jobs have not ended", func(ctx context.Context) bool {
		now := time.Since(began)
		if len(steps) > 1 && now >= steps[1].At {
			failed = l.hold(ctx, s, s.budget(&steps[0]), &steps[1])
			steps = steps[1:]
			l.Note("nodes are capped at %v of what they are rated", steps[0].Caps)
		}
		for ; next < len(s.Jobs) && now >= s.Jobs[next].At; next++ {
			i := next
			clients.Go(func() { // a client of Hadoop takes seconds, during which others go on
				id, err := l.Engine.Submit(submitting, &s.Jobs[i])
				taken <- submitted{i, id, now, time.Since(began), err}
			})
		}
		for more := true; more && failed == nil; {
			select {
			case t := <-taken:
				failed = seen.take(&t)
			default:
				more = false
			}
		}
		if answer, err := l.List(ctx); err == nil && failed == nil {
			failed = seen.look(time.Since(began), answer)
		}
		return failed != nil || seen.over == len(s.Jobs) && time.Since(began) >= s.For
	})
	return errors.Join(err, failed)
}

// take records a job that was submitted. A job that was refused has ended.
func (w *Seen) take(t *submitted) error {
	o := &w.Jobs[t.job]
	if t.err == nil {
		w.index[t.id], o.id, o.sent, o.taken = t.job, t.id, t.sent, t.taken
		return nil
	}
	if rpc.AsCLI(t.err, "submit", "").Exit != cli.ExitRefused {
		return fmt.Errorf("experiment: job %s: %w", o.Job.Name, t.err)
	}
	o.Refused = true
	w.over++
	return nil
}

// settling bounds how long the nodes may take to report what the last sprint drew.
const settling = 30 * time.Second

// ended adds sprints, joules and answers once all jobs have ended.
func (l *Lab) ended(ctx context.Context, seen *Seen) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	if err := l.Await(ctx, "sprints of ended jobs are open", func(ctx context.Context) bool {
		records, err := l.sprints(ctx)
		return err == nil && seen.addSprints(records)
	}); err != nil {
		return err
	}
	jobs, err := l.Jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if i, known := seen.index[j.GetId()]; known && j.GetEnergy().GetMeasuredS() > 0 {
			seen.Jobs[i].Drawn = new(units.Energy(j.GetEnergy().GetUj()))
		}
	}
	for i := range seen.Jobs {
		o := &seen.Jobs[i]
		if l.Engine.Wrong == nil || o.Refused {
			continue
		}
		x, err := l.Engine.Wrong(o.id)
		if err != nil {
			return err
		}
		o.Wrong = &x
	}
	return nil
}
