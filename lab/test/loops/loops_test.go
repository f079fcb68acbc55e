// Claims: the three loops together (the node's each 250 ms, the coordinators' each
// second, the jobs' each 5 s) come to rest after a step of the budget or of what
// the jobs demand, stay there but for a bounded number of moves while everything
// flickers, never turn round more often than that, and starve no node that has
// work. Loops that are tuned badly do not pass.
package loops_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"headroom/budget"
	"headroom/capping"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/lab/emulator/plant"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// Periods of the loops, and of the plant below them.
const (
	instant = 10 * time.Millisecond
	node    = 250 * time.Millisecond
	tick    = time.Second
	jobs    = 5 * time.Second
)

const (
	slots                       = 8
	floor, failSafe, most, rate = 80 * units.Watt, 90 * units.Watt, 220 * units.Watt, 250 * units.Watt
)

// machine is one node: the emulated plant, powerd's control law and its estimate of
// demand, and the slots that jobs use.
type machine struct {
	name   string
	plant  *plant.Plant
	config capping.Config
	law    capping.State
	demand capping.Demand
	cap    units.Power // granted
	stamp  lease.Stamp
	number uint64

	work  int // slots that jobs demand
	using int // slots that the scheduler uses
	util  float64

	pkg, dram units.Energy
	wall      float64 // summed over the instants since the last look
	looks     int
	mean      units.Power

	sprint string               // the one that it has a lease for
	drawn  float64              // J above its base in it
	ended  []ledger.SprintSpent // newest last

	moves, turns int
	last, before units.Power // targets
	moved        time.Duration
}

// tuning is what a test may spoil.
type tuning struct {
	// asks is the demand that a node reports.
	asks func(m *machine, now time.Duration) units.Power
	// follow is how often the jobs follow the caps.
	follow time.Duration
}

func asDesigned() tuning {
	return tuning{follow: jobs, asks: func(m *machine, now time.Duration) units.Power {
		d, _ := m.demand.Watts(now, floor, most)
		return d
	}}
}

// loops are all three over some machines.
type loops struct {
	t        *testing.T
	tuning   tuning
	machines []*machine
	state    *ledger.State
	table    *ledger.Table
	now      time.Duration
	noise    float64
	rng      *rand.Rand
}

func newLoops(t *testing.T, n int, watts units.Power, how tuning) *loops {
	t.Helper()
	l := &loops{t: t, tuning: how, state: ledger.New(), table: ledger.NewTable(ledger.DefaultTiming(), 0), rng: rand.New(rand.NewPCG(7, 7))}
	l.apply(ledger.Command{Lead: &ledger.Lead{Server: "c1"}})
	l.apply(ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains([]budget.Domain{{Name: "site/lab", Budget: watts}})}})
	for i := range n {
		spec := plant.DefaultSpec()
		p := testkit.Need(plant.New(spec))(t)
		p.SetWindow(plant.LongTerm, capping.LongWindow)
		p.SetWindow(plant.ShortTerm, capping.ShortWindow)
		l.machines = append(l.machines, &machine{
			name: fmt.Sprintf("n%02d", i+1), plant: p, cap: failSafe, work: slots, using: slots, pkg: p.PackageEnergy(), dram: p.DRAMEnergy(),
			config: capping.Config{Other: spec.Other, Efficiency: spec.WorstEfficiency(), PackageMin: 5 * units.Watt, PackageMax: spec.TDP, HasDRAM: true},
		})
	}
	return l
}

func (l *loops) apply(c ledger.Command) {
	l.t.Helper()
	c.Epoch, c.Rules = lease.Epoch{Incarnation: 1, Term: 1}, ledger.Rules
	if _, err := l.state.Apply(c); err != nil {
		l.t.Fatal(err)
	}
}

// run lets time go by.
func (l *loops) run(d time.Duration) {
	for end := l.now + d; l.now < end; l.now += instant {
		if l.now%jobs == 0 || l.now%l.tuning.follow == 0 {
			for _, m := range l.machines {
				m.schedule()
			}
		}
		for i, m := range l.machines {
			if (l.now+time.Duration(i)*30*time.Millisecond)%node == 0 {
				m.look(l.now)
				m.util = min(1, max(0.02, float64(m.using)/slots*(1+l.noise*(2*l.rng.Float64()-1))))
			}
			m.plant.Step(instant, m.util)
			m.wall, m.looks = m.wall+m.plant.Wall().Watts(), m.looks+1
		}
		if l.now%tick == 0 {
			l.tick()
		}
	}
}

