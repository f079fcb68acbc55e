// Claims: unknown stays unknown, and a tree's name leads back to its root.
package status_test

import (
	"testing"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
)

func TestSocket(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{"package-0": "0", "package-1-die-0": "1", "dram-12": "12", "psys": "", "": "", "package-": ""} {
		if got := status.Socket(zone); got != want {
			t.Errorf("Socket(%q) = %q, want %q", zone, got, want)
		}
	}
}

func TestRootOfTree(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"/", "/tmp/n01/root", "n01/root"} {
		if got := status.Root(status.Tree(root)); got != root {
			t.Errorf("Root(Tree(%q)) = %q", root, got)
		}
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]*headroomv1.Holding{
		"held":      {State: headroomv1.LeaseState_LEASE_STATE_HELD},
		"fail-safe": {State: headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE},
		"observing": nil,
	} {
		if got := status.State(h); got != want {
			t.Errorf("State(%v) = %q, want %q", h, got, want)
		}
	}
}

func TestScales(t *testing.T) {
	t.Parallel()
	for name, scale := range map[string]struct {
		f    func(*int64) *float64
		want float64
	}{"micro": {status.Micro, 1.5}, "milli": {status.Milli, 1500}} {
		if got := scale.f(nil); got != nil {
			t.Errorf("%s of unknown is %v", name, *got)
		}
		if got := scale.f(new(int64(1_500_000))); got == nil || *got != scale.want {
			t.Errorf("%s of 1500000 is %v, want %v", name, got, scale.want)
		}
	}
}
