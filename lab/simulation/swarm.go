package simulation

import (
	"fmt"
	"slices"
	"time"

	"headroom/ledger"
)

// class is one kind of fault, or of what operators do. Each schedule has its own random subset of them (swarm testing; Groce et al., ISSTA
// 2012): a cluster that suffers everything at once never gets far enough to break in interesting ways.
type class struct {
	name  string
	most  time.Duration        // the longest mean time between two occurrences, if the class happens at moments
	usual float64              // the least chance that a schedule has the class
	do    func(*world, random) // one occurrence; nil for a class that is a property of the whole schedule
	apart bool                 // drawn apart from the others: schedules of before there was such a class have the same faults as then
}

// machine, ofDomain and ofNode are occurrences for some machine, or for some domain or node that the log has.
func machine(do func(*world, random, *node)) func(*world, random) {
	return func(w *world, r random) { do(w, r, pick(r, w.nodes)) }
}

func ofDomain(do func(*world, random, ledger.Domain)) func(*world, random) {
	return func(w *world, r random) {
		if list := w.seen().Domains; len(list) > 0 {
			do(w, r, list[pick(r, sortedKeys(list))])
		}
	}
}

func ofNode(do func(*world, random, ledger.Node)) func(*world, random) {
	return func(w *world, r random) {
		if list := w.seen().Nodes; len(list) > 0 {
			do(w, r, list[pick(r, sortedKeys(list))])
		}
	}
}

// classes are all of them, in a fixed order.
func classes() []class {
	return []class{
		{name: "crash", most: 12 * time.Second, usual: 0.5, do: (*world).killSomebody},
		{name: "pause", most: 12 * time.Second, do: (*world).pauseSomebody},
		{name: "suspend", most: 12 * time.Second, do: machine((*world).suspendNode)},
		{name: "reboot", most: 15 * time.Second, do: machine((*world).rebootNode)},
		{name: "lost-node", most: 15 * time.Second, do: machine((*world).loseNode)},
		{name: "lost-charge", most: 8 * time.Second, usual: 0.35, do: (*world).wedgeNodes},
		{name: "power-off", most: 20 * time.Second, do: machine((*world).powerNodeOff)},
		{name: "release", most: 12 * time.Second, do: machine((*world).releaseNode)},
		{name: "rival", most: 12 * time.Second, do: machine((*world).overwriteLimit)},
		{name: "twin", most: 15 * time.Second, do: machine((*world).doubleIdentity)},
		{name: "frozen-disk", most: 15 * time.Second, do: (*world).freezeDisk},
		{name: "lost-quorum", most: 30 * time.Second, do: (*world).loseQuorum},
		{name: "partition", most: 12 * time.Second, do: (*world).partition},
		{name: "one-way", most: 12 * time.Second, do: (*world).cutOneWay},
		{name: "isolate-leader", most: 12 * time.Second, usual: 0.4, do: (*world).isolateLeader},
		{name: "wall-clock", most: 12 * time.Second, usual: 0.4, do: (*world).stepWallClock},
		{name: "brake", most: 20 * time.Second, usual: 0.4, do: (*world).brake},
		{name: "budget", most: 6 * time.Second, usual: 0.8, do: ofDomain((*world).orderBudget)},
		{name: "timed-budget", most: 8 * time.Second, usual: 0.4, do: ofDomain((*world).orderTimed)},
		{name: "domain", most: 10 * time.Second, do: ofDomain((*world).orderDomain)},
		{name: "settings", most: 8 * time.Second, usual: 0.4, do: ofNode((*world).orderSettings)},
		{name: "move", most: 6 * time.Second, do: ofNode((*world).orderMove)},
		{name: "drain", most: 12 * time.Second, do: ofNode((*world).orderDrain)},
		{name: "remove", most: 20 * time.Second, do: ofNode((*world).orderRemove)},
		{name: "policy", most: 15 * time.Second, do: (*world).orderPolicy},
		{name: "sprint", most: 4 * time.Second, usual: 0.4, do: ofDomain((*world).orderSprint)},
		{name: "read", most: 5 * time.Second, usual: 0.5, do: (*world).orderRead},
		{name: "job", most: 5 * time.Second, usual: 0.3, do: (*world).orderJob, apart: true},
		{name: "deflate", most: 5 * time.Second, usual: 0.3, do: (*world).orderDeflation, apart: true},
		{name: "site-dark", most: 30 * time.Second, usual: 0.12, do: (*world).darken, apart: true},
		{name: "stranger", most: 20 * time.Second, usual: 0.3, do: (*world).strand, apart: true},
		{name: "old-lease", most: 10 * time.Second, usual: 0.3, do: machine((*world).oldLease), apart: true},
		{name: "raised-restart", most: 12 * time.Second, usual: 0.15, do: machine((*world).raisedRestart), apart: true},
		{name: "lease-length", most: 12 * time.Second, usual: 0.25, do: (*world).orderLease, apart: true},
		{name: "hasty-lift", most: 10 * time.Second, usual: 0.3, do: (*world).liftUnseen, apart: true},
		{name: "flurry", most: 12 * time.Second, usual: 0.2, do: machine((*world).flurry), apart: true},
		{name: "control", most: 8 * time.Second, usual: 0.25, do: machine((*world).toggleControl), apart: true},
		{name: "deaf", most: 10 * time.Second, usual: 0.2, do: machine((*world).deafen), apart: true},
		{name: "echo", most: 12 * time.Second, usual: 0.15, do: machine((*world).echo), apart: true},
		{name: "sprinter-off", most: 4 * time.Second, usual: 0.35, do: (*world).sprinterOff, apart: true},
		{name: "unsynced", most: 8 * time.Second, usual: 0.2, do: machine((*world).killUnsynced), apart: true},
		{name: "debt", most: 4 * time.Second, usual: 0.25, do: (*world).overdraw, apart: true},

		{name: "loss"},
		{name: "delay", usual: 0.6},
		{name: "duplicate"},
		{name: "reorder", usual: 0.4},
		{name: "slow-disk"},
		{name: "slow-limit"},
		{name: "stuck-limit"},
		{name: "state-lost"},
		{name: "reconfigure"},
		{name: "clock-rate", usual: 0.4},
		{name: "boot-reserve"},
		{name: "restless", usual: 0.6},
	}
}

