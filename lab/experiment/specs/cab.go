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
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/arbitration"
	"headroom/internal/pause"
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

// cabSteps are budgets, each from when a part of all maps is done: the paper's caps on its server.
func cabSteps() []struct{ cap, from float64 } {
	return []struct{ cap, from float64 }{{250. / 350, 0}, {200. / 350, 0.2}, {175. / 350, 0.45}}
}

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
	ratio := func(id, what, variant, above, below string, met experiment.Aim) {
		s.Claims = append(s.Claims, experiment.Claim{ID: id, What: what, Value: experiment.Ratio(variant, above, below), Met: met, Order: experiment.Mean(report.Below(1))})
	}
	for _, x := range []struct{ id, what, figure string }{{"Y1", "runtime of the set", "set_s"}, {"Y1/jobs", "runtime of a job, mean", "jobs_s"}} {
		s.Claims = append(s.Claims, experiment.Claim{
			ID: x.id, What: x.what + ": how much of the cap's impact goes away", Unit: "%",
			Value: func(p experiment.Pair) float64 {
				held, mine := experiment.Change(x.figure, cabCapped, cabUncapped)(p)/100, experiment.Change(x.figure, cabOurs, cabUncapped)(p)/100
				if held < impactMin {
					return math.NaN()
				}
				return 100 * (1 - mine/held)
			},
			Met: experiment.Aim{Mean: report.AtLeast(impactDown), Bounds: report.Above(impactBound)}, Order: experiment.Within(report.Above(0)),
		})
	}
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
	below := experiment.Within(report.Below(1))
	ratio("Y3", "error of finish times in the capped run: ours over the paper's filter", cabCapped, "foreseen_ours", "foreseen_filter", experiment.Mean(report.Below(errorRatio)))
	ratio("D10/yarn", "eq. (1) after a step of the budget: error of finish times, with its power term over without", cabStepped, "step_filter", "step_filter_blind", below)
	ratio("D10/yarn-learned", "the learned curve after a step: error of finish times, with power over blind to it", cabStepped, "step_learned", "step_learned_blind", below)
	return []*experiment.Spec{s}
}

type cabRun struct {
	*harness.Lab

	hadoop *hadoop.Cluster
	hooks  hadoop.Hooks
	jobs   []*hadoop.RunningJob
	looks  []cabLook
	steps  []time.Duration // when the budget stepped, since the maps began
	// known are the jobs in the coordinators' log, results those of Hadoop.
	known   []*headroomv1.Job
	results []hadoop.Result
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
	defer func() {
		if c.hadoop != nil {
			err = errors.Join(err, c.hadoop.Close())
		}
	}()
	for _, step := range []func(context.Context) error{c.start, c.submit, c.hold, c.follow, c.end} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return c.figures(), nil
}

// cabQueues are the queues of Table I and their twins that guarantee all tasks. Gated, they take the application
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
	if err := c.Site.StartScheduler(harness.YARNSection(c.hadoop.RM(), c.hooks.Address, queues.String())); err != nil {
		return err
	}
	c.Note("warming up")
	ended, err := c.hadoop.Run(ctx, c.hadoop.Sleep("e1", cabNodes*cabSlots, time.Millisecond))
	if err == nil && !ended.Succeeded() {
		err = fmt.Errorf("cab: warm-up job: final state %s: %s", ended.FinalStatus, ended.Diagnostics)
	}
	return err
}

// exact reports whether the variant's jobs are in queues that guarantee all tasks.
func (c *cabRun) exact() bool { return c.Variant != cabOurs }

func (c *cabRun) job(j cabJob) hadoop.Job {
	out, jar := c.Path("out", j.name), c.Program(harness.JarHadoopApps)
	job := map[string]hadoop.Job{
		"pi":        {Jar: jar, Args: []string{strconv.Itoa(cabMaps), strconv.Itoa(cabPoints), out}},
		"wordcount": {Args: []string{c.Path("in"), out}},
		"topn":      {Jar: jar, Args: []string{c.Path("in"), out, strconv.Itoa(cabTop)}},
	}[j.name]
	job.Program, job.Queue = j.name, fmt.Sprint("q", j.queue)
	if c.exact() {
		job.Queue = fmt.Sprint("e", j.queue)
	}
	return c.hooks.Into(job)
}

