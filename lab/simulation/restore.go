package simulation

import (
	"slices"
	"time"

	"headroom/units"
)

// loseQuorum destroys the disks of the servers. An operator begins them again from some snapshot that was put aside: what was committed after
// it is not known any more, while nodes still hold leases of it.
func (w *world) loseQuorum(r random) {
	if len(w.saves) == 0 || w.restoring {
		return
	}
	from, wrong := w.saves[r.IntN(len(w.saves))], r.upTo(5*time.Minute)
	if r.chance(0.5) {
		wrong = 0
	}
	w.hit("quorum_lost")
	w.beginAnew(from, wrong, r.between(200*time.Millisecond, 4*time.Second))
}

// beginAnew ends all servers, and begins them again from a snapshot after some time.
func (w *world) beginAnew(from saved, wrong, after time.Duration) {
	w.tracef("the quorum is lost")
	w.restoring = true
	for _, s := range w.servers {
		w.kill(&s.process)
		s.lead, s.role, s.gone = nil, follower, false
	}
	w.add(after, func() { w.restore(from, wrong) })
}

// restore is `member recover` from a snapshot: a new incarnation begins, with the budgets as
// they are in force. wrong is by how much the clock of the machine is slow that it is done on.
func (w *world) restore(from saved, wrong time.Duration) {
	s := w.judge.restore(from.data)
	budgets := map[string]units.Power{}
	for name, d := range s.Domains {
		budgets[name] = d.Budget
		if now, ok := w.judge.state.Domains[name]; ok {
			budgets[name] = min(now.Budget, d.Usable())
		}
	}
	at := w.wall.Add(w.now - wrong).UnixMicro()
	if err := s.Recover(budgets, at, "operator", "the quorum is lost"); err != nil {
		w.judge.broken("ledger", "a snapshot cannot be recovered: %v", err)
		return
	}
	s.AssumeLeases(w.longest)
	data := w.judge.snapshot(s)
	w.group++
	w.restoring = false
	w.happens("incarnation_begun", "begun anew from a snapshot of beginning %d, incarnation %d", from.group, s.Epoch.Incarnation)
	w.judge.restored(w.judge.restore(data), from.pots)
	w.saves = append(w.saves, saved{w.group, from.data, from.pots})
	for _, x := range w.servers {
		x.group, x.term, x.voted = w.group, 0, nobody
		x.log, x.durable, x.snapshot, x.snapAt = make([]entry, 1), 0, data, 0
		x.boot()
	}
}

// afterDark is by how much a schedule is longer in which the site goes dark: all have come back and are granted again by then.
const afterDark = 45 * time.Second

// darken is the loss of the site's power: every server and every node at once. What was not synced is lost, clocks start again, wall clocks
// jump, some disks do not come back, and the machines return in any order. Once in a schedule.
func (w *world) darken(r random) {
	if w.dark || w.restoring {
		return
	}
	w.dark = true
	w.happens("site_dark", "the site goes dark")
	lost := w.loseDisks(r)
	for i, s := range w.servers {
		s.crash()
		s.clock.base, s.clock.booted = time.Second, w.now
		if r.chance(0.5) {
			s.wallOff = r.between(-10*time.Minute, 10*time.Minute)
		}
		back := r.between(time.Second, 15*time.Second)
		switch {
		case len(lost) >= w.majority(): // an operator begins them again
			w.hit("disk_gone")
		case slices.Contains(lost, i):
			s.loseDisk()
		default:
			w.restart(s, back)
		}
	}
	for _, n := range w.nodes {
		w.darkenNode(n, r)
	}
	if len(lost) >= w.majority() {
		w.beginAnew(w.saves[len(w.saves)-1], r.upTo(time.Minute), r.between(5*time.Second, 20*time.Second))
	}
}

// loseDisks are the servers whose disks do not come back: a majority only where there is a snapshot to begin again from.
func (w *world) loseDisks(r random) []int {
	share := []float64{0.2, 0.35, 0.7}[r.IntN(3)]
	var lost []int
	for i := range w.servers {
		if r.chance(share) {
			lost = append(lost, i)
		}
	}
	if len(lost) >= w.majority() && len(w.saves) == 0 {
		return nil
	}
	return lost
}

// loseDisk leaves a server nothing. It must not vote before it has been replaced: what it has promised is forgotten.
func (s *server) loseDisk() {
	s.w.happens("disk_gone", "the disk of %s is gone", s.name)
	s.gone = true
	s.term, s.voted = 0, nobody
	s.log, s.durable, s.snapshot, s.snapAt = make([]entry, 1), 0, nil, 0
	s.w.replaceWhenLed(s)
}

// replaceWhenLed is an operator who replaces a server without a disk by one that starts from what the leader has committed.
func (w *world) replaceWhenLed(s *server) {
	group := s.group
	w.add(time.Second, func() {
		if !s.gone || s.group != group {
			return
		}
		for _, l := range w.servers {
			if l.up && !l.paused && l.role == leading && l.lead != nil && l.lead.leader.Began() && l.group == group {
				w.hit("server_replaced")
				s.gone, s.term, s.voted = false, l.term, l.address
				s.log, s.durable = slices.Clone(l.log[:l.commit+1]), l.commit
				s.snapshot, s.snapAt = l.snapshot, l.snapAt
				s.boot()
				return
			}
		}
		w.replaceWhenLed(s)
	})
}

// darkenNode takes a node's power, unless it has none, and gives it back later.
func (w *world) darkenNode(n *node, r random) {
	dark, boots := r.between(2*time.Second, 20*time.Second), r.between(time.Second, 6*time.Second)
	lost := r.chance(0.15)
	if n.hw.off {
		return
	}
	w.kill(&n.process)
	n.fallAsleep(false)
	n.plug(false)
	if lost {
		n.loseState()
	}
	w.unchanged(&n.process, dark, func() {
		if n.hw.off && n.hw.cord == "" {
			n.plug(true)
			w.revive(n, r, boots)
		}
	})
}
