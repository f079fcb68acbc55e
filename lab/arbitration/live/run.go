package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"headroom/lab/arbitration"
	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/lab/papers"
	"headroom/lab/runs"
	"headroom/units"
)

const (
	// patience bounds the start of a cluster.
	patience = 4 * time.Minute
	reason   = "the comparison"
)

// engine is what runs the tasks on a site's nodes.
type engine struct {
	plan

	name string
	// workers is on how many nodes a worker of the scheduler runs.
	workers int
	// begin starts on the nodes of a site what else the tasks need; name is the run's.
	begin func(ctx context.Context, name string, v *variant) (*running, error)
}

// running is an engine that runs on a site.
type running struct {
	// configuration is what the scheduler's has of it.
	configuration string
	// submit hands a job in, and returns its id.
	submit func(ctx context.Context, a *arrival) (string, error)
	// logs is its folder of logs; empty for none.
	logs string
	end  func() error
}

// lab is a comparison in progress.
type lab struct {
	*papers.Real

	engine  engine
	running *running      // on the present site
	within  time.Duration // how long jobs come
}

// result is what came of one variant's run.
type result struct {
	variant string
	run     int
	figures map[string]float64
	jobs    []arrival
	watch   *watch
}

// once runs the jobs of a seed as one variant decides, on a fresh site.
func (l *lab) once(ctx context.Context, v variant, run int) (out *result, err error) {
	name := fmt.Sprintf("%d-%s", run+1, v.name)
	if l.Site, err = cluster.NewSite(cluster.Config{
		Dir: l.Path("site-" + name), Bin: l.Folder, Coordinators: servers, Nodes: nodes, Workers: l.engine.workers > 0, Weight: papers.RealWeight,
	}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end(name)) }()
	l.Note("run %d, %s: starting %d coordinators, %d nodes, the scheduler and its engine %s", run+1, v.name, servers, nodes, l.engine.name)
	if err := l.start(ctx, name, &v); err != nil {
		return nil, err
	}
	jobs := l.engine.arrivals(l.Seed+uint64(run), l.within)
	l.Note("run %d, %s: %d jobs come within %v", run+1, v.name, len(jobs), l.within)
	ctx, cancel := context.WithTimeout(ctx, l.within+l.engine.drain)
	defer cancel()
	out = &result{variant: v.name, run: run, jobs: jobs, watch: newWatch(jobs, busy())}
	if err := l.serve(ctx, out); err != nil {
		return nil, err
	}
	f := out.figures
	l.Note("run %d, %s: urgent jobs took %.1f s, tolerant ones %.1f s, on %.0f %% of their tasks", run+1, v.name,
		f[arbitration.UrgentMean], f[arbitration.TolerantMean], 100*f[arbitration.TolerantQuality])
	return out, nil
}

// end ends what runs, and keeps its logs.
func (l *lab) end(name string) error {
	var errs []error
	if e := l.running; e != nil {
		l.running, errs = nil, append(errs, e.end())
		if e.logs != "" {
			errs = append(errs, l.KeepLogs(name+"-"+l.engine.name, e.logs))
		}
	}
	return errors.Join(append(errs, l.Site.Close(), l.KeepLogs(name, l.Site.Path("logs")))...)
}

// busy is how many tasks keep the CPUs busy that a node owns.
func busy() int { return int(math.Ceil(emulator.HostShare * float64(runtime.NumCPU()) / nodes)) }

// start starts the site and gives it budget, joules and the variant's policy.
func (l *lab) start(ctx context.Context, name string, v *variant) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.Site.Start(); err != nil {
		return err
	}
	if err := l.Await(ctx, "the nodes hold no lease", func(ctx context.Context) bool { return l.power().Held(ctx, all(1)...) }); err != nil {
		return err
	}
	if l.running, err = l.engine.begin(ctx, name, v); err != nil {
		return err
	}
	if err := l.Site.StartScheduler(v.configuration + l.running.configuration); err != nil {
		return err
	}
	capacity, refills := runs.Pot(l.Site.Full())
	first, power := steps(l.within)[0].each, l.power()
	return errors.Join(
		power.Containers(ctx, v.policy),
		power.Sprints(ctx, capacity, refills),
		l.budget(ctx, 1, first),
		l.Await(ctx, "nodes, scheduler and workers are not ready", func(ctx context.Context) bool {
			return power.Held(ctx, all(first)...) && l.Workers(ctx) == l.engine.workers
		}),
	)
}

func (l *lab) power() runs.Power { return runs.Power{Real: l.Real, Reason: reason} }

// all are the parts of all nodes, where they are alike.
func all(part float64) []float64 { return slices.Repeat([]float64{part}, nodes) }

// budget lets each node hold so much of what it is rated, and makes the budget that and the margin for sprints.
func (l *lab) budget(ctx context.Context, was, each float64) error {
	return l.power().Hold(ctx, min(1, was+margin), min(1, each+margin), all(each)...)
}

// serve submits the jobs as they come, steps the budget, and looks until all have ended and the time is over.
func (l *lab) serve(ctx context.Context, out *result) error {
	before, err := l.Site.Drawn()
	if err != nil {
		return err
	}
	w, budgets, began := out.watch, steps(l.within), time.Now()
	at := make([]time.Duration, len(out.jobs))
	for i := range out.jobs {
		at[i] = out.jobs[i].Arrival
	}
	clients := runs.NewClients(ctx, at, func(ctx context.Context, job int) (string, error) { return l.running.submit(ctx, &out.jobs[job]) })
	defer clients.Close()
	w.each, budgets = budgets[0].each, budgets[1:]
	var failed error
	err = l.Await(ctx, "jobs have not ended", func(ctx context.Context) bool {
		if len(budgets) > 0 && time.Since(began) >= budgets[0].at {
			failed = l.budget(ctx, w.each, budgets[0].each)
			w.each, budgets = budgets[0].each, budgets[1:]
			l.Note("budget: nodes hold %.0f %% of what they are rated", 100*w.each)
		}
		failed = errors.Join(failed, hand(clients, time.Since(began), w))
		if answer, err := l.List(ctx); err == nil && failed == nil {
			failed = w.look(time.Since(began), answer)
		}
		return failed != nil || w.done == len(out.jobs) && time.Since(began) >= l.within
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	after, err := l.Site.Drawn()
	if err != nil {
		return err
	}
	out.figures = arbitration.FiguresOf(w.served)
	out.figures[arbitration.EnergyJ] = (after - before).Joules()
	if times, known := w.speedUp(); known {
		out.figures[speedUp] = times
	}
	return l.sprints(ctx, out)
}

// hand hands each job in once it has come, and tells the watch the ids of those that the engine has taken.
func hand(clients *runs.Clients, now time.Duration, w *watch) error {
	for _, h := range clients.Look(now) {
		if h.Err != nil {
			return h.Err
		}
		w.submit(h.Job, h.ID, h.At)
	}
	return nil
}

// sprints adds what sprints took, once all are closed.
func (l *lab) sprints(ctx context.Context, out *result) error {
	return l.Await(ctx, "sprints of jobs that have ended are open", func(ctx context.Context) bool {
		spent, open := units.Energy(0), 0
		records, err := l.Sprints(ctx)
		for _, s := range records {
			spent += units.Energy(s.GetSpentUj())
			if s.GetState() != "closed" {
				open++
			}
		}
		out.figures[arbitration.SprintJ], out.figures[sprintCount] = spent.Joules(), float64(len(records))
		return err == nil && open == 0
	})
}
