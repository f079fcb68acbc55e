package master

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/scheduler/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for: many times what it takes.
const patience = 30 * time.Second

// served is a running master.
type served struct {
	*Master

	address string
	stop    func()
}

// serve runs a master on a port of its own until stop or the end of the test.
func serve(tb testing.TB, cfg Config) *served {
	tb.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Guard = access.New(true, "", cfg.Logger)
	m := testkit.Need(New(cfg))(tb)
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(tb)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx, l) }()
	s := &served{Master: m, address: l.Addr().String(), stop: sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			tb.Error(err)
		}
	})}
	tb.Cleanup(s.stop)
	return s
}

// see is the group as a master sees it.
func (s *served) see(tb testing.TB) *headroomv1.GetGroupResponse {
	tb.Helper()
	return testkit.Need(ask(tb.Context(), s.Master, func(g *group) *headroomv1.GetGroupResponse { return g.view(time.Now()) }))(tb)
}

// worker is a worker without processes: what it is given ends when its test says so, or at once.
type worker struct {
	peers  rpc.Peers
	mu     sync.Mutex
	begun  map[key]int
	killed map[key]int
	held   map[key]*headroomv1.TaskRef // running
	ended  []*headroomv1.TaskResult    // to be repeated
	quick  bool
	ask    chan struct{} // asks for ended to be sent
	cancel func()
	over   chan struct{}
}

// work connects a worker until it is stopped; it asks the addresses in turn.
func work(tb testing.TB, node string, slots int, quick bool, addrs ...string) *worker {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{
		peers: rpc.PlainPeers(), begun: map[key]int{}, killed: map[key]int{}, held: map[key]*headroomv1.TaskRef{}, quick: quick,
		ask: make(chan struct{}, 1), over: make(chan struct{}),
	}
	w.cancel = sync.OnceFunc(func() {
		cancel()
		<-w.over
		w.peers.Close()
	})
	tb.Cleanup(w.cancel)
	go func() {
		defer close(w.over)
		for at := 0; ctx.Err() == nil; at++ {
			_ = w.session(ctx, node, slots, addrs[at%len(addrs)])
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return w
}

func (w *worker) session(parent context.Context, node string, slots int, addr string) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	st := headroomv1connect.NewWorkerServiceClient(w.peers.HTTP(), w.peers.URL(addr), w.peers.Options()...).Work(ctx)
	hello := &headroomv1.WorkerHello{Node: node, Slots: uint32(slots)}
	w.mu.Lock()
	for _, r := range w.held {
		hello.Running = append(hello.Running, r)
	}
	for _, r := range w.ended {
		hello.Running = append(hello.Running, r.GetRef())
	}
	w.mu.Unlock()
	if err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: hello}}); err != nil {
		return err
	}
	inbox, broken := rpc.Inbox(ctx, 16, st.Receive)
	defer func() {
		cancel()
		_ = st.CloseRequest()
		_ = st.CloseResponse()
		for range inbox {
			continue
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	w.wake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case m := <-inbox:
			if err := w.handle(st.Send, m); err != nil {
				return err
			}
		case <-w.ask:
			w.mu.Lock()
			m := results(w.ended)
			w.mu.Unlock()
			if err := st.Send(m); err != nil {
				return err
			}
		case <-tick.C:
			if err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Alive{Alive: &headroomv1.WorkerAlive{}}}); err != nil {
				return err
			}
		}
	}
}

func results(all []*headroomv1.TaskResult) *headroomv1.WorkerMessage {
	return &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Results{Results: &headroomv1.TaskResults{Results: all}}}
}

func (w *worker) wake() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}

func (w *worker) handle(send func(*headroomv1.WorkerMessage) error, m *headroomv1.WorkMessage) error {
	tasks := m.GetTasks().GetTasks()
	if w.quick && tasks != nil {
		all := make([]*headroomv1.TaskResult, 0, len(tasks))
		for _, t := range tasks {
			all = append(all, &headroomv1.TaskResult{Ref: t.GetRef(), Seconds: 1e-6})
		}
		return send(results(all))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tasks {
		w.begun[keyOf(t.GetRef())]++
		w.held[keyOf(t.GetRef())] = t.GetRef()
	}
	if k := m.GetKill(); k != nil {
		w.killed[keyOf(k)]++
	}
	return nil
}

func (w *worker) runs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// source is a distributor that only hands over and takes.
type source struct {
	tb     testing.TB
	peers  rpc.Peers
	send   func(*headroomv1.PlaceMessage) error
	mu     sync.Mutex
	done   map[key]int
	came   chan struct{}
	cancel func()
}

// connectTo connects a distributor, d1.
func connectTo(tb testing.TB, addr string) *source {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{tb: tb, peers: rpc.PlainPeers(), done: map[key]int{}, came: make(chan struct{}, 1)}
	st := headroomv1connect.NewMasterServiceClient(s.peers.HTTP(), s.peers.URL(addr), s.peers.Options()...).Place(ctx)
	var sending sync.Mutex
	s.send = func(m *headroomv1.PlaceMessage) error {
		sending.Lock()
		defer sending.Unlock()
		return st.Send(m)
	}
	over := make(chan struct{})
	testkit.Check(tb, st.Send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Hello{Hello: &headroomv1.PlaceHello{Distributor: "d1", Incarnation: 1}}}))
	go func() {
		defer close(over)
		for {
			m, err := st.Receive()
			if err != nil {
				if ctx.Err() == nil {
					tb.Logf("distributor d1: %v", err)
				}
				return
			}
			s.hear(m)
		}
	}()
	alive := make(chan struct{})
	go func() {
		defer close(alive)
		for ctx.Err() == nil {
			_ = s.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Alive{Alive: &headroomv1.PlaceAlive{}}}) // the receiver sees why not
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	s.cancel = sync.OnceFunc(func() {
		cancel()
		<-over
		<-alive
		_ = st.CloseRequest()
		_ = st.CloseResponse()
		s.peers.Close()
	})
	tb.Cleanup(s.cancel)
	return s
}

func (s *source) hear(m *headroomv1.GroupMessage) {
	taken := &headroomv1.PlaceTaken{}
	s.mu.Lock()
	for _, r := range m.GetResults().GetResults() {
		s.done[keyOf(r.GetRef())]++
		taken.Refs = append(taken.Refs, r.GetRef())
	}
	taken.Refs = append(taken.Refs, m.GetResults().GetLost()...)
	s.mu.Unlock()
	if len(taken.GetRefs()) > 0 {
		_ = s.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Taken{Taken: taken}}) // repeated if it did not arrive
	}
	select {
	case s.came <- struct{}{}:
	default:
	}
}

func (s *source) results() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done)
}

// tasks are attempts of one job.
func tasks(job string, from, to int) []*headroomv1.Task {
	all := make([]*headroomv1.Task, 0, to-from)
	for i := from; i < to; i++ {
		all = append(all, &headroomv1.Task{
			Ref: &headroomv1.TaskRef{Job: job, Phase: "map", Index: uint32(i), Attempt: 1, Proof: fmt.Sprintf("%s-%d", job, i)}, Argv: []string{"/bin/true", "--input", "/srv/text/part-00000.txt"}, Output: "/srv/headroom/out/map-00000",
			Dir: "/srv/headroom",
		})
	}
	return all
}

func (s *source) place(all []*headroomv1.Task, high bool) {
	s.tb.Helper()
	testkit.Check(s.tb, s.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Tasks{Tasks: &headroomv1.PlaceTasks{Tasks: all, High: high}}}))
}
