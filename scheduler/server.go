package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/run"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/leader"
	"headroom/scheduler/profiles"
	"headroom/scheduler/yarn"
)

const (
	// stepEvery is the longest time between two decisions.
	stepEvery = 250 * time.Millisecond
	// restartHold is how long a restarted scheduler with running jobs waits for
	// its workers to say what they still run.
	restartHold = 2 * time.Second
	// eventsMax is how many events may wait for the loop; senders wait beyond it.
	eventsMax = 256
)

// Server is a running scheduler. One goroutine, the loop, owns all jobs and
// workers; everything else sends it events.
type Server struct {
	cfg     Config
	id      identity
	address string
	logger  *slog.Logger
	leader  *leader.Client
	// beside is the folder of this binary, where programs of the same build are found.
	beside string
	events chan event
	ended  chan dispatch.EndJob
	// queue is the dispatcher; it belongs to the loop.
	queue *buffers.Buffers
	// asked are drop ratios to commit.
	asked chan dispatch.Deflate
	// soon asks for a report at once.
	soon chan struct{}
	// profiles are the quality profiles; nil without a folder of them.
	profiles *profiles.Folder
	// yarn is the engine for YARN; nil without one.
	yarn *yarn.Engine
	// spark is the engine for Spark; nil without one.
	spark engine
	// ports are the TCP ports, by what metrics call them.
	ports map[string]net.Listener
	// keeper is the scheduler's certificate; nil in the clear.
	keeper *secure.Keeper
	// guard decides who may call what.
	guard *access.Guard
	// prover tells attempts that a worker was given from others.
	prover prover
	// submitting are the submissions under way.
	submitting access.Pending
	// resync wakes the restorer when the coordinators may know something new.
	resync chan struct{}
}

// Run serves on l until ctx ends. It returns nil for an ordered end; jobs go on
// when a scheduler is started again on the same folder or a new one.
func Run(ctx context.Context, cfg Config, l net.Listener, logger *slog.Logger) error {
	id, release, err := claim(cfg.Dir)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	own, err := openEdge(cfg, l)
	if err != nil {
		return errors.Join(err, release(), l.Close())
	}
	defer own.peers.Close()
	s, err := newServer(cfg, id, l.Addr().String(), own, logger)
	if err == nil {
		err = s.openYarn()
	}
	if err == nil {
		err = s.openSpark()
	}
	if err == nil {
		s.prover, err = openProver(cfg.Dir)
	}
	if err == nil {
		err = s.loadDenied()
	}
	if err != nil {
		return errors.Join(err, release(), closeAll(own.ports))
	}
	logger.Info("scheduler started", slog.String("id", id.ID), slog.Any("run", id.Run), slog.String("address", s.address))
	return errors.Join(s.serve(ctx, own.ports), release())
}

func newServer(cfg Config, id identity, address string, own edge, logger *slog.Logger) (*Server, error) {
	queue, err := buffers.New(cfg.settings())
	if err == nil {
		err = stand(queue, cfg)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Advertise != "" {
		address = cfg.Advertise
	}
	s := &Server{
		cfg: cfg, id: id, address: address, logger: logger, guard: newGuard(cfg, logger),
		leader: leader.New(cfg.Coordinators, own.peers), keeper: own.keeper,
		events: make(chan event, eventsMax),
		ended:  make(chan dispatch.EndJob, dispatch.EndedMax),
		resync: make(chan struct{}, 1),
		queue:  queue,
		asked:  make(chan dispatch.Deflate, jobsMax),
		soon:   make(chan struct{}, 1),
		ports:  map[string]net.Listener{portRPC: own.ports[0]},

		profiles: profiles.Open(cfg.Profiles, logger),
	}
	if exe, err := os.Executable(); err == nil {
		s.beside = filepath.Dir(exe)
	}
	return s, nil
}

func newGuard(cfg Config, logger *slog.Logger) *access.Guard {
	return access.New(cfg.Dev && cfg.TLS.Off(), cfg.SocketGroup, logger)
}

// serve runs the parts; when one ends, all do.
func (s *Server) serve(parent context.Context, ports []net.Listener) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	mux := http.NewServeMux()
	options := append(rpc.HandlerOptions(), connect.WithInterceptors(s.guard))
	mux.Handle(headroomv1connect.NewSchedulerServiceHandler(&service{s}, options...))
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(&workers{s}, options...))
	loop := newLoop(s)
	var g run.Group
	parts := []func(context.Context) error{
		loop.run, s.direct, s.restore, s.finish, s.deflate,
	}
	for _, l := range ports {
		parts = append(parts, func(ctx context.Context) error { return rpc.Serve(ctx, l, mux) })
	}
	if s.keeper != nil {
		parts = append(parts, s.watchDenied)
	}
	if s.cfg.Metrics.Listen != "" {
		parts = append(parts, s.serveMetrics)
	}
	if s.profiles != nil {
		parts = append(parts, s.profiles.Run)
	}
	if s.yarn != nil {
		parts = append(parts, s.yarn.Run)
	}
	if s.cfg.wanted() {
		parts = append(parts, s.choose)
	}
	if s.spark != nil {
		parts = append(parts, s.spark.Run, s.watch)
	}
	for _, part := range parts {
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}

// post gives an event to the loop, unless ctx ends first.
func (s *Server) post(ctx context.Context, e event) error {
	select {
	case s.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// postAnyway gives an event to the loop although the request that caused it may
// be over: what was committed must happen. Should the loop be gone, the next
// comparison with the log finds it.
func (s *Server) postAnyway(ctx context.Context, e event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	return s.post(ctx, e)
}

// ask gives an event to the loop and waits for the answer.
func ask[T any](ctx context.Context, s *Server, e event, reply <-chan T) (answer T, err error) {
	if err := s.post(ctx, e); err != nil {
		return answer, err
	}
	select {
	case answer = <-reply:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}
