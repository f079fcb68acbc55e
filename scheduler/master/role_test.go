package master

import (
	"testing"
	"time"
)

// Two masters that hear of each other end with one active one, whichever began or was cut off when; a standby becomes active after
// the silence of its peer and no sooner.
func TestRole(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	word := func(r *role) peerWord {
		w := peerWord{name: r.name, active: r.active}
		if r.active {
			w.activeFor = now.Sub(r.since)
		}
		return w
	}
	meet := func(a, b *role) {
		wa, wb := word(a), word(b)
		a.hear(now, wb)
		b.hear(now, wa)
	}
	one := role{name: "m1", alone: true}
	if one.begin(now); !one.active {
		t.Error("a master without a peer is on standby")
	}
	a, b := role{name: "m1"}, role{name: "m2"}
	a.begin(now)
	b.begin(now)
	if meet(&a, &b); !a.active || b.active {
		t.Errorf("after the start: %+v, %+v", a, b)
	}
	now = now.Add(silence - time.Millisecond)
	if b.tick(now) || b.active {
		t.Error("active before the peer was silent for long")
	}
	now = now.Add(time.Millisecond)
	if !b.tick(now) || !b.active {
		t.Error("on standby although the peer is silent")
	}
	now = now.Add(time.Minute) // a was active all the time, behind a partition
	if meet(&a, &b); !a.active || b.active {
		t.Errorf("the one that was active for longer steps down: %+v, %+v", a, b)
	}
	now = now.Add(time.Minute)
	b.tick(now)
	a = role{name: "m1"} // restarted: it asks first
	a.begin(now)
	if meet(&a, &b); a.active || !b.active {
		t.Errorf("a master that starts takes over: %+v, %+v", a, b)
	}
	a.active, a.since, b.since = true, now.Add(-10*time.Second), now.Add(-10*time.Second-alike/2)
	if meet(&a, &b); !a.active || b.active {
		t.Errorf("as good as equally long: %+v, %+v", a, b)
	}
}
