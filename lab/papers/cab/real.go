package cab

import (
	"context"
	stderrors "errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/internal/cli"
	"headroom/jobs/containers"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/papers"
	"headroom/units"
)

// A real run: one coordinator, a scheduler and emulated nodes with powerd, a Hadoop
// cluster whose NodeManagers run on those nodes, and the jobs of one set of Table I in
// one of its columns, run by every variant in pairs on the same running cluster and data.
// What is measured is what YARN and the jobs' own counters say.
//
// All variants begin alike: at full power, with nodes that offer one container each, the
// application masters start, one on each node. Then the cap comes, and once every node
// holds its part of it the nodes offer all containers and the maps begin. Watts are divided
// equally among the nodes, since it is the division of containers that is compared. Runtimes
// count from the first map's start.

// The shape of a real run.
const (
	realNodes = 3
	// realSlots is how many containers a node takes: more than its CPUs, which the
	// containers of the node share.
	realSlots = 3
	// realUnit is a container's memory, MiB; an application master takes one.
	realUnit = 256
	// realPatience bounds everything beside the jobs, realMost one variant's jobs.
	realPatience = 6 * time.Minute
	realMost     = 20 * time.Minute
	// realLook is how often the coordinator is asked about the jobs.
	realLook = time.Second
	// settled is how near every node's cap must come to its part of the budget.
	settled = 0.02
)

// realJob is one application of a set, made for YARN.
type realJob struct {
	name string
	// queue is 1 to 3: that of the quality asked for.
	queue int
	floor float64
	job   hadoop.Job // without queue, hooks and output
	args  func(out string) []string
}

// realVariant is one way to run the set.
type realVariant struct {
	name   string
	capped bool
	// exact: in queues that guarantee all tasks.
	exact  bool
	policy containers.Policy
	// steps: the budget is not one but steps down while the maps run.
	steps bool
}

// stepped is the capped run of which the budget steps.
const stepped = "stepping"

func realVariants(approximate, steps bool) []realVariant {
	all := []realVariant{
		{uncapped, false, true, containers.Fair, false},
		{capped, true, true, containers.Fair, false},
		{approx, true, false, containers.Fair, false},
		{ours, true, false, containers.Stretch, false},
		{stepped, true, true, containers.Fair, true},
	}
	return slices.DeleteFunc(all, func(v realVariant) bool { return v.name == approx && !approximate || v.steps && !steps })
}

// realSteps are the budgets of the stepping run, as parts of full power, and the part of
// all maps that is done when each begins: the paper's caps on its server.
func realSteps() []struct{ cap, from float64 } {
	return []struct{ cap, from float64 }{{250. / 350, 0}, {200. / 350, 0.2}, {175. / 350, 0.45}}
}

// realRun is one real run in progress.
type realRun struct {
	*papers.Real

	o       *options
	cluster *hadoop.Cluster
	hooks   string
	jobs    []realJob
}

// runReal runs the experiment on a real Hadoop.
func runReal(ctx context.Context, o *options, progress io.Writer) (results *realResults, err error) {
	if os.Geteuid() != 0 {
		return nil, cli.Failed("run it as root, or leave out --engine: the simulation needs no privileges", "--engine yarn needs root: it slows down real processes with cgroups")
	}
	r := &realRun{o: o}
	if r.Real, err = papers.NewReal("cab", &o.Options, progress, "yarn", "build both jars with make hooks (needs Maven and a JDK)", "headroom-hadoop.jar", "headroom-apps.jar"); err != nil {
		return nil, err
	}
	defer func() {
		if kept := r.keepLogs(); kept != nil && err == nil {
			err = kept
		}
		r.Remove()
	}()
	jars, err := r.Hadoop(ctx)
	if err != nil {
		return nil, err
	}
	if r.jobs, err = r.makeJobs(jars); err != nil {
		return nil, err
	}
	defer func() { err = stderrors.Join(err, r.close()) }()
	if err := r.start(ctx, jars); err != nil {
		return nil, err
	}
	results = &realResults{set: o.set, quality: o.quality, jobs: r.jobs, cap: o.cap}
	variants := realVariants(o.approx, o.steps)
	for pair := range o.pairs {
		for _, v := range abba(pair, variants) {
			one, err := r.variant(ctx, v, pair)
			if err != nil {
				return nil, fmt.Errorf("pair %d: %s: %w", pair+1, v.name, err)
			}
			results.runs = append(results.runs, *one)
		}
		r.Note("%s", results.pairs()[pair].summary())
		if err := o.Keep(results.files()); err != nil { // what is cut short later is not lost
			return nil, err
		}
	}
	return results, nil
}

