package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/lab/cluster"
	"headroom/units"
)

// engine is a real cluster that runs the jobs, on the emulated nodes of the lab.
type engine interface {
	// about is its name and release.
	about() string
	// start starts the cluster's daemons on the nodes, which run.
	start(ctx context.Context, l *lab) error
	// scheduler is its part of scheduler.yaml, and the classes.
	scheduler() string
	// submit hands in the next job of a class.
	submit(ctx context.Context, l *lab, class string) error
	// queues are what its queues use and may use now, by its own word, highest class first.
	queues(ctx context.Context) ([]queueLook, error)
	// cancel ends a job.
	cancel(ctx context.Context, l *lab, id string) error
	// dropped is how many tasks a job that has ended well has dropped, by its own counters;
	// ok is false where they have none.
	dropped(ctx context.Context, l *lab, id string) (tasks int, ok bool, err error)
	// try are commands and pages to try while it runs.
	try(l *lab) []string
	// close ends its processes.
	close() error
	// logs is the folder of its daemons' logs.
	logs() string
}

// queueLook is one queue, or one class where the engine has no queues, at one moment.
type queueLook struct {
	name string
	// used are the containers that it has, share those that it may have; nil for no bound.
	used  int
	share *int
}

// Nodes of a run with an engine: as few as moves between nodes can be seen on.
const engineNodes = 2

// engineWeight keeps for the nodes the CPUs that they own, whatever else the host does: a real
// cluster gives up what does not answer.
const engineWeight = 50

// Joules that the nodes may draw above their caps in a run with an engine.
const (
	sprintJoules = 6000
	sprintRefill = 10 // watts
)

// engineMost is the most that a node is given in a run with an engine, as a part of what it is
// rated: a node with all the watts that it is rated for cannot sprint, and neither can any
// where the caps leave nothing of the site's budget.
const engineMost = 0.7

// engineStart bounds the start of the real cluster and of the first job.
const engineStart = 4 * time.Minute

// newEngine finds what the engine needs; nothing is started yet.
func newEngine(ctx context.Context, opts options, dir string, note func(string, ...any)) (engine, error) {
	hook := map[string]string{engineYARN: "headroom-hadoop.jar", engineSpark: "headroom-spark.jar"}[opts.engine]
	apps := map[string]string{engineYARN: "headroom-apps.jar", engineSpark: "headroom-spark-apps.jar"}[opts.engine]
	for _, jar := range []string{hook, apps} {
		if _, err := os.Stat(filepath.Join(opts.bin, jar)); err != nil {
			return nil, cli.Failed("build it with make hooks (sh lab/test/install.sh installs Maven and a JDK), or set its folder with --bin",
				"--engine %s needs %s in %s: %w", opts.engine, jar, opts.bin, err)
		}
	}
	if _, err := cluster.Java(); err != nil {
		return nil, unavailable(opts.engine, err)
	}
	if opts.engine == engineSpark {
		return newSparkEngine(ctx, opts, dir, note)
	}
	return newYARNEngine(ctx, opts, dir, note)
}

// unavailable is the error of a machine that lacks what an engine needs.
func unavailable(name string, err error) error {
	return cli.Failed("install JDK, Maven and Python with sh lab/test/install.sh; the release is then downloaded to the user's cache. Without --engine none of this is needed",
		"--engine %s: %w", name, err)
}

// engineShow is one demo on a real cluster with all its parts.
type engineShow struct {
	*show

	engine engine
	name   string
	looks  *lookBook
	steps  []stepSeen
	end    time.Duration // of the story: then the jobs that are left are cancelled
	settle []float64     // seconds from the commit of a cut to a read-back, one a lowered node
	// dropped holds the values of the jobs' own counters, by the id of the job.
	dropped map[string]int
	// moves are the decisions about each job.
	moves map[string][]*headroomv1.JobMove
}

