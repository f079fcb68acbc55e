// Claim: whatever is committed in whatever order, replicas agree, refusals
// leave no trace, grants never overfill a domain, and no charge falls without
// a word of somebody who knows.
package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

func someNames() []string { return []string{"n01", "n02", "n03", "n04"} }

func someDomains() []string { return []string{"site/lab", "rack/r1", "rack/r2", "pdu/p1", "none"} }

// drawDomains is a site with two racks, sometimes with all that can be said of them.
func drawDomains(t *rapid.T) []ledger.Domain {
	watts := func(name string, lo, hi int) units.Power { return units.Power(lo+rng(t, hi-lo+1, name)) * watt }
	domains := ledger.PlainDomains([]budget.Domain{
		{Name: "site/lab", Budget: watts("site", 100, 1600), Unmanaged: watts("unmanaged", 0, 50)},
		{Name: "rack/r1", Parent: "site/lab", Budget: watts("rack 1", 100, 900)},
		{Name: "rack/r2", Parent: "site/lab", Budget: watts("rack 2", 100, 900), Unmanaged: watts("unmanaged 2", 0, 50)},
	})
	for i := range domains {
		d := &domains[i]
		if rapid.Bool().Draw(t, "plain") {
			continue
		}
		d.BootNodes = rng(t, 4, "boots") / 2
		d.LostCharge = rapid.SampledFrom([]ledger.LostCharge{ledger.LostInherit, ledger.LostKeep, ledger.LostFailSafe}).Draw(t, "lost-charge")
		if !rarely(t, 4, "no sprints") {
			d.Sprint = &ledger.SprintBudget{Capacity: units.Energy(100+rng(t, 5000, "capacity")) * units.Joule, Refill: units.Power(rng(t, 300, "refill")) * watt}
		}
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

// maybe is a value or nil.
func maybe[T any](t *rapid.T, name string, draw func() T) *T {
	if rapid.Bool().Draw(t, "no "+name) {
		return nil
	}
	return new(draw())
}

// rng is a number below n, each about as likely as the others (rapid's own are mostly small).
func rng(t *rapid.T, n int, name string) int {
	x := rapid.Uint64Range(0, 1<<20).Draw(t, name) + 1
	return int(x * 0x9E3779B97F4A7C15 >> 33 % uint64(n))
}

// rarely is true about once in n times.
func rarely(t *rapid.T, n int, name string) bool { return rng(t, n, name) == 0 }

// drawCommand is any command, mostly one that makes sense in the state.
func drawCommand(t *rapid.T, s *ledger.State) ledger.Command {
	c := ledger.Command{Epoch: s.Epoch, At: rapid.Int64Range(0, 9).Draw(t, "at"), Actor: "a"}
	if rarely(t, 30, "other epoch") {
		c.Epoch.Term += rapid.Uint64Range(0, 2).Draw(t, "term")
	}
	if rarely(t, 10, "request") {
		c.RequestID = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "request id"))
	}
	switch kind := rng(t, 60, "kind"); {
	case kind < 28:
		c.Tick = drawTick(t, s)
	case kind < 36:
		drawOrder(t, s, &c)
	case kind < 46:
		drawSprintCommand(t, s, &c)
	case kind < 56:
		drawNodeCommand(t, s, &c)
	default:
		drawRest(t, s, &c)
	}
	return c
}

// drawNode is a node of the state, or another.
func drawNode(t *rapid.T, s *ledger.State) ledger.Node {
	return drawNodeIf(t, s, func(ledger.Node) bool { return true })
}

// drawNodeIf is mostly one of which something is true.
func drawNodeIf(t *rapid.T, s *ledger.State, of func(ledger.Node) bool) ledger.Node {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Nodes)), func(name string) bool { return !of(s.Nodes[name]) })
	if len(names) == 0 || rarely(t, 20, "any node") {
		names = someNames()
	}
	name := rapid.SampledFrom(names).Draw(t, "node")
	n := s.Nodes[name]
	n.Name = name
	return n
}

// drawCap is a cap that the node may be given, or another.
func drawCap(t *rapid.T, n ledger.Node) units.Power {
	if n.Most() < n.Least() || rarely(t, 20, "any cap") {
		return drawPower(t, "cap")
	}
	return units.Power(rapid.Int64Range(int64(n.Least()/watt), int64(n.Most()/watt)).Draw(t, "cap")) * watt
}