// realQueue is the queue of a job: with its quality's guarantee, or one that guarantees all.
func realQueue(j *realJob, exact bool) string {
	if exact {
		return fmt.Sprintf("e%d", j.queue)
	}
	return fmt.Sprintf("q%d", j.queue)
}

// queues are the queues of Table I and their twins; gated, they take the application
// masters of the set's jobs and nothing else, so that no map takes a master's place.
func (r *realRun) queues(gated bool) []hadoop.Queue {
	var all []hadoop.Queue
	for i := range containers.QueueFloors() {
		jobs := 0
		for k := range r.jobs {
			if r.jobs[k].queue == i+1 {
				jobs++
			}
		}
		for _, name := range []string{"q", "e"} {
			q := hadoop.Queue{Name: fmt.Sprint(name, i+1)}
			if gated {
				q.MaxVCores, q.MaxMB = max(1, jobs), max(1, jobs)*realUnit
			}
			all = append(all, q)
		}
	}
	return all
}

// start starts the site, the Hadoop cluster on its nodes, and the scheduler.
func (r *realRun) start(ctx context.Context, jars hadoop.Jars) (err error) {
	ctx, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	r.Note("starting a coordinator and %d emulated nodes", realNodes)
	if r.Site, err = cluster.NewSite(cluster.Config{Dir: r.Path("site"), Bin: r.Folder, Coordinators: 1, Nodes: realNodes, Weight: papers.RealWeight}); err != nil {
		return err
	}
	if err := r.Site.Start(); err != nil {
		return err
	}
	if err := r.Await(ctx, "the nodes hold no lease", r.holds(r.Site.Full())); err != nil {
		return err
	}
	if err := r.Change(ctx, "containers are compared, not watts", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetPolicy{SetPolicy: string(budget.Equal)}}); err != nil {
		return fmt.Errorf("cab: set the policy for watts: %w", err)
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	r.hooks = ports[0]
	config := hadoop.Config{Dir: r.Path("cluster"), Jars: jars, Queues: r.queues(false)}
	r.inside().Plug(&config)
	var queues strings.Builder
	for i, floor := range containers.QueueFloors() {
		fmt.Fprintf(&queues, "    - {name: root.q%d, guarantee: %g%%}\n    - {name: root.e%d, guarantee: 100%%}\n", i+1, 100*floor, i+1)
	}
	config.Nodes = r.HadoopNodes(realSlots, realUnit)
	r.Note("starting Hadoop %s: a ResourceManager, and a NodeManager on each node", hadoop.Version)
	if r.cluster, err = hadoop.Start(ctx, config); err != nil {
		return err
	}
	if err := r.Site.StartScheduler(fmt.Sprintf("yarn:\n  resourcemanager: [%q]\n  hooks: %q\n  container: {memory_mb: %d, vcores: 1}\n  queues:\n%s",
		r.cluster.RM(), r.hooks, realUnit, queues.String())); err != nil {
		return err
	}
	return r.warm(ctx)
}

// warm runs a small job in all containers, so that the first variant does not pay for
// files that are read for the first time.
func (r *realRun) warm(ctx context.Context) error {
	r.Note("warming up")
	ended, err := r.cluster.Run(ctx, r.cluster.Sleep("e1", realNodes*realSlots, time.Millisecond))
	if err == nil && !ended.Succeeded() {
		err = fmt.Errorf("cab: warm-up job: final state %s: %s", ended.FinalStatus, ended.Diagnostics)
	}
	return err
}

// close ends everything that was started.
func (r *realRun) close() error {
	var errs []error
	if r.cluster != nil {
		errs = append(errs, r.cluster.Close())
	}
	if r.Site != nil {
		errs = append(errs, r.Site.Close())
	}
	return stderrors.Join(errs...)
}

