package systemd_test

import (
	"errors"
	"testing"

	"headroom/systemd"
)

// Descriptors that were meant for another process are left alone.
func TestSocketOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"none":             {},
		"another process":  {"LISTEN_PID": "8", "LISTEN_FDS": "1"},
		"several sockets":  {"LISTEN_PID": "7", "LISTEN_FDS": "2"},
		"an empty process": {"LISTEN_FDS": "1"},
	} {
		getenv := func(key string) string { return env[key] }
		if _, err := systemd.Listener(getenv, 7); !errors.Is(err, systemd.ErrNoSocket) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := systemd.Conn(getenv, 7); !errors.Is(err, systemd.ErrNoSocket) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
