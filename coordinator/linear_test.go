// Claims: to those who ask at the same time, through every fault of the servers,
// the budget is one register that each request changes once, a sprint is granted
// once or not at all and no joule of it is lost or made, and the targets that a
// node is granted never go back. A request without an answer may have been carried
// out or not, and later, but never twice. A history that says otherwise is found.
package coordinator

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/lease"
	"headroom/units"
)

var linearSeeds = flag.Int("linear-seeds", 4, "how many random histories are checked for linearizability")

// question is what a client asked for.
type question struct {
	key     string // what it is about: "budget", "sprint", "lease/n01"
	request string // of a change; empty for a read
	to      int64
	after   *uint64 // the change holds only if no other came after this revision
}

// reply is what the client was told, and found.
type reply struct {
	unknown, refused, already bool

	revision uint64
	budget   int64
	sprints  string // "id=stage" of each, sorted
	lost     int64  // joules that the books cannot explain, microjoules
	stamp    lease.Stamp
	cap      int64
}

// register is the state of the model of each key.
type register struct {
	revision uint64 // newest that anybody was told
	wrote    uint64 // newest of a change of the budget, as far as it was told
	budget   int64
	done     string // requests carried out, sorted
	sprints  string
	stamp    lease.Stamp
	cap      int64
}

// clusterModel is what clients may see.
func clusterModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(question).key
				byKey[key] = append(byKey[key], op)
			}
			var out [][]porcupine.Operation
			for _, ops := range byKey {
				out = append(out, ops)
			}
			return out
		},
		Init: func() any { return register{budget: int64(startBudget)} },
		Step: func(state, input, output any) (bool, any) {
			s, q, r := state.(register), input.(question), output.(reply)
			switch {
			case strings.HasPrefix(q.key, "lease/"):
				return s.granted(r)
			case q.key == "sprint":
				return s.sprint(q, r)
			}
			return s.setBudget(q, r)
		},
		DescribeOperation: describe,
	}
}

func describe(input, output any) string {
	q, r := input.(question), output.(reply)
	if q.after != nil {
		return fmt.Sprintf("%s to %d unless after %d -> %+v", q.request, q.to, *q.after, r)
	}
	return fmt.Sprintf("%s to %d -> %+v", q.request, q.to, r)
}

// carriedOut notes a request.
func (s register) carriedOut(request string) (again bool, after register) {
	all := strings.Fields(s.done)
	at, again := slices.BinarySearch(all, request)
	if !again {
		s.done = strings.Join(slices.Insert(all, at, request), " ") // sorted: the order is no part of the state
	}
	return again, s
}

func (s register) setBudget(q question, r reply) (bool, any) {
	switch {
	case q.request == "":
		next := s
		next.revision = r.revision
		return r.budget == s.budget && r.revision >= s.revision, next
	case r.refused:
		return true, s
	}
	again, next := s.carriedOut(q.request)
	if again {
		return r.unknown || r.already, s
	}
	if q.after != nil && s.wrote > *q.after {
		return r.unknown, s // somebody was told of a later change
	}
	next.budget = q.to
	if !r.unknown {
		next.revision, next.wrote = r.revision, r.revision
	}
	return r.unknown || !r.already && r.revision > s.revision, next
}

// sprint grants under an id, or reads which there are: stages only go on, and the
// books balance.
func (s register) sprint(q question, r reply) (bool, any) {
	switch {
	case q.request == "":
		next := s
		next.sprints = r.sprints
		return r.lost == 0 && goesOn(s.sprints, r.sprints), next
	case r.refused:
		return true, s
	}
	again, next := s.carriedOut(q.request)
	if again {
		return r.unknown || r.already, s
	}
	all := append(strings.Fields(s.sprints), q.request+"=0")
	slices.Sort(all)
	next.sprints = strings.Join(all, " ")
	return r.unknown || !r.already, next
}

