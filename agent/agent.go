// Package agent is powerd: it runs on every node and holds the node at its cap.
//
// The one idea: one goroutine owns the node. Four times a second it reads (energy counters,
// limits), decides (lease.Node gives the cap in force, capping the limits for it), writes,
// and verifies by reading back. Everything that may take long runs elsewhere and sends the
// owner a message: streams to the coordinators, the state directory, the BMC, systemd, and
// commands of an operator. A part that hangs therefore delays neither the fail-safe cap nor
// the watchdog, which is fed by the owner's loop.
//
// A cap is enforced by the first control of a ladder that accepts its values: package
// limits, then frequency ceilings (with the CPU bandwidth of slices below the lowest
// frequency). The limit of the BMC is a last line behind them. A node without such a control
// only observes and reports the reason. Energy preferences and turbo may be set in addition;
// they never decide whether a cap is enforced.
//
// Guarantees (design P2, P6, P7):
//   - the original value of every control is on disk before its first write, and is restored
//     only after the coordinator has committed a release, or when an operator forces it;
//   - a start that finds such a journal writes the fail-safe cap before any communication;
//   - a lower grant takes effect at once, whatever the state directory or the reader of the
//     log does; a grant is acknowledged, and a higher one takes effect, only after its stamp
//     is on disk;
//   - a brake received by gossip and signed with a coordinators' key ends the lease at once,
//     before it is on disk, and only a lease that lifts the brake is accepted afterwards;
//   - held.json never understates what the hardware may hold, also in a sprint, whenever the
//     process is killed;
//   - where software enforces the cap, the node reports the power of full load under the
//     values that read back;
//   - a value of another program is never overwritten by a restore; 0 W is never written.
//
// node holds the parts and the loop. Each part has state of its own and belongs to the
// owner: controller is the inner loop, exchange talks to the coordinators, ladder brings the
// node to its first safe cap, releaser restores the originals. Independent parts are packages
// below this one, none of which imports it: config (powerd.yaml), machine (devices), meter
// (power), heat, records (files), network (address and gossip), remote (controls of other
// programs), health (warnings).
//
// Restore and Probe are for commands on a node without a running powerd; they use the same
// lock and the same rules. The command line is package agent/command, the words of the
// status are in agent/status.
//
// powerd starts no program, listens on no TCP port except for gossip and, if configured,
// metrics (package agent/metrics), prints nothing, and never raises a limit by itself:
// without a lease it holds the fail-safe cap.
package agent

import (
	"context"
	"log/slog"
	"time"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/internal/cli"
)

// Version is the version of powerd, in Hello and `powerd version`.
const Version = cli.Version

// Times of the loop. The tests and the figures of the design depend on them.
const (
	// period of the inner loop.
	period = config.Period
	// beat is the time between heartbeats.
	beat = config.Beat
	// releaseWait bounds a request for a release, so that a stop does not hang on a
	// coordinator that does not answer.
	releaseWait = 5 * time.Second
)

// Run is `powerd run`: it holds the node until ctx ends, then asks for a release
// and restores the original limits, or leaves the fail-safe cap written. An error is a
// *cli.Error or wraps one.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	n, err := start(cfg, log, statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		return err
	}
	return n.run(ctx)
}
