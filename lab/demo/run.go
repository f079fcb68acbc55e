package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"headroom/internal/cli"
	"headroom/internal/pause"
)

// show is one demo with all its parts.
type show struct {
	opts    options
	out     io.Writer
	note    func(format string, args ...any) // progress
	lab     *lab
	engine  engine // nil where workers run the jobs
	tracker *tracker
	story   *story
	sampler *sampler
	feed    *feeder // nil with an engine
	screen  *screen
	looks   lookBook
	answers map[string]jobAnswers // by the id of the job; with an engine
}

// run is the whole demo.
func run(ctx context.Context, opts options, out, progress io.Writer) (err error) {
	d := &show{opts: opts, out: out, note: func(format string, args ...any) { cli.Notef(progress, format, args...) }, looks: newLookBook()}
	if opts.engine != engineLocal {
		scratch, failed := os.MkdirTemp("", "headroom-demo-")
		if failed != nil {
			return fmt.Errorf("demo: folder of the cluster: %w", failed)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
		if d.engine, err = newEngine(ctx, opts, filepath.Join(scratch, opts.engine), d.note); err != nil {
			return err
		}
	}
	if err := prepareOut(opts.out); err != nil {
		return err
	}
	var text corpus
	if d.engine == nil {
		if text, err = findCorpus(ctx, cacheDir(), textSources(), d.say); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := d.assemble(text); err != nil {
		return err
	}
	return d.finish(ctx, d.play(ctx, began))
}

func (d *show) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

func (d *show) assemble(text corpus) (err error) {
	if d.lab, err = newLab(d.opts); err != nil {
		return err
	}
	l := d.lab
	table, err := createCSV(l.path("power.csv"), l.nodes)
	if err != nil {
		return errors.Join(err, l.stop())
	}
	b, nodes, random := newBoard(l.full()), l.nodeViews(), rand.New(rand.NewPCG(d.opts.seed, 0))
	d.tracker = b
	d.sampler = &sampler{tracker: b, client: l.client, nodes: nodes, csv: table, list: l.client.jobs, energy: map[string]float64{}}
	d.screen = &screen{out: cli.Raw(d.out), terminal: cli.IsTerminal(d.out), tracker: b, nodes: l.nodes, rated: l.spec.Rated()}
	d.story = &story{lab: l, tracker: b, nodes: nodes, rand: random, say: func(string, ...any) {}}
	if !d.screen.terminal {
		d.story.say = func(format string, args ...any) { d.say("            "+format, args...) }
	}
	if d.engine != nil {
		d.sampler.list, d.screen.engine = l.client.committed, d.looks.words
		return nil
	}
	d.feed = &feeder{tracker: b, client: l.client, rush: make(chan string, 1), work: &workload{
		dir: l.path("jobs"), lab: filepath.Join(l.bin, "powerlab"), text: text, slots: l.slots * len(l.nodes),
		next: random.IntN(len(text.parts)), made: map[string]int{},
	}}
	d.story.feed = d.feed
	d.say("%d coordinators, %d emulated nodes, a scheduler; jobs over %d MB of text; everything in %s", servers, d.opts.nodes, text.bytes()>>20, l.dir)
	return nil
}

// finish ends what was started, or keeps it; err is how the run ended.
func (d *show) finish(ctx context.Context, err error) error {
	_ = d.sampler.csv.close() // every row is on disk already
	if d.opts.keep && (err == nil || errors.Is(err, errBroken)) {
		if d.engine == nil {
			return errors.Join(err, d.lab.keep(d.out))
		}
		d.keep(ctx)
	}
	d.note("stopping all processes")
	if d.engine != nil {
		err = errors.Join(err, d.engine.close())
	}
	err = errors.Join(err, d.lab.stop())
	if d.engine != nil {
		err = errors.Join(err, keepLogs(d.lab.path("logs", d.opts.engine), d.engine.logs()))
	}
	return err
}

// watchers run beside a story until it ends. The first error ends their context, as its cause.
type watchers struct {
	ctx     context.Context //nolint:containedctx // of one story
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// add runs some.
func (w *watchers) add(all ...func(context.Context) error) {
	for _, f := range all {
		w.running.Go(func() {
			if err := f(w.ctx); err != nil {
				w.cancel(err)
			}
		})
	}
}

// end ends them, and returns when they have ended. A second call has no effect.
func (w *watchers) end() {
	w.cancel(nil)
	w.running.Wait()
}

// play starts the cluster, lets the story happen, and judges it. What it started
// runs on when it returns.
func (d *show) play(ctx context.Context, began time.Time) error {
	w := &watchers{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	defer w.end()
	ctx = w.ctx
	w.add(d.ended)
	start, tell := d.start, d.story.tell
	if d.engine != nil {
		start, tell = d.startEngine, func(ctx context.Context) error { return d.tellEngine(ctx, w) }
	}
	if err := start(ctx, w); err != nil {
		return because(ctx, err)
	}
	d.begin(began)
	w.add(d.screen.show, d.sampler.sample)
	err := because(ctx, tell(ctx))
	if errors.Is(err, context.Canceled) {
		return err
	}
	d.cancelLive(ctx)
	if d.engine != nil {
		d.askJobs(ctx)
	}
	w.end()
	return d.verdict(err)
}

// start starts the cluster and its load; it returns when tasks run.
func (d *show) start(ctx context.Context, w *watchers) error {
	if err := d.feed.work.calibrate(ctx, d.lab.nodeCPUs()/float64(d.lab.slots)); err != nil {
		return err
	}
	if err := errors.Join(d.lab.startMembers(), d.lab.startScheduler(""), d.lab.startNodes()); err != nil {
		return err
	}
	w.add(d.feed.run, d.sampler.watchJobs)
	return d.story.ready(ctx, startMost, true)
}

// begin is t = 0.
func (d *show) begin(began time.Time) {
	d.story.run = d.opts.length
	if d.engine == nil {
		d.story.run = max(d.opts.length-time.Since(began)-stopTime, lengthLeast/2)
	} else {
		revived := func(name string) { d.tracker.note(d.tracker.now(), eventRevived, name) }
		d.lab.fleet.revived.Store(&revived) // from now on a crash is survived
	}
	d.screen.run = d.story.run
	slowed, tree := "unknown means", "files"
	if v, err := d.sampler.nodes[0].plant(time.Now()); err == nil {
		words := map[string]string{"cgroup": "a cgroup each (CPU bandwidth)", "signals": "signals (SIGSTOP and SIGCONT)"}
		slowed, tree = cmp.Or(words[v.ThrottledBy], v.ThrottledBy), v.Tree
	}
	d.say("every node is admitted and tasks are running: t = 0. Node processes are slowed down by %s; file trees are %s (values only)", slowed, tree)
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
// something that runs beside the story, not a signal's.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*cli.Error](cause); ok || strings.HasPrefix(cause.Error(), "demo: ") {
		return cause
	}
	return err
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
	end := d.lab.client.cancelJob
	if d.engine != nil {
		end = d.engine.cancel
	}
	for {
		jobs, err := d.sampler.list(ctx)
		if err == nil {
			d.tracker.setJobs(jobs)
		}
		if err == nil && loadOf(jobs, classLow, classHigh).jobs == 0 || ctx.Err() != nil {
			return
		}
		for _, j := range jobs {
			if live(j) {
				_ = end(ctx, j.GetId()) // tried again
			}
		}
		pause.For(ctx, cancelEvery)
	}
}

// verdict writes the results and reports whether a promise was broken; err is why
// the story did not come to its end, if it did not.
func (d *show) verdict(err error) error {
	sum := d.summary()
	if written := errors.Join(writeJSON(d.lab.path("summary.json"), sum), d.chart()); written != nil {
		return errors.Join(err, written)
	}
	sum.print(d.out, d.opts.out)
	broken := sum.broken()
	if err != nil {
		broken = append([]string{strings.TrimPrefix(err.Error(), "demo: ")}, broken...)
	}
	if len(broken) > 0 {
		return &cli.Error{
			Code: "broken", Exit: cli.ExitFailed, Err: errBroken, Message: strings.Join(broken, "; "),
			Hint: "see power.csv for the time, and the logs in " + d.lab.path("logs") + " and " + d.lab.path("nodes"),
		}
	}
	d.say("all guarantees held")
	return nil
}
