// Package network connects a node to the others: its links, and gossip, which announces its
// address and carries the brake.
//
// It detects that no link to a coordinator is up, announces a new address when the node's
// address changes, and reloads the gossip keys on request. A Network belongs to one
// goroutine, powerd's loop; slow work runs in others. It makes no decision about power.
package network

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"headroom/agent/config"
	"headroom/agent/links"
	"headroom/agent/streams"
	"headroom/gossip"
	"headroom/gossip/brake"
)

// Network is the node's connection to others: its links, and the gossip, which announces its
// address and carries the brake. It belongs to the owner goroutine.
type Network struct {
	cfg     *config.Config
	log     *slog.Logger
	brake   func() brake.Signed // the newest brake
	servers *sync.WaitGroup

	gossip  *gossip.Gossip // nil: there is none, or it is being restarted
	keys    gossip.Keys    // as the file had them last; nil: it could not be read yet, or the other file
	signers brake.Keys     // the keys that verify a brake
	reading bool           // the files, beside the loop
	trouble error          // why there is no gossip
	drops   gossip.Drops   // of brakes, by earlier gossips of this process

	watcher *links.Watcher
	Changed <-chan struct{} // nil: links are not watched
	State   links.State
	CutOff  bool
	known   []string // coordinators' addresses as last given to the watcher; nil: never yet
	settled bool     // the state stands on those
	retryAt time.Duration

	advertised string // host given to the gossip, "" for its own choice
	Moved      chan *gossip.Gossip
	moving     bool
}

// New returns a network that is not started yet. Its goroutines are servers; brake
// is asked when a gossip begins.
func New(cfg *config.Config, log *slog.Logger, servers *sync.WaitGroup, brake func() brake.Signed) *Network {
	return &Network{cfg: cfg, log: log, servers: servers, brake: brake}
}

// NewestBrake is the newest brake that the gossip brought.
func (w *Network) NewestBrake() brake.Signed { return w.gossip.Brake() }

// LoadKeys reads the keys of the gossip and of the brake, where there is one, and returns
// those of the brake. Without them the node starts, and they are tried again.
func (w *Network) LoadKeys() brake.Keys {
	w.loaded(w.files())
	return w.signers
}

func (w *Network) files() (keys gossip.Keys, signers brake.Keys, err error) {
	if w.cfg.Gossip.Bind != "" {
		keys, err = gossip.LoadKeys(w.cfg.Gossip.KeyFile)
	}
	if err == nil && w.cfg.Brake.PublicKeyFile != "" {
		signers, err = brake.LoadKeys(w.cfg.Brake.PublicKeyFile)
	}
	return keys, signers, err
}

// loaded takes what the files hold. A gossip that runs goes on verifying brakes with the keys it began with.
func (w *Network) loaded(keys gossip.Keys, signers brake.Keys, err error) {
	w.reading = false
	switch {
	case err != nil && w.keys != nil:
		w.log.Warn("gossip keys not reloaded, keeping the old ones", slog.Any("error", err))
	case err != nil:
		w.trouble = err
	default:
		w.signers = signers
		w.rekey(keys)
	}
}

// Trouble returns why there is no gossip though it is configured.
func (w *Network) Trouble() error { return w.trouble }

// Start begins to gossip, where the node does and its files could be read.
func (w *Network) Start() {
	if w.keys != nil {
		w.gossip, w.trouble = gossip.Start(w.gossipConfig(""))
	}
}

func (w *Network) gossipConfig(advertise string) gossip.Config {
	return gossip.Config{
		Name: w.cfg.Node, Role: gossip.RoleNode, Bind: w.cfg.Gossip.Bind, Advertise: advertise,
		Key: w.keys[0], Believed: w.keys[1:], Join: w.cfg.Gossip.Join, BrakeKeys: w.signers, Brake: w.brake(), Logger: w.log,
	}
}

// Close ends the gossip; one that is just started anew has ended with the servers.
func (w *Network) Close() {
	select {
	case g := <-w.Moved:
		w.gossip = g
	default:
	}
	if w.gossip != nil {
		w.end(w.gossip)
	}
}

func (w *Network) end(g *gossip.Gossip) {
	if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		w.log.Debug("gossip close failed", slog.Any("error", err))
	}
}

// Told returns the gossip's channels: a member that came or went, and a brake. Both
// are nil while there is none.
func (w *Network) Told() (found, braked <-chan struct{}) {
	if w.gossip == nil {
		return nil, nil
	}
	return w.gossip.Changed(), w.gossip.Braked()
}

// Gossiped returns the coordinators that the gossip knows.
//
//headroom:control
func (w *Network) Gossiped() []string {
	if w.gossip == nil {
		return nil
	}
	return streams.Gossiped(w.gossip.Coordinators())
}

// Follow watches the node's links if it has coordinators to reach.
func (w *Network) Follow(ctx context.Context) {
	w.Moved = make(chan *gossip.Gossip, 1)
	if w.cfg.Alone() {
		return
	}
	watcher, err := links.Watch(ctx, w.log)
	if err != nil {
		w.log.Warn("links not watched; a lost link is detected when the lease expires", slog.Any("error", err))
		return
	}
	w.watcher, w.Changed = watcher, watcher.Changed()
	w.servers.Go(func() { <-watcher.Done() })
	w.LinksTold()
}

