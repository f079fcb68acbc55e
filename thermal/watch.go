package thermal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"headroom/internal/each"
)

// family is the generic netlink family that tells thermal events.
const family = "thermal"

// eventsQueued bounds the events that wait for a slow reader. When it is full the
// kernel's own buffer fills next, and the reader receives Lost.
const eventsQueued = 256

// Watch sends the kernel's thermal events until ctx is done, then closes the
// channel. It also closes the channel, and logs why, when the socket fails. A
// kernel without the events is ErrNoEvents.
//
// The events are those of the kernel that runs this program, whatever tree the
// sensors are read from.
func Watch(ctx context.Context, log *slog.Logger) (<-chan Event, error) {
	f, err := netlink.GenlFamilyGet(family)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("thermal: %w", errors.Join(ErrNoEvents, err))
	}
	if err != nil {
		return nil, fmt.Errorf("thermal: find netlink family: %w", err)
	}
	groups := each.List(f.Groups, func(g netlink.GenlMulticastGroup) uint32 { return g.ID })
	socket, err := openSocket(groups...)
	if err != nil {
		return nil, fmt.Errorf("thermal: open netlink: %w", err)
	}
	return tell(ctx, log, socket, f.ID), nil
}

// receiver is a netlink socket.
type receiver interface {
	Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error)
	Close()
}

// tell starts the goroutine that reads the socket, which it closes at its end.
func tell(ctx context.Context, log *slog.Logger, socket receiver, id uint16) <-chan Event {
	events := make(chan Event, eventsQueued)
	stop := context.AfterFunc(ctx, socket.Close) // wakes Receive
	go func() {
		defer close(events)
		defer func() {
			if stop() {
				socket.Close()
			}
		}()
		for {
			next, err := receive(socket, id, log)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, os.ErrClosed) {
					log.Warn("thermal events ended", slog.Any("error", err))
				}
				return
			}
			for _, e := range next {
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return events
}

// receive reads what the socket has: events of the family id, from the kernel.
func receive(socket receiver, id uint16, log *slog.Logger) ([]Event, error) {
	messages, from, err := socket.Receive()
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return []Event{{Kind: Lost}}, nil
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return nil, nil
	case err != nil:
		return nil, err
	case from.Pid != nl.PidKernel:
		return nil, nil // any program may send to the socket
	}
	var events []Event
	for _, m := range messages {
		if m.Header.Type != id {
			continue
		}
		more, err := parse(m.Data)
		if err != nil {
			log.Warn("invalid thermal message", slog.Any("error", err))
			continue
		}
		events = append(events, more...)
	}
	return events, nil
}
