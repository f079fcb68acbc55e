package master

// Claims, over real streams: slots that an application holds are those of the group's workers, so that tasks of distributors wait for
// them; what is given back runs tasks; high priority overtakes; a worker that is lost takes its slots with it.

import (
	"testing"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
)

func TestSlotsAreTheGroups(t *testing.T) {
	t.Parallel()
	m := serve(t, Config{Name: "m1", Group: "rack/r1"})
	w := work(t, "n01", 2, true, m.address)
	testkit.Eventually(t, patience, "worker", func() bool { return m.see(t).GetState().GetWorkers() == 1 })
	peers := rpc.PlainPeers()
	t.Cleanup(peers.Close)
	client := headroomv1connect.NewSlotServiceClient(peers.HTTP(), peers.URL(m.address), peers.Options()...)
	report := func(r *headroomv1.SlotReport) *headroomv1.SlotGrants {
		t.Helper()
		return testkit.Need(client.Report(t.Context(), connect.NewRequest(r)))(t).Msg
	}

	g := report(&headroomv1.SlotReport{Application: "a", WantLow: 2})
	if !g.GetActive() || len(g.GetSlots()) != 2 || g.GetSlots()[0].GetNode() != "n01" || g.GetUsable() != 2 || g.GetGroup() != "rack/r1" {
		t.Fatalf("granted %v", g)
	}
	held := func(from int) *headroomv1.SlotReport {
		return &headroomv1.SlotReport{Application: "a", Instance: g.GetInstance(), Seen: g.GetSlots()[1].GetNumber(), Held: g.GetSlots()[from:]}
	}
	s := connectTo(t, m.address)
	s.place(tasks("j", 0, 3), false)
	testkit.Eventually(t, patience, "tasks wait for slots that an application holds", func() bool { return m.see(t).GetState().GetWaitingLow() == 3 })
	if n := s.results(); n != 0 {
		t.Errorf("%d tasks ran beside two held slots of two", n)
	}
	if again := report(held(0)); len(again.GetSlots()) != 0 {
		t.Errorf("granted once more: %v", again)
	}
	report(held(1)) // one is given back
	testkit.Eventually(t, patience, "tasks run on the slot that was given back", func() bool { return s.results() == 3 })

	high := held(1)
	high.WantHigh = 1
	if h := report(high); len(h.GetSlots()) != 1 || !h.GetSlots()[0].GetHigh() {
		t.Errorf("a high wish beside a free slot: %v", h)
	}
	w.cancel()
	testkit.Eventually(t, patience, "a lost worker's slots are gone", func() bool {
		state := m.see(t).GetState()
		return state.GetRunningLow()+state.GetRunningHigh() == 0
	})
	report(&headroomv1.SlotReport{Application: "a", Bye: true})
}
