package streams

// Claim: why a coordinator cannot be reached is one line in the log for each change of the reason,
// however often it is tried, and is told to who asks.

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
)

func TestRefusalIsLoggedOnceAChange(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := New([]string{"c1:7400"}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	l := &Stream{Addr: "c1:7400"}
	s.links[l.Addr] = l
	lines := func() int { return strings.Count(log.String(), "\n") }
	refused := func(why string, times int) {
		for range times {
			s.Take(Event{link: l, up: true}) // a TLS server refuses after the client's handshake
			s.Take(Event{link: l, Down: &net.OpError{Op: "remote error", Err: errors.New("tls: " + why)}})
		}
	}
	reset := func(times int) {
		for i := range times { // the port of this side is new each time
			s.Take(Event{link: l, Down: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40000 + i}, Err: syscall.ECONNRESET}})
		}
	}
	refused("expired certificate", 50)
	if lines() != 1 || !strings.Contains(s.Why(), "c1:7400: ") || !strings.Contains(s.Why(), "expired certificate") {
		t.Errorf("%d lines, why %q:\n%s", lines(), s.Why(), log.String())
	}
	refused("bad certificate", 50)
	if lines() != 2 {
		t.Errorf("%d lines after another reason:\n%s", lines(), log.String())
	}
	reset(50)
	if lines() != 3 {
		t.Errorf("%d lines after resets:\n%s", lines(), log.String())
	}
	s.Take(Event{link: l, up: true})
	for range 3 {
		s.Take(Event{link: l, Msg: &headroomv1.CoordinatorMessage{}})
	}
	if lines() != 4 || s.Why() != "" {
		t.Errorf("%d lines once it answers, why %q:\n%s", lines(), s.Why(), log.String())
	}
	s.Take(Event{link: l, Down: errors.New("bad certificate")})
	refused("bad certificate", 1)
	if lines() > 6 {
		t.Errorf("%d lines after it closed:\n%s", lines(), log.String())
	}
}
