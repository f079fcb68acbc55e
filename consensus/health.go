package consensus

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/each"
)

// Health is how one server does, as its leader sees it.
type Health struct {
	Member
	// Lag is how many entries it is behind the leader; nil while unknown.
	Lag *uint64
	// Since is from when on it was healthy without a break, as far as this leader
	// has seen; zero while it is not.
	Since time.Time
	// Fault says why it is not healthy; nil while it is.
	Fault error
}

// Healthy reports whether it is heard and close to the leader's log.
func (h Health) Healthy() bool { return h.Fault == nil }

// stable reports whether it has been healthy for StableFor.
func (h Health) stable(now time.Time) bool { return !h.Since.IsZero() && now.Sub(h.Since) >= StableFor }

// Health lists the servers as this leader sees them, in the order of Members.
// ErrNotLeader elsewhere: only the leader hears them all.
func (g *Group) Health() ([]Health, error) {
	r := g.leading.Load()
	if r == nil {
		return nil, fmt.Errorf("consensus: health on %s: %w", g.cfg.ID, ErrNotLeader)
	}
	return r.health.of(g.look(r)), nil
}

// look judges every server as it is now.
func (g *Group) look(r *leaderTerm) ([]Health, time.Time) {
	now, last := time.Now(), g.raft.LastIndex()
	members := g.Members()
	out := each.List(members, func(m Member) Health { return judge(m, last, r.began, now) })
	return out, now
}

// judge reports whether a server is healthy now. The leader itself is, as long as
// it can write: it ends when it cannot.
func judge(m Member, last uint64, began, now time.Time) Health {
	h := Health{Member: m}
	if m.Self {
		h.Lag = new(uint64)
		return h
	}
	silent := now.Sub(m.Contact)
	switch {
	case m.Contact.IsZero() || m.Contact.Before(began):
		h.Fault = fmt.Errorf("it has not answered since this server began to lead, %v ago", now.Sub(began).Round(time.Millisecond))
		return h
	case silent > maxSilence:
		h.Fault = fmt.Errorf("it has not answered for %v", silent.Round(time.Millisecond))
	}
	lag := last - min(m.LastIndex, last)
	h.Lag = &lag
	if lag > MaxLag {
		h.Fault = errors.Join(h.Fault, fmt.Errorf("it is %d entries behind; at most %d are allowed", lag, MaxLag))
	}
	return h
}

// record remembers since when each server is healthy, over one lead.
type record struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// of takes in a look and fills in since when.
func (r *record) of(all []Health, now time.Time) []Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]time.Time, len(all))
	for i, h := range all {
		if !h.Healthy() {
			continue
		}
		next[h.ID] = now
		if was, ok := r.since[h.ID]; ok {
			next[h.ID] = was
		}
		all[i].Since = next[h.ID]
	}
	r.since = next
	return all
}

// watchHealth looks often enough that a break does not go unseen.
func (g *Group) watchHealth(r *leaderTerm) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		r.health.of(g.look(r))
		select {
		case <-tick.C:
		case <-r.over:
			return
		case <-g.stop:
			return
		}
	}
}

// Disk is how the disk under the log does.
type Disk struct {
	// Free bytes for this user; nil while unknown, and without a directory.
	Free *uint64
	// Slowest is the longest write of the last minute or two, the one under way included.
	Slowest time.Duration
	// Deadline is how long a write may take before the server ends itself.
	Deadline time.Duration
}

// Disk tells how the disk under the log does.
func (g *Group) Disk() Disk {
	d := Disk{Slowest: g.guard.pace.slowest(time.Now()), Deadline: g.cfg.WriteDeadline}
	var fs unix.Statfs_t
	if g.cfg.Dir != "" && unix.Statfs(g.cfg.Dir, &fs) == nil {
		d.Free = new(fs.Bavail * uint64(fs.Bsize))
	}
	return d
}

// pace remembers how long writes take: the slowest of this minute and of the one
// before.
type pace struct {
	mu       sync.Mutex
	minute   time.Time
	now, was time.Duration
	writing  map[uint64]time.Time
	next     uint64
}

// begin notes a write and returns what notes its end.
func (p *pace) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing == nil {
		p.writing = map[uint64]time.Time{}
	}
	id, at := p.next, time.Now()
	p.next++
	p.writing[id] = at
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.writing, id)
		p.turn(time.Now())
		p.now = max(p.now, time.Since(at))
	}
}

// turn begins a new minute when the old one is over. The caller holds the lock.
func (p *pace) turn(now time.Time) {
	switch over := now.Sub(p.minute); {
	case over >= 2*time.Minute:
		p.minute, p.was, p.now = now, 0, 0
	case over >= time.Minute:
		p.minute, p.was, p.now = now, p.now, 0
	}
}

func (p *pace) slowest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	out := max(p.now, p.was)
	for _, at := range p.writing {
		out = max(out, now.Sub(at))
	}
	return out
}
