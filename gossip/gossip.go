// Package gossip finds the other members of a cluster: from any one address to
// all of them, and above all to the coordinators. It also carries the brake.
//
// The one idea: gossip only discovers; it decides nothing. A member's description
// of itself is a hint. The coordinators' log records which nodes belong to the
// cluster and what they may draw. Two machines with the same name are therefore
// both listed here, and the log admits one. A brake is accepted only for its
// signature (package brake), and it can only lower caps.
//
// Guarantees:
//   - Start never fails because no member answers. It retries until it finds one,
//     again whenever it is alone, and periodically for configured addresses that
//     are not members, so that the two halves of a split cluster merge again.
//   - All traffic is encrypted and authenticated with a 32-byte key. A member with
//     another key cannot exchange messages with the others, and that is reported.
//     SetKeys changes keys at run time. No member is lost if all members accept a
//     new key before the first one sends with it, and if an old key is removed
//     only after the last member has stopped sending with it.
//   - A description that cannot be parsed is ignored and logged once.
//   - A brake is sent to all members at once, forwarded by each, and sent to members
//     that join later. The highest generation wins. A brake that is not signed with
//     a configured key is dropped.
//   - An idle cluster sends only probes, one every two seconds.
//
// It never carries caps, budgets or anything else whose delivery must be
// guaranteed: a node that misses a brake holds a lease that is no longer renewed.
package gossip

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/each"
)

const (
	// RoleCoordinator marks a coordinator.
	RoleCoordinator = "coordinator"
	// RoleNode marks a node's powerd.
	RoleNode = "node"
)

const (
	// probeInterval is how often a member asks one other whether it lives. With
	// it a dead member is missed after 5 to 8 s among 10 members, 15 s among
	// 1000; twice as often would cost a node 0.06 % of a core instead of 0.03 %.
	probeInterval = 2 * time.Second
	// probeTimeout is how long the answer may take before others are asked.
	probeTimeout = 400 * time.Millisecond
	// suspicionMult is how many probe intervals, times the logarithm of the
	// number of members, a silent member has to answer for itself.
	suspicionMult = 2
	// suspicionMaxMult stretches that where nobody confirms the suspicion.
	suspicionMaxMult = 2
	// gossipInterval is how often news is passed on. Without news nothing is sent.
	gossipInterval = 500 * time.Millisecond
	// pushPullInterval is how often two members compare everything over TCP.
	pushPullInterval = 30 * time.Second
	// streamTimeout bounds one dial and one such comparison.
	streamTimeout = 3 * time.Second
	// leaveTimeout bounds the goodbye in Close. By then it was passed on once, to
	// three others, who pass it on.
	leaveTimeout = 500 * time.Millisecond
	// label keeps other programs' gossip out even where they share the key.
	label = "headroom"
)

// Member is one member as it describes itself.
type Member struct {
	// Name is the node's or coordinator's name. Two machines may claim one name.
	Name string
	// Role is RoleCoordinator or RoleNode.
	Role string
	// RPC is host:port of its RPC server; a node may have none.
	RPC string
	// Addr is host:port of its gossip.
	Addr string
}

// Config says who to be and whom to look for.
type Config struct {
	// Name is this member's name, up to 128 bytes.
	Name string
	// Role is RoleCoordinator or RoleNode.
	Role string
	// RPC is host:port of this member's RPC server, as others reach it. Empty
	// for a node without one.
	RPC string
	// Bind is the IP address and port for gossip, TCP and UDP; port 0 picks one.
	Bind string
	// Advertise is the address that others are told, host:port or host; empty
	// stands for the bound one, or the machine's private one for 0.0.0.0.
	Advertise string
	// Key is what this member sends with: 32 bytes, the first of LoadKeys.
	Key []byte
	// Believed are the others of LoadKeys: what is sent with them is believed too,
	// while a cluster changes its key.
	Believed [][]byte
	// Join are gossip addresses host:port of other members; any one that lives
	// is enough. Empty for the first member.
	Join []string
	// BrakeKeys are the public keys that a brake is believed by. Without any this
	// member hears no brake and passes none on.
	BrakeKeys brake.Keys
	// Brake is the newest brake that this member knew before; the zero one for none.
	Brake brake.Signed
	// Logger takes one line per coordinator that comes or goes; nil drops them.
	Logger *slog.Logger
	// Transport carries the gossip instead of sockets on Bind: a network in memory,
	// for tests. Nil as a rule.
	Transport memberlist.NodeAwareTransport
	// Traffic counts what this member sends over sockets; nil for nobody.
	Traffic *Traffic
}

