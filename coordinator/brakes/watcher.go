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

// Watcher takes in the brakes that gossip and nodes bring, and has the leader's loop commit them.
type Watcher struct {
	// Store is what is known of the brake here.
	Store *Store
	// Server is this server's id.
	Server string
	// Machine is the committed state.
	Machine *statemachine.Machine
	// Gossip is the gossip; nil without one.
	Gossip func() *gossip.Gossip
	// Hasten asks for an early tick, where this server leads: the loop commits a brake before it grants anything more.
	Hasten func(context.Context)
	Logger *slog.Logger
}

// InLog returns the highest brake generation in this server's log.
func (w *Watcher) InLog() (generation uint64) {
	w.Machine.View(func(st *ledger.State) { generation = max(st.Brake.Set, st.Brake.Lifted) })
	return generation
}

// Alarms tell of a brake that this server has heard of and its log has not,
// as when there is no leader.
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

// Follow takes in the brakes that the gossip brings until ctx ends.
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

// hear takes in a brake that is proven.
func (w *Watcher) hear(ctx context.Context, b brake.Signed) {
	if w.Store.hear(b) {
		w.Logger.Warn("brake received", slog.Uint64("generation", b.Generation), slog.String("actor", b.Actor), slog.String("reason", b.Reason))
		w.Hasten(ctx)
	}
}

// Told is the brake generation of a heartbeat, as far as it is proven. A
// node's own proof reaches everybody else from here.
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
