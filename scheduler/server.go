package scheduler

import (
	"cmp"
	"context"
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

// Server is a scheduler that acts, for one tenure. One goroutine, the loop, owns all jobs and workers; everything else
// sends it events.
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
	// lease is the tenure that it acts in.
	lease    *tenure
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

func newServer(cfg Config, id identity, address string, own edge, logger *slog.Logger) (*Server, error) {
	queue, err := buffers.New(cfg.settings())
	if err == nil {
		err = stand(queue, cfg)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, id: id, logger: logger, guard: own.guard, leader: leader.New(cfg.Coordinators, own.peers), lease: &tenure{},
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

// begin begins the tenure of a lease.
func (s *Server) begin(l *tenure) {
	s.lease, s.prover = l, s.prover.withKey(l.key)
	s.leader.Under(l.Epoch)
	if epoch := l.Epoch(); epoch != 0 {
		s.id.Run = uint16(epoch) // attempts of different tenures have different numbers, on whatever machine
	}
}

// act runs the parts until ctx ends or one of them does. What it answers goes through gw.
func (s *Server) act(parent context.Context, gw *gateway, keep func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	mux := http.NewServeMux()
	options := append(rpc.HandlerOptions(), connect.WithInterceptors(s.guard))
	mux.Handle(headroomv1connect.NewSchedulerServiceHandler(&service{s}, options...))
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(&workers{s}, options...))
	loop := newLoop(s)
	var g run.Group
	parts := []func(context.Context) error{
		keep, loop.run, s.director.run, s.restorer.run, s.commits.ends, s.commits.ratios, s.commits.admissions, s.commits.scalings,
		loop.samples.run, func(ctx context.Context) error { return gw.serve(ctx, s.lease, mux) }, s.operations.run,
	}
	for range recorders {
		parts = append(parts, s.commits.commitRuns)
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
		g.Add(func() error { return part(ctx) }, func(err error) { cancel(err) })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}
