package master

// Claims, over real streams: tasks come back as results; a distributor that does not read is cut off and holds nobody up; caps are
// learned from whichever coordinator leads, and a node of another domain is refused; everybody shows a certificate of a role, and
// speaks for themselves only; what happens is told to Prometheus.

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	coordinators "headroom/coordinator/access"
	"headroom/internal/rpc"
	"headroom/internal/scrape"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/ledger"
	"headroom/scheduler/access"
)

func TestTasksComeBack(t *testing.T) {
	t.Parallel()
	metrics := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	m := serve(t, Config{Name: "m1", Group: "rack/r1", Metrics: metrics})
	work(t, "n01", 4, true, m.address)
	testkit.Eventually(t, patience, "worker", func() bool { return m.see(t).GetState().GetWorkers() == 1 })
	s := connectTo(t, m.address)
	s.place(tasks("j", 0, 500), false)
	s.place(tasks("k", 0, 500), true)
	testkit.Eventually(t, patience, "results", func() bool { return s.results() == 1000 })
	r := testkit.Need(http.Get("http://" + metrics.Addr().String() + scrape.Path))(t)
	text := testkit.Need(io.ReadAll(r.Body))(t)
	_ = r.Body.Close()
	for _, line := range []string{
		"headroom_master_active 1", `headroom_master_slots{kind="all"} 4`, `headroom_master_tasks_total{what="ended"} 1000`,
		`headroom_master_tasks{priority="low",state="waiting"} 0`, `headroom_master_decision_seconds_bucket{le="+Inf"}`,
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func TestSlowDistributorIsCutOff(t *testing.T) {
	t.Parallel()
	m := serve(t, Config{Name: "m1", Group: "rack/r1"})
	w := work(t, "n01", 700, false, m.address)
	testkit.Eventually(t, patience, "worker", func() bool { return m.see(t).GetState().GetWorkers() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slow := rpc.PlainPeers()
	defer slow.Close()
	st := headroomv1connect.NewMasterServiceClient(slow.HTTP(), slow.URL(m.address), slow.Options()...).Place(ctx)
	send := func(x *headroomv1.PlaceMessage) error { return st.Send(x) }
	testkit.Check(t, send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Hello{Hello: &headroomv1.PlaceHello{Distributor: "slow", Incarnation: 1}}}))
	deaf := source{tb: t, send: send}
	testkit.Eventually(t, patience, "its stream", func() bool { return len(m.see(t).GetDistributors()) == 1 })
	deaf.place(tasks("j", 0, 700), false)
	testkit.Eventually(t, patience, "its tasks run", func() bool { return w.runs() == 700 })
	w.fail(strings.Repeat("x", 10<<10)) // 7 MB of results, more than a stream holds unread
	good := connectTo(t, m.address)
	began := time.Now()
	testkit.Eventually(t, patience, "end of the stream", func() bool {
		return send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Alive{Alive: &headroomv1.PlaceAlive{}}}) != nil
	})
	if took := time.Since(began); took > 2*stallMost+patience/2 {
		t.Errorf("cut off after %v", took)
	}
	good.place(tasks("k", 0, 10), true)
	testkit.Eventually(t, patience, "tasks of another distributor", func() bool { return w.runs() == 10 })
	cancel()
	_ = st.CloseRequest()
	_ = st.CloseResponse()
}

// fail ends all that runs with an error.
func (w *worker) fail(why string) {
	w.mu.Lock()
	for k, r := range w.held {
		w.ended = append(w.ended, &headroomv1.TaskResult{Ref: r, ExitCode: 1, Error: why})
		delete(w.held, k)
	}
	w.mu.Unlock()
	w.wake()
}

// coordinator tells the nodes of a domain, if it leads.
type coordinator struct {
	headroomv1connect.UnimplementedClusterServiceHandler
	leader string // address; empty: it leads
	mu     sync.Mutex
	asked  string
	nodes  []*headroomv1.Node
}

func (c *coordinator) ListNodes(_ context.Context, r *connect.Request[headroomv1.ListNodesRequest]) (*connect.Response[headroomv1.ListNodesResponse], error) {
	if c.leader != "" {
		return nil, rpc.NotLeader("c1", c.leader)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = r.Msg.GetDomain()
	return connect.NewResponse(&headroomv1.ListNodesResponse{Nodes: c.nodes}), nil
}

func (c *coordinator) serve(t *testing.T) (address string) {
	t.Helper()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewClusterServiceHandler(c))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- rpc.Serve(ctx, l, mux) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-over)
	})
	return l.Addr().String()
}

