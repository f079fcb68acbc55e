package agent

import (
	"errors"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/lease"
)

// holdingNow is what a heartbeat would acknowledge now.
func (n *node) holdingNow() *headroomv1.Holding {
	excess, known := n.control.excessWall()
	return n.exchange.holdingOf(n.lease.Report(instant(), excess, known))
}

// reported has a heartbeat tell the excess, so that it counts anew.
func (n *node) reported(now lease.Instant) {
	excess, known := n.control.excessWall()
	n.lease.NextBeat(now, excess, known)
}

// answer gives the node a lease that answers a heartbeat sent now, stored at once; it is
// not carried out before the next turn.
func answer(n *lease.Node, g lease.Grant, now lease.Instant) error {
	hb, _ := n.NextBeat(now, 0, true)
	g.Heartbeat, g.Process = hb.Number, hb.Process
	out := n.Grant(g, now)
	out = append(out, n.Stored(nil, now)...)
	for _, o := range out {
		if r, refused := o.(lease.Refused); refused {
			return r.Err
		}
	}
	if n.Memory().Highest != g.Stamp {
		return errors.New("not taken")
	}
	return nil
}

// ended are the sprints that a heartbeat would tell of.
func (n *node) ended() []capping.SprintEnd { return n.lease.Report(instant(), 0, true).Ended }
