package simulation

//headroom:judge

import (
	"slices"

	"headroom/ledger"
	"headroom/units"
)

// account is promise P4 written a second time: what one node must be charged at the least, worked out from the entries alone. It counts what
// the node could hold: whatever it was last proved to hold, and every target that was committed and may still reach it.
type account struct {
	rated, floor, declared, stored units.Power
	own                            ledger.Settings
	holds                          units.Power // by the newest read-back that counted; rated before the first
	doubt                          units.Power // by read-backs that prove nothing
	may                            []aimed
	process, heard, proof, seq     uint64
	controlled, admitted, released bool
	off, unproven                  bool
	from                           string
	fromSeq                        uint64
}

// aimed is one committed target: what its leases bring to the node.
type aimed struct {
	seq           uint64
	cap, failSafe units.Power
}

// unknownAccount is the account of a node in a recovered state: nothing is known of what it holds, or where, or whether it is off.
func unknownAccount(n ledger.Node) *account {
	a := &account{
		rated: n.Rated, floor: n.Floor, declared: n.FailSafe, stored: n.Stored, own: n.Settings, holds: n.Rated,
		process: n.Process, proof: n.Seq + 1, seq: n.Seq,
		controlled: n.Controlled, admitted: n.Admitted, released: n.Released, unproven: n.Admitted,
	}
	if n.Controlled && !n.Released {
		a.proof, a.may = n.Seq, []aimed{{n.Seq, n.Target, failSafe(n)}}
	}
	return a
}

// failSafe is the fail-safe cap that the node must store.
func (a *account) failSafe() units.Power {
	if a.own.FailSafe != nil {
		return max(*a.own.FailSafe, a.floor)
	}
	return a.declared
}

// charge is the least that the node must be charged.
func (a *account) charge() units.Power {
	switch {
	case a.off:
		return 0
	case !a.controlled || a.released:
		return a.rated
	}
	most := max(a.holds, a.doubt, a.failSafe(), a.stored, a.floor)
	for _, p := range a.may {
		most = max(most, p.cap, p.failSafe)
	}
	return most
}

// aim notes a committed target: what its leases bring, at times a sprint's cap, and a fail-safe cap to store.
func (a *account) aim(n ledger.Node) {
	if n.Seq <= a.seq {
		return
	}
	a.seq = n.Seq
	top := n.Target
	if n.Sprint != nil {
		top = max(top, n.Sprint.Cap)
	}
	a.may = append(a.may, aimed{n.Seq, top, a.failSafe()})
}

// account carries the entry into the accounts, and holds the ledger's charges against them.
func (j *judge) account(c ledger.Command, b before) {
	if c.Tick != nil {
		for _, x := range c.Tick.Seen {
			j.seen(x)
		}
		for _, x := range c.Tick.Acks {
			j.accounts[x.Node].acked(x)
		}
		for _, x := range c.Tick.Lapsed {
			j.accounts[x.Node].lapsed(x, j.state.Nodes[x.Node])
		}
	}
	j.operated(c, b)
	for name, n := range j.state.Nodes {
		a := j.accounts[name]
		if a == nil {
			j.broken("P4", "%s is in the log, but no entry added it", name)
			continue
		}
		a.admitted = n.Admitted
		if n.Admitted {
			a.aim(n)
		}
		switch {
		case n.Admitted && n.Seq < j.seqs[name]:
			j.broken("P3", "sequence of %s fell from %d to %d", name, j.seqs[name], n.Seq)
		case n.Charge() < a.charge():
			j.broken("P4", "%s is charged %v; the rules require %v", name, n.Charge(), a.charge())
		case a.from != "" && n.From != a.from && n.Domain != a.from:
			j.broken("P4", "%s is no longer charged in %s, but has not acknowledged its move", name, a.from)
		}
		j.seqs[name] = max(j.seqs[name], n.Seq)
	}
	for name := range b.nodes {
		if _, still := j.state.Nodes[name]; !still && j.accounts[name] != nil {
			j.broken("P4", "%s is no longer charged", name)
		}
	}
}

