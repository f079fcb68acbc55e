package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"headroom/lab/emulator"
	"headroom/lab/experiment"
)

// LocalSlots is the number of tasks that the workers of two nodes run at once.
const LocalSlots = 8

// passesFigure is the figure that has the size of a task: all runs of a pair have tasks of one size.
const passesFigure = "passes"

// Local is the scheduler's own engine: its workers run word counts, a map task per file. task is about how
// long one takes when busy slots compute on nodes that run at a part of full speed, speed.
func Local(task time.Duration, busy, speed float64) Engine {
	passes := 0
	return Engine{
		Workers: true,
		Prepare: func(ctx context.Context, r *experiment.Run, s *Setup) (err error) {
			if err := writeInputs(r, s.Jobs, writeWords); err != nil {
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
				return l.submit(ctx, j.terms(&s.Variant, LocalSlots)+fmt.Sprintf("map:\n  input: %q\n  command: [%q, app, wordcount, %s\"{input}\"]\noutput: %q\n",
					filepath.Join(l.input(j), "*"), l.Program("powerlab"), args, l.Path("out")), j.Waits)
			}
			return &Running{Submit: submit, Close: func() error { return nil }}, nil
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
	fmt.Fprintf(&b, "name: %s\nclass: %s\nslots: %d\n", j.Name, j.Class, min(j.Tasks, slots))
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

// writeInputs makes a folder of input files for each number of tasks: links to the same files, which write writes.
func writeInputs(r *experiment.Run, jobs []Job, write func(dir string, files int, seed uint64) error) error {
	most := 0
	for i := range jobs {
		most = max(most, jobs[i].Tasks)
	}
	if err := write(r.Path("pool"), most, r.Seed); err != nil {
		return err
	}
	pool, err := os.ReadDir(r.Path("pool"))
	if err != nil {
		return fmt.Errorf("experiment: input: %w", err)
	}
	for i := range jobs {
		dir := r.Path("in", strconv.Itoa(jobs[i].Tasks))
		if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("experiment: input: %w", err)
		}
		for _, file := range pool[:jobs[i].Tasks] {
			if err := os.Link(r.Path("pool", file.Name()), filepath.Join(dir, file.Name())); err != nil {
				return fmt.Errorf("experiment: input: %w", err)
			}
		}
	}
	return nil
}

// writeWords makes a folder with files of words. Frequencies are as in real text; a third of the words are
// of one of several topics, as files of real data differ.
func writeWords(dir string, files int, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("experiment: input: %w", err)
	}
	const words, vocabulary, skew, topics, topical = 20_000, 5000, 1.1, 5, 3
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 7)), skew, 1, vocabulary-1)
	for i := range files {
		var b strings.Builder
		for k := range words {
			topic := 0
			if k%topical == 0 {
				topic = 1 + i%topics
			}
			fmt.Fprintf(&b, "t%dw%d ", topic, zipf.Uint64())
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), []byte(b.String()), 0o644); err != nil {
			return fmt.Errorf("experiment: input: %w", err)
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
		once, err := timed(ctx, r, 1)
		if err != nil {
			return 0, err
		}
		more, err := timed(ctx, r, many)
		if err != nil {
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
		cmd := exec.CommandContext(ctx, r.Program("powerlab"), "app", "wordcount", fmt.Sprintf("--passes=%d", passes), r.Path("pool", "000.txt"))
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		if _, err := cmd.Output(); err != nil {
			return 0, fmt.Errorf("experiment: time a task: %w", err)
		}
		best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	return best, nil
}