// goesOn tells whether the same sprints are there, each at its stage or a later one.
func goesOn(before, now string) bool {
	a, b := strings.Fields(before), strings.Fields(now)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		idA, stageA, _ := strings.Cut(a[i], "=")
		idB, stageB, _ := strings.Cut(b[i], "=")
		if idA != idB || stageB < stageA {
			return false
		}
	}
	return true
}

// granted is a lease: its target is the one of the last or a later one.
func (s register) granted(r reply) (bool, any) {
	order := r.stamp.Epoch.Compare(s.stamp.Epoch)
	if order == 0 && r.stamp.Seq == s.stamp.Seq {
		return r.cap == s.cap, s
	}
	next := s
	next.stamp, next.cap = r.stamp, r.cap
	return order >= 0 && r.stamp.Seq >= s.stamp.Seq, next
}

const (
	// startBudget leaves room for a sprint of one node with all of them at their most.
	startBudget = 700 * units.Watt
	// sprintCapacity is put in before the history; nothing refills it then.
	sprintCapacity = 400 * units.Joule
)

// clients ask a cluster and write down what they are told.
type clients struct {
	*history
	mu  sync.Mutex
	ops []porcupine.Operation
}

func (c *clients) note(client int, called time.Time, q question, r reply) {
	op := porcupine.Operation{ClientId: client, Input: q, Call: called.UnixNano(), Output: r, Return: time.Now().UnixNano()}
	if r.unknown {
		op.Return = called.Add(24 * time.Hour).UnixNano() // it may be carried out at any time, or never
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
}

// put asks one server after the other until one that leads has answered.
func (c *clients) put(rng *rand.Rand, ask func(context.Context, clusterService) error) (answered bool, err error) {
	patience := []time.Duration{300 * time.Millisecond, 2 * time.Second, 10 * time.Second}[rng.IntN(3)]
	ids := c.running()
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		s := c.server(id)
		if s == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := ask(ctx, clusterService{s.server})
		cancel()
		if _, elsewhere := rpc.LeaderOf(err); !elsewhere {
			return true, err
		}
	}
	return false, nil
}

// certain tells whether an error says that nothing was done.
func certain(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeFailedPrecondition || code == connect.CodeAborted || code == connect.CodeNotFound || code == connect.CodeInvalidArgument
}

func told(err error, already bool, revision uint64) reply {
	return reply{unknown: err != nil && !certain(err), refused: err != nil && certain(err), already: already, revision: revision}
}

// budgets is a client that reads, and changes the budget: now and then only if
// nobody else has meanwhile; what has no answer it asks for again.
func (c *clients) budgets(client int, rng *rand.Rand, stop chan struct{}) {
	var open *question
	var seen uint64
	for n := 1; c.pause(rng, stop); n++ {
		if open == nil && rng.IntN(2) == 0 {
			called, r := time.Now(), reply{}
			if ok, err := c.put(rng, func(ctx context.Context, s clusterService) error {
				out, err := s.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{Domain: "site/lab"}))
				if err == nil {
					r.budget, r.revision = out.Msg.GetDomains()[0].GetBudgetUw(), out.Msg.GetMeta().GetRevision()
				}
				return err
			}); ok && err == nil {
				seen = r.revision
				c.note(client, called, question{key: "budget"}, r)
			}
			continue
		}
		if open == nil { // each value is asked for once in a history
			open = &question{key: "budget", request: fmt.Sprintf("b%d-%d", client, n), to: int64(690*units.Watt) + int64(client)*1_000_000 + int64(n)*1000}
			if rng.IntN(3) == 0 && seen > 0 {
				at := seen
				open.after = &at
			}
		}
		called, q, r := time.Now(), *open, reply{}
		ok, _ := c.put(rng, func(ctx context.Context, s clusterService) error {
			out, err := s.SetBudget(ctx, connect.NewRequest(&headroomv1.SetBudgetRequest{
				BudgetUw: q.to, ConfirmUw: q.to, Change: &headroomv1.Change{RequestId: q.request, CheckRevision: q.after},
			}))
			r = told(err, out != nil && out.Msg.GetAlready(), 0)
			if err == nil {
				r.revision = out.Msg.GetMeta().GetRevision()
			}
			return err
		})
		if ok {
			c.note(client, called, q, r)
			if !r.unknown {
				open = nil
			}
		}
	}
}

