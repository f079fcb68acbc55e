package coordinator

import (
	"context"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// rereads reloads what may change while the server runs, at each SIGHUP: the
// gossip keys. If they cannot be read, the old ones stay in force.
func (s *server) rereads(ctx context.Context) {
	cli.OnHangup(ctx, func() {
		if s.gossip.Load() == nil {
			s.logger.Info("nothing to reload: gossip is off, and certificates are reloaded automatically")
			return
		}
		if err := s.gossip.Load().Reload(s.cfg.Gossip.KeyFile); err != nil {
			s.logger.Warn("gossip keys not reloaded", slog.Any("error", err))
		}
	})
}

// describeGossip adds the fingerprints of the keys that this server accepts, and
// the senders that it refused because of another key.
func (s *server) describeGossip(f *headroomv1.ServerFacts) {
	if s.gossip.Load() == nil {
		return
	}
	f.GossipKeys = s.gossip.Load().Keys().Fingerprints()
	if from, at := s.gossip.Load().Foreign(); !at.IsZero() {
		f.ForeignGossipMs, f.ForeignGossipFrom = new(time.Since(at).Milliseconds()), from
	}
}