// submit submits the set and returns when the application masters of all its jobs answer, each on a node of its own.
func (c *cabRun) submit(ctx context.Context) error {
	if err := errors.Join(c.hadoop.SetQueues(ctx, cabQueues(true)), c.hadoop.Offer(ctx, 1, harness.YARNUnit)); err != nil {
		return err
	}
	for _, j := range cabJobs() {
		running, err := c.hadoop.Submit(ctx, c.job(j))
		if err != nil {
			return err
		}
		c.jobs = append(c.jobs, running)
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

// follow keeps what the coordinators expect of the jobs, each second, and steps the budget, until they have committed the jobs' ends.
func (c *cabRun) follow(ctx context.Context) error {
	began := time.Now()
	c.known = make([]*headroomv1.Job, len(c.jobs))
	for over := false; !over; {
		if err := errors.Join(c.Site.Running(), ctx.Err()); err != nil {
			return fmt.Errorf("cab: the jobs' ends are not committed: %w", err)
		}
		pause.For(ctx, time.Second)
		all, err := c.Jobs(ctx)
		if err != nil {
			continue // the next look is near
		}
		over = true
		done, tasks := 0, 0
		for i := range c.jobs {
			if k := slices.IndexFunc(all, func(j *headroomv1.Job) bool { return j.GetId() == c.jobs[i].ID }); k >= 0 {
				c.known[i] = all[k]
			}
			j := c.known[i]
			over = over && j.GetState() >= headroomv1.JobState_JOB_STATE_DONE
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
	return nil
}

func (c *cabRun) end(ctx context.Context) error {
	for i, j := range c.jobs {
		r, err := j.Wait(ctx)
		if err == nil && (!r.Succeeded() || r.History == nil) {
			err = fmt.Errorf("cab: %s: final state %s: %s", cabJobs()[i].name, r.FinalStatus, r.Diagnostics)
		}
		if err != nil {
			return err
		}
		c.results = append(c.results, r)
	}
	return nil
}

// figures are runtimes from the first map's start, the floors that were kept, and errors of finish times.
func (c *cabRun) figures() experiment.Figures {
	f := experiment.Figures{}
	var first time.Time
	mapEnds := make([]time.Time, len(c.results))
	for i := range c.results {
		for _, a := range c.results[i].History.Of("MAP", "SUCCEEDED") {
			if first.IsZero() || a.Started.Before(first) {
				first = a.Started
			}
			mapEnds[i] = later(mapEnds[i], a.Finished)
		}
	}
	for i, j := range cabJobs() {
		took := c.results[i].Finished.Sub(first).Seconds()
		f["set_s"] = max(f["set_s"], took)
		f["jobs_s"] += took / float64(len(c.results))
		floor := containers.QueueFloors()[j.queue-1]
		if c.exact() {
			floor = 1
		}
		f["kept_"+j.name] = kept(c.results[i].History, c.known[i], floor)
	}
	c.errors(f, mapEnds)
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

// errors adds how far finish times were off: those that the coordinators expected against the paper's filter, which sees the same; and
// in the window after the last step, filter and learned curve as they are and blind to power. None has seen an earlier run.
func (c *cabRun) errors(f experiment.Figures, mapEnds []time.Time) {
	names := []string{"step_filter", "step_filter_blind", "step_learned", "step_learned_blind"}
	trackers, last := make([][4]*progress.Tracker, len(c.jobs)), make([]time.Duration, len(c.jobs))
	for i := range trackers {
		for k, policy := range []progress.Policy{progress.Paper, progress.Paper, progress.Learned, progress.Learned} {
			trackers[i][k] = progress.NewTracker(policy)
		}
	}
	for i := range c.looks {
		l := &c.looks[i]
		seen, known := observed(l.is)
		if !known || l.since-last[l.job] < sampling {
			continue
		}
		last[l.job] = l.since
		began, blind := l.at.Add(-seen.Elapsed), seen
		blind.Power = blind.Full
		var errs [4]float64
		for k, t := range trackers[l.job] {
			o, end := seen, c.results[l.job].Finished
			if k%2 == 1 {
				o = blind
			}
			if k < 2 {
				end = mapEnds[l.job] // the filter models no reduce part
			}
			_ = t.Observe(o) // what it refuses it passes over
			errs[k] = math.NaN()
			if is := t.Finish(o.Power, o.Containers, float64(o.Tasks)); is.Known {
				errs[k] = miss(is.At, end.Sub(began))
			}
		}
		if l.is.GetProgress().GetPending() == 0 || math.IsNaN(errs[0]) {
			continue
		}
		if o := l.is.GetOutlook(); o.FinishS != nil {
			f["foreseen_ours"] += miss(time.Duration(o.GetFinishS()*float64(time.Second)), c.results[l.job].Finished.Sub(began))
			f["foreseen_filter"] += errs[0]
		}
		if n := len(c.steps); n > 0 && l.since >= c.steps[n-1] && l.since < c.steps[n-1]+stepWindow && !slices.ContainsFunc(errs[:], math.IsNaN) {
			for k, name := range names {
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
	return o, p.RuntimeS != nil && share > 0
}
