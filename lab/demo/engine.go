package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/spark"
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
	submit(ctx context.Context, class string) error
	// queues are what its queues use and may use now, by its own word, highest class first.
	queues(ctx context.Context) ([]queueLook, error)
	// cancel ends a job.
	cancel(ctx context.Context, id string) error
	// dropped is how many tasks a job that has ended well has dropped, by its own counters;
	// ok is false where they have none.
	dropped(ctx context.Context, id string) (tasks int, ok bool, err error)
	// try are commands and pages to try while it runs.
	try() []string
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
	for _, jar := range map[string][]string{engineYARN: {yarnHook, yarnApps}, engineSpark: {sparkHook, sparkApps}}[opts.engine] {
		if _, err := os.Stat(filepath.Join(opts.bin, jar)); err != nil {
			return nil, cli.Failed("build it with make hooks (sh lab/test/install.sh installs Maven and a JDK), or set its folder with --bin",
				"--engine %s needs %s in %s: %w", opts.engine, jar, opts.bin, err)
		}
	}
	base := &engineBase{bin: opts.bin, dir: dir, made: map[string]int{}}
	var eng engine
	_, err := cluster.Java()
	lacking := err != nil
	switch {
	case lacking:
	case opts.engine == engineSpark:
		eng, err = newSparkEngine(ctx, base, note)
		lacking = errors.Is(err, spark.ErrUnavailable)
	default:
		eng, err = newYARNEngine(ctx, base, note)
		lacking = errors.Is(err, hadoop.ErrUnavailable)
	}
	if lacking {
		return nil, cli.Failed("install JDK, Maven and Python with sh lab/test/install.sh; the release is then downloaded to the user's cache. "+
			"Without --engine none of this is needed", "--engine %s: %w", opts.engine, err)
	}
	return eng, err
}

// engineBase is what both engines have.
type engineBase struct {
	bin, dir string
	lab      *lab // from the start on
	mu       sync.Mutex
	made     map[string]int // jobs by class
}

func (b *engineBase) jar(name string) string { return filepath.Join(b.bin, name) }

// next is the name of the next job of a class.
func (b *engineBase) next(class string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[class]++
	return fmt.Sprintf("%s-%d", class, b.made[class])
}

// on makes the command lines of programs on a node.
func (b *engineBase) on(node string) func(argv []string) []string {
	return cluster.OnNode(b.jar("powerlab"), b.lab.servers.NodeDir(), node)
}

func (b *engineBase) logs() string { return filepath.Join(b.dir, "logs") }

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

// startEngine starts the coordinators, the nodes, the real cluster on them, the scheduler, and the
// first jobs; it returns when tasks run.
func (d *show) startEngine(ctx context.Context, w *watchers) error {
	d.note("starting %d coordinators and %d emulated nodes", servers, len(d.lab.nodes))
	if err := errors.Join(d.lab.startMembers(), d.lab.startNodes()); err != nil {
		return err
	}
	w.add(d.sampler.watchJobs)
	ctx, cancel := context.WithTimeout(ctx, engineStart)
	defer cancel()
	if err := d.story.ready(ctx, engineStart, false); err != nil {
		return err
	}
	d.note("starting %s on the nodes", d.engine.about())
	if err := d.engine.start(ctx, d.lab); err != nil {
		return err
	}
	if err := d.lab.startScheduler(d.engine.scheduler()); err != nil {
		return err
	}
	if err := d.leaveRoom(ctx); err != nil {
		return err
	}
	d.note("submitting the first jobs; t = 0 is when their tasks run")
	failed := make([]error, len(firstJobs()))
	var clients sync.WaitGroup
	for i, class := range firstJobs() {
		clients.Go(func() { failed[i] = d.engine.submit(ctx, class) })
	}
	clients.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return d.story.ready(ctx, engineStart, true)
}

// leaveRoom keeps the nodes below what they are rated, so that there are watts for sprints,
// and fills the budget of joules, which begins with nothing and is then refilled slowly.
func (d *show) leaveRoom(ctx context.Context) error {
	c, full := d.lab.client, units.FromJoules(sprintJoules)
	for _, name := range d.lab.nodes {
		if err := c.setMost(ctx, name, d.lab.most()); err != nil {
			return err
		}
	}
	if err := c.setSprintBudget(ctx, full, units.Power(full)); err != nil {
		return err
	}
	if !await(ctx, engineStart, func() bool {
		s, _, err := c.site(ctx)
		return err == nil && filled(s)
	}) {
		return d.story.late(ctx, engineStart, "the joules for sprints are not there")
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

// tellEngine plays the story on a real cluster; jobs that are not submitted at its end never are.
func (d *show) tellEngine(ctx context.Context, w *watchers) error {
	w.add(d.watchEngine)
	submitting, over := context.WithCancel(ctx)
	defer over()
	var clients sync.WaitGroup
	err := d.story.tellActs(ctx, func(class string) {
		clients.Go(func() {
			if err := d.engine.submit(submitting, class); err != nil && submitting.Err() == nil {
				w.cancel(err)
			}
		})
	})
	over()
	clients.Wait()
	return err
}

// keep leaves everything running until ctx ends.
func (d *show) keep(ctx context.Context) {
	d.say("%s\n  %s", d.lab.try("with "+d.engine.about()+" until Ctrl-C", "coordinator job list", "coordinator job explain JOB", "coordinator sprint list",
		"scheduler list --addr "+d.lab.scheduler), strings.Join(d.engine.try(), "\n  "))
	again := func(name string) { d.say("%s exited and was started again", name) }
	d.lab.fleet.revived.Store(&again)
	if err := d.ended(ctx); err != nil {
		d.say("a program exited unexpectedly: %v", err)
	}
}

// askMost bounds the queries to the jobs that have ended.
const askMost = 20 * time.Second

// jobAnswers are what is known of a job at the end: the decisions about it, and the tasks that it has
// dropped by its own counters, nil where they have none.
type jobAnswers struct {
	moves   []*headroomv1.JobMove
	dropped *int
}

// askJobs queries the drops of the jobs that ended well and the coordinators' reasons.
func (d *show) askJobs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	d.answers = map[string]jobAnswers{}
	for _, j := range d.tracker.jobList() {
		var a jobAnswers
		a.moves, _ = d.lab.client.moves(ctx, j.GetId()) // none if they are not known
		if j.GetState() == headroomv1.JobState_JOB_STATE_DONE {
			if n, ok, err := d.engine.dropped(ctx, j.GetId()); ok && err == nil {
				a.dropped = &n
			}
		}
		d.answers[j.GetId()] = a
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
	return units.FromWatts(math.Round(cluster.Rated().Watts() * engineMost))
}