// schedule is the jobs' loop: as many slots as the cap feeds.
func (m *machine) schedule() {
	m.using = min(m.work, dispatch.UsableSlots(dispatch.Cap{Cap: m.cap, Floor: floor, Max: most}, slots))
}

// look is powerd's loop.
func (m *machine) look(now time.Duration) {
	if m.looks > 0 {
		m.mean, m.wall, m.looks = units.FromWatts(m.wall/float64(m.looks)), 0, 0
	}
	pkg, dram := m.plant.PackageEnergy(), m.plant.DRAMEnergy()
	sample := capping.Sample{Elapsed: node}
	if now > node {
		sample.Package = capping.Reading{Power: (pkg - m.pkg).Over(node), Known: true}
		sample.DRAM = capping.Reading{Power: (dram - m.dram).Over(node), Known: true}
	}
	m.pkg, m.dram = pkg, dram
	m.demand.Observe(now, capping.Look{Wall: capping.Reading{Power: m.mean, Known: m.mean > 0}, Limited: m.law.Limited, Busy: m.util, BusyKnown: true, Elapsed: node})
	var act capping.Actions
	act, m.law = capping.Step(now, sample, m.cap, m.law, m.config)
	m.plant.SetLimit(plant.LongTerm, act.Long)
	m.plant.SetLimit(plant.ShortTerm, act.Short)
}

// tick is the coordinators' loop: reports, one entry, leases.
func (l *loops) tick() {
	for _, m := range l.machines {
		m.number++
		asks, power := l.tuning.asks(m, l.now), m.mean
		l.table.Heard(ledger.Report{
			Sighting: ledger.Sighting{
				Node: m.name, MachineID: "machine-" + m.name, Process: 1, Domain: "site/lab", Rated: rate, Floor: floor, Max: most, FailSafe: failSafe,
				Weight: 1, Controlled: true,
			},
			Number: m.number, Highest: m.stamp, Effective: m.cap, EffectiveKnown: true, Stored: failSafe, Demand: &asks, Power: &power,
			Sprint: m.sprint, Ended: m.ended,
		}, l.now)
	}
	l.table.Mark()
	decided := ledger.Decide(l.state, l.table, l.now)
	decided.Elapsed = tick
	l.apply(ledger.Command{Tick: &decided})
	for _, g := range l.table.Grants(l.state, l.now) {
		for _, m := range l.machines {
			if m.name == g.Node {
				m.stamp = g.Grant.Stamp
				m.hold(g.Grant)
			}
		}
	}
	for _, m := range l.machines {
		m.count(l.state.Nodes[m.name].Target, l.now)
	}
}

// hold takes a lease, with the sprint that comes with it or without one.
func (m *machine) hold(g lease.Grant) {
	m.cap = g.Cap
	if m.sprint != "" {
		m.drawn += max(0, (m.mean-g.Cap).Watts()) * tick.Seconds()
	}
	if m.sprint != "" && m.sprint != g.Sprint.ID {
		spent := units.FromJoules(m.drawn)
		m.ended = append(m.ended, ledger.SprintSpent{ID: m.sprint, Spent: &spent})
		m.drawn = 0
	}
	if m.sprint = g.Sprint.ID; m.sprint != "" {
		m.cap = g.Sprint.Cap
	}
}

// count notes a move of the target, and whether it turned round.
func (m *machine) count(target units.Power, now time.Duration) {
	if target == m.last {
		return
	}
	m.moves++
	if m.before != 0 && (target > m.last) != (m.last > m.before) {
		m.turns++
	}
	m.before, m.last, m.moved = m.last, target, now
}

// forget begins a new count.
func (l *loops) forget() {
	for _, m := range l.machines {
		m.moves, m.turns, m.before = 0, 0, 0
	}
}

// setBudget is an operator's cut or raise.
func (l *loops) setBudget(to units.Power) {
	plan := testkit.Need(ledger.PlanBudget(l.state, l.table, l.now, "site/lab", to))(l.t)
	l.apply(ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: to, Targets: plan.Lowers()}})
}

func (l *loops) String() (text string) {
	for _, m := range l.machines {
		text += fmt.Sprintf("%s cap %v draws %v uses %d of %d slots, %d moves %d turns, last %v; ", m.name, m.cap, m.mean, m.using, m.work, m.moves, m.turns, m.moved)
	}
	return text
}

