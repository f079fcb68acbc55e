package simulation

//headroom:judge

import (
	"time"

	"headroom/ledger"
	"headroom/units"
)

// sprintJudge keeps the books of all sprints a second time, from what the nodes really draw (P8).
type sprintJudge struct {
	open    map[string]*sprint
	pots    map[potKey]pot
	ran     map[string]bool // "node id" of all that ever began
	old     map[string]bool // ids of sprints from before the servers were begun again
	counted map[epochKey]time.Duration
	began   map[epochKey]time.Duration
	elapsed time.Duration // as the ledger counts
	passed  time.Duration // as the ledger counts, gaps between leaders with it
	ticked  time.Duration // true time at which the newest tick or beginning was made
	lag     time.Duration // by how much the ledger has counted less between leaders
}

type potKey struct{ domain, class string }

type epochKey struct {
	group int
	term  uint64
}

// pot is the most that may be left in one pot.
type pot struct{ most, slack float64 }

// sprint is one escrow that is open.
type sprint struct {
	pot    potKey
	escrow float64
	stints map[string]*stint
	at     time.Duration // true time of the grant
	lag    time.Duration // sprintJudge.lag by then
}

// stint is one node's part.
type stint struct {
	id        string
	base, cap units.Power
	escrow    float64
	joules    float64       // truly drawn above the base
	lasted    time.Duration // true time in it
	clock     float64       // the node's clock against true time
	left      bool          // the node was gone before it had proved to be back at its base
}

// restored begins with a recovered state: the books of before are closed, and of the pots, which a snapshot had, only debt stays.
func (k *sprintJudge) restored(s *ledger.State, pots map[potKey]pot) {
	for id := range k.open {
		k.old[id] = true
	}
	k.open, k.pots, k.elapsed, k.passed, k.ticked = map[string]*sprint{}, map[potKey]pot{}, s.Elapsed, s.Passed, 0
	for key, p := range pots {
		k.pots[key] = pot{min(0, p.most), p.slack}
	}
}

// drew counts what a node draws while it is in a sprint.
func (j *judge) drew(n *node, p units.Power, d time.Duration) {
	x := j.of(n).stint
	if x == nil || n.hw.rival { // what another program has let it use is of no sprint
		return
	}
	x.lasted += d
	x.joules += max(0, (min(p, x.cap)-x.base).Watts()) * d.Seconds() // what stands above the sprint is not of the sprint
}

// turned learns that powerd has decided: it may have begun a sprint. One is over once the hardware holds no more than the base.
func (j *judge) turned(n *node) {
	if n.exchange == nil {
		return // it has not started yet
	}
	k, in := &j.sprints, &j.of(n).stint
	status, under := n.exchange.SprintStatus(n.now().Boot)
	under = under && !status.Ending && n.up
	switch {
	case n.hw.booting, n.hw.off: // a reboot is for the boot reserve
		*in = nil
		return
	case *in != nil && n.hw.held <= max((*in).base, n.disk.FailSafe) && !(under && status.ID == (*in).id):
		*in = nil
	}
	if !under || *in != nil && (*in).id == status.ID {
		return
	}
	x := &stint{id: status.ID, base: status.Base, cap: status.Cap, clock: n.clock.rate}
	key := n.name + " " + status.ID
	share := (*stint)(nil)
	if p := k.open[status.ID]; p != nil {
		share = p.stints[n.name]
	}
	switch {
	case k.ran[key]:
		j.broken("P8", "%s ran sprint %s a second time", n.name, status.ID)
	case share == nil && !k.old[status.ID]:
		j.broken("P8", "%s started sprint %s without escrow", n.name, status.ID)
	case share != nil:
		share.base, share.clock = status.Base, n.clock.rate
		x = share
	}
	j.w.hit("sprint_run")
	k.ran[key] = true
	*in = x
}