// Gossip is one running member. Its methods may be called from any goroutine.
type Gossip struct {
	cfg         Config
	self        meta
	log         *slog.Logger
	list        *memberlist.Memberlist
	addr        string
	roster      *roster
	broadcaster *broadcaster
	cancel      context.CancelFunc
	seeking     sync.WaitGroup
	closing     sync.Once
	ring        *memberlist.Keyring
	changes     sync.Mutex // one SetKeys at a time
	foreign     *foreign
}

// Start begins to gossip and to look for others, in the background. It fails
// only on what cannot work: a bad configuration (ErrConfig, ErrKey) or an address
// that cannot be listened on (ErrBind), each a *cli.Error.
func Start(cfg Config) (*Gossip, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	self := meta{role: cfg.Role, name: cfg.Name, rpc: cfg.RPC, started: uint64(max(0, time.Now().UnixMilli()))}
	if err := check(cfg, self); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t, err := transport(ctx, cfg)
	if err != nil {
		cancel()
		return nil, err
	}
	g := newGossip(cfg, self, cancel)
	if err := g.create(t); err != nil {
		cancel()
		return nil, err
	}
	g.seeking.Go(func() { g.seek(ctx) })
	g.seeking.Go(func() { g.insist(ctx) })
	return g, nil
}

func newGossip(cfg Config, self meta, cancel context.CancelFunc) *Gossip {
	g := &Gossip{cfg: cfg, self: self, log: cfg.Logger, cancel: cancel, roster: newRoster(cfg.Logger), foreign: &foreign{}}
	g.broadcaster = newBroadcaster(cfg, g.roster.count)
	return g
}

// transport is the configured network in memory, or sockets.
func transport(ctx context.Context, cfg Config) (memberlist.NodeAwareTransport, error) {
	if cfg.Transport != nil {
		return cfg.Transport, nil
	}
	w, err := bind(ctx, cfg.Bind, newLogger(cfg.Logger))
	if err != nil {
		return nil, err
	}
	w.count = cfg.Traffic
	return w, nil
}

func check(cfg Config, self meta) error {
	if err := self.check(); err != nil {
		return badConfig(fmt.Sprintf("cannot gossip as %s %q at %q", cfg.Role, cfg.Name, cfg.RPC),
			"a member has a printable name of up to 128 bytes, a role, and host:port for RPC")
	}
	if err := cfg.keys().check(); err != nil {
		return err
	}
	for _, j := range cfg.Join {
		if _, port, err := net.SplitHostPort(j); err != nil || port == "" {
			return badConfig(fmt.Sprintf("join address %q is not host:port", j), "name the gossip address of any one member, like 10.0.0.5:7402")
		}
	}
	return nil
}

func (c Config) keys() Keys { return append(Keys{c.Key}, c.Believed...) }

func badConfig(message, hint string) error {
	return &cli.Error{Code: "usage", Exit: cli.ExitUsage, Message: message, Hint: hint, Err: errConfig}
}

// create starts memberlist on t, which it owns from then on.
func (g *Gossip) create(t memberlist.NodeAwareTransport) error {
	conf, err := g.tuned(t)
	if err != nil {
		_ = t.Shutdown()
		return err
	}
	g.roster.self, g.broadcaster.self = conf.Name, conf.Name
	list, err := memberlist.Create(conf)
	if err != nil {
		_ = t.Shutdown()
		return &cli.Error{
			Exit:    cli.ExitFailed,
			Message: fmt.Sprintf("cannot gossip on %s: %v", g.cfg.Bind, err),
			Hint:    "name the address that the others reach this machine by (advertise)",
			Err:     fmt.Errorf("%w: %w", errBind, err),
		}
	}
	g.list, g.addr = list, list.LocalNode().Address()
	g.broadcaster.attach(list)
	return nil
}

