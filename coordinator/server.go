package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/brakes"
	"headroom/coordinator/denials"
	"headroom/coordinator/diagnostics"
	"headroom/coordinator/leading"
	"headroom/coordinator/members"
	"headroom/coordinator/metrics"
	"headroom/coordinator/recovery"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"
	"headroom/coordinator/traces"
	"headroom/gossip"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/internal/rpc"
	"headroom/internal/scrape"
	"headroom/internal/secure"
	"headroom/lease"
	"headroom/ledger"
)

// Version of the coordinator.
const Version = cli.Version

// server is one running coordinator.
type server struct {
	cfg     Config
	machine *statemachine.Machine
	guard   *access.Guard
	group   *consensus.Group
	streams *streams.Streams
	peers   rpc.Peers
	// identity is nil with tls off.
	identity *secure.Keeper
	logger   *slog.Logger
	requests *requests
	// poweredOff queries a BMC for its machine's power state; nil if no BMC may be queried.
	poweredOff func(ctx context.Context, address string) (bool, error)
	members    *members.Members // nil until the log is open
	counts     *metrics.Counts
	// told gathers the metrics for Prometheus.
	told     prometheus.Gatherer
	recorder *diagnostics.Recorder // nil while it is off
	traces   *traces.Tracer        // nil while it is off
	lines    *diagnostics.LogRing
	record   func(context.Context, time.Duration) ([]byte, error)
	brakes   *brakes.Store
	braking  *brakes.Watcher
	gossip   atomic.Pointer[gossip.Gossip] // nil without gossip
	port     atomic.Pointer[net.Listener]  // the listener for nodes and operators; nil until it is open
	// opened is true once the log is open: until then other servers are rejected.
	opened  atomic.Bool
	denials *denials.Store
	// wall is this server's wall clock: for the audit log and for scheduled
	// changes. No promise depends on it. Tests set it wrong.
	wall func() time.Time
	// flush writes what the log still holds back.
	flush func()
	// newDecider returns the arbiter of a leadership: a new leader has no progress yet. Tests replace it.
	newDecider func() arbitration.Decider
}

// newServer returns a server that does not run yet: join opens its log.
func newServer(cfg Config, logger *slog.Logger) *server {
	lines := &diagnostics.LogRing{}
	logger = lines.Keep(logger)
	s := &server{
		cfg: cfg, lines: lines, machine: statemachine.New(), streams: streams.New(cfg.ID), peers: rpc.PlainPeers(), logger: logger,
		counts: metrics.NewCounts(), record: diagnostics.RecordTrace, brakes: brakes.New(logger), wall: time.Now,
		newDecider: arbitration.New, flush: func() {},
	}
	s.requests = &requests{id: cfg.ID, machine: s.machine, leader: s.otherLeader}
	s.braking = &brakes.Watcher{
		Store: s.brakes, Server: cfg.ID, Machine: s.machine, Gossip: s.gossip.Load, Hasten: s.requests.hasten, Logger: logger,
	}
	s.guard = access.New(s.machine.View, logger)
	s.guard.Refused = s.noteRefused
	s.told = scrape.Gatherer(metrics.New(Version, s.observe, s.counts))
	s.machine.OnApplied = func(_ *ledger.State, took time.Duration) { s.counts.Applied(took) }
	s.machine.OnOutdated = s.die
	s.denials = denials.New(denials.Config{
		Server: cfg.ID, StateDir: cfg.StateDir, Denials: s.guard.Revoked, State: s.machine.View, Tell: s.streams.Nodes.TellDenials, Logger: logger,
		Commit: func(ctx context.Context, c ledger.Command) error { _, err := s.requests.change(ctx, c); return err },
	})
	s.machine.OnDenied = s.denials.Deny
	s.guard.Member = func(id string) bool { return s.members.Facts.Belongs(id) }
	return s
}

// identify reads this server's certificate.
func (s *server) identify() error {
	if s.cfg.TLS.Off() {
		s.logger.Warn("tls is off; any local user who can connect to loopback can control the cluster")
		return nil
	}
	k, err := s.cfg.certificate().Start(s.logger)
	if err != nil {
		return err
	}
	k.Deny(s.guard.Revoked)
	k.Vet(s.vet)
	s.identity, s.peers = k, rpc.SecurePeers(k, secure.Server)
	return nil
}