func drawDomain(t *rapid.T, s *ledger.State) string {
	names := slices.Sorted(maps.Keys(s.Domains))
	if rarely(t, 10, "unknown domain") {
		names = someDomains()
	}
	return rapid.SampledFrom(names).Draw(t, "domain")
}

// drawSprint is a sprint of the state, or another.
func drawSprint(t *rapid.T, s *ledger.State) string {
	ids := slices.Sorted(maps.Keys(s.Sprints))
	if len(ids) == 0 || rarely(t, 20, "unknown sprint") {
		return "none"
	}
	return rapid.SampledFrom(ids).Draw(t, "sprint")
}

// drawOrder is about budgets and domains.
func drawOrder(t *rapid.T, s *ledger.State, c *ledger.Command) {
	domain := drawDomain(t, s)
	switch rng(t, 8, "order") {
	case 0, 1, 2:
		c.Budget = &ledger.SetBudget{Domain: domain, Budget: 3 * drawPower(t, "budget"), Force: rapid.Bool().Draw(t, "force")}
		if rapid.Bool().Draw(t, "with target") {
			n := drawNode(t, s)
			c.Budget.Targets = []ledger.Target{{Node: n.Name, Cap: min(drawCap(t, n), n.Target)}}
		}
		if rapid.Bool().Draw(t, "until") {
			c.Budget.Until = rapid.Int64Range(-1, 12).Draw(t, "until")
		}
	case 3:
		c.Budget = &ledger.SetBudget{Domain: domain, Budget: s.Domains[domain].Budget, Clock: &ledger.Clock{
			Due: rapid.Int64Range(0, 9).Draw(t, "due"), Voters: 1, Servers: map[string]int64{"c1": rapid.Int64Range(0, 9).Draw(t, "clock")},
		}}
		if back := s.Domains[domain].Back; back != nil {
			c.Budget.Budget, c.Budget.Clock.Due = back.Budget, back.At
		}
		for name, x := range s.Schedules { // there is one at most
			c.Budget.Domain, c.Budget.Budget, c.Budget.Clock.Schedule = x.Domain, x.Budget, name
		}
	case 4:
		c.Schedule = &ledger.SetSchedule{Name: "x", Domain: domain, Cron: rapid.SampledFrom([]string{"* * * * *", "TZ=", "0 0 1 1 *"}).Draw(t, "cron"), Budget: drawPower(t, "budget")}
	case 5:
		c.RemoveSchedule = &ledger.Named{Name: "x"}
	case 6:
		c.RemoveDomain = &ledger.Named{Name: domain}
	default:
		c.Domain = &ledger.SetDomain{
			Name: domain, Unmanaged: maybe(t, "unmanaged", func() units.Power { return drawPower(t, "unmanaged") / 8 }),
			Rating:    maybe(t, "rating", func() units.Power { return 8 * drawPower(t, "rating") }),
			BootNodes: maybe(t, "boots", func() int { return rapid.IntRange(-1, 3).Draw(t, "boots") }),
			LostCharge: maybe(t, "lost-charge", func() ledger.LostCharge {
				return rapid.SampledFrom([]ledger.LostCharge{"", "keep", "fail-safe", "x"}).Draw(t, "lost-charge")
			}),
		}
		if _, known := s.Domains[domain]; !known {
			c.Domain.Parent, c.Domain.Budget = drawDomain(t, s), drawPower(t, "budget")
		}
	}
}