func (g *Gossip) tuned(t memberlist.NodeAwareTransport) (*memberlist.Config, error) {
	// A name of memberlist's must be unique, and a member that comes back may
	// not be mistaken for its former self; ours is inside the description.
	suffix := make([]byte, 8)
	if _, err := rand.Read(suffix); err != nil {
		return nil, fmt.Errorf("gossip: name of this member: %w", err)
	}
	bound := 0 // a network in memory knows its address itself
	if w, ok := t.(*wire); ok {
		bound = w.GetAutoBindPort()
	}
	host, port, err := g.advertised(bound)
	if err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = g.cfg.Role + "/" + g.cfg.Name + "/" + hex.EncodeToString(suffix)
	c.Transport = t
	c.BindPort = bound
	c.AdvertiseAddr, c.AdvertisePort = host, port
	if c.Keyring, err = memberlist.NewKeyring(g.cfg.Believed, g.cfg.Key); err != nil {
		return nil, fmt.Errorf("gossip: keys: %w", err)
	}
	g.ring = c.Keyring
	c.Label = label
	c.Delegate = delegate{meta: g.self.encode(), broadcaster: g.broadcaster}
	c.Events = g.roster
	c.Logger = newKeyLogger(g.log, g.foreign)
	c.ProbeInterval, c.ProbeTimeout = probeInterval, probeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	c.GossipInterval, c.PushPullInterval = gossipInterval, pushPullInterval
	c.TCPTimeout = streamTimeout
	return c, nil
}

// advertised is what memberlist tells the others; empty leaves the choice to it.
func (g *Gossip) advertised(bound int) (host string, port int, err error) {
	a := g.cfg.Advertise
	if a == "" {
		return "", bound, nil
	}
	host, port = a, bound
	if h, p, err := net.SplitHostPort(a); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return "", 0, badConfig(fmt.Sprintf("advertise address %q has no usable port", a), "write it like 10.0.0.5:7402")
		}
		host = h
		if n != 0 {
			port = int(n)
		}
	}
	if net.ParseIP(host) == nil {
		return "", 0, badConfig(fmt.Sprintf("advertise address %q is not an IP address", a), "write it like 10.0.0.5 or 10.0.0.5:7402")
	}
	return host, port, nil
}

// Addr is host:port that this member's gossip is reached by.
func (g *Gossip) Addr() string { return g.addr }

// Changed tells that members have come, gone or changed since it was last read,
// however many. It is one channel for one reader and is never closed.
func (g *Gossip) Changed() <-chan struct{} { return g.roster.changed }

// Members lists everybody who lives, this member too, by role, name and address.
func (g *Gossip) Members() []Member { return g.roster.members("") }

// Coordinators lists the coordinators who live, this member too if it is one.
func (g *Gossip) Coordinators() []Member { return g.roster.members(RoleCoordinator) }

// Close says goodbye, so that the others need not miss this member, and stops.
// It takes at most leaveTimeout and what the system needs to close sockets.
func (g *Gossip) Close() error {
	var err error
	g.closing.Do(func() {
		g.cancel()
		g.seeking.Wait()
		// A goodbye that was not passed on often enough costs the others a few
		// seconds of suspicion, nothing else.
		_ = g.list.Leave(leaveTimeout)
		if err = g.list.Shutdown(); err != nil {
			err = fmt.Errorf("gossip: close: %w", err)
		}
	})
	return err
}

func byRoleNameAddr(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Addr, b.Addr))
}

// newest keeps, of the members of one role ("": of all), of one address and name the
// member that started last: its former self is dead, only not missed yet.
func newest(all map[string]entry, role string) []entry {
	type place struct{ role, name, addr string }
	latest := map[place]entry{}
	for _, e := range all {
		if role != "" && e.meta.role != role {
			continue // a node that asks for coordinators does not sort a thousand nodes
		}
		at := place{e.meta.role, e.meta.name, e.addr}
		if old, ok := latest[at]; !ok || e.meta.started > old.meta.started {
			latest[at] = e
		}
	}
	out := make([]entry, 0, len(latest))
	for _, e := range latest {
		out = append(out, e)
	}
	return out
}

// sorted makes the public list of some entries.
func sorted(entries []entry) []Member {
	out := each.Of(entries, func(e entry) Member {
		return Member{Name: e.meta.name, Role: e.meta.role, RPC: e.meta.rpc, Addr: e.addr}
	})
	slices.SortFunc(out, byRoleNameAddr)
	return out
}