func TestCapsAreLearned(t *testing.T) {
	t.Parallel()
	leads := &coordinator{nodes: []*headroomv1.Node{{Name: "n01", TargetUw: new(int64(150e6)), FloorUw: 100e6, MaxUw: 200e6}}}
	follows := &coordinator{leader: leads.serve(t)}
	m := serve(t, Config{Name: "m1", Group: "rack/r1", Coordinators: []string{"127.0.0.1:1", follows.serve(t)}})
	work(t, "n01", 8, true, m.address)
	work(t, "n02", 8, true, m.address)
	testkit.Eventually(t, patience, "caps", func() bool {
		s := m.see(t).GetState()
		return s.GetWorkers() == 1 && s.GetSlots() == 8 && s.GetUsable() == 4 && s.GetTrouble() == ""
	})
	leads.mu.Lock()
	defer leads.mu.Unlock()
	if leads.asked != "rack/r1" {
		t.Errorf("asks for the nodes of %q", leads.asked)
	}
}

// With its certificate a master learns the caps of its nodes from coordinators that ask for one, and can do nothing else there.
func TestCapsAreLearnedWithACertificate(t *testing.T) {
	t.Parallel()
	certs, quiet := testkit.NewCertificates(t), slog.New(slog.DiscardHandler)
	open := func(role, name string) *secure.Keeper { return testkit.Need(secure.Open(certs.Files(role, name)))(t) }
	c := &coordinator{nodes: []*headroomv1.Node{{Name: "n01", TargetUw: new(int64(150e6)), FloorUw: 100e6, MaxUw: 200e6}}}
	guard := coordinators.New(func(read func(*ledger.State)) { read(&ledger.State{}) }, quiet)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewClusterServiceHandler(c, connect.WithInterceptors(guard)))
	mux.Handle(headroomv1connect.NewJobServiceHandler(headroomv1connect.UnimplementedJobServiceHandler{}, connect.WithInterceptors(guard)))
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- rpc.Serve(ctx, rpc.SecureListener(l, open(secure.Server, "c1")), mux) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-over)
	})
	peers := rpc.SecurePeers(open(secure.Master, "m1"), secure.Server, secure.Master)
	m := serve(t, Config{Name: "m1", Group: "rack/r1", Coordinators: []string{l.Addr().String()}, Peers: peers})
	testkit.Eventually(t, patience, "caps", func() bool { return m.see(t).GetState().GetTrouble() == "" })
	jobs := headroomv1connect.NewJobServiceClient(peers.HTTP(), peers.URL(l.Addr().String()), peers.Options()...)
	_, err := jobs.CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "evil-1"}}))
	if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "job commit needs role operator; m1 has role master") {
		t.Errorf("it commits a job: %v", err)
	}
}

func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	certs := testkit.NewCertificates(t)
	keeper := func(role, name string) *secure.Keeper { return testkit.Need(secure.Open(certs.Files(role, name)))(t) }
	quiet := slog.New(slog.DiscardHandler)
	m := testkit.Need(New(Config{Name: "m1", Group: "rack/r1", Guard: access.New(false, "", quiet), Logger: quiet}))(t)
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx, rpc.SecureListener(l, keeper(secure.Master, "m1"))) }()
	defer func() {
		cancel()
		testkit.Check(t, <-over)
	}()
	for name, c := range map[string]struct {
		role, own, as string
		work, ok      bool
	}{
		"a worker as its node":                 {secure.Worker, "n01", "n01", true, true},
		"a worker as another node":             {secure.Worker, "n02", "n03", true, false},
		"a worker hands tasks over":            {secure.Worker, "n04", "n04", false, false},
		"a distributor as itself":              {secure.Scheduler, "d1", "d1", false, true},
		"a distributor as another":             {secure.Scheduler, "d2", "d3", false, false},
		"a distributor as worker":              {secure.Scheduler, "n05", "n05", true, false},
		"a master hands tasks over":            {secure.Master, "m2", "m2", false, false},
		"a master as worker":                   {secure.Master, "n07", "n07", true, false},
		"a submitter hands tasks over":         {secure.Submitter, "mia", "mia", false, false},
		"an administrator hands tasks over":    {secure.Admin, "ann", "ann", false, false},
		"the powerd of a node works as worker": {secure.Node, "n06", "n06", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			peers := rpc.SecurePeers(keeper(c.role, c.own), secure.Master)
			defer peers.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var receive func() error
			if c.work {
				st := headroomv1connect.NewWorkerServiceClient(peers.HTTP(), peers.URL(l.Addr().String()), peers.Options()...).Work(ctx)
				_ = st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: &headroomv1.WorkerHello{Node: c.as, Slots: 1}}}) // Receive tells why not
				receive = func() error { _, err := st.Receive(); return err }
			} else {
				st := headroomv1connect.NewMasterServiceClient(peers.HTTP(), peers.URL(l.Addr().String()), peers.Options()...).Place(ctx)
				_ = st.Send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Hello{Hello: &headroomv1.PlaceHello{Distributor: c.as}}}) // Receive tells why not
				receive = func() error { _, err := st.Receive(); return err }
			}
			if c.ok && c.work { // a worker is told nothing while there are no tasks
				testkit.Eventually(t, patience, "the worker", func() bool {
					v := testkit.Need(ask(t.Context(), m, func(g *group) int { return len(g.nodes) }))(t)
					return v == 1
				})
				return
			}
			if err := receive(); (err == nil) != c.ok || err != nil && connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%v", err)
			}
		})
	}
}
