package cab

import (
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/events"
	"headroom/lab/papers"
	"headroom/progress"
	"headroom/units"
)

// The clock of a run.
const (
	tick = 200 * time.Millisecond
	// loopEvery is how often the job loop looks: the paper's sampling window.
	loopEvery = 5 * time.Second
	// applyLag is how long a share takes from the decision to the engine's scheduler.
	applyLag = time.Second
	// runMost ends a run that hangs: none comes near it.
	runMost = 4 * time.Hour
)

// cap schedules by name: fixed, stepping, or none.
type caps struct {
	name string
	// fixed is the cap throughout; 0 where it steps or there is none.
	fixed units.Power
	steps bool
}

// The stepping cap: 250 W until a fifth of the set's uncapped time, 200 W until three
// fifths, then 175 W. The paper shows such steps, not their times.
const stepFirst, stepSecond = 0.2, 0.6

// at is the cap at a time; uncapped is the set's uncapped time.
func (c caps) at(now, uncapped time.Duration) units.Power {
	switch {
	case !c.steps:
		return c.fixed
	case now < time.Duration(stepFirst*float64(uncapped)):
		return 250 * units.Watt
	case now < time.Duration(stepSecond*float64(uncapped)):
		return 200 * units.Watt
	}
	return 175 * units.Watt
}

// setup is one run: a set's jobs, under caps, by a variant.
type setup struct {
	machine physics
	apps    []app
	times   [][]float64 // of each job's tasks at full speed, s
	caps    caps
	variant variant
	floors  []float64
	// uncapped is the true uncapped finish time of each job, by which runs are measured and
	// caps step; only an oracle's job loop gets it. nil in the uncapped run itself.
	uncapped []time.Duration
	// pool is what earlier runs of jobs of the same names have taught, poolBlind what they
	// taught estimators blind to power.
	pool, poolBlind *progress.Pool
}

// job is one job of a run.
type job struct {
	papers.Tasks

	app     app
	reduce  float64 // left of the reduce task, s at full speed
	mapEnd  time.Duration
	end     time.Duration
	share   int // what it may hold; 0: as the engine divides
	stopped bool
}

func (j *job) ended() bool { return j.end > 0 }

// running is how many containers run tasks of it.
func (j *job) running() int {
	if j.Over() && !j.ended() {
		return 1
	}
	return j.Running()
}

// held is how many containers it holds, its application master's included.
func (j *job) held() int {
	if j.ended() {
		return 0
	}
	return j.running() + overhead
}

// work lets the job's tasks progress by so many seconds at full speed.
func (j *job) work(now time.Duration, seconds float64) {
	if j.Over() {
		if j.mapEnd == 0 {
			j.mapEnd = now
		}
		if j.reduce -= seconds; j.reduce <= 0 {
			j.end = now
		}
		return
	}
	j.Work(seconds)
}

// phase is what the job does now.
func (j *job) phase() progress.Phase {
	if j.Over() {
		return progress.Reduce
	}
	return progress.Map
}

// engine is one run in progress: the server, the jobs and the job loop.
type engine struct {
	setup
	server  *server
	jobs    []*job
	arbiter *arbiter.Arbiter
	clock   events.Clock[time.Duration, func()]
	longest time.Duration // the set's uncapped time
	// learner learns uncapped finish times as the coordinators do, for every variant
	// alike; learned is what it has committed, 0 until then.
	learner *arbiter.Arbiter
	learned []time.Duration

	watch func(e *engine, in *arbiter.Input)
	load  int // tasks that the server carries whatever runs; 0: those that run
}

// Ranks of what happens at one time: the server and the tasks proceed, shares arrive, the job loop looks.
const (
	rankTick uint8 = iota
	rankShares
	rankLoop
)

// every schedules something for whenever a period has passed.
func (e *engine) every(period time.Duration, rank uint8, do func()) {
	var again func()
	again = func() {
		do()
		e.clock.Schedule(e.now()+period, rank, again)
	}
	e.clock.Schedule(e.now()+period, rank, again)
}