func drawSprintCommand(t *rapid.T, s *ledger.State, c *ledger.Command) {
	domain := drawDomain(t, s)
	switch rng(t, 10, "of sprints") {
	case 0, 1:
		c.SprintBudget = &ledger.SetSprintBudget{
			Domain: domain, Capacity: units.Energy(rapid.Int64Range(-100, 9000).Draw(t, "capacity")) * units.Joule, Refill: 10 * drawPower(t, "refill"),
		}
		if rarely(t, 3, "with shares") {
			c.SprintBudget.Shares = map[string]float64{"gold": rapid.Float64Range(0, 0.6).Draw(t, "gold"), "iron": rapid.Float64Range(0, 0.5).Draw(t, "iron")}
		}
	case 2, 3:
		c.EndSprint = &ledger.EndSprint{ID: drawSprint(t, s)}
	default:
		x := &ledger.GrantSprint{ID: fmt.Sprint("s", len(s.Sprints)), Duration: time.Duration(rng(t, 8, "duration")) * second}
		free := func(n ledger.Node) bool { return n.Grantable() && n.Owes == "" }
		n := drawNodeIf(t, s, free)
		x.Domain = n.Domain
		if s.Domains[x.Domain].Sprint == nil {
			x.Domain = "site/lab"
		}
		if b := s.Domains[x.Domain].Sprint; b != nil {
			x.Class = rapid.SampledFrom(b.Pots()).Draw(t, "class")
		}
		for range rapid.IntRange(1, 2).Draw(t, "nodes") {
			x.Caps = append(x.Caps, ledger.Target{Node: n.Name, Cap: n.Target + max(0, n.Most()-n.Target)/units.Power(rapid.IntRange(1, 8).Draw(t, "part"))})
			n = drawNodeIf(t, s, free)
		}
		c.Sprint = x
	}
}

func drawNodeCommand(t *rapid.T, s *ledger.State, c *ledger.Command) {
	n := drawNode(t, s)
	switch rng(t, 10, "of a node") {
	case 0:
		c.Release = &ledger.Release{Node: n.Name, MachineID: "machine-" + n.Name}
	case 1, 2, 3:
		power := func(name string) *units.Power {
			return maybe(t, name, func() units.Power {
				return n.Floor + units.Power(rapid.Int64Range(-1, 20).Draw(t, name))*(n.Rated-n.Floor)/20
			})
		}
		c.Node = &ledger.SetNode{Node: n.Name, Settings: ledger.Settings{Min: power("min"), Max: power("max"), FailSafe: power("fail-safe")}}
	case 4, 5:
		c.Move = &ledger.MoveNode{Node: n.Name, To: drawDomain(t, s)}
	case 6, 7:
		c.Drain = &ledger.DrainNode{Node: n.Name, Resume: n.Drained}
	case 8:
		c.Remove = &ledger.RemoveNode{Node: n.Name, PoweredOff: rapid.Bool().Draw(t, "powered off")}
	default:
		c.PowerOff = &ledger.PowerOff{Node: n.Name, By: "bmc"}
	}
}

func drawRest(t *rapid.T, s *ledger.State, c *ledger.Command) {
	named := &ledger.Named{Name: rapid.SampledFrom([]string{"a", "b", "equal", ""}).Draw(t, "name")}
	switch rng(t, 29, "rest") {
	case 0, 1:
		c.Lead = &ledger.Lead{Server: "c1"}
		c.Epoch.Term++
	case 2:
		c.Brake = &ledger.SetBrake{Generation: s.Brake.Set + rapid.Uint64Range(0, 2).Draw(t, "generation")}
	case 3, 4, 5, 6:
		c.LiftBrake = &ledger.LiftBrake{Generation: s.Brake.Set}
	case 7:
		c.Policy = named
	case 8:
		c.Token = &ledger.Token{ID: named.Name, Name: "n", Role: "node", Hash: ledger.TokenHash("x")}
	case 9:
		c.RevokeToken = named
	case 10:
		c.Server = &ledger.Server{ID: named.Name, RPC: "r", Raft: "f"}
	case 11:
		c.RemoveServer = named
	case 12:
		c.AckAlarm = named
	case 13:
		c.Upgrade = &ledger.Upgrade{Rules: rapid.IntRange(0, ledger.Rules+1).Draw(t, "rules")}
	case 14: // refused, unless the state was restored
		c.Reincarnate = &ledger.Reincarnate{Above: rapid.Uint64Range(0, 4).Draw(t, "above")}
	case 15:
		c.Job = &ledger.Job{ID: named.Name, State: ledger.JobAccepted}
	case 16:
		c.Finish = &ledger.FinishJob{ID: named.Name, State: ledger.JobDone}
	case 17:
		c.ContainerPolicy = &ledger.Named{Name: rapid.SampledFrom(append(ledger.ContainerPolicies(), "none")).Draw(t, "container policy")}
	case 18:
		c.Deny = &ledger.Denial{Identity: named.Name}
	case 19:
		c.SkipBrake = &ledger.SkipBrake{Generation: s.Brake.Set + rapid.Uint64Range(0, 2).Draw(t, "skipped")}
	case 20:
		c.HoldScheduler = holds(named.Name, s.SchedulerEpoch()-rapid.Uint64Range(0, 1).Draw(t, "replaced"))
	case 21:
		c.ReleaseScheduler = &ledger.ReleaseScheduler{Epoch: s.SchedulerEpoch()}
	default:
		drawJobCommand(t, s, c)
	}
}

