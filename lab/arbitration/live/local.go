package live

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"headroom/lab/papers"
)

// local is the scheduler itself: its workers run word counts on the nodes.
func local(ctx context.Context, r *papers.Real) (*engine, error) {
	for _, s := range streams() {
		if err := papers.WriteWords(r.Path("in", s.name), s.tasks, r.Seed); err != nil {
			return nil, err
		}
	}
	cpus := hostPart * capped * float64(runtime.NumCPU())
	passes, err := r.Passes(ctx, r.Path("in", streams()[0].name, "00.txt"), time.Duration(float64(taskWall)*cpus/slots))
	if err != nil {
		return nil, err
	}
	return &engine{name: "local", workers: nodes, spec: func(a *arrival) []byte {
		return localSpec(a, r.Path("in"), r.Program("powerlab"), r.Path("out"), passes)
	}}, nil
}

// localSpec is the job file of an arrival.
func localSpec(a *arrival, in, program, out string, passes int) []byte {
	text := fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\nmin_tasks: %.0f%%\n", a.stream, a.Class, slots, 100*a.Floor)
	if a.Deadline > 0 {
		text = fmt.Appendf(text, "deadline: %v\n", a.Deadline)
	}
	return fmt.Appendf(text, "map:\n  input: %q\n  command: [%q, app, wordcount, --passes=%d, \"{input}\"]\noutput: %q\n",
		filepath.Join(in, a.stream, "*.txt"), program, passes, out)
}