// applied takes an entry into the books.
func (k *sprintJudge) applied(j *judge, c ledger.Command, b before) {
	switch {
	case c.Reincarnate != nil:
		k.restored(j.state, k.pots)
	case c.SprintBudget != nil:
		k.budget(j, c.SprintBudget.Domain)
	case c.RemoveDomain != nil:
		k.budget(j, c.RemoveDomain.Name)
	case c.Sprint != nil:
		k.beside(j, c.Sprint)
		k.grant(j, c.Sprint)
	}
	k.leave(j, b)
	k.gaps(j, c)
	for _, id := range sortedKeys(k.open) {
		x := k.open[id]
		if p, ok := j.state.Sprints[id]; !ok || p.Closed {
			k.close(j, id, x)
		}
	}
	k.clock(j, c)
	for _, key := range j.pots() {
		x := k.pots[key]
		k.pots[key] = x
		if left := j.state.Domains[key.domain].Sprint.Balances[key.class].Joules(); left > x.most+x.slack+0.01 {
			j.broken("P8", "%s, class %q, has %.2f J left; by energy used and escrow it is %.2f J", key.domain, key.class, left, x.most)
		}
	}
}

// pots are those that the log has, in order of names.
func (j *judge) pots() (keys []potKey) {
	for _, name := range sortedKeys(j.state.Domains) {
		if d := j.state.Domains[name]; d.Sprint != nil {
			for _, class := range sortedKeys(d.Sprint.Balances) {
				keys = append(keys, potKey{name, class})
			}
		}
	}
	return keys
}

// gaps notes the time between two leaders that the ledger could not account for: the wall clock of the next one may be slow.
func (k *sprintJudge) gaps(j *judge, c ledger.Command) {
	if c.Lead == nil && c.Tick == nil {
		return
	}
	made := j.log[len(j.log)-1].made
	if c.Lead != nil && k.ticked > 0 {
		k.lag += max(0, made-k.ticked-(j.state.Passed-k.passed))
	}
	k.ticked, k.passed = made, j.state.Passed
}

// clock judges the time that refills, and refills.
func (k *sprintJudge) clock(j *judge, c ledger.Command) {
	key := epochKey{j.w.group, c.Epoch.Term}
	gain := j.state.Elapsed - k.elapsed
	k.elapsed = j.state.Elapsed
	k.counted[key] += gain
	if most := float64(j.w.now-k.began[key])*(1+rho) + 1e6; float64(k.counted[key]) > most {
		j.broken("P8", "epoch %v counted %v in %v", c.Epoch, k.counted[key], j.w.now-k.began[key])
	}
	if gain <= 0 {
		return
	}
	for _, key := range j.pots() {
		d := j.state.Domains[key.domain]
		x, known := k.pots[key]
		room := d.Sprint.Capacity.Joules() * part(d, key.class)
		for _, open := range k.open {
			if open.pot == key {
				room -= open.escrow
			}
		}
		if known && x.most < room {
			x.most = min(room, x.most+d.Sprint.Refill.Watts()*part(d, key.class)*gain.Seconds())
			k.pots[key] = x
		}
	}
}

// budget takes over another sprint budget: what a class has stays, as far as it fits.
func (k *sprintJudge) budget(j *judge, domain string) {
	d := j.state.Domains[domain]
	for key, p := range k.pots {
		if key.domain != domain {
			continue
		}
		if delete(k.pots, key); d.Sprint == nil {
			continue
		}
		if _, still := d.Sprint.Balances[key.class]; still {
			k.pots[key] = pot{min(p.most, d.Sprint.Capacity.Joules()*part(d, key.class)), p.slack}
		}
	}
}

// part is a class's part of a domain's sprint budget.
func part(d ledger.Domain, class string) float64 {
	if len(d.Sprint.Shares) == 0 {
		return 1
	}
	return d.Sprint.Shares[class]
}