func drawTick(t *rapid.T, s *ledger.State) *ledger.Tick {
	k := &ledger.Tick{Elapsed: time.Duration(rapid.Int64Range(-1, 3).Draw(t, "elapsed")) * second}
	if rarely(t, 5, "seen") {
		k.Seen = append(k.Seen, drawSighting(t, rapid.SampledFrom(someNames()).Draw(t, "node")))
	}
	for range rapid.IntRange(0, 3).Draw(t, "acks") {
		k.Acks = append(k.Acks, drawAck(t, s))
	}
	if rarely(t, 4, "admit") {
		k.Admit = append(k.Admit, drawNodeIf(t, s, func(n ledger.Node) bool { return !n.Admitted }).Name)
	}
	for range rng(t, 3, "targets") {
		n := drawNodeIf(t, s, ledger.Node.Grantable)
		k.Targets = append(k.Targets, ledger.Target{Node: n.Name, Cap: drawCap(t, n)})
	}
	if n := drawNode(t, s); rarely(t, 12, "lapsed") {
		k.Lapsed = append(k.Lapsed, ledger.Lapse{Node: n.Name, Seq: n.Seq})
	}
	if len(s.Sprints) > 0 && rarely(t, 8, "end") {
		k.EndSprints = append(k.EndSprints, ledger.EndSprint{ID: drawSprint(t, s)})
	}
	return k
}

func drawAck(t *rapid.T, s *ledger.State) ledger.Ack {
	n := drawNode(t, s)
	a := ledger.Ack{
		Node: n.Name, Process: n.Process, Number: n.Heard + rapid.Uint64Range(0, 3).Draw(t, "number"),
		Seq:       n.Seq - min(n.Seq, rapid.Uint64Range(0, 2).Draw(t, "behind")),
		Effective: drawPower(t, "effective"), Stored: n.FailSafeCap(), Sprinting: rarely(t, 6, "sprinting"),
	}
	if !rarely(t, 4, "any power") {
		a.Effective = n.Target
	}
	if rarely(t, 8, "any stored") {
		a.Stored = drawPower(t, "stored")
	}
	if n.Owes != "" && rapid.Bool().Draw(t, "ended") {
		spent := func() units.Energy { return units.Energy(rapid.Int64Range(-1, 2000).Draw(t, "spent")) * units.Joule }
		a.Ended = []ledger.SprintSpent{{ID: n.Owes, Spent: maybe(t, "spent", spent)}}
	}
	return a
}

