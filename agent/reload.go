package agent

import (
	"context"
	"log/slog"

	"headroom/gossip"
)

// reload reads again what may change while powerd runs, which are the keys of the
// gossip. It runs beside the loop, which no file holds up.
func (n *node) reload(ctx context.Context) {
	if n.cfg.Gossip.Bind == "" {
		n.log.Info("nothing to read again: there is no gossip, and certificates are read again by themselves")
		return
	}
	keys, err := gossip.LoadKeys(n.cfg.Gossip.KeyFile)
	if err != nil {
		n.log.Warn("the gossip keys stay as they are", slog.Any("error", err))
		return
	}
	select {
	case n.calls <- func(context.Context) { n.rekey(keys) }:
	case <-ctx.Done():
	}
}

// rekey puts keys in force, now or in the gossip that is just started anew.
func (n *node) rekey(keys gossip.Keys) {
	n.keys = keys
	if n.gossip == nil {
		return
	}
	if err := n.gossip.SetKeys(keys); err != nil {
		n.log.Warn("the gossip keys stay as they are", slog.Any("error", err))
	}
}
