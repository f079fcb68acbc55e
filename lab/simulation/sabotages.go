package simulation

import "slices"

// breach is one rule of the design that can be broken on purpose, to see that the judges find it: a small change of a production file.
type breach struct {
	Name   string `json:"name"`   // for --sabotage
	Breaks string `json:"breaks"` // the promise under which the judges find it
	File   string `json:"file"`   // that it changes, below the module
	edits  []edit
}

// edit replaces a text that stands in a file once. BROKEN in the new text stands for whether this sabotage was chosen.
type edit struct {
	file, old, new string
}

// findSabotage is the sabotage of a name; "" is none.
func findSabotage(name string) (breach, bool) {
	list := append(sabotages(), breach{})
	i := slices.IndexFunc(list, func(s breach) bool { return s.Name == name })
	if i < 0 {
		return breach{}, false
	}
	return list[i], true
}

func patched(name, breaks string, edits ...edit) breach {
	return breach{Name: name, Breaks: breaks, File: edits[0].file, edits: edits}
}

// sabotages are all of them, in order of where they break the design: in a node, a leadership, the ledger.
func sabotages() []breach {
	out := append(nodeSabotages(), leaderSabotages()...)
	return append(append(out, evidenceSabotages()...), ledgerSabotages()...)
}

func nodeSabotages() []breach {
	return []breach{
		patched("lease-from-receipt", "P2", edit{"lease/node.go", "	n.Told(g)\n	if n.leaving {", "	n.Told(g)\n	if BROKEN {\n		n.holder.Sent(g.Heartbeat, now)\n	}\n	if n.leaving {"}),
		// powerd reads the clock that stands still in suspend.
		patched("clock-without-suspend", "P2",
			edit{"lease/lease.go", "	h.sent[number%remembered] = sending{number: number, at: now.Boot}", "	if BROKEN {\n		now.Boot = now.Awake\n	}\n	h.sent[number%remembered] = sending{number: number, at: now.Boot}"},
			edit{"lease/lease.go", "	sent := h.sent[g.Heartbeat%remembered]\n", "	if BROKEN {\n		now.Boot = now.Awake\n	}\n	sent := h.sent[g.Heartbeat%remembered]\n"},
			edit{"lease/lease.go", "	slept := now.asleep()-h.asleep", "	if BROKEN {\n		now.Boot = now.Awake\n	}\n	slept := now.asleep()-h.asleep"}),
		// Sequence numbers are compared, leaderships are not.
		patched("epoch-not-checked", "P3", edit{"lease/lease.go", "	switch order := g.Stamp.Compare(h.memory.Highest); {", "	order := g.Stamp.Compare(h.memory.Highest)\n	if BROKEN && order < 0 && g.Stamp.Seq >= h.memory.Highest.Seq {\n		order = 1\n	}\n	switch {"}),
		// A node reports what it wrote instead of what reads back.
		patched("written-not-read-back", "P4", edit{"lease/node.go", "max(cap, n.inForce)+max(excess, n.strayed), known && !n.unread\n", "max(cap, n.inForce)+max(excess, n.strayed), known && !n.unread\n	if BROKEN {\n		hb.Effective = max(cap, n.inForce)\n	}\n"}),
		// A write that failed, and cannot be read back, is reported as held.
		patched("failed-write-acknowledged", "P4", edit{"lease/node.go", "	if s, under := n.sprint.Status(now.Boot); under {\n		hb.Sprint", "	hb.EffectiveKnown = hb.EffectiveKnown || BROKEN\n	if s, under := n.sprint.Status(now.Boot); under {\n		hb.Sprint"}),
		patched("sprint-runs-again", "P8", edit{"capping/sprint.go", "		if c == id {", "		if c == id && !BROKEN {"}),
		// A newer sequence without the sprint does not end it.
		patched("sprint-not-superseded", "P5", edit{"capping/sprint.go", "	case in.Offer.ID != p.offer.ID:\n		return EndedSuperseded, true", "	case in.Offer.ID != p.offer.ID && !BROKEN:\n		return EndedSuperseded, true"}),
		patched("brake-not-stored", "brake", edit{"lease/node.go", "	return &Node{holder: New(", "	if BROKEN {\n		m.Brake = 0\n	}\n	return &Node{holder: New("}),
		patched("lease-lifts-brake", "brake", edit{"lease/lease.go", "	case g.BrakeLifted < h.memory.Brake:", "	case g.BrakeLifted < h.memory.Brake && !BROKEN:"}),
		// A node that receives a brake keeps it to itself: the lease goes on.
		patched("brake-stays-local", "brake", edit{"lease/lease.go", "		if h.state != Held || h.lifted < generation {", "		if h.state != Held || h.lifted < generation && !BROKEN {"}),
		// A lease that lifts the generation remembered is taken for one that does not.
		patched("brake-generation-not-below", "recovery", edit{"lease/lease.go", "	case now.Boot >= sent.at+g.Duration:\n		return ErrRanOut", "	case BROKEN && h.memory.Brake > 0 && g.BrakeLifted <= h.memory.Brake:\n		return ErrBraked\n	case now.Boot >= sent.at+g.Duration:\n		return ErrRanOut"}),
		patched("cut-waits-for-disk", "P5", edit{"lease/node.go", "	if n.holder.Lower(g, now) != nil {", "	if BROKEN || n.holder.Lower(g, now) != nil {"}),
		// A grant that comes while another is stored is lost, with what it takes away.
		patched("newest-waiting-grant-lost", "P5", edit{"lease/node.go", "	case n.busy:\n", "	case n.busy && BROKEN:\n		return nil\n	case n.busy:\n"}),
		// A grant is acknowledged before it is on disk.
		patched("node-fsync-skipped", "P4", edit{"lease/node.go", "	if s, under := n.sprint.Status(now.Boot); under {\n		hb.Sprint", "	if BROKEN && n.busy && n.grant != nil {\n		hb.Highest, hb.Stored = n.storing.Highest, n.storing.FailSafe\n	}\n	if s, under := n.sprint.Status(now.Boot); under {\n		hb.Sprint"}),
	}
}

