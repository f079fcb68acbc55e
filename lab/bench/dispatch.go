package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
	"headroom/scheduler/distributor"
	"headroom/scheduler/master"
)

// Sizes of the dispatch benchmark.
const (
	// idleWorkers have idleSlots slots each; their tasks take no time.
	idleWorkers, idleSlots = 10, 10
	slots                  = idleWorkers * idleSlots
	// dispatchJob is how many tasks a job has, atOnce how many jobs are in progress at a time.
	dispatchJob, atOnce = 1000, 4
	// relayWindow is how many tasks may be under way through the relay: all that there are. relayRoom is how many messages may wait.
	relayWindow, relayRoom = atOnce * dispatchJob, 256
)

// dispatchTasks measures tasks through one master to workers whose tasks take no time, over RPC on loopback. The peer is a
// relay in the master's place: it has the same streams and messages and decides nothing.
func dispatchTasks(ctx context.Context, r *run) error {
	jobs := pick(r, 200, 5)
	peer, err := throughput(ctx, jobs, serveRelay)
	if err != nil {
		return err
	}
	ours, err := throughput(ctx, jobs, func(ctx context.Context, l net.Listener) error {
		logger := slog.New(slog.DiscardHandler)
		m, err := master.New(master.Config{Name: "m1", Group: rackName, Guard: access.New(true, "", logger), Logger: logger})
		if err != nil {
			return err
		}
		return m.Run(ctx, l)
	})
	if err != nil {
		return err
	}
	r.put("dispatch", one(1e6*ours), one(1e6*peer), "%.0f tasks/s; %d tasks on %d slots; peer: a relay in the master's place that decides nothing", 1/ours, jobs*dispatchJob, slots)
	return nil
}

// throughput is the time per task through what serves in the middle, s.
func throughput(ctx context.Context, jobs int, serve func(context.Context, net.Listener) error) (each float64, err error) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr := l.Addr().String()
	parts.Go(func() { _ = serve(ctx, l) })
	for i := range idleWorkers {
		parts.Go(func() { _ = idle(ctx, "n"+strconv.Itoa(i), addr) }) // it ends with ctx, or tasks are missed
	}
	d, err := distributor.New(distributor.Config{
		Name: "d1", Incarnation: 1, Groups: []distributor.Group{{Name: rackName, Masters: []string{addr}}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	parts.Go(func() { _ = d.Run(ctx) })
	err = await(ctx, 30*time.Second, fmt.Sprintf("the group has %d slots", slots), func() bool {
		all, err := d.Status(ctx)
		return err == nil && len(all) == 1 && all[0].GetSlots() == slots
	})
	if err == nil {
		err = runJobs(ctx, d, "warm", 2)
	}
	began := time.Now()
	if err == nil {
		err = runJobs(ctx, d, "timed", jobs)
	}
	return time.Since(began).Seconds() / float64(jobs*dispatchJob), err
}

// runJobs runs so many jobs, a few at a time, until one fails.
func runJobs(ctx context.Context, d *distributor.Distributor, name string, jobs int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for part := range atOnce {
		running.Go(func() {
			for i := part; i < jobs && ctx.Err() == nil; i += atOnce {
				if err := runJob(ctx, d, name+strconv.Itoa(i)); err != nil {
					fail(err)
				}
			}
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
			if !more {
				return nil
			}
			if t.GetError() != "" || t.GetExitCode() != 0 {
				return fmt.Errorf("bench: task %d of %s: exit code %d, %s", t.Index, name, t.GetExitCode(), t.GetError())
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
	m := &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: &headroomv1.WorkerHello{Node: node, Slots: idleSlots}}}
	inbox, broken := rpc.Inbox(ctx, 1, st.Receive)
	for {
		if err := st.Send(m); err != nil {
			return err
		}
		select {
		case err := <-broken:
			return err
		case <-time.After(time.Second):
			m = &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Alive{Alive: &headroomv1.WorkerAlive{}}}
		case given := <-inbox:
			m = ends(given)
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

// relay is what stands in a master's place to see what a master's decisions cost: it passes each message of its one distributor on to the
// next worker, and each of a worker's to the distributor. It decides nothing, keeps nothing and bounds nothing but by waiting.
type relay struct {
	headroomv1connect.UnimplementedMasterServiceHandler

	tasks   chan *headroomv1.PlaceTasks
	results chan *headroomv1.TaskResults
	workers chan struct{} // one for each that has come
}

// serveRelay serves until ctx ends.
func serveRelay(ctx context.Context, l net.Listener) error {
	r := &relay{tasks: make(chan *headroomv1.PlaceTasks, relayRoom), results: make(chan *headroomv1.TaskResults, relayRoom), workers: make(chan struct{}, idleWorkers)}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(r, rpc.HandlerOptions()...))
	mux.Handle(headroomv1connect.NewMasterServiceHandler(r, rpc.HandlerOptions()...))
	return rpc.Serve(ctx, l, mux)
}

// Work implements WorkerService.
func (r *relay) Work(ctx context.Context, st *connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]) error {
	r.workers <- struct{}{}
	inbox, broken := rpc.Inbox(ctx, 1, st.Receive)
	for {
		select {
		case err := <-broken:
			return err
		case m := <-r.tasks:
			if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Tasks{Tasks: &headroomv1.Tasks{Tasks: m.GetTasks()}}}); err != nil {
				return err
			}
		case m := <-inbox:
			if m.GetResults() != nil {
				r.results <- m.GetResults()
			}
		}
	}
}

// Place implements MasterService.
func (r *relay) Place(ctx context.Context, st *connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]) error {
	for range idleWorkers {
		<-r.workers
	}
	state := &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: &headroomv1.GroupState{
		Group: rackName, Master: "relay", Active: true, Workers: idleWorkers, Slots: slots, Usable: slots, Window: relayWindow, WindowHigh: relayWindow,
	}}}
	inbox, broken := rpc.Inbox(ctx, relayRoom, st.Receive)
	for next := state; ; {
		if next != nil {
			if err := st.Send(next); err != nil {
				return err
			}
		}
		next = nil
		select {
		case err := <-broken:
			return err
		case m := <-inbox:
			if m.GetTasks() != nil {
				r.tasks <- m.GetTasks()
			}
			if m.GetAlive() != nil {
				next = state // and the window is as it was
			}
		case all := <-r.results:
			next = &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: &headroomv1.GroupResults{Results: all.GetResults()}}}
		}
	}
}
