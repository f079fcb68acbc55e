package cab

import (
	"cmp"
	"math"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/emulator/plant"
	"headroom/lab/events"
	"headroom/lab/papers"
	"headroom/progress"
	"headroom/units"
)

const (
	tick      = 200 * time.Millisecond
	loopEvery = 5 * time.Second // how often the job loop looks: the paper's sampling window
	applyLag  = time.Second     // how long a share takes from the decision to the engine's scheduler
	runMost   = 4 * time.Hour   // ends a run that hangs: none comes near it
	// The paper's server: two sockets, 28 cores, 350 W at maximum load.
	containersAll = 28
	overhead      = 1 // container that each job's application master takes
	fullLoad      = 350 * units.Watt
	busy          = 0.78 // of its core a running task uses; the rest of the time it waits for its input
)

// spec is the server. It draws 350 W at the wall at full load and 100 W idle. The exponent, 1.15, is chosen once, so that a run
// under the stepping cap takes about 1.72 times as long as without, as in the paper's Table II.
func spec() plant.Spec {
	return plant.Spec{
		Packages: 2, Cores: containersAll,
		Idle: 18 * units.Watt, Dynamic: units.FromWatts(108.5), Exponent: 1.15,
		FreqMin: 1200 * units.Megahertz, FreqMax: 2900 * units.Megahertz, FreqStep: 100 * units.Megahertz,
		TDP: 130 * units.Watt, Peak: 156 * units.Watt,
		LongWindow: 999424 * time.Microsecond, ShortWindow: 1952 * time.Microsecond, Response: 40 * time.Millisecond,
		DRAMIdle: 4 * units.Watt, DRAMDynamic: 8 * units.Watt, Other: 45 * units.Watt,
		Efficiency: 0.92, EfficiencyDroop: 0.015,
		FailSafe: 150 * units.Watt, EnergyStart: units.Joule,
	}
}

// server is the plant under a cap at the wall that its board holds, as the paper's feedback controller does. Where nothing
// changes any more it is not stepped: its speed stays.
type server struct {
	plant   *plant.Plant
	cap     units.Power
	running int
	settled time.Duration // for how long the speed has not moved
}

const (
	settledMove = 1e-3            // counts as a speed that does not move
	settledFor  = 4 * time.Second // for so long, until the server counts as settled: the board looks once a second
)

// step lets a tick go by under a cap, 0 for none, with so many tasks running, and returns the speed, as a share of the full one.
func (s *server) step(to units.Power, running int) float64 {
	if to != s.cap {
		s.plant.SetWallLimit(to)
		s.cap, s.settled = to, 0
	}
	if running != s.running {
		s.running, s.settled = running, 0
	}
	if s.settled < settledFor {
		before := s.plant.Speed()
		s.plant.Step(tick, busy*float64(running)/containersAll)
		if s.settled += tick; math.Abs(s.plant.Speed()-before) > settledMove {
			s.settled = 0
		}
	}
	return s.plant.Speed()
}

// caps are the caps of a run by name: fixed throughout, stepping, or none.
type caps struct {
	name  string
	fixed units.Power
	steps bool
}

// at is the cap at a time; uncapped is the set's uncapped time, by which it steps. The paper shows such steps, not their times.
func (c caps) at(now, uncapped time.Duration) units.Power {
	const first, second = 0.2, 0.6
	switch {
	case !c.steps:
		return c.fixed
	case now < time.Duration(first*float64(uncapped)):
		return 250 * units.Watt
	case now < time.Duration(second*float64(uncapped)):
		return 200 * units.Watt
	}
	return 175 * units.Watt
}

// setup is one run: a set's jobs, under caps, by a variant.
type setup struct {
	apps     [3]app
	times    [3][]float64 // of each job's tasks at full speed, s
	caps     caps
	variant  variant
	floors   [3]float64
	uncapped [3]time.Duration // the true uncapped finish time of each job; 0 in the uncapped run itself
	past     *lessons
	keeps    bool       // what the job loop saw
	judge    *foresight // compares estimates with what comes; none when nil
}

// job is one job of a run.
type job struct {
	papers.Tasks

	app         app
	reduce      float64 // left of the reduce task, s at full speed
	mapEnd, end time.Duration
	share       int // what it may hold; 0: as the engine divides
	stopped     bool
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
	switch {
	case j.ended():
	case !j.Over():
		j.Work(seconds)
	default:
		j.mapEnd = cmp.Or(j.mapEnd, now)
		if j.reduce -= seconds; j.reduce <= 0 {
			j.end = now
		}
	}
}

// engine is one run in progress: the server, the jobs and the job loop.
type engine struct {
	setup
	clock   events.Clock[time.Duration, func()]
	server  server
	jobs    []*job
	arbiter *arbiter.Arbiter
	learner *arbiter.Arbiter // of uncapped finish times, as the coordinators learn them, for every variant alike
	learned [3]time.Duration // what it has committed, 0 until then
	load    int              // tasks that the server carries whatever runs; 0: those that run
	seen    []arbiter.Input
	sum     [3]float64 // of the containers that each job held in the looks while all ran
	looks   float64
}

