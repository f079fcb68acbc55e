// Claim (P11): whoever connects to the servers' own port and proves nothing holds few places
// there, and none for long.
package consensus

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"headroom/internal/listen"
)

func TestStrangersOnTheServersPort(t *testing.T) {
	t.Parallel()
	s, err := openStream("127.0.0.1:0", Server{ID: "c1", Address: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bounded, ok := s.Listener.(*listen.Listener)
	if !ok {
		t.Fatalf("a %T accepts for raft: nothing bounds it", s.Listener)
	}
	l := listen.New(bounded.Listener, listen.Limits{Strangers: 2, All: 10, Turn: time.Minute, Patience: 50 * time.Millisecond, Kept: 2})
	s.Listener = l
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						_ = c.Close()
						return
					}
					_, _ = c.Write(b)
				}
			}()
		}
	}()
	addr := bounded.Addr().String()
	dial := func() net.Conn {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	for range 20 {
		dial() // says nothing
	}
	server := dial()
	if _, err := server.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Errorf("a server behind 20 strangers: %v", err)
	}
	silent := dial()
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a stranger that stays: %v", err)
	}
	if l.TurnedOut() < 20 {
		t.Errorf("%d were turned out", l.TurnedOut())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-over
}
