package agent

import (
	"fmt"
	"log/slog"

	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/lease"
)

// brakeSide is what the node knows of the brake beside the generation that the
// holder remembers. It belongs to the owner goroutine.
type brakeSide struct {
	keys   brake.Keys
	newest brake.Signed // of the generation remembered; the zero one while it is not known
	failed bool         // the last try to store one did not succeed
}

// openBrake reads the keys that a brake is believed by, where they are configured.
func (n *node) openBrake() (err error) {
	if n.cfg.Brake.PublicKeyFile != "" {
		n.brake.keys, err = brake.LoadKeys(n.cfg.Brake.PublicKeyFile)
	}
	return err
}

// recall takes what earlier processes remembered of the brake. A message that no
// key proves any more is forgotten; its generation is not.
func (n *node) recall(r remembered) {
	if s, err := n.brake.keys.Open(r.BrakeMessage); err == nil && s.Generation == r.Brake {
		n.brake.newest = s
	}
}

// brakeHeard takes the newest brake of the gossip: the lease ends and the fail-safe
// cap is written before anything else happens, the disk included.
//
//headroom:control
func (n *node) brakeHeard() {
	s := n.network.gossip.Brake()
	if s.Generation == 0 || s.Generation < n.lease.Memory().Brake || s == n.brake.newest {
		return
	}
	n.brake.newest = s
	n.carryOut(n.lease.Brake(s.Generation, instant()))
	n.log.Warn("a brake was heard", slog.Uint64("generation", s.Generation), slog.String("actor", s.Actor), slog.String("reason", s.Reason),
		slog.Bool("lifted", !n.lease.Braked()), slog.Float64("cap_w", n.caps.now.Watts()))
	n.watchBrake()
}

// store has the writer make a memory durable.
func (n *node) store(m lease.Memory) {
	data, err := encodeMemory(remembered{m, n.brakeProof(m.Brake)})
	if err != nil {
		n.log.Error("state cannot be encoded", slog.Any("error", err)) // plain numbers: it cannot happen
		return
	}
	n.storeAt = instant().Boot
	n.records.writer.Do(statedir.Job{Kind: statedir.Memory, Name: statedir.MemoryFile, Data: data, Durable: true})
}

// brakeProof is the signed brake of a generation, nil where it is not known.
func (n *node) brakeProof(generation uint64) []byte {
	if s := n.brake.newest; generation > 0 && s.Generation == generation {
		return s.Bytes()
	}
	return nil
}

// watchBrake says in words that the brake is set.
func (n *node) watchBrake() {
	m := n.lease.Memory()
	does := fmt.Sprintf("the node holds its fail-safe cap of %v and takes no lease until the log has lifted it", m.FailSafe)
	if n.mode != holding {
		does = "the node holds no cap; the others hold their fail-safe caps"
	}
	n.health.Warn(n.lease.Braked(), "brake-set",
		fmt.Sprintf("the brake is set (generation %d%s): %s", m.Brake, who(n.brake.newest), does),
		"coordinator brake show tells more; when the reason is gone: coordinator brake lift")
	n.health.Fail(m.Brake > n.lease.OnDisk().Brake && n.brake.failed, "brake-not-stored",
		fmt.Sprintf("generation %d of the brake is obeyed but not on disk: a restart would forget it", m.Brake),
		"make room in "+n.cfg.StateDir)
}

// who is who set a brake, and why, as far as that is known.
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

// brakeStatus is the newest brake for status, nil when none was ever heard.
func (n *node) brakeStatus() *headroomv1.BrakeStatus {
	m, s := n.lease.Memory(), n.brake.newest
	if m.Brake == 0 {
		return nil
	}
	out := &headroomv1.BrakeStatus{Generation: m.Brake, Set: n.lease.Braked(), Stored: m.Brake <= n.lease.OnDisk().Brake}
	if s.Generation == m.Brake {
		out.Actor, out.Reason, out.AtUs = s.Actor, s.Reason, s.At.UnixMicro()
	}
	return out
}

func dropsMessage(d gossip.Drops) *headroomv1.BrakeDrops {
	return &headroomv1.BrakeDrops{Old: d.Old, Forged: d.Forged, Malformed: d.Malformed}
}