// runEngine is the whole demo on a real cluster.
func runEngine(ctx context.Context, opts options, out, progress io.Writer) (err error) {
	note := func(format string, args ...any) { cli.Notef(progress, format, args...) }
	scratch, err := os.MkdirTemp("", "headroom-demo-")
	if err != nil {
		return fmt.Errorf("demo: folder of the cluster: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	eng, err := newEngine(ctx, opts, filepath.Join(scratch, opts.engine), note)
	if err != nil {
		return err
	}
	if err := prepareOut(opts.out); err != nil {
		return err
	}
	l, err := newLab(opts, opts.out, opts.bin)
	if err != nil {
		return err
	}
	defer func() {
		note("stopping everything that was started")
		err = errors.Join(err, eng.close(), l.stop(), keepLogs(l.path("logs", opts.engine), eng.logs()))
	}()
	table, err := createCSV(l.path("power.csv"), l.nodes)
	if err != nil {
		return err
	}
	defer func() { _ = table.close() }() // every row is on disk already
	d := assembleEngine(l, eng, opts, out)
	d.sampler.csv = table
	if err := d.start(ctx, note); err != nil {
		return err
	}
	revived := func(name string) { d.tracker.note(d.tracker.now(), eventRevived, name) }
	l.fleet.revived.Store(&revived) // from now on a crash is survived
	err = d.play(ctx)
	if opts.keep && (err == nil || errors.Is(err, errBroken)) {
		d.keep(ctx)
	}
	return err
}

// keepLogs copies the logs of the real cluster's daemons into the output folder.
func keepLogs(to, from string) error {
	if _, err := os.Stat(from); err != nil {
		return nil // it came to nothing
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("demo: keep the logs: %w", err)
	}
	return nil
}

func assembleEngine(l *lab, eng engine, opts options, out io.Writer) *engineShow {
	b := newBoard(l.full())
	c := newClient(l.addresses(), l.scheduler)
	d := &engineShow{
		show:   &show{lab: l, tracker: b, out: out, opts: opts},
		engine: eng, name: opts.engine, looks: newLookBook(), dropped: map[string]int{}, moves: map[string][]*headroomv1.JobMove{},
	}
	d.sampler = &sampler{tracker: b, client: c, nodes: l.nodeViews(), list: c.committed, energy: map[string]float64{}}
	d.screen = &screen{out: cli.Raw(out), terminal: cli.IsTerminal(out), tracker: b, nodes: l.nodes, rated: l.spec.Rated(), engine: d.looks.lines}
	d.story = &story{lab: l, tracker: b, client: c, nodes: l.nodeViews(), say: func(string, ...any) {}}
	return d
}

// start starts the coordinators, the nodes, the real cluster on them, the scheduler, and the
// first jobs; it returns when tasks run.
func (d *engineShow) start(ctx context.Context, note func(string, ...any)) error {
	note("starting %d coordinators and %d emulated nodes", servers, len(d.lab.nodes))
	if err := errors.Join(d.lab.startMembers(), d.lab.startNodes()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, engineStart)
	defer cancel()
	err := d.await(ctx, "every node holds a lease", func() bool {
		nodes, _, err := d.story.client.nodes(ctx)
		return err == nil && leased(nodes) == len(d.lab.nodes)
	})
	if err != nil {
		return err
	}
	note("starting %s on the nodes", d.engine.about())
	if err := d.engine.start(ctx, d.lab); err != nil {
		return err
	}
	if err := d.lab.startScheduler(d.engine.scheduler()); err != nil {
		return err
	}
	if err := d.leaveRoom(ctx); err != nil {
		return err
	}
	note("submitting the first jobs; t = 0 is when their tasks run")
	failed := make([]error, len(firstJobs()))
	var clients sync.WaitGroup
	for i, class := range firstJobs() {
		clients.Go(func() { failed[i] = d.engine.submit(ctx, d.lab, class) })
	}
	clients.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return d.await(ctx, "a task runs", func() bool {
		jobs, err := d.story.client.committed(ctx)
		d.tracker.setJobs(jobs)
		return err == nil && loadOf(jobs, classLow).running+loadOf(jobs, classHigh).running > 0
	})
}

// leaveRoom keeps the nodes below what they are rated, so that there are watts for sprints,
// and fills the budget of joules, which begins with nothing and is then refilled slowly.
func (d *engineShow) leaveRoom(ctx context.Context) error {
	c, full := d.story.client, units.FromJoules(sprintJoules)
	for _, name := range d.lab.nodes {
		if err := c.setMost(ctx, name, d.lab.most()); err != nil {
			return err
		}
	}
	if err := c.setSprintBudget(ctx, full, units.Power(full)); err != nil {
		return err
	}
	err := d.await(ctx, "the joules for sprints are there", func() bool {
		s, _, err := c.site(ctx)
		return err == nil && filled(s)
	})
	if err != nil {
		return err
	}
	return c.setSprintBudget(ctx, full, units.FromWatts(sprintRefill))
}

// filled reports whether a domain's budget for sprints holds as much as it can.
func filled(d *headroomv1.Domain) bool {
	held := int64(0)
	for _, pot := range d.GetSprint().GetPots() {
		held += pot.GetBalanceUj()
	}
	return d.GetSprint() != nil && held >= d.GetSprint().GetCapacityUj()
}

// await looks until done, a program of the lab has ended, or ctx ends.
func (d *engineShow) await(ctx context.Context, what string, done func() bool) error {
	for !done() {
		select {
		case err := <-d.lab.fleet.ended:
			return err
		default:
		}
		if !pause.For(ctx, againAfter) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return cli.Failed("see the logs in "+d.lab.path("logs"), "timed out after %v: %s", engineStart, what)
			}
			return ctx.Err()
		}
	}
	return nil
}

