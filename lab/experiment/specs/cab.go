package specs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/arbitration"
	"headroom/jobs/containers"
	"headroom/lab/cluster"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
	"headroom/lab/hadoop"
	"headroom/lab/report"
	"headroom/progress"
	"headroom/scheduler/jhist"
	"headroom/units"
)

// CAB on a real Hadoop: set 3 of Table I in the column of 80 %, under a budget of 200 of 350 W.
//
// All variants begin alike: at full power, with nodes that offer one container each, the application masters start,
// one on each node. Then the cap comes, and once every node holds its part the nodes offer all containers and the
// maps begin. Watts are divided equally among the nodes, since it is the division of containers that is compared.
// Runtimes count from the first map's start.
const (
	cabUncapped, cabCapped, cabOurs, cabStepped = "uncapped", "capped", "ours", "stepping"
	// cabNodes have so many slots each: more than their CPUs, which the containers share. A job has cabMaps maps.
	cabNodes, cabSlots, cabMaps = 3, 3, 16
	cabCap                      = 200. / 350
	// The sizes of a map task's input: a CPU second or two each, beside a JVM's start.
	cabPoints, cabText, cabTop = 2_500_000, 2_000_000, 100
	// The claims: how much of the cap's impact goes away in the mean, and what the bounds lie above, in percent; an
	// impact below impactMin is the machine's noise. errorRatio is of the errors of finish times, ours over the filter's.
	impactDown, impactBound, impactMin, errorRatio = 30., 15., 0.05, 0.5
	// sampling is the paper's window, stepWindow how long after a step of the budget finish times are compared.
	sampling, stepWindow = 5 * time.Second, 20 * time.Second
)

// cabStep is a budget from when a part of all maps is done: the paper's caps on its server.
type cabStep struct{ cap, from float64 }

func cabSteps() []cabStep { return []cabStep{{250. / 350, 0}, {200. / 350, 0.2}, {175. / 350, 0.45}} }

// cabJob is an application of the set, in the queue 1 to 3 of the quality requested.
type cabJob struct {
	name  string
	queue int
}

func cabJobs() []cabJob { return []cabJob{{"pi", 1}, {"wordcount", 2}, {"topn", 3}} }

func cab() []*experiment.Spec {
	s := &experiment.Spec{
		Name: "cab-yarn", Says: "CAB on Hadoop: set 3 of Table I at 80 %, capped at 57 % of full power", Variants: []string{cabUncapped, cabCapped, cabOurs, cabStepped},
		Files: []string{harness.JarHadoop, harness.JarHadoopApps}, Pairs: 5, Run: runCAB,
	}
	gone := func(id, what, figure string) experiment.Claim {
		return experiment.Claim{
			ID: id, What: what + ": how much of the cap's impact goes away", Unit: "%",
			Value: func(p experiment.Pair) float64 {
				held, mine := experiment.Change(figure, cabCapped, cabUncapped)(p)/100, experiment.Change(figure, cabOurs, cabUncapped)(p)/100
				if held < impactMin {
					return math.NaN()
				}
				return 100 * (1 - mine/held)
			},
			Met:   experiment.Aim{Mean: report.AtLeast(impactDown), Bounds: report.Above(impactBound)},
			Order: experiment.Within(report.Above(0)),
		}
	}
	s.Claims = append(s.Claims, gone("Y1", "runtime of the set", "set_s"), gone("Y1/jobs", "runtime of a job, mean", "jobs_s"))
	for _, j := range cabJobs() {
		kept := claim("Y2/"+j.name, j.name+": map tasks done over its floor's, the least of all variants", "", report.AtLeast(1), func(p experiment.Pair) float64 {
			least := math.Inf(1)
			for _, f := range p {
				least = min(least, f["kept_"+j.name])
			}
			return least
		})
		kept.Every = true
		s.Claims = append(s.Claims, kept)
	}
	ratio := func(id, what, variant, above, below string, met experiment.Aim) experiment.Claim {
		return experiment.Claim{ID: id, What: what, Value: experiment.Ratio(variant, above, below), Met: met, Order: experiment.Mean(report.Below(1))}
	}
	s.Claims = append(s.Claims,
		ratio("Y3", "error of finish times in the capped run: ours over the paper's filter", cabCapped, "foreseen_ours", "foreseen_filter", experiment.Mean(report.Below(errorRatio))),
		ratio("D10/yarn", "eq. (1) after a step of the budget: error of finish times, with its power term over without", cabStepped, "step_filter", "step_filter_blind", experiment.Within(report.Below(1))),
		ratio("D10/yarn-learned", "the learned curve after a step: error of finish times, with power over blind to it", cabStepped, "step_learned", "step_learned_blind", experiment.Within(report.Below(1))))
	return []*experiment.Spec{s}
}

