// Claims: strangers never have more than their places and never stay for longer than they
// may; a flood of them keeps nobody out who proves itself; who is proven stays.
package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headroom/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// port accepts in the background and proves whoever sends a byte, with the same byte. A
// capital letter is the name of somebody who comes first, a small one of somebody else;
// any other byte is nobody's.
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
					if Prove(With(context.Background(), c), guest(b[0])) {
						_, _ = c.Write(b)
					}
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

func guest(b byte) Guest {
	switch {
	case b >= 'A' && b <= 'Z':
		return Guest{Name: string(b), First: true}
	case b >= 'a' && b <= 'z':
		return Guest{Name: string(b)}
	}
	return Guest{}
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
	if err := say(c, 7); err != nil {
		t.Fatalf("nobody answers who has proved itself: %v", err)
	}
}

// say proves the connection as whoever b stands for; the error tells that nobody answers.
func say(c net.Conn, b byte) error {
	if _, err := c.Write([]byte{b}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// One proven caller takes no more than its share, and the others do not feel it.
func TestOneNameHasItsShare(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 4, All: 100, Turn: time.Minute, Patience: time.Minute, Each: 3})
	other := dial(t, addr)
	if err := say(other, 'b'); err != nil {
		t.Fatal(err)
	}
	var greedy []net.Conn
	for range 20 {
		c := dial(t, addr)
		if err := say(c, 'a'); err != nil {
			t.Fatal(err)
		}
		greedy = append(greedy, c)
	}
	for i, c := range greedy {
		if err := say(c, 'a'); (err == nil) != (i >= 17) {
			t.Errorf("connection %d of 20: %v; the newest 3 stay", i, err)
		}
	}
	if err := say(other, 'b'); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if n := l.TurnedOut(); n != 17 {
		t.Errorf("%d were counted", n)
	}
}

// However many are proven, an operator gets in: some places are kept.
func TestPlacesAreKeptForOperators(t *testing.T) {
	t.Parallel()
	l, addr := port(t, Limits{Strangers: 2, All: 10, Turn: time.Minute, Patience: time.Minute, Each: 1, Kept: 3})
	var in atomic.Int32
	var all sync.WaitGroup
	for b := byte('a'); b <= 'o'; b++ { // fifteen names
		c := dial(t, addr)
		all.Go(func() {
			if say(c, b) == nil {
				in.Add(1)
			}
		})
	}
	all.Wait()
	if n := in.Load(); n != 5 { // of 10, without the strangers' places and those that are kept
		t.Errorf("%d are in", n)
	}
	for _, b := range []byte("ABC") {
		if err := say(dial(t, addr), b); err != nil {
			t.Errorf("operator %c: %v", b, err)
		}
	}
	if n := l.TurnedOut(); n != 10 {
		t.Errorf("%d were counted", n)
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
		if got := limitsFor(files); got.Strangers != want.Strangers || got.All != want.All || got.Strangers+got.Kept > got.All {
			t.Errorf("%d files: %+v", files, got)
		}
	}
	if d := Defaults(); d.Strangers < 1 || d.All < d.Strangers {
		t.Errorf("%+v", d)
	}
}
