package dias

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/buffers"
	"headroom/jobs/containers"
	"headroom/lab/cluster"
	"headroom/units"

	"headroom/lab/papers"
)

// A real run: for each policy a fresh site of one coordinator, the scheduler and emulated
// nodes with powerd and what runs tasks there, and the same jobs at the same times: word
// counts whose tasks really run, really slowed by caps. Nodes are capped below what they are
// rated, so that a sprint has something to give. What is measured is what the scheduler
// and the coordinator say.

// The shape of a real run.
const (
	realNodes = 2
	realSlots = 8 // of both nodes together
	realMaps  = 16
	// realHost is the part of the host's CPUs that the nodes own.
	realHost = 0.75
	// realJob is about how long a job takes on capped nodes with all tasks; realSpeed is
	// about how fast they are then, to size the tasks by. What came of it is measured.
	realJob   = 5 * time.Second
	realSpeed = 0.7
	realLoad  = 0.8
	realLow   = 0.7 // of the jobs are of the low class
	// realCap is the nodes' max over what they are rated, of engine local.
	realCap = 0.55
	// realSprintAfter is the sprint timer, of the high class.
	realSprintAfter = time.Second
	realTheta       = 20 // percent, of the low class
	realPatience    = 2 * time.Minute
)

// realContainers is the policy of the containers in a real run: the dispatcher alone is to
// drop and to sprint, and under policy joint the coordinators would, too. Under this one they
// grant sprints whose timers are due.
const realContainers = string(containers.Fair)

// realPolicies are those that are compared, P first.
func realPolicies() []buffers.Discipline {
	return []buffers.Discipline{buffers.P, buffers.NP, buffers.DA, buffers.NPS, buffers.DIAS}
}

// realEngine is what runs the tasks on a site's nodes, and what these compute.
type realEngine struct {
	// program is what the jobs compute, in a word.
	program string
	// job is about how long a job takes; it bounds a policy's run.
	job time.Duration
	// cap is the nodes' max over what they are rated.
	cap float64
	// sprintAfter is the sprint timer of the high class.
	sprintAfter time.Duration
	// workers is on how many nodes a worker of the scheduler runs.
	workers int
	// spec is the job file of a class; floor is the least part of its map tasks, in percent.
	spec func(class string, floor int) []byte
	// wrong is by how many percent the answer of a job that has ended misses the exact one;
	// nil where it is not asked.
	wrong func(id string) (float64, error)
	// begin starts on the nodes what else the tasks need, and says what the scheduler's
	// configuration has of it and what ends it.
	begin func(ctx context.Context, name string) (configuration string, end func() error, err error)
}

// realRun is one real run in progress.
type realRun struct {
	*papers.Real

	engine realEngine
	jobs   []arrival
	passes int
	// took is told what came of each policy as soon as it has ended; nil for none.
	took func(realResult) error
}

// realResult is one policy's, in one run of a program.
type realResult struct {
	program string
	round   int // from 1
	policy  buffers.Discipline
	jobs    []realEnded
	// killed and total are seconds of machine time, as the scheduler counts them.
	killed, total float64
}

// realEnded is one job: times in seconds, all of its runs counted.
type realEnded struct {
	class          int
	response, exec float64
	runs           int
	joules         *float64 // nil if them not measured
	theta          float64
	// sprints is how often it sprinted, spent what these sprints drew above the caps by the
	// nodes' counters, in joules.
	sprints int
	spent   float64
	wrong   *float64 // of its answer, percent; nil where nobody asked
}

// onLocal runs the jobs under every policy, and then those of Figs. 4 and 6.
func onLocal(ctx context.Context, o *options, progress io.Writer) (results []realResult, points []ratioPoint, err error) {
	r := &realRun{jobs: realTrace(o.Seed, cmp.Or(o.realJobs, realJobs))}
	r.engine = realEngine{program: wordsProgram, job: realJob, cap: realCap, sprintAfter: realSprintAfter, workers: realNodes, spec: r.spec, begin: nothingElse}
	if r.Real, err = newReal(o, progress, "local"); err != nil {
		return nil, nil, err
	}
	defer r.Remove()
	if err := r.makeInput(ctx); err != nil {
		return nil, nil, err
	}
	if results, err = r.policies(ctx, 1); err != nil {
		return nil, nil, err
	}
	if points, err = r.ratios(ctx); err != nil {
		return nil, nil, fmt.Errorf("jobs by drop ratio: %w", err)
	}
	return results, points, nil
}

