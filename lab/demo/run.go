package demo

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/lab/cluster"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
)

// errBroken means that the run broke a promise or did not come to its end.
var errBroken = errors.New("demo: a guarantee was broken")

// show is one demo with all its parts.
type show struct {
	opts    options
	out     io.Writer
	setup   *harness.Setup
	lab     *harness.Lab
	nodes   []nodeFiles
	rand    *rand.Rand
	tracker *tracker
	looks   lookBook
	made    map[string]int // jobs by class; the tracker is locked
	raised  atomic.Bool    // the last step of the budget was made
	// beside runs a function beside the story until that ends; its error ends the story.
	beside func(func(context.Context) error)

	// What the story measured itself.
	settle            []float64 // seconds from commit to read-back, one a lowered node
	failover, readopt *float64
	steps             []stepSeen
	killed            string        // the coordinator that was killed
	revived           int           // programs that were started again
	end               time.Duration // of the story: then the jobs that are left are cancelled
}

// run is the whole demo.
func run(ctx context.Context, opts options, out, progress io.Writer) (err error) {
	d := &show{
		opts: opts, out: out, setup: opts.setup(), rand: rand.New(rand.NewPCG(opts.seed, 0)), made: map[string]int{},
		looks: lookBook{sprinted: map[string]bool{}},
	}
	if err := prepareOut(opts.out); err != nil {
		return err
	}
	note := func(format string, args ...any) { cli.Notef(progress, format, args...) }
	d.lab, err = harness.Start(ctx, &experiment.Run{Dir: opts.out, Bin: opts.bin, Seed: opts.seed, Note: note}, d.setup)
	if errors.Is(err, unix.ENOSPC) {
		return cli.Failed("free some space, or use a folder on another disk with --out", "%w", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		note("stopping all processes")
		err = errors.Join(err, d.lab.Close())
	}()
	d.tracker = newTracker(d.lab.Site.Full())
	d.steps = []stepSeen{{0, d.lab.Site.Full()}}
	for _, name := range d.lab.Site.Nodes() {
		d.nodes = append(d.nodes, nodeFiles{name: name, dir: d.lab.Path("nodes", name), rated: cluster.Rated()})
	}
	err = d.play(ctx)
	if opts.keep && (err == nil || errors.Is(err, errBroken)) {
		err = errors.Join(err, d.keep(ctx))
	}
	return err
}

func (d *show) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

// play puts the load on the cluster, lets the story happen, and judges it.
func (d *show) play(outer context.Context) error {
	file, err := os.Create(d.lab.Path("power.csv"))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = file.Close() }() // every row is on disk already
	rows := csv.NewWriter(file)
	_ = rows.Write(columns(d.lab.Site.Nodes())) // with the first row
	ctx, cancel := context.WithCancel(outer)
	failed := make(chan error, 1)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	d.beside = func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				select {
				case failed <- err:
				default: // the first one counts
				}
				cancel()
			}
		})
	}
	d.beside(d.watch)
	if err = d.begin(ctx); err == nil {
		d.beside(d.print)
		d.beside(func(ctx context.Context) error { return d.sample(ctx, rows) })
		err = d.tell(ctx)
	}
	d.end = d.tracker.now()
	if outer.Err() != nil {
		return outer.Err()
	}
	if ctx.Err() == nil {
		d.cancelLive(ctx)
	}
	cancel()
	running.Wait()
	select {
	case err = <-failed:
	default:
	}
	return d.verdict(outer, err)
}

// begin submits the first jobs, and returns when tasks run: t = 0.
func (d *show) begin(ctx context.Context) error {
	if d.opts.engine == engineLocal {
		d.beside(d.feed)
	} else {
		if err := d.fillSprints(ctx); err != nil {
			return err
		}
		for range 2 {
			d.beside(func(ctx context.Context) error { return d.submit(ctx, classLow) })
		}
	}
	bounded, cancel := context.WithTimeout(ctx, startMost)
	defer cancel()
	if err := d.lab.Await(bounded, "no tasks run", func(context.Context) bool { return loadOf(d.tracker.jobList(), "").running > 0 }); err != nil {
		return err
	}
	v, err := d.nodes[0].plant(time.Now())
	if err != nil {
		return err
	}
	words := map[string]string{"cgroup": "a cgroup each (CPU bandwidth)", "signals": "signals (SIGSTOP and SIGCONT)"}
	d.say("every node is admitted and tasks are running: t = 0. Node processes are slowed down by %s; file trees are %s (values only)",
		cmp.Or(words[v.ThrottledBy], v.ThrottledBy), v.Tree)
	d.tracker.locked(func() { d.tracker.zero = time.Now() })
	return nil
}

