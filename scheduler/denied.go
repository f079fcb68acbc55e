package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
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

// loadDenied takes over the denials of an earlier process, and has handshakes heed them.
func (s *Server) loadDenied() error {
	if s.keeper == nil {
		return nil
	}
	all, err := secure.ReadDenials(filepath.Join(s.cfg.Dir, deniedFile))
	if err != nil {
		return fmt.Errorf("scheduler: read who is denied: %w", err)
	}
	s.guard.Denials.Add(all...)
	s.keeper.Deny(s.guard.Denials)
	return nil
}

// watchDenied learns from the coordinators who is denied, until ctx ends. A connection
// that is open is refused at its next message.
func (s *Server) watchDenied(ctx context.Context) error {
	tick := time.NewTicker(deniedEvery)
	defer tick.Stop()
	failed := false
	for {
		err := s.askDenied(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			s.logger.Warn("denied certificates not read from the coordinators, those known stay denied", slog.Any("error", err))
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// askDenied asks one coordinator after the other. Any server's list will do: it only grows.
func (s *Server) askDenied(ctx context.Context) error {
	var failed error
	for _, addr := range s.cfg.Coordinators {
		all, err := s.deniedAt(ctx, addr)
		if err == nil {
			return s.deny(all)
		}
		failed = errors.Join(failed, fmt.Errorf("ask %s: %w", addr, err))
	}
	return failed
}

func (s *Server) deniedAt(parent context.Context, addr string) ([]secure.Denial, error) {
	ctx, cancel := context.WithTimeout(parent, deniedWait)
	defer cancel()
	peers := s.leader.Peers
	client := headroomv1connect.NewClusterServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
	resp, err := client.ListDenied(ctx, connect.NewRequest(&headroomv1.ListDeniedRequest{Stale: true}))
	if err != nil {
		return nil, rpc.AsCLI(err, "list denied certificates", addr)
	}
	all := make([]secure.Denial, 0, len(resp.Msg.GetDenied()))
	for _, d := range resp.Msg.GetDenied() {
		all = append(all, secure.Denial{Identity: d.GetIdentity(), Serial: d.GetSerial(), At: d.GetAtUs(), Actor: d.GetActor(), Reason: d.GetReason()})
	}
	return all, nil
}

// deny takes over denials, at once and over a restart.
func (s *Server) deny(all []secure.Denial) error {
	if !s.guard.Denials.Add(all...) {
		return nil
	}
	s.guard.TellDenials()
	s.leader.Peers.Expel()
	all = s.guard.Denials.All()
	s.logger.Info("certificates denied", slog.Int("denials", len(all)))
	if err := secure.WriteDenials(filepath.Join(s.cfg.Dir, deniedFile), all); err != nil {
		return fmt.Errorf("scheduler: keep who is denied: %w", err)
	}
	return nil
}