// nothingElse is begun where the scheduler's workers run the tasks.
func nothingElse(context.Context, string) (string, func() error, error) {
	return "", func() error { return nil }, nil
}

// policies runs the jobs under every policy: every second round in the opposite order, so
// that what slowly changes on the machine strikes all of them alike.
func (r *realRun) policies(ctx context.Context, round int) (results []realResult, err error) {
	order := realPolicies()
	if round%2 == 0 {
		slices.Reverse(order)
	}
	for _, d := range order {
		one, err := r.policy(ctx, d, round)
		if err != nil {
			return nil, fmt.Errorf("%s, run %d, %s: %w", r.engine.program, round, d, err)
		}
		r.Note("%s, run %d, %s: mean response of high jobs %.1f s, of low ones %.1f s; %d sprints", r.engine.program, round, d, one.mean(high, response).Mean, one.mean(low, response).Mean, one.sprints())
		results = append(results, *one)
		if r.took == nil {
			continue
		}
		if err := r.took(*one); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// realTrace is when which jobs come: at the load that is meant, if they take realJob.
func realTrace(seed uint64, n int) []arrival {
	rate := realLoad / realJob.Seconds()
	return arrive(seed, 99, []class{{name: "high", rate: rate * (1 - realLow)}, {name: "low", rate: rate * realLow}}, n).jobs
}

// newReal is a real run on an engine, which may need further files beside the programs.
func newReal(o *options, progress io.Writer, engine string, more ...string) (*papers.Real, error) {
	files := append([]string{"coordinator", "scheduler", "powerd", "powerlab"}, more...)
	return papers.NewReal("dias", &o.Options, progress, engine, "build the programs with make build and the jars with make hooks", files...)
}

// makeInput writes the input of all jobs, and sizes a task so that a job takes about realJob.
func (r *realRun) makeInput(ctx context.Context) (err error) {
	if err := papers.WriteWords(r.Path("in"), realMaps, r.Seed); err != nil {
		return err
	}
	cpus := realHost * float64(numCPU()) * realSpeed
	r.passes, err = r.Passes(ctx, r.Path("in", "00.txt"), time.Duration(float64(realJob)*cpus/realMaps))
	return err
}

// spec is the job file of a class; floor is the least part of its map tasks, in percent.
func (r *realRun) spec(class string, floor int) []byte {
	return fmt.Appendf(nil, "name: words\nclass: %s\nslots: %d\nmin_tasks: %d%%\nmap:\n  input: %q\n  command: [%q, app, wordcount, --passes=%d, \"{input}\"]\noutput: %q\n",
		class, realSlots, floor, r.Path("in", "*.txt"), r.Program("powerlab"), r.passes, r.Path("out"))
}

// job is the job file of the i-th job that comes.
func (r *realRun) job(i int) []byte {
	if r.jobs[i].class == high {
		return r.engine.spec("high", 100)
	}
	return r.engine.spec("low", 100-realTheta)
}

// configuration is the scheduler's for a policy.
func configuration(d buffers.Discipline, sprintAfter time.Duration) string {
	return fmt.Sprintf("discipline: %s\nwidth: 1\nclasses:\n  - {name: high, sprint_after: %s}\n  - {name: low, theta: %d%%}\n", d, sprintAfter, realTheta)
}

// policy runs all jobs under one policy.
func (r *realRun) policy(ctx context.Context, d buffers.Discipline, round int) (out *realResult, err error) {
	name := fmt.Sprintf("%s-%d-%s", r.engine.program, round, d)
	err = r.onSite(ctx, name, configuration(d, r.engine.sprintAfter), func(ctx context.Context) error {
		r.Note("%s: %d jobs come", name, len(r.jobs))
		ctx, stop := context.WithTimeout(ctx, r.most())
		defer stop()
		out, err = r.run(ctx, d, round)
		return err
	})
	return out, err
}

// onSite does something on a fresh site with the engine, whose scheduler is configured so.
func (r *realRun) onSite(ctx context.Context, name, configuration string, do func(context.Context) error) error {
	return r.onNodes(ctx, name, func(ctx context.Context) (err error) {
		starting, cancel := context.WithTimeout(ctx, realPatience)
		defer cancel()
		more, end, err := r.engine.begin(starting, name)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		if err := r.Site.StartScheduler(configuration + more); err != nil {
			return err
		}
		if err := r.ready(starting); err != nil {
			return err
		}
		return do(ctx)
	})
}

// onNodes does something on a fresh site without a scheduler, once its nodes hold leases.
func (r *realRun) onNodes(ctx context.Context, name string, do func(context.Context) error) (err error) {
	if r.Site, err = cluster.NewSite(cluster.Config{Dir: r.Path("site-" + name), Bin: r.Folder, Coordinators: 1, Nodes: realNodes, Workers: r.engine.workers > 0, Weight: papers.RealWeight}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Site.Close(), r.KeepLogs(name, r.Site.Path("logs"))) }()
	r.Note("%s: starting a coordinator and %d nodes", name, realNodes)
	starting, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	if err := r.Site.Start(); err != nil {
		return err
	}
	if err := r.Await(starting, "the nodes hold no lease", r.capped(1)); err != nil {
		return err
	}
	return do(ctx)
}

// most is how long a policy may take: the jobs one after the other at half the speed, and a minute.
func (r *realRun) most() time.Duration {
	return time.Minute + r.jobs[len(r.jobs)-1].at + 3*r.engine.job*time.Duration(len(r.jobs))
}

// ready caps the nodes, gives the site joules for sprints, leaves drops and sprints to the
// dispatcher, and waits for nodes, scheduler and workers.
func (r *realRun) ready(ctx context.Context) error {
	most := int64(math.Round(cluster.Rated().Watts()*r.engine.cap)) * int64(units.Watt)
	for _, name := range r.Site.Nodes() {
		if err := r.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{
			SetNode: &headroomv1.SetNode{Node: name, Settings: &headroomv1.NodeSettings{MaxUw: &most}},
		}}); err != nil {
			return fmt.Errorf("dias: cap %s: %w", name, err)
		}
	}
	full := r.Site.Full()
	if err := r.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{
		SetSprintBudget: &headroomv1.SetSprintBudget{Domain: cluster.Domain, CapacityUj: int64(full) * 60, RefillUw: int64(full)},
	}}); err != nil {
		return fmt.Errorf("dias: sprint budget: %w", err)
	}
	if err := r.Change(ctx, reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: realContainers}}); err != nil {
		return fmt.Errorf("dias: container policy: %w", err)
	}
	return r.Await(ctx, "nodes, scheduler and workers are not ready", func(ctx context.Context) bool {
		return r.capped(r.engine.cap)(ctx) && r.Workers(ctx) == r.engine.workers
	})
}

