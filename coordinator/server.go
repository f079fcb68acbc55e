package coordinator

import (
	"cmp"
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

	"headroom/coordinator/alarms"

	"headroom/coordinator/arbitration"

	"headroom/coordinator/diagnostics"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"

	"connectrpc.com/connect"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/coordinator/metrics"
	"headroom/coordinator/traces"
	"headroom/gossip"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/scrape"
	"headroom/internal/secure"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
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
	leading  atomic.Pointer[desk]
	witness  witness
	keeper   *keeper
	counts   *metrics.Counts
	// told is what Prometheus is told.
	told     prometheus.Gatherer
	recorder *diagnostics.Recorder // nil while it is off
	traces   *traces.Tracer        // nil while it is off
	lines    *diagnostics.LogRing
	record   func(context.Context, time.Duration) ([]byte, error)
	brakes   *brakes
	voice    atomic.Pointer[gossip.Gossip] // nil without gossip
	port     atomic.Pointer[net.Listener]  // where nodes and operators come in; nil until it is open
	// opened says that the log is open: until then no other server is let in.
	opened atomic.Bool
	// denials asks for the denials to be written beside the log.
	denials chan struct{}
	// wall is this server's wall clock: for the audit log, and for what is due by the
	// clock. Nothing that a promise rests on is measured with it. Tests set it wrong.
	wall func() time.Time
	// newDecider is the arbiter of a leadership: a new leader knows nothing of progress. Tests replace it.
	newDecider func() arbitration.Decider
}

// newServer is a server that does not run yet: its group is opened by join.
func newServer(cfg Config, logger *slog.Logger) *server {
	lines := &diagnostics.LogRing{}
	logger = lines.Keep(logger)
	s := &server{
		cfg: cfg, lines: lines, machine: statemachine.New(), streams: streams.New(cfg.ID), peers: rpc.PlainPeers(), logger: logger, keeper: newKeeper(),
		counts: metrics.NewCounts(), record: diagnostics.RecordTrace, brakes: newBrakes(logger), wall: time.Now,
		newDecider: arbitration.New, denials: make(chan struct{}, 1),
	}
	s.guard = access.New(s.machine.View, logger)
	s.told = scrape.Gatherer(metrics.New(Version, s.observe, s.counts))
	s.machine.OnApplied = func(_ *ledger.State, took time.Duration) { s.counts.Applied(took) }
	s.machine.OnOutdated = s.die
	s.machine.OnDenied = s.deny
	s.guard.Member = s.belongs
	return s
}

// identify reads who this server is.
func (s *server) identify() error {
	if s.cfg.TLS.Off() {
		s.logger.Warn("tls is off: whoever reaches this machine's loopback may command the cluster")
		return nil
	}
	k, err := secure.Open(s.cfg.TLS.Files())
	if err == nil && k.Identity() != (secure.Identity{Role: secure.Server, Name: s.cfg.ID}) {
		err = fmt.Errorf("tls.cert names %s, this is server/%s", k.Identity(), s.cfg.ID)
	}
	if err != nil {
		return &cli.Error{
			Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(),
			Hint: "coordinator tls cert create server/" + s.cfg.ID + " makes it; coordinator tls inspect shows what a certificate says",
		}
	}
	k.Deny(s.guard.Revoked)
	k.Vet(s.vet)
	s.identity, s.peers = k, rpc.SecurePeers(k, secure.Server)
	return nil
}

// join opens the group on the log that c names: a folder and a network, or
// stores and a transport in memory.
func (s *server) join(c consensus.Config) (err error) {
	c.ID, c.Servers, c.Join, c.Logger = s.cfg.ID, s.cfg.peers(), len(s.cfg.Join) > 0 || s.foundedElsewhere(c.Dir), s.logger
	if s.group, err = consensus.Open(c, s.machine); err == nil {
		s.opened.Store(true)
	}
	return err
}

