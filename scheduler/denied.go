package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/access"
)

const (
	// deniedFile keeps the denials that are known, in the scheduler's own folder: a
	// restart without coordinators still refuses who was denied.
	deniedFile = "denied.json"
	// deniedEvery is how often the coordinators are asked who is denied.
	deniedEvery = 5 * time.Second
	// deniedWait bounds one such call.
	deniedWait = 3 * time.Second
)

// denials are the certificates that the coordinators have denied.
type denials struct {
	file         string
	coordinators []string
	peers        rpc.Peers
	keeper       *secure.Keeper
	guard        *access.Guard
	logger       *slog.Logger
}

// load takes over the denials of an earlier process, and has handshakes heed them.
func (d *denials) load() error {
	all, err := secure.ReadDenials(d.file)
	if err != nil {
		return fmt.Errorf("scheduler: read who is denied: %w", err)
	}
	d.guard.Denials.Add(all...)
	d.keeper.Deny(d.guard.Denials)
	return nil
}

// watch learns from the coordinators who is denied, until ctx ends. A connection
// that is open is refused at its next message.
func (d *denials) watch(ctx context.Context) error {
	tick := time.NewTicker(deniedEvery)
	defer tick.Stop()
	failed := false
	for {
		err := d.update(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			d.logger.Warn("denied certificates not read from the coordinators, those known stay denied", slog.Any("error", err))
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// update asks one coordinator after the other. Any server's list will do: it only grows.
func (d *denials) update(ctx context.Context) error {
	var failed error
	for _, addr := range d.coordinators {
		all, err := d.listedAt(ctx, addr)
		if err == nil {
			return d.add(all)
		}
		failed = errors.Join(failed, fmt.Errorf("ask %s: %w", addr, err))
	}
	return failed
}

func (d *denials) listedAt(parent context.Context, addr string) ([]secure.Denial, error) {
	ctx, cancel := context.WithTimeout(parent, deniedWait)
	defer cancel()
	client := headroomv1connect.NewClusterServiceClient(d.peers.HTTP(), d.peers.URL(addr), d.peers.Options()...)
	resp, err := client.ListDenied(ctx, connect.NewRequest(&headroomv1.ListDeniedRequest{Stale: true}))
	if err != nil {
		return nil, rpc.AsCLI(err, "list denied certificates", addr)
	}
	all := make([]secure.Denial, 0, len(resp.Msg.GetDenied()))
	for _, one := range resp.Msg.GetDenied() {
		all = append(all, secure.Denial{Identity: one.GetIdentity(), Serial: one.GetSerial(), At: one.GetAtUs(), Actor: one.GetActor(), Reason: one.GetReason()})
	}
	return all, nil
}

// add takes over denials, at once and over a restart.
func (d *denials) add(all []secure.Denial) error {
	if !d.guard.Denials.Add(all...) {
		return nil
	}
	d.guard.TellDenials()
	d.peers.Expel()
	all = d.guard.Denials.All()
	d.logger.Info("certificates denied", slog.Int("denials", len(all)))
	if err := secure.WriteDenials(d.file, all); err != nil {
		return fmt.Errorf("scheduler: keep who is denied: %w", err)
	}
	return nil
}
