package profiling

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/jobs/quality"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
	"headroom/units"
)

// Which tasks of a job run when not all do.
const (
	chooseRandom = "random"
	chooseFirst  = "first"
)

// A runner runs one job on some of its map tasks, named in rising order, and gives the
// lines of its result: a key, a tab and a number each.
type runner interface {
	Run(ctx context.Context, tasks []int) ([]byte, error)
}

// measurement measures the accuracy of parts of a job.
type measurement struct {
	runner     runner
	tasks      int
	comparison quality.Comparison
	top        int
	scale      bool
	ratios     []float64
	seeds      int
	choice     string
	note       func(format string, args ...any)
}

// points runs the whole job, then each part, and compares.
func (m *measurement) points(ctx context.Context) ([]quality.Point, error) {
	exact, err := m.result(ctx, m.chosen(1, m.tasks))
	if err != nil {
		return nil, err
	}
	if len(exact) == 0 {
		return nil, cli.Failed("check that the job's reduce task prints lines of a key, a tab and a number", "profile: the exact result is empty")
	}
	var out []quality.Point
	last := 0
	for _, ratio := range slices.Compact(slices.Sorted(slices.Values(m.ratios))) {
		kept := units.Ratio(ratio).Kept(m.tasks)
		if kept == last {
			m.note("ratio %v of %d tasks skipped: it is %d tasks again", ratio, m.tasks, kept)
			continue
		}
		last = kept
		runs, err := m.runs(ctx, exact, kept)
		if err != nil {
			return nil, err
		}
		point := quality.PointOf(float64(kept)/float64(m.tasks), runs)
		m.note("%d of %d tasks: accuracy %.1f %% (%.1f to %.1f %%) in %d runs", kept, m.tasks, 100*point.Accuracy, 100*point.Low, 100*point.High, point.Runs)
		out = append(out, point)
	}
	return out, nil
}

// runs are the accuracies of as many choices of tasks as there are.
func (m *measurement) runs(ctx context.Context, exact quality.Result, kept int) ([]float64, error) {
	seeds := m.seeds
	if m.choice == chooseFirst || kept == m.tasks {
		seeds = 1 // there is only one choice
	}
	var out []float64
	for seed := 1; seed <= seeds; seed++ {
		partial, err := m.result(ctx, m.chosen(uint64(seed), kept))
		if err != nil {
			return nil, err
		}
		if m.scale {
			partial = partial.Scaled(float64(kept) / float64(m.tasks))
		}
		out = append(out, m.comparison.Accuracy(exact, partial, m.top))
	}
	return out, nil
}

// chosen are the tasks that run. With one seed, a larger part has all tasks of a
// smaller one, so that their difference is that of the parts and not of luck.
func (m *measurement) chosen(seed uint64, kept int) []int {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(m.tasks)
	if m.choice == chooseFirst {
		slices.Sort(order)
	}
	out := order[:kept]
	slices.Sort(out)
	return out
}

func (m *measurement) result(ctx context.Context, tasks []int) (quality.Result, error) {
	lines, err := m.runner.Run(ctx, tasks)
	if err != nil {
		return nil, err
	}
	r, err := quality.ReadResult(bytes.NewReader(lines))
	if err != nil {
		return nil, cli.Failed("change the reduce task so that it prints lines of a key, a tab and a number", "profile: the result of %d tasks: %w", len(tasks), err)
	}
	return r, nil
}

// noteEvery is the time between progress notes about running map tasks.
const noteEvery = 2 * time.Second

// processes runs a job of a scheduler's job file as processes of this machine. Each
// map task runs once; its output stays in a folder of ours for all results that need it.
type processes struct {
	job   *jobfile.Alone
	dir   string
	slots int
	env   []string
	ended map[int]bool
	parts int // reduce tasks that have run
	note  func(format string, args ...any)
}

func newProcesses(file *jobfile.File, dir string, slots int, note func(string, ...any)) (*processes, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("profile: own program: %w", err)
	}
	job, err := file.Alone(filepath.Dir(self), dir)
	if err != nil {
		return nil, err
	}
	return &processes{job: job, dir: dir, slots: slots, env: append(os.Environ(), "TMPDIR="+dir), ended: map[int]bool{}, note: note}, nil
}

// Run runs the map tasks that have not run before, and the reduce task over all that are named.
func (p *processes) Run(ctx context.Context, tasks []int) ([]byte, error) {
	if err := p.maps(ctx, tasks); err != nil {
		return nil, err
	}
	p.parts++
	reduce := p.job.Reduce(tasks, fmt.Sprintf("result-%d", p.parts))
	if reduce == nil {
		return p.concatenated(tasks)
	}
	if err := p.one(ctx, reduce, "reduce task"); err != nil {
		return nil, err
	}
	lines, err := os.ReadFile(reduce.GetOutput())
	return lines, errors.Join(err, os.Remove(reduce.GetOutput()))
}

// concatenated is the result of a job without a reduce task.
func (p *processes) concatenated(tasks []int) ([]byte, error) {
	var out bytes.Buffer
	for _, i := range tasks {
		lines, err := os.ReadFile(p.job.Map(i).GetOutput())
		if err != nil {
			return nil, err
		}
		out.Write(lines)
		if n := len(lines); n > 0 && lines[n-1] != '\n' {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

// maps runs map tasks, so many at once. The first that fails ends the others.
func (p *processes) maps(ctx context.Context, tasks []int) error {
	todo := slices.DeleteFunc(slices.Clone(tasks), func(i int) bool { return p.ended[i] })
	if len(todo) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, results := make(chan int), make(chan error)
	var workers sync.WaitGroup
	for range min(p.slots, len(todo)) {
		workers.Go(func() {
			for i := range next {
				results <- p.one(ctx, p.job.Map(i), fmt.Sprintf("map task %d (%s)", i, p.job.Input(i)))
			}
		})
	}
	go func() { // ends when all are handed out or the context has ended
		defer close(next)
		for _, i := range todo {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		workers.Wait()
		close(results)
	}()
	first, done, told := error(nil), 0, time.Now()
	for err := range results {
		if err != nil && first == nil {
			first = err
			cancel()
		}
		if done++; first == nil && (time.Since(told) > noteEvery || done == len(todo)) {
			p.note("map tasks: %d of %d done", done, len(todo))
			told = time.Now()
		}
	}
	if first = cmp.Or(first, ctx.Err()); first != nil {
		return first
	}
	for _, i := range todo {
		p.ended[i] = true
	}
	return nil
}

// one runs a task to its end.
func (p *processes) one(ctx context.Context, task *headroomv1.Task, name string) error {
	r := local.RunTask(ctx, task, p.env)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.GetError() != "":
		return cli.Failed("run it manually: "+strings.Join(task.GetArgv(), " "), "profile: %s failed: %s", name, r.GetError())
	}
	return nil
}
