// Package agent is powerd's body: what runs on every node and holds it at its cap.
//
// The one idea: one goroutine owns the node. Four times a second it gathers
// (energy counters, limits as they read back), decides (lease.Node says which
// cap is in force, capping says which limits go with it), applies, and verifies
// by reading back. Everything that may take long lives elsewhere and sends the
// owner a message: the streams to the coordinators, the state directory, the BMC,
// systemd's bus, the commands of an operator. So whatever hangs there never delays
// a fail-safe, nor the watchdog, whose beats are the turns of the owner.
//
// A cap is held by the first rung of a ladder that takes what is written: package
// limits, frequency ceilings (with the CPU bandwidth of slices below the lowest
// frequency), and the BMC's own limit behind them as the last line. A node on none
// of them only observes, and says why. Energy preferences and turbo may be set beside
// the cap; they never decide whether it is held.
//
// Guarantees (design P2, P6, P7):
//   - every control's original value, of whichever rung, is on disk before the
//     control is first written, and goes back only after the coordinator has committed a release,
//     or when an operator forces it;
//   - a start that finds such a journal writes the fail-safe cap before it talks
//     to anybody;
//   - what a grant takes away holds at once, whatever the state directory or the reader
//     of the log does; the grant is acknowledged, and what it adds carried out, only
//     after its stamp is on disk;
//   - a brake that gossip brings and a coordinators' key has signed ends the lease at
//     once, before it is on disk, and only a lease that says it is lifted follows;
//   - held.json never understates what the hardware may hold, in a sprint too,
//     whenever the process is killed;
//   - where software holds the cap, the node reports what full load draws under
//     what reads back;
//   - what another program wrote is never restored over; 0 W is never written.
//
// node holds the parts and the loop. Each part has state of its own and belongs to the
// owner: controller is the inner loop, exchange the side of the coordinators, ladder the
// way to the first safe cap, releaser the way back. Parts that stand on their own are
// packages below this one, none of which imports it: config (powerd.yaml), machine (what
// the node is held with), meter (what it draws), heat, records (what is kept on disk of
// it), network (how others reach it), remote (what another program writes for it), health
// (warnings).
//
// What a command may do to a node without a running powerd is here too, under the
// same lock and by the same rules: Restore and Probe. The command line itself is
// package agent/command, the words of a status are in agent/status.
//
// It starts no program, opens no TCP port of its own but the gossip one and, where
// it is configured, that of the metrics (package agent/metrics), prints nothing, and
// never raises a limit by itself: without a lease it holds the fail-safe cap.
package agent

import (
	"context"
	"log/slog"
	"time"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/internal/cli"
)

// Version is what powerd says about itself in Hello and `powerd version`.
const Version = cli.Version

// Times of the loop. The tests and the figures of the design depend on them.
const (
	// period of the inner loop.
	period = config.Period
	// beat is the time between heartbeats.
	beat = config.Beat
	// releaseWait bounds asking for a release: a stop must not hang on a
	// coordinator that does not answer.
	releaseWait = 5 * time.Second
)

// Run is `powerd run`: it holds the node until ctx ends, then asks for a release
// and puts the original controls back, or leaves the fail-safe cap written. An
// error is a *cli.Error or wraps one.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	n, err := start(cfg, log, statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		return err
	}
	return n.run(ctx)
}
