package lease

import (
	"cmp"
	"fmt"
)

// Epoch orders leaderships: a higher incarnation always wins, then a higher
// raft term. The zero Epoch is older than every leadership.
type Epoch struct {
	// Incarnation numbers the beginnings of the replicated log: each restored
	// snapshot and recovered quorum begins a higher one.
	Incarnation uint64 `json:"incarnation"`
	// Term is the raft term of the leadership that wrote the command.
	Term uint64 `json:"term"`
}

// Compare is -1, 0 or +1 as e is older than, the same as, or newer than o.
func (e Epoch) Compare(o Epoch) int {
	return cmp.Or(cmp.Compare(e.Incarnation, o.Incarnation), cmp.Compare(e.Term, o.Term))
}

// String is the epoch as operators see it: the term, with the incarnation before it once there was more than one.
func (e Epoch) String() string {
	if e.Incarnation <= 1 {
		return fmt.Sprint(e.Term)
	}
	return fmt.Sprintf("%d.%d", e.Incarnation, e.Term)
}

// Stamp orders the grants to one node: first by epoch, then by the sequence
// number that the ledger gives each new target of that node.
type Stamp struct {
	Epoch Epoch  `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare is -1, 0 or +1 as s is older than, the same as, or newer than o.
func (s Stamp) Compare(o Stamp) int {
	return cmp.Or(s.Epoch.Compare(o.Epoch), cmp.Compare(s.Seq, o.Seq))
}

// String is the stamp as logs and status show it.
func (s Stamp) String() string { return fmt.Sprintf("epoch %v seq %d", s.Epoch, s.Seq) }
