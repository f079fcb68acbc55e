package distributor

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

// BenchmarkFanOut is a job of 60000 tasks from Submit to its last result, over loopback and two masters that end each task at once.
func BenchmarkFanOut(b *testing.B) {
	const tasks = 60_000
	groups := make([]Group, 2)
	for i := range groups {
		p := newPlant(b, fmt.Sprintf("m%d", i), true, 2000)
		p.auto = true
		groups[i] = Group{Name: p.name, Masters: []string{p.address}}
	}
	d := testkit.Need(New(Config{Name: "d1", Incarnation: 1, Groups: groups, Logger: slog.New(slog.DiscardHandler)}))(b)
	ctx, cancel := context.WithCancel(b.Context())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	for n := 0; b.Loop(); n++ {
		f := testkit.Need(d.Submit(b.Context(), Job{Tasks: tasks, Task: func(index, attempt int) *headroomv1.Task {
			return &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: fmt.Sprint(n), Phase: "map", Index: uint32(index), Attempt: uint32(attempt)}, Argv: []string{"/bin/true"}}
		}}))(b)
		for range f.Results() {
			continue
		}
	}
	b.ReportMetric(tasks*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	cancel()
	testkit.Check(b, <-over)
}
