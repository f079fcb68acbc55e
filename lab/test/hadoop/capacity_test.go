// Claim: a real capacity scheduler holds a queue to the share that the scheduler's engine
// writes by its web service, up and down; an operator's edit wins and is what comes back
// when the engine lets go, and when it stops. With the plug-in an application whose deadline cannot be kept is
// refused with the numbers, and the page of one that runs shows our line.
package hadoop

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/yarn"
)

// agreeable are coordinators that take every job.
type agreeable struct{}

func (agreeable) CommitJob(context.Context, *headroomv1.CommitJobRequest) error { return nil }
func (agreeable) FinishJob(context.Context, *headroomv1.FinishJobRequest) error { return nil }
func (agreeable) DropTasks(_ context.Context, r *headroomv1.DropTasksRequest) ([]*headroomv1.TaskRange, error) {
	return r.GetTasks(), nil
}

// engineWith is what an engine of the scheduler has.
type engineWith struct {
	shares string
	coords yarn.Coordinators
	hooks  net.Listener      // nil for none
	guard  *hookserver.Guard // nil answers all
}

// engine starts the scheduler's engine beside the cluster; end stops it.
func (l *lab) engine(t *testing.T, with engineWith) (e *yarn.Engine, end func()) {
	t.Helper()
	cfg := yarn.Defaults()
	cfg.ResourceManager, cfg.Shares = []string{l.RM()}, with.shares
	cfg.Queues = []yarn.Queue{{Name: "root.q1", Guarantee: 0.3, Overrides: true}}
	cfg.Container = yarn.Container{MemoryMB: 256, VCores: 1}
	if with.hooks != nil {
		cfg.Hooks = with.hooks.Addr().String()
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	e = yarn.New(cfg, t.TempDir(), with.hooks, nil, with.coords, slog.New(slog.NewTextHandler(t.Output(), nil)))
	e.Require(with.guard)
	e.Rank([]yarn.Class{{Name: "high"}, {Name: "low"}})
	e.Restore(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return e, end
}

// sleeps is a job that has tasks for as long as the test takes. It ends with the test.
func (l *lab) sleeps(ctx context.Context, t *testing.T, queue string) *hadoop.RunningJob {
	t.Helper()
	job := testkit.Need(l.Submit(ctx, l.Sleep(queue, 400, time.Second)))(t)
	t.Cleanup(func() { // a ResourceManager that ends before the job does brings it back
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		testkit.Check(t, job.Kill(ctx))
		testkit.Need(job.Wait(ctx))(t)
	})
	return job
}

func TestCapacitySchedulerFollows(t *testing.T) {
	l, ctx := shared(t), within(t)
	testkit.Check(t, l.ReplaceScheduler(hadoop.LiveCapacityScheduler, nil))
	t.Cleanup(func() { testkit.Check(t, l.ReplaceScheduler(hadoop.LiveFairScheduler, nil)) })
	testkit.Check(t, l.AwaitNodes(ctx, "n1", "n2"))
	testkit.Check(t, l.SetMaximum(ctx, "q1", "90"))
	e, end := l.engine(t, engineWith{shares: "capacity", coords: agreeable{}, hooks: l.served(t)})
	l.decides(t, e)
	ctx = within(t)
	job := l.sleeps(ctx, t, "q1")
	await := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if !pause.For(ctx, 200*time.Millisecond) {
				uses, err := l.QueueUses(ctx)
				t.Fatalf("not: %s; %+v, %v", what, uses, err)
			}
		}
		t.Log(what)
	}
	await("the engine sees the job", func() bool { return len(e.List(job.ID)) == 1 })
	share := func(jobs ...*headroomv1.JobShare) {
		t.Helper()
		testkit.Check(t, e.Share(&headroomv1.ShareDirective{Engine: yarn.Name, Jobs: jobs}))
	}
	// Two nodes have 8 vcores; the job has its master and maps of one each.
	holds := func(n int64) func() bool {
		return func() bool {
			uses, err := l.QueueUses(ctx)
			return err == nil && len(uses) == 3 && uses[0].Name == "root.q1" && uses[0].Max.VCores == n && uses[0].Used.VCores == n
		}
	}
	for _, n := range []int64{6, 3, 5} {
		share(&headroomv1.JobShare{Id: job.ID, Containers: uint32(n)})
		await(fmt.Sprintf("the queue holds %d containers", n), holds(n))
	}
	line := regexp.MustCompile(`^Headroom: not capped, share 5 of 8 containers$`)
	await("its page shows our line", func() bool {
		said, err := job.Diagnostics(ctx)
		return err == nil && line.MatchString(said)
	})
	testkit.Check(t, l.SetMaximum(ctx, "q1", "77"))
	maximum := func(is func(string) bool) func() bool {
		return func() bool { text, err := l.Maximum(ctx, "q1"); return err == nil && is(text) }
	}
	await("the operator's edit is merged", maximum(func(s string) bool { return s != "77" }))
	await("the queue holds 5 containers again", holds(5))
	share()
	await("let go, the operator's edit is back", maximum(func(s string) bool { return s == "77" }))
	share(&headroomv1.JobShare{Id: job.ID, Containers: 4})
	await("it is held again", maximum(func(s string) bool { return s != "77" }))
	end()
	await("stopped, the operator's edit is back", maximum(func(s string) bool { return s == "77" }))
}