func drawState(t *rapid.T) *ledger.State {
	s := ledger.New()
	for _, c := range []ledger.Command{
		{Epoch: first(), Lead: &ledger.Lead{Server: "c1"}},
		{Epoch: first(), Found: &ledger.Found{Domains: drawDomains(t)}},
	} {
		if _, err := s.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// drawCrowd is a state with some of the nodes, admitted where that fits.
func drawCrowd(t *rapid.T) *ledger.State {
	s := drawState(t)
	for _, name := range someNames()[:rng(t, 5, "crowd")] {
		x := drawSighting(t, name)
		k := ledger.Tick{Elapsed: second, Seen: []ledger.Sighting{x}, Acks: []ledger.Ack{{Node: name, Process: x.Process, Effective: x.FailSafe, Stored: x.FailSafe}}}
		for _, k.Admit = range [][]string{{name}, nil} {
			if _, err := s.Apply(ledger.Command{Epoch: first(), Tick: &k}); err == nil {
				break
			}
		}
	}
	if _, err := s.Apply(ledger.Command{Epoch: first(), Tick: &ledger.Tick{Elapsed: time.Duration(rng(t, 60, "refill")) * second}}); err != nil {
		t.Fatal(err)
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
// restored half way from another's snapshot; a refused entry leaves no trace, nor
// does one that is taken back; a clone does not change with its original; no entry
// overfills a domain, or raises anything in one that is over, but by evidence, and
// no charge falls without any.
func TestApplyLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, two := drawCrowd(t), ledger.New()
		restore := func() {
			back, err := ledger.Restore([]byte(bytesOf(t, one)))
			if err != nil {
				t.Fatal(err)
			}
			two = back
		}
		restore()
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			switch rng(t, 100, "restore") {
			case 0, 1, 2:
				restore()
			case 3:
				recoverBoth(t, one, two)
			}
			c := drawCommand(t, one)
			data, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			mine, yours := decode(t, data), decode(t, data)
			before, was := one.Clone(), bytesOf(t, one)
			if _ = one.Taken(decode(t, data)); bytesOf(t, one) != was {
				t.Fatalf("%s was carried out and taken back, and left a trace", data)
			}
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
			if err == nil && !r.Already {
				fits(t, before, one, c)
				honest(t, before, one, c)
				paid(t, before, one, c)
				kept(t, before, one)
			}
			whole(t, one)
		}
		restore()
	})
}

// recoverBoth begins an incarnation, and a leadership in it.
func recoverBoth(t *rapid.T, states ...*ledger.State) {
	budgets := map[string]units.Power{}
	for name := range states[0].Domains {
		budgets[name] = watt + drawPower(t, "budget of "+name)
	}
	epoch := states[0].Epoch
	epoch.Incarnation, epoch.Term = epoch.Incarnation+1, 1
	for _, s := range states {
		if err := s.Recover(budgets, 0, "mia", "why"); err != nil {
			t.Skip("it does not fit a rating")
		}
		if _, err := s.Apply(ledger.Command{Epoch: epoch, Lead: &ledger.Lead{Server: "c1"}}); err != nil {
			t.Fatal(err)
		}
	}
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
	if c.Reincarnate != nil {
		return // nothing but evidence: the log does not know what it granted
	}
	told := before.Clone()
	if c.Tick != nil {
		c.RequestID = ""
		c.Tick = &ledger.Tick{Seen: c.Tick.Seen, Acks: c.Tick.Acks, Lapsed: c.Tick.Lapsed, EndSprints: c.Tick.EndSprints}
		if _, err := told.Apply(c); err != nil {
			t.Fatalf("its evidence alone is refused: %v", err)
		}
	}
	for name, now := range after.Totals() {
		if was := told.Totals()[name]; now.Headroom() < 0 && now.Reserved > was.Reserved {
			t.Fatalf("%s is %v over, reserved %v -> %v", name, -now.Headroom(), was.Reserved, now.Reserved)
		}
	}
	if !told.Brake.Active() && !told.Restored {
		return
	}
	for name, n := range after.Nodes {
		if was, known := told.Nodes[name]; known && n.Target > was.Target {
			t.Fatalf("%s was raised from %v to %v while nothing may be", name, was.Target, n.Target)
		}
	}
}

// honest is promise P4 for one accepted entry: a node is charged less only where
// somebody has said something of it: itself, the clock of its lease, an operator.
func honest(t *rapid.T, before, after *ledger.State, c ledger.Command) {
	told := map[string]bool{}
	switch {
	case c.Tick != nil:
		for _, x := range c.Tick.Seen {
			told[x.Node] = true
		}
		for _, x := range c.Tick.Acks {
			told[x.Node] = true
		}
		for _, x := range c.Tick.Lapsed {
			told[x.Node] = true
		}
	case c.PowerOff != nil:
		told[c.PowerOff.Node] = true
	case c.Release != nil: // to the watts that it says it is rated
		told[c.Release.Node] = true
	}
	for name, was := range before.Nodes {
		now, known := after.Nodes[name]
		switch {
		case !known && (c.Remove == nil || c.Remove.Node != name):
			t.Fatalf("%s is gone", name)
		case !known && !c.Remove.PoweredOff && after.Domains[was.Domain].Unmanaged < was.Charge() && after.Domains[was.From].Unmanaged < was.Charge():
			t.Fatalf("%s left with %v, and nobody draws them", name, was.Charge())
		case known && now.Seq < was.Seq:
			t.Fatalf("%s: sequence %d after %d", name, now.Seq, was.Seq)
		case known && now.Charge() < was.Charge() && !told[name]:
			t.Fatalf("%s is charged %v instead of %v, and nobody has said a word", name, now.Charge(), was.Charge())
		}
	}
	for name, now := range after.Nodes {
		if _, known := before.Nodes[name]; !known && now.Seq < before.SeqFloor {
			t.Fatalf("%s begins at %d, the last of its name may have stored %d", name, now.Seq, before.SeqFloor)
		}
	}
}

