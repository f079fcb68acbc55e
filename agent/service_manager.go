package agent

import (
	"log/slog"

	"headroom/agent/remote"
	"headroom/systemd"
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
		m.log.Warn("service manager not reachable", slog.Any("error", err))
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
	m.tell(m.notify.Stopping("stopping: requesting a release"))
	m.tell(m.notify.Extend(releaseWait + 3*remote.PutBackWait))
}

func (m *serviceManager) tell(err error) {
	if err != nil {
		m.log.Debug("service manager not notified", slog.Any("error", err))
	}
}
