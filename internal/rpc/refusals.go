package rpc

import (
	"sync"
	"time"
)

const (
	// refusalEvery limits the log of refusals, so that guessing keys cannot fill it.
	refusalEvery = time.Second
	// refusalAgain is when a refusal that goes on is logged again: a client asks every second, for days.
	refusalAgain = time.Hour
	// refusalsMost bounds those that are remembered.
	refusalsMost = 1000
)

// Refusals decides which refused calls are worth a line in the log. The zero value is ready; it is safe for
// concurrent use.
type Refusals struct {
	mu     sync.Mutex
	last   time.Time
	logged map[string]time.Time // by text
}

// News reports whether a refusal should be logged: one line for each reason and caller, and few at once.
func (r *Refusals) News(err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.logged[err.Error()]
	if known && now.Sub(at) < refusalAgain || now.Sub(r.last) < refusalEvery {
		return false
	}
	if len(r.logged) >= refusalsMost || r.logged == nil {
		r.logged = map[string]time.Time{}
	}
	r.last, r.logged[err.Error()] = now, now
	return true
}