// endMost bounds the wait for jobs that were cancelled; cancelEvery is how often what lives on
// is cancelled again.
const (
	endMost     = 45 * time.Second
	cancelEvery = time.Second
)

// cancelLive cancels the jobs that have not ended when the time is over, until none lives; the
// verdict names one that lives on all the same. It takes a last look at them all.
func (d *show) cancelLive(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endMost)
	defer cancel()
	for {
		jobs, err := d.list(ctx)
		if err == nil {
			d.tracker.setJobs(jobs)
		}
		if err == nil && loadOf(jobs, "").jobs == 0 {
			return
		}
		for _, j := range jobs {
			if live(j) {
				_ = d.lab.Engine.Cancel(ctx, j.GetId()) // tried again
			}
		}
		if !pause.For(ctx, cancelEvery) {
			return
		}
	}
}

// verdict writes the results and reports whether a promise was broken; err is why
// the story did not come to its end, if it did not.
func (d *show) verdict(ctx context.Context, err error) error {
	sum := d.summary(ctx)
	text, failed := json.MarshalIndent(sum, "", "  ")
	drawn, failed2 := drawPower(d.tracker.samples, d.tracker.events, d.lab.Site.Nodes())
	if failed = errors.Join(failed, failed2, os.WriteFile(d.lab.Path("summary.json"), append(text, '\n'), 0o644),
		os.WriteFile(d.lab.Path("power.svg"), drawn, 0o644)); failed != nil {
		return errors.Join(err, fmt.Errorf("demo: write the results: %w", failed))
	}
	sum.print(d.out, d.opts.out)
	broken := sum.broken()
	if err != nil {
		broken = append([]string{strings.TrimPrefix(err.Error(), "demo: ")}, broken...)
	}
	if len(broken) > 0 {
		return &cli.Error{
			Code: "broken", Exit: cli.ExitFailed, Err: errBroken, Message: strings.Join(broken, "; "),
			Hint: "see power.csv for the time, and the logs in " + d.lab.Path("logs") + " and " + d.lab.Path("nodes"),
		}
	}
	d.say("all guarantees held")
	return nil
}

// keep leaves everything running until ctx ends, with the coordinator that was killed started again, and prints commands to try.
func (d *show) keep(ctx context.Context) error {
	if d.killed != "" {
		if err := d.lab.Site.StartCoordinator(d.killed); err != nil {
			return err
		}
	}
	d.say("\n%d emulated nodes, %d coordinators, a scheduler and %s are running until Ctrl-C. Try:\n  export HEADROOM_ADDR=%s",
		d.setup.Nodes, d.setup.Coordinators, cmp.Or(d.lab.Engine.Name, "workers"), strings.Join(d.lab.Site.Addresses(), ","))
	for _, args := range []string{
		"coordinator status --watch", fmt.Sprintf(`coordinator budget set %.0fW --reason "trying it"`, d.lab.Part(cutTo).Watts()), "coordinator node list",
		`coordinator brake set --reason "trying it"`, "coordinator brake lift", "coordinator job list", "coordinator job explain JOB", "coordinator sprint list",
		"scheduler list --addr " + d.lab.Site.Scheduler(), "powerlab node exec n1 --dir " + d.lab.Site.NodeDir() + " -- sha256sum /dev/zero",
	} {
		d.say("  %s", filepath.Join(d.opts.bin, args))
	}
	for _, page := range d.lab.Engine.Pages {
		d.say("  %s   a page of the engine's own", page)
	}
	return every(ctx, watchEvery, func() error { return d.running(ctx) })
}

// Programs of an engine run are started again so often, each a pause after it ended.
const (
	revivals    = 50
	reviveAfter = 2 * time.Second
)

// running is an error if a program has ended by itself. In an engine run it is started again, so that the crashes
// that the documents promise to survive can be tried.
func (d *show) running(ctx context.Context) error {
	err := d.lab.Site.Running()
	if err == nil || d.opts.engine == engineLocal || d.revived >= revivals {
		return err
	}
	if !pause.For(ctx, reviveAfter) {
		return nil
	}
	names, err := d.lab.Site.Revive()
	for _, name := range names {
		d.revived++
		d.say("%s exited and was started again", name)
	}
	return err
}
