package brakes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/alarms"
	"headroom/coordinator/statemachine"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/ledger"
)

// Watcher receives brakes from gossip and nodes, and makes the leader's loop commit them.
type Watcher struct {
	// Store keeps this server's newest brake.
	Store *Store
	// Server is this server's id.
	Server string
	// Machine is the committed state.
	Machine *statemachine.Machine
	// Gossip is nil if gossip is off.
	Gossip func() *gossip.Gossip
	// Hasten requests an early tick if this server leads: the loop commits a brake before its next grant.
	Hasten func(context.Context)
	Logger *slog.Logger
}

// InLog returns the highest brake generation in this server's log.
func (w *Watcher) InLog() (generation uint64) {
	w.Machine.View(func(st *ledger.State) { generation = max(st.Brake.Set, st.Brake.Lifted) })
	return generation
}

// Alarms returns an alarm for a brake that this server has received and its log does not have,
// for example while there is no leader.
func (w *Watcher) Alarms(st *ledger.State) []alarms.Alarm {
	b := w.Store.Known()
	if b.Generation <= max(st.Brake.Set, st.Brake.Lifted) {
		return nil
	}
	return []alarms.Alarm{alarms.New(
		"brake-set", alarms.Fail, w.Server,
		fmt.Sprintf("%s received brake %d by %s (%s), which is not committed yet; no lease is granted before it is", w.Server, b.Generation, b.Actor, b.Reason),
		"coordinator brake show shows it; it can be lifted once there is a leader",
	)}
}

// Follow receives brakes from gossip until ctx ends.
func (w *Watcher) Follow(ctx context.Context) error {
	if w.Gossip() == nil {
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Gossip().Braked():
		}
		w.hear(ctx, w.Gossip().Brake())
		if !w.Gossip().Told().Contested {
			continue
		}
		if b, ok := w.Store.again(time.Now(), w.InLog()); ok {
			w.Logger.Warn("another brake has precedence over the one set here, setting it again", slog.Uint64("generation", b.Generation))
			w.Gossip().SetBrake(b)
			w.Hasten(ctx)
		}
	}
}

// hear records a verified brake.
func (w *Watcher) hear(ctx context.Context, b brake.Signed) {
	if w.Store.hear(b) {
		w.Logger.Warn("brake received", slog.Uint64("generation", b.Generation), slog.String("actor", b.Actor), slog.String("reason", b.Reason))
		w.Hasten(ctx)
	}
}

// Told returns the brake generation of a heartbeat if it is proven, otherwise 0. A
// node's own proof is forwarded to all others from here.
func (w *Watcher) Told(ctx context.Context, node string, hb *headroomv1.Heartbeat) uint64 {
	generation := hb.GetBrakeGeneration()
	if generation == 0 {
		return w.Store.believed(node, 0, 0)
	}
	if b, news := w.Store.prove(hb.GetBrake()); news {
		w.Logger.Warn("brake reported by a node", slog.String("node", node), slog.Uint64("generation", b.Generation), slog.String("actor", b.Actor))
		if w.Gossip() != nil {
			w.Gossip().PassOn(b)
		}
		w.Hasten(ctx)
	}
	inLog := uint64(0)
	w.Machine.View(func(st *ledger.State) { inLog = st.Brake.Set })
	return w.Store.believed(node, generation, inLog)
}
