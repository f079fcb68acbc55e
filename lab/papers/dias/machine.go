package dias

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/buffers"
	"headroom/lab/events"
)

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
	thetas     []float64 // by class; none: 0
	// pot makes the sprint budget, nil without sprints; after is the timer of the highest
	// class.
	pot   func() *pot
	after time.Duration
}

// faults are mistakes of the simulated cluster; the honest one has none.
type faults struct {
	// keepsAll: the dropper drops nothing. victimLast: a killed job goes to the end of its
	// buffer. neverFires: no sprint timer does. freeSprints: a sprint draws no more than base
	// frequency.
	keepsAll, victimLast, neverFires, freeSprints bool
}

// settings are those of the dispatcher.
func (p policy) settings(classes []class) buffers.Settings {
	s := buffers.Settings{Discipline: p.discipline, Width: 1}
	for i, c := range classes {
		b := buffers.Class{Name: c.name}
		if p.thetas != nil {
			b.Theta = p.thetas[i]
		}
		if p.pot != nil && i == 0 {
			b.Sprint, b.SprintAfter = true, p.after
		}
		s.Classes = append(s.Classes, b)
	}
	return s
}

// trace is what arrives, and how long each job takes.
type trace struct {
	seed    uint64
	classes []class
	jobs    []arrival
	times   []map[float64]course // by job and drop ratio
}

type arrival struct {
	id    string
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
	t := &trace{seed: seed, classes: classes, times: make([]map[float64]course, n)}
	at := 0.0
	for i := range n {
		at += rng.ExpFloat64() / total
		pick, k := rng.Float64()*total, 0
		for pick -= classes[0].rate; pick >= 0 && k < len(classes)-1; pick -= classes[k].rate {
			k++
		}
		t.jobs = append(t.jobs, arrival{fmt.Sprintf("j%06d", i), seconds(at), k})
	}
	return t
}

// course is how a job goes at base frequency: the same at every call.
func (t *trace) course(job int, theta float64) course {
	if c, ok := t.times[job][theta]; ok {
		return c
	}
	c := t.classes[t.jobs[job].class].work.job(theta, rand.New(rand.NewPCG(t.seed, 1<<32+uint64(job))))
	if t.times[job] == nil {
		t.times[job] = map[float64]course{}
	}
	t.times[job][theta] = c
	return c
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// done is the result of one job.
type done struct {
	class int
	// response is from arrival to end; exec is its last run's time, of which it sprinted
	// for fast; all in seconds. runs counts the runs, joules is what all of them drew.
	response, exec, fast float64
	runs                 int
	joules               float64
	// theta is its last run's drop ratio; timed is true if that run had a sprint timer.
	theta float64
	timed bool
	// overtaken is true if a job of its class that arrived later had ended before it.
	overtaken bool
}

// outcome is one run of a trace under a policy.
type outcome struct {
	jobs  []done // as they arrived
	waste buffers.Waste
	busy  float64 // s, with any job
	span  float64 // s, from 0 to the last end
}

// machine is the cluster: one job at a time, as the dispatcher decides.
type machine struct {
	*trace
	faults
	clock events.Clock[time.Duration, event]
	b     *buffers.Buffers
	pot   *pot
	left  int // jobs that have not ended
	run   *running
	// timer is the event of the dispatcher's next timer, while timed.
	timer events.ID
	timed bool
	out   outcome
	// newest is the latest arrival of each class that has ended.
	newest []int
}

// event is a kind of event; of events at the same time they come in this order.
type event uint8

const (
	runEnds event = iota
	potEmpty
	jobArrives // the next of the trace
	timerFires
)

// running is the run under way. Its work is in seconds at base frequency; the joules left of the sprint's escrow are work too,
// at the rate of what a sprint draws.
type running struct {
	job   int
	began time.Duration
	// as is the run as the dispatcher began it.
	as           buffers.Run
	work, joules events.Work[time.Duration]
	end, empty   events.ID
	sprint       float64 // s sprinted
}

// epoch is the time 0 of a run: the dispatcher needs points in time.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

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
	m.clock.Schedule(m.jobs[0].at, uint8(jobArrives), jobArrives)
	for next := 0; m.left > 0; {
		e, _ := m.clock.Next() // jobs that have not ended arrive or end
		switch e {
		case runEnds:
			m.finish()
		case potEmpty:
			m.run.empty = m.clock.Schedule(events.Never[time.Duration](), uint8(potEmpty), potEmpty)
			m.sprinted(0)
		case jobArrives:
			j := m.jobs[next]
			if next++; next < len(m.jobs) {
				m.clock.Schedule(m.jobs[next].at, uint8(jobArrives), jobArrives)
			}
			if err := b.Add(buffers.Job{ID: j.id, Class: j.class, Submitted: epoch().Add(j.at)}); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
		case timerFires:
			m.timed = false
		}
		m.obey()
		m.setTimer()
	}
	m.out.waste, m.out.span = b.Waste(), m.now().Seconds()
	return &m.out, nil
}

