package simulation

import (
	"fmt"
	"slices"
	"time"
)

// class is one kind of fault, or of what operators do. Each schedule has its own
// random subset of them (swarm testing; Groce et al., ISSTA 2012): a cluster that
// suffers everything at once never gets far enough to break in interesting ways.
type class struct {
	name string
	// most is the longest mean time between two occurrences, if the class happens at moments.
	most time.Duration
	// usual is the least chance that a schedule has the class.
	usual float64
	// do is one occurrence; nil for a class that is a property of the whole schedule.
	do func(*world, dice)
}

// classes are all of them, in a fixed order.
func classes() []class {
	return []class{
		{"crash", 12 * time.Second, 0.5, (*world).killSomebody},
		{"pause", 12 * time.Second, 0, (*world).pauseSomebody},
		{"suspend", 12 * time.Second, 0, (*world).suspendNode},
		{"reboot", 15 * time.Second, 0, (*world).rebootNode},
		{"lost-node", 15 * time.Second, 0, (*world).loseNode},
		{"lost-charge", 8 * time.Second, 0.35, (*world).wedgeNodes},
		{"power-off", 20 * time.Second, 0, (*world).powerNodeOff},
		{"release", 12 * time.Second, 0, (*world).releaseNode},
		{"rival", 12 * time.Second, 0, (*world).overwriteLimit},
		{"twin", 15 * time.Second, 0, (*world).doubleIdentity},
		{"frozen-disk", 15 * time.Second, 0, (*world).freezeDisk},
		{"lost-quorum", 30 * time.Second, 0, (*world).loseQuorum},
		{"partition", 12 * time.Second, 0, (*world).partition},
		{"one-way", 12 * time.Second, 0, (*world).cutOneWay},
		{"isolate-leader", 12 * time.Second, 0.4, (*world).isolateLeader},
		{"wall-clock", 12 * time.Second, 0.4, (*world).stepWallClock},
		{"brake", 20 * time.Second, 0.4, (*world).brake},
		{"budget", 6 * time.Second, 0.8, (*world).orderBudget},
		{"timed-budget", 8 * time.Second, 0.4, (*world).orderTimed},
		{"domain", 10 * time.Second, 0, (*world).orderDomain},
		{"settings", 8 * time.Second, 0.4, (*world).orderSettings},
		{"move", 6 * time.Second, 0, (*world).orderMove},
		{"drain", 12 * time.Second, 0, (*world).orderDrain},
		{"remove", 20 * time.Second, 0, (*world).orderRemove},
		{"policy", 15 * time.Second, 0, (*world).orderPolicy},
		{"sprint", 4 * time.Second, 0.4, (*world).orderSprint},
		{"read", 5 * time.Second, 0.5, (*world).orderRead},
		{jobClass, 5 * time.Second, 0.3, (*world).orderJob},
		{deflateClass, 5 * time.Second, 0.3, (*world).orderDeflation},

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

// jobClass and deflateClass are what schedulers ask for. They are drawn apart from the
// others, so that a kept schedule has the same faults as before there were any.
const (
	jobClass     = "job"
	deflateClass = "deflate"
)

// Classes are the names of all classes of faults and operator changes.
func Classes() []string {
	var names []string
	for _, c := range classes() {
		names = append(names, c.name)
	}
	return names
}

// drawSwarm decides which classes the schedule has.
func (w *world) drawSwarm() {
	w.on = map[string]bool{}
	r := w.dice("swarm", 0)
	density := []float64{0.15, 0.3, 0.5}[r.IntN(3)]
	for _, c := range classes() {
		if c.name == jobClass || c.name == deflateClass {
			w.on[c.name] = w.dice("swarm-"+c.name, 0).chance(c.usual)
			continue
		}
		w.on[c.name] = r.chance(max(density, c.usual))
	}
	// A lost node stops being charged in full only under a leader that lasts, and what
	// the drift margin is for shows only where clocks differ.
	if off, lasts := r.chance(0.7), r.chance(0.6); w.on["lost-charge"] {
		w.on["clock-rate"] = w.on["clock-rate"] || off
		for _, name := range []string{"crash", "pause", "isolate-leader", "partition", "frozen-disk", "lost-quorum"} {
			w.on[name] = w.on[name] && !lasts
		}
	}
	if w.schedule.Only != nil {
		for _, c := range classes() {
			w.on[c.name] = slices.Contains(w.schedule.Only, c.name)
		}
	}
}

// when is x in a schedule that has the class, else 0.
func (w *world) when(class string, x float64) float64 {
	if w.on[class] {
		return x
	}
	return 0
}

// disrupt plans the occurrences of each class until the calm. Each has a name,
// such as "crash#3", and chances of its own.
func (w *world) disrupt() {
	for _, c := range classes() {
		if !w.on[c.name] || c.do == nil {
			continue
		}
		r := w.dice(c.name, -1)
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

// occur plans one occurrence, unless the schedule is told to leave it out.
func (w *world) occur(c class, i int, at time.Duration) {
	name := fmt.Sprintf("%s#%d", c.name, i)
	if w.schedule.Keep != nil && !slices.Contains(w.schedule.Keep, name) {
		return
	}
	w.add(at, func() {
		w.happened = append(w.happened, name)
		c.do(w, w.dice(c.name, i))
	})
}
