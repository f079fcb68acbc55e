package rpc

import (
	"context"
	"errors"
	"time"

	"headroom/internal/pause"
)

const (
	// leaderHops bounds how many hints are followed in a row: servers that have not
	// heard of an election yet may point at each other.
	leaderHops = 3
	// leaderWait is how long a call waits before it asks again for a leader: an election takes one to three seconds.
	leaderWait = 150 * time.Millisecond
)

// ErrNoAddress is returned when there is nobody to ask.
var ErrNoAddress = errors.New("rpc: no server address is known")

// ToLeader calls f with the address of one server after the other until one
// that leads answers. It follows the address in a NotLeader error, goes on to
// the next address when one cannot be reached, and while there is no leader it
// waits and asks again until patience is over. An answer that is not about who
// leads, an outcome that is unknown included, ends it: it never sends a request
// twice that may have been carried out. It returns the address asked last.
func ToLeader(ctx context.Context, addrs []string, patience time.Duration, f func(addr string) error) (at string, err error) {
	if len(addrs) == 0 {
		return "", ErrNoAddress
	}
	until := time.Now().Add(patience)
	next, hops := 0, 0
	addr := addrs[0]
	for {
		err = f(addr)
		hint, notLeader := LeaderOf(err)
		if err == nil || ctx.Err() != nil || !notLeader && !NotSent(err) {
			return addr, err
		}
		if hint != "" && hint != addr && hops < leaderHops {
			addr = hint
			hops++
			continue
		}
		hops = 0
		next++
		addr = addrs[next%len(addrs)]
		if next%len(addrs) != 0 {
			continue
		}
		if !time.Now().Before(until) || !pause.For(ctx, leaderWait) {
			return addr, err
		}
	}
}
