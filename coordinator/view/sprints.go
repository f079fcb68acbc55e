package view

import (
	"maps"
	"slices"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
)

// Sprint is a sprint with what each of its nodes has drawn.
func Sprint(s *ledger.State, p ledger.Sprint) *headroomv1.SprintRecord {
	m := &headroomv1.SprintRecord{
		Id: p.ID, Job: p.Job, Class: p.Class, Domain: p.Domain, State: "open", Ended: p.Ended, DurationMs: p.Duration.Milliseconds(),
		AgeMs: (s.Elapsed - p.Began).Milliseconds(), EscrowUj: int64(p.Escrow()), SpentUj: int64(p.Spent()),
	}
	switch {
	case p.Closed:
		m.State, m.RefundedUj = "closed", new(int64(p.Refunded))
	case p.Ended != "":
		m.State = "ending"
	}
	for _, name := range slices.Sorted(maps.Keys(p.Shares)) {
		x := p.Shares[name]
		n := &headroomv1.SprintNode{Node: name, EscrowUj: int64(x.Escrow), State: "sprinting"}
		if x.Spent != nil {
			n.SpentUj = new(int64(*x.Spent))
		}
		switch {
		case x.Settled:
			n.State = "settled"
		case x.BackSeq > 0:
			n.State = "returning"
		}
		m.Nodes = append(m.Nodes, n)
	}
	return m
}

// sprintBudgetMessage is a domain's budget of energy, nil without one.
func sprintBudgetMessage(s *ledger.State, d ledger.Domain) *headroomv1.SprintBudget {
	if d.Sprint == nil {
		return nil
	}
	m := &headroomv1.SprintBudget{CapacityUj: int64(d.Sprint.Capacity), RefillUw: int64(d.Sprint.Refill)}
	for _, pot := range d.Sprint.Pots() {
		m.Pots = append(m.Pots, &headroomv1.SprintPot{
			Class: pot, Share: d.Sprint.Part(pot), BalanceUj: int64(d.Sprint.Balances[pot]), EscrowedUj: int64(s.Escrowed(d.Name, pot)),
		})
	}
	return m
}
