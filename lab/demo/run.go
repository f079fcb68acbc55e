package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"headroom/internal/cli"
)

// run is the whole demo.
func run(ctx context.Context, opts options, out io.Writer) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	if err := prepareOut(opts.out); err != nil {
		return err
	}
	text, err := findCorpus(ctx, cacheDir(), textSources(), say)
	if err != nil {
		return err
	}
	began := time.Now()
	l, err := newLab(opts, opts.out, opts.bin)
	if err != nil {
		return err
	}
	table, err := createCSV(l.path("power.csv"), l.nodes)
	if err != nil {
		return errors.Join(err, l.stop())
	}
	defer func() { _ = table.close() }() // every row is on disk already
	d := assemble(l, text, opts, out, say)
	d.sampler.csv = table
	say("3 coordinators, %d emulated nodes, a scheduler; jobs over %d MB of text; everything in %s", opts.nodes, text.bytes()>>20, opts.out)
	err = d.play(ctx, began)
	if opts.keep && (err == nil || errors.Is(err, errBroken)) {
		return errors.Join(err, l.keep(out))
	}
	if ctx.Err() != nil {
		say("interrupted: stopping all processes")
	}
	return errors.Join(err, l.stop())
}

// show is one demo with all its parts.
type show struct {
	lab     *lab
	tracker *tracker
	story   *story
	sampler *sampler
	feed    *feeder
	screen  *screen
	out     io.Writer
	opts    options
}

func assemble(l *lab, text corpus, opts options, out io.Writer, say func(string, ...any)) *show {
	b := newBoard(l.full())
	c := newClient(l.addresses(), l.scheduler)
	random := rand.New(rand.NewPCG(opts.seed, 0))
	work := &workload{
		dir: l.path("jobs"), lab: filepath.Join(l.bin, "powerlab"), text: text, slots: l.slots * len(l.nodes),
		next: random.IntN(len(text.parts)), made: map[string]int{},
	}
	d := &show{lab: l, tracker: b, out: out, opts: opts}
	d.feed = &feeder{tracker: b, client: c, work: work, rush: make(chan string, 1)}
	d.sampler = &sampler{tracker: b, client: c, nodes: l.nodeViews(), list: c.jobs, energy: map[string]float64{}}
	d.screen = &screen{out: cli.Raw(out), terminal: cli.IsTerminal(out), tracker: b, nodes: l.nodes, rated: l.spec.Rated()}
	d.story = &story{lab: l, tracker: b, client: c, nodes: l.nodeViews(), feed: d.feed, rand: random, say: func(string, ...any) {}}
	if !d.screen.terminal {
		d.story.say = func(format string, args ...any) { say("            "+format, args...) }
	}
	return d
}

// play starts the cluster, lets the story happen, and judges it. What it started
// runs on when it returns.
func (d *show) play(ctx context.Context, began time.Time) error {
	if err := d.feed.work.calibrate(ctx, d.lab.nodeCPUs()/float64(d.lab.slots)); err != nil {
		return err
	}
	if err := d.lab.start(); err != nil {
		return err
	}
	w, ctx := newWatchers(ctx)
	defer w.end()
	w.fail(d.ended)
	w.fail(d.feed.run)
	w.running.Go(func() { d.sampler.watchJobs(ctx) })
	if err := d.story.ready(ctx); err != nil {
		return because(ctx, err)
	}
	d.story.run = max(d.opts.length-time.Since(began)-stopTime, lengthLeast/2)
	d.begin()
	w.running.Go(func() { d.sampler.watchNodes(ctx) })
	w.running.Go(func() { d.screen.show(ctx) })
	w.fail(d.sampler.sample)
	err := because(ctx, d.story.tell(ctx))
	if errors.Is(err, context.Canceled) {
		return err
	}
	d.cancelRest(ctx)
	w.end()
	return d.verdict(err)
}

// begin is t = 0.
func (d *show) begin() {
	d.screen.run = d.story.run
	slowed, tree := "unknown means", "files"
	if v, err := d.sampler.nodes[0].plant(time.Now()); err == nil {
		slowed, tree = v.ThrottledBy, v.Tree
	}
	d.tracker.locked(func() { d.tracker.slowed, d.tracker.tree = slowed, tree })
	if words := map[string]string{"cgroup": "a cgroup each (CPU bandwidth)", "signals": "signals (SIGSTOP and SIGCONT)"}[slowed]; words != "" {
		slowed = words
	}
	_, _ = fmt.Fprintf(d.out, "every node is admitted and tasks are running: t = 0. Node processes are slowed down by %s; file trees are %s (values only)\n", slowed, tree)
	d.tracker.begin(d.story.run)
}

// ended waits for a program that ends by itself.
func (d *show) ended(ctx context.Context) error {
	select {
	case err := <-d.lab.fleet.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// because is why ctx was cancelled when that is better than err: an error of
// something that runs beside the story.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) && isOurs(cause) {
		return cause
	}
	return err
}

// isOurs reports whether a failure is one of the demo's own parts, not a signal's.
func isOurs(err error) bool {
	typed, ok := errors.AsType[*cli.Error](err)
	return errors.Is(err, errEnded) || errors.Is(err, errBroken) || ok && typed != nil || strings.HasPrefix(err.Error(), "demo: ")
}

// cancelRest cancels the jobs that have not ended when the time is over, and
// takes a last look at them all.
func (d *show) cancelRest(ctx context.Context) {
	for _, j := range d.tracker.jobList() {
		if live(j) {
			_ = d.story.client.cancelJob(ctx, j.GetId())
		}
	}
	if jobs, err := d.story.client.jobs(ctx); err == nil {
		d.tracker.setJobs(jobs)
	}
}

// verdict writes the results and reports whether a promise was broken; err is why
// the story did not come to its end, if it did not.
func (d *show) verdict(err error) error {
	sum := summarise(d.tracker, d.story, len(d.lab.nodes))
	if written := errors.Join(writeJSON(d.lab.path("summary.json"), sum), d.chart()); written != nil {
		return errors.Join(err, written)
	}
	sum.print(d.out, d.story, d.opts.out)
	return d.conclude(sum.broken(), err)
}

// conclude reports whether a promise was broken; err is why the story did not come to its end.
func (d *show) conclude(broken []string, err error) error {
	if err != nil {
		broken = append([]string{strings.TrimPrefix(err.Error(), "demo: ")}, broken...)
	}
	if len(broken) > 0 {
		return &cli.Error{
			Code: "broken", Exit: cli.ExitFailed, Err: errBroken, Message: strings.Join(broken, "; "),
			Hint: "see power.csv for the time, and the logs in " + d.lab.path("logs") + " and " + d.lab.path("nodes"),
		}
	}
	_, _ = fmt.Fprintln(d.out, "all guarantees held")
	return nil
}
