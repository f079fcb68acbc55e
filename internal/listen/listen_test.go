// Claims: strangers never have more than their places and never stay for longer than they
// may; a flood of them keeps nobody out who proves itself; who is proven stays.
package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"headroom/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// port accepts in the background and proves whoever sends a byte, with the same byte.
func port(t *testing.T, limits Limits) (*Listener, string) {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, over := New(inner, limits), make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
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
					Prove(With(context.Background(), c))
					_, _ = c.Write(b)
				}
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-over
	})
	return l, inner.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// greet proves the connection.
func greet(t *testing.T, c net.Conn) {
	t.Helper()
	b := []byte{7}
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("nobody answers who has proved itself: %v", err)
	}
}

func TestFloodKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 4, All: 16, Turn: 10 * time.Millisecond, Patience: time.Minute})
	friend := dial(t, addr)
	greet(t, friend)
	for range 100 {
		dial(t, addr) // says nothing
	}
	late := dial(t, addr)
	greet(t, late)   // its turn comes
	greet(t, friend) // who was proven stays
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strangers.Len() > 4 || l.all > 16 || l.turnedOut < 90 {
		t.Errorf("%d strangers of %d, %d were turned out", l.strangers.Len(), l.all, l.turnedOut)
	}
}

func TestStrangersDoNotStay(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 4, All: 16, Turn: time.Minute, Patience: 20 * time.Millisecond})
	friend, stranger := dial(t, addr), dial(t, addr)
	greet(t, friend)
	if _, err := stranger.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a stranger that waits: %v", err)
	}
	greet(t, friend)
	if l.TurnedOut() == 0 {
		t.Error("nobody was counted")
	}
}

// A burst of honest clients, far above the places, is served whole.
func TestBurstIsServed(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 4, All: 1000, Turn: time.Minute, Patience: time.Minute})
	var burst []net.Conn
	for range 100 {
		c := dial(t, addr)
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		burst = append(burst, c)
	}
	for i, c := range burst {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
	if n := l.TurnedOut(); n != 0 {
		t.Errorf("%d were turned out", n)
	}
}

func TestClosingEndsTheWait(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 1, All: 1, Turn: time.Minute, Patience: time.Minute})
	greet(t, dial(t, addr)) // the one place is proven: the next Accept waits for its end
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLimitsLeaveAReserve(t *testing.T) {
	t.Parallel()
	for files, want := range map[int]Limits{
		128:     {Strangers: 16, All: 64},
		1024:    {Strangers: 240, All: 960},
		1 << 20: {Strangers: 256, All: 1<<20 - 64},
		3:       {Strangers: 1, All: 2},
	} {
		if got := limitsFor(files); got.Strangers != want.Strangers || got.All != want.All {
			t.Errorf("%d files: %+v", files, got)
		}
	}
	if d := Defaults(); d.Strangers < 1 || d.All < d.Strangers {
		t.Errorf("%+v", d)
	}
}
