// Claim: whatever is committed in whatever order, replicas agree, refusals
// leave no trace, grants never overfill a domain, and the leader's decisions
// are accepted and come to rest.
package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

func someNames() []string { return []string{"n01", "n02", "n03", "n04"} }

// drawDomains is a site with one or two racks.
func drawDomains(t *rapid.T) []budget.Domain {
	watts := func(name string, lo, hi int64) units.Power {
		return units.Power(rapid.Int64Range(lo, hi).Draw(t, name)) * watt
	}
	domains := []budget.Domain{
		{Name: "site/lab", Budget: watts("site", 100, 1200), Unmanaged: watts("unmanaged", 0, 50)},
		{Name: "rack/r1", Parent: "site/lab", Budget: watts("rack 1", 100, 700)},
		{Name: "rack/r2", Parent: "site/lab", Budget: watts("rack 2", 100, 700), Unmanaged: watts("unmanaged 2", 0, 50)},
	}
	return domains
}

func drawSighting(t *rapid.T, name string) ledger.Sighting {
	floor := rapid.Int64Range(40, 80).Draw(t, "floor")
	failSafe := floor + rapid.Int64Range(0, 40).Draw(t, "fail-safe")
	most := failSafe + rapid.Int64Range(0, 150).Draw(t, "max")
	rated := most + rapid.Int64Range(0, 80).Draw(t, "rated")
	return ledger.Sighting{
		Node: name, MachineID: "machine-" + name, Process: uint64(rapid.IntRange(1, 3).Draw(t, "process")),
		Domain: rapid.SampledFrom([]string{"rack/r1", "rack/r2"}).Draw(t, "domain"),
		Rated:  units.Power(rated) * watt, Floor: units.Power(floor) * watt, Max: units.Power(most) * watt,
		FailSafe: units.Power(failSafe) * watt, Weight: rapid.Float64Range(0.25, 4).Draw(t, "weight"),
		Controlled: rapid.IntRange(0, 9).Draw(t, "controlled") > 0,
	}
}

func drawPower(t *rapid.T, name string) units.Power {
	return units.Power(rapid.Int64Range(0, 300*8).Draw(t, name)) * budget.Quantum
}

// drawCommand is any command, sensible or not.
func drawCommand(t *rapid.T, s *ledger.State) ledger.Command {
	node := func() string { return rapid.SampledFrom(someNames()).Draw(t, "node") }
	c := ledger.Command{Epoch: s.Epoch, At: rapid.Int64Range(0, 9).Draw(t, "at"), Actor: "a"}
	if rapid.IntRange(0, 9).Draw(t, "other epoch") == 0 {
		c.Epoch.Term += rapid.Uint64Range(0, 2).Draw(t, "term")
	}
	if rapid.IntRange(0, 4).Draw(t, "request") == 0 {
		c.RequestID = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "request id"))
	}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0:
		c.Lead = &ledger.Lead{Server: "c1"}
	case 1:
		c.Budget = &ledger.SetBudget{
			Domain: rapid.SampledFrom([]string{"site/lab", "rack/r1", "rack/r2", "none"}).Draw(t, "domain"),
			Budget: 3 * drawPower(t, "budget"), Force: rapid.Bool().Draw(t, "force"),
		}
		if rapid.Bool().Draw(t, "with target") {
			c.Budget.Targets = []ledger.Target{{Node: node(), Cap: drawPower(t, "cap")}}
		}
	case 2:
		n := node()
		c.Release = &ledger.Release{Node: n, MachineID: "machine-" + n}
	default:
		c.Tick = drawTick(t, s, node)
	}
	return c
}

func drawTick(t *rapid.T, s *ledger.State, node func() string) *ledger.Tick {
	k := &ledger.Tick{Elapsed: time.Second}
	if rapid.IntRange(0, 2).Draw(t, "seen") == 0 {
		k.Seen = append(k.Seen, drawSighting(t, node()))
	}
	for range rapid.IntRange(0, 2).Draw(t, "acks") {
		n := node()
		k.Acks = append(k.Acks, ledger.Ack{
			Node: n, Process: s.Nodes[n].Process, Number: rapid.Uint64Range(0, 40).Draw(t, "number"),
			Seq:       s.Nodes[n].Seq - min(s.Nodes[n].Seq, rapid.Uint64Range(0, 3).Draw(t, "behind")),
			Effective: drawPower(t, "effective"), Stored: drawPower(t, "stored"),
		})
	}
	if rapid.IntRange(0, 2).Draw(t, "admit") == 0 {
		k.Admit = append(k.Admit, node())
	}
	for range rapid.IntRange(0, 2).Draw(t, "targets") {
		k.Targets = append(k.Targets, ledger.Target{Node: node(), Cap: drawPower(t, "cap")})
	}
	return k
}

