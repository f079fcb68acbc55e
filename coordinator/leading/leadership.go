package leading

import (
	"log/slog"
	"time"

	"headroom/coordinator/metrics"
	"headroom/coordinator/statemachine"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// leadership is what the parts of a loop share: the decisions of ledger/leader, the
// committed state, and the clocks.
type leadership struct {
	epoch   lease.Epoch
	timing  ledger.Timing
	machine *statemachine.Machine
	wall    func() time.Time
	counts  *metrics.Counts
	logger  *slog.Logger

	began time.Time
	lead  *leader.Leader // nil until the loop runs
	over  error          // why this leadership is over; nil while it is not
}

// now is the leader's monotonic time since the loop began to run.
func (l *leadership) now() time.Duration { return time.Since(l.began) }

func (l *leadership) moment() leader.Moment { return leader.Moment{Mono: l.now(), Wall: l.wall()} }

// report is the newest report of a node, with its age; false where none was heard.
func (l *leadership) report(node string) (ledger.View, bool) {
	return l.lead.Table().View(node, l.now())
}
