package dias

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/buffers"
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

// course is how a job goes at base frequency: the same at every asking.
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

// done is what came of one job.
type done struct {
	class int
	// response is from arrival to end; exec is its last run's time, of which it sprinted
	// for fast; all in seconds. runs counts the runs, joules is what all of them drew.
	response, exec, fast float64
	runs                 int
	joules               float64
	// theta is its last run's drop ratio; timed tells that this had a sprint timer.
	theta float64
	timed bool
	// overtaken tells that a job of its class that arrived later had ended before it.
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
	b    *buffers.Buffers
	pot  *pot
	now  time.Duration
	next int // of the trace's jobs
	left int // jobs that have not ended
	run  *running
	out  outcome
	// newest is the latest arrival of each class that has ended.
	newest []int
}

// running is the run under way.
type running struct {
	job   int
	began time.Duration
	// since is when what follows last changed.
	since time.Duration
	// as is the run as the dispatcher began it.
	as   buffers.Run
	work float64 // s at base frequency that are left
	fast bool
	// joules are left of the sprint's escrow.
	joules float64
	sprint float64 // s sprinted
}

// epoch is the time 0 of a run: the dispatcher wants points in time.
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
	for m.left > 0 {
		if err := m.step(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	m.out.waste, m.out.span = b.Waste(), m.now.Seconds()
	return &m.out, nil
}

const never = time.Duration(math.MaxInt64)

// step goes to the next event and carries out what the dispatcher decides to it.
func (m *machine) step() error {
	arrival, end, empty, timer := never, never, never, never
	if m.next < len(m.jobs) {
		arrival = m.jobs[m.next].at
	}
	if m.run != nil {
		end, empty = m.run.end(), m.run.empty()
	}
	if at, ok := m.b.Next(); ok {
		timer = at.Sub(epoch())
	}
	m.now = max(m.now, min(arrival, end, empty, timer))
	if err := m.happen(arrival, end, empty); err != nil {
		return err
	}
	m.obey()
	return nil
}

// happen is the one event that it is time for; the timer is the dispatcher's own.
func (m *machine) happen(arrival, end, empty time.Duration) error {
	if m.now == end {
		m.finish()
		return nil
	}
	if m.now == empty {
		m.run.slow(m.now)
		return nil
	}
	if m.now == arrival {
		j := m.jobs[m.next]
		m.next++
		return m.b.Add(buffers.Job{ID: j.id, Class: j.class, Submitted: epoch().Add(j.at)})
	}
	return nil
}

// obey carries out what the dispatcher decides, until it says nothing more.
func (m *machine) obey() {
	for {
		actions := m.b.Step(epoch().Add(m.now))
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
					m.run.sprinted(m.now, m.pot.escrow(m.now))
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
	m.run = &running{job: job, began: m.now, since: m.now, as: r, work: m.course(job, theta).seconds()}
}

// kill ends the run at once, as SIGKILL does; its job starts from the beginning later.
func (m *machine) kill(r buffers.Run) {
	m.account()
	m.run = nil
	m.b.Ended(epoch().Add(m.now), r.ID)
	if m.victimLast {
		m.b.Cancel(r.ID)
		_ = m.b.Add(buffers.Job{ID: r.ID, Class: r.Class, Submitted: epoch().Add(m.now)}) // its class is known
	}
}

func (m *machine) finish() {
	r, j := m.run, m.jobs[m.run.job]
	m.account()
	d := &m.out.jobs[r.job]
	d.class, d.response, d.exec, d.fast = j.class, (m.now - j.at).Seconds(), (m.now - r.began).Seconds(), r.sprint
	d.theta, d.timed, d.overtaken = r.as.Theta, r.as.Sprint, r.job < m.newest[j.class]
	m.newest[j.class] = max(m.newest[j.class], r.job)
	m.run = nil
	m.left--
	m.b.Ended(epoch().Add(m.now), j.id)
}

// account closes the books of the run under way.
func (m *machine) account() {
	r := m.run
	sprinting := r.joules > 0
	r.advance(m.now)
	if m.pot != nil && sprinting {
		m.pot.refund(m.now, r.joules)
	}
	took := (m.now - r.began).Seconds()
	m.out.busy += took
	d := &m.out.jobs[r.job]
	d.runs++
	d.joules += busyWatts * took
	if !m.freeSprints {
		d.joules += extraWatts * r.sprint
	}
}

// end is when the run is done at its present speed.
func (r *running) end() time.Duration {
	if r.fast {
		return r.since + seconds(r.work/speedup)
	}
	return r.since + seconds(r.work)
}

// empty is when the sprint's joules are spent.
func (r *running) empty() time.Duration {
	if s := r.joules / extraWatts; r.fast && s < 1e9 {
		return r.since + seconds(s)
	}
	return never
}

func (r *running) sprinted(now time.Duration, joules float64) {
	r.advance(now)
	r.fast, r.joules = joules > 0, joules
}

// slow ends a sprint whose joules are spent.
func (r *running) slow(now time.Duration) {
	r.advance(now)
	r.fast, r.joules = false, 0
}

func (r *running) advance(now time.Duration) {
	dt := (now - r.since).Seconds()
	r.since = now
	if !r.fast {
		r.work = max(0, r.work-dt)
		return
	}
	r.work = max(0, r.work-speedup*dt)
	r.sprint += dt
	r.joules = max(0, r.joules-extraWatts*dt)
}