func drawState(t *rapid.T) *ledger.State {
	s := ledger.New()
	for _, c := range []ledger.Command{
		{Epoch: first(), Lead: &ledger.Lead{Server: "c1"}},
		{Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(drawDomains(t))}},
	} {
		if _, err := s.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func bytesOf(t *rapid.T, s *ledger.State) string {
	data, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Lesson 15: replicas that apply the same entries are equal, also one that was
// restored half way from another's snapshot; a refused entry leaves no trace; no
// entry overfills a domain, or raises anything in one that is over, but by evidence.
func TestApplyLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, two := drawState(t), ledger.New()
		restore := func() {
			back, err := ledger.Restore([]byte(bytesOf(t, one)))
			if err != nil {
				t.Fatal(err)
			}
			two = back
		}
		restore()
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			if rapid.IntRange(0, 30).Draw(t, "restore") == 0 {
				restore()
			}
			c := drawCommand(t, one)
			data, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			mine, yours := decode(t, data), decode(t, data)
			before, was := one.Clone(), bytesOf(t, one)
			r, err := one.Apply(mine)
			if _, err2 := two.Apply(yours); fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("replicas answer %v and %v", err, err2)
			}
			now := bytesOf(t, one)
			if now != bytesOf(t, two) {
				t.Fatalf("replicas differ after %s", data)
			}
			if bytesOf(t, before) != was {
				t.Fatalf("a clone changed with its original by %s", data)
			}
			if (err != nil || r.Already) && now != was {
				t.Fatalf("%s answered %v %v and changed the state", data, r, err)
			}
			if err == nil {
				fits(t, before, one, c)
			}
		}
	})
}

func decode(t *rapid.T, data []byte) ledger.Command {
	c, err := ledger.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fits is promise P1 for one accepted entry: the same entry with only its
// evidence tells what could not be helped; the rest must fit.
func fits(t *rapid.T, before, after *ledger.State, c ledger.Command) {
	told := before.Clone()
	if c.Tick != nil && c.RequestID == "" {
		c.Tick = &ledger.Tick{Seen: c.Tick.Seen, Acks: c.Tick.Acks}
		if _, err := told.Apply(c); err != nil {
			t.Fatalf("its evidence alone is refused: %v", err)
		}
	} else if c.Tick != nil {
		return
	}
	for name, now := range after.Totals() {
		if was := told.Totals()[name]; now.Headroom() < 0 && now.Reserved > was.Reserved {
			t.Fatalf("%s is %v over, reserved %v -> %v", name, -now.Headroom(), was.Reserved, now.Reserved)
		}
	}
	for name, n := range after.Nodes {
		if n.Ceiling < n.Target {
			t.Fatalf("%s: ceiling %v below target %v", name, n.Ceiling, n.Target)
		}
		for _, p := range n.Pending {
			if p.Cap > n.Ceiling {
				t.Fatalf("%s: pending %v above ceiling %v", name, p.Cap, n.Ceiling)
			}
		}
		if old, known := before.Nodes[name]; known && n.Seq < old.Seq {
			t.Fatalf("%s: sequence %d after %d", name, n.Seq, old.Seq)
		}
	}
}

// cluster is a few nodes that obey: what the leader decides is applied, and
// what is granted is read back a tick later, unless the node is lost.
type cluster struct {
	state  *ledger.State
	table  *ledger.Table
	now    time.Duration
	nodes  []ledger.Sighting
	demand map[string]units.Power
	lost   map[string]bool
	holds  map[string]units.Power
	seq    map[string]uint64
	number uint64
}

func drawCluster(t *rapid.T) *cluster {
	k := &cluster{
		state: drawState(t), table: ledger.NewTable(ledger.DefaultTiming(), 0), lost: map[string]bool{},
		demand: map[string]units.Power{}, holds: map[string]units.Power{}, seq: map[string]uint64{},
	}
	for _, name := range someNames()[:rapid.IntRange(1, 4).Draw(t, "nodes")] {
		x := drawSighting(t, name)
		k.nodes = append(k.nodes, x)
		k.demand[name], k.holds[name] = drawPower(t, "demand"), x.FailSafe
	}
	return k
}

// round is one tick: reports, decision, entry, leases. It returns what was decided.
func (k *cluster) round(t *rapid.T) ledger.Tick {
	k.now += time.Second
	k.number++
	for _, x := range k.nodes {
		if !k.lost[x.Node] {
			k.table.Heard(k.report(x), k.now)
		}
	}
	k.table.Mark()
	tick := ledger.Decide(k.state, k.table, k.now)
	if _, err := k.state.Apply(ledger.Command{Epoch: k.state.Epoch, Tick: &tick}); err != nil {
		t.Fatalf("Apply refuses what Decide made of the same state: %v\n%+v", err, tick)
	}
	for _, g := range k.table.Grants(k.state, k.now) {
		if !k.lost[g.Node] {
			k.holds[g.Node], k.seq[g.Node] = g.Grant.Cap, g.Grant.Stamp.Seq
		}
	}
	return tick
}

func (k *cluster) report(x ledger.Sighting) ledger.Report {
	demand := k.demand[x.Node]
	return ledger.Report{
		Sighting: x, Number: k.number, Highest: lease.Stamp{Epoch: k.state.Epoch, Seq: k.seq[x.Node]},
		Effective: k.holds[x.Node], EffectiveKnown: true, Stored: x.FailSafe, Demand: &demand,
	}
}

func quiet(t ledger.Tick) bool {
	return len(t.Seen)+len(t.Acks)+len(t.Admit)+len(t.Targets) == 0
}

// Rounds of decision and read-back come to rest within a few, whatever
// happened before: then nothing is decided any more, everybody who may have a
// lease has one, and no domain is over that could be brought under.
func TestDecideConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for range rapid.IntRange(0, 12).Draw(t, "rounds") {
			k.disturb(t)
			k.round(t)
		}
		clear(k.lost)
		rest := 0
		for i := 0; rest < 3; i++ {
			if i > 25 {
				t.Fatalf("no rest after %d rounds: %+v", i, k.round(t))
			}
			if quiet(k.round(t)) {
				rest++
			} else {
				rest = 0
			}
		}
		k.atRest(t)
	})
}