// Run runs one server until ctx ends or its log fails.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) error {
	self, _ := cfg.Self()
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return &cli.Error{Code: "state-dir", Exit: cli.ExitFailed, Message: fmt.Sprintf("state_dir: %v", err), Hint: "make the folder, or name another in state_dir"}
	}
	s := newServer(cfg, logger)
	if err := s.brakes.open(cfg); err != nil {
		return err
	}
	s.recallDenials()
	err := s.identify()
	if err != nil {
		return err
	}
	if s.witness, err = newWitness(cfg.BMC); err != nil {
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
	voice, err := s.talk(self.RPC)
	if err != nil {
		_, _ = listener.Close(), local.Close()
		return errors.Join(err, s.group.Close())
	}
	s.voice.Store(voice)
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
	g.Add(func() error { return rpc.Serve(ctx, local, s.forward(s.handler())) }, func(error) { cancel() })
	g.Add(func() error { return s.watch(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.keepMembers(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.followBrake(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.keepDenials(ctx) }, func(error) { cancel() })
	g.Add(func() error { return s.brakes.keep(ctx) }, func(error) { cancel() })
	g.Add(func() error { s.rereads(ctx); return nil }, func(error) { cancel() })
	g.Add(func() error { <-ctx.Done(); return nil }, func(error) { cancel() })
	err = g.Run()
	if voice != nil {
		err = errors.Join(err, voice.Close())
	}
	return errors.Join(err, s.group.Close())
}

// die ends the process when the log can no longer be trusted: a leader whose
// disk hangs would otherwise go on answering for ever (promise P3).
func (s *server) die(err error) {
	s.logger.Error("the log failed, ending", slog.Any("error", err))
	s.lastWords(err)
	os.Exit(cli.ExitFailed)
}

// talk joins the gossip, where it is configured.
func (s *server) talk(address string) (*gossip.Gossip, error) {
	if s.cfg.Gossip.Bind == "" {
		return nil, nil //nolint:nilnil // no gossip is a choice, not an error
	}
	keys, err := gossip.LoadKeys(s.cfg.Gossip.KeyFile)
	if err != nil {
		return nil, err
	}
	return gossip.Start(gossip.Config{
		Name: s.cfg.ID, Role: "coordinator", RPC: address, Bind: s.cfg.Gossip.Bind, Key: keys[0], Believed: keys[1:], Join: s.cfg.Gossip.Join,
		BrakeKeys: s.brakes.believes(), Brake: s.brakes.known(), Logger: s.logger,
	})
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	options := append(rpc.HandlerOptions(), connect.WithReadMaxBytes(access.LongestRequest),
		connect.WithInterceptors(s.counts.Interceptor(), s.guard, changeSpans{s.traces}, access.Bounds{}))
	mux.Handle(headroomv1connect.NewNodeServiceHandler(nodeService{s}, append(slices.Clone(options), connect.WithReadMaxBytes(access.LongestReport))...))
	mux.Handle(headroomv1connect.NewClusterServiceHandler(clusterService{s}, options...))
	mux.Handle(headroomv1connect.NewJobServiceHandler(jobService{server: s}, options...))
	mux.Handle(headroomv1connect.NewMemberServiceHandler(memberService{s}, options...))
	mux.Handle(headroomv1connect.NewDebugServiceHandler(debugService{s}, options...))
	mux.Handle(headroomv1connect.NewBrakeServiceHandler(brakeService{s}, options...))
	return s.traces.Handler(mux)
}

// leaderPoll is how often a follower looks who leads, to tell its streams.
const leaderPoll = 100 * time.Millisecond

// watch opens a desk whenever this server begins to lead and closes it when it stops.
func (s *server) watch(ctx context.Context) error {
	changes := s.group.Leadership()
	look := time.NewTicker(leaderPoll)
	defer look.Stop()
	var stop func()
	shut := func() {
		if stop != nil {
			stop()
			stop = nil
		}
	}
	defer shut()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case l, open := <-changes:
			shut()
			if !open {
				return consensus.ErrClosed
			}
			told = s.cfg.ID // a lead may have come and gone since the last look
			if l.Leading {
				s.counts.Led(s.cfg.ID)
				stop = s.lead(ctx, l.Term)
			}
		case <-look.C:
			if s.leading.Load() == nil {
				told = s.tellLeader(told)
			} else {
				told = s.cfg.ID
			}
		}
	}
}

// tellLeader announces who leads when it is another than told.
func (s *server) tellLeader(told string) string {
	id, _ := s.group.Leader()
	s.counts.Led(id)
	if id == told || id == s.cfg.ID {
		return told
	}
	peer := s.address(id)
	s.streams.Announce(&headroomv1.Leader{Id: id, Address: peer.RPC})
	return id
}

// lead opens the desk of one leadership and returns what closes it and waits for it.
func (s *server) lead(ctx context.Context, term uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keepDesk(ctx, term)
	}()
	return func() {
		cancel()
		<-done
		s.logger.Info("leading no more", slog.Uint64("term", term))
	}
}

// deskPause is how long a server that leads waits before it opens a desk again.
const deskPause = 200 * time.Millisecond