// LinksTold takes the newest state of the links.
//
//headroom:control
func (w *Network) LinksTold() {
	if w.watcher == nil {
		return
	}
	was := w.State
	w.State = w.watcher.State()
	w.CutOff = w.State.CutOff()
	settled := w.known != nil && w.settled
	w.settled = w.known != nil
	if settled && was.Advertise != w.State.Advertise {
		w.log.Info("node address changed", slog.String("from", was.Advertise.String()),
			slog.String("to", w.State.Advertise.String()), slog.String("link", w.State.Interface))
	}
	w.readvertise()
}

// TellCoordinators gives the watcher the coordinators that the links should lead to.
//
//headroom:control
func (w *Network) TellCoordinators(addrs []string) {
	if w.watcher == nil || w.known != nil && slices.Equal(addrs, w.known) {
		return
	}
	w.known = append([]string{}, addrs...) // not nil even if none is known
	var all []netip.Addr
	for _, a := range addrs {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			all = append(all, ap.Addr())
		}
	}
	w.watcher.SetCoordinators(all)
}

// wildcard reports whether the gossip listens on every address, so that the one it
// tells others is a choice.
func (w *Network) wildcard() bool {
	host, _, err := net.SplitHostPort(w.cfg.Gossip.Bind)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// advertise is the address to tell others, "" for the gossip's own choice.
func (w *Network) advertise() string {
	if a := w.State.Advertise; a.IsValid() && w.wildcard() {
		return a.String()
	}
	return ""
}

// readvertise restarts the gossip when others should reach the node by another
// address. That takes a while, so it is done beside the loop.
func (w *Network) readvertise() {
	to := w.advertise()
	if w.gossip == nil || w.moving || to == "" || to == w.advertised {
		return
	}
	old := w.gossip
	told, port, err := net.SplitHostPort(old.Addr())
	if err != nil {
		return
	}
	if told == to {
		w.advertised = to
		return
	}
	w.moving, w.advertised = true, to
	w.drops = w.BrakeDrops()
	w.gossip = nil
	cfg := w.gossipConfig(net.JoinHostPort(to, port))
	host, _, _ := net.SplitHostPort(cfg.Bind)
	cfg.Bind = net.JoinHostPort(host, port)
	w.servers.Go(func() {
		w.end(old)
		g, err := gossip.Start(cfg)
		if err != nil {
			w.log.Warn("gossip not restarted with the new address, retrying", slog.String("advertise", to), slog.Any("error", err))
		}
		w.Moved <- g
	})
}

// GossipMoved stores the restarted gossip.
func (w *Network) GossipMoved(g *gossip.Gossip) {
	w.moving = false
	if g == nil {
		w.advertised = ""
		return
	}
	w.gossip = g
	w.rekey(w.keys) // they may have changed meanwhile
	w.log.Info("gossip address changed", slog.String("advertise", w.advertised))
}

// Address returns the advertised address, for status.
func (w *Network) Address() string {
	switch {
	case w.gossip != nil:
		return w.gossip.Addr()
	case w.State.Advertise.IsValid():
		return w.State.Advertise.String()
	}
	return ""
}

// Housekeep is what once a second is enough for.
func (w *Network) Housekeep(ctx context.Context, now time.Duration, owner chan<- func(context.Context)) {
	switch {
	case w.gossip != nil:
		w.readvertise()
	case w.cfg.Gossip.Bind == "" || w.moving || w.reading:
	case w.keys == nil:
		w.reading = true
		w.servers.Go(func() { w.read(ctx, owner) })
	case now >= w.retryAt:
		w.retryAt = now + retryGossip
		w.Start()
	}
}

// retryGossip is the pause before a gossip that did not come back is tried again.
const retryGossip = 10 * time.Second

// BrakeDrops returns the number of dropped brakes, over every gossip of this process.
func (w *Network) BrakeDrops() gossip.Drops {
	d := w.drops
	if w.gossip != nil {
		more := w.gossip.BrakeDrops()
		d.Old, d.Forged, d.Malformed = d.Old+more.Old, d.Forged+more.Forged, d.Malformed+more.Malformed
	}
	return d
}

// Reload reads again what may change while powerd runs, which are the keys of the
// gossip. It runs beside the loop, which no file holds up.
func (w *Network) Reload(ctx context.Context, owner chan<- func(context.Context)) {
	if w.cfg.Gossip.Bind == "" {
		w.log.Info("nothing to reload: gossip is not configured, and certificates are reloaded automatically")
		return
	}
	w.read(ctx, owner)
}

func (w *Network) read(ctx context.Context, owner chan<- func(context.Context)) {
	keys, signers, err := w.files()
	select {
	case owner <- func(context.Context) { w.loaded(keys, signers, err) }:
	case <-ctx.Done():
	}
}

// rekey puts keys in force, now or in the gossip that is being restarted.
func (w *Network) rekey(keys gossip.Keys) {
	w.keys = keys
	if w.gossip == nil {
		return
	}
	if err := w.gossip.SetKeys(keys); err != nil {
		w.log.Warn("gossip keys not reloaded, keeping the old ones", slog.Any("error", err))
	}
}
