package live

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"headroom/lab/emulator"
	"headroom/lab/papers"
)

const (
	// localSlots is how many tasks the workers of both nodes run at once: four each.
	localSlots = 8
	// localSpeed is about how fast nodes are at the first budget, to size tasks by. How fast they were is measured.
	localSpeed = 0.75
	// localTask is about how long a task takes when all slots of capped nodes are busy.
	localTask = 6 * time.Second
)

// localPlan loads the capped nodes to nearly all that they can do, and beyond it while the budget is low. With all nodes to
// itself a job takes about tasks * localTask / localSlots: 9, 18 and 54 s.
//
// Discipline np with room for all jobs begins each at once, and free slots go by class, then by arrival: urgent first.
func localPlan() plan {
	return plan{
		streams: streams(
			each{12, 45 * time.Second, 30 * time.Second},
			each{24, 90 * time.Second, 45 * time.Second},
			each{72, 100 * time.Second, 0},
		),
		drain:    6 * time.Minute,
		variants: against("fair", "width: 100\n", "container policy fair, discipline np for all jobs at once: slots by class, then by arrival"),
	}
}

// local is the scheduler itself: its workers run word counts on the nodes.
func local(ctx context.Context, r *papers.Real) (*engine, error) {
	p := localPlan()
	for _, s := range p.streams {
		if err := papers.WriteWords(r.Path("in", s.name), s.tasks, r.Seed); err != nil {
			return nil, err
		}
	}
	cpus := emulator.HostShare * localSpeed * float64(runtime.NumCPU())
	passes, err := r.Passes(ctx, r.Path("in", p.streams[0].name, "00.txt"), time.Duration(float64(localTask)*cpus/localSlots))
	if err != nil {
		return nil, err
	}
	spec := func(a *arrival) []byte {
		return localSpec(a, r.Path("in"), r.Program("powerlab"), r.Path("out"), passes)
	}
	return &engine{plan: p, workers: nodes, begin: func(context.Context, string, *variant) (*running, error) {
		return &running{submit: submitter(r, spec), end: func() error { return nil }}, nil
	}}, nil
}

// submitter hands job files in at the scheduler.
func submitter(r *papers.Real, spec func(a *arrival) []byte) func(ctx context.Context, a *arrival) (string, error) {
	return func(ctx context.Context, a *arrival) (string, error) {
		return r.Submit(ctx, reason, r.Path("job.yaml"), spec(a))
	}
}

// terms are how a job is served, as the head of its job file.
func (a *arrival) terms(slots int) []byte {
	text := fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\nmin_tasks: %.0f%%\n", a.stream, a.Class, slots, 100*a.Floor)
	if a.Deadline > 0 {
		text = fmt.Appendf(text, "deadline: %v\n", a.Deadline)
	}
	return text
}

// localSpec is the job file of an arrival.
func localSpec(a *arrival, in, program, out string, passes int) []byte {
	return fmt.Appendf(a.terms(localSlots), "map:\n  input: %q\n  command: [%q, app, wordcount, --passes=%d, \"{input}\"]\noutput: %q\n",
		filepath.Join(in, a.stream, "*.txt"), program, passes, out)
}
