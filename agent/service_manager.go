package agent

import (
	"log/slog"

	"headroom/agent/remote"
	"headroom/systemd"
)

// serviceManager notifies systemd: ready once a safe cap is held (or the node only
// observes), a watchdog beat with each step of the owner, and a status line. A stuck owner
// is therefore restarted, a hung BMC is not a reason.
type serviceManager struct {
	notify *systemd.Notify
	log    *slog.Logger
	said   string
}

// open finds the manager by its environment variables.
func (m *serviceManager) open(env func(string) string) {
	var err error
	if m.notify, err = systemd.OpenNotify(env); err != nil {
		m.log.Warn("service manager not reachable", slog.Any("error", err))
	}
}

// ready reports that the node is safe.
func (m *serviceManager) ready(words string) { m.tell(m.notify.Ready(words)) }

// beat feeds the watchdog. Only the loop may call it.
func (m *serviceManager) beat() {
	if m.notify.Watchdog() > 0 {
		m.tell(m.notify.Beat())
	}
}

// status reports a changed status line.
func (m *serviceManager) status(words func() string) {
	if !m.notify.Listening() {
		return
	}
	if s := words(); s != m.said {
		m.said = s
		m.tell(m.notify.Status(s))
	}
}

// stopping reports that the node is stopping, and requests the time for it.
func (m *serviceManager) stopping() {
	m.tell(m.notify.Stopping("stopping: requesting a release"))
	m.tell(m.notify.Extend(releaseWait + 3*remote.PutBackWait))
}

func (m *serviceManager) tell(err error) {
	if err != nil {
		m.log.Debug("service manager not notified", slog.Any("error", err))
	}
}
