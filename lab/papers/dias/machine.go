package dias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"headroom/jobs/buffers"
	"headroom/lab/events"
)

// A sprint in the paper (section 5.1), 800 MHz to 2.4 GHz, and the limited budget (section 5.3), refilled at 6 minutes of sprint
// an hour (section 3.3).
const (
	speedup      = 2.5
	busyWatts    = 180
	sprintWatts  = 270
	extraWatts   = sprintWatts - busyWatts
	idleWatts    = 77 // ours: that of the emulated plant, 100 of 350 W, at the paper's 270 W
	budgetJoules = 22_000
	refillWatts  = extraWatts * 6 / 60.
	sprintAfter  = 65 * time.Second
)

// pot is a sprint budget as the ledger keeps it: a sprint puts its joules aside before
// it starts and gives back what it has not spent; it refills up to its capacity.
type pot struct {
	capacity, refill, balance float64 // J, W, J
	at                        time.Duration
}

func limited() *pot   { return &pot{capacity: budgetJoules, refill: refillWatts, balance: budgetJoules} }
func unlimited() *pot { return &pot{capacity: math.Inf(1), balance: math.Inf(1)} }

func (p *pot) fill(now time.Duration) {
	p.balance = min(p.capacity, p.balance+p.refill*(now-p.at).Seconds())
	p.at = now
}

// escrow puts aside all that there is: how long the job will sprint is not known.
func (p *pot) escrow(now time.Duration) (all float64) {
	p.fill(now)
	all, p.balance = p.balance, 0
	return all
}

// refund takes back what a sprint has left.
func (p *pot) refund(now time.Duration, left float64) {
	p.fill(now)
	p.balance = min(p.capacity, p.balance+left)
}

// class is one priority class of an experiment, the highest first.
type class struct {
	name string
	rate float64 // jobs per second
	work work
}

// policy is one way to run an experiment.
type policy struct {
	name       string
	discipline buffers.Discipline
	thetas     []float64     // by class; none: 0
	pot        func() *pot   // makes the sprint budget, nil without sprints
	after      time.Duration // the timer of the highest class
}

// faults are mistakes of the simulated cluster: a killed job goes to the end of its buffer; no sprint timer fires; a sprint draws
// no more than base frequency.
type faults struct{ victimLast, neverFires, freeSprints bool }

// settings are those of the dispatcher.
func (p policy) settings(classes []class) buffers.Settings {
	s := buffers.Settings{Discipline: p.discipline, Width: 1}
	for i, c := range classes {
		b := buffers.Class{Name: c.name}
		if p.thetas != nil {
			b.Theta = p.thetas[i]
		}
		if p.pot != nil && i == high {
			b.Sprint, b.SprintAfter = true, p.after
		}
		s.Classes = append(s.Classes, b)
	}
	return s
}

// trace is what arrives.
type trace struct {
	seed    uint64
	classes []class
	jobs    []arrival
}

type arrival struct {
	at    time.Duration
	class int
}

// arrive draws n jobs of Poisson streams.
func arrive(seed, stream uint64, classes []class, n int) *trace {
	rng := rand.New(rand.NewPCG(seed, stream))
	total := 0.0
	for _, c := range classes {
		total += c.rate
	}
	t := &trace{seed: seed, classes: classes}
	at := 0.0
	for range n {
		at += rng.ExpFloat64() / total
		pick, k := rng.Float64()*total, 0
		for pick -= classes[0].rate; pick >= 0 && k < len(classes)-1; pick -= classes[k].rate {
			k++
		}
		t.jobs = append(t.jobs, arrival{time.Duration(math.Round(at * float64(time.Second))), k})
	}
	return t
}

// course is how a job goes at base frequency: the same at every call.
func (t *trace) course(job int, theta float64) course {
	return t.classes[t.jobs[job].class].work.job(theta, rand.New(rand.NewPCG(t.seed, 1<<32+uint64(job))))
}

// done is the result of one job.
type done struct {
	class, runs          int
	response, exec, fast float64 // from arrival to end, its last run, of which it sprinted; s
	joules               float64 // of all runs
	theta                float64 // the last run's drop ratio
	timed                bool    // the last run had a sprint timer
	overtaken            bool    // a job of its class that arrived later had ended before it
}

// outcome is one run of a trace under a policy.
type outcome struct {
	jobs       []done // as they arrived
	waste      buffers.Waste
	busy, span float64 // s with any job, s from 0 to the last end
}

// machine is the cluster: one job at a time, as the dispatcher decides.
type machine struct {
	*trace
	faults
	clock      events.Clock[time.Duration, int]
	events     [kinds]events.ID
	at         time.Duration // of the event that happens
	b          *buffers.Buffers
	pot        *pot
	come, left int // jobs that have arrived, and that have not ended
	run        *running
	newest     []int // the latest arrival of each class that has ended
	out        outcome
}

// running is the run under way. Its work is in seconds at base frequency; the joules left of the sprint's escrow are work too,
// at the rate of what a sprint draws.
type running struct {
	job          int
	began        time.Duration
	as           buffers.Run // as the dispatcher began it
	work, joules events.Work[time.Duration]
	sprint       float64 // s sprinted
}