// disturb loses or finds a node, changes a demand, a configuration or a budget, or changes the leader.
func (k *cluster) disturb(t *rapid.T) {
	i := rapid.IntRange(0, len(k.nodes)-1).Draw(t, "which")
	x := &k.nodes[i]
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		k.lost[x.Node] = !k.lost[x.Node]
	case 1:
		k.demand[x.Node] = drawPower(t, "demand")
	case 2:
		domain := x.Domain
		process := x.Process
		*x = drawSighting(t, x.Node)
		x.Domain, x.Process = domain, process+1
		k.holds[x.Node] = max(k.holds[x.Node], x.FailSafe)
	case 3:
		k.setBudget(t)
	case 4:
		epoch := k.state.Epoch
		epoch.Term++
		if _, err := k.state.Apply(ledger.Command{Epoch: epoch, Lead: &ledger.Lead{Server: "c2"}}); err != nil {
			t.Fatal(err)
		}
		k.table = ledger.NewTable(ledger.DefaultTiming(), k.now)
	}
}

// setBudget does as a coordinator does: plan, then one entry with the lowers.
func (k *cluster) setBudget(t *rapid.T) {
	domain := rapid.SampledFrom(slices.Sorted(maps.Keys(k.state.Domains))).Draw(t, "domain")
	to := max(watt, 3*drawPower(t, "budget"))
	plan, err := ledger.PlanBudget(k.state, k.table, k.now, domain, to)
	if err != nil {
		t.Fatal(err)
	}
	set := &ledger.SetBudget{Domain: domain, Budget: to, Force: true, Targets: plan.Lowers()}
	if _, err := k.state.Apply(ledger.Command{Epoch: k.state.Epoch, Budget: set}); err != nil {
		t.Fatalf("Apply refuses what PlanBudget made of the same state: %v\n%+v", err, set)
	}
}

func (k *cluster) atRest(t *rapid.T) {
	totals := k.state.Totals()
	short := func(domain string) bool {
		return totals[domain].Headroom() < 0 || totals["site/lab"].Headroom() < 0
	}
	for _, n := range k.state.NodesByName() {
		switch {
		case !n.Controlled:
		case !n.Admitted && !short(n.Domain):
			t.Fatalf("%s waits although %s has room", n.Name, n.Domain)
		case n.Admitted && k.holds[n.Name] != n.Target:
			t.Fatalf("%s holds %v, its target is %v", n.Name, k.holds[n.Name], n.Target)
		case n.Admitted && short(n.Domain) && n.Charge() > max(n.Least(), n.Stored):
			t.Fatalf("%s is short and %s is charged %v, its least is %v", n.Domain, n.Name, n.Charge(), n.Least())
		}
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
		k.number++
		tables := [2]*ledger.Table{ledger.NewTable(ledger.DefaultTiming(), 0), ledger.NewTable(ledger.DefaultTiming(), 0)}
		for i, order := range [2][]ledger.Sighting{k.nodes, rapid.Permutation(k.nodes).Draw(t, "order")} {
			for _, x := range order {
				tables[i].Heard(k.report(x), k.now)
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
			if _, err := ledger.PlanBudget(k.state, k.table, k.now, "site/lab", 300*watt); err != nil {
				t.Fatal(err)
			}
			if bytesOf(t, k.state) != before {
				t.Fatal("the state changed")
			}
			k.round(t)
		}
	})
}

// A node that nothing is heard of is charged the same for ever.
func TestLostNodeLaw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawCluster(t)
		for range 4 {
			k.round(t)
		}
		gone := rapid.SampledFrom(k.nodes).Draw(t, "lost").Node
		k.lost[gone] = true
		k.round(t) // its last report is still taken in
		was := k.state.Nodes[gone]
		for range rapid.IntRange(5, 20).Draw(t, "rounds") {
			if rapid.IntRange(0, 3).Draw(t, "budget") == 0 {
				k.setBudget(t)
			}
			k.round(t)
		}
		if now := k.state.Nodes[gone]; now.Charge() < was.Charge() {
			t.Fatalf("lost at %v, charged %v now", was.Charge(), now.Charge())
		}
	})
}
