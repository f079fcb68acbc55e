package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
	"headroom/scheduler/distributor"
	"headroom/scheduler/master"
)

// Sizes of the dispatch benchmarks.
const (
	// idleWorkers have idleSlots slots each; their tasks take no time.
	idleWorkers, idleSlots = 10, 10
	// dispatchJob is how many tasks a job has.
	dispatchJob = 1000
	// atOnce is how many jobs are in progress at a time.
	atOnce = 4
)

// dispatchTasks measures tasks through one master to workers whose tasks take no time, over RPC on loopback. The peer is a
// relay in the master's place: it has the same streams and messages and decides nothing.
func dispatchTasks(ctx context.Context, r *run) error {
	jobs := pick(r, 200, 5)
	peer, _, err := throughput(ctx, jobs, serveRelay)
	if err != nil {
		return err
	}
	ours, cpu, err := throughput(ctx, jobs, serveMaster)
	if err != nil {
		return err
	}
	r.put("dispatch", one(1e6*ours), one(1e6*peer), "%.0f tasks/s, %.0f us of CPU time each for distributor, master and workers in this process; %d tasks on %d slots; peer: a relay in the master's place that decides nothing",
		1/ours, 1e6*cpu, jobs*dispatchJob, idleWorkers*idleSlots)
	return nil
}

// serveMaster serves a master until ctx ends.
func serveMaster(ctx context.Context, l net.Listener) error {
	logger := slog.New(slog.DiscardHandler)
	m, err := master.New(master.Config{Name: "m1", Group: rackName, Guard: access.New(true, "", logger), Logger: logger})
	if err != nil {
		return err
	}
	return m.Run(ctx, l)
}

// throughput is the time per task through what serves in the middle, and the CPU time per task of this process, s.
func throughput(ctx context.Context, jobs int, serve func(context.Context, net.Listener) error) (each, cpu float64, err error) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	parts.Go(func() { _ = serve(ctx, l) })
	for i := range idleWorkers {
		parts.Go(func() { _ = idle(ctx, "n"+strconv.Itoa(i), l.Addr().String()) }) // it ends with ctx, or tasks are missed
	}
	d, err := distributor.New(distributor.Config{
		Name: "d1", Incarnation: 1, Groups: []distributor.Group{{Name: rackName, Masters: []string{l.Addr().String()}}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, 0, err
	}
	parts.Go(func() { _ = d.Run(ctx) })
	const slots = idleWorkers * idleSlots
	err = await(ctx, 30*time.Second, fmt.Sprintf("the group has %d slots", slots), func() bool {
		all, err := d.Status(ctx)
		return err == nil && len(all) == 1 && all[0].GetSlots() == slots
	})
	if err == nil {
		err = runJobs(ctx, d, "warm", 2)
	}
	used, errUsed := cpuTime(os.Getpid())
	began := time.Now()
	if err = errors.Join(err, errUsed); err == nil {
		err = runJobs(ctx, d, "timed", jobs)
	}
	tasks := float64(jobs * dispatchJob)
	each = time.Since(began).Seconds() / tasks
	after, errAfter := cpuTime(os.Getpid())
	return each, (after - used).Seconds() / tasks, errors.Join(err, errAfter)
}

// runJobs runs so many jobs, a few at a time, until one fails.
func runJobs(ctx context.Context, d *distributor.Distributor, name string, jobs int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range jobs {
		slots <- struct{}{}
		running.Go(func() {
			if err := runJob(ctx, d, name+strconv.Itoa(i)); err != nil {
				fail(err)
			}
			<-slots
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// runJob runs one job to its end.
func runJob(ctx context.Context, d *distributor.Distributor, name string) error {
	f, err := d.Submit(ctx, distributor.Job{Tasks: dispatchJob, High: true, Task: func(index, attempt int) *headroomv1.Task {
		ref := &headroomv1.TaskRef{Job: name, Phase: "map", Index: uint32(index), Attempt: uint32(attempt)}
		return &headroomv1.Task{Ref: ref, Argv: []string{"true"}, Output: name + "-" + strconv.Itoa(index)}
	}})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t, more := <-f.Results():
			switch {
			case !more:
				return nil
			case t.GetError() != "" || t.GetExitCode() != 0:
				return fmt.Errorf("bench: task %d of %s: exit code %d, %s: %w", t.Index, name, t.GetExitCode(), t.GetError(), errNotSo)
			}
		}
	}
}

// idle is a worker whose tasks end at once, until ctx ends.
func idle(ctx context.Context, node, address string) error {
	peers := rpc.PlainPeers()
	defer peers.Close()
	st := headroomv1connect.NewWorkerServiceClient(peers.HTTP(), peers.URL(address), peers.Options()...).Work(ctx)
	defer func() {
		_ = st.CloseRequest()
		_ = st.CloseResponse()
	}()
	hello := &headroomv1.WorkerHello{Node: node, Slots: idleSlots}
	if err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: hello}}); err != nil {
		return err
	}
	alive := time.NewTicker(time.Second)
	defer alive.Stop()
	inbox, broken := rpc.Inbox(ctx, 1, st.Receive)
	for {
		m := &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Alive{Alive: &headroomv1.WorkerAlive{}}}
		select {
		case err := <-broken:
			return err
		case <-alive.C:
		case given := <-inbox:
			m = ends(given)
		}
		if err := st.Send(m); err != nil {
			return err
		}
	}
}

// ends are the results of tasks that take no time.
func ends(m *headroomv1.WorkMessage) *headroomv1.WorkerMessage {
	tasks := m.GetTasks().GetTasks()
	if t := m.GetTask(); t != nil {
		tasks = append(tasks, t)
	}
	all := make([]*headroomv1.TaskResult, 0, len(tasks))
	for _, t := range tasks {
		all = append(all, &headroomv1.TaskResult{Ref: t.GetRef(), Seconds: 1e-6})
	}
	return &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Results{Results: &headroomv1.TaskResults{Results: all}}}
}