// simulate runs a trace under a policy, to the end of its last job, on a machine with faults.
func simulate(t *trace, p policy, f faults) (*outcome, error) {
	b, err := buffers.New(p.settings(t.classes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	m := &machine{trace: t, faults: f, b: b, left: len(t.jobs), newest: make([]int, len(t.classes))}
	m.out.jobs = make([]done, len(t.jobs))
	if p.pot != nil {
		m.pot = p.pot()
	}
	for m.left > 0 {
		m.next()
		m.obey()
	}
	m.out.waste, m.out.span = b.Waste(), m.at.Seconds()
	return &m.out, nil
}

// The kinds of events; of those at one time the run ends first, then the pot is empty, a job arrives, and the dispatcher's
// timer fires.
const (
	runEnds = iota
	potEmpty
	jobArrives
	timerFires
	kinds
)

// next lets the next event happen.
func (m *machine) next() {
	never := events.Never[time.Duration]()
	when := [kinds]time.Duration{never, never, never, never}
	if m.run != nil {
		when[runEnds] = m.run.work.Ends()
		if m.run.joules.Rate > 0 {
			when[potEmpty] = m.run.joules.Ends()
		}
	}
	if m.come < len(m.jobs) {
		when[jobArrives] = m.jobs[m.come].at
	}
	if at, ok := m.b.Next(); ok {
		when[timerFires] = at.Sub(epoch())
	}
	for kind, at := range when {
		m.events[kind] = m.clock.Schedule(at, uint8(kind), kind)
	}
	kind, _ := m.clock.Next() // jobs that have not ended arrive or end
	for other, event := range m.events {
		if other != kind {
			m.clock.Cancel(event)
		}
	}
	switch m.at = m.clock.Now(); kind {
	case runEnds:
		m.finish()
	case potEmpty:
		m.sprinted(0)
	case jobArrives:
		m.add(m.come, m.at)
		m.come++
	}
}

// epoch is the time 0 of a run: the dispatcher needs points in time.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

func (m *machine) now() time.Time { return epoch().Add(m.at) }

// id names a job for the dispatcher.
func id(job int) string { return fmt.Sprintf("j%06d", job) }

// add gives the dispatcher a job, whose class it has.
func (m *machine) add(job int, at time.Duration) {
	_ = m.b.Add(buffers.Job{ID: id(job), Class: m.jobs[job].class, Submitted: epoch().Add(at)})
}

// obey carries out the dispatcher's decisions, until there are none.
func (m *machine) obey() {
	for actions := m.b.Step(m.now()); len(actions) > 0; actions = m.b.Step(m.now()) {
		for _, a := range actions {
			switch a := a.(type) {
			case buffers.Start:
				job, _ := strconv.Atoi(a.Run.ID[1:])
				m.run = &running{job: job, began: m.at, as: a.Run}
				m.run.work = events.Work[time.Duration]{Left: m.course(job, a.Run.Theta).seconds(), Rate: 1, Since: m.at}
			case buffers.Kill:
				m.kill()
			case buffers.SprintDue:
				if !m.neverFires {
					m.sprinted(m.pot.escrow(m.at))
				}
			}
		}
	}
}

// sprinted starts a sprint of the run with so many joules, or ends it with none.
func (m *machine) sprinted(joules float64) {
	r := m.run
	r.advance(m.at)
	speed, watts := 1.0, 0.0
	if joules > 0 {
		speed, watts = speedup, extraWatts
	}
	r.work.SetRate(m.at, speed)
	r.joules = events.Work[time.Duration]{Left: joules, Rate: watts, Since: m.at}
}

// advance counts the time that the run has sprinted.
func (r *running) advance(now time.Duration) {
	if r.joules.Rate > 0 {
		r.sprint += (now - r.joules.Since).Seconds()
	}
}

// kill ends the run at once, as SIGKILL does; its job starts from the beginning later.
func (m *machine) kill() {
	job := m.run.job
	m.account()
	m.ended()
	if m.victimLast {
		m.b.Cancel(id(job))
		m.add(job, m.at)
	}
}

func (m *machine) finish() {
	r, j := m.run, m.jobs[m.run.job]
	m.account()
	d := &m.out.jobs[r.job]
	d.class, d.response, d.exec, d.fast = j.class, (m.at - j.at).Seconds(), (m.at - r.began).Seconds(), r.sprint
	d.theta, d.timed, d.overtaken = r.as.Theta, r.as.Sprint, r.job < m.newest[j.class]
	m.newest[j.class] = max(m.newest[j.class], r.job)
	m.left--
	m.ended()
}

// ended has the dispatcher know that the run is over.
func (m *machine) ended() {
	m.b.Ended(m.now(), m.run.as.ID)
	m.run = nil
}

// account closes the books of the run under way.
func (m *machine) account() {
	r := m.run
	r.advance(m.at)
	if m.pot != nil && r.joules.Rate > 0 {
		m.pot.refund(m.at, r.joules.LeftAt(m.at))
	}
	took := (m.at - r.began).Seconds()
	m.out.busy += took
	d := &m.out.jobs[r.job]
	d.runs++
	d.joules += busyWatts * took
	if !m.freeSprints {
		d.joules += extraWatts * r.sprint
	}
}