func leaderSabotages() []breach {
	return []breach{
		patched("answer-before-commit", "P3", edit{"ledger/leader/leader.go", "	return []Output{Propose{c}}\n", "	if BROKEN && l.led {\n		return append([]Output{Propose{c}}, l.answers(s, now)...)\n	}\n	return []Output{Propose{c}}\n"}),
		// An entry answers heartbeats that came after it was proposed.
		patched("answer-from-earlier-entry", "P3", edit{"ledger/table.go", "		n, ok := s.Nodes[e.report.Node]\n		if !ok || !n.Grantable()", "		if BROKEN {\n			e.marked = e.report.Number\n		}\n		n, ok := s.Nodes[e.report.Node]\n		if !ok || !n.Grantable()"}),
		patched("lost-is-off", "P4", edit{"ledger/leader/leader.go", "	t := ledger.Decide(s, l.table, now.Mono)\n", `	t := ledger.Decide(s, l.table, now.Mono)
	for _, n := range s.NodesByName() {
		if v, ok := l.table.View(n.Name, now.Mono); BROKEN && ok && v.Age > l.cfg.Timing.Lease && n.Off == "" {
			l.queue = append(l.queue, &Request{Build: PowerOff(n.Name, "silence"), Quiet: true})
			break
		}
	}
`}),
		// The lowers of a cut are left to later while a node is not heard.
		patched("cut-waits-for-lost", "P5", edit{"ledger/leader/request.go", "	d := s.Domains[b.Domain]\n	b.Highest", `	for name, n := range s.Nodes {
		if BROKEN && n.Grantable() && v.l.table.Silent(name, v.Now.Mono) > v.l.cfg.Timing.Lost {
			c.Budget.Targets = nil
		}
	}
	d := s.Domains[b.Domain]
	b.Highest`}),
		patched("cut-in-the-next-tick", "P5", edit{"ledger/leader/request.go", "	d := s.Domains[b.Domain]\n	b.Highest", "	if BROKEN {\n		c.Budget.Targets = nil\n	}\n	d := s.Domains[b.Domain]\n	b.Highest"}),
		// The leader's clock is used as every server's.
		patched("clock-of-the-leader", "P5", edit{"ledger/leader/clock.go", "	if plan, err := ledger.PlanBudget(v.State", `	if BROKEN && x.servers != nil {
		x.servers = map[string]int64{}
		for i := range x.voters {
			x.servers[string(rune('a'+i))] = v.Now.Wall.UnixMicro()
		}
		c.Budget.Clock.Servers = x.servers
	}
	if plan, err := ledger.PlanBudget(v.State`}),
		// A sprint is pushed before its escrow has committed.
		patched("escrow-after-start", "P8",
			edit{"ledger/leader/leader.go", "	l.flight = &flight{command: c, request: r}\n", "	l.flight = &flight{command: c, request: r}\n	if BROKEN && c.Sprint != nil {\n		return append([]Output{Propose{c}}, l.unpaid(s, now, c.Sprint)...)\n	}\n"},
			edit{"ledger/leader/leader.go", "// Outgrown says that nodes", `func (l *Leader) unpaid(s *ledger.State, now Moment, x *ledger.GrantSprint) (out []Output) {
	for _, g := range l.table.Grants(s, now.Mono) {
		for _, to := range x.Caps {
			if n := s.Nodes[g.Node]; to.Node == g.Node && to.Cap > n.Target {
				g.Grant.Stamp.Seq++
				g.Grant.Sprint = lease.Sprint{ID: x.ID, Cap: to.Cap, Duration: x.Duration, Escrow: (to.Cap - n.Target).For(x.Duration)}
				out = append(out, Grant{g})
			}
		}
	}
	return out
}

// Outgrown says that nodes`}),
		patched("gaps-refill", "P8", edit{"ledger/leader/leader.go", "	t.Elapsed = now.Mono - l.ticked\n", "	t.Elapsed = now.Mono - l.ticked\n	if BROKEN && l.first {\n		t.Elapsed += l.cfg.Gap\n	}\n"}),
		// A restored group does not come after the leaderships of which it has no record.
		patched("incarnation-not-raised", "recovery", edit{"ledger/leader/leader.go", "	case s.Restored && heard.Compare(l.cfg.Epoch) > 0:", "	case s.Restored && heard.Compare(l.cfg.Epoch) > 0 && !BROKEN:"}),
	}
}

