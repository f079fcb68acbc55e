package agent

import (
	"fmt"
	"log/slog"
	"time"

	"headroom/lease"
	"headroom/systemd"
	"headroom/units"
)

// serviceManager is told how this powerd is: ready once a safe cap is held (or the
// node is known to only observe), a beat with each turn of the owner, so that a
// stuck owner is restarted and a hung BMC is not, and what it does in words.
type serviceManager struct {
	notify *systemd.Notify
	log    *slog.Logger
	said   string
}

// open finds the manager by the variables that it has set.
func (m *serviceManager) open(env func(string) string) {
	var err error
	if m.notify, err = systemd.OpenNotify(env); err != nil {
		m.log.Warn("the service manager cannot be told", slog.Any("error", err))
	}
}

// ready tells that the node is safe.
func (m *serviceManager) ready(words string) { m.tell(m.notify.Ready(words)) }

// beat proves that the owner turns. Only the loop may call it.
func (m *serviceManager) beat() {
	if m.notify.Watchdog() > 0 {
		m.tell(m.notify.Beat())
	}
}

// status tells what the node does, when that changed.
func (m *serviceManager) status(words func() string) {
	if !m.notify.Listening() {
		return
	}
	if s := words(); s != m.said {
		m.said = s
		m.tell(m.notify.Status(s))
	}
}

// stopping tells that the node is about to stop, and asks for the time it takes.
func (m *serviceManager) stopping() {
	m.tell(m.notify.Stopping("stopping: asking for a release"))
	m.tell(m.notify.Extend(releaseWait + 3*farWait))
}

func (m *serviceManager) tell(err error) {
	if err != nil {
		m.log.Debug("the service manager was not told", slog.Any("error", err))
	}
}

// words is the node in one line. It holds no figure that changes all the time.
func (n *node) words() string {
	base, state := n.lease.Cap()
	var s string
	switch {
	case n.mode == released:
		s = "released: the originals are back, only observing"
	case n.mode == observing && !n.cfg.Enforce:
		s = "observe only: enforce is false"
	case n.mode == observing:
		s = "cannot hold a cap: " + n.machine.Ladder.Why
	case state == lease.Held:
		s = fmt.Sprintf("holding the lease's cap of %v by %v", base, n.machine.Ladder.Use)
	default:
		s = fmt.Sprintf("holding the fail-safe cap of %v by %v (%v)", base, n.machine.Ladder.Use, n.lease.Why())
	}
	if n.caps.running != "" {
		s += "; sprinting"
	}
	if n.network.cutOff {
		s += "; cut off"
	}
	if k := n.health.Len(); k > 0 {
		s += fmt.Sprintf("; %d warnings, see powerd status", k)
	}
	return s
}

// counters count since powerd started.
type counters struct {
	renewals, refusals, expiries, steps, misses, drifts, writeErrors, thermalEvents, sprints uint64

	overTime   time.Duration // see overCap
	overEnergy units.Energy
}

// late is how much later than due a turn may come before it counts as missed.
const late = period

// noteTurn counts a turn and whether it came in time.
func (n *node) noteTurn(now, before time.Duration) {
	n.counters.steps++
	if before > 0 && now-before > period+late {
		n.counters.misses++
	}
}
