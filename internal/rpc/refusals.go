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
	if now.Sub(r.last) < refusalEvery || !r.fresh(err.Error(), now) {
		return false
	}
	r.last = now
	return true
}

// Fresh reports whether a kind of refusal should be recorded: once an hour, however many others there are.
func (r *Refusals) Fresh(kind string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fresh(kind, now)
}

func (r *Refusals) fresh(kind string, now time.Time) bool {
	if at, known := r.logged[kind]; known && now.Sub(at) < refusalAgain {
		return false
	}
	if len(r.logged) >= refusalsMost || r.logged == nil {
		r.logged = map[string]time.Time{}
	}
	r.logged[kind] = now
	return true
}
