// Package links watches the node's network links and addresses: the address at which others
// reach it, and whether it can reach a coordinator at all.
//
// The one idea: an event of the kernel only triggers a fresh read of all links (View), and a
// pure function (Choose) evaluates it. A lost event or a burst of events therefore costs at
// most one read.
//
// Guarantees: a pulled cable is detected at once, before a lease expires; changes are
// reported at most ten times a second, and the last one always; a slow reader gets the
// newest state and blocks nobody. The package changes no link, address or route, and sends
// nothing.
package links

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"headroom/internal/each"
)

// settle is how long events are gathered before the next look: hosts of many
// containers make bursts of them.
const settle = 100 * time.Millisecond

// interfacesMax and addressesMax bound a view; routesMax keeps a router's full
// table out.
const (
	interfacesMax = 4096
	addressesMax  = 256
	routesMax     = 16384
)

// errEnded reports a watcher whose socket failed: its state does not follow the
// machine any more.
var errEnded = errors.New("link watch ended")

// Watcher follows the links of the node. Its methods may be called by any
// goroutine.
type Watcher struct {
	log     *slog.Logger
	handle  *netlink.Handle
	changed chan struct{}
	done    chan struct{}

	mu           sync.Mutex
	coordinators []netip.Addr
	view         View
	state        State
	err          error
}

// Watch looks at the links and follows them until ctx is done. It needs no rights
// beyond those of any user.
func Watch(ctx context.Context, log *slog.Logger) (*Watcher, error) {
	// The events first, then the first look: nothing falls between.
	socket, err := subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("links: open netlink: %w", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("links: open netlink: %w", errors.Join(err, socket.Close()))
	}
	w := &Watcher{log: log, handle: handle, changed: make(chan struct{}, 1), done: make(chan struct{})}
	view, err := gather(handle)
	if err != nil {
		handle.Close()
		return nil, errors.Join(err, socket.Close())
	}
	w.see(view)
	go w.run(ctx, socket)
	return w, nil
}

// State is what to tell others, as of the last look.
func (w *Watcher) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// SetCoordinators sets the coordinators that the links should lead to. The state follows at once.
func (w *Watcher) SetCoordinators(addrs []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coordinators = slices.Clone(addrs)
	w.choose()
}

// Changed gets a value when the state is another one; several changes may come as
// one. Read State for the newest.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Done is closed when the watcher has ended, after ctx or because it failed; Err
// says which.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// Err is ErrEnded with the cause when the watcher failed, else nil.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// see takes in a new view.
func (w *Watcher) see(v View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view = v
	w.choose()
}

// choose brings the state up to date. The caller holds mu.
func (w *Watcher) choose() {
	next := choose(w.view, w.coordinators)
	if next == w.state {
		return
	}
	w.state = next
	select {
	case w.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// run looks again after events until ctx is done or the socket fails.
func (w *Watcher) run(ctx context.Context, socket io.ReadCloser) {
	defer close(w.done)
	defer w.handle.Close()
	events := make(chan error, 1)
	var listener sync.WaitGroup
	listener.Go(func() { listen(socket, events) })
	err := w.follow(ctx, events)
	err = errors.Join(err, socket.Close()) // wakes listen
	for range events {
		// remaining messages of listen
	}
	listener.Wait()
	if err != nil && ctx.Err() == nil {
		w.log.Warn("link watch ended", slog.Any("error", err))
		w.mu.Lock()
		w.err = errors.Join(errEnded, err)
		w.mu.Unlock()
	}
}

// follow looks at once when something happens after a quiet time, and then at
// most once in settle.
func (w *Watcher) follow(ctx context.Context, events <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err, open := <-events:
			if !open {
				return os.ErrClosed
			}
			if err != nil {
				return err
			}
		}
		if err := w.look(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

// look gathers, in a few attempts when the kernel's tables change meanwhile.
func (w *Watcher) look() error {
	var err error
	for range 3 {
		var v View
		if v, err = gather(w.handle); err == nil {
			w.see(v)
			return nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil // it changes as we look: another event is on its way
}

// noticed is how much of an event is read: only its arrival matters.
// The library's own Receive keeps 64 KiB on the stack of the goroutine that waits in it.
const noticed = 1 << 10

// subscribe opens a socket that the kernel tells events of these groups.
func subscribe(groups ...uint) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	at := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		at.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, at); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// listen reads events until the socket is closed. That something happened is all
// there is to tell, so one value waits at most; the error that ends it comes last.
func listen(socket io.Reader, events chan<- error) {
	defer close(events)
	event := make([]byte, noticed)
	for {
		_, err := socket.Read(event)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			// ENOBUFS: events were lost, which is one more reason to look.
			events <- err
			return
		}
		select {
		case events <- nil:
		default:
		}
	}
}

// gather looks at everything.
func gather(h *netlink.Handle) (View, error) {
	found, err := h.LinkList()
	if err != nil {
		return View{}, fmt.Errorf("links: list links: %w", err)
	}
	var v View
	index := map[int]int{}
	for _, l := range found[:min(len(found), interfacesMax)] {
		a := l.Attrs()
		index[a.Index] = len(v.Interfaces)
		v.Interfaces = append(v.Interfaces, Interface{
			Index: a.Index, Name: a.Name, Kind: l.Type(), Master: a.MasterIndex,
			Loopback: a.Flags&net.FlagLoopback != 0,
			Up:       a.Flags&net.FlagUp != 0,
			Carrier:  a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
		})
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return View{}, fmt.Errorf("links: list addresses: %w", err)
	}
	for _, a := range addrs {
		at, known := index[a.LinkIndex]
		if address, ok := addressOf(a); known && ok && len(v.Interfaces[at].Addrs) < addressesMax {
			v.Interfaces[at].Addrs = append(v.Interfaces[at].Addrs, address)
		}
	}
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return View{}, fmt.Errorf("links: list routes: %w", err)
	}
	for _, r := range routes[:min(len(routes), routesMax)] {
		v.Routes = append(v.Routes, routesOf(r)...)
	}
	return v, nil
}

// addressOf is an address of the kernel's; ok is false for one that must not be
// used yet, or ever (its uniqueness on the link is unproved).
func addressOf(a netlink.Addr) (address Address, ok bool) {
	p, ok := prefixOf(a.IPNet)
	if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
		return Address{}, false
	}
	// For IPv4 the same bit means secondary, which is as good as the first.
	temporary := p.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0
	return Address{Prefix: p, Lesser: temporary || a.Flags&unix.IFA_F_DEPRECATED != 0}, true
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	addr = addr.Unmap()
	if size == 0 || !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, bits), true
}

// routesOf are the ways out that a route of the kernel's names.
func routesOf(r netlink.Route) []Route {
	if r.Type != unix.RTN_UNICAST {
		return nil // unreachable, blackhole and the like lead nowhere
	}
	dst, ok := prefixOf(r.Dst)
	if !ok {
		zero := netip.IPv4Unspecified()
		if r.Family == netlink.FAMILY_V6 {
			zero = netip.IPv6Unspecified()
		}
		dst = netip.PrefixFrom(zero, 0)
	}
	if len(r.MultiPath) == 0 {
		return []Route{{Dst: dst, Index: r.LinkIndex, Metric: r.Priority}}
	}
	return each.Of(r.MultiPath, func(hop *netlink.NexthopInfo) Route { return Route{Dst: dst, Index: hop.LinkIndex, Metric: r.Priority} })
}
