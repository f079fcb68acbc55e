package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/statemachine"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

const (
	// keepInterval is the interval between two membership checks.
	keepInterval = 2 * time.Second
	// lostAfter is how long a server may have no leader before it asks the others
	// whether it is still a member. An election has ended by then.
	lostAfter = 5 * time.Second
	// stepsAtOnce bounds the steps of one check.
	stepsAtOnce = 16
)

// Reasons for refusing to add a server.
var (
	ErrNoAnswer    = errors.New("it does not answer")
	ErrOtherServer = errors.New("another server answers there")
	ErrHasLog      = errors.New("it has a log of its own")
	ErrRules       = errors.New("it does not support the rules in force")
)

// Config has the dependencies of Members.
type Config struct {
	// Self is this server; Configured are the servers in its configuration; Join are the RPC addresses
	// of servers of a cluster that it is to be added to.
	Self       Server
	Configured []Server
	Join       []string
	// StateDir is named in hints about a server whose state must be removed.
	StateDir string
	Group    *consensus.Group
	Machine  *statemachine.Machine
	// Peers connects to the other servers.
	Peers rpc.Peers
	// Wall is this server's wall clock.
	Wall func() time.Time
	// Gossip adds the facts about gossip to this server's own facts.
	Gossip func(*headroomv1.ServerFacts)
	// Leads reports whether this server leads the nodes; Commit commits a command then, and
	// returns consensus.ErrNotLeader otherwise. WhileLeading is called at each check.
	Leads        func() bool
	Commit       func(context.Context, ledger.Command) error
	WhileLeading func(context.Context)
	Logger       *slog.Logger
}

// Members manages the servers of the cluster.
type Members struct {
	// Roster lists the servers, Facts what they report about themselves.
	Roster *Roster
	Facts  *Facts

	join         []string
	stateDir     string
	leads        func() bool
	commit       func(context.Context, ledger.Command) error
	whileLeading func(context.Context)
	logger       *slog.Logger
	kick         chan struct{} // requests a check now

	health atomic.Pointer[Health] // as it was at the last check of a leader

	mu    sync.Mutex
	stuck map[string]error // errors of failed steps, by server
	since time.Time        // since when no leader is known; zero if one is
	said  string           // last logged text about waiting
}

// New returns the Members of a cluster whose log is open.
func New(c Config) *Members {
	roster := &Roster{self: c.Self, configured: c.Configured, group: c.Group, machine: c.Machine}
	return &Members{
		Roster: roster,
		Facts:  &Facts{roster: roster, peers: c.Peers, wall: c.Wall, began: time.Now(), gossip: c.Gossip, facts: map[string]fact{}, words: map[string]farewell{}},
		join:   c.Join, stateDir: c.StateDir, leads: c.Leads, commit: c.Commit, whileLeading: c.WhileLeading, logger: c.Logger,
		kick: make(chan struct{}, 1), stuck: map[string]error{},
	}
}

// Hurry requests a check at once.
func (m *Members) Hurry() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Keep checks the membership until ctx ends: a leader continues unfinished
// changes, a server without a leader finds out whether it is still a
// member, and a server without a log logs that it waits. It returns an
// error if this server is no longer a member.
func (m *Members) Keep(ctx context.Context) error {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		if err := m.keepOnce(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-m.kick:
		}
	}
}

func (m *Members) keepOnce(ctx context.Context) error {
	defer m.keepHealth()
	switch {
	case m.Roster.role() == roleWaiting:
		m.waitForGroup(ctx)
		return nil
	case m.leads():
		m.whileLeading(ctx)
		if err := m.expelled(m.Facts.Gather(ctx, m.Roster.others())); err != nil {
			return err
		}
		m.carryOn(ctx)
	case m.lost():
		return m.expelled(m.Facts.Gather(ctx, append(m.Roster.others(), m.join...)))
	}
	return nil
}

