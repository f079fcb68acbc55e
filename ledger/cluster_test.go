// Claim: with nodes that obey but are lost, restarted, moved, drained, switched
// off and sprinted at random, with leases and heartbeats that come late, twice or
// in another order, and with leaders, budgets, brakes and restored snapshots that
// come and go: what the leader decides is always accepted, no node ever holds more
// than it is charged, and all of it comes to rest.
package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// cluster is a few nodes with the real lease holder, and one leader.
type cluster struct {
	state  *ledger.State
	table  *ledger.Table
	now    time.Duration
	nodes  []*obedient
	saved  string // a snapshot of some time ago
	sprint int
	steady bool // nothing is lost or delayed any more
}

// obedient is one node. It holds what its lease says, or its fail-safe cap.
type obedient struct {
	ledger.Sighting
	holder  *lease.Holder
	beats   uint64
	demand  units.Power
	silent  bool // it is not heard, and hears nothing
	off     bool // it is switched off
	uncaps  bool // it was released, and draws what it likes
	running string
	since   time.Duration
	spent   map[string]units.Energy // what each sprint has really taken
	ended   []ledger.SprintSpent
	over    map[string]bool
	late    []lease.Grant   // on their way
	posted  []ledger.Report // on their way
}

func drawCluster(t *rapid.T) *cluster {
	k := &cluster{state: drawState(t), table: ledger.NewTable(ledger.DefaultTiming(), 0)}
	k.saved = bytesOf(t, k.state)
	for _, name := range someNames()[:1+rng(t, 4, "nodes")] {
		x := drawSighting(t, name)
		n := &obedient{Sighting: x, demand: drawPower(t, "demand"), over: map[string]bool{}, spent: map[string]units.Energy{}}
		n.holder = lease.New(x.Process, lease.Memory{FailSafe: x.FailSafe}, k.instant())
		k.nodes = append(k.nodes, n)
	}
	return k
}

func (k *cluster) instant() lease.Instant { return lease.Instant{Boot: k.now, Awake: k.now} }

// holds is the most that the node draws now.
func (n *obedient) holds() units.Power {
	held, _ := n.holder.Cap()
	switch {
	case n.off:
		return 0
	case n.uncaps:
		return n.Rated
	case n.running != "":
		s, _ := n.holder.Sprint()
		return max(held, s.Cap)
	}
	return held
}

// advance tells the node the time. A sprint spends until its lease, its time or its escrow is over.
func (n *obedient) advance(now lease.Instant) {
	n.holder.Advance(now)
	base, _ := n.holder.Cap()
	s, offered := n.holder.Sprint()
	if n.running != "" {
		if s.ID == n.running {
			n.spent[s.ID] = min(s.Escrow, n.spent[s.ID]+(s.Cap-base).For(now.Boot-n.since))
		}
		n.since = now.Boot
		if s.ID != n.running || n.spent[s.ID] >= s.Escrow {
			n.endSprint(true)
		}
	}
	if n.running == "" && offered && !n.over[s.ID] && !n.off && !n.uncaps {
		n.running, n.since = s.ID, now.Boot
	}
}

func (n *obedient) endSprint(measured bool) {
	e := ledger.SprintSpent{ID: n.running}
	if measured {
		e.Spent = new(n.spent[n.running])
	}
	n.ended, n.over[n.running] = append(n.ended, e), true
	n.running = ""
}

// restart is another process of the node's powerd, after a kill -9 or a boot.
func (n *obedient) restart(t *rapid.T, now lease.Instant) {
	if n.running != "" {
		n.endSprint(false)
	}
	n.Process++
	m := n.holder.Memory()
	m.FailSafe = min(m.FailSafe, n.FailSafe)
	n.holder, n.beats, n.ended = lease.New(n.Process, m, now), 0, nil
	n.off, n.uncaps, n.silent = false, false, false
	if rarely(t, 3, "reconfigured") {
		x := drawSighting(t, n.Node)
		n.Controlled, n.Weight = x.Controlled, x.Weight
		n.Floor, n.FailSafe, n.Max = min(x.Floor, n.Rated), min(x.FailSafe, n.Rated), min(x.Max, n.Rated)
		n.holder.SetFailSafe(min(m.FailSafe, n.FailSafe))
	}
}