// keepDesk holds a desk open until ctx ends. One that ended by itself is
// followed by another: the group tells when this server leads no more, and until
// then nobody else would lead the nodes.
func (s *server) keepDesk(ctx context.Context, term uint64) {
	for {
		err := s.serveDesk(ctx, s.newDesk(term))
		if ctx.Err() != nil {
			return
		}
		s.logger.Warn("desk closed, opening another while this server leads", slog.Any("error", err))
		if !pause.For(ctx, deskPause) {
			return
		}
	}
}

// serveDesk waits until everything committed before is applied here, then leads.
func (s *server) serveDesk(ctx context.Context, d *desk) error {
	defer close(d.closed)
	if err := s.group.Verify(ctx); err != nil {
		return err
	}
	d.epoch.Incarnation = s.incarnation()
	s.leading.Store(d)
	defer s.leading.CompareAndSwap(d, nil)
	watch, done := context.WithCancel(ctx)
	defer done()
	go (&watchdog{turns: &d.turns, giveUp: s.group.Transfer, end: s.die, logger: s.logger}).run(watch)
	return d.run(ctx)
}

func (s *server) incarnation() uint64 {
	n := uint64(1)
	s.machine.View(func(st *ledger.State) { n = max(n, st.Epoch.Incarnation) })
	return n
}

func (s *server) newDesk(term uint64) *desk {
	return &desk{
		server: s.cfg.ID, epoch: lease.Epoch{Term: term}, timing: s.cfg.timing(), found: &ledger.Found{Domains: s.cfg.founding()},
		log: s.group, machine: s.machine, nodes: s.streams.Nodes, schedulers: s.streams.Schedulers, announce: s.streams.Lead, logger: s.logger,
		inbox: make(chan func(), deskQueue), closed: make(chan struct{}),
		board: newJobBoard(), jobs: newJobLoop(s.newDecider()), alarms: alarms.NewTracker(), moves: newMoveBook(), meters: meters{},
		proof: s.group.Verify, clocks: s.clocks, wall: s.wall, witness: s.witness, counts: s.counts, missed: s.recorder.Missed, traces: s.traces,
		brakes: s.brakes,
	}
}

// notLeader is the refusal of a server that does not lead, with the leader's address when it is known.
func (s *server) notLeader() error {
	id, _ := s.group.Leader()
	if id == s.cfg.ID {
		id = ""
	}
	peer := s.address(id)
	return rpc.NotLeader(id, peer.RPC)
}

// onDesk runs f on the desk, after this server has proven that it leads.
func (s *server) onDesk(ctx context.Context, f func(d *desk)) error {
	d := s.leading.Load()
	if d == nil {
		return s.notLeader()
	}
	return s.unled(d.ask(ctx, func() { f(d) }))
}

// unled turns why a desk did not answer into a refusal: it may have lost the lead without knowing.
func (s *server) unled(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDeposed):
		return s.notLeader()
	default:
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
}

// request has the leadership carry out a request, and gives what came of it. What is only
// tried out is told after this server has proven that it leads.
func (s *server) request(ctx context.Context, r *leader.Request) (leader.Answer, error) {
	d := s.leading.Load()
	if d == nil {
		return leader.Answer{}, s.notLeader()
	}
	if r.DryRun {
		if err := s.unled(d.ask(ctx, func() {})); err != nil {
			return leader.Answer{}, err
		}
	}
	a, err := d.request(ctx, r)
	return a, s.unled(err)
}

// change has one command carried out.
func (s *server) change(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	return s.changeWith(ctx, c, nil)
}

// changeWith is change for a command that is completed on the desk.
func (s *server) changeWith(ctx context.Context, c ledger.Command, build func(leader.View, *ledger.Command) error) (ledger.Result, error) {
	a, asked := s.request(ctx, &leader.Request{Command: c, Build: build, Quiet: true, Urgent: true})
	if asked != nil {
		return ledger.Result{}, asked
	}
	res, err := a.Result, a.Err
	if err != nil {
		return res, s.refuse(err)
	}
	return res, nil
}

// command is a command with the caller's actor, reason, key and revision. Who has
// shown who they are is the actor, whatever the message says.
func command(ctx context.Context, c *headroomv1.Change, fallback string) ledger.Command {
	out := ledger.Command{
		Actor: cmp.Or(access.CallerOf(ctx).Name, c.GetActor(), fallback), Reason: c.GetReason(), RequestID: c.GetRequestId(),
	}
	if c != nil {
		out.Check = c.CheckRevision
	}
	return out
}

