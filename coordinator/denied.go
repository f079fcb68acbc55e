package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/internal/pause"
	"headroom/internal/secure"
	"headroom/ledger"
)

// deniedFile is beside the log: what was ever denied, so that neither a restart nor
// a restore from an older snapshot lets it in again.
const deniedFile = "denied.json"

// deny takes in what the log denies, and never waits.
func (s *server) deny(all []ledger.Denial) {
	more := make([]secure.Denial, 0, len(all))
	for _, x := range all {
		more = append(more, secure.Denial(x))
	}
	if s.guard.Revoked.Add(more...) {
		poke(s.denials)
		s.streams.Nodes.TellDenials()
	}
}

// poke asks for something that is done once, however often it is asked for.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recallDenials takes in those of earlier processes. A file that cannot be read is
// said: the log has its denials all the same.
func (s *server) recallDenials() {
	all, err := secure.ReadDenials(filepath.Join(s.cfg.StateDir, deniedFile))
	if err != nil {
		s.logger.Error("the denials beside the log cannot be read; those in the log hold", slog.Any("error", err))
	}
	s.guard.Revoked.Add(all...)
}

// keepDenials writes denials beside the log until ctx ends.
func (s *server) keepDenials(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.denials:
		}
		if err := secure.WriteDenials(filepath.Join(s.cfg.StateDir, deniedFile), s.guard.Revoked.All()); err != nil {
			s.logger.Error("denials are not stored beside the log; the log has them", slog.Any("error", err))
			if pause.For(ctx, time.Second) {
				poke(s.denials)
			}
		}
	}
}

// denyAgain commits denials that this server knows and the log does not: the group
// began anew from a snapshot that was older.
func (s *server) denyAgain(ctx context.Context) {
	var missing []secure.Denial
	s.machine.View(func(st *ledger.State) {
		for _, x := range s.guard.Revoked.All() {
			if old, known := st.Denied[x.Key()]; !known || x.Identity != "" && old.At < x.At {
				missing = append(missing, x)
			}
		}
	})
	for _, x := range missing {
		d := ledger.Denial(x)
		if _, err := s.requests.change(ctx, ledger.Command{Deny: &d, Actor: s.cfg.ID, Reason: "denied before the group began anew"}); err != nil {
			s.logger.Warn("a denial is not back in the log", slog.String("denied", x.Key()), slog.Any("error", err))
			return
		}
	}
}

// carryDenials copies the denials beside the old log to where the new one is made.
func (b Rebirth) carryDenials(staging string) error {
	all, err := secure.ReadDenials(filepath.Join(filepath.Clean(b.Config.StateDir), deniedFile))
	if err != nil || len(all) == 0 {
		return err
	}
	return secure.WriteDenials(filepath.Join(staging, deniedFile), all)
}

// checkDenial refuses what denies nobody.
func checkDenial(d *ledger.Denial) error {
	x, err := secure.ParseDenial(d.Key())
	if err != nil || x.Identity != d.Identity || x.Serial != d.Serial {
		return fmt.Errorf("%w: %.60q", ledger.ErrDenial, d.Key())
	}
	return nil
}

// ListDenied implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListDenied(ctx context.Context, r *connect.Request[headroomv1.ListDeniedRequest]) (*connect.Response[headroomv1.ListDeniedResponse], error) {
	out := &headroomv1.ListDeniedResponse{}
	var err error
	out.Meta, err = c.requests.read(ctx, r.Msg.GetStale(), func(*ledger.State, *leading.Known) {
		out.Denied = denialMessages(c.guard.Revoked.All())
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func denialMessages(all []secure.Denial) []*headroomv1.Denial {
	out := make([]*headroomv1.Denial, 0, len(all))
	for _, d := range all {
		out = append(out, &headroomv1.Denial{Identity: d.Identity, Serial: d.Serial, AtUs: d.At, Actor: d.Actor, Reason: d.Reason})
	}
	return out
}

var errNoMember = errors.New("it is no member of this group")

// vet lets no server speak for the log that is no member of the group.
func (s *server) vet(who secure.Identity) error {
	if !s.opened.Load() || !s.members.Facts.Belongs(who.Name) {
		return fmt.Errorf("coordinator: %s: %w", who, errNoMember)
	}
	return nil
}