// seen is a declaration: a new process proves nothing of what earlier ones were granted.
func (j *judge) seen(x ledger.Sighting) {
	a, known := j.accounts[x.Node]
	if !known {
		a = &account{holds: x.Rated}
		j.accounts[x.Node] = a
	}
	if a.released && a.process != x.Process {
		a.proof = a.seq + 1
	}
	if a.released && a.process != x.Process || a.off {
		a.released, a.off, a.holds, a.may = false, false, x.Rated, nil
	}
	if !a.controlled && x.Controlled {
		a.holds = max(a.holds, x.Rated)
	}
	if a.process != x.Process {
		a.heard = 0
		if known { // waiting or not: which of two processes lives is not known
			a.proof = a.seq + 1
		}
	}
	a.process, a.rated, a.floor, a.declared, a.controlled = x.Process, x.Rated, x.Floor, x.FailSafe, x.Controlled
	a.stored = max(a.stored, x.FailSafe)
	if !a.controlled {
		a.from, a.unproven = "", false
	}
}

// acked is a read-back. It counts when it is of the newest process, in order, and names a target that was given to this process.
func (a *account) acked(x ledger.Ack) {
	switch {
	case a == nil || a.process != x.Process || x.Number < a.heard || !a.controlled || a.released || a.off:
		return
	case x.Seq < a.proof:
		a.doubt, a.stored = max(a.doubt, x.Effective), max(a.stored, x.Stored)
		return
	}
	a.heard, a.unproven, a.doubt, a.holds, a.stored = x.Number, false, 0, x.Effective, x.Stored
	a.may = slices.DeleteFunc(slices.Clone(a.may), func(p aimed) bool { return p.seq < x.Seq })
	if x.Seq >= a.fromSeq {
		a.from = ""
	}
}

// lapsed is a lost node whose lease must be over, where its domain counts that.
func (a *account) lapsed(x ledger.Lapse, n ledger.Node) {
	if a == nil || !a.controlled || a.released || a.off || !a.admitted || a.unproven || a.seq != x.Seq {
		return
	}
	a.seq++
	a.proof, a.holds, a.doubt = a.seq, 0, 0
	low := units.Power(0) // of the fail-safe caps it was ever sent it may have stored any
	for _, p := range a.may {
		low = max(low, p.failSafe)
	}
	a.may = []aimed{{a.seq - 1, 0, low}, {a.seq, n.Target, a.failSafe()}}
}

// operated is what operators, and nodes that leave, have done to the accounts.
func (j *judge) operated(c ledger.Command, b before) {
	switch {
	case c.Release != nil:
		a := j.accounts[c.Release.Node]
		a.released, a.from, a.unproven = true, "", false
	case c.PowerOff != nil:
		a := j.accounts[c.PowerOff.Node]
		a.off, a.from, a.unproven = true, "", false
		j.truth(c.PowerOff.Node)
	case c.Node != nil:
		j.accounts[c.Node.Node].own = c.Node.Settings
	case c.Move != nil:
		if now, old := j.state.Nodes[c.Move.Node], b.nodes[c.Move.Node]; now.Domain != old.Domain && grantable(old) {
			a := j.accounts[c.Move.Node]
			a.from, a.fromSeq = old.Domain, a.seq+1
		}
	case c.Remove != nil:
		gone := j.w.nodeNamed(c.Remove.Node)
		k := j.of(gone)
		k.removed, k.pid = j.w.now, gone.pid
		delete(j.accounts, c.Remove.Node)
		if c.Remove.PoweredOff {
			j.truth(c.Remove.Node)
		}
	case c.Reincarnate != nil:
		for name, n := range j.state.Nodes {
			j.accounts[name] = unknownAccount(n)
		}
	}
}

// inherited judges that the domains which a removed node was charged in, and all above, keep its charge as unmanaged watts.
func (j *judge) inherited(c ledger.Command, b before) {
	if c.Remove == nil || c.Remove.PoweredOff {
		return
	}
	n := b.nodes[c.Remove.Node]
	for at, now := range j.tree {
		if was := b.tree[at]; (j.lies(j.placeOf(n.Domain), at) || j.lies(j.placeOf(n.From), at)) && now.unmanaged < was.unmanaged+n.Charge() {
			j.broken("P4", "%s was removed at %v, but the unmanaged watts of %s rose only from %v to %v",
				n.Name, n.Charge(), now.name, was.unmanaged, now.unmanaged)
		}
	}
}

// truth judges the word that a node is off.
func (j *judge) truth(node string) {
	if n := j.w.nodeNamed(node); !n.hw.off {
		j.broken("P4", "%s counts as powered off, but holds %v", node, n.hw.held)
	}
}
