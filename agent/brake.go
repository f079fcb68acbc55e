package agent

import (
	"fmt"
	"log/slog"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/lease"
)

// brakeTracker holds the newest brake message; lease.Node stores its generation. It belongs
// to the owner goroutine.
type brakeTracker struct {
	cfg    *config.Config
	health *health.Items
	lease  *lease.Node

	newest brake.Signed // of the stored generation; the zero value if unknown
	failed bool         // the last try to store one did not succeed
}

// recall takes over the stored brake of an earlier process. A message that no key verifies
// any longer is dropped; its generation is kept.
func (b *brakeTracker) recall(r records.State, keys brake.Keys) {
	if s, err := keys.Open(r.BrakeMessage); err == nil && s.Generation == r.Brake {
		b.newest = s
	}
}

// brakeHeard handles the newest brake of gossip: the lease ends and the fail-safe cap is
// written before anything else, also before the disk.
//
//headroom:control
func (n *node) brakeHeard() {
	s := n.network.NewestBrake()
	if s.Generation == 0 || s.Generation < n.lease.Memory().Brake || s == n.brake.newest {
		return
	}
	n.brake.newest = s
	n.exchange.carryOut(n.lease.Brake(s.Generation, instant()))
	n.log.Warn("brake received", slog.Uint64("generation", s.Generation), slog.String("actor", s.Actor), slog.String("reason", s.Reason),
		slog.Bool("lifted", !n.lease.Braked()), slog.Float64("cap_w", n.control.caps.now.Watts()))
	n.brake.watch(n.control.mode == holding)
}

// store passes state.json to the writer.
func (x *exchange) store(m lease.Memory) {
	data, err := records.EncodeState(records.State{Memory: m, BrakeMessage: x.brake.proof(m.Brake)})
	if err != nil {
		x.log.Error("state.json not encoded", slog.Any("error", err)) // plain numbers: it cannot happen
		return
	}
	x.storeAt = instant().Boot
	x.records.Writer.Do(statedir.Job{Kind: statedir.Memory, Name: statedir.MemoryFile, Data: data, Durable: true})
}

// proof returns the signed brake of a generation, nil if unknown.
func (b *brakeTracker) proof(generation uint64) []byte {
	if s := b.newest; generation > 0 && s.Generation == generation {
		return s.Bytes()
	}
	return nil
}

// watch raises health items about the brake.
func (b *brakeTracker) watch(holds bool) {
	m := b.lease.Memory()
	does := fmt.Sprintf("the node holds its fail-safe cap of %v and accepts no lease until the brake is lifted", m.FailSafe)
	if !holds {
		does = "this node holds no cap; the other nodes hold their fail-safe caps"
	}
	b.health.Warn(b.lease.Braked(), "brake-set",
		fmt.Sprintf("the brake is set (generation %d%s): %s", m.Brake, who(b.newest), does),
		"see coordinator brake show; lift it with coordinator brake lift")
	b.health.Fail(m.Brake > b.lease.OnDisk().Brake && b.failed, "brake-not-stored",
		fmt.Sprintf("brake generation %d is in force but not on disk; a restart would lose it", m.Brake),
		"free space in "+b.cfg.StateDir)
}

// who returns the actor and the reason of a brake, as far as known.
func who(s brake.Signed) string {
	out := ""
	if s.Actor != "" {
		out += " by " + s.Actor
	}
	if s.Reason != "" {
		out += ": " + s.Reason
	}
	return out
}

// status returns the newest brake for the status, nil if none was received.
func (b *brakeTracker) status() *headroomv1.BrakeStatus {
	m, s := b.lease.Memory(), b.newest
	if m.Brake == 0 {
		return nil
	}
	out := &headroomv1.BrakeStatus{Generation: m.Brake, Set: b.lease.Braked(), Stored: m.Brake <= b.lease.OnDisk().Brake}
	if s.Generation == m.Brake {
		out.Actor, out.Reason, out.AtUs = s.Actor, s.Reason, s.At.UnixMicro()
	}
	return out
}

func dropsMessage(d gossip.Drops) *headroomv1.BrakeDrops {
	return &headroomv1.BrakeDrops{Old: d.Old, Forged: d.Forged, Malformed: d.Malformed}
}

// known returns the newest brake.
func (b *brakeTracker) known() brake.Signed { return b.newest }
