// Claims: a stream node is to a coordinator what powerd is: it takes a grant, holds it at
// once, acknowledges what it holds, and reports what its load draws and wants; it says when
// each of its heartbeats was answered; without answers its lease ends.
package bench

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

func TestStreamNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards both
		var stood []standing
		var took []time.Duration
		locked := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		stands := func() (s standing) {
			synctest.Wait() // what it tells is told
			locked(func() { s = stood[len(stood)-1] })
			return s
		}
		n := newStreamNode("n01", streamWatch{
			busy:    func(time.Duration) float64 { return 0.9 },
			stands:  func(s standing) { locked(func() { stood = append(stood, s) }) },
			replied: func(d time.Duration) { locked(func() { took = append(took, d) }) },
		})
		l := &streamLink{send: make(chan *headroomv1.NodeMessage, 4)}
		n.links = []*streamLink{l}
		ctx, cancel := context.WithCancel(t.Context())
		defer n.wait()
		defer cancel()
		n.ended.Go(func() { n.run(ctx) })
		n.events <- streamEvent{link: l, up: true}

		next := func() *headroomv1.Heartbeat {
			select {
			case m := <-l.send:
				return m.GetHeartbeat()
			case <-time.After(10 * time.Second):
				t.Fatal("no heartbeat")
				return nil
			}
		}
		grant := func(seq uint64, p units.Power) *headroomv1.Heartbeat {
			to := next().GetNumber()
			time.Sleep(20 * time.Millisecond)
			n.events <- streamEvent{link: l, up: true, msg: &headroomv1.CoordinatorMessage{
				Message: &headroomv1.CoordinatorMessage_Lease{Lease: wire.LeaseMessage(lease.Grant{
					Stamp: lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 1}, Seq: seq}, Cap: p, FailSafe: 95 * units.Watt,
					Duration: 3 * time.Second, Heartbeat: to, Process: n.hello.GetProcessId(),
				})},
			}}
			return next()
		}
		grant(1, 120*units.Watt)
		hb := grant(2, 110*units.Watt)
		h := hb.GetHolding()
		if h.GetState() != headroomv1.LeaseState_LEASE_STATE_HELD || h.GetApplied().GetSeq() != 2 || h.GetEffectiveUw() != int64(110*units.Watt) {
			t.Errorf("acknowledged %v, want 110 W held", h)
		}
		if hb = next(); hb.GetPowerUw() != int64(110*units.Watt) || hb.GetDemandUw() != int64(186*units.Watt) {
			t.Errorf("draws %v of 110 W and wants %v, want 0.9 of the way from the floor to the most", hb.GetPowerUw(), hb.GetDemandUw())
		}
		if s := stands(); s.cap != 110*units.Watt || !s.held || s.stamp.Seq != 2 {
			t.Errorf("stands at %+v", s)
		}
		for range 3 {
			next() // and nobody answers
		}
		time.Sleep(100 * time.Millisecond)
		if s := stands(); s.held || s.cap != 95*units.Watt || s.why != lease.RanOut {
			t.Errorf("without answers it stands at %+v", s)
		}
		cancel()
		n.wait()
		if len(took) == 0 {
			t.Error("no heartbeat was answered")
		}
		for _, d := range took {
			if d < 20*time.Millisecond || d > 3*time.Second {
				t.Errorf("an answer took %v", d)
			}
		}
	})
}
