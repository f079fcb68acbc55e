package promises

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"headroom/lab/emulator"
	"headroom/lab/papers"
)

const (
	// localMost is how many tasks the workers of both nodes run at once without caps, four each, and localSlots about how many
	// the first caps leave.
	localMost, localSlots = 8, 5
	// localSpeed is about how fast nodes are at the first caps, to size tasks by. How fast they were is measured.
	localSpeed = 0.8
	// localBusy is the part of the slots whose tasks compute at a time: slow ones pause.
	localBusy = 0.5
)

// localLoad is the load of the scheduler's own engine. Both keep the capped nodes busy most of the time.
func localLoad(quick bool) load {
	if quick {
		return load{count: 42, within: 100 * time.Second, least: 2, most: 16, task: 600 * time.Millisecond, slots: localSlots}
	}
	return load{count: 60, within: 5 * time.Minute, least: 2, most: 40, task: 1200 * time.Millisecond, slots: localSlots}
}

// localVariants are ways to decide of the scheduler's own engine.
func localVariants() []variant {
	of := func(name, says string, policy, admission, speculation string) variant {
		return variant{name: name, says: says, policy: policy, configuration: decides(admission, speculation)}
	}
	return []variant{
		of(ours, "admission adaptive, copies ours, container policy joint", "joint", "adaptive", ours),
		of("grass", "PYTHIA's admission, GRASS's copies, container policy fair", "fair", "pythia", "grass"),
		of(stock, "no admission, no copies, container policy fair", "fair", "off", "none"),
		of(stockBest, "no admission, Mantri's copies, container policy fair", "fair", "off", "mantri"),
	}
}

// local is the scheduler itself: its workers run word counts on the nodes.
func local(ctx context.Context, r *papers.Real, quick bool) (*engine, error) {
	l := localLoad(quick)
	if err := papers.WriteWords(r.Path("pool"), l.most, r.Seed); err != nil {
		return nil, err
	}
	if err := links(r, &l); err != nil {
		return nil, err
	}
	cpus := emulator.HostShare * localSpeed * float64(runtime.NumCPU())
	passes, err := r.Passes(ctx, r.Path("pool", "00.txt"), time.Duration(float64(l.task)*cpus/(localSlots*localBusy)))
	if err != nil {
		return nil, err
	}
	return &engine{load: l, drain: 5 * time.Minute, variants: localVariants(), workers: nodes, begin: func(_ context.Context, name string, _ *variant, run int) (*running, error) {
		draws := r.Path("draws-"+name, strconv.FormatUint(r.Seed+uint64(run), 10))
		if err := os.MkdirAll(draws, 0o755); err != nil {
			return nil, fmt.Errorf("promises: %w", err)
		}
		submit := func(ctx context.Context, j *job) (string, error) {
			return r.SubmitWaiting(ctx, reason, r.Path("job.yaml"), localSpec(j, r, draws, passes))
		}
		return &running{submit: submit, end: func() error { return nil }}, nil
	}}, nil
}

// links makes a folder of input files for each number of tasks: links to the same files of the pool.
func links(r *papers.Real, l *load) error {
	pool, err := os.ReadDir(r.Path("pool"))
	if err != nil {
		return fmt.Errorf("promises: input: %w", err)
	}
	for tasks := l.least; tasks <= l.most; tasks++ {
		dir := r.Path("in", strconv.Itoa(tasks))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("promises: input: %w", err)
		}
		for _, file := range pool[:min(tasks, len(pool))] {
			if err := os.Link(r.Path("pool", file.Name()), filepath.Join(dir, file.Name())); err != nil {
				return fmt.Errorf("promises: input: %w", err)
			}
		}
	}
	return nil
}

// localSpec is the job file of a job whose slow tasks are counted in draws.
func localSpec(j *job, r *papers.Real, draws string, passes int) []byte {
	return fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\n%smap:\n  input: %q\n  command: [%q, app, wordcount, --passes=%d, %q, \"{input}\"]\noutput: %q\n",
		j.name, j.kind.class(), min(j.tasks, localMost), j.terms(), r.Path("in", strconv.Itoa(j.tasks), "*.txt"), r.Program("powerlab"), passes, "--slow="+draws, r.Path("out"))
}
