package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"headroom/lab/emulator"
	"headroom/lab/experiment"
	"headroom/lab/hadoop"
)

// LocalSlots is the number of tasks that the workers of two nodes run at once.
const LocalSlots = 8

// localText is the length of a file, bytes.
const localText = 150_000

// passesFigure is the figure that has the size of a task: all runs of a pair have tasks of one size.
const passesFigure = "passes"

// Local is the scheduler's own engine: its workers run word counts, a map task per file. task is about how
// long one takes when busy slots compute on nodes that run at a part of full speed, speed.
func Local(task time.Duration, busy, speed float64) Engine {
	passes := 0
	return Engine{
		Workers: true,
		Prepare: func(ctx context.Context, r *experiment.Run, s *Setup) (err error) {
			if err := writeInputs(r, s.Jobs, hadoop.Text{Bytes: localText, Topical: 0.3}); err != nil {
				return err
			}
			cpus := emulator.HostShare * speed * float64(runtime.NumCPU())
			passes, err = passesFor(ctx, r, time.Duration(float64(task)*cpus/busy))
			return err
		},
		Begin: func(_ context.Context, l *Lab, s *Setup) (*Running, error) {
			draws := l.Path("draws", strconv.FormatUint(l.Seed, 10))
			if err := os.MkdirAll(draws, 0o755); err != nil {
				return nil, fmt.Errorf("experiment: %w", err)
			}
			submit := func(ctx context.Context, j *Job) (string, error) {
				args := fmt.Sprintf("--passes=%d, ", passes)
				if j.Slow != nil {
					args += strconv.Quote("--slow="+draws) + ", "
				}
				return l.submit(ctx, j.terms(&s.Variant, s.Nodes*s.workers())+fmt.Sprintf("map:\n  input: %q\n  command: [%q, app, wordcount, %s\"{input}\"]\noutput: %q\n",
					filepath.Join(l.input(j), "*"), l.Program("powerlab"), args, l.Path("out")), j.Waits)
			}
			return &Running{Submit: submit, Cancel: l.cancel, Close: func() error { return nil }}, nil
		},
	}
}

// Record adds what the engine has chosen to the figures of a run, so that the pair's other runs have the same.
func (e *Engine) Record(r *experiment.Run, f experiment.Figures) error {
	if !e.Workers {
		return nil
	}
	text, err := os.ReadFile(r.Path(passesFigure))
	if err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	f[passesFigure], err = strconv.ParseFloat(string(text), 64)
	return err
}

// terms are the head of a job file.
func (j *Job) terms(v *Variant, slots int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nclass: %s\nslots: %d\n", j.Name, j.Class, min(j.Tasks, cmp.Or(j.Slots, slots)))
	if v.Stock != nil {
		return b.String()
	}
	if j.Deadline > 0 {
		fmt.Fprintf(&b, "deadline: %v\n", j.Deadline)
	}
	switch {
	case j.Error > 0:
		fmt.Fprintf(&b, "error: %.0f%%\n", 100*j.Error)
	case j.Floor > 0 && !v.Exact:
		fmt.Fprintf(&b, "min_tasks: %.0f%%\n", 100*j.Floor)
	}
	return b.String()
}

// input is the folder of the files that a job reads, a task each.
func (l *Lab) input(j *Job) string { return l.Path("in", strconv.Itoa(j.Tasks)) }

// writeInputs makes a folder of input files for each number of tasks: links to the same files, which are of a text.
func writeInputs(r *experiment.Run, jobs []Job, text hadoop.Text) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("experiment: input: %w", err)
		}
	}()
	text.Seed = r.Seed
	for i := range jobs {
		text.Files = max(text.Files, jobs[i].Tasks)
	}
	if _, err := text.Write(r.Path("pool")); err != nil {
		return err
	}
	pool, err := os.ReadDir(r.Path("pool"))
	if err != nil {
		return err
	}
	for i := range jobs {
		dir := r.Path("in", strconv.Itoa(jobs[i].Tasks))
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, file := range pool[:jobs[i].Tasks] {
			if err := os.Link(r.Path("pool", file.Name()), filepath.Join(dir, file.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// passesFor is how often a word count must go through a file so that its task takes so much CPU time: as
// often as in the pair's earlier runs.
func passesFor(ctx context.Context, r *experiment.Run, task time.Duration) (passes int, err error) {
	for _, f := range r.Earlier {
		passes = int(f[passesFigure])
	}
	if passes == 0 {
		const many = 40
		once, err1 := timed(ctx, r, 1)
		more, err2 := timed(ctx, r, many)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		pass := max((more-once)/(many-1), 10*time.Microsecond)
		passes = max(1, int(math.Round(float64(task-once)/float64(pass))))
	}
	r.Note("a task counts its words %d times", passes)
	return passes, os.WriteFile(r.Path(passesFigure), []byte(strconv.Itoa(passes)), 0o644)
}

// timed is the CPU time of one task with so many passes, the best of three.
func timed(ctx context.Context, r *experiment.Run, passes int) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	for range 3 {
		cmd := exec.CommandContext(ctx, r.Program("powerlab"), "app", "wordcount", fmt.Sprintf("--passes=%d", passes), r.Path("pool", "part-00000"))
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		if _, err := cmd.Output(); err != nil {
			return 0, fmt.Errorf("experiment: time a task: %w", err)
		}
		best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	return best, nil
}