func (m *machine) now() time.Duration { return m.clock.Now() }

// setTimer schedules the dispatcher's next timer.
func (m *machine) setTimer() {
	if m.timed {
		m.clock.Cancel(m.timer)
	}
	var at time.Time
	if at, m.timed = m.b.Next(); m.timed {
		m.timer = m.clock.Schedule(at.Sub(epoch()), uint8(timerFires), timerFires)
	}
}

// obey carries out the dispatcher's decisions, until there are none.
func (m *machine) obey() {
	for {
		actions := m.b.Step(epoch().Add(m.now()))
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			switch a := a.(type) {
			case buffers.Start:
				m.start(a.Run)
			case buffers.Kill:
				m.kill(a.Run)
			case buffers.SprintDue:
				if !m.neverFires {
					m.sprinted(m.pot.escrow(m.now()))
				}
			}
		}
	}
}

func (m *machine) start(r buffers.Run) {
	job, _ := slices.BinarySearchFunc(m.jobs, r.ID, func(a arrival, id string) int { return cmp.Compare(a.id, id) })
	theta := r.Theta
	if m.keepsAll {
		theta = 0
	}
	now := m.now()
	m.run = &running{
		job: job, began: now, as: r, work: events.Work[time.Duration]{Left: m.course(job, theta).seconds(), Rate: 1, Since: now},
		joules: events.Work[time.Duration]{Since: now},
	}
	m.run.end = m.clock.Schedule(m.run.work.Ends(), uint8(runEnds), runEnds)
	m.run.empty = m.clock.Schedule(events.Never[time.Duration](), uint8(potEmpty), potEmpty)
}

// sprinted starts a sprint of the run with so many joules, or ends it with none.
func (m *machine) sprinted(joules float64) {
	r, now := m.run, m.now()
	r.advance(now)
	speed, watts := 1.0, 0.0
	if joules > 0 {
		speed, watts = speedup, extraWatts
	}
	r.work.SetRate(now, speed)
	r.joules = events.Work[time.Duration]{Left: joules, Rate: watts, Since: now}
	m.clock.Move(r.end, r.work.Ends())
	empty := events.Never[time.Duration]()
	if joules > 0 {
		empty = r.joules.Ends()
	}
	m.clock.Move(r.empty, empty)
}

// advance counts the time that the run has sprinted.
func (r *running) advance(now time.Duration) {
	if r.joules.Rate > 0 {
		r.sprint += (now - r.joules.Since).Seconds()
	}
}

// kill ends the run at once, as SIGKILL does; its job starts from the beginning later.
func (m *machine) kill(r buffers.Run) {
	m.account()
	m.clock.Cancel(m.run.end)
	m.run = nil
	m.b.Ended(epoch().Add(m.now()), r.ID)
	if m.victimLast {
		m.b.Cancel(r.ID)
		_ = m.b.Add(buffers.Job{ID: r.ID, Class: r.Class, Submitted: epoch().Add(m.now())}) // its class is known
	}
}

func (m *machine) finish() {
	r, j := m.run, m.jobs[m.run.job]
	m.account()
	d := &m.out.jobs[r.job]
	d.class, d.response, d.exec, d.fast = j.class, (m.now() - j.at).Seconds(), (m.now() - r.began).Seconds(), r.sprint
	d.theta, d.timed, d.overtaken = r.as.Theta, r.as.Sprint, r.job < m.newest[j.class]
	m.newest[j.class] = max(m.newest[j.class], r.job)
	m.run = nil
	m.left--
	m.b.Ended(epoch().Add(m.now()), j.id)
}

// account closes the books of the run under way.
func (m *machine) account() {
	r := m.run
	r.advance(m.now())
	if m.pot != nil && r.joules.Rate > 0 {
		m.pot.refund(m.now(), r.joules.LeftAt(m.now()))
	}
	m.clock.Cancel(r.empty)
	took := (m.now() - r.began).Seconds()
	m.out.busy += took
	d := &m.out.jobs[r.job]
	d.runs++
	d.joules += busyWatts * took
	if !m.freeSprints {
		d.joules += extraWatts * r.sprint
	}
}