// now is the time of the run.
func (e *engine) now() time.Duration { return e.clock.Now() }

// outcome is the result of a run.
type outcome struct {
	ends []time.Duration
	// done is how many tasks each job has completed, least how many it had to.
	done, least []int
	// learned is the uncapped finish time that was learned of each job; 0 for none.
	learned []time.Duration
}

// run runs a set-up to its end. watch, when not nil, sees what the job loop sees.
func run(s setup, watch func(*engine, *arbiter.Input)) (*outcome, error) {
	machine, err := newServer(s.machine)
	if err != nil {
		return nil, err
	}
	e := &engine{setup: s, server: machine, watch: watch, learned: make([]time.Duration, len(s.apps))}
	for i, a := range s.apps {
		e.jobs = append(e.jobs, &job{app: a, Tasks: papers.Tasks{Times: s.times[i]}, reduce: a.reduce})
	}
	if s.uncapped != nil {
		e.longest = slices.Max(s.uncapped)
	}
	if !s.variant.uncapped {
		e.learner, e.arbiter = arbiter.Taught(s.pool), arbiter.Taught(s.pool)
		if s.variant.mistake.blind {
			e.arbiter = arbiter.Taught(s.poolBlind)
		}
	}
	e.play()
	o := &outcome{learned: e.learned}
	for i, j := range e.jobs {
		o.ends = append(o.ends, j.end)
		o.done, o.least = append(o.done, j.Done), append(o.least, containers.MinTasks(len(j.Times), s.floors[i]))
	}
	return o, nil
}

func (e *engine) over() bool {
	for _, j := range e.jobs {
		if !j.ended() {
			return e.now() > runMost
		}
	}
	return true
}

// play runs the jobs to their end.
func (e *engine) play() {
	e.every(tick, rankTick, e.step)
	if !e.variant.uncapped || e.watch != nil {
		e.every(loopEvery, rankLoop, e.loop)
	}
	for over := e.over(); !over; {
		do, _ := e.clock.Next() // ticks never end
		do()
		at, _ := e.clock.Until()
		over = at > e.now() && e.over()
	}
}

// step lets the server and the tasks proceed by the tick that is over.
func (e *engine) step() {
	e.server.setCap(e.caps.at(e.now()-tick, e.longest))
	e.hand()
	running := 0
	for _, j := range e.jobs {
		if !j.ended() {
			running += j.running()
		}
	}
	if e.load > 0 {
		running = e.load
	}
	speed := e.server.step(tick, running)
	for _, j := range e.jobs {
		if !j.ended() {
			j.work(e.now(), speed*tick.Seconds())
		}
	}
}

// hand gives free containers to jobs with tasks that have not begun: under a share to
// the job furthest below its own, otherwise to the one with the fewest, as a fair
// scheduler does. Running tasks are never taken away.
func (e *engine) hand() {
	free := containersAll
	for _, j := range e.jobs {
		free -= j.held()
	}
	for ; free > 0; free-- {
		var next *job
		for _, j := range e.jobs {
			if j.ended() || j.Pending() == 0 || j.share > 0 && j.held() >= j.share {
				continue
			}
			if next == nil || j.below() > next.below() {
				next = j
			}
		}
		if next == nil {
			return
		}
		next.Begin()
	}
}

// below is by how much the job holds less than its share; without shares, than nothing.
func (j *job) below() int { return j.share - j.held() }

// loop is one turn of the job loop: what the coordinators do every 5 s.
func (e *engine) loop() {
	in := e.gather()
	e.learn(&in)
	if e.watch != nil {
		e.watch(e, &in)
	}
	if e.variant.exact {
		return
	}
	d := e.arbiter.Step(e.now(), e.variant.mistake.seen(in))
	if d.Changed {
		shares := make([]int, len(e.jobs))
		for i, s := range d.Shares {
			if e.variant.mistake.swaps {
				s.Containers = d.Shares[len(d.Shares)-1-i].Containers
			}
			shares[index(s.ID)] = s.Containers
		}
		e.clock.Schedule(e.now()+applyLag, rankShares, func() {
			for i, j := range e.jobs {
				j.share = shares[i]
			}
		})
	}
	if e.variant.mistake.neverStops {
		return
	}
	for _, s := range d.Stops {
		j := e.jobs[index(s.ID)]
		if e.variant.kills && j.Done < aimed(&d, s.ID) {
			continue // who kills counts on no task that runs
		}
		j.stopped = true
		if j.Drop(s.Tasks - s.MinTasks); e.variant.kills {
			j.Kill()
		}
	}
}

