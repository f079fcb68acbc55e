package leader

import (
	"headroom/ledger"
	"headroom/units"
)

// Output is something for the caller to carry out.
type Output interface{ output() }

// Propose hands a command to the log, in this leadership's term; Committed answers it.
type Propose struct{ Command ledger.Command }

// Began says that the epoch has begun: the leadership may be announced.
type Began struct{}

// Grant pushes a lease to a node.
type Grant struct{ ledger.NodeGrant }

// Wait tells a node that it is charged but granted no lease, and why; and which brake is lifted.
type Wait struct {
	Node, Reason string
	BrakeLifted  uint64
}

// Caps are the targets that the scheduler has not been told in this leadership.
type Caps struct{ Nodes []Cap }

// Cap is one node's target, the least it can hold and the most it may be given.
type Cap struct {
	Node             string
	Cap, Floor, Most units.Power
}

// Ticked says that the entry of this second has committed, or why it has not. Lists and
// alarms are due to be looked at.
type Ticked struct{ Err error }

// Answer is what came of a request.
type Answer struct {
	Request *Request
	Result  ledger.Result
	// Err is a RefusedError where the ledger refused, or why the outcome is unknown.
	Err error
}

// Prove asks the consensus to prove that this server leads; Proven answers it.
type Prove struct{}

// AskClocks asks for the wall clocks of all servers; Clocks answers it.
type AskClocks struct{}

// Braked says that a brake is in the log now, or why it is not.
type Braked struct {
	Brake Brake
	Err   error
}

// Over says that this leadership is over though the server may still lead: another one
// begins, in a newer epoch.
type Over struct{ Err error }

func (Propose) output()   {}
func (Began) output()     {}
func (Grant) output()     {}
func (Wait) output()      {}
func (Caps) output()      {}
func (Ticked) output()    {}
func (Answer) output()    {}
func (Prove) output()     {}
func (AskClocks) output() {}
func (Braked) output()    {}
func (Over) output()      {}