// loud is a demand without memory or doubt: what the node draws now, and a step
// more than it has when it is held back, as a controller with too much gain would request.
func loud(m *machine, _ time.Duration) units.Power {
	if m.law.Limited {
		return min(most, m.mean*13/10)
	}
	return max(floor, m.mean*11/10)
}

// worst is how often the busiest node moved a minute, and how often it turned round.
func (l *loops) worst(over time.Duration) (moves, turns float64) {
	for _, m := range l.machines {
		moves, turns = max(moves, float64(m.moves)/over.Minutes()), max(turns, float64(m.turns)/over.Minutes())
	}
	return moves, turns
}

const (
	// restAfter is how soon the caps rest after a step: four rounds of the slowest loop.
	restAfter = 4 * jobs
	// watched is how long they are looked at then: three times what demand looks back over.
	watched = 3 * time.Minute
	// movesMost is how often a node's cap may move in a minute while everything
	// flickers by a twentieth: as often as the jobs can follow it.
	movesMost = float64(time.Minute / jobs)
)

// step is one change that the loops have to take.
type step struct {
	name string
	do   func(l *loops)
}

// steps are taken one after the other. share is what a node has of a budget.
func steps() []step {
	share := func(w units.Power) func(*loops) {
		return func(l *loops) { l.setBudget(units.Power(len(l.machines)) * w) }
	}
	return []step{
		{"the start", func(*loops) {}},
		{"one node's jobs want less", func(l *loops) { l.machines[0].work = 2 }},
		{"they want all again", func(l *loops) { l.machines[0].work = slots }},
		{"the budget is cut", share(120 * units.Watt)},
		{"the budget is raised", share(190 * units.Watt)},
		{"the budget is cut by a little", share(185 * units.Watt)},
	}
}

// A step is followed by rest, within four rounds of the slowest loop, and by no
// later echo; a cut is in the targets at once; a node with work keeps its share.
func TestLoopsComeToRest(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel()
			l := newLoops(t, n, units.Power(n)*160*units.Watt, asDesigned())
			l.run(time.Minute) // they come up one after the other
			for _, x := range steps() {
				x.do(l)
				if sum := l.targets(); sum > l.budget() {
					t.Errorf("%s: the targets sum to %v, the budget is %v", x.name, sum, l.budget())
				}
				l.run(restAfter)
				l.forget()
				l.run(watched)
				if moves, _ := l.worst(watched); moves > 0 {
					t.Errorf("%s: no rest %v later: %v", x.name, restAfter, l)
				}
				for _, m := range l.machines {
					if fair := l.budget() / units.Power(n); m.work == slots && m.cap < fair*9/10 {
						t.Errorf("%s: %s wants to work and has %v of %v", x.name, m.name, m.cap, fair)
					}
				}
			}
		})
	}
}

// targets sums what the nodes must hold.
func (l *loops) targets() (sum units.Power) {
	for _, n := range l.state.Nodes {
		sum += n.Target
	}
	return sum
}

func (l *loops) budget() units.Power { return l.state.Domains["site/lab"].Budget }

// flicker runs all steps with noise and returns the busiest node's worst minutes.
func flicker(t *testing.T, noise float64, how tuning) (moves, turns float64) {
	t.Helper()
	l := newLoops(t, 4, 640*units.Watt, how)
	l.noise = noise
	l.run(time.Minute)
	for _, x := range steps() {
		x.do(l)
		l.run(restAfter)
		l.forget()
		l.run(watched)
		m, r := l.worst(watched)
		moves, turns = max(moves, m), max(turns, r)
	}
	return moves, turns
}

// While what the jobs draw flickers, a cap moves no more often than the jobs can follow.
func TestLoopsUnderNoise(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0.02, 0.05} {
		moves, turns := flicker(t, noise, asDesigned())
		t.Logf("flicker of %.0f %%: at most %.1f moves and %.1f turns a minute", 100*noise, moves, turns)
		if moves > movesMost {
			t.Errorf("flicker of %.0f %%: %.1f moves and %.1f turns a minute, at most %.0f", 100*noise, moves, turns, movesMost)
		}
	}
}

// The bound means something: nodes that request what they draw at the moment, and a
// third more when they are held back, break it.
func TestTooMuchGainIsSeen(t *testing.T) {
	t.Parallel()
	if moves, turns := flicker(t, 0.05, tuning{asks: loud, follow: jobs}); moves <= movesMost || turns <= movesMost {
		t.Errorf("%.1f moves and %.1f turns a minute pass for rest", moves, turns)
	}
}