// beside judges that a domain grants no sprint while a node of one that has ended is still above its base.
func (k *sprintJudge) beside(j *judge, x *ledger.GrantSprint) {
	for i := range j.nodes {
		now := j.nodes[i].stint
		if now == nil || j.excused(i) || !j.nodes[i].known {
			continue
		}
		if p := j.state.Sprints[now.id]; p.Domain == x.Domain && p.Ended != "" && !p.Closed {
			j.broken("P8", "%s granted sprint %s while %s still held %v for %s, which has ended",
				x.Domain, x.ID, j.w.nodes[i].name, j.w.nodes[i].hw.held, now.id)
		}
	}
}

// leave notes the nodes that an entry takes for gone, or for holding no cap, before they have proved to be back from a sprint: what they went
// on to draw is unknown, so no less than the escrow is spent.
func (k *sprintJudge) leave(j *judge, b before) {
	for name, was := range b.nodes {
		p := k.open[was.Owes]
		if now, still := j.state.Nodes[name]; p != nil && p.stints[name] != nil && (!still || now.Off != "" || !now.Controlled || now.Released) {
			j.w.nodeNamed(name).integrate()
			settled := *p.stints[name] // what it draws from now on stands under no sprint
			settled.left = true
			p.stints[name] = &settled
		}
	}
}

func (k *sprintJudge) grant(j *judge, x *ledger.GrantSprint) {
	d := j.state.Domains[x.Domain]
	key := potKey{x.Domain, ""}
	if len(d.Sprint.Shares) > 0 {
		key.class = x.Class
	}
	p := &sprint{pot: key, stints: map[string]*stint{}, at: j.w.now, lag: k.lag}
	for _, g := range x.Caps {
		base := j.state.Nodes[g.Node].Target
		aside := (g.Cap - base).Watts() * x.Duration.Seconds()
		p.escrow += aside
		p.stints[g.Node] = &stint{id: x.ID, base: base, cap: g.Cap, escrow: aside, clock: 1}
	}
	k.open[x.ID] = p
	left := k.pots[key]
	k.pots[key] = pot{left.most - p.escrow, left.slack}
	j.w.hit("sprint_granted")
}

// close takes back what was not drawn. Every node that is still the cluster's is back at its base by now. Of a node that has not reported
// what it drew at least the whole escrow is spent, and more where it drew more.
func (k *sprintJudge) close(j *judge, id string, p *sprint) {
	delete(k.open, id)
	j.w.hit("sprint_closed")
	drawn, slack := 0.0, 0.0
	for _, name := range sortedKeys(p.stints) {
		x := p.stints[name]
		n, c := j.w.nodeNamed(name), j.state.Nodes[name]
		removed := j.of(n).removed > p.at // its share was paid in full then, and a lease may still be on its way
		if j.of(n).stint == x && grantable(c) && !removed && !j.excused(j.index(n)) {
			j.broken("P8", "sprint %s is closed, but %s still sprints at %v", id, name, n.hw.held)
		}
		k.old[id] = k.old[id] || removed || x.left
		told := j.state.Sprints[id].Shares[name].Spent
		j.w.tracef("sprint %s of %s: %.2f J drawn above %v in %v, told %v, escrow %.2f J", id, name, x.joules, x.base, x.lasted, told, x.escrow)
		if told == nil { // known by the leaders' clocks only
			slack += 2*rho*x.joules + (x.cap-x.base).Watts()*(k.lag-p.lag).Seconds()
			x.joules = max(x.joules, x.escrow)
			j.w.hit("sprint_unmeasured")
		}
		if x.left {
			x.joules = max(x.joules, x.escrow)
			j.w.hit("sprinter_left")
		}
		if x.joules > x.escrow {
			j.w.hit("sprint_overdrawn")
		}
		drawn += x.joules
		slack += max(0, x.clock-1)*x.base.Watts()*x.lasted.Seconds() + 0.01
	}
	if x, known := k.pots[p.pot]; known {
		room := x.most + p.escrow - drawn
		if d := j.state.Domains[p.pot.domain]; d.Sprint != nil {
			room = min(room, d.Sprint.Capacity.Joules()*part(d, p.pot.class))
		}
		k.pots[p.pot] = pot{room, x.slack + slack}
	}
}