// sprints is a client that grants sprints, cancels some, and reads the books.
func (c *clients) sprints(client int, rng *rand.Rand, stop chan struct{}) {
	var open *question
	for n := 1; c.pause(rng, stop); n++ {
		if open == nil && rng.IntN(2) == 0 {
			c.readSprints(client, rng)
			continue
		}
		if open == nil {
			open = &question{key: "sprint", request: fmt.Sprintf("s%d-%03d", client, n)}
		}
		called, q, r := time.Now(), *open, reply{}
		ok, _ := c.put(rng, func(ctx context.Context, s clusterService) error {
			out, err := s.Change(ctx, connect.NewRequest(&headroomv1.ChangeRequest{
				Change: &headroomv1.Change{RequestId: q.request}, What: &headroomv1.ChangeRequest_GrantSprint{GrantSprint: &headroomv1.GrantSprint{
					Id: q.request, Nodes: []string{c.nodes[rng.IntN(len(c.nodes))].name}, DurationMs: 2000, CapUw: int64(210 * units.Watt),
				}},
			}))
			r = told(err, out != nil && out.Msg.GetAlready(), 0)
			return err
		})
		if ok {
			c.note(client, called, q, r)
			if !r.unknown {
				open = nil
			}
		}
	}
}

func (c *clients) readSprints(client int, rng *rand.Rand) {
	called, r := time.Now(), reply{}
	ok, err := c.put(rng, func(ctx context.Context, s clusterService) error {
		out, err := s.ListSprints(ctx, connect.NewRequest(&headroomv1.ListSprintsRequest{All: true}))
		if err != nil {
			return err
		}
		sum, stages := int64(0), []string{}
		for _, p := range out.Msg.GetSprints() {
			stage := map[string]string{"open": "0", "ending": "1", "closed": "2"}[p.GetState()]
			stages = append(stages, p.GetId()+"="+stage)
			sum += p.GetEscrowUj() - p.GetRefundedUj()
		}
		for _, d := range out.Msg.GetDomains() {
			for _, pot := range d.GetSprint().GetPots() {
				sum += pot.GetBalanceUj()
			}
		}
		slices.Sort(stages)
		r = reply{sprints: strings.Join(stages, " "), lost: int64(sprintCapacity) - sum, revision: out.Msg.GetMeta().GetRevision()}
		return nil
	})
	if ok && err == nil {
		c.note(client, called, question{key: "sprint"}, r)
	}
}

// pause waits, and tells whether the client goes on.
func (c *clients) pause(rng *rand.Rand, stop chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(time.Duration(rng.Int64N(int64(400 * time.Millisecond)))):
		return true
	}
}

// endow fills the sprint budget and lets nothing refill it any more.
func (c *clients) endow() {
	for _, refill := range []units.Power{1000 * units.Watt, 0} {
		c.cluster.operate(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{SetSprintBudget: &headroomv1.SetSprintBudget{
			CapacityUj: int64(sprintCapacity), RefillUw: int64(refill),
		}}})
		time.Sleep(5 * time.Second)
	}
	c.until("every node has its most", time.Minute, func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.look().cap != 200*units.Watt })
	})
}

// leases are the grants that the nodes took, each between its heartbeat and its
// arrival. Of those that say the same of one heartbeat the first one tells most.
func (c *clients) leases() {
	for i, n := range c.nodes {
		seen := map[string]bool{}
		for _, g := range n.look().grants {
			what := fmt.Sprint(g.g.Heartbeat, g.g.Stamp, g.g.Cap)
			if seen[what] {
				continue
			}
			seen[what] = true
			c.ops = append(c.ops, porcupine.Operation{
				ClientId: 10 + i, Input: question{key: "lease/" + n.name}, Call: n.sent[g.g.Heartbeat].UnixNano(),
				Output: reply{stamp: g.g.Stamp, cap: int64(g.g.Cap)}, Return: g.at.UnixNano(),
			})
		}
	}
}

