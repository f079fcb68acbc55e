package rpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"headroom/internal/pause"
)

const (
	// leaderHops bounds how many hints are followed in a row: servers that have not
	// learned of an election yet may point at each other.
	leaderHops = 3
	// leaderWait is the pause between two rounds over the addresses.
	leaderWait = 150 * time.Millisecond
	// RefusedWait is how long a command retries while every server refuses the connection: a server
	// that is restarted listens again within it, and an operator has the answer within a second.
	RefusedWait = 500 * time.Millisecond
	// ElectionWait is how long a command waits for an election, which takes one to three seconds.
	ElectionWait = 3 * time.Second
)

// ErrNoAddress is returned when no server address is configured.
var ErrNoAddress = errors.New("rpc: no server address is known")

// Tried is the outcome of a request to one server.
type Tried struct {
	Addr string
	Err  error
}

// Answered reports whether a server answered at the address.
func (t Tried) Answered() bool { return !NotSent(t.Err) }

// Reason returns why the server did not carry the request out, in a few words.
func (t Tried) Reason() string {
	if t.Answered() {
		return "not leader"
	}
	return t.Why()
}

// Why returns the cause of the error in a few words: "connection refused".
func (t Tried) Why() string { return cause(t.Err) }

// NoLeaderError means that no leader was found at any of several addresses.
type NoLeaderError struct{ Tried []Tried }

// Error implements error. Servers with the same reason are named together.
func (e *NoLeaderError) Error() string {
	about := "no server reachable"
	if e.Answered() != "" {
		about = "no leader"
	}
	var parts []string
	for i := 0; i < len(e.Tried); {
		j, reason := i, e.Tried[i].Reason()
		var same []string
		for ; j < len(e.Tried) && e.Tried[j].Reason() == reason; j++ {
			same = append(same, e.Tried[j].Addr)
		}
		parts = append(parts, strings.Join(same, ", ")+" "+reason)
		i = j
	}
	return about + ": " + strings.Join(parts, "; ")
}

// Unwrap returns the error of the server that answered, or else of the first one.
func (e *NoLeaderError) Unwrap() error {
	for _, t := range e.Tried {
		if t.Answered() {
			return t.Err
		}
	}
	return e.Tried[0].Err
}

// Answered returns the address of a server that answered, or "" if none did.
func (e *NoLeaderError) Answered() string {
	for _, t := range e.Tried {
		if t.Answered() {
			return t.Addr
		}
	}
	return ""
}

// Search looks for the leader among several servers.
type Search struct {
	// Addrs are the servers' addresses, in the order in which they are tried.
	Addrs []string
	// Patience bounds the wait for an election while some server answers. Refused bounds the wait
	// while every server refuses the connection; 0 means Patience.
	Patience, Refused time.Duration
	// Waiting is called once, before the first wait for an election; it may be nil.
	Waiting func()
	// Probe returns once the server at an address answers, see Peers.Probe: with it, an address that does not
	// answer costs little beside others that do. Nil: each is tried until its connection times out.
	Probe func(ctx context.Context, addr string) error
}

// ToLeader is Search.ToLeader with the same patience whether or not a server answers.
func ToLeader(ctx context.Context, addrs []string, patience time.Duration, f func(addr string) error) (at string, err error) {
	return Search{Addrs: addrs, Patience: patience}.ToLeader(ctx, f)
}

// ToLeader calls f with one server's address after the other until the leader
// answers. It follows the address in a NotLeader error, and skips servers that cannot be
// reached. Without a leader it waits and retries until its patience is over. Any other
// result ends the search, an unknown outcome included: a request that may have been
// carried out is never sent twice. It returns the address that err is about. If several
// addresses were tried and none leads, err is a *NoLeaderError.
func (s Search) ToLeader(ctx context.Context, f func(addr string) error) (at string, err error) {
	if len(s.Addrs) == 0 {
		return "", ErrNoAddress
	}
	began, waiting := time.Now(), s.Waiting
	p := newProber(ctx, s.Probe)
	defer p.close()
	addrs := p.order(s.Addrs)
	for {
		r := round{f: f, probes: p}
		if at, err := r.run(ctx, addrs); !r.none {
			return at, err
		}
		found := &NoLeaderError{Tried: r.tried}
		patience := s.Patience
		if found.Answered() == "" && s.Refused > 0 {
			patience = min(patience, s.Refused)
		} else if found.Answered() != "" && waiting != nil {
			waiting()
			waiting = nil
		}
		if time.Since(began) >= patience || !pause.For(ctx, leaderWait) {
			return found.end()
		}
	}
}

// end returns the result of a search that found no leader.
func (e *NoLeaderError) end() (string, error) {
	if len(e.Tried) == 1 {
		return e.Tried[0].Addr, e.Tried[0].Err
	}
	at := e.Answered()
	if at == "" {
		at = e.Tried[0].Addr
	}
	return at, e
}

// round tries every address once.
type round struct {
	f      func(addr string) error
	probes *prober
	tried  []Tried
	none   bool // every server is unreachable or is not the leader
}

func (r *round) run(ctx context.Context, addrs []string) (string, error) {
	for _, addr := range addrs {
		for hops := 0; ; hops++ {
			err := r.probes.silent(addr)
			if err == nil {
				err = r.f(addr)
			}
			hint, notLeader := LeaderOf(err)
			r.probes.alive = r.probes.alive || notLeader
			if err == nil || ctx.Err() != nil || !notLeader && !NotSent(err) {
				return addr, err
			}
			r.note(addr, err)
			if hint == "" || hint == addr || hops == leaderHops {
				break
			}
			addr = hint
		}
	}
	r.none = true
	return "", nil
}

// note keeps the newest outcome at an address.
func (r *round) note(addr string, err error) {
	i := slices.IndexFunc(r.tried, func(t Tried) bool { return t.Addr == addr })
	if i < 0 {
		r.tried = append(r.tried, Tried{addr, err})
		return
	}
	r.tried[i].Err = err
}