// lost reports whether this server has had no leader for lostAfter.
func (m *Members) lost() bool {
	id, _ := m.Roster.group.Leader()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case id != "":
		m.since = time.Time{}
	case m.since.IsZero():
		m.since = time.Now()
	}
	return id == "" && time.Since(m.since) >= lostAfter
}

// waitForGroup logs once what this server waits for.
func (m *Members) waitForGroup(ctx context.Context) {
	self := m.Roster.self
	text := fmt.Sprintf("run coordinator member add %s --rpc %s on a server of the cluster", self.ID, self.RPC)
	if len(m.Facts.Gather(ctx, m.join)) == 0 {
		text = "no server of the cluster answers at " + strings.Join(m.join, ", ")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said != text {
		m.said = text
		m.logger.Info("waiting to be added", slog.String("hint", text))
	}
}

// ErrExpelled means that the cluster continues without this server.
var ErrExpelled = errors.New("the cluster continues without this server")

// expelled returns an error if this server is no longer a member because a
// leader answered so: a leader of the same site, in the same incarnation or a
// later one.
func (m *Members) expelled(answers []*headroomv1.DescribeServerResponse) error {
	e := expulsion(m.Facts.Self(), m.stateDir, answers)
	if e == nil {
		return nil
	}
	m.logger.Error("this server was removed from the cluster", slog.String("why", e.Message), slog.String("hint", e.Hint))
	return e
}

func expulsion(own *headroomv1.ServerFacts, stateDir string, answers []*headroomv1.DescribeServerResponse) *cli.Error {
	for _, a := range answers {
		from := a.GetServer()
		same := own.GetCluster() == "" || own.GetCluster() == from.GetCluster()
		if !same || a.GetStanding() == nil || a.GetStanding().GetMember() || from.GetIncarnation() < own.GetIncarnation() {
			continue
		}
		e := &cli.Error{
			Code: "expelled", Exit: cli.ExitRefused, Message: a.GetStanding().GetWhy() + ", says " + from.GetId() + ", which leads",
			Hint: fmt.Sprintf("to bring it back: move %s aside, name a server of the cluster in join:, start it, and coordinator member add %s --rpc %s",
				stateDir, own.GetId(), own.GetRpcAddress()),
			Err: ErrExpelled,
		}
		switch {
		case from.GetIncarnation() > own.GetIncarnation():
			e.Message = fmt.Sprintf("%s leads incarnation %d of the cluster, which began without this server; this server is in incarnation %d",
				from.GetId(), from.GetIncarnation(), own.GetIncarnation())
		case own.GetRole() == roleLeader:
			e.Message = fmt.Sprintf("%s leads another cluster of the same incarnation %d: a snapshot was restored on two servers", from.GetId(), own.GetIncarnation())
			e.Hint = "keep one of them; on the other, move the state_dir aside and start it with join:"
		}
		return e
	}
	return nil
}

// Admissible returns the raft address of a server that may be added, and an error otherwise. It may be added if
// it answers, has the expected id and addresses, has no log of another cluster, and supports the rules in force.
func (m *Members) Admissible(ctx context.Context, x ledger.Server) (raft string, err error) {
	said, err := m.Facts.inquire(ctx, x.RPC)
	if err != nil {
		return "", fmt.Errorf("server %s at %s: %w", x.ID, x.RPC, ErrNoAnswer)
	}
	rules := m.Roster.machine.InForce()
	switch {
	case said.GetId() != x.ID:
		return "", fmt.Errorf("server %s at %s reports the id %s: %w", x.ID, x.RPC, said.GetId(), ErrOtherServer)
	case x.Raft != "" && said.GetRaftAddress() != x.Raft:
		return "", fmt.Errorf("server %s reports the raft address %s, not %s: %w", x.ID, said.GetRaftAddress(), x.Raft, ErrOtherServer)
	case int(said.GetRulesNewest()) < rules || int(said.GetRulesOldest()) > rules:
		return "", fmt.Errorf("server %s, version %s, supports rules %d to %d, but %d are in force: %w",
			x.ID, said.GetVersion(), said.GetRulesOldest(), said.GetRulesNewest(), rules, ErrRules)
	case said.GetRole() == roleWaiting, m.Roster.Has(x.ID):
		return said.GetRaftAddress(), nil
	}
	return "", fmt.Errorf("server %s, %s in incarnation %d at entry %d: %w",
		x.ID, said.GetRole(), said.GetIncarnation(), said.GetLastIndex(), ErrHasLog)
}

// now returns the inputs of the next steps, with the facts that servers have
// reported since a moment.
func (m *Members) now(moment time.Time) (membership, error) {
	all, err := m.Roster.group.Health()
	if err != nil {
		return membership{}, err
	}
	out := membership{members: all, newest: int(m.Roster.machine.Rules), facts: m.Facts.since(moment), configured: map[string]Server{}}
	for _, c := range m.Roster.configured {
		out.configured[c.ID] = c
	}
	m.Roster.machine.View(func(st *ledger.State) { out.rules, out.servers = st.Rules, maps.Clone(st.Servers) })
	return out, nil
}

// carryOn takes the steps that are due while this server leads.
func (m *Members) carryOn(ctx context.Context) {
	now, err := m.now(Lately())
	if err != nil || now.rules == 0 {
		return
	}
	stuck := map[string]error{}
	for _, x := range now.steps()[:min(len(now.steps()), stepsAtOnce)] {
		err := m.take(ctx, x)
		switch {
		case err == nil:
			m.logger.Info("membership change done", slog.String("step", string(x.kind)), slog.String("server", x.server.ID))
		case errors.Is(err, consensus.ErrNotLeader):
			return // the next leader continues
		default:
			stuck[x.server.ID] = err
			m.logger.Debug("membership change failed", slog.String("step", string(x.kind)), slog.String("server", x.server.ID), slog.Any("error", err))
		}
	}
	m.mu.Lock()
	m.stuck = stuck
	m.mu.Unlock()
}

// take takes one step.
func (m *Members) take(ctx context.Context, x step) error {
	switch x.kind {
	case stepUpgrade:
		return m.commit(ctx, ledger.Command{Upgrade: &ledger.Upgrade{Rules: m.Roster.machine.InForce() + 1}, Reason: "every server supports them"})
	case stepSeed:
		return m.commit(ctx, ledger.Command{Server: &x.server})
	case stepAdd:
		if _, err := m.Admissible(ctx, x.server); err != nil {
			return err
		}
		return m.Roster.group.AddServer(ctx, consensus.Server{ID: x.server.ID, Address: x.server.Raft})
	case stepPromote:
		return m.Roster.group.Promote(ctx, x.server.ID)
	case stepRemove:
		return m.TakeOut(ctx, x.server.ID)
	case stepForget:
		return m.commit(ctx, m.forgetting(x.server.ID))
	}
	return fmt.Errorf("coordinator: unknown step %q", x.kind)
}

// TakeOut removes a server from raft's list. A leader transfers leadership first,
// and leaves the rest to the next one.
func (m *Members) TakeOut(ctx context.Context, id string) error {
	if err := m.Roster.group.MayRemove(id); errors.Is(err, consensus.ErrUnknownServer) {
		return nil
	} else if err != nil {
		return err
	}
	if id != m.Roster.self.ID {
		return m.Roster.group.RemoveServer(ctx, id)
	}
	if err := m.Roster.group.Transfer(ctx); err != nil {
		return err
	}
	return consensus.ErrNotLeader
}

// forgetting returns the command that ends a removal; it keeps the actor and the reason of the request.
func (m *Members) forgetting(id string) ledger.Command {
	c := ledger.Command{RemoveServer: &ledger.Named{Name: id}}
	m.Roster.machine.View(func(st *ledger.State) {
		for _, e := range slices.Backward(st.Events) {
			if x, ok := st.Servers[id]; ok && e.What == x.Words() {
				c.Actor, c.Reason = e.Actor, e.Reason
				return
			}
		}
	})
	return c
}