// join opens the log that c names: a folder and a network, or
// stores and a transport in memory.
func (s *server) join(c consensus.Config) (err error) {
	c.ID, c.Servers, c.Join, c.Logger = s.cfg.ID, s.cfg.peers(), len(s.cfg.Join) > 0 || s.foundedElsewhere(c.Dir), s.logger
	c.Routine, c.Incarnation, c.Check = ledger.IsTick, s.machine.Incarnation, s.machine.Check
	if s.group, err = consensus.Open(c, s.machine); err != nil {
		return err
	}
	self, _ := s.cfg.Self()
	configured := each.List(s.cfg.Servers, func(x ServerConfig) members.Server { return members.Server(x) })
	s.members = members.New(members.Config{
		Self: members.Server(self), Configured: configured, Join: s.cfg.Join, StateDir: s.cfg.StateDir, Group: s.group, Machine: s.machine,
		Peers: s.peers, Wall: s.wall, Gossip: s.describeGossip, Leads: s.requests.leads, Commit: s.requests.commit, WhileLeading: s.denials.CommitMissing,
		Logger: s.logger,
	})
	s.opened.Store(true)
	return nil
}

// foundedElsewhere reports whether this server has no log in dir while another server
// of its configuration has founded a cluster: then it takes the cluster's log and
// does not found a second cluster. It has lost its folder, or is late at the first
// start.
func (s *server) foundedElsewhere(dir string) bool {
	if dir == "" || recovery.HasLog(dir) || len(s.cfg.Servers) == 1 {
		return false
	}
	var addrs []string
	for _, x := range s.cfg.Servers {
		if x.ID != s.cfg.ID {
			addrs = append(addrs, x.RPC)
		}
	}
	return members.FoundedElsewhere(context.Background(), s.peers, s.cfg.ID, addrs)
}