// beat sends a heartbeat. It may take its time, or come twice.
func (k *cluster) beat(t *rapid.T, n *obedient) {
	n.beats++
	n.holder.Sent(n.beats, k.instant())
	demand := n.demand
	r := ledger.Report{
		Sighting: n.Sighting, Number: n.beats, Highest: n.holder.Memory().Highest, Effective: n.holds(), EffectiveKnown: n.Controlled,
		Stored: n.holder.Memory().FailSafe, Brake: n.holder.Memory().Brake, Sprint: n.running, Ended: slices.Clone(n.ended), Demand: &demand,
	}
	n.posted = append(n.posted, r)
	for i := 0; i < len(n.posted); i++ {
		if k.steady || !rarely(t, 5, "late report") {
			k.table.Heard(n.posted[i], k.now)
			if k.steady || !rarely(t, 20, "report twice") {
				n.posted = slices.Delete(n.posted, i, i+1)
				i--
			}
		}
	}
	n.posted = n.posted[max(0, len(n.posted)-20):]
}

// take lets the node have what is on its way to it.
func (k *cluster) take(t *rapid.T, n *obedient) {
	for i := 0; i < len(n.late); i++ {
		if !k.steady && rarely(t, 5, "late lease") {
			continue
		}
		if err := n.holder.Take(n.late[i], k.instant()); err == nil {
			n.advance(k.instant())
			k.covered(t)
		}
		if k.steady || !rarely(t, 20, "lease twice") {
			n.late = slices.Delete(n.late, i, i+1)
			i--
		}
	}
	n.late = n.late[max(0, len(n.late)-20):]
}

// round is one tick: reports, decision, entry, leases. It returns what was decided.
func (k *cluster) round(t *rapid.T) ledger.Tick {
	k.now += second
	for _, n := range k.nodes {
		n.advance(k.instant())
		if !n.silent && !n.off {
			k.beat(t, n)
		}
	}
	k.know(t)
	k.table.Mark()
	tick := ledger.Decide(k.state, k.table, k.now)
	tick.Elapsed = second
	if _, err := k.state.Apply(ledger.Command{Epoch: k.state.Epoch, Tick: &tick}); err != nil {
		t.Fatalf("Apply refuses what Decide made of the same state: %v\n%+v", err, tick)
	}
	k.covered(t)
	for _, g := range k.table.Grants(k.state, k.now) {
		n := k.nodes[slices.IndexFunc(k.nodes, func(n *obedient) bool { return n.Node == g.Node })]
		if n.late = append(n.late, g.Grant); !n.silent && !n.off && !n.uncaps {
			k.take(t, n)
		}
	}
	return tick
}

// know commits what the leader has to know before it decides: a brake, a newer incarnation.
func (k *cluster) know(t *rapid.T) {
	if g := k.table.Brake(); g > k.state.Brake.Set {
		k.commit(t, ledger.Command{Brake: &ledger.SetBrake{Generation: g}})
	}
	if k.state.Restored && k.table.Incarnation() > k.state.Epoch.Incarnation {
		k.commit(t, ledger.Command{Reincarnate: &ledger.Reincarnate{Above: k.table.Incarnation()}})
		k.lead(t)
	}
}

// covered is promise P4: no node holds more than it is charged, wherever it is known.
func (k *cluster) covered(t *rapid.T) {
	k.paidFor(t)
	for _, n := range k.nodes {
		known, ok := k.state.Nodes[n.Node] // one that stops controlling is asked to release first
		if ok && known.Off == "" && n.Controlled && n.holds() > known.Charge() {
			t.Fatalf("%s holds %v and is charged %v: %+v, memory %+v, %+v", n.Node, n.holds(), known.Charge(), known, n.holder.Memory(), n)
		}
	}
}

