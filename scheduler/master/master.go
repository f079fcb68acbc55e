package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/slots"
)

const (
	// eventsMax is how many events may wait for the owner; senders wait beyond it.
	eventsMax = 1024
	// tickEvery is how often the owner looks at the time.
	tickEvery = 250 * time.Millisecond
	// leaveWait bounds telling the owner something after its stream is over.
	leaveWait = time.Second
)

// Master is a running master. One goroutine owns the group; everything else sends it events.
type Master struct {
	cfg    Config
	events chan arrival
	group  *group
	// delays are how long decisions take.
	delays prometheus.Histogram
}

// arrival is something for the owner to do, and when it came.
type arrival struct {
	do func(g *group)
	at time.Time
}

// New returns a master that does nothing until Run.
func New(cfg Config) (*Master, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Peers.HTTP() == nil {
		cfg.Peers = rpc.PlainPeers()
	}
	return &Master{cfg: cfg, events: make(chan arrival, eventsMax), delays: newDelays()}, nil
}

// Run serves on l until ctx ends, and closes l. It returns nil for an ordered end. Tasks that run go on: their workers go to the
// other master, or to this one when it is started again.
func (m *Master) Run(parent context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer m.cfg.Peers.Close()
	m.group = newGroup(m.cfg, time.Now())
	mux := http.NewServeMux()
	options := append(rpc.HandlerOptions(), connect.WithInterceptors(m.cfg.Guard))
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(workers{m}, options...))
	mux.Handle(headroomv1connect.NewMasterServiceHandler(distributors{m}, options...))
	mux.Handle(headroomv1connect.NewSlotServiceHandler(slots.Service{Group: frameworks{m}}, options...))
	parts := []func(context.Context) error{
		m.own,
		func(ctx context.Context) error { return rpc.Serve(ctx, l, withWriter(mux)) },
	}
	if m.cfg.Peer != "" {
		parts = append(parts, m.askPeer)
	}
	if len(m.cfg.Coordinators) > 0 {
		parts = append(parts, m.learnCaps)
	}
	if m.cfg.Denied != nil {
		parts = append(parts, m.cfg.Denied.Watch)
	}
	if m.cfg.Metrics != nil {
		parts = append(parts, m.serveMetrics)
	}
	m.cfg.Logger.Info("master started", slog.String("master", m.cfg.Name), slog.String("group", m.cfg.Group), slog.String("address", l.Addr().String()))
	var g run.Group
	for _, part := range parts {
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}

// own is the goroutine that owns the group.
func (m *Master) own(ctx context.Context) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.group.tick(time.Now())
			m.group.decide()
		case a := <-m.events:
			a.do(m.group)
			m.group.decide()
			m.delays.Observe(time.Since(a.at).Seconds())
		}
	}
}

// post queues an event for the owner, unless ctx ends first.
func (m *Master) post(ctx context.Context, do func(*group)) error {
	select {
	case m.events <- arrival{do, time.Now()}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// postAnyway does so although the request that it is about may be over. If the owner has ended, the event is dropped.
func (m *Master) postAnyway(ctx context.Context, do func(*group)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	_ = m.post(ctx, do)
}

// ask has the owner answer.
func ask[T any](ctx context.Context, m *Master, do func(*group) T) (answer T, err error) {
	reply := make(chan T, 1)
	if err := m.post(ctx, func(g *group) { reply <- do(g) }); err != nil {
		return answer, err
	}
	select {
	case answer = <-reply:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

type writerKey struct{}

// withWriter lets handlers end their own streams while a write waits for the peer.
func withWriter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, http.NewResponseController(w))))
	})
}

func writerOf(ctx context.Context) *http.ResponseController {
	w, _ := ctx.Value(writerKey{}).(*http.ResponseController)
	return w
}

// workers serves WorkerService.
type workers struct{ *Master }

// Work is the stream of one worker.
func (m workers) Work(ctx context.Context, st *workStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if err := access.CheckHello(access.CallerOf(ctx), hello); err != nil {
		return err
	}
	s := newWorkSession(hello.GetNode(), writerOf(ctx))
	refused, err := ask(ctx, m.Master, func(g *group) error { return g.hello(time.Now(), s, hello) })
	if err != nil || refused != nil {
		s.leave()
		return errors.Join(err, refused)
	}
	// The receiver ends when this handler has returned: that closes the request.
	go m.receive(ctx, st, s)
	return m.transmit(ctx, st, s)
}

// distributors serves MasterService.
type distributors struct{ *Master }

// Place is the stream of one distributor.
func (m distributors) Place(ctx context.Context, st *placeStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if !jobfile.ValidName(hello.GetDistributor()) {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
			fmt.Sprintf("distributor %q", hello.GetDistributor()), "a distributor must send its name first")
	}
	if err := access.OwnName(access.CallerOf(ctx), hello.GetDistributor()); err != nil {
		return err
	}
	s := newPlaceSession(hello.GetDistributor(), hello.GetIncarnation(), writerOf(ctx))
	s.epoch = rpc.SchedulerEpoch(st.RequestHeader())
	refused, err := ask(ctx, m.Master, func(g *group) error { return g.join(time.Now(), s) })
	if err != nil || refused != nil {
		s.leave()
		return errors.Join(err, refused)
	}
	go m.receiveFrom(ctx, st, s)
	return m.transmitTo(ctx, st, s)
}

// GetGroup returns the group as this master sees it.
func (m distributors) GetGroup(ctx context.Context, _ *connect.Request[headroomv1.GetGroupRequest]) (*connect.Response[headroomv1.GetGroupResponse], error) {
	return rpc.Respond(ask(ctx, m.Master, func(g *group) *headroomv1.GetGroupResponse { return g.view(time.Now()) }))
}
