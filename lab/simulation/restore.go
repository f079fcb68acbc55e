package simulation

import (
	"time"

	"headroom/ledger"
	"headroom/units"
)

// loseQuorum destroys the disks of the servers. An operator begins them again from
// some snapshot that was put aside: what was committed after it is not known any
// more, while nodes still hold leases of it.
func (w *world) loseQuorum(r random) {
	if len(w.saves) == 0 || w.restoring {
		return
	}
	w.hit("quorum_lost")
	from, wrong := w.saves[r.IntN(len(w.saves))], r.upTo(5*time.Minute)
	if r.chance(0.5) {
		wrong = 0
	}
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

// restore is `member recover` from a snapshot: a new incarnation begins. wrong is by
// how much the clock of the machine is slow that it is done on.
func (w *world) restore(from saved, wrong time.Duration) {
	s, err := ledger.Restore(from.data)
	if err != nil {
		w.judge.broken("ledger", "a snapshot cannot be restored: %v", err)
		return
	}
	// The operators name the budgets as they are in force.
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
	data, err := s.Snapshot()
	if err != nil {
		w.judge.broken("ledger", "a recovered state cannot be saved as a snapshot: %v", err)
		return
	}
	w.group++
	w.restoring = false
	w.hit("incarnation_begun")
	w.tracef("begun anew from a snapshot of beginning %d, incarnation %d", from.group, s.Epoch.Incarnation)
	w.judge.restored(data, from.pots)
	w.saves = append(w.saves, saved{w.group, from.data, from.pots})
	for _, x := range w.servers {
		x.group, x.term, x.voted = w.group, 0, nobody
		x.log, x.durable, x.snapshot, x.snapAt = make([]entry, 1), 0, data, 0
		x.boot()
	}
}