// evidenceSabotages are about what a read-back, or silence, proves.
func evidenceSabotages() []breach {
	return []breach{
		// A lower counts as acknowledged when it is committed.
		patched("raise-before-lower", "P1", edit{"ledger/node.go", "	n.Ceiling = max(n.Ceiling, top)\n	return n\n", "	if n.Ceiling = max(n.Ceiling, top); BROKEN {\n		n.Ceiling = top\n	}\n	return n\n"}),
		// Every read-back counts for the newest target, whichever it names.
		patched("old-acknowledgement", "P4", edit{"ledger/evidence.go", "	still := a.Effective\n", "	if BROKEN {\n		n.Pending = nil\n	}\n	still := a.Effective\n"}),
		// A heartbeat counts as a read-back though what its node's hardware holds is unknown.
		patched("early-tick-before-read-back", "P4", edit{"ledger/decide.go", "	return a, r.EffectiveKnown\n", "	return a, BROKEN || r.EffectiveKnown\n"}),
		// A node that has not been heard for a lease is at its fail-safe cap.
		patched("charge-ends-with-lease", "P4",
			edit{"ledger/decide.go", "	return silent >= s.waiting(t.timing).Fallen()", "	if BROKEN {\n		return silent >= t.timing.Lease\n	}\n	return silent >= s.waiting(t.timing).Fallen()"},
			edit{"ledger/decide.go", "	if !slices.ContainsFunc(slices.Collect(maps.Values(s.Domains)), lower) {", "	if !BROKEN && !slices.ContainsFunc(slices.Collect(maps.Values(s.Domains)), lower) {"},
			edit{"ledger/evidence.go", "	return s.lostCharge(n.Domain) == LostFailSafe &&", "	return BROKEN || s.lostCharge(n.Domain) == LostFailSafe &&"}),
		patched("no-drift-margin", "P4", edit{"ledger/table.go", "	return span + drift(span)", "	if BROKEN {\n		return span\n	}\n	return span + drift(span)"}),
		// Clocks are taken to be twenty times as good as the design allows for.
		patched("drift-twentieth", "P4", edit{"ledger/table.go", "time.Duration { return time.Duration(2 * Rho / (1 - Rho) * float64(d)) }", "time.Duration {\n	rate := Rho\n	if BROKEN {\n		rate = Rho / 20\n	}\n	return time.Duration(2 * rate / (1 - rate) * float64(d))\n}"}),
		// A node counts as lost since the last report that brought the log any news, whatever it was granted since.
		patched("lapse-ignores-grant", "P4",
			edit{"ledger/decide.go", "	silent := t.Silent(node, now)\n	if e, ok", "	if e, ok := t.nodes[node]; ok && BROKEN {\n		if e.news == 0 {\n			e.news = now\n		}\n		return now-e.news >= s.waiting(t.timing).Fallen()\n	}\n	silent := t.Silent(node, now)\n	if e, ok"},
			edit{"ledger/decide.go", "ok && !table.gone(t.State, n.Name, now) {\n", "ok && !table.gone(t.State, n.Name, now) {\n			e.news = now\n"},
			edit{"ledger/table.go", "	double   time.Duration // when", "	news     time.Duration\n	double   time.Duration // when"}),
		// Every leader waits for leases of the length in its own configuration.
		patched("lease-length-per-server", "P4", edit{"ledger/leases.go", "func (s *State) waiting(t Timing) Timing {\n", "func (s *State) waiting(t Timing) Timing {\n	if BROKEN {\n		return t\n	}\n"}),
		// A heartbeat that is older than the newest heard counts as a read-back.
		patched("old-heartbeat-counts", "P4", edit{"ledger/evidence.go", "a.Number >= n.Heard && n.Controlled", "(BROKEN || a.Number >= n.Heard) && n.Controlled"}),
		// What a node names of an earlier incarnation is an acknowledgement in this one.
		patched("old-incarnation-lowers", "P4", edit{"ledger/decide.go", "		return 0\n	}\n	return r.Highest.Seq\n", "		if BROKEN {\n			return min(r.Highest.Seq, n.Seq)\n		}\n		return 0\n	}\n	return r.Highest.Seq\n"}),
		// A read-back that is older than the required proof raises nothing.
		patched("unproven-readback-ignored", "P4", edit{"ledger/evidence.go", "	n = n.acknowledged(a)\n", "	if BROKEN && !t.draft && a.Seq < n.Proof {\n		return n\n	}\n	n = n.acknowledged(a)\n"}),
		// The read-back of a process that was replaced lowers what its node is charged.
		patched("new-process-believed", "P4", edit{"ledger/evidence.go", "	n = t.retarget(n, to)\n	n.Proof = n.Seq\n", "	n = t.retarget(n, to)\n	if !BROKEN {\n		n.Proof = n.Seq\n	}\n"}),
	}
}

