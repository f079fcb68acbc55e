package master

import (
	"fmt"
	"log/slog"
	"math"
	"net"

	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
	"headroom/scheduler/jobfile"
)

// Config is the configuration of a master. Peer, Reserved, Coordinators, Denied and Metrics are optional.
type Config struct {
	// Name of the master, and the group that it serves: the name of a power domain.
	Name, Group string
	// Peer is the address of the group's other master; empty for none.
	Peer string
	// Reserved is how many slots serve high-priority tasks only.
	Reserved Reserved
	// W: at least one of every W tasks that start while both priorities wait has low priority; 0 is strict priority.
	W int
	// Coordinators are addresses of coordinators; without any, caps are ignored and any node belongs to the group.
	Coordinators []string
	// Peers connects to the peer and the coordinators; the zero value is without TLS.
	Peers rpc.Peers
	// Guard decides who may call.
	Guard *access.Guard
	// Denied provides the denied certificates; nil without TLS.
	Denied *access.Denied
	// Metrics is the listener for Prometheus; nil for none.
	Metrics net.Listener
	Logger  *slog.Logger
}

// Reserved is a number of slots, or a fraction of all slots of the group.
type Reserved struct {
	Slots int
	Part  float64
}

// of returns how many of the slots are reserved.
func (r Reserved) of(slots int) int {
	if r.Part > 0 {
		return int(math.Round(r.Part * float64(slots)))
	}
	return min(r.Slots, slots)
}

// Check returns what is wrong with the configuration.
func (c Config) Check() error {
	bad := func(hint, format string, args ...any) error {
		e := cli.Usage(format, args...)
		e.Hint = hint
		return e
	}
	switch {
	case !jobfile.ValidName(c.Name):
		return bad("for example --name m1", "--name %q is not a valid name of a master", c.Name)
	case c.Group == "":
		return bad("for example --group rack/r1; list domains with coordinator budget show", "--group is empty")
	case c.W < 0:
		return bad("use --w strict to always prefer high-priority tasks", "--w is %d; it must be at least 1, or strict", c.W)
	case c.Reserved.Slots < 0 || c.Reserved.Slots > slotsMost:
		return bad("use --reserved 0 to reserve none", "--reserved is %d slots; it must be from 0 to %d", c.Reserved.Slots, slotsMost)
	case !(c.Reserved.Part >= 0 && c.Reserved.Part < 1):
		return bad("for example --reserved 10%", "--reserved is %g%% of the slots; it must be at least 0 %% and less than 100 %%", 100*c.Reserved.Part)
	case c.Reserved.Part > 0 && c.Reserved.Slots > 0:
		return fmt.Errorf("master: both %d slots and %g of all slots are reserved", c.Reserved.Slots, c.Reserved.Part)
	}
	return nil
}