// paidFor is promise P8: of a sprint that is closed, no node has spent more than
// it is charged, and none ever will.
func (k *cluster) paidFor(t *rapid.T) {
	for id, p := range k.state.Sprints {
		for _, n := range k.nodes {
			x, part := p.Shares[n.Node]
			charged := x.Escrow // where a log was lost, too
			if x.Settled && x.Spent != nil {
				charged = *x.Spent
			}
			if part && p.Closed && n.spent[id] > charged {
				t.Fatalf("%s has spent %v of sprint %s, charged %v: %+v", n.Node, n.spent[id], id, charged, p)
			}
		}
	}
}

// commit has a command of the leader's carried out, or refused.
func (k *cluster) commit(t *rapid.T, c ledger.Command) bool {
	c.Epoch = k.state.Epoch
	_, err := k.state.Apply(c)
	k.covered(t)
	return err == nil
}

func (k *cluster) lead(t *rapid.T) {
	epoch := k.state.Epoch
	epoch.Term++
	if _, err := k.state.Apply(ledger.Command{Epoch: epoch, Lead: &ledger.Lead{Server: "c2"}}); err != nil {
		t.Fatal(err)
	}
	k.table = ledger.NewTable(ledger.DefaultTiming(), k.now)
}

func quiet(t ledger.Tick) bool {
	return len(t.Seen)+len(t.Acks)+len(t.Admit)+len(t.Targets)+len(t.Lapsed)+len(t.EndSprints) == 0
}

// disturb lets something happen to a node, or an operator do something.
func (k *cluster) disturb(t *rapid.T) {
	n := k.nodes[rng(t, len(k.nodes), "which")]
	known := k.state.Nodes[n.Node]
	switch rng(t, 20, "what") {
	case 0, 1:
		n.silent = !n.silent
	case 2:
		n.demand = drawPower(t, "demand")
	case 3:
		n.restart(t, k.instant())
	case 4, 5:
		k.setBudget(t)
	case 6:
		k.lead(t)
	case 7:
		k.saved = bytesOf(t, k.state)
	case 8:
		k.restore(t)
	case 9: // an hour passes for nobody, a minute for all
		k.now += time.Duration(rng(t, 60, "seconds")) * second
		for _, n := range k.nodes {
			n.advance(k.instant())
		}
		k.covered(t)
	case 10:
		if n.silent = true; k.commit(t, ledger.Command{Release: &ledger.Release{Node: n.Node, MachineID: n.MachineID}}) {
			n.holder.Drop()
			n.advance(k.instant())
			n.uncaps = true
			k.covered(t)
		}
	case 11: // it is off, and after some time somebody says so
		n.off, n.silent = true, true
		n.advance(k.instant())
		k.now += 5 * second
		k.commit(t, ledger.Command{PowerOff: &ledger.PowerOff{Node: n.Node, By: "bmc"}})
	case 12:
		if v, ok := k.table.View(n.Node, k.now); n.silent && (!ok || v.Age > ledger.DefaultTiming().Lost) {
			k.commit(t, ledger.Command{Remove: &ledger.RemoveNode{Node: n.Node, PoweredOff: n.off}})
		}
	case 13:
		generation := k.state.Brake.Set + 1
		for _, n := range k.nodes {
			if rapid.Bool().Draw(t, "hears of the brake") {
				n.holder.Brake(generation)
				n.advance(k.instant())
			}
		}
		if rapid.Bool().Draw(t, "the log hears") {
			k.commit(t, ledger.Command{Brake: &ledger.SetBrake{Generation: generation}})
		}
	case 14:
		k.commit(t, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: k.state.Brake.Set}})
	case 15, 16:
		caps := []ledger.Target{{Node: n.Node, Cap: drawCap(t, known)}}
		k.sprint++
		k.commit(t, ledger.Command{Sprint: &ledger.GrantSprint{
			ID: fmt.Sprint("s", k.sprint), Domain: "site/lab", Duration: time.Duration(1+rng(t, 8, "duration")) * second, Caps: caps,
		}})
	default:
		var c ledger.Command
		drawNodeCommand(t, k.state, &c)
		if rarely(t, 4, "of domains") {
			c = ledger.Command{}
			drawOrder(t, k.state, &c)
			c.RemoveDomain = nil // who stands in it would be nowhere
		}
		if c.Node == nil && c.Move == nil && c.Drain == nil && c.Domain == nil {
			c = ledger.Command{Policy: &ledger.Named{Name: rapid.SampledFrom([]string{"equal", "demand", "progress"}).Draw(t, "policy")}}
		}
		k.commit(t, c)
	}
}