// cabRun is one run in progress.
type cabRun struct {
	*harness.Lab

	hadoop *hadoop.Cluster
	hooks  hadoop.Hooks
	jobs   []*hadoop.RunningJob
	looks  []cabLook
	steps  []time.Duration // when the budget stepped, since the maps began
}

// cabLook is what the coordinator expected of a job at a time; since is after the maps began.
type cabLook struct {
	at    time.Time
	since time.Duration
	job   int
	is    *headroomv1.Job
}

func runCAB(ctx context.Context, r *experiment.Run) (f experiment.Figures, err error) {
	if _, err := (hadoop.Text{Files: cabMaps, Bytes: cabText, Spread: 0.2, Topical: 0.5, Seed: r.Seed}).Write(r.Path("in")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Path("out"), 0o755); err != nil {
		return nil, err
	}
	l, err := harness.NewLab(ctx, r, cluster.Config{Coordinators: 1, Nodes: cabNodes})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c := &cabRun{Lab: l}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.hadoop.Close()) }()
	for _, step := range []func(context.Context) error{c.submit, c.hold} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	results, committed, err := c.follow(ctx)
	if err != nil {
		return nil, err
	}
	return c.figures(results, committed), nil
}

// queues are the queues of Table I and their twins that guarantee all tasks. Gated, they take the application
// masters of the set's jobs and nothing else, so that no map takes a master's place.
func cabQueues(gated bool) (all []hadoop.Queue) {
	for i := range containers.QueueFloors() {
		jobs := 1 // each queue has one of the set's jobs
		for _, name := range []string{"q", "e"} {
			q := hadoop.Queue{Name: fmt.Sprint(name, i+1)}
			if gated {
				q.MaxVCores, q.MaxMB = jobs, jobs*harness.YARNUnit
			}
			all = append(all, q)
		}
	}
	return all
}

// start starts Hadoop and the scheduler, and runs a small job in all containers, so that the first one does not pay for
// files that are read for the first time.
func (c *cabRun) start(ctx context.Context) (err error) {
	equal := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetPolicy{SetPolicy: string(budget.Equal)}}
	if err := errors.Join(c.Change(ctx, equal), c.Containers(ctx, string(containers.Fair))); err != nil {
		return err
	}
	if c.hooks, err = c.Hooks(); err != nil {
		return err
	}
	config := hadoop.Config{Queues: cabQueues(false), Nodes: c.HadoopNodes(cabSlots, harness.YARNUnit)}
	c.hooks.Plug(&config)
	if c.hadoop, err = harness.StartHadoop(ctx, c.Run, config); err != nil {
		return err
	}
	var queues strings.Builder
	for i, floor := range containers.QueueFloors() {
		fmt.Fprintf(&queues, "    - {name: root.q%d, guarantee: %g%%}\n    - {name: root.e%d, guarantee: 100%%}\n", i+1, 100*floor, i+1)
	}
	err = c.Site.StartScheduler(harness.YARNSection(c.hadoop.RM(), c.hooks.Address, queues.String()))
	if err == nil {
		c.Note("warming up")
		var ended hadoop.Result
		if ended, err = c.hadoop.Run(ctx, c.hadoop.Sleep("e1", cabNodes*cabSlots, time.Millisecond)); err == nil && !ended.Succeeded() {
			err = fmt.Errorf("cab: warm-up job: final state %s: %s", ended.FinalStatus, ended.Diagnostics)
		}
	}
	if err != nil {
		return errors.Join(err, c.hadoop.Close())
	}
	return nil
}

// exact reports whether the variant's jobs are in queues that guarantee all tasks.
func (c *cabRun) exact() bool { return c.Variant != cabOurs }

// job is a job of the set as it is submitted.
func (c *cabRun) job(j cabJob) hadoop.Job {
	in, out := c.Path("in"), c.Path("out", j.name)
	job := hadoop.Job{Program: j.name, Queue: fmt.Sprint("q", j.queue), Args: []string{in, out}}
	if c.exact() {
		job.Queue = fmt.Sprint("e", j.queue)
	}
	switch j.name {
	case "pi":
		job.Jar, job.Args = c.Program(harness.JarHadoopApps), []string{strconv.Itoa(cabMaps), strconv.Itoa(cabPoints), out}
	case "topn":
		job.Jar, job.Args = c.Program(harness.JarHadoopApps), append(job.Args, strconv.Itoa(cabTop))
	}
	return c.hooks.Into(job)
}