// play lets the story happen and judges it.
func (d *engineShow) play(ctx context.Context) error {
	w, ctx := newWatchers(ctx)
	defer w.end()
	d.story.run = d.opts.length
	d.begin()
	w.fail(d.ended)
	w.running.Go(func() { d.sampler.watchJobs(ctx) })
	w.running.Go(func() { d.sampler.watchNodes(ctx) })
	w.running.Go(func() { d.watchEngine(ctx) })
	w.running.Go(func() { d.screen.show(ctx) })
	w.fail(d.sampler.sample)
	submitting, over := context.WithCancel(ctx)
	defer over()
	var clients sync.WaitGroup
	err := because(ctx, d.tell(ctx, func(class string) {
		clients.Go(func() {
			if err := d.engine.submit(submitting, d.lab, class); err != nil && submitting.Err() == nil {
				w.cancel(err)
			}
		})
	}))
	d.end = d.tracker.now()
	over()
	clients.Wait()
	if errors.Is(err, context.Canceled) {
		return err
	}
	d.settleJobs(ctx)
	w.end()
	return d.verdict(err)
}

// keep leaves everything running until ctx ends.
func (d *engineShow) keep(ctx context.Context) {
	coordinator, scheduler := filepath.Join(d.lab.bin, "coordinator"), filepath.Join(d.lab.bin, "scheduler")
	lines := []string{
		"", fmt.Sprintf("%s, %d emulated nodes, %d coordinators and a scheduler are running until Ctrl-C. Try:", d.engine.about(), len(d.lab.nodes), servers),
		"  export HEADROOM_ADDR=" + strings.Join(d.lab.addresses(), ","),
		"  " + coordinator + " status --watch",
		"  " + coordinator + " job list",
		"  " + coordinator + " job explain JOB",
		fmt.Sprintf("  %s budget set %.0fW --reason \"trying it\"", coordinator, d.lab.cut().Watts()),
		"  " + coordinator + " sprint list",
		"  " + scheduler + " list --addr " + d.lab.scheduler,
	}
	for _, text := range d.engine.try(d.lab) {
		lines = append(lines, "  "+text)
	}
	_, _ = fmt.Fprintln(d.out, strings.Join(lines, "\n"))
	again := func(name string) { _, _ = fmt.Fprintf(d.out, "%s exited and was started again\n", name) }
	d.lab.fleet.revived.Store(&again)
	select {
	case <-ctx.Done():
	case err := <-d.lab.fleet.ended:
		_, _ = fmt.Fprintln(d.out, "a program exited unexpectedly:", err)
	}
}

// endMost bounds the wait for jobs that were cancelled, askMost the queries to those that
// have ended; cancelEvery is how often what lives on is cancelled again.
const (
	endMost     = 45 * time.Second
	askMost     = 20 * time.Second
	cancelEvery = time.Second
)

// settleJobs cancels the jobs that have not ended when the time is over, takes a last look
// at all, and queries the drops of those that ended and the coordinators' reasons.
func (d *engineShow) settleJobs(ctx context.Context) {
	d.cancelLive(ctx)
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	for _, j := range d.tracker.jobList() {
		if moves, err := d.story.client.moves(ctx, j.GetId()); err == nil {
			d.moves[j.GetId()] = moves
		}
		if j.GetState() != headroomv1.JobState_JOB_STATE_DONE {
			continue
		}
		if n, ok, err := d.engine.dropped(ctx, d.lab, j.GetId()); ok && err == nil {
			d.dropped[j.GetId()] = n
		}
	}
}

// cancelLive cancels jobs until none lives; the verdict names one that lives on all the same.
func (d *engineShow) cancelLive(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endMost)
	defer cancel()
	for {
		jobs, err := d.story.client.committed(ctx)
		if err == nil {
			d.tracker.setJobs(jobs)
		}
		if err == nil && loadOf(jobs, classLow).jobs+loadOf(jobs, classHigh).jobs == 0 {
			return
		}
		for _, j := range jobs {
			if live(j) {
				_ = d.engine.cancel(ctx, d.lab, j.GetId()) // tried again
			}
		}
		if !pause.For(ctx, cancelEvery) {
			return
		}
	}
}

// droppedTasks are the tasks that a job gave up, as committed or, where its engine does not
// name them, as it reports.
func droppedTasks(j *headroomv1.Job) int {
	n := 0
	for _, r := range j.GetDropped() {
		n += int(r.GetLast()-r.GetFirst()) + 1
	}
	return cmp.Or(n, int(j.GetProgress().GetDropped()))
}

// most is the most that a node is given in a run with an engine.
func (l *lab) most() units.Power {
	return units.FromWatts(math.Round(math.Ceil(l.spec.Rated().Watts()) * engineMost))
}