// run runs a set-up to its end.
func run(s setup) (*engine, error) {
	machine, err := plant.New(spec())
	if err != nil {
		return nil, err
	}
	e := &engine{setup: s, server: server{plant: machine}}
	for i, a := range s.apps {
		e.jobs = append(e.jobs, &job{app: a, Tasks: papers.Tasks{Times: s.times[i]}, reduce: a.reduce})
	}
	if !s.variant.uncapped {
		e.learner, e.arbiter = arbiter.Taught(&s.past[sighted]), arbiter.Taught(&s.past[sighted])
		if s.variant.mistake.blind {
			e.arbiter = arbiter.Taught(&s.past[blind])
		}
	}
	e.play()
	return e, nil
}

func (e *engine) over() bool {
	return e.now() > runMost || !slices.ContainsFunc(e.jobs, func(j *job) bool { return !j.ended() })
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

// play runs the jobs to their end.
func (e *engine) play() {
	e.every(tick, rankTick, e.step)
	if !e.variant.uncapped || e.keeps {
		e.every(loopEvery, rankLoop, e.loop)
	}
	for !e.over() {
		at, _ := e.clock.Until() // ticks never end
		for do, more := e.clock.Before(at); more; do, more = e.clock.Before(at) {
			do()
		}
	}
}

// step lets the server and the tasks proceed by the tick that is over.
func (e *engine) step() {
	e.hand()
	running := 0
	for _, j := range e.jobs {
		running += j.running()
	}
	speed := e.server.step(e.caps.at(e.now()-tick, slices.Max(e.uncapped[:])), cmp.Or(e.load, running))
	for _, j := range e.jobs {
		j.work(e.now(), speed*tick.Seconds())
	}
}

// hand gives free containers to jobs with tasks that have not begun: under a share to the job furthest below its own, otherwise
// to the one with the fewest, as a fair scheduler does. Running tasks are never taken away.
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
			if next == nil || j.share-j.held() > next.share-next.held() {
				next = j
			}
		}
		if next == nil {
			return
		}
		next.Begin()
	}
}

// loop is one turn of the job loop: what the coordinators do every 5 s.
func (e *engine) loop() {
	in := e.gather()
	e.learn(in)
	e.watch(in)
	if e.variant.exact {
		return
	}
	e.variant.mistake.make(in.Jobs)
	d := e.arbiter.Step(e.now(), in)
	if d.Changed {
		var shares [3]int
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
		at := slices.IndexFunc(d.Outlooks, func(o arbiter.Outlook) bool { return o.ID == s.ID })
		if e.variant.kills && j.Done < d.Outlooks[at].AimTasks {
			continue // who kills counts on no task that runs
		}
		j.stopped = true
		if j.Drop(s.Tasks - s.MinTasks); e.variant.kills {
			j.Kill()
		}
	}
}

// learn gives the job loop the uncapped finish times that are learned.
func (e *engine) learn(in arbiter.Input) {
	if e.learner == nil {
		return
	}
	in.Settings = arbiter.Settings{Estimator: progress.Learned, Containers: containers.Fair}
	for _, u := range e.learner.Step(e.now(), in).Uncapped {
		e.learned[index(u.ID)] = u.At
	}
	for i := range in.Jobs {
		in.Jobs[i].Uncapped = e.learned[index(in.Jobs[i].ID)]
	}
}

// watch notes what the job loop sees.
func (e *engine) watch(in arbiter.Input) {
	if e.keeps {
		e.seen = append(e.seen, in)
	}
	if len(in.Jobs) == len(e.jobs) {
		e.looks++
		for i := range in.Jobs {
			e.sum[i] += float64(in.Jobs[i].Held)
		}
	}
	if e.judge != nil {
		e.judge.look(e, in.Jobs)
	}
}

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
			Work: j.Worked(), Phase: progress.Map, Reduced: 1 - j.reduce/j.app.reduce, Elapsed: e.now(), Floor: e.floors[i], Stopped: j.stopped,
			Held: j.held(), Power: cmp.Or(e.server.cap, fullLoad), Full: fullLoad, Uncapped: e.learned[i],
		}
		if j.Over() {
			x.Phase = progress.Reduce
		}
		in.Jobs = append(in.Jobs, x)
	}
	return in
}

// frozen is the run to its end with the cap, the containers and the load of this moment: a finish time foresees no changes.
func (e *engine) frozen() *engine {
	then := &engine{setup: e.setup, server: e.server}
	then.clock.Advance(e.now())
	then.server.plant = e.server.plant.Clone()
	then.caps, then.variant, then.keeps = caps{fixed: e.server.cap}, noCap(), false
	for _, j := range e.jobs {
		c := *j
		c.Tasks, c.share = j.Clone(), j.held()
		then.jobs = append(then.jobs, &c)
		then.load += j.running()
	}
	then.play()
	return then
}