// paid is promise P8 for one accepted entry: what is left, what is put aside and
// what is spent of a pot together change by nothing but a tick's refill.
func paid(t *rapid.T, before, after *ledger.State, c ledger.Command) {
	for name, d := range after.Domains {
		was := before.Domains[name].Sprint
		switch {
		case d.Sprint == nil:
			continue
		case c.SprintBudget != nil && c.SprintBudget.Domain == name, was == nil, c.Reincarnate != nil:
			for _, pot := range d.Sprint.Pots() {
				if got := d.Sprint.Balances[pot]; was == nil && got != 0 || was != nil && got > max(0, was.Balances[pot]) {
					t.Fatalf("%s, class %q has %v out of nothing", name, pot, got)
				}
			}
			continue
		}
		for _, pot := range d.Sprint.Pots() {
			of := func(p ledger.Sprint) bool { return p.Domain == name && (len(d.Sprint.Shares) == 0 || p.Class == pot) }
			spent := units.Energy(0)
			for id, p := range after.Sprints {
				if old := before.Sprints[id]; of(p) && p.Closed && old.ID == id && old.Open() {
					spent += p.Spent()
				}
			}
			gain := d.Sprint.Balances[pot] + after.Escrowed(name, pot) + spent - was.Balances[pot] - before.Escrowed(name, pot)
			most := units.Energy(0)
			if c.Tick != nil {
				most = units.Energy(float64(d.Sprint.Refill.For(max(0, c.Tick.Elapsed)))*d.Sprint.Part(pot)) + 1
			}
			if gain < 0 || gain > most {
				t.Fatalf("%s, class %q: %v out of nothing, at most %v are refilled", name, pot, gain, most)
			}
			if left := d.Sprint.Balances[pot]; left < 0 && left < was.Balances[pot] && spent == 0 {
				t.Fatalf("%s, class %q: a debt of %v that nobody made", name, pot, left)
			}
		}
	}
}

// whole are the invariants of a state.
func whole(t *rapid.T, s *ledger.State) {
	for name, n := range s.Nodes {
		if n.Ceiling < n.Target {
			t.Fatalf("%s: ceiling %v below target %v", name, n.Ceiling, n.Target)
		}
		for _, p := range n.Pending {
			if p.Cap > n.Ceiling {
				t.Fatalf("%s: pending %v above ceiling %v", name, p.Cap, n.Ceiling)
			}
		}
		if n.Sprint != nil && (n.Owes != n.Sprint.ID || n.Ceiling < n.Sprint.Cap || s.Sprints[n.Owes].Shares[name].BackSeq > 0) {
			t.Fatalf("%s: %+v beside owing %q with ceiling %v", name, n.Sprint, n.Owes, n.Ceiling)
		}
		if x, ok := s.Sprints[n.Owes].Shares[name]; n.Owes != "" && (!ok || x.Settled || s.Sprints[n.Owes].Closed) {
			t.Fatalf("%s owes %q, which knows nothing of it", name, n.Owes)
		}
	}
	for id, p := range s.Sprints {
		for name, x := range p.Shares {
			if p.Open() && !x.Settled && s.Nodes[name].Owes != id {
				t.Fatalf("sprint %s waits for %s for ever", id, name)
			}
		}
	}
	for name, d := range s.Domains {
		if d.Sprint == nil {
			continue
		}
		sum := units.Energy(0)
		for pot, left := range d.Sprint.Balances {
			sum += max(0, left) + s.Escrowed(name, pot)
		}
		if sum > d.Sprint.Capacity {
			t.Fatalf("%s holds %v of %v", name, sum, d.Sprint.Capacity)
		}
	}
}