// capped reports whether every node holds a cap of that part of what it is rated, within 2 %.
func (r *realRun) capped(part float64) func(context.Context) bool {
	return func(ctx context.Context) bool {
		held := 0
		for _, n := range r.Nodes(ctx) {
			if n.EffectiveUw != nil && math.Abs(min(float64(n.GetEffectiveUw()), float64(n.GetRatedUw()))/float64(n.GetRatedUw())/part-1) < 0.02 {
				held++
			}
		}
		return held == realNodes
	}
}

// reason is why the run makes its changes.
const reason = "the experiment"

// submit submits one job and gives back its id.
func (r *realRun) submit(ctx context.Context, spec []byte) (string, error) {
	return r.Submit(ctx, reason, r.Path("words.yaml"), spec)
}

// run submits the jobs as they come, and looks until all have ended.
func (r *realRun) run(ctx context.Context, d buffers.Discipline, round int) (*realResult, error) {
	w := newWatch(d, len(r.jobs))
	w.result.program, w.result.round = r.engine.program, round
	start, next := time.Now(), 0
	err := r.Await(ctx, "jobs have not ended", func(ctx context.Context) bool {
		for next < len(r.jobs) && time.Since(start) >= r.jobs[next].at && w.failed == nil {
			w.submitted[next] = time.Now()
			id, err := r.submit(ctx, r.job(next))
			if err != nil {
				w.failed = err
				return true
			}
			w.index[id] = next
			next++
		}
		if answer, err := r.List(ctx); err == nil {
			w.look(r.jobs, answer)
		}
		return w.failed != nil || w.done == len(r.jobs)
	})
	if err := errors.Join(err, w.failed); err != nil {
		return nil, err
	}
	return w.result, cmp.Or(r.energies(ctx, w), r.sprints(ctx, w), r.answers(w))
}