// drawSwarm decides which classes the schedule has.
func (w *world) drawSwarm() {
	w.on = map[string]bool{}
	r := w.random("swarm", 0)
	density := []float64{0.15, 0.3, 0.5}[r.IntN(3)]
	for _, c := range classes() {
		if c.apart {
			w.on[c.name] = w.random("swarm-"+c.name, 0).chance(c.usual)
			continue
		}
		w.on[c.name] = r.chance(max(density, c.usual))
	}
	// Lost charge needs a leader that lasts; what the drift margin is for needs clocks that differ.
	if off, lasts := r.chance(0.7), r.chance(0.6); w.on["lost-charge"] {
		w.on["clock-rate"] = w.on["clock-rate"] || off
		for _, name := range []string{"crash", "pause", "isolate-leader", "partition", "frozen-disk", "lost-quorum"} {
			w.on[name] = w.on[name] && !lasts
		}
	}
	// What needs another class to mean anything.
	w.on["brake"] = w.on["brake"] || w.on["hasty-lift"]
	w.on["sprint"] = w.on["sprint"] || w.on["sprinter-off"] || w.on["debt"]
	// Chains of faults need some peace to come to their end.
	loud := []string{
		"crash", "pause", "suspend", "reboot", "lost-node", "isolate-leader", "partition", "frozen-disk", "lost-quorum", "brake", "hasty-lift",
		"budget", "timed-budget", "site-dark", "control", "deaf", "flurry",
	}
	if w.random("undisturbed", 0).chance(0.7) && (w.on["sprinter-off"] || w.on["debt"]) {
		w.quiet(append(loud, "stranger", "old-lease"))
	}
	if w.random("undisturbed", 1).chance(0.6) && (w.on["stranger"] || w.on["old-lease"]) {
		w.quiet(append(loud, "settings", "release", "remove", "drain", "loss"))
	}
	if w.schedule.Only != nil {
		for _, c := range classes() {
			w.on[c.name] = slices.Contains(w.schedule.Only, c.name)
		}
	}
}

func (w *world) quiet(names []string) {
	for _, name := range names {
		w.on[name] = false
	}
}

// when is x in a schedule that has the class, else 0.
func (w *world) when(class string, x float64) float64 {
	if w.on[class] {
		return x
	}
	return 0
}

// disrupt plans the occurrences of each class until the calm. Each has a name, such as "crash#3", and chances of its own.
func (w *world) disrupt() {
	for _, c := range classes() {
		if !w.on[c.name] || c.do == nil {
			continue
		}
		r := w.random(c.name, -1)
		mean := r.between(c.most/8, c.most)
		at := time.Second + r.about(mean)
		for i := 0; at < w.calm; i++ {
			w.occur(c, i, at)
			at += 50*time.Millisecond + r.about(mean)
		}
	}
	if w.calm < w.end {
		w.add(w.calm, w.mend)
	}
}

// occur plans one occurrence, unless the schedule leaves it out.
func (w *world) occur(c class, i int, at time.Duration) {
	name := fmt.Sprintf("%s#%d", c.name, i)
	if w.schedule.Keep != nil && !slices.Contains(w.schedule.Keep, name) {
		return
	}
	w.add(at, func() {
		w.happened = append(w.happened, name)
		c.do(w, w.random(c.name, i))
	})
}
