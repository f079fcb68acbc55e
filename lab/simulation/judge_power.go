package simulation

//headroom:judge

import (
	"maps"
	"math"
	"slices"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// before is what the judge has to remember of the state that an entry is applied to.
type before struct {
	nodes    map[string]ledger.Node
	domains  map[string]ledger.Domain
	braked   bool
	restored bool
	tree     []place
}

func (j *judge) before() before {
	return before{maps.Clone(j.state.Nodes), maps.Clone(j.state.Domains), braked(j.state), j.state.Restored, slices.Clone(j.tree)}
}

// recount takes over what the log has in force now, summed a second time.
func (j *judge) recount() {
	j.moved = true
	j.plant()
	for i, n := range j.w.nodes {
		c, known := j.state.Nodes[n.spec.Node]
		k := &j.nodes[i]
		k.known, k.off, k.home, k.from = known, c.Off != "", -1, -1
		if !known {
			k.feed = -1
			continue
		}
		k.lost = ""
		k.charge = c.Charge()
		k.home, k.from = j.placeOf(c.Domain), j.placeOf(c.From)
		j.feed(k, c)
		if c.Admitted {
			j.caps[capKey{j.w.group, c.Name, c.Seq}] = gift{c.Target, sprintOf(c)}
		}
	}
	j.reserve()
}

// feed tracks which place the node draws from: one that is moved goes over with a target of its new place, or at once without targets.
func (j *judge) feed(k *charged, c ledger.Node) {
	switch {
	case k.feed < 0 || k.feed >= len(j.tree) || !c.Controlled || c.Released || c.Off != "" || !c.Admitted:
		k.feed, k.feedSeq = k.home, 0
	case k.feed != k.home && k.feedSeq == 0:
		k.feedSeq = c.Seq
	}
}

// plant makes the tree again where domains have changed.
func (j *judge) plant() {
	names := sortedKeys(j.state.Domains)
	if !slices.EqualFunc(names, j.tree, func(name string, p place) bool { return name == p.name }) {
		j.replant(names)
	}
	for i := range j.tree {
		d := j.state.Domains[j.tree[i].name]
		j.tree[i].budget, j.tree[i].bootNodes, j.tree[i].unmanaged = d.Budget, d.BootNodes, 0
	}
	for _, p := range j.tree {
		for _, above := range p.above {
			j.tree[above].unmanaged += j.state.Domains[p.name].Unmanaged
		}
	}
}

func (j *judge) replant(names []string) {
	old := j.tree
	j.tree = make([]place, len(names))
	for i, name := range names {
		j.tree[i].name = name
		for at := name; at != ""; at = j.state.Domains[at].Parent {
			above, _ := slices.BinarySearch(names, at)
			j.tree[i].above = append(j.tree[i].above, above)
		}
	}
	for i, k := range j.nodes {
		j.nodes[i].feed = -1
		if k.feed >= 0 && k.feed < len(old) {
			j.nodes[i].feed = j.placeOf(old[k.feed].name)
		}
	}
}

func (j *judge) placeOf(domain string) int {
	return slices.IndexFunc(j.tree, func(p place) bool { return p.name == domain })
}

// reserve sums the charges: a node that was moved counts in both places, and once above both. It holds them against what the ledger sums.
func (j *judge) reserve() {
	totals := j.state.Totals()
	for at := range j.tree {
		p := &j.tree[at]
		p.reserved, p.boot = 0, 0
		var gains []units.Power
		for i := range j.nodes {
			if !j.charges(i, at) {
				continue
			}
			p.reserved += j.nodes[i].charge
			c := j.state.Nodes[j.w.nodes[i].spec.Node]
			if gain := c.Rated - max(failSafe(c), c.Floor); gain > 0 && c.Controlled && !c.Released && c.Off == "" {
				gains = append(gains, gain)
			}
		}
		slices.Sort(gains)
		for _, gain := range gains[max(0, len(gains)-p.bootNodes):] {
			p.boot += gain
		}
		t := totals[p.name]
		if p.reserved != t.Reserved || p.boot != t.Boot || p.unmanaged != t.Unmanaged {
			j.broken("P4", "%s reserves %v, boot reserve %v, unmanaged %v; its nodes are charged %v; the rules require %v and %v",
				p.name, t.Reserved, t.Boot, t.Unmanaged, p.reserved, p.boot, p.unmanaged)
		}
	}
}

// charges reports whether a place is charged for a node.
func (j *judge) charges(node, at int) bool {
	k := &j.nodes[node]
	return k.known && (j.lies(k.home, at) || j.lies(k.from, at))
}

// lies reports whether a place is at or below another.
func (j *judge) lies(place, in int) bool {
	return place >= 0 && slices.Contains(j.tree[place].above, in)
}

// overAbove is a domain at or above the place that is over its budget, nil for none.
func (j *judge) overAbove(at int) *place {
	if at < 0 {
		return nil
	}
	for _, above := range j.tree[at].above {
		if j.tree[above].over() > 0 {
			return &j.tree[above]
		}
	}
	return nil
}

// headroom is what a node of the domain could be given more.
func (j *judge) headroom(domain string) units.Power {
	at := j.placeOf(domain)
	if at < 0 {
		return 0
	}
	least := units.Power(math.MaxInt64)
	for _, above := range j.tree[at].above {
		p := j.tree[above]
		least = min(least, p.room()-p.reserved-p.boot)
	}
	return least
}

// weigh judges what a committed entry gave to whom (P1): where a domain is over its budget, nothing is raised, admitted or let sprint, and
// charges grow by evidence only. While the brake is set nothing is raised anywhere.
func (j *judge) weigh(c ledger.Command, b before) {
	told := j.told(c, b)
	j.reach(b)
	for i, n := range j.w.nodes {
		k := j.nodes[i]
		if !k.known {
			continue
		}
		now, old := j.state.Nodes[n.spec.Node], b.nodes[n.spec.Node]
		was, given, over := old.Charge(), given(old, now), j.overAbove(k.home)
		below := over == nil || j.lies(j.placeOf(old.Domain), j.placeOf(over.name))
		grown := now.Charge() > max(was, told[n.spec.Node]) || !below && old.Name != "" && now.Charge() > 0
		switch {
		case over != nil && (grown || given):
			j.broken("P1", "%s was raised (charge %v to %v, target %v to %v) while %s was %v over its budget",
				n.name, was, now.Charge(), old.Target, now.Target, over.name, over.over())
		case b.braked && given:
			j.broken("brake", "%s was raised from %v to %v while the brake was set", n.name, old.Target, now.Target)
		case given && j.strangers(k.home) != nil:
			p := j.strangers(k.home)
			j.broken("P1", "%s was raised from %v to %v; with the caps of nodes that the log does not know, %s is over its %v",
				n.name, old.Target, now.Target, p.name, p.room())
		case b.restored && given:
			j.broken("P4", "%s was raised from %v to %v before every node had reported the cap that it holds", n.name, old.Target, now.Target)
		}
	}
}

// strangers is a domain at or above the place that is over its budget with the leases of nodes missing from a recovered log.
func (j *judge) strangers(at int) *place {
	for i, n := range j.w.nodes {
		k := j.nodes[i]
		feeds := j.placeOf(k.lost)
		if k.known || k.lost == "" || k.removed > 0 || feeds < 0 || n.hw.off || n.hw.booting || j.w.now >= k.ends {
			continue
		}
		for _, above := range j.tree[at].above {
			if p := &j.tree[above]; j.lies(feeds, above) && p.reserved+p.boot+n.hw.held > p.room() {
				return p
			}
		}
	}
	return nil
}

// lose notes where the nodes that are missing from a recovered log draw.
func (j *judge) lose(s *ledger.State) {
	for i, n := range j.w.nodes {
		k := &j.nodes[i]
		if _, known := s.Nodes[n.spec.Node]; !known && k.feed >= 0 && k.feed < len(j.tree) {
			k.lost = j.tree[k.feed].name
			if k.ends > j.w.now && !n.hw.off {
				j.w.hit("stranger_unheard")
			}
		}
	}
}

// reach judges every charge that an entry has lowered against what may still come true: a lease that was issued and that the node would take,
// did it arrive now. The network may have kept it for that long (P4).
func (j *judge) reach(b before) {
	for i, n := range j.w.nodes {
		k := &j.nodes[i]
		if was := b.nodes[n.spec.Node]; !k.known || k.off || k.charge >= was.Charge() || !n.up || n.hw.off || n.asking != "" || j.excused(i) {
			continue
		}
		for _, g := range k.offers {
			if g.Cap > k.charge && n.wouldTake(g) {
				j.broken("P4", "%s is charged %v, but a lease of %v (%v) may still reach it", n.name, k.charge, g.Cap, g.Stamp)
				return
			}
		}
	}
}

// offered keeps a lease that was issued, for as long as it may arrive.
func (j *judge) offered(n *node, g lease.Grant) {
	k := j.of(n)
	same := func(x lease.Grant) bool {
		return x.Stamp == g.Stamp && x.Heartbeat == g.Heartbeat && x.Process == g.Process
	}
	if slices.ContainsFunc(k.offers, same) {
		return
	}
	if len(k.offers) > 0 && len(k.offers)%64 == 0 {
		k.offers = slices.DeleteFunc(k.offers, func(x lease.Grant) bool {
			sent, ok := n.sent[x.Heartbeat]
			return x.Process != n.pid || !ok || j.w.now > sent+2*x.Duration
		})
	}
	k.offers = append(k.offers, g)
}

// given reports whether the node was given something: a higher target, admission, a sprint.
func given(old, now ledger.Node) bool {
	switch {
	case old.Name == "":
		return false
	case !old.Admitted:
		return now.Admitted && !now.Unproven // one that has to prove what it holds is taken in so that it can
	}
	return grantable(now) && now.Target > max(old.Target, least(old)) || now.Sprint != nil && old.Sprint == nil
}

// told is, for each node that the entry brings news of, the most that it can be charged because of the news alone.
func (j *judge) told(c ledger.Command, b before) map[string]units.Power {
	told := map[string]units.Power{}
	switch {
	case c.Reincarnate != nil:
		for name, n := range j.state.Nodes {
			told[name] = n.Rated
		}
		return told
	case c.Tick == nil:
		return told
	}
	for _, x := range c.Tick.Seen {
		old, known := b.nodes[x.Node]
		most := max(old.Charge(), x.FailSafe, x.Floor)
		doubted := !old.Admitted && (x.Granted || b.restored) // what it was granted is not known
		if !known || !x.Controlled || !old.Controlled || old.Released || old.Off != "" || doubted {
			most = max(most, x.Rated)
		}
		told[x.Node] = most
	}
	for _, a := range c.Tick.Acks {
		n := j.w.nodeNamed(a.Node)
		newer := a.Process == n.pid && n.sent[a.Number] > n.hw.raised && j.state.Nodes[a.Node].Process == a.Process
		if n.hw.rival && newer && a.Effective >= n.hw.held {
			j.of(n).told = true
		}
		told[a.Node] = max(told[a.Node], a.Effective, a.Stored)
	}
	return told
}

// look judges after every event what the nodes hold now (P1, P4) and for how long (P2).
func (j *judge) look() {
	for i := range j.w.nodes {
		j.overstays(i, stepEvery)
		j.lookBraked(i)
	}
	if !j.moved {
		return
	}
	j.moved = false
	for i, n := range j.w.nodes {
		if n.hw.booting && !n.spec.Controlled && j.nodes[i].charge >= n.hw.held {
			n.hw.booting = false // no limit will come, and the log shows that
		}
		if k := j.nodes[i]; k.known && n.hw.held > k.charge && !j.excused(i) {
			j.broken("P4", "%s holds %v, but is charged %v", n.name, n.hw.held, k.charge)
		}
	}
	for at, p := range j.tree {
		held, booting, boots := units.Power(0), units.Power(0), 0 // booting: with those that boot at what they draw
		for i, n := range j.w.nodes {
			k := j.nodes[i]
			if !k.known || !j.lies(k.feed, at) {
				continue
			}
			counts := n.hw.held
			if j.excused(i) {
				counts = min(counts, k.charge)
			}
			held += counts
			if n.hw.booting && !k.off {
				boots++
				if !n.hw.rival {
					counts = n.hw.held
				}
			}
			booting += counts
		}
		most := max(p.room(), p.reserved)
		if boots > 0 && boots <= p.bootNodes { // the boot reserve is for them: they count in full
			held, most = booting, max(p.room(), p.reserved+p.boot)
		}
		if held > most {
			j.broken("P1", "the nodes of %s hold %v of %v, charged %v", p.name, held, p.room(), p.reserved)
		}
	}
}

// excused reports whether the node may hold more than it is charged for the moment: it boots, which a boot reserve is for; another program
// has just raised its limit, and the log has no record of it yet; an operator has rightly reported it off and it is back unheard; or it was
// removed and came back at once, so that what it was given before may still reach it: those watts are unmanaged ones now.
func (j *judge) excused(i int) bool {
	n, k := j.w.nodes[i], j.nodes[i]
	was := k.removed > 0 && (j.w.now-k.removed < j.w.longest*11/10 || n.pid == k.pid && k.leased < k.removed)
	return n.hw.booting || n.hw.rival && !k.told || k.off || was
}
