// Claims: whatever befalls the servers (killed, cut off in one direction or both,
// slow, paused past its lease while it leads, added, promoted, removed, the lead
// handed over) and the nodes (deaf, mute, gone, with some of the servers only),
// what the nodes hold stays inside the budget and is charged, a leadership that is
// over grants nothing that was asked for after the next one began, what was
// acknowledged stays, once, and the servers end up alike.
package coordinator

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

var clusterSeeds = flag.Int("seeds", 6, "how many random histories of a cluster are run")

// A history that fails is run alone by its number: -run TestClusterSeeds/17.
func TestClusterSeeds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Sweep(*clusterSeeds)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { newHistory(t, seed).run() })
		})
	}
}

// history is one random history of a cluster.
type history struct {
	*cluster
	rng  *rand.Rand
	next int // number of the next server to be added

	reigns sync.Map // epoch -> when its first entry was applied anywhere

	done []string // requests that were acknowledged
	asks sync.WaitGroup
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{cluster: newCluster(t, 0, 700*units.Watt), rng: rand.New(rand.NewPCG(seed, 5)), next: 4}
	h.lines, h.charged = newLines(), true
	h.ids = []string{"c1", "c2", "c3"}
	h.first = slices.Clone(h.ids)
	h.fit = func(s *server) {
		var before units.Power
		s.machine.OnApplied = func(st *ledger.State, _ time.Duration) { // with the machine locked, after each entry
			h.reigns.LoadOrStore(st.Epoch, time.Now())
			sum := st.Totals()["site/lab"]
			now := sum.Reserved + sum.Unmanaged
			if now > sum.Budget && before != 0 && now > before {
				t.Errorf("P1: on %s an entry took what is charged from %v to %v, the budget is %v", s.cfg.ID, before, now, sum.Budget)
			}
			before = now
		}
	}
	for _, id := range h.ids {
		h.disks[id] = memory()
		h.start(id)
	}
	h.addNodes(3)
	h.leader()
	h.allHeld(6 * time.Second)
	return h
}

func (h *history) run() {
	const rounds = 8
	stop := make(chan struct{})
	rng := rand.New(rand.NewPCG(h.rng.Uint64(), 6))
	h.asks.Go(func() { h.operate(rng, stop) })
	h.suffer(rounds)
	close(stop)
	h.asks.Wait()
	h.settle()
	h.judge()
}

// suffer lets one fault after the other befall the cluster.
func (h *history) suffer(rounds int) {
	for range rounds {
		undo := h.fault()
		h.wait(15 * time.Second)
		undo()
		h.wait(5 * time.Second)
	}
}

// wait lets a random while pass; servers that the group has expelled end.
func (h *history) wait(most time.Duration) {
	until := time.Now().Add(time.Duration(h.rng.Int64N(int64(most))))
	for time.Now().Before(until) {
		h.oneReader()
		h.reap()
		time.Sleep(250 * time.Millisecond)
	}
}

// running are the servers that run, by id.
func (h *history) running() (out []string) {
	for _, id := range h.every() {
		if h.server(id) != nil && h.expelledWith(id) == nil {
			out = append(out, id)
		}
	}
	return out
}

// victim is a running server: the leader, two times of three.
func (h *history) victim() string {
	ids := h.running()
	for _, id := range ids {
		if h.server(id).requests.leads() && h.rng.IntN(3) > 0 {
			return id
		}
	}
	return ids[h.rng.IntN(len(ids))]
}

// fault does something to the cluster and returns what ends it.
func (h *history) fault() (undo func()) {
	id := h.victim()
	n := h.nodes[h.rng.IntN(len(h.nodes))]
	kind := h.rng.IntN(10)
	h.t.Logf("%s: fault %d, server %s, node %s", time.Now().Format("04:05.000"), kind, id, n.name)
	switch kind {
	case 0:
		h.kill(id)
		return func() { h.start(id) }
	case 1, 2, 3:
		keep := h.cling(id)
		h.cutLines(id, kind != 2, kind != 3)
		return func() { h.lines.mend(); keep() }
	case 4:
		keep, resume := h.cling(id), h.pause(id)
		return func() { resume(); keep() }
	case 5:
		for _, a := range h.every() {
			for _, b := range h.every() {
				h.lines.set("raft-"+a, "raft-"+b, false, time.Duration(h.rng.Int64N(int64(200*time.Millisecond))))
			}
		}
		return h.lines.mend
	case 6:
		h.change()
		return func() {}
	case 7:
		deaf := h.rng.IntN(3)
		n.set(func(n *node) { n.deaf, n.mute = deaf != 0, deaf != 1 })
		return func() { n.vanish(false) }
	case 8:
		n.set(func(n *node) { n.cutoff[id] = true })
		return func() { n.set(func(n *node) { delete(n.cutoff, id) }) }
	}
	n.set(func(n *node) { n.takes = time.Duration(h.rng.Int64N(int64(4 * time.Second))) })
	return func() { n.set(func(n *node) { n.takes = 100 * time.Millisecond }) }
}

// cutLines loses what a server sends, what is sent to it, or both.
func (h *history) cutLines(id string, sends, gets bool) {
	for _, other := range h.every() {
		h.lines.set("raft-"+id, "raft-"+other, sends, 0)
		h.lines.set("raft-"+other, "raft-"+id, gets, 0)
	}
}

