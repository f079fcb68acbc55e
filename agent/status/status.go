// Package status defines the words and units of powerd's status.
//
// powerd reports its status as one message (GetAgentStatus). Tables, JSON and metrics show
// the same figures from it, so their common rules are here: the word for each state, and
// that an unknown value is nil, never 0.
//
// The package reads no status itself and prints nothing.
package status

import (
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
)

// Observing is the state of a node that holds no cap. The others are those of
// lease.State.
const Observing = "observing"

// OK is the state of a sensor, zone or policy whose figure can be believed.
const OK = "ok"

// Severities of a health item.
const (
	Warn = "warn"
	Fail = "fail"
)

// State is what a node does with its cap: held, fail-safe or Observing, which is
// also the state of a node that has reported nothing.
func State(h *headroomv1.Holding) string {
	switch h.GetState() {
	case headroomv1.LeaseState_LEASE_STATE_HELD:
		return lease.Held.String()
	case headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE:
		return lease.FailSafe.String()
	case headroomv1.LeaseState_LEASE_STATE_OBSERVING, headroomv1.LeaseState_LEASE_STATE_UNSPECIFIED:
	}
	return Observing
}

// Socket is the number of the socket that a zone's name tells: "1" of
// "package-1-die-0" and of "dram-1", "" when it tells none.
func Socket(zone string) string {
	start := strings.IndexAny(zone, "0123456789")
	if start < 0 {
		return ""
	}
	rest := zone[start:]
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		return rest[:end]
	}
	return rest
}

// below is how a tree that is not the kernel's own is named, before its path.
const below = "files below "

// Tree names the tree of a node with this root: emulated ones are
// distinguished from the kernel's by their root.
func Tree(root string) string {
	if root == "/" {
		return "kernel"
	}
	return below + root
}

// Root is the root of a tree that Tree named.
func Root(tree string) string {
	if root, ok := strings.CutPrefix(tree, below); ok {
		return root
	}
	return "/"
}

// Micro is a number of millionths in base units, nil when unknown.
func Micro(v *int64) *float64 { return scaled(v, 1e6) }

// Milli is a number of thousandths in base units, nil when unknown.
func Milli(v *int64) *float64 { return scaled(v, 1e3) }

func scaled(v *int64, by float64) *float64 {
	if v == nil {
		return nil
	}
	return new(float64(*v) / by)
}
