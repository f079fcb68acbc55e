package access

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
)

const (
	// DeniedFile keeps the denials that are known, in a program's own folder: a
	// restart without coordinators still refuses who was denied.
	DeniedFile = "denied.json"
	// deniedEvery is how often the denials are read from the coordinators.
	deniedEvery = 5 * time.Second
	// deniedWait bounds one such call.
	deniedWait = 3 * time.Second
)

// Denied follows which certificates the coordinators have denied.
type Denied struct {
	// File keeps them over a restart; empty for none.
	File         string
	Coordinators []string
	Peers        rpc.Peers
	Keeper       *secure.Keeper
	Guard        *Guard
	Logger       *slog.Logger
}

// Load reads the denials of an earlier process, and makes handshakes check them.
func (d *Denied) Load() error {
	if d.File != "" {
		all, err := secure.ReadDenials(d.File)
		if err != nil {
			return fmt.Errorf("read denials: %w", err)
		}
		d.Guard.Denials.Add(all...)
	}
	d.Keeper.Deny(d.Guard.Denials)
	return nil
}

// Watch learns from the coordinators who is denied, until ctx ends. A connection
// that is open is refused at its next message.
func (d *Denied) Watch(ctx context.Context) error {
	tick := time.NewTicker(deniedEvery)
	defer tick.Stop()
	failed := false
	for {
		err := d.update(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			d.Logger.Warn("denied certificates not read from the coordinators; keeping the known denials", slog.Any("error", err))
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
func (d *Denied) update(ctx context.Context) error {
	var failed error
	for _, addr := range d.Coordinators {
		all, err := d.listedAt(ctx, addr)
		if err == nil {
			return d.add(all)
		}
		failed = errors.Join(failed, fmt.Errorf("ask %s: %w", addr, err))
	}
	return failed
}

func (d *Denied) listedAt(parent context.Context, addr string) ([]secure.Denial, error) {
	ctx, cancel := context.WithTimeout(parent, deniedWait)
	defer cancel()
	client := headroomv1connect.NewClusterServiceClient(d.Peers.HTTP(), d.Peers.URL(addr), d.Peers.Options()...)
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
func (d *Denied) add(all []secure.Denial) error {
	if !d.Guard.Denials.Add(all...) {
		return nil
	}
	d.Guard.TellDenials()
	d.Peers.Expel()
	all = d.Guard.Denials.All()
	d.Logger.Info("certificates denied", slog.Int("denials", len(all)))
	if d.File == "" {
		return nil
	}
	if err := secure.WriteDenials(d.File, all); err != nil {
		return fmt.Errorf("store denials: %w", err)
	}
	return nil
}