// cling leaves some of the nodes with one server only, which is about to be cut off.
func (h *history) cling(id string) (undo func()) {
	undo = func() {}
	for _, n := range h.nodes {
		if h.rng.IntN(2) == 0 {
			continue
		}
		before := undo
		n.set(func(n *node) {
			for _, other := range h.every() {
				n.cutoff[other] = other != id
			}
		})
		undo = func() { before(); n.set(func(n *node) { clear(n.cutoff) }) }
	}
	return undo
}

// pause holds up a server as SIGSTOP does: its loop sleeps with what it knows, and
// whatever is on its lines arrives much later.
func (h *history) pause(id string) (undo func()) {
	long := 2*time.Second + time.Duration(h.rng.Int64N(int64(14*time.Second)))
	for _, other := range h.every() {
		h.lines.set("raft-"+id, "raft-"+other, false, long)
		h.lines.set("raft-"+other, "raft-"+id, false, long)
	}
	if d := h.server(id).requests.loop.Load(); d != nil {
		_ = d.Post(context.Background(), func(*leading.Known) { time.Sleep(long) })
	}
	return h.lines.mend
}

// change asks for a change of the group, and does not wait for what comes of it.
func (h *history) change() {
	s, ids := h.leader().server, h.running()
	id := ids[h.rng.IntN(len(ids))]
	ctx, m := context.Background(), memberService{s}
	kind := h.rng.IntN(4)
	if kind == 0 && h.next > 6 || kind == 2 && len(ids) < 4 {
		kind = 3
	}
	if kind == 0 {
		id = fmt.Sprintf("c%d", h.next)
		h.next++
		h.await(id)
	}
	h.asks.Go(func() {
		switch kind {
		case 0:
			_, _ = m.AddMember(ctx, connect.NewRequest(&headroomv1.AddMemberRequest{Id: id, RpcAddress: "rpc-" + id}))
		case 1:
			_, _ = m.PromoteMember(ctx, connect.NewRequest(&headroomv1.PromoteMemberRequest{Id: id}))
		case 2:
			_, _ = m.RemoveMember(ctx, connect.NewRequest(&headroomv1.RemoveMemberRequest{Id: id}))
		case 3:
			_, _ = m.TransferLead(ctx, connect.NewRequest(&headroomv1.TransferLeadRequest{Id: id}))
		}
	})
}

// operate changes the budget again and again, wherever somebody leads, and
// remembers what was acknowledged. A request without an answer is sent again.
func (h *history) operate(rng *rand.Rand, stop chan struct{}) {
	request, again := 0, false
	var r *headroomv1.SetBudgetRequest
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(3 * time.Second)))):
		}
		if !again {
			request++
			to := int64(units.Power(400+10*rng.IntN(31)) * units.Watt)
			r = &headroomv1.SetBudgetRequest{
				BudgetUw: to, ConfirmUw: to, Change: &headroomv1.Change{RequestId: fmt.Sprint("request ", request)},
			}
		}
		again = true
		for _, id := range h.running() {
			s := h.server(id)
			if s == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			out, err := clusterService{s.server}.SetBudget(ctx, connect.NewRequest(r))
			cancel()
			if _, elsewhere := rpc.LeaderOf(err); elsewhere {
				continue
			}
			if again = err != nil && connect.CodeOf(err) != connect.CodeFailedPrecondition; err == nil && !out.Msg.GetAlready() {
				h.done = append(h.done, r.GetChange().GetRequestId())
			}
			break
		}
	}
}

// settle waits until the cluster, left alone, is whole again.
func (h *history) settle() {
	h.lines.mend()
	for _, n := range h.nodes {
		n.set(func(n *node) { n.deaf, n.mute, n.takes = false, false, 100*time.Millisecond; clear(n.cutoff) })
	}
	h.until("every node holds a lease", time.Minute, func() bool { return h.held() == len(h.nodes) })
	h.until("the group is as the ledger says", 2*time.Minute, func() bool {
		return h.settled()
	})
	time.Sleep(10 * time.Second)
	h.reap()
}

// judge looks back on the history.
func (h *history) judge() {
	st := h.newest()
	for _, id := range h.done {
		if n := len(slices.DeleteFunc(slices.Clone(st.Requests), func(r ledger.Request) bool { return r.ID != id })); n != 1 {
			h.t.Errorf("%q was acknowledged, the log has it %d times", id, n)
		}
	}
	for _, n := range h.nodes {
		for _, g := range n.look().grants {
			h.inTime(n, g)
		}
	}
	if len(h.done) < 5 {
		h.t.Errorf("only %d requests were acknowledged: the history proves little", len(h.done))
	}
	h.alike()
}

// inTime is P3 from outside: a lease answers no heartbeat that was sent after a
// later leadership had begun.
func (h *history) inTime(n *node, g grantSeen) {
	n.mu.Lock()
	sent := n.sent[g.g.Heartbeat]
	n.mu.Unlock()
	h.reigns.Range(func(e, began any) bool {
		if e.(lease.Epoch).Compare(g.g.Stamp.Epoch) > 0 && began.(time.Time).Before(sent) {
			h.t.Errorf("%s took a lease of %v from %s for a heartbeat of %v, %v began at %v", n.name, g.g.Stamp, g.from, sent, e, began)
		}
		return true
	})
}