// record runs one history and returns what was seen.
func record(t *testing.T, seed uint64) (ops []porcupine.Operation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &clients{history: newHistory(t, seed)}
		c.endow()
		c.lines.slow(time.Duration(c.rng.Int64N(int64(60 * time.Millisecond)))) // so that faults come in the middle of things
		stop := make(chan struct{})
		for i := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			c.asks.Go(func() { c.budgets(i, rng, stop) })
			if i < 2 {
				also := rand.New(rand.NewPCG(seed, uint64(200+i)))
				c.asks.Go(func() { c.sprints(5+i, also, stop) })
			}
		}
		c.suffer(3)
		close(stop)
		c.asks.Wait()
		c.settle()
		c.readSprints(9, rand.New(rand.NewPCG(seed, 9)))
		c.leases()
		ops = c.ops
	})
	return ops
}

// thorough bounds one check; one takes milliseconds.
const thorough = 10 * time.Second

// A history that fails is run alone by its number: -run TestLinearizable/3.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Sweep(*linearSeeds)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ops := record(t, seed)
			counts := map[string]int{}
			for _, op := range ops {
				q, r := op.Input.(question), op.Output.(reply)
				key, _, _ := strings.Cut(q.key, "/")
				if q.request == "" {
					key += " read"
				}
				if r.unknown {
					key += " unknown"
				}
				counts[key]++
			}
			for _, part := range clusterModel().Partition(ops) {
				linear(t, part)
			}
			t.Log(counts)
			for _, key := range []string{"budget", "budget read", "sprint", "sprint read", "lease read"} {
				if counts[key] < 3 {
					t.Errorf("%d of %q: the history proves little", counts[key], key)
				}
			}
		})
	}
}

// unseen finds the requests without an answer of which nothing was ever seen. They
// may have been carried out after all else, so they say nothing; and with many of
// them a check would take for ever.
func unseen(part []porcupine.Operation) func(porcupine.Operation) bool {
	seen := map[string]bool{}
	for _, op := range part {
		q, r := op.Input.(question), op.Output.(reply)
		if q.request != "" && r.already {
			seen[q.request] = true
		}
		if q.request == "" {
			seen[fmt.Sprint(r.budget)] = true
			for p := range strings.FieldsSeq(r.sprints) {
				id, _, _ := strings.Cut(p, "=")
				seen[id] = true
			}
		}
	}
	return func(op porcupine.Operation) bool {
		q := op.Input.(question)
		return op.Output.(reply).unknown && !seen[q.request] && (q.to == 0 || !seen[fmt.Sprint(q.to)])
	}
}

// linear checks what was said of one thing. Of a history that is not, the shortest
// beginning that is not is shown, its last replies.
func linear(t *testing.T, part []porcupine.Operation) {
	t.Helper()
	model := clusterModel()
	model.Partition = nil
	part = slices.DeleteFunc(part, unseen(part))
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	good := func(n int) porcupine.CheckResult { // the first n replies, and what was asked before and never answered
		ops := slices.Clone(part[:n])
		for _, op := range part[n:] {
			if n > 0 && op.Output.(reply).unknown && op.Call < part[n-1].Return {
				ops = append(ops, op)
			}
		}
		return porcupine.CheckOperationsTimeout(model, ops, thorough)
	}
	got := good(len(part))
	if got == porcupine.Ok {
		return
	}
	n := sort.Search(len(part), func(n int) bool { return good(n) != porcupine.Ok })
	t.Errorf("%s: the history of %s, from its reply %d of %d on", got, part[0].Input.(question).key, n, len(part))
	for _, op := range part[max(0, n-12):n] {
		t.Logf("client %d, %v to %v: %s", op.ClientId, time.Duration(op.Call-part[0].Call), time.Duration(op.Return-part[0].Call), model.DescribeOperation(op.Input, op.Output))
	}
	for _, op := range part[n:] {
		if op.Output.(reply).unknown {
			t.Logf("client %d, from %v: %s", op.ClientId, time.Duration(op.Call-part[0].Call), model.DescribeOperation(op.Input, op.Output))
		}
	}
}