// restore is the end of the log: what was saved some time ago begins a new incarnation.
func (k *cluster) restore(t *rapid.T) {
	budgets := map[string]units.Power{}
	s, err := ledger.Restore([]byte(k.saved))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range s.Domains {
		budgets[name] = d.Budget
	}
	if err := s.Recover(budgets, int64((time.Minute+k.now)/time.Microsecond), "mia", "the disks are gone"); err != nil {
		t.Fatal(err)
	}
	s.AssumeLeases(10 * second)
	k.state = s
	k.lead(t)
	k.covered(t)
}

// setBudget does as a coordinator does: plan, then one entry with the lowers.
func (k *cluster) setBudget(t *rapid.T) {
	domain := rapid.SampledFrom(slices.Sorted(maps.Keys(k.state.Domains))).Draw(t, "domain")
	to := max(watt, 3*drawPower(t, "budget"))
	plan, err := ledger.PlanBudget(k.state, k.table, k.now, domain, to)
	if err != nil {
		return // above its rating
	}
	set := &ledger.SetBudget{Domain: domain, Budget: to, Force: true, Targets: plan.Lowers()}
	if _, err := k.state.Apply(ledger.Command{Epoch: k.state.Epoch, Budget: set}); err != nil {
		t.Fatalf("Apply refuses what PlanBudget made of the same state: %v\n%+v", err, set)
	}
	k.covered(t)
}

// calm ends all disturbance: everybody is found, nothing is late, the brake is lifted.
func (k *cluster) calm(t *rapid.T) {
	k.steady = true
	for _, n := range k.nodes {
		if n.silent = false; n.off || n.uncaps {
			n.restart(t, k.instant())
		}
		k.commit(t, ledger.Command{Drain: &ledger.DrainNode{Node: n.Node, Resume: true}})
	}
	for _, p := range k.state.SprintsByTime() {
		k.commit(t, ledger.Command{EndSprint: &ledger.EndSprint{ID: p.ID}})
	}
	k.round(t)
	k.commit(t, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: k.state.Brake.Set}})
}

// Rounds of decision and read-back come to rest within a few, whatever
// happened before: then nothing is decided any more, everybody who may have a
// lease has one, and no domain is over that could be brought under.
func TestClusterIsCoveredAndComesToRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for range rapid.IntRange(0, 30).Draw(t, "rounds") {
			if rapid.Bool().Draw(t, "disturbed") {
				k.disturb(t)
			}
			k.round(t)
		}
		k.calm(t)
		rest := 0
		for i := 0; rest < 3; i++ {
			if i > 60 {
				t.Fatalf("no rest after %d rounds: %+v\n%s", i, k.round(t), bytesOf(t, k.state))
			}
			if quiet(k.round(t)) && !k.state.Restored {
				rest++
			} else {
				rest = 0
			}
		}
		k.atRest(t)
	})
}