// aimed is how many tasks of a job a decision aims at.
func aimed(d *arbiter.Decision, id string) int {
	at := slices.IndexFunc(d.Outlooks, func(o arbiter.Outlook) bool { return o.ID == id })
	return d.Outlooks[at].AimTasks
}

// learn gives the job loop the uncapped finish times: those that are learned, or the
// true ones where it has an oracle.
func (e *engine) learn(in *arbiter.Input) {
	if e.variant.uncapped {
		return
	}
	as := *in
	as.Settings = arbiter.Settings{Estimator: progress.Learned, Containers: containers.Fair}
	for _, u := range e.learner.Step(e.now(), as).Uncapped {
		e.learned[index(u.ID)] = u.At
	}
	for k := range in.Jobs {
		at := e.learned
		if e.variant.oracle {
			at = e.uncapped
		}
		in.Jobs[k].Uncapped = at[index(in.Jobs[k].ID)]
	}
}

// seen is what a job loop with the mistake takes its input for.
func (m mistake) seen(in arbiter.Input) arbiter.Input {
	in.Jobs = slices.Clone(in.Jobs)
	for i := range in.Jobs {
		j := &in.Jobs[i]
		if m.blind {
			j.Power = blinded(j.Full)
		}
		if m.noFloor {
			j.Floor = 1 / float64(j.Tasks)
		}
	}
	return in
}

// blinded is the power that is seen of every cap by who is blind to power: just enough
// below the full one to be a cap.
func blinded(full units.Power) units.Power { return units.FromWatts(0.98 * full.Watts()) }

// id and index name jobs for the arbiter by their place in the set.
func id(i int) string         { return string(rune('a' + i)) }
func index(id string) (i int) { return int(id[0] - 'a') }

// gather is what the job loop sees.
func (e *engine) gather() arbiter.Input {
	in := arbiter.Input{Settings: e.variant.settings, Containers: containersAll, Overhead: overhead}
	for i, j := range e.jobs {
		if j.ended() {
			in.Ended = append(in.Ended, arbiter.Ended{ID: id(i), Runtime: j.end})
			continue
		}
		x := arbiter.Job{
			ID: id(i), Name: j.app.name, Tasks: len(j.Times), Done: j.Done, Running: j.running(), Pending: j.Pending(), Dropped: j.Dropped,
			Work: j.Worked(), Phase: j.phase(), Reduced: 0, Elapsed: e.now(), Floor: e.floors[i], Stopped: j.stopped, Held: j.held(),
			Power: e.server.cap, Full: fullLoad,
		}
		if j.Over() {
			x.Reduced = 1 - j.reduce/j.app.reduce
		}
		if e.server.cap == 0 {
			x.Power = fullLoad
		}
		if !e.variant.uncapped {
			x.Uncapped = e.learned[i]
		}
		in.Jobs = append(in.Jobs, x)
	}
	return in
}

// frozen is the run as it would have gone on, to its end, with the cap, the containers
// and the load of this moment: a finish time foresees none of their changes.
func (e *engine) frozen() *engine {
	then := &engine{setup: e.setup, server: e.server.clone(), longest: e.longest}
	then.clock.Advance(e.now())
	then.caps = caps{name: e.caps.name, fixed: e.server.cap}
	then.variant = noCap()
	for _, j := range e.jobs {
		c := *j
		c.Tasks, c.share = j.Clone(), j.held()
		then.jobs = append(then.jobs, &c)
		if !j.ended() {
			then.load += j.running()
		}
	}
	then.play()
	return then
}