// The model takes no history that is wrong.
func TestModelFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	at := func(call, back int64, q question, r reply) porcupine.Operation {
		return porcupine.Operation{Input: q, Call: call, Output: r, Return: back}
	}
	set := func(id string, to int64) question { return question{key: "budget", request: id, to: to} }
	read := question{key: "budget"}
	sprint := question{key: "sprint"}
	put := question{key: "sprint", request: "s1"}
	lease1 := question{key: "lease/n01"}
	stamp := func(term, seq uint64) lease.Stamp {
		return lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: term}, Seq: seq}
	}
	seen := uint64(3)
	for name, c := range map[string]struct {
		want porcupine.CheckResult
		ops  []porcupine.Operation
	}{
		"one after the other": {porcupine.Ok, []porcupine.Operation{
			at(0, 1, set("a", 5), reply{revision: 4}), at(2, 3, read, reply{budget: 5, revision: 4}),
		}},
		"a read from before": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, set("a", 5), reply{revision: 4}), at(2, 3, read, reply{budget: int64(startBudget), revision: 3}),
		}},
		"at the same time, either": {porcupine.Ok, []porcupine.Operation{
			at(0, 9, set("a", 5), reply{revision: 4}), at(2, 3, read, reply{budget: int64(startBudget), revision: 3}),
		}},
		"a request twice": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, set("a", 5), reply{revision: 4}), at(2, 3, set("b", 6), reply{revision: 5}), at(4, 5, set("a", 5), reply{revision: 6}),
		}},
		"said to be done before, and was not": {porcupine.Illegal, []porcupine.Operation{at(0, 1, set("a", 5), reply{already: true})}},
		"without an answer, carried out later": {porcupine.Ok, []porcupine.Operation{
			at(0, 99, set("a", 5), reply{unknown: true}), at(2, 3, read, reply{budget: int64(startBudget)}), at(4, 5, read, reply{budget: 5}),
		}},
		"without an answer, carried out and taken back": {porcupine.Illegal, []porcupine.Operation{
			at(0, 99, set("a", 5), reply{unknown: true}), at(2, 3, read, reply{budget: 5}), at(4, 5, read, reply{budget: int64(startBudget)}),
		}},
		"refused, and yet there": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, set("a", 5), reply{refused: true}), at(2, 3, read, reply{budget: 5}),
		}},
		"checked against what has changed": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, set("a", 5), reply{revision: 4}), at(2, 3, question{key: "budget", request: "b", to: 6, after: &seen}, reply{revision: 5}),
		}},
		"a sprint that is forgotten": {porcupine.Illegal, []porcupine.Operation{at(0, 1, put, reply{}), at(2, 3, sprint, reply{})}},
		"a sprint that begins again": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, put, reply{}), at(2, 3, sprint, reply{sprints: "s1=2"}), at(4, 5, sprint, reply{sprints: "s1=0"}),
		}},
		"joules that nobody spent": {porcupine.Illegal, []porcupine.Operation{at(0, 1, sprint, reply{lost: 1})}},
		"a target that goes back": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, lease1, reply{stamp: stamp(2, 5)}), at(2, 3, lease1, reply{stamp: stamp(2, 4)}),
		}},
		"a leadership that comes back": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, lease1, reply{stamp: stamp(3, 5)}), at(2, 3, lease1, reply{stamp: stamp(2, 6)}),
		}},
		"one target, two caps": {porcupine.Illegal, []porcupine.Operation{
			at(0, 1, lease1, reply{stamp: stamp(2, 5), cap: 1}), at(2, 3, lease1, reply{stamp: stamp(2, 5), cap: 2}),
		}},
	} {
		if got := porcupine.CheckOperationsTimeout(clusterModel(), c.ops, thorough); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