// energies asks what the jobs drew.
func (r *realRun) energies(ctx context.Context, w *watch) error {
	jobs, err := r.Jobs(ctx)
	for _, j := range jobs {
		if i, ok := w.index[j.GetId()]; ok && j.GetEnergy().GetMeasuredS() > 0 {
			w.result.jobs[i].joules = new(units.Energy(j.GetEnergy().GetUj()).Joules())
		}
	}
	return err
}

// settling is how long the nodes may take to tell what the last sprint drew.
const settling = 15 * time.Second

// sprints asks how often the jobs sprinted and what that drew, once all sprints are over.
func (r *realRun) sprints(ctx context.Context, w *watch) error {
	ctx, stop := context.WithTimeout(ctx, settling)
	defer stop()
	return r.Await(ctx, "sprints are not over", func(ctx context.Context) bool {
		records, err := r.Sprints(ctx)
		return err == nil && w.sprints(records)
	})
}

// answers asks how far the jobs' answers are from the exact one.
func (r *realRun) answers(w *watch) error {
	if r.engine.wrong == nil {
		return nil
	}
	for id, i := range w.index {
		x, err := r.engine.wrong(id)
		if err != nil {
			return fmt.Errorf("dias: answer of %s: %w", id, err)
		}
		w.result.jobs[i].wrong = &x
	}
	return nil
}

// watch is what was seen of a policy's jobs so far.
type watch struct {
	result           *realResult
	index            map[string]int // by job id
	submitted, began []time.Time
	ended            []bool
	done             int
	failed           error
}

func newWatch(d buffers.Discipline, jobs int) *watch {
	return &watch{
		result: &realResult{policy: d, jobs: make([]realEnded, jobs)}, index: map[string]int{},
		submitted: make([]time.Time, jobs), began: make([]time.Time, jobs), ended: make([]bool, jobs),
	}
}

// look takes in one look at the scheduler.
func (w *watch) look(jobs []arrival, l *headroomv1.ListResponse) {
	w.result.killed, w.result.total = l.GetDispatch().GetKilledS(), l.GetDispatch().GetTotalS()
	for _, run := range l.GetRuns() {
		if i, ok := w.index[run.GetId()]; ok && run.GetBeganUs() > 0 {
			w.began[i] = time.UnixMicro(run.GetBeganUs())
		}
	}
	for _, j := range l.GetJobs() {
		i, ok := w.index[j.GetId()]
		if !ok || w.ended[i] {
			continue
		}
		e := &w.result.jobs[i]
		e.class, e.runs, e.theta = jobs[i].class, int(j.GetProgress().GetRun()), max(e.theta, j.GetProgress().GetTheta(), j.GetDeflation().GetTheta())
		state := j.GetState()
		if state == headroomv1.JobState_JOB_STATE_FAILED || state == headroomv1.JobState_JOB_STATE_CANCELLED {
			w.failed = fmt.Errorf("dias: job %s: %s", j.GetId(), j.GetOutcome())
		}
		if state == headroomv1.JobState_JOB_STATE_DONE {
			w.ended[i] = true
			w.done++
			now := time.Now()
			e.response, e.exec = now.Sub(w.submitted[i]).Seconds(), now.Sub(w.began[i]).Seconds()
		}
	}
}

// sprints takes in the ledger's sprints, and reports whether those of the jobs are all over.
func (w *watch) sprints(records []*headroomv1.SprintRecord) bool {
	for i := range w.result.jobs {
		w.result.jobs[i].sprints, w.result.jobs[i].spent = 0, 0
	}
	over := true
	for _, p := range records {
		i, ok := w.index[p.GetJob()]
		if !ok {
			continue
		}
		w.result.jobs[i].sprints++
		w.result.jobs[i].spent += units.Energy(p.GetSpentUj()).Joules()
		over = over && p.GetState() == "closed"
	}
	return over
}