// keepLogs keeps the logs of the site and of Hadoop.
func (r *realRun) keepLogs() error {
	for _, of := range []string{"site", "cluster"} {
		if _, err := os.Stat(r.Path(of, "logs")); err != nil {
			continue // it came to nothing
		}
		if err := r.KeepLogs(of, r.Path(of, "logs")); err != nil {
			return err
		}
	}
	return nil
}

// caps are the caps that nodes hold, as parts of the most that each may draw; those of
// nodes whose cap is not known are left out.
func (r *realRun) caps(ctx context.Context) (parts []float64) {
	for _, n := range r.Nodes(ctx) {
		if n.EffectiveUw != nil && n.GetMaxUw() > 0 {
			parts = append(parts, min(1, float64(n.GetEffectiveUw())/float64(n.GetMaxUw())))
		}
	}
	return parts
}

// holds reports whether every node holds its equal part of the budget.
func (r *realRun) holds(total units.Power) func(context.Context) bool {
	part := float64(total) / float64(r.Site.Full())
	return func(ctx context.Context) bool { return alike(r.caps(ctx), realNodes, part) }
}

// alike reports whether so many nodes hold caps, each near part.
func alike(caps []float64, nodes int, part float64) bool {
	return len(caps) == nodes && !slices.ContainsFunc(caps, func(x float64) bool { return math.Abs(x/part-1) >= settled })
}

// part is what a variant's budget begins with, as a part of full power.
func (r *realRun) part(v realVariant) float64 {
	switch {
	case v.steps:
		return realSteps()[0].cap
	case v.capped:
		return r.o.cap
	}
	return 1
}

// setBudget sets a variant's budget to a part of full power, and waits until the nodes hold it.
func (r *realRun) setBudget(ctx context.Context, v realVariant, part float64) error {
	total := units.FromWatts(math.Round(r.Site.Full().Watts() * part))
	r.Note("%s: budget %.0f of %.0f W", v.name, total.Watts(), r.Site.Full().Watts())
	req := &headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: int64(total), ConfirmUw: int64(total), Change: r.Signed("the variant " + v.name)}
	err := r.Leader(ctx, func(ctx context.Context, base string) error {
		_, err := r.Operators(base).SetBudget(ctx, connect.NewRequest(req))
		return err
	})
	if err != nil {
		return fmt.Errorf("cab: set the budget: %w", err)
	}
	return r.Await(ctx, "the nodes do not hold the budget", r.holds(total))
}

// setPolicy chooses how containers are divided.
func (r *realRun) setPolicy(ctx context.Context, v realVariant, policy containers.Policy) error {
	err := r.Change(ctx, "the variant "+v.name, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: string(policy)}})
	if err != nil {
		return fmt.Errorf("cab: set the container policy: %w", err)
	}
	return nil
}

// submit submits the set at full power and returns when the application masters of all
// its jobs answer, each on a node of its own: nodes offer one container, and queues take
// no more than their masters.
func (r *realRun) submit(ctx context.Context, v realVariant, pair int) ([]*hadoop.RunningJob, error) {
	err := stderrors.Join(r.setPolicy(ctx, v, containers.Fair), r.setBudget(ctx, v, 1), r.cluster.SetQueues(ctx, r.queues(true)), r.cluster.Offer(ctx, 1, realUnit))
	if err != nil {
		return nil, err
	}
	running := make([]*hadoop.RunningJob, len(r.jobs))
	failed := make([]error, len(r.jobs))
	var clients sync.WaitGroup
	for i := range r.jobs {
		clients.Go(func() { running[i], failed[i] = r.cluster.Submit(ctx, r.job(&r.jobs[i], v, pair)) })
	}
	clients.Wait()
	if err := stderrors.Join(failed...); err != nil {
		return nil, err
	}
	for _, j := range running {
		err := r.Await(ctx, "the application master of "+j.ID+" does not answer", func(ctx context.Context) bool {
			p, err := j.Progress(ctx)
			return err == nil && p.Maps > 0
		})
		if err != nil {
			return nil, err
		}
	}
	return running, r.cluster.SetQueues(ctx, r.queues(false)) // their nodes are full still
}