// refuse turns why a proposal failed into the refusal that the operator meets.
func (s *server) refuse(err error, own ...refusalRule) error {
	if errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrClosed) || errors.Is(err, errDeposed) {
		return s.notLeader()
	}
	text := plain(err)
	if floor, ok := errors.AsType[*ledger.FloorError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "infeasible", cli.ExitRefused, text,
			fmt.Sprintf("--force drives every node to fail-safe and leaves %v missing", floor.Floor-floor.Budget))
	}
	if rating, ok := errors.AsType[*ledger.RatingError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "above-rating", cli.ExitRefused, text,
			fmt.Sprintf("at most %s; coordinator domain set %s --rating changes what the breaker carries", rating.Usable.Exact(), rating.Domain))
	}
	if refusal, ok := errors.AsType[*connect.Error](err); ok {
		return refusal
	}
	for _, r := range slices.Concat(own, refusals(), changeRefusals(), memberRefusals()) {
		if errors.Is(err, r.when) {
			return rpc.Refuse(r.code, r.short, r.exit, text, r.hint)
		}
	}
	if _, ok := errors.AsType[leader.RefusedError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "refused", cli.ExitRefused, text, "nothing was changed")
	}
	return rpc.Refuse(connect.CodeUnknown, "unknown-outcome", cli.ExitUnknown, text, "look at the present state; the same --request-id may be sent again safely")
}

type refusalRule struct {
	when  error
	code  connect.Code
	short string
	exit  int
	hint  string
}

func refusals() []refusalRule {
	return []refusalRule{
		{ledger.ErrConflict, connect.CodeAborted, "conflict", cli.ExitConflict, "look at coordinator event list, then plan again"},
		{ledger.ErrOverBudget, connect.CodeFailedPrecondition, "over-budget", cli.ExitRefused, "lower other nodes or raise the budget first: coordinator budget show tells the headroom"},
		{ledger.ErrUnknownDomain, connect.CodeNotFound, "unknown-domain", cli.ExitUsage, "coordinator budget show lists the domains"},
		{ledger.ErrUnknownNode, connect.CodeNotFound, "unknown-node", cli.ExitUsage, "coordinator node list lists the nodes"},
		{ledger.ErrUnknownJob, connect.CodeNotFound, "unknown-job", cli.ExitUsage, "coordinator job list lists the jobs"},
		{ledger.ErrIdentity, connect.CodeAlreadyExists, "name-taken", cli.ExitConflict, "another machine has this node name"},
		{ledger.ErrJob, connect.CodeAlreadyExists, "bad-job", cli.ExitConflict, "coordinator job list shows what the log has"},
		{ledger.ErrFloor, connect.CodeFailedPrecondition, "floor", cli.ExitRefused, "coordinator job show JOB tells the quality floor and what may still be dropped"},
		{ledger.ErrNoStop, connect.CodeFailedPrecondition, "no-stop", cli.ExitRefused, "tasks are dropped only after the coordinators have decided it; let the job run on"},
		{ledger.ErrStop, connect.CodeInvalidArgument, "bad-stop", cli.ExitUsage, "coordinator job show JOB tells its tasks and the early stop in force"},
		{ledger.ErrDeflation, connect.CodeInvalidArgument, "bad-deflation", cli.ExitUsage, "a drop ratio is from 0 to 1, rises only and keeps its seed: coordinator job show JOB tells the one in force"},
		{ledger.ErrTarget, connect.CodeAborted, "moved", cli.ExitConflict, "the state changed while the change was planned; send it again"},
		{ledger.ErrNotGrantable, connect.CodeAborted, "moved", cli.ExitConflict, "the state changed while the change was planned; send it again"},
		{ledger.ErrEpoch, connect.CodeUnavailable, "no-leader", cli.ExitUnreachable, "the leader changed meanwhile; send it again with the same --request-id"},
		{ledger.ErrFull, connect.CodeResourceExhausted, "full", cli.ExitRefused, "remove what is not needed any more"},
		{budget.ErrAmount, connect.CodeInvalidArgument, "usage", cli.ExitUsage, "give a budget above 0 W, e.g. 2800W"},
		{consensus.ErrTooLarge, connect.CodeInvalidArgument, "too-large", cli.ExitUsage, "make the request smaller"},
		{consensus.ErrBusy, connect.CodeUnavailable, "busy", cli.ExitUnreachable, "nothing was done; try again in a moment"},
		{ledger.ErrNotFounded, connect.CodeUnavailable, "not-founded", cli.ExitUnreachable, "the group is starting; try again in a moment"},
	}
}

// plain is an error without the names of the packages it passed through.
func plain(err error) string {
	text := err.Error()
	for _, prefix := range []string{"coordinator: propose: ", "consensus: ", "ledger: ", "budget: "} {
		if len(text) > len(prefix) && text[:len(prefix)] == prefix {
			text = text[len(prefix):]
		}
	}
	return text
}
