package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"headroom/agent/links"
	"headroom/gossip"
	"headroom/lease"
)

// network is how others reach this node. It belongs to the owner goroutine.
type network struct {
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

// startLinks follows the node's links, where it has anybody to reach.
func (n *node) startLinks(ctx context.Context) {
	n.network.moved = make(chan *gossip.Gossip, 1)
	if n.cfg.Alone() {
		return
	}
	w, err := links.Watch(ctx, n.log)
	if err != nil {
		n.log.Warn("links are not watched: a cut is noticed when the lease ends", slog.Any("error", err))
		return
	}
	n.network.watcher, n.network.changed = w, w.Changed()
	n.servers.Go(func() { <-w.Done() })
	n.linksTold(instant())
}

// linksTold takes the newest state of the links.
func (n *node) linksTold(now lease.Instant) {
	w := n.network.watcher
	if w == nil {
		return
	}
	was := n.network.state
	n.network.state = w.State()
	n.network.cutOff = n.network.state.CutOff()
	settled := n.network.known != nil && n.network.settled
	n.network.settled = n.network.known != nil
	if settled && was.Advertise != n.network.state.Advertise {
		n.log.Info("the node's address changed", slog.String("from", was.Advertise.String()),
			slog.String("to", n.network.state.Advertise.String()), slog.String("link", n.network.state.Interface))
	}
	n.watchCut(now)
	n.readvertise()
}

// watchCut says that no link leads to a coordinator, before the lease ends.
func (n *node) watchCut(now lease.Instant) {
	text := "no link that leads to a coordinator is up"
	if left, held := n.lease.Remaining(now); held {
		text += fmt.Sprintf("; the lease ends within %.0fs, then the node holds its fail-safe cap of %v",
			left.Seconds(), n.lease.Memory().FailSafe)
	}
	n.health.set(n.network.cutOff, item{"cut-off", warn, text, "look at the cable, the switch and the address: ip link, ip addr"})
}

// tellCoordinators tells the watcher to whom the links should lead.
func (n *node) tellCoordinators(addrs []string) {
	w := n.network.watcher
	if w == nil || n.network.known != nil && slices.Equal(addrs, n.network.known) {
		return
	}
	n.network.known = append([]string{}, addrs...) // not nil even when nobody is known
	var all []netip.Addr
	for _, a := range addrs {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			all = append(all, ap.Addr())
		}
	}
	w.SetCoordinators(all)
}

// wildcard says that the gossip listens on every address, so that the one it
// tells others is a choice.
func (n *node) wildcard() bool {
	host, _, err := net.SplitHostPort(n.cfg.Gossip.Bind)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// advertise is the address to tell others, "" for the gossip's own choice.
func (n *node) advertise() string {
	if a := n.network.state.Advertise; a.IsValid() && n.wildcard() {
		return a.String()
	}
	return ""
}

// readvertise starts the gossip anew when others should reach the node by another
// address. That takes a while, so it is done beside the loop.
func (n *node) readvertise() {
	to := n.advertise()
	if n.gossip == nil || n.network.moving || to == "" || to == n.network.advertised {
		return
	}
	old := n.gossip
	told, port, err := net.SplitHostPort(old.Addr())
	if err != nil {
		return
	}
	if told == to {
		n.network.advertised = to
		return
	}
	n.network.moving, n.network.advertised = true, to
	n.brake.drops = n.brakeDrops()
	n.gossip = nil
	cfg := n.gossipConfig(net.JoinHostPort(to, port))
	host, _, _ := net.SplitHostPort(cfg.Bind)
	cfg.Bind = net.JoinHostPort(host, port)
	n.servers.Go(func() {
		if err := old.Close(); err != nil {
			n.log.Debug("gossip did not close cleanly", slog.Any("error", err))
		}
		g, err := gossip.Start(cfg)
		if err != nil {
			n.log.Warn("gossip is not back with the new address", slog.String("advertise", to), slog.Any("error", err))
		}
		n.network.moved <- g
	})
}

// gossipMoved takes the gossip that was started anew.
func (n *node) gossipMoved(g *gossip.Gossip) {
	n.network.moving = false
	if g == nil {
		n.network.advertised = ""
		return
	}
	n.gossip = g
	n.rekey(n.keys) // they may have changed meanwhile
	n.log.Info("gossip tells another address", slog.String("advertise", n.network.advertised))
}

// advertised is the address that others are told, for status.
func (n *node) advertised() string {
	switch {
	case n.gossip != nil:
		return n.gossip.Addr()
	case n.network.state.Advertise.IsValid():
		return n.network.state.Advertise.String()
	}
	return ""
}

// watchNetwork is what once a second is enough for.
func (n *node) watchNetwork(now lease.Instant) {
	n.watchCut(now)
	if n.gossip == nil && n.keys != nil && !n.network.moving && now.Boot >= n.network.retryAt {
		n.network.retryAt = now.Boot + retryGossip
		if err := n.startGossip(); err != nil {
			n.log.Warn("gossip does not start", slog.Any("error", err))
		}
		return
	}
	n.readvertise()
}

// retryGossip is the pause before a gossip that did not come back is tried again.
const retryGossip = 10 * time.Second