// begin brings the cap to the nodes, notes what state the machine is in, and lets the maps begin.
func (r *realRun) begin(ctx context.Context, running []*hadoop.RunningJob, run *realVariantRun) error {
	for _, j := range running {
		on, err := j.Master(ctx)
		if err != nil {
			return err
		}
		run.masters = append(run.masters, on)
	}
	if err := r.setBudget(ctx, run.variant, r.part(run.variant)); err != nil {
		return err
	}
	run.burn = burn()
	caps := r.caps(ctx)
	if len(caps) == 0 {
		return fmt.Errorf("cab: the coordinators report no cap of a node")
	}
	run.least, run.most = slices.Min(caps), slices.Max(caps)
	if err := r.cluster.Offer(ctx, realSlots, realSlots*realUnit); err != nil {
		return err
	}
	r.Note("%s: the maps begin; masters on %s, caps of %.0f to %.0f %%, %d MiB hashed in %.2f s",
		run.variant.name, strings.Join(run.masters, ", "), 100*run.least, 100*run.most, burnBlocks, run.burn.Seconds())
	return r.setPolicy(ctx, run.variant, run.variant.policy)
}

// variant runs the set once.
func (r *realRun) variant(ctx context.Context, v realVariant, pair int) (*realVariantRun, error) {
	run := &realVariantRun{variant: v, pair: pair, ended: make([]realEnd, len(r.jobs))}
	starting, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	running, err := r.submit(starting, v, pair)
	if err == nil {
		err = r.begin(starting, running, run)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, realMost)
	defer cancel()
	if err := r.follow(ctx, running, run); err != nil {
		return nil, err
	}
	r.Note("%s: %.0f s; %s", v.name, run.makespan().Seconds(), run.host)
	return run, nil
}

// follow waits for the ends of a variant's jobs, and keeps what Hadoop and the coordinator say of them.
func (r *realRun) follow(ctx context.Context, running []*hadoop.RunningJob, run *realVariantRun) error {
	busy := observeHost()
	looking, stop := context.WithCancel(ctx)
	var looks, waits sync.WaitGroup
	looks.Go(func() { r.watch(looking, running, run) })
	failed := make([]error, len(r.jobs))
	for i := range running {
		waits.Go(func() { run.ended[i].result, failed[i] = running[i].Wait(ctx) })
	}
	waits.Wait()
	stop()
	looks.Wait()
	run.host = busy()
	if err := stderrors.Join(failed...); err != nil {
		return err
	}
	for i := range run.ended {
		if e := &run.ended[i]; !e.result.Succeeded() || e.result.History == nil {
			return fmt.Errorf("cab: %s: final state %s: %s", r.jobs[i].name, e.result.FinalStatus, e.result.Diagnostics)
		}
	}
	return r.committed(ctx, running, run)
}

// job is a job of the set as it is submitted.
func (r *realRun) job(j *realJob, v realVariant, pair int) hadoop.Job {
	job := j.job
	job.Queue, job.Args = realQueue(j, v.exact), j.args(r.Path("out", fmt.Sprint(v.name, "-", pair+1), j.name))
	return r.inside().Into(job)
}

// inside are the hooks inside of Hadoop.
func (r *realRun) inside() hadoop.Hooks {
	return hadoop.Hooks{Jar: r.Program("headroom-hadoop.jar"), Address: r.hooks, MasterMB: realUnit}
}

// list are the coordinator's jobs, by id.
func (r *realRun) list(ctx context.Context) (map[string]*headroomv1.Job, error) {
	all, err := r.Jobs(ctx)
	jobs := map[string]*headroomv1.Job{}
	for _, j := range all {
		jobs[j.GetId()] = j
	}
	return jobs, err
}

// noteEvery is how often a run tells how far it is.
const noteEvery = 15 * time.Second

