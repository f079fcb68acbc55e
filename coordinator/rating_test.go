package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/alarms"
	"headroom/ledger"
)

// P1, P4: n01 comes back uncontrolled and says that it is rated, and draws, a megawatt. The
// others keep their watts, an alarm names it, and an operator's word ends it.
func TestMegawattNodeCutsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 900*w)
		c.addNodes(3)
		time.Sleep(30 * time.Second)
		if got := c.newest().Nodes["n02"].Target; got != 200*w {
			t.Fatalf("n02 is aimed at %v before", got)
		}
		c.nodes[0].vanish(true)
		time.Sleep(5 * time.Second)
		liar := declared("n01")
		liar.ProcessId, liar.RatedUw, liar.MaxUw, liar.Controlled = 7, int64(ledger.MaxPower), int64(ledger.MaxPower), false
		liar.BootId = "boot-2"
		n := c.addNode(liar)
		n.set(func(n *node) { n.effective = 100 * w })
		time.Sleep(20 * time.Second)
		s := c.newest()
		if got := s.Nodes["n01"].Charge(); got != 500*w {
			t.Errorf("n01 is charged %v, want twice the 250 W that it began with", got)
		}
		for _, name := range []string{"n02", "n03"} {
			if got := s.Nodes[name].Target; got < 150*w {
				t.Errorf("%s is aimed at %v", name, got)
			}
		}
		a := slices.DeleteFunc(alarms.Of(s, nil, nil, nil), func(a alarms.Alarm) bool { return !strings.HasPrefix(a.Code, "rating-") })
		if len(a) != 1 || a[0].Code != "rating-waits" || a[0].Subject != "n01" ||
			!strings.Contains(a[0].Text, "500.0 W is accepted") || !strings.Contains(a[0].Hint, "coordinator node set n01 --rated 1000000W accepts") {
			t.Errorf("alarms: %+v", a)
		}
		server := c.leader()
		set := command(t.Context(), &headroomv1.ChangeRequest{}, "mia")
		settings, err := nodeSettings(s, &headroomv1.SetNode{Node: "n01", Settings: &headroomv1.NodeSettings{RatedUw: new(int64(250 * w))}})
		if err != nil {
			t.Fatal(err)
		}
		set.Node = &ledger.SetNode{Node: "n01", Settings: settings}
		if _, err := server.requests.change(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		s = c.newest()
		if got := s.Nodes["n01"].Charge(); got != 250*w || s.Nodes["n02"].Target != 200*w {
			t.Errorf("pinned: n01 is charged %v, n02 aimed at %v", got, s.Nodes["n02"].Target)
		}
	})
}