// each does something for all jobs at once.
func (c *cabRun) each(do func(i int) error) error {
	failed := make([]error, len(c.jobs))
	var all sync.WaitGroup
	for i := range c.jobs {
		all.Go(func() { failed[i] = do(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// known are the set's jobs in the coordinators' log; nil for one that is not there.
func (c *cabRun) known(ctx context.Context) ([]*headroomv1.Job, error) {
	all, err := c.Jobs(ctx)
	mine := make([]*headroomv1.Job, len(c.jobs))
	for i := range c.jobs {
		if k := slices.IndexFunc(all, func(j *headroomv1.Job) bool { return j.GetId() == c.jobs[i].ID }); k >= 0 {
			mine[i] = all[k]
		}
	}
	return mine, err
}

// submit submits the set and returns when the application masters of all its jobs answer, each on a node of its own.
func (c *cabRun) submit(ctx context.Context) error {
	if err := errors.Join(c.hadoop.SetQueues(ctx, cabQueues(true)), c.hadoop.Offer(ctx, 1, harness.YARNUnit)); err != nil {
		return err
	}
	c.jobs = make([]*hadoop.RunningJob, len(cabJobs()))
	if err := c.each(func(i int) (err error) {
		c.jobs[i], err = c.hadoop.Submit(ctx, c.job(cabJobs()[i]))
		return err
	}); err != nil {
		return err
	}
	for _, j := range c.jobs {
		if err := c.Await(ctx, "the application master of "+j.ID+" does not answer", func(ctx context.Context) bool {
			p, err := j.Progress(ctx)
			return err == nil && p.Maps > 0
		}); err != nil {
			return err
		}
	}
	return c.hadoop.SetQueues(ctx, cabQueues(false)) // their nodes are still full
}

// hold brings the first cap to the nodes and lets the maps begin.
func (c *cabRun) hold(ctx context.Context) error {
	parts := map[string]float64{cabUncapped: 1, cabCapped: cabCap, cabOurs: cabCap, cabStepped: cabSteps()[0].cap}
	if err := c.budget(ctx, parts[c.Variant]); err != nil {
		return err
	}
	c.Note("the maps begin")
	if err := c.hadoop.Offer(ctx, cabSlots, cabSlots*harness.YARNUnit); err != nil || c.Variant != cabOurs {
		return err
	}
	return c.Containers(ctx, string(containers.Stretch))
}

func (c *cabRun) budget(ctx context.Context, part float64) error {
	if err := c.Budget(ctx, part); err != nil {
		return err
	}
	return c.Await(ctx, "the nodes do not hold the budget", func(ctx context.Context) bool { return c.Held(ctx, part) })
}

// follow watches the jobs to their ends, and returns the results of Hadoop and the coordinators' records.
func (c *cabRun) follow(ctx context.Context) (results []hadoop.Result, committed []*headroomv1.Job, err error) {
	looking, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() { c.watch(looking) })
	results = make([]hadoop.Result, len(c.jobs))
	if err := c.each(func(i int) (err error) {
		if results[i], err = c.jobs[i].Wait(ctx); err == nil && (!results[i].Succeeded() || results[i].History == nil) {
			err = fmt.Errorf("cab: %s: final state %s: %s", cabJobs()[i].name, results[i].FinalStatus, results[i].Diagnostics)
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	return results, committed, c.Await(ctx, "the jobs' ends are not committed", func(ctx context.Context) bool {
		var err error
		committed, err = c.known(ctx)
		return err == nil && !slices.ContainsFunc(committed, func(j *headroomv1.Job) bool { return j.GetState() != headroomv1.JobState_JOB_STATE_DONE })
	})
}

// watch keeps what the coordinators expect of the jobs, each second, and steps the budget.
func (c *cabRun) watch(ctx context.Context) {
	tick, began := time.NewTicker(time.Second), time.Now()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all, err := c.known(ctx)
		if err != nil {
			continue // the next look is near
		}
		done, tasks := 0, 0
		for i, j := range all {
			if p := j.GetProgress(); p != nil {
				c.looks = append(c.looks, cabLook{time.Now(), time.Since(began), i, j})
				done, tasks = done+int(p.GetDone()), tasks+int(p.GetTasks())
			}
		}
		if next := len(c.steps) + 1; c.Variant == cabStepped && next < len(cabSteps()) && float64(done) >= cabSteps()[next].from*float64(max(1, tasks)) {
			if err := c.budget(ctx, cabSteps()[next].cap); err != nil {
				c.Note("%v", err)
			}
			c.steps = append(c.steps, time.Since(began))
		}
	}
}

// figures are runtimes from the first map's start, the floors that were kept, and errors of finish times.
func (c *cabRun) figures(results []hadoop.Result, committed []*headroomv1.Job) experiment.Figures {
	f := experiment.Figures{}
	var first time.Time
	ends, mapEnds := make([]time.Time, len(results)), make([]time.Time, len(results))
	for i := range results {
		ends[i] = results[i].Finished
		for _, a := range results[i].History.Of("MAP", "SUCCEEDED") {
			if first.IsZero() || a.Started.Before(first) {
				first = a.Started
			}
			mapEnds[i] = later(mapEnds[i], a.Finished)
		}
	}
	for i, j := range cabJobs() {
		took := ends[i].Sub(first).Seconds()
		f["set_s"] = max(f["set_s"], took)
		f["jobs_s"] += took / float64(len(results))
		floor := containers.QueueFloors()[j.queue-1]
		if c.exact() {
			floor = 1
		}
		f["kept_"+j.name] = kept(results[i].History, committed[i], floor)
	}
	c.errors(f, ends, mapEnds)
	return f
}

// kept is how many map tasks a job has done over those that its floor needs; 0 where its counters and the
// coordinators' log differ in what was dropped.
func kept(h *jhist.History, committed *headroomv1.Job, floor float64) float64 {
	tasks := map[string]bool{}
	for _, a := range h.Of("MAP", "SUCCEEDED") {
		tasks[a.ID[:strings.LastIndexByte(a.ID, '_')]] = true
	}
	dropped, _ := h.Counters.Get("headroom.hadoop.EarlyStopCounter", "DROPPED_TASKS")
	recorded := 0
	for _, r := range committed.GetDropped() {
		recorded += int(r.GetLast()-r.GetFirst()) + 1
	}
	if recorded != int(dropped) || len(tasks)+recorded != cabMaps {
		return 0
	}
	return float64(len(tasks)) / float64(containers.MinTasks(cabMaps, floor))
}

// errors adds how far finish times were off: those that the coordinators expected against the paper's filter, which sees
// the same and models no reduce part; and in the window after the last step, filter and learned curve as they are and
// blind to power. None has seen an earlier run.
func (c *cabRun) errors(f experiment.Figures, ends, mapEnds []time.Time) {
	// Estimators are the filter, blind and not, and the learned curve, likewise.
	jobs, last := make([][4]*progress.Tracker, len(ends)), make([]time.Duration, len(ends))
	for i := range jobs {
		jobs[i] = [4]*progress.Tracker{
			progress.NewTracker(progress.Paper), progress.NewTracker(progress.Paper), progress.NewTracker(progress.Learned), progress.NewTracker(progress.Learned),
		}
	}
	for i := range c.looks {
		l := &c.looks[i]
		seen, known := observed(l.is)
		if !known || l.since-last[l.job] < sampling {
			continue
		}
		last[l.job] = l.since
		x, began, blind := jobs[l.job], l.at.Add(-seen.Elapsed), seen
		blind.Power = blind.Full
		off := func(t *progress.Tracker, o *progress.Observation, end time.Time) float64 {
			_ = t.Observe(*o) // what it refuses it passes over
			said := t.Finish(o.Power, o.Containers, float64(o.Tasks))
			if !said.Known {
				return math.NaN()
			}
			return miss(said.At, end.Sub(began))
		}
		end, mapEnd := ends[l.job], mapEnds[l.job]
		errs := []float64{off(x[0], &seen, mapEnd), off(x[1], &blind, mapEnd), off(x[2], &seen, end), off(x[3], &blind, end)}
		if l.is.GetProgress().GetPending() == 0 || math.IsNaN(errs[0]) {
			continue
		}
		if o := l.is.GetOutlook(); o.FinishS != nil {
			f["foreseen_ours"] += miss(time.Duration(o.GetFinishS()*float64(time.Second)), end.Sub(began))
			f["foreseen_filter"] += errs[0]
		}
		if n := len(c.steps); n > 0 && l.since >= c.steps[n-1] && l.since < c.steps[n-1]+stepWindow && !slices.ContainsFunc(errs, math.IsNaN) {
			for k, name := range []string{"step_filter", "step_filter_blind", "step_learned", "step_learned_blind"} {
				f[name] += errs[k]
			}
		}
	}
}

// miss is how far a time is from the true one, as a part of that.
func miss(said, truth time.Duration) float64 {
	return math.Abs(float64(said-truth)) / float64(truth)
}

// observed is a look at a job as an estimator takes it, without the master's container; known where its runtime and its
// cap are.
func observed(j *headroomv1.Job) (o progress.Observation, known bool) {
	p, share := j.GetProgress(), j.GetOutlook().GetCapShare()
	if p.RuntimeS == nil || share == 0 {
		return o, false
	}
	o = progress.Observation{
		Elapsed: time.Duration(p.GetRuntimeS() * float64(time.Second)), Tasks: int(p.GetTasks()), Done: int(p.GetDone()), Work: -1, Reduced: -1,
		Power: units.FromWatts(cluster.Rated().Watts() * share), Full: cluster.Rated(), Containers: float64(max(1, int(p.GetContainers())-1)),
		Phase: arbitration.PhaseOf(p.GetPhase()),
	}
	if p.Work != nil {
		o.Work = p.GetWork()
	}
	if p.Reduced != nil {
		o.Reduced = p.GetReduced()
	}
	return o, true
}
