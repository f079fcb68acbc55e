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
}

func (j *judge) before() before {
	return before{
		nodes: maps.Clone(j.state.Nodes), domains: maps.Clone(j.state.Domains),
		braked: braked(j.state), restored: j.state.Restored,
	}
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
			j.caps[capKey{j.w.group, c.Name, c.Seq}] = given{c.Target, sprintOf(c)}
		}
	}
	j.reserve()
}

// feed tracks which place the node really draws from: a node that is moved goes
// over when it takes a target of its new place, and at once when it takes none.
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
	same := len(names) == len(j.tree)
	for i := 0; same && i < len(names); i++ {
		same = names[i] == j.tree[i].name
	}
	if !same {
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
	feeds := make([]string, len(j.nodes))
	for i, k := range j.nodes {
		if k.feed >= 0 && k.feed < len(j.tree) {
			feeds[i] = j.tree[k.feed].name
		}
	}
	j.tree = make([]place, len(names))
	for i, name := range names {
		j.tree[i].name = name
		for at := name; at != ""; at = j.state.Domains[at].Parent {
			above, _ := slices.BinarySearch(names, at)
			j.tree[i].above = append(j.tree[i].above, above)
		}
	}
	for i := range j.nodes {
		j.nodes[i].feed = j.placeOf(feeds[i])
	}
}

func (j *judge) placeOf(domain string) int {
	return slices.IndexFunc(j.tree, func(p place) bool { return p.name == domain })
}

// reserve sums the charges: a node that was moved counts in both places, and once
// above both. It holds them against what the ledger sums.
func (j *judge) reserve() {
	gains := make([][]units.Power, len(j.tree))
	for i := range j.tree {
		j.tree[i].reserved, j.tree[i].boot = 0, 0
	}
	for i := range j.nodes {
		k := &j.nodes[i]
		if !k.known {
			continue
		}
		for at := range j.tree {
			if j.lies(k.home, at) || j.lies(k.from, at) {
				j.tree[at].reserved += k.charge
			}
		}
		c := j.state.Nodes[j.w.nodes[i].spec.Node]
		if gain := c.Rated - max(failSafe(c), c.Floor); gain > 0 && c.Controlled && !c.Released && c.Off == "" {
			for at := range j.tree {
				if j.lies(k.home, at) || j.lies(k.from, at) {
					gains[at] = append(gains[at], gain)
				}
			}
		}
	}
	totals := j.state.Totals()
	for i := range j.tree {
		p := &j.tree[i]
		slices.Sort(gains[i])
		for _, gain := range gains[i][max(0, len(gains[i])-p.bootNodes):] {
			p.boot += gain
		}
		t := totals[p.name]
		if p.reserved != t.Reserved || p.boot != t.Boot || p.unmanaged != t.Unmanaged {
			j.broken("P4", "%s reserves %v, boot reserve %v, unmanaged %v; its nodes are charged %v; the rules require %v and %v",
				p.name, t.Reserved, t.Boot, t.Unmanaged, p.reserved, p.boot, p.unmanaged)
		}
	}
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

// weigh judges what a committed entry gave to whom (P1): where a domain is over
// its budget, nothing is raised, admitted or let sprint, and charges grow by
// evidence only. While the brake is set nothing is raised anywhere.
func (j *judge) weigh(c ledger.Command, b before) {
	told := j.told(c, b)
	j.reach(b)
	for i, n := range j.w.nodes {
		k := j.nodes[i]
		if !k.known {
			continue
		}
		now, old := j.state.Nodes[n.spec.Node], b.nodes[n.spec.Node]
		was := old.Charge()
		given := j.given(old, now)
		over := j.overAbove(k.home)
		grown := now.Charge() > max(was, told[n.spec.Node]) || over != nil && old.Name != "" && now.Charge() > 0 && !j.lies(j.placeOf(old.Domain), j.placeOf(over.name))
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

// strangers is a domain at or above the place that is over its budget with the leases
// of nodes that are missing from a recovered log; nil for none.
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

// reach judges every charge that an entry has lowered against what may still come
// true: a lease that was issued and that the node would take, did it arrive now. The
// network may have kept it for that long (P4).
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
	k := &j.nodes[j.index(n)]
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
func (j *judge) given(old, now ledger.Node) bool {
	switch {
	case old.Name == "":
		return false
	case !old.Admitted:
		return now.Admitted && !now.Unproven // one that has to prove what it holds is taken in so that it can
	}
	return grantable(now) && now.Target > max(old.Target, least(old)) || now.Sprint != nil && old.Sprint == nil
}

// told is, for each node that the entry brings news of, the most that it can be
// charged because of the news alone.
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
		if n := j.w.nodeNamed(a.Node); n.hw.rival && a.Process == n.pid && n.sent[a.Number] > n.hw.raised && a.Effective >= n.hw.held && j.state.Nodes[a.Node].Process == a.Process {
			j.nodes[j.index(n)].told = true
		}
		told[a.Node] = max(told[a.Node], a.Effective, a.Stored)
	}
	return told
}

// look judges what the nodes hold now (P1, P4) and for how long (P2). It runs
// after every event; the sums are made again when something has moved.
func (j *judge) look() {
	for i := range j.w.nodes {
		j.overstays(i, stepEvery)
	}
	j.brakes.look(j)
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
		held, boots := units.Power(0), 0
		for i, n := range j.w.nodes {
			k := j.nodes[i]
			if !k.known || !j.lies(k.feed, at) {
				continue
			}
			if n.hw.booting && !k.off {
				boots++
			}
			held += j.counts(i)
		}
		most := max(p.room(), p.reserved)
		if boots > 0 && boots <= p.bootNodes { // the boot reserve is for them: they count in full
			held, most = j.heldBooting(at), max(p.room(), p.reserved+p.boot)
		}
		if held > most {
			j.broken("P1", "the nodes of %s hold %v of %v, charged %v", p.name, held, p.room(), p.reserved)
		}
	}
}

// excused reports whether the node may hold more than it is charged for the moment:
// it boots, which a boot reserve is for; another program has just raised its limit, and
// the log has no record of it yet;
// an operator has rightly reported it off and it is back unheard; or it was
// removed and came back at once, so that what it was given before may still reach
// it: those watts are unmanaged ones now.
func (j *judge) excused(i int) bool {
	n, k := j.w.nodes[i], j.nodes[i]
	was := k.removed > 0 && (j.w.now-k.removed < j.w.longest*11/10 || n.pid == k.pid && k.leased < k.removed)
	return n.hw.booting || n.hw.rival && !k.told || k.off || was
}

// counts is what a node counts for: what it holds, but no more than its charge
// while it is excused.
func (j *judge) counts(i int) units.Power {
	held := j.w.nodes[i].hw.held
	if j.excused(i) {
		return min(held, j.nodes[i].charge)
	}
	return held
}

// heldBooting is what the nodes of a place hold, with those that boot at what they draw.
func (j *judge) heldBooting(at int) units.Power {
	sum := units.Power(0)
	for i, n := range j.w.nodes {
		k := j.nodes[i]
		switch {
		case !k.known || !j.lies(k.feed, at):
		case n.hw.booting && !k.off && !n.hw.rival:
			sum += n.hw.held
		default:
			sum += j.counts(i)
		}
	}
	return sum
}
