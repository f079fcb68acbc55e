package master

import "time"

const (
	// askEvery is how often a master asks its peer, askWait how long it waits for the answer.
	askEvery = 250 * time.Millisecond
	askWait  = time.Second
	// silence of the peer after which a standby becomes active.
	silence = 2 * time.Second
	// alike are times of activity that are too close to compare: answers take a while.
	alike = time.Second
)

// role says whether a master is the active one of its group.
type role struct {
	name   string
	alone  bool // there is no peer
	active bool
	since  time.Time // of the present role
	heard  time.Time // when the peer last answered
}

// peerWord is a peer's report about itself.
type peerWord struct {
	name   string
	active bool
	// activeFor is how long it has been.
	activeFor time.Duration
	// nodes of its workers.
	nodes []string
}

// begin is the start of the process: it asks its peer first.
func (r *role) begin(now time.Time) {
	r.since, r.heard = now, now
	r.active = r.alone
}

// hear takes an answer of the peer, and reports whether the role has changed. Where both or none are active, both masters decide
// alike.
func (r *role) hear(now time.Time, w peerWord) (changed bool) {
	r.heard = now
	switch first := r.name < w.name; {
	case !r.active && !w.active && first:
		return r.become(now, true)
	case r.active && w.active:
		if lead := now.Sub(r.since) - w.activeFor; lead < -alike || lead < alike && !first {
			return r.become(now, false)
		}
	}
	return false
}

// tick reports whether time alone has changed the role.
func (r *role) tick(now time.Time) (changed bool) {
	if r.active || now.Sub(r.heard) < silence {
		return false
	}
	return r.become(now, true)
}

func (r *role) become(now time.Time, active bool) bool {
	r.active, r.since = active, now
	return true
}
