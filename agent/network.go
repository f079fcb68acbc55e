package agent

import (
	"context"
	"errors"
	"fmt"
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
	"headroom/lease"
)

// network is how others reach this node: its links, and the gossip, which tells its
// address and carries the brake. It belongs to the owner goroutine.
type network struct {
	cfg     *config.Config
	log     *slog.Logger
	brake   *brakeTracker
	servers *sync.WaitGroup

	gossip *gossip.Gossip // nil: there is none, or it is just started anew
	keys   gossip.Keys    // as the file had them last
	drops  gossip.Drops   // of brakes, by gossips that were started anew since

	watcher *links.Watcher
	changed <-chan struct{} // nil: links are not watched
	state   links.State
	cutOff  bool
	known   []string // coordinators' addresses as last told to the watcher; nil: never yet
	settled bool     // the state stands on those
	retryAt time.Duration

	advertised string // host given to the gossip, "" for its own choice
	moved      chan *gossip.Gossip
	moving     bool
}

// watchCut says that no link leads to a coordinator, before the lease ends.
func (n *node) watchCut(now lease.Instant) {
	text := "no link that leads to a coordinator is up"
	if left, held := n.lease.Remaining(now); held {
		text += fmt.Sprintf("; the lease ends within %.0fs, then the node holds its fail-safe cap of %v",
			left.Seconds(), n.lease.Memory().FailSafe)
	}
	n.health.Warn(n.network.cutOff, "cut-off",
		text, "look at the cable, the switch and the address: ip link, ip addr")
}

// loadKeys reads the keys of the gossip, where there is one.
func (w *network) loadKeys() (err error) {
	if w.cfg.Gossip.Bind != "" {
		w.keys, err = gossip.LoadKeys(w.cfg.Gossip.KeyFile)
	}
	return err
}

// start begins to gossip, where the node does.
func (w *network) start() (err error) {
	if w.cfg.Gossip.Bind != "" {
		w.gossip, err = gossip.Start(w.gossipConfig(""))
	}
	return err
}

func (w *network) gossipConfig(advertise string) gossip.Config {
	return gossip.Config{
		Name: w.cfg.Node, Role: gossip.RoleNode, Bind: w.cfg.Gossip.Bind, Advertise: advertise,
		Key: w.keys[0], Believed: w.keys[1:], Join: w.cfg.Gossip.Join, BrakeKeys: w.brake.keys, Brake: w.brake.newest, Logger: w.log,
	}
}

// close ends the gossip; one that is just started anew has ended with the servers.
func (w *network) close() {
	select {
	case g := <-w.moved:
		w.gossip = g
	default:
	}
	if w.gossip != nil {
		w.end(w.gossip)
	}
}

func (w *network) end(g *gossip.Gossip) {
	if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		w.log.Debug("gossip did not close cleanly", slog.Any("error", err))
	}
}

// told are what the gossip tells by: a member that came or went, and a brake. Both
// are nil while there is none.
func (w *network) told() (found, braked <-chan struct{}) {
	if w.gossip == nil {
		return nil, nil
	}
	return w.gossip.Changed(), w.gossip.Braked()
}

// gossiped are the coordinators that the gossip knows.
func (w *network) gossiped() []string {
	if w.gossip == nil {
		return nil
	}
	return streams.Gossiped(w.gossip.Coordinators())
}

// follow follows the node's links, where it has anybody to reach.
func (w *network) follow(ctx context.Context) {
	w.moved = make(chan *gossip.Gossip, 1)
	if w.cfg.Alone() {
		return
	}
	watcher, err := links.Watch(ctx, w.log)
	if err != nil {
		w.log.Warn("links are not watched: a cut is noticed when the lease ends", slog.Any("error", err))
		return
	}
	w.watcher, w.changed = watcher, watcher.Changed()
	w.servers.Go(func() { <-watcher.Done() })
	w.linksTold()
}

// linksTold takes the newest state of the links.
func (w *network) linksTold() {
	if w.watcher == nil {
		return
	}
	was := w.state
	w.state = w.watcher.State()
	w.cutOff = w.state.CutOff()
	settled := w.known != nil && w.settled
	w.settled = w.known != nil
	if settled && was.Advertise != w.state.Advertise {
		w.log.Info("the node's address changed", slog.String("from", was.Advertise.String()),
			slog.String("to", w.state.Advertise.String()), slog.String("link", w.state.Interface))
	}
	w.readvertise()
}

