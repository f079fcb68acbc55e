package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"headroom/jobs/buffers"
	"headroom/scheduler/access"
	"headroom/scheduler/leader"
	"headroom/scheduler/lookup"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
)

const (
	// stepEvery is the longest time between two decisions.
	stepEvery = 250 * time.Millisecond
	// restartHold is how long a restarted scheduler with running jobs waits for its workers to report what they still
	// run.
	restartHold = 2 * time.Second
)

// Server is a running scheduler. One goroutine, the loop, owns all jobs and workers; everything else sends it events.
type Server struct {
	cfg    Config
	id     identity
	logger *slog.Logger
	leader *leader.Client
	inbox  inbox
	// queue is the dispatcher; it belongs to the loop.
	queue *buffers.Buffers
	// profiles are the quality profiles; nil without a folder of them.
	profiles *profiles.Folder
	// scaling learns scaling curves; nil if it is off.
	scaling *scaling.Learner
	// guard decides who may call which method.
	guard *access.Guard
	// denials are the denied certificates; nil without TLS.
	denials  *access.Denied
	director *director
	commits  *committer
	engines  *engines
	restorer *restorer
	folders  jobFolders
	// operations are those on users' folders.
	operations *operations
	// prover recognises attempts that a worker was given.
	prover prover
	// submitting are the submissions in progress.
	submitting access.Pending
	requests   requests
	tally      *tally
	// ports are the TCP ports, by their label in metrics.
	ports map[string]net.Listener
}

// Run serves on l until ctx ends. It returns nil after a regular stop; jobs resume when a scheduler is started again on
// the same folder or a new one.
func Run(ctx context.Context, cfg Config, l net.Listener, logger *slog.Logger) error {
	id, release, err := claim(cfg.Dir)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	own, err := openEdge(cfg, l, logger)
	if err != nil {
		return errors.Join(err, release(), l.Close())
	}
	defer own.peers.Close()
	s, err := newServer(cfg, id, l.Addr().String(), own, logger)
	if err != nil {
		return errors.Join(err, release(), closeAll(own.ports))
	}
	logger.Info("scheduler started", slog.String("id", id.ID), slog.Any("run", id.Run), slog.String("address", s.director.address))
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
	s := &Server{
		cfg: cfg, id: id, logger: logger, guard: newGuard(cfg, logger), leader: leader.New(cfg.Coordinators, own.peers),
		inbox: make(inbox, eventsMax), queue: queue, profiles: profiles.Open(cfg.Profiles, logger), scaling: openScaling(cfg, logger),
		tally: newTally(), ports: map[string]net.Listener{portRPC: own.ports[0]},
	}
	if s.folders, err = openFolders(cfg.Dir, logger); err != nil {
		return nil, fmt.Errorf("scheduler: its folder: %w", err)
	}
	s.operations = newOperations(s.inbox)
	s.commits = newCommitter(id, s.leader, s.inbox, logger)
	if s.engines, err = openEngines(s, own.keeper); err != nil {
		return nil, err
	}
	if s.prover, err = openProver(cfg.Dir); err != nil {
		return nil, err
	}
	if own.keeper != nil {
		s.denials = &access.Denied{
			File: filepath.Join(cfg.Dir, access.DeniedFile), Coordinators: cfg.Coordinators, Peers: own.peers, Keeper: own.keeper, Guard: s.guard, Logger: logger,
		}
		if err := s.denials.Load(); err != nil {
			return nil, err
		}
	}
	s.guard.Refused = s.commits.noteRefused
	s.restorer = &restorer{
		leader: s.leader, inbox: s.inbox, engines: s.engines, folders: s.folders, operations: s.operations, logger: logger,
		programs: ownFolder(), find: newFinder(cfg), wanted: make(chan struct{}, 1),
	}
	s.director = &director{
		id: id.ID, address: cmp.Or(cfg.Advertise, address), leader: s.leader, inbox: s.inbox, engines: s.engines, logger: logger,
		soon: make(chan struct{}, 1), led: s.restorer.wanted,
	}
	return s, nil
}

// newFinder returns what looks at the files of jobs.
func newFinder(cfg Config) finder {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	f := lookup.Finder{Users: cfg.taskUsers(), Command: []string{self, "look-up"}}
	return f.Find
}

// ownFolder returns the folder of this binary, which has the programs of the same build.
func ownFolder() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(exe)
}

func newGuard(cfg Config, logger *slog.Logger) *access.Guard {
	return access.New(cfg.Dev && cfg.TLS.Off(), cfg.SocketGroup, logger)
}

// serve runs the parts until one of them ends.
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
		loop.run, s.director.run, s.restorer.run, s.commits.ends, s.commits.ratios, s.commits.admissions, s.commits.scalings,
		s.commits.notes, loop.samples.run, s.operations.run,
	}
	for range recorders {
		parts = append(parts, s.commits.commitRuns)
	}
	for _, l := range ports {
		parts = append(parts, func(ctx context.Context) error { return rpc.Serve(ctx, l, mux) })
	}
	if s.denials != nil {
		parts = append(parts, s.denials.Watch)
	}
	if s.cfg.Metrics.Listen != "" {
		parts = append(parts, s.serveMetrics)
	}
	if s.profiles != nil {
		parts = append(parts, s.profiles.Run)
	}
	if s.scaling != nil {
		parts = append(parts, s.learnScaling)
	}
	if s.cfg.wanted() {
		parts = append(parts, s.choose)
	}
	parts = append(parts, s.engines.parts()...)
	for _, part := range parts {
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}
