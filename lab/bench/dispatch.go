package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
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
	// atOnce is how many jobs are under way at once, and how many processes a worker, or the peer, starts at once.
	atOnce       = 4
	dispatchMost = 50 // us a task: 20,000 tasks a second
	decisionMost = 1  // ms
	// dispatchPatience bounds the start of a group.
	dispatchPatience = 30 * time.Second
	// startJob is how many tasks a job of processes has.
	startJob = 100
)

// dispatchTasks measures tasks a second through one master to workers whose tasks take no time, over RPC on loopback. The peer is a
// relay in the master's place: it has the same streams and messages and decides nothing.
func dispatchTasks(ctx context.Context, r *run) ([]Item, error) {
	jobs := pick(r, 200, 10)
	relay, _, err := throughput(ctx, jobs, func(ctx context.Context, l, _ net.Listener) error { return serveRelay(ctx, l) }, nil)
	if err != nil {
		return nil, err
	}
	decision := math.NaN()
	ours, cpu, err := throughput(ctx, jobs, serveMaster, func(address string) (err error) {
		decision, err = decisionQuantile(ctx, address, 0.99)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []Item{
		newItem("dispatch", "time per task through one master to workers whose tasks take no time", "us").is(1e6/ours).against(1e6/relay).aim(atMost(dispatchMost, "<= 50 us, 20,000 tasks/s")).
			say("%.0f tasks/s, %.0f us of CPU time each for distributor, master and workers, all in this process; %d tasks of no length on %d slots; peer: a relay in the master's place that decides nothing",
				ours, 1e6*cpu, jobs*dispatchJob, idleWorkers*idleSlots),
		newItem("dispatch-decision", "time from a message's arrival at a master until all that follows is decided", "ms").is(1000 * decision).
			aim(atMost(decisionMost, "p99 <= 1 ms")).say("99th percentile, rounded up to the next bucket of the master's metric, at the load of dispatch"),
	}, nil
}

// serveMaster serves a master until ctx ends, with its metrics.
func serveMaster(ctx context.Context, l, metrics net.Listener) error {
	logger := slog.New(slog.DiscardHandler)
	m, err := master.New(master.Config{Name: "m1", Group: rackName, Guard: access.New(true, "", logger), Metrics: metrics, Logger: logger})
	if err != nil {
		return err
	}
	return m.Run(ctx, l)
}

// throughput is how many tasks a second go through what serves in the middle, and the CPU time that each takes of this process, s;
// look is called before its end.
func throughput(ctx context.Context, jobs int, serve func(ctx context.Context, l, metrics net.Listener) error, look func(metrics string) error) (rate, cpu float64, err error) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	metrics, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return 0, 0, errors.Join(err, l.Close())
	}
	defer func() { _ = metrics.Close() }() // a relay has none
	parts.Go(func() { _ = serve(ctx, l, metrics) })
	for i := range idleWorkers {
		parts.Go(func() { _ = idle(ctx, "n"+strconv.Itoa(i), l.Addr().String()) }) // it ends with ctx, or tasks are missed
	}
	d, err := distribute(ctx, &parts, l.Addr().String(), idleWorkers*idleSlots)
	if err != nil {
		return 0, 0, err
	}
	if err := runJobs(ctx, d, "warm", 2, dispatchJob, []string{"true"}, ""); err != nil {
		return 0, 0, err
	}
	used, _, err := cpuTime(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := runJobs(ctx, d, "timed", jobs, dispatchJob, []string{"true"}, ""); err != nil {
		return 0, 0, err
	}
	tasks := float64(jobs * dispatchJob)
	rate = tasks / time.Since(began).Seconds()
	after, _, err := cpuTime(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	cpu = (after - used).Seconds() / tasks
	if look != nil {
		err = look(metrics.Addr().String())
	}
	return rate, cpu, err
}

// distribute runs a distributor over the group of the master at address until ctx ends, and waits until the group has so many slots.
func distribute(ctx context.Context, parts *sync.WaitGroup, address string, slots int) (*distributor.Distributor, error) {
	d, err := distributor.New(distributor.Config{
		Name: "d1", Incarnation: 1, Groups: []distributor.Group{{Name: rackName, Masters: []string{address}}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	parts.Go(func() { _ = d.Run(ctx) })
	return d, await(ctx, dispatchPatience, fmt.Sprintf("the group has %d slots", slots), func() bool {
		all, err := d.Status(ctx)
		return err == nil && len(all) == 1 && int(all[0].GetSlots()) == slots
	})
}

// runJobs runs so many jobs of so many tasks, a few jobs at a time. Their outputs are in dir.
func runJobs(ctx context.Context, d *distributor.Distributor, name string, jobs, tasks int, argv []string, dir string) error {
	return together(ctx, jobs, func(ctx context.Context, i int) error {
		return runJob(ctx, d, name+strconv.Itoa(i), tasks, argv, dir)
	})
}

// together calls do with each number below count, atOnce of them at a time, until one fails.
func together(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	next, failures := make(chan int), make(chan error, atOnce)
	for range atOnce {
		go func() {
			var err error
			for i := range next {
				if err = do(running, i); err != nil {
					cancel()
					break
				}
			}
			failures <- err
		}()
	}
	for i := range count {
		select {
		case next <- i:
		case <-running.Done():
		}
	}
	close(next)
	all := ctx.Err() // a number may be left that nobody has taken
	for range atOnce {
		all = errors.Join(all, <-failures)
	}
	return all
}

// runJob runs one job to its end.
func runJob(ctx context.Context, d *distributor.Distributor, name string, tasks int, argv []string, dir string) error {
	f, err := d.Submit(ctx, distributor.Job{Tasks: tasks, High: true, Task: func(index, attempt int) *headroomv1.Task {
		return &headroomv1.Task{
			Ref:  &headroomv1.TaskRef{Job: name, Phase: "map", Index: uint32(index), Attempt: uint32(attempt)},
			Argv: argv, Output: filepath.Join(dir, name+"-"+strconv.Itoa(index)), Dir: dir,
		}
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

// decisionQuantile is a quantile of how long a master's decisions take, s: the upper end of the bucket that it is in.
func decisionQuantile(ctx context.Context, address string, q float64) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rpc.BaseURL(address)+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	families, err := new(expfmt.NewTextParser(model.UTF8Validation)).TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, err
	}
	family := families["headroom_master_decision_seconds"]
	if len(family.GetMetric()) != 1 {
		return 0, fmt.Errorf("bench: %d histograms of decisions: %w", len(family.GetMetric()), errNotSo)
	}
	h := family.GetMetric()[0].GetHistogram()
	for _, b := range h.GetBucket() {
		if float64(b.GetCumulativeCount()) >= q*float64(h.GetSampleCount()) {
			return b.GetUpperBound(), nil
		}
	}
	return math.Inf(1), nil
}

// processes measures how many processes a second a worker starts for the tasks of a master. The peer starts the same program
// as often by itself, as many at a time.
func processes(ctx context.Context, r *run) ([]Item, error) {
	jobs := pick(r, 40, 2)
	rate, err := workerStarts(ctx, r, jobs)
	if err != nil {
		return nil, err
	}
	peer, err := bareStarts(ctx, jobs*startJob)
	if err != nil {
		return nil, err
	}
	return []Item{newItem("process", "time per process that a worker of 4 slots starts and ends", "us").is(1e6/rate).against(1e6/peer).
		say("%.0f processes/s: %d tasks that run the program true and keep an empty output each, through a master; peer: the same program started without worker, master and output",
			rate, jobs*startJob)}, nil
}

// workerStarts runs tasks on a worker's process.
func workerStarts(ctx context.Context, r *run, jobs int) (rate float64, err error) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	parts.Go(func() { _ = serveMaster(ctx, l, nil) })
	g, err := cluster.NewGroup(filepath.Join(r.dir, "logs"))
	if err != nil {
		return 0, err
	}
	defer r.end(g.Close)
	if _, err := g.Start("worker", nil, filepath.Join(r.Bin, "scheduler"), "worker", "--node", "n1", "--scheduler", l.Addr().String(),
		"--slots", strconv.Itoa(atOnce), "--dir", filepath.Join(r.dir, "work"), "--dev", "--log-level", "warn"); err != nil {
		return 0, err
	}
	program, err := exec.LookPath("true")
	if err != nil {
		return 0, err
	}
	d, err := distribute(ctx, &parts, l.Addr().String(), atOnce)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := runJobs(ctx, d, "start", jobs, startJob, []string{program}, r.dir); err != nil {
		return 0, err
	}
	return float64(jobs*startJob) / time.Since(began).Seconds(), nil
}

// bareStarts is how many times a second the program true is started and awaited, as many at a time as a worker has slots.
func bareStarts(ctx context.Context, count int) (float64, error) {
	began := time.Now()
	err := together(ctx, count, func(ctx context.Context, _ int) error { return exec.CommandContext(ctx, "true").Run() })
	return float64(count) / time.Since(began).Seconds(), err
}