// tellCoordinators tells the watcher to whom the links should lead.
func (w *network) tellCoordinators(addrs []string) {
	if w.watcher == nil || w.known != nil && slices.Equal(addrs, w.known) {
		return
	}
	w.known = append([]string{}, addrs...) // not nil even when nobody is known
	var all []netip.Addr
	for _, a := range addrs {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			all = append(all, ap.Addr())
		}
	}
	w.watcher.SetCoordinators(all)
}

// wildcard says that the gossip listens on every address, so that the one it
// tells others is a choice.
func (w *network) wildcard() bool {
	host, _, err := net.SplitHostPort(w.cfg.Gossip.Bind)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// advertise is the address to tell others, "" for the gossip's own choice.
func (w *network) advertise() string {
	if a := w.state.Advertise; a.IsValid() && w.wildcard() {
		return a.String()
	}
	return ""
}

// readvertise starts the gossip anew when others should reach the node by another
// address. That takes a while, so it is done beside the loop.
func (w *network) readvertise() {
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
	w.drops = w.brakeDrops()
	w.gossip = nil
	cfg := w.gossipConfig(net.JoinHostPort(to, port))
	host, _, _ := net.SplitHostPort(cfg.Bind)
	cfg.Bind = net.JoinHostPort(host, port)
	w.servers.Go(func() {
		w.end(old)
		g, err := gossip.Start(cfg)
		if err != nil {
			w.log.Warn("gossip is not back with the new address", slog.String("advertise", to), slog.Any("error", err))
		}
		w.moved <- g
	})
}

// gossipMoved takes the gossip that was started anew.
func (w *network) gossipMoved(g *gossip.Gossip) {
	w.moving = false
	if g == nil {
		w.advertised = ""
		return
	}
	w.gossip = g
	w.rekey(w.keys) // they may have changed meanwhile
	w.log.Info("gossip tells another address", slog.String("advertise", w.advertised))
}

// address is the address that others are told, for status.
func (w *network) address() string {
	switch {
	case w.gossip != nil:
		return w.gossip.Addr()
	case w.state.Advertise.IsValid():
		return w.state.Advertise.String()
	}
	return ""
}

// housekeep is what once a second is enough for.
func (w *network) housekeep(now time.Duration) {
	if w.gossip == nil && w.keys != nil && !w.moving && now >= w.retryAt {
		w.retryAt = now + retryGossip
		if err := w.start(); err != nil {
			w.log.Warn("gossip does not start", slog.Any("error", err))
		}
		return
	}
	w.readvertise()
}

// retryGossip is the pause before a gossip that did not come back is tried again.
const retryGossip = 10 * time.Second

// brakeDrops counts brakes that were not believed, over every gossip of this process.
func (w *network) brakeDrops() gossip.Drops {
	d := w.drops
	if w.gossip != nil {
		more := w.gossip.BrakeDrops()
		d.Old, d.Forged, d.Malformed = d.Old+more.Old, d.Forged+more.Forged, d.Malformed+more.Malformed
	}
	return d
}

// reload reads again what may change while powerd runs, which are the keys of the
// gossip. It runs beside the loop, which no file holds up.
func (w *network) reload(ctx context.Context, owner chan<- func(context.Context)) {
	if w.cfg.Gossip.Bind == "" {
		w.log.Info("nothing to read again: there is no gossip, and certificates are read again by themselves")
		return
	}
	keys, err := gossip.LoadKeys(w.cfg.Gossip.KeyFile)
	if err != nil {
		w.log.Warn("the gossip keys stay as they are", slog.Any("error", err))
		return
	}
	select {
	case owner <- func(context.Context) { w.rekey(keys) }:
	case <-ctx.Done():
	}
}

// rekey puts keys in force, now or in the gossip that is just started anew.
func (w *network) rekey(keys gossip.Keys) {
	w.keys = keys
	if w.gossip == nil {
		return
	}
	if err := w.gossip.SetKeys(keys); err != nil {
		w.log.Warn("the gossip keys stay as they are", slog.Any("error", err))
	}
}