// watch notes what the coordinator knows and expects of the jobs, until ctx ends.
func (r *realRun) watch(ctx context.Context, running []*hadoop.RunningJob, run *realVariantRun) {
	tick := time.NewTicker(realLook)
	defer tick.Stop()
	began, told := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		jobs, err := r.list(ctx)
		if err != nil {
			continue // the next look is near
		}
		at, done, tasks := time.Now(), 0, 0
		for i := range running {
			j := jobs[running[i].ID]
			if j == nil || j.Progress == nil {
				continue
			}
			run.looks = append(run.looks, realLookAt{at: at, since: at.Sub(began), job: i, is: j})
			done, tasks = done+int(j.GetProgress().GetDone()), tasks+int(j.GetProgress().GetTasks())
		}
		if time.Since(told) > noteEvery {
			r.Note("%s: %.0f s, %d of %d map tasks done", run.variant.name, time.Since(began).Seconds(), done, tasks)
			told = time.Now()
		}
		if next := len(run.steps) + 1; run.variant.steps && next < len(realSteps()) && float64(done) >= realSteps()[next].from*float64(max(1, tasks)) {
			if err := r.setBudget(ctx, run.variant, realSteps()[next].cap); err != nil {
				r.Note("%s: %v", run.variant.name, err)
			}
			run.steps = append(run.steps, time.Since(began))
		}
	}
}

// committed waits until the coordinator knows the jobs' ends, and keeps what it knows.
func (r *realRun) committed(ctx context.Context, running []*hadoop.RunningJob, run *realVariantRun) error {
	ctx, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	return r.Await(ctx, "the coordinator does not know the jobs' ends", func(ctx context.Context) bool {
		jobs, err := r.list(ctx)
		if err != nil {
			return false
		}
		for i := range running {
			j := jobs[running[i].ID]
			if j.GetState() != headroomv1.JobState_JOB_STATE_DONE {
				return false
			}
			run.ended[i].committed = j
		}
		return true
	})
}

// makeJobs makes the set's data and its jobs.
func (r *realRun) makeJobs(jars hadoop.Jars) ([]realJob, error) {
	w := sets()[slices.IndexFunc(sets(), func(w set) bool { return w.number == r.o.set })]
	column := slices.Index(qualities(), r.o.quality)
	var jobs []realJob
	for i, a := range w.apps {
		j := realJob{name: a.name, queue: w.queues[i][column]}
		j.floor = containers.QueueFloors()[j.queue-1]
		if err := r.dataFor(&j, jars, r.Seed+uint64(i)); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// The sizes of a map task's input: a CPU second or two each, beside a JVM's start. A job
// of many waves has small tasks, or a pair takes all day.
const (
	realPoints  = 2_500_000
	realText    = 2_000_000
	realRatings = 4_000_000
	realTop     = 100
)

// dataFor writes a job's input and says how it is called.
func (r *realRun) dataFor(j *realJob, jars hadoop.Jars, seed uint64) error {
	in := r.Path("in", j.name)
	text := hadoop.Text{Files: r.o.maps, Bytes: realText, Spread: 0.2, Topical: 0.5, Seed: seed}
	var err error
	switch j.name {
	case appPi().name:
		j.job = hadoop.Job{Jar: r.Program("headroom-apps.jar"), Program: "pi"}
		j.args = func(out string) []string { return []string{fmt.Sprint(r.o.maps), fmt.Sprint(realPoints), out} }
		return os.MkdirAll(r.Path("out"), 0o755)
	case appTopN().name:
		_, err = text.Write(in)
		j.job = hadoop.Job{Jar: r.Program("headroom-apps.jar"), Program: "topn"}
		j.args = func(out string) []string { return []string{in, out, fmt.Sprint(realTop)} }
	case appHist().name:
		_, err = hadoop.Ratings{Files: r.o.maps, Bytes: realRatings, Spread: 0.2, Drift: 1, Seed: seed}.Write(in)
		j.job = hadoop.Job{Jar: r.Program("headroom-apps.jar"), Program: "histmovies"}
		j.args = func(out string) []string { return []string{in, out} }
	default:
		_, err = text.Write(in)
		j.job = hadoop.Job{Jar: jars.Examples(), Program: map[string]string{appCount().name: "wordcount", appMean().name: "wordmean"}[j.name]}
		j.args = func(out string) []string { return []string{in, out} }
	}
	return err
}
