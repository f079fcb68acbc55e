package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/arbitration"
	"headroom/lab/cluster"
	"headroom/lab/papers"
	"headroom/units"
)

const (
	// patience bounds the start of a cluster.
	patience = 4 * time.Minute
	// settled is how near a node's cap must come to what it is to hold.
	settled = 0.02
	reason  = "the comparison"
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
func busy() int { return int(math.Ceil(hostPart * float64(runtime.NumCPU()) / nodes)) }

// start starts the site and gives it budget, joules and the variant's policy.
func (l *lab) start(ctx context.Context, name string, v *variant) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.Site.Start(); err != nil {
		return err
	}
	if err := l.Await(ctx, "the nodes hold no lease", l.hold(1)); err != nil {
		return err
	}
	if l.running, err = l.engine.begin(ctx, name, v); err != nil {
		return err
	}
	if err := l.Site.StartScheduler(v.configuration + l.running.configuration); err != nil {
		return err
	}
	capacity, refills := pot(l.Site.Full())
	first := steps(l.within)[0].each
	return errors.Join(
		l.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: v.policy}}),
		l.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{
			SetSprintBudget: &headroomv1.SetSprintBudget{Domain: cluster.Domain, CapacityUj: int64(capacity), RefillUw: int64(refills)},
		}}),
		l.budget(ctx, 1, first),
		l.Await(ctx, "nodes, scheduler and workers are not ready", func(ctx context.Context) bool {
			return l.hold(first)(ctx) && l.Workers(ctx) == l.engine.workers
		}),
	)
}

// budget lets each node hold so much of what it is rated, and makes the budget that and the margin for sprints. The
// budget never comes below the caps on the way.
func (l *lab) budget(ctx context.Context, was, each float64) error {
	site := func() error { return l.siteBudget(ctx, min(1, each+margin)) }
	caps := func() error { return l.nodeCaps(ctx, each) }
	if each > was {
		return errors.Join(site(), caps())
	}
	return errors.Join(caps(), site())
}

func (l *lab) siteBudget(ctx context.Context, part float64) error {
	to := units.FromWatts(math.Round(l.Site.Full().Watts() * part))
	err := l.Leader(ctx, func(ctx context.Context, base string) error {
		_, err := l.Operators(base).SetBudget(ctx, connect.NewRequest(&headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: int64(to), Change: l.Signed(reason)}))
		return err
	})
	if err != nil {
		return fmt.Errorf("arbitrate: set the budget: %w", err)
	}
	return nil
}

func (l *lab) nodeCaps(ctx context.Context, part float64) error {
	most := int64(units.FromWatts(math.Round(cluster.Rated().Watts() * part)))
	for _, name := range l.Site.Nodes() {
		if err := l.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{
			SetNode: &headroomv1.SetNode{Node: name, Settings: &headroomv1.NodeSettings{MaxUw: &most}},
		}}); err != nil {
			return fmt.Errorf("arbitrate: cap %s: %w", name, err)
		}
	}
	return nil
}

// hold reports whether every node holds a cap of that part of what it is rated.
func (l *lab) hold(part float64) func(context.Context) bool {
	return func(ctx context.Context) bool {
		held := 0
		for _, n := range l.Nodes(ctx) {
			if n.EffectiveUw != nil && math.Abs(min(float64(n.GetEffectiveUw()), float64(n.GetRatedUw()))/float64(n.GetRatedUw())/part-1) < settled {
				held++
			}
		}
		return held == nodes
	}
}

// serve submits the jobs as they come, steps the budget, and looks until all have ended and the time is over.
func (l *lab) serve(ctx context.Context, out *result) error {
	before, err := l.Site.Drawn()
	if err != nil {
		return err
	}
	w, budgets, began := out.watch, steps(l.within), time.Now()
	hand, finish := l.hand(ctx, out.jobs)
	defer finish()
	w.each, budgets = budgets[0].each, budgets[1:]
	var failed error
	err = l.Await(ctx, "jobs have not ended", func(ctx context.Context) bool {
		if len(budgets) > 0 && time.Since(began) >= budgets[0].at {
			failed = l.budget(ctx, w.each, budgets[0].each)
			w.each, budgets = budgets[0].each, budgets[1:]
			l.Note("budget: nodes hold %.0f %% of what they are rated", 100*w.each)
		}
		failed = errors.Join(failed, hand(time.Since(began), w))
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

// handed is a job that was handed in, or could not be.
type handed struct {
	job int
	id  string
	at  time.Duration
	err error
}

// hand hands each job in once it has come, and tells the watch the ids of those that the engine has taken: a client of
// Hadoop needs seconds for that, during which others go on. finish ends what is under way.
func (l *lab) hand(ctx context.Context, jobs []arrival) (hand func(now time.Duration, w *watch) error, finish func()) {
	ctx, cancel := context.WithCancel(ctx)
	next, taken := 0, make(chan handed, len(jobs))
	var clients sync.WaitGroup
	hand = func(now time.Duration, w *watch) (failed error) {
		for ; next < len(jobs) && now >= jobs[next].Arrival; next++ {
			i := next
			clients.Go(func() {
				id, err := l.running.submit(ctx, &jobs[i])
				taken <- handed{i, id, now, err}
			})
		}
		for {
			select {
			case h := <-taken:
				if h.err != nil {
					return h.err
				}
				w.submit(h.job, h.id, h.at)
			default:
				return nil
			}
		}
	}
	return hand, func() {
		cancel()
		clients.Wait()
	}
}

// sprints adds what sprints took, once all are closed.
func (l *lab) sprints(ctx context.Context, out *result) error {
	return l.Await(ctx, "sprints of jobs that have ended are open", func(ctx context.Context) bool {
		spent, open := units.Energy(0), 0
		var all []*headroomv1.SprintRecord
		err := l.Leader(ctx, func(ctx context.Context, base string) error {
			answer, err := l.Operators(base).ListSprints(ctx, connect.NewRequest(&headroomv1.ListSprintsRequest{All: true}))
			if err == nil {
				all = answer.Msg.GetSprints()
			}
			return err
		})
		for _, s := range all {
			spent += units.Energy(s.GetSpentUj())
			if s.GetState() != "closed" {
				open++
			}
		}
		out.figures[arbitration.SprintJ], out.figures[sprintCount] = spent.Joules(), float64(len(all))
		return err == nil && open == 0
	})
}
