package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/lab/papers"
	"headroom/lab/runs"
)

// The cluster of a run.
const (
	servers, nodes = 3, 2
	// patience bounds the start of a cluster.
	patience = 4 * time.Minute
	reason   = "the comparison"
)

// variant is one way to decide: the coordinators' container policy and the scheduler's configuration.
type variant struct {
	name, says, policy, configuration string
	// properties are what Hadoop or Spark is told of each job beside it.
	properties map[string]string
}

// Names of variants.
const ours, stock, stockBest = "ours", "stock", "stock-best"

// stock reports whether jobs are those of users who know nothing of Headroom, on an engine that can do without it.
func (v *variant) stock() bool { return v.properties != nil }

// decides is the scheduler's configuration for an admission and a policy of copies. A job that gives up a percent of its tasks
// must end much sooner for it, since the accuracy is what is measured; nobody else gives tasks up before their time.
func decides(admission, speculation string) string {
	return fmt.Sprintf("classes:\n  - {name: promised, quality_price: 1m}\n  - {name: exact}\nadmission: {policy: %s}\nspeculation: {policy: %s}\n", admission, speculation)
}

// engine is what runs the tasks on a site's nodes.
type engine struct {
	name     string
	load     load
	drain    time.Duration // how long the jobs may take after the last has come
	variants []variant
	// workers is on how many nodes a worker of the scheduler runs.
	workers int
	// blind: the engine does not tell of copies that run, or of work that they and failed attempts wasted.
	blind bool
	// begin starts on the nodes of a site what else the tasks need; name is the run's, run counts from 0.
	begin func(ctx context.Context, name string, v *variant, run int) (*running, error)
}

// running is an engine that runs on a site.
type running struct {
	// configuration is what the scheduler's has of it.
	configuration string
	// submit hands a job in, and returns its id.
	submit func(ctx context.Context, j *job) (string, error)
	// logs is its folder of logs; empty for none.
	logs string
	end  func() error
}

// lab is a comparison in progress.
type lab struct {
	*papers.Real

	engine  engine
	running *running // on the present site
}

func (l *lab) power() runs.Power { return runs.Power{Real: l.Real, Reason: reason} }

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
	if err := l.start(ctx, name, &v, run); err != nil {
		return nil, err
	}
	jobs := l.engine.load.jobs(l.Seed + uint64(run))
	l.Note("run %d, %s: %d jobs come within %v", run+1, v.name, len(jobs), l.engine.load.within)
	ctx, cancel := context.WithTimeout(ctx, l.engine.load.within+l.engine.drain)
	defer cancel()
	out = &result{runs.Result{Variant: v.name, Run: run}, newWatch(jobs)}
	out.watch.blind = l.engine.blind
	if err := l.serve(ctx, out); err != nil {
		return nil, err
	}
	f := out.Figures
	l.Note("run %d, %s: %.0f %% of the deadlines met, %.0f %% of the tasks done at deadlines, %.1f s to error bounds", run+1, v.name, 100*f[figureSDR], 100*f[figureAccuracy], f[figureBound])
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

// start starts the site and gives it budget, joules and the variant's policy.
func (l *lab) start(ctx context.Context, name string, v *variant, run int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.Site.Start(); err != nil {
		return err
	}
	power, full := l.power(), slices.Repeat([]float64{1}, nodes)
	if err := l.Await(ctx, "the nodes hold no lease", func(ctx context.Context) bool { return power.Held(ctx, full...) }); err != nil {
		return err
	}
	if l.running, err = l.engine.begin(ctx, name, v, run); err != nil {
		return err
	}
	if err := l.Site.StartScheduler(v.configuration + l.running.configuration); err != nil {
		return err
	}
	capacity, refill := runs.Pot(l.Site.Full())
	first := &steps(l.engine.load.within)[0]
	return errors.Join(
		power.Containers(ctx, v.policy),
		power.Sprints(ctx, capacity, refill),
		l.hold(ctx, &step{caps: full}, first),
		l.Await(ctx, "nodes, scheduler and workers are not ready", func(ctx context.Context) bool {
			return power.Held(ctx, first.caps...) && l.Workers(ctx) == l.engine.workers
		}),
	)
}

// hold goes from one step to the next.
func (l *lab) hold(ctx context.Context, was, next *step) error {
	return l.power().Hold(ctx, was.budget(), next.budget(), next.caps...)
}

// serve submits the jobs as they come, steps the caps, and looks until all have ended and the time is over.
func (l *lab) serve(ctx context.Context, out *result) error {
	before, err := l.Site.Drawn()
	if err != nil {
		return err
	}
	w, caps, began := out.watch, steps(l.engine.load.within), time.Now()
	at := make([]time.Duration, len(w.jobs))
	for i := range w.jobs {
		at[i] = w.jobs[i].arrival
	}
	clients := runs.NewClients(ctx, at, func(ctx context.Context, i int) (string, error) { return l.running.submit(ctx, &w.jobs[i]) })
	defer clients.Close()
	var failed error
	err = l.Await(ctx, "jobs have not ended", func(ctx context.Context) bool {
		if len(caps) > 1 && time.Since(began) >= caps[1].at {
			failed = l.hold(ctx, &caps[0], &caps[1])
			caps = caps[1:]
			l.Note("nodes are held at %.0f and %.0f %% of what they are rated", 100*caps[0].caps[0], 100*caps[0].caps[1])
		}
		failed = errors.Join(failed, w.hand(clients.Look(time.Since(began))))
		if answer, err := l.List(ctx); err == nil && failed == nil {
			failed = w.look(time.Since(began), answer)
		}
		return failed != nil || w.over == len(w.jobs) && time.Since(began) >= l.engine.load.within
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	after, err := l.Site.Drawn()
	out.Figures = w.figures()
	out.Figures[figureEnergy] = (after - before).Joules()
	return err
}

// hand notes which jobs were accepted, and which refused.
func (w *watch) hand(all []runs.Handed) error {
	for _, h := range all {
		if h.Err == nil {
			w.submit(h.Job, h.ID, h.Taken)
			continue
		}
		no := rpc.AsCLI(h.Err, "submit", "")
		if no.Exit != cli.ExitRefused {
			return h.Err
		}
		w.refuse(h.Job, no.Message)
	}
	return nil
}
