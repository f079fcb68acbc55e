// Claim: a node that gets no lease learns all the same that the brake is lifted.
package lease_test

import (
	"testing"

	"headroom/lease"
	"headroom/units"
)

func TestBrakeEndsWithoutALease(t *testing.T) {
	t.Parallel()
	n := lease.NewNode(1, lease.Memory{FailSafe: 95 * units.Watt}, lease.Instant{})
	n.Brake(3, lease.Instant{})
	if n.Waits(2); !n.Braked() {
		t.Error("an older brake was lifted, and the newer one ended")
	}
	if n.Waits(3); n.Braked() {
		t.Error("the brake is lifted, and the node still reports it")
	}
	if n.Waits(2); n.Braked() {
		t.Error("an answer of an older leader brought the brake back")
	}
}