// Run runs one server until ctx ends or its log fails.
//
// When the log fails, Run does not return: it ends the process, after flush has written the
// reason to the log.
func Run(ctx context.Context, cfg Config, logger *slog.Logger, flush func()) error {
	self, _ := cfg.Self()
	unix.Umask(0o077) // the libraries under the log make their files for everybody
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return &cli.Error{Code: "state-dir", Exit: cli.ExitFailed, Message: fmt.Sprintf("state_dir: %v", err), Hint: "create the folder, or name another in state_dir"}
	}
	s := newServer(cfg, logger)
	s.flush = flush
	if err := s.brakes.Open(cfg.brakeFiles()); err != nil {
		return err
	}
	s.denials.Recall()
	err := s.identify()
	if err != nil {
		return err
	}
	if s.poweredOff, err = cfg.BMC.poweredOff(); err != nil {
		return err
	}
	listener, err := rpc.Listen(self.RPC)
	if err != nil {
		return &cli.Error{
			Code: "listen", Exit: cli.ExitFailed, Message: fmt.Sprintf("rpc %s: %v", self.RPC, err),
			Hint: "another program may listen there; correct the rpc address of " + cfg.ID + " in the servers list",
		}
	}
	if s.identity != nil {
		listener = rpc.SecureListener(listener, s.identity)
	}
	s.port.Store(&listener)
	if err := s.join(consensus.Config{Dir: cfg.StateDir, Bind: self.Raft, Fatal: s.die, Secure: s.identity}); err != nil {
		_ = listener.Close()
		return err
	}
	local, err := rpc.ListenUnix(cfg.socket())
	if err != nil {
		_ = listener.Close()
		return errors.Join(err, s.group.Close())
	}
	member, err := s.joinGossip(self.RPC)
	if err != nil {
		_, _ = listener.Close(), local.Close()
		return errors.Join(err, s.group.Close())
	}
	s.gossip.Store(member)
	if cfg.Debug.FlightRecorder {
		if s.recorder, err = diagnostics.NewRecorder(cfg.StateDir, s.logger); err != nil {
			_, _ = listener.Close(), local.Close()
			return errors.Join(err, s.group.Close())
		}
	}
	if s.traces, err = traces.Start(cfg.OTel, cfg.ID, Version, s.logger); err != nil {
		_, _ = listener.Close(), local.Close()
		return errors.Join(err, s.group.Close())
	}
	defer s.traces.Close()
	ctx, cancel := context.WithCancel(ctx)
	var g run.Group
	if s.recorder != nil {
		g.Add(func() error { return s.recorder.Run(ctx) }, func(error) { cancel() })
	}
	if cfg.Metrics.Listen != "" {
		g.Add(func() error { return s.serveMetrics(ctx) }, func(error) { cancel() })
	}
	g.Add(func() error { return rpc.Serve(ctx, listener, s.handler()) }, func(error) { cancel() })
	g.Add(func() error { return rpc.Serve(ctx, local, s.forwarder().forward(s.handler())) }, func(error) { cancel() })
	g.Add(func() error { return s.leadership().watch(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.members.Keep(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.braking.Follow(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.denials.Keep(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.brakes.Keep(ctx) }, func(error) { cancel() })
	g.Add(func() error { s.rereads(ctx); return nil }, func(error) { cancel() })
	g.Add(func() error { <-ctx.Done(); return nil }, func(error) { cancel() })
	err = g.Run()
	if member != nil {
		err = errors.Join(err, member.Close())
	}
	return errors.Join(err, s.group.Close())
}

// die ends the process if the log can no longer be trusted: a leader whose
// disk hangs would otherwise keep answering for ever (promise P3).
func (s *server) die(err error) {
	s.lastWords(err)
	os.Exit(cli.ExitFailed)
}

// lastWords writes the reason to the log and sends it to the other servers, both before it
// returns, and neither for longer than they may take.
func (s *server) lastWords(err error) {
	s.logger.Error("log failed, exiting", slog.Any("error", err))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if s.members != nil { // otherwise it exits while it opens its log: no other server knows it yet
			s.members.Facts.SayLastWords(err)
		}
	}()
	s.flush()
	select {
	case <-sent:
	case <-time.After(members.LastWait): // whoever holds up the state must not hold up the exit
	}
}

// joinGossip joins the gossip if it is configured.
func (s *server) joinGossip(address string) (*gossip.Gossip, error) {
	if s.cfg.Gossip.Bind == "" {
		return nil, nil //nolint:nilnil // no gossip is a choice, not an error
	}
	keys, err := gossip.LoadKeys(s.cfg.Gossip.KeyFile)
	if err != nil {
		return nil, err
	}
	return gossip.Start(gossip.Config{
		Name: s.cfg.ID, Role: "coordinator", RPC: address, Bind: s.cfg.Gossip.Bind, Key: keys[0], Believed: keys[1:], Join: s.cfg.Gossip.Join,
		BrakeKeys: s.brakes.Keys(), Brake: s.brakes.Known(), Logger: s.logger,
	})
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	options := append(rpc.HandlerOptions(), connect.WithReadMaxBytes(access.LongestRequest),
		connect.WithInterceptors(s.counts.Interceptor(), s.guard, changeSpans(s.traces), access.Bounds{}))
	mux.Handle(headroomv1connect.NewNodeServiceHandler(nodeService{s}, append(slices.Clone(options), connect.WithReadMaxBytes(access.LongestReport))...))
	mux.Handle(headroomv1connect.NewClusterServiceHandler(clusterService{s}, options...))
	mux.Handle(headroomv1connect.NewJobServiceHandler(jobService{server: s}, options...))
	mux.Handle(headroomv1connect.NewMemberServiceHandler(memberService{s}, options...))
	mux.Handle(headroomv1connect.NewDebugServiceHandler(debugService{s}, options...))
	mux.Handle(headroomv1connect.NewBrakeServiceHandler(brakeService{s}, options...))
	return s.traces.Handler(mux)
}

func (s *server) forwarder() *forwarder {
	return &forwarder{id: s.cfg.ID, configured: s.cfg.Servers, machine: s.machine, peers: s.peers, traces: s.traces, logger: s.logger}
}

// leadership watches who leads.
func (s *server) leadership() *leadershipWatcher {
	return &leadershipWatcher{
		id: s.cfg.ID, group: s.group, machine: s.machine, requests: s.requests, streams: s.streams, counts: s.counts, logger: s.logger,
		address: func(id string) string { return s.members.Roster.Address(id).RPC }, incarnation: s.members.Roster.Incarnation, newLoop: s.newLoop, die: s.die,
	}
}

func (s *server) newLoop(e lease.Epoch) *leading.Loop {
	return leading.New(leading.Config{
		Server: s.cfg.ID, Epoch: e, Timing: s.cfg.timing(), Found: &ledger.Found{Domains: s.cfg.founding()},
		Log: s.group, Machine: s.machine, Nodes: s.streams.Nodes, Schedulers: s.streams.Schedulers, Announce: s.streams.Lead,
		Verify: s.group.Verify, Clocks: s.members.Clocks, Wall: s.wall, PoweredOff: s.poweredOff, Brakes: s.brakes, Alarms: s.ownAlarms, Decider: s.newDecider(),
		Counts: s.counts, Traces: s.traces, Missed: s.recorder.Missed, Logger: s.logger,
	})
}

// otherLeader returns the leader if it is another server, and its address; empty while unknown.
func (s *server) otherLeader() (id, address string) {
	if id, _ = s.group.Leader(); id == s.cfg.ID {
		id = ""
	}
	return id, s.members.Roster.Address(id).RPC
}