func (k *cluster) atRest(t *rapid.T) {
	totals := k.state.Totals()
	for _, n := range k.nodes {
		known := k.state.Nodes[n.Node]
		above := k.state.Tree().Above(known.Domain)
		short := slices.ContainsFunc(above, func(d string) bool { return totals[d].Headroom() < 0 })
		held, state := n.holder.Cap()
		switch {
		case !k.state.Tree().Has(n.Domain) && known.Name == "":
		case !n.Controlled:
		case !known.Admitted && !short:
			t.Fatalf("%s waits although %s has room", n.Node, known.Domain)
		case known.Admitted && (state != lease.Held || held != known.Target):
			t.Fatalf("%s holds %v (%v, %v), its target is %v: %+v\nmemory %+v, epoch %v", n.Node, held, state, n.holder.Why(), known.Target, known, n.holder.Memory(), k.state.Epoch)
		case known.Admitted && short && known.Charge() > max(known.Least(), known.Stored):
			t.Fatalf("%s is short and %s is charged %v, its least is %v", known.Domain, n.Node, known.Charge(), known.Least())
		case known.Owes != "" || known.From != "" || known.Unproven:
			t.Fatalf("%s is left with %+v", n.Node, known)
		}
	}
	if k.state.Restored || k.state.Brake.Active() {
		t.Fatalf("restored %v, brake %+v", k.state.Restored, k.state.Brake)
	}
}

// The order in which nodes were heard, and in which domains were given, does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for range rapid.IntRange(0, 6).Draw(t, "rounds") {
			k.disturb(t)
			k.round(t)
		}
		tables := [2]*ledger.Table{ledger.NewTable(ledger.DefaultTiming(), 0), ledger.NewTable(ledger.DefaultTiming(), 0)}
		for i, order := range [2][]*obedient{k.nodes, rapid.Permutation(k.nodes).Draw(t, "order")} {
			for _, n := range order {
				tables[i].Heard(ledger.Report{Sighting: n.Sighting, Number: 1 << 40, Highest: n.holder.Memory().Highest, Effective: n.holds(), EffectiveKnown: true, Stored: n.FailSafe}, k.now)
			}
		}
		one, two := ledger.Decide(k.state, tables[0], k.now), ledger.Decide(k.state, tables[1], k.now)
		if a, b := fmt.Sprintf("%+v", one), fmt.Sprintf("%+v", two); a != b {
			t.Fatalf("decided %s\nand %s", a, b)
		}
	})
}

// Deciding changes nothing.
func TestDecideChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for range rapid.IntRange(0, 6).Draw(t, "rounds") {
			k.disturb(t)
			before := bytesOf(t, k.state)
			ledger.Decide(k.state, k.table, k.now)
			if _, err := ledger.PlanBudget(k.state, k.table, k.now, "site/lab", watt); err != nil {
				t.Fatal(err)
			}
			if bytesOf(t, k.state) != before {
				t.Fatal("the state changed")
			}
			k.round(t)
		}
	})
}

// A node that nothing is heard of is charged the same for ever, where its domain
// keeps what lost nodes are charged.
func TestLostNodeLaw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for name := range k.state.Domains {
			k.commit(t, ledger.Command{Domain: &ledger.SetDomain{Name: name, LostCharge: new(ledger.LostKeep)}})
		}
		for range 4 {
			k.round(t)
		}
		gone := rapid.SampledFrom(k.nodes).Draw(t, "lost")
		gone.silent, gone.posted = true, nil
		k.round(t) // its last report is still taken in
		was := k.state.Nodes[gone.Node]
		for range rapid.IntRange(5, 60).Draw(t, "rounds") {
			if rapid.IntRange(0, 3).Draw(t, "budget") == 0 {
				k.setBudget(t)
			}
			k.round(t)
		}
		if now := k.state.Nodes[gone.Node]; now.Charge() < was.Charge() {
			t.Fatalf("lost at %v, charged %v now", was.Charge(), now.Charge())
		}
	})
}
