// Claims: a call finds the server that leads through any one address, waits for
// an election, gives up when patience is over, and never repeats a request that
// may have been carried out.

package rpc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"headroom/internal/cli"
	"headroom/internal/rpc"
)

var errRefused = connect.NewError(connect.CodeUnavailable, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// group answers calls: by address, what the server there says.
type group struct {
	answers map[string]func() error
	asked   []string
}

func (g *group) call(addr string) error {
	g.asked = append(g.asked, addr)
	return g.answers[addr]()
}

func says(err error) func() error { return func() error { return err } }

func TestToLeader(t *testing.T) {
	t.Parallel()
	addrs := []string{"a", "b", "c"}
	for name, c := range map[string]struct {
		answers map[string]func() error
		asked   []string
		addr    string
		fails   bool
	}{
		"first leads":     {map[string]func() error{"a": says(nil)}, []string{"a"}, "a", false},
		"follows a hint":  {map[string]func() error{"a": says(rpc.NotLeader("c", "c")), "c": says(nil)}, []string{"a", "c"}, "c", false},
		"skips the dead":  {map[string]func() error{"a": says(errRefused), "b": says(nil)}, []string{"a", "b"}, "b", false},
		"a refusal stays": {map[string]func() error{"a": says(rpc.Refuse(connect.CodeAborted, "conflict", 5, "moved", "plan again"))}, []string{"a"}, "a", true},
		"unknown outcome": {map[string]func() error{"a": says(connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded))}, []string{"a"}, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &group{answers: c.answers}
			addr, err := rpc.ToLeader(t.Context(), addrs, time.Second, g.call)
			if addr != c.addr || (err != nil) != c.fails || !slices.Equal(g.asked, c.asked) {
				t.Errorf("asked %v, ended at %s: %v", g.asked, addr, err)
			}
		})
	}
}

// While there is no leader the call waits; it ends when one is elected, or when patience is over.
func TestToLeaderWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		elected := func() error {
			if time.Since(began) < 2*time.Second {
				return rpc.NotLeader("", "")
			}
			return nil
		}
		g := &group{answers: map[string]func() error{"a": says(errRefused), "b": elected}}
		if addr, err := rpc.ToLeader(t.Context(), []string{"a", "b"}, 5*time.Second, g.call); err != nil || addr != "b" {
			t.Errorf("ended at %s: %v", addr, err)
		}
		g.answers["b"] = says(rpc.NotLeader("", ""))
		began = time.Now()
		if _, err := rpc.ToLeader(t.Context(), []string{"a", "b"}, time.Second, g.call); err == nil {
			t.Error("found a leader where there is none")
		}
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestToLeaderWithoutAddress(t *testing.T) {
	t.Parallel()
	if _, err := rpc.ToLeader(t.Context(), nil, time.Second, nil); !errors.Is(err, rpc.ErrNoAddress) {
		t.Errorf("got %v", err)
	}
}

// When every server refuses the connection, the search ends within a second and names them all.
func TestToLeaderRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{answers: map[string]func() error{"a": says(errRefused), "b": says(errRefused)}}
		began := time.Now()
		_, err := rpc.Search{Addrs: []string{"a", "b"}, Patience: rpc.ElectionWait, Refused: rpc.RefusedWait, Waiting: func() { t.Error("waits for an election") }}.ToLeader(t.Context(), g.call)
		if e := rpc.AsCLI(err, "status", "a"); e.Exit != cli.ExitUnreachable || e.Message != "status: no server reachable: a, b connection refused" {
			t.Errorf("got %d %q", e.Exit, e.Message)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("gave up after %v", took)
		}
	})
}

// A server that answers without a leader is waited for, for one election, and the caller learns of it; the error names the reason of each.
func TestToLeaderNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{answers: map[string]func() error{"a": says(rpc.NotLeader("", "")), "b": says(errRefused), "c": says(errRefused)}}
		began, waits := time.Now(), 0
		s := rpc.Search{Addrs: []string{"a", "b", "c"}, Patience: rpc.ElectionWait, Refused: rpc.RefusedWait, Waiting: func() { waits++ }}
		at, err := s.ToLeader(t.Context(), g.call)
		e := rpc.AsCLI(err, "status", at)
		if at != "a" || e.Code != "no-leader" || e.Exit != cli.ExitUnreachable || e.Message != "status: no leader: a not leader; b, c connection refused" {
			t.Errorf("got %s %s %d %q", at, e.Code, e.Exit, e.Message)
		}
		if took := time.Since(began); waits != 1 || took < rpc.ElectionWait || took > rpc.ElectionWait+time.Second {
			t.Errorf("told %d times, gave up after %v", waits, took)
		}
	})
}

// Addresses that do not answer cost at most 250 ms each beside one that does, first in the list or behind a hint; one
// that is only slow is found all the same.
func TestSilentAddressesAreCheap(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		addrs  []string
		delay  map[string]time.Duration // until a server answers; none: never
		leader string
		hint   string
		most   time.Duration
	}{
		"first":              {[]string{"a", "b"}, map[string]time.Duration{"b": 0}, "b", "", 250 * time.Millisecond},
		"three before it":    {[]string{"a", "b", "c", "d"}, map[string]time.Duration{"d": 0}, "d", "", 500 * time.Millisecond},
		"all answer":         {[]string{"a", "b"}, map[string]time.Duration{"a": time.Millisecond, "b": 0}, "a", "", 10 * time.Millisecond},
		"in the middle":      {[]string{"a", "b", "c"}, map[string]time.Duration{"a": 0, "c": 0}, "c", "", 260 * time.Millisecond},
		"behind a hint":      {[]string{"a", "c"}, map[string]time.Duration{"a": 0, "c": 0}, "c", "b", 260 * time.Millisecond},
		"a leader that lags": {[]string{"a", "b"}, map[string]time.Duration{"a": 0, "b": 900 * time.Millisecond}, "b", "", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answer := func(ctx context.Context, addr string) error {
					delay, answers := x.delay[addr]
					if !answers {
						delay = 3 * time.Second // as long as a connection may take
					}
					select {
					case <-time.After(delay):
					case <-ctx.Done():
					}
					if !answers {
						return &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}
					}
					return ctx.Err()
				}
				began := time.Now()
				at, err := rpc.Search{Addrs: x.addrs, Patience: 3 * time.Second, Probe: answer}.ToLeader(t.Context(), func(addr string) error {
					if err := answer(t.Context(), addr); err != nil || addr == x.leader {
						return err
					}
					return rpc.NotLeader(x.hint, x.hint)
				})
				if took := time.Since(began); err != nil || at != x.leader || took > x.most {
					t.Errorf("at %q after %v, at most %v: %v", at, took, x.most, err)
				}
			})
		})
	}
}
