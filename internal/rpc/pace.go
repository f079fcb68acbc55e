package rpc

import (
	"sync"
	"time"

	"connectrpc.com/connect"

	"headroom/internal/cli"
)

const (
	// CallsPerSecond limits the calls of one caller.
	CallsPerSecond = 200
	// CallBurst is the number of calls at once.
	CallBurst = 400
	// pacedMost bounds the number of remembered callers.
	pacedMost = 10_000
)

// Paces limits the calls of each caller of a port. The zero value is ready; it is safe for concurrent use.
type Paces struct {
	mu sync.Mutex
	of map[string]*pace
}

// pace is the token bucket of one caller.
type pace struct {
	left float64
	at   time.Time
}

// Allow takes a token out of the caller's bucket, and reports whether there was one.
func (p *Paces) Allow(caller string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[caller]
	if x == nil {
		if len(p.of) >= pacedMost || p.of == nil {
			p.of = map[string]*pace{}
		}
		x = &pace{left: CallBurst, at: now}
		p.of[caller] = x
	}
	x.left = min(CallBurst, x.left+CallsPerSecond*now.Sub(x.at).Seconds())
	x.at = now
	if x.left < 1 {
		return false
	}
	x.left--
	return true
}

// TooMany refuses a call of a caller who makes too many. It may be repeated after a second.
func TooMany(message, hint string) *connect.Error {
	e := Refuse(connect.CodeResourceExhausted, "too-many", cli.ExitUnreachable, "too many calls: "+message, hint)
	e.Meta().Set("Retry-After", "1")
	return e
}