// ledgerSabotages are about what an entry does to the state.
func ledgerSabotages() []breach {
	return []breach{
		patched("move-frees-at-once", "P4", edit{"ledger/node.go", "		n.From, n.FromSeq = was, n.Seq\n", "		if !BROKEN {\n			n.From, n.FromSeq = was, n.Seq\n		}\n"}),
		// A node that is removed is charged nothing any more, without a word on whether it is off.
		patched("removal-frees", "P4", edit{"ledger/node.go", "!x.PoweredOff && charge > 0 {", "!BROKEN && !x.PoweredOff && charge > 0 {"}),
		// Nodes are charged as in a restored snapshot.
		patched("snapshot-is-believed", "P4", edit{"ledger/incarnation.go", "			n = n.doubted()\n", "			if n = n.doubted(); BROKEN {\n				n.Unproven, n.Ceiling = false, n.Target\n			}\n"}),
		// Caps are raised while nodes have not shown what they hold, or the brake is set.
		patched("raise-while-held", "P1",
			edit{"ledger/grant.go", "	case g.Cap > n.Target && t.held() != nil:", "	case !BROKEN && g.Cap > n.Target && t.held() != nil:"},
			edit{"ledger/decide.go", "	if over || s.held() != nil || !t.settled(s, roll, now) {", "	if over || !BROKEN && s.held() != nil || !t.settled(s, roll, now) {"}),
		// A fail-safe cap that was declared or set counts as stored.
		patched("fail-safe-not-stored", "P4", edit{"ledger/node.go", "	return max(n.Ceiling, n.FailSafeCap(), n.Stored, n.Floor, n.Excess)", "	if BROKEN {\n		return max(n.Ceiling, n.FailSafeCap(), n.Floor, n.Excess)\n	}\n	return max(n.Ceiling, n.FailSafeCap(), n.Stored, n.Floor, n.Excess)"}),
		// Too many pending targets are folded without keeping the higher one.
		patched("pending-folded-low", "P4", edit{"ledger/node.go", "		folded.Cap = max(folded.Cap, n.Pending[0].Cap)\n", "		if !BROKEN {\n			folded.Cap = max(folded.Cap, n.Pending[0].Cap)\n		}\n"}),
		patched("snapshot-without-pending", "ledger", edit{"ledger/state.go", "func (s *State) Snapshot() ([]byte, error) {\n", "func (s *State) Snapshot() ([]byte, error) {\n	if BROKEN {\n		s = s.Clone()\n		for name, n := range s.Nodes {\n			if len(n.Pending) > 1 {\n				n.Pending = n.Pending[:1]\n				s.Nodes[name] = n\n			}\n		}\n	}\n"}),
		// A node that holds caps again is charged what it was before it held none.
		patched("control-again-uncharged", "P4", edit{"ledger/evidence.go", "	if !n.Controlled && x.Controlled {", "	if !BROKEN && !n.Controlled && x.Controlled {"}),
		// A restored group waits for no unknown lease.
		patched("restore-awaits-no-unknown", "P1", edit{"ledger/leases.go", "	if s.Unknown == 0 {", "	if BROKEN {\n		return 0\n	}\n	if s.Unknown == 0 {"}),
		// Unmeasured energy costs the escrow, however long it took.
		patched("unmeasured-is-escrow", "P8", edit{"ledger/sprint.go", "	if x.Spent == nil {", "	if x.Spent == nil && !BROKEN {"}),
		patched("refund-twice", "P8", edit{"ledger/sprint.go", "d.Sprint.Balances[pot]+p.Refunded))", "d.Sprint.Balances[pot]+p.Refunded+map[bool]units.Energy{true: p.Refunded}[BROKEN]))"}),
		// The share of a node that has not reported what it spent goes back whole.
		patched("refund-unmeasured", "P8", edit{"ledger/sprint.go", "	case x.Settled:\n", "	case x.Settled && !BROKEN:\n"}),
		patched("restore-forgives-debt", "P8", edit{"ledger/sprint.go", "		b.Balances[pot] = min(0, d.Sprint.Balances[pot])", "		if b.Balances[pot] = 0; BROKEN {\n			continue\n		}\n		b.Balances[pot] = min(0, d.Sprint.Balances[pot])"}),
		// The share of a node that is gone is settled by what it has reported.
		patched("lost-settlement-believes-node", "P8", edit{"ledger/sprint.go", "ok && x.Spent != nil && *x.Spent < x.Escrow {", "ok && !BROKEN && x.Spent != nil && *x.Spent < x.Escrow {"}),
		// A sprint begins while another of the domain is still ending.
		patched("sprint-beside-ending", "P8", edit{"ledger/sprint.go", `p.Domain == d.Name && p.Open() && p.Ended != "" {`, `p.Domain == d.Name && p.Open() && p.Ended != "" && !BROKEN {`}),
		patched("lift-any-generation", "brake",
			edit{"ledger/brake.go", "	case x.Generation != t.Brake.Set:", "	case x.Generation != t.Brake.Set && !BROKEN:"},
			edit{"ledger/brake.go", "	t.Brake.Lifted = x.Generation\n", "	if t.Brake.Lifted = x.Generation; BROKEN {\n		t.Brake.Lifted = t.Brake.Set\n	}\n"}),
		// Tasks are dropped that the job's floor does not leave.
		patched("floor-not-checked", "P9",
			edit{"ledger/job.go", "	case gone > uint64(may):", "	case gone > uint64(may) && !BROKEN:"},
			edit{"ledger/job.go", "	case gone > 0 && gone+uint64(beside) > uint64(may) && beside > 0:", "	case gone > 0 && gone+uint64(beside) > uint64(may) && beside > 0 && !BROKEN:"}),
		// A drop ratio is put in force that the job's floor does not leave.
		patched("ratio-not-checked", "P9", edit{"ledger/deflate.go", "	case units.Ratio(theta).Above(units.Ratio(most)):", "	case units.Ratio(theta).Above(units.Ratio(most)) && !BROKEN:"}),
		patched("drops-forgotten", "P9", edit{"ledger/apply.go", "	t.Epoch = c.Epoch\n", "	t.Epoch = c.Epoch\n	for id, j := range t.Jobs {\n		if BROKEN {\n			j.Dropped = nil\n			put(t, t.Jobs, id, j)\n		}\n	}\n"}),
		patched("request-keys-lost-at-failover", "ledger", edit{"ledger/apply.go", "	t.Epoch = c.Epoch\n", "	t.Epoch = c.Epoch\n	if BROKEN {\n		t.Requests = nil\n	}\n"}),
	}
}

// hiddenSabotage is found by the check of histories, not by the judges: a server that takes itself for the leader answers reads.
func hiddenSabotage() breach {
	return patched("stale-read", "", edit{"ledger/leader/request.go", "	l.reads = append(l.reads, r)\n", "	if BROKEN {\n		return []Output{Answer{Request: r}}\n	}\n	l.reads = append(l.reads, r)\n"})
}
