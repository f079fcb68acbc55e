package studies

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/papers"
	"headroom/progress"
	"headroom/units"
)

// The server of `powerlab arbitrate`: that of CAB's study, in closed form. Its operator
// keeps it at mixedBase; it may sprint to mixedRated.
const (
	mixedContainers       = 28
	mixedIdle             = 100 * units.Watt
	mixedBase, mixedRated = 250 * units.Watt, 350 * units.Watt
	// mixedCut is its cap while the budget is cut, mixedRise how far a sprint goes above a cap.
	mixedCut, mixedRise = 175 * units.Watt, 100 * units.Watt
	// mixedExponent is that of power over speed.
	mixedExponent = 1.15
)

// The clock of a run.
const (
	mixedTick = 250 * time.Millisecond
	mixedLook = 5 * time.Second
	mixedLag  = time.Second
	// Jobs come for mixedSpan; the budget is cut from mixedFrom to mixedTo.
	mixedSpan, mixedFrom, mixedTo = time.Hour, 20 * time.Minute, 35 * time.Minute
	mixedMost                     = 4 * time.Hour
)

// The joules that sprints may take, and the sprint timer of the urgent class.
const (
	mixedJoules = 9 * units.Kilojoule
	mixedRefill = 25 * units.Watt
	mixedTimer  = 20 * time.Second
)

// mixedClass is one of the two classes of jobs.
type mixedClass struct {
	name  string
	tasks int
	// each is how long a task takes at mixedBase, s; spread its coefficient of variation.
	each, spread float64
	// every is the mean time between two jobs, s.
	every    float64
	floor    float64
	theta    float64 // of the class, where DIAS drops
	deadline time.Duration
	sprints  bool
}

// mixedClasses are urgent jobs with deadlines, and Hadoop-like jobs that may end on fewer tasks.
func mixedClasses() []mixedClass {
	return []mixedClass{
		{name: "urgent", tasks: 40, each: 10, spread: 0.2, every: 60, floor: 1, deadline: 90 * time.Second, sprints: true},
		{name: "tolerant", tasks: 240, each: 12, spread: 0.3, every: 280, floor: 0.6, theta: 0.2},
	}
}

// mixedVariant is who decides.
type mixedVariant struct {
	name string
	says string
	// cab divides by CAB and stops early; timer sprints by the class's timer alone; theta
	// drops the class's ratio at the start; moves lets arbiter.Movers decide.
	cab, timer, theta, moves bool
}

// mixedVariants are those that are compared.
func mixedVariants() []mixedVariant {
	return []mixedVariant{
		{name: "cab", says: "CAB alone: containers by stretch and early stops; no sprints, no drop ratios", cab: true},
		{name: "dias", says: "DIAS alone: equal containers, the class's drop ratio and sprint timer", timer: true, theta: true},
		{name: "both", says: "the arbiter: CAB's containers, sprints by timer and need, drop ratios as needed from 0 on", cab: true, timer: true, moves: true},
		{name: "both-theta", says: "the arbiter, with jobs that begin with their class's drop ratio", cab: true, timer: true, theta: true, moves: true},
	}
}

// mixedJob is one job of a run.
type mixedJob struct {
	class        *mixedClass
	rank         int
	id           string
	comes        time.Duration
	papers.Tasks // times at mixedBase

	first, end time.Duration
	share      int
	stopped    bool
	uncapped   time.Duration
	theta      float64
}

// work lets so much time at mixedBase pass for the tasks that run.
func (j *mixedJob) work(now time.Duration, seconds float64) {
	if j.Work(seconds); j.Over() && j.end == 0 {
		j.end = now
	}
}

// drawMixed are the jobs of one seed, by the time at which they come. All variants get the same.
func drawMixed(seed uint64) []*mixedJob {
	var jobs []*mixedJob
	for rank, c := range mixedClasses() {
		r := rand.New(rand.NewPCG(seed, uint64(rank)+1))
		sigma := math.Sqrt(math.Log(1 + c.spread*c.spread))
		for at := r.ExpFloat64() * c.every; at < mixedSpan.Seconds(); at += r.ExpFloat64() * c.every {
			j := &mixedJob{class: &c, rank: rank, id: fmt.Sprintf("%s-%03d", c.name, len(jobs)), comes: seconds(at)}
			for range c.tasks {
				j.Times = append(j.Times, c.each*math.Exp(sigma*r.NormFloat64()-sigma*sigma/2))
			}
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b *mixedJob) int { return int(a.comes - b.comes) })
	return jobs
}

// mixedRun is one run of one variant.
type mixedRun struct {
	mixedVariant
	jobs    []*mixedJob
	now     time.Duration
	arbiter arbiter.Arbiter
	movers  arbiter.Movers
	ended   []arbiter.Ended

	told   map[string]int
	tellAt time.Duration

	balance   float64 // J
	sprint    *mixedJob
	rank      int
	sprintFor time.Duration
	escrow    float64
	drawn     float64 // J above the base cap in this sprint

	spent, energy float64 // J
	sprints       int
	rises         int
}

// running are the jobs that have come and not ended.
func (r *mixedRun) running() (out []*mixedJob) {
	for _, j := range r.jobs {
		if j.comes <= r.now && j.end == 0 {
			out = append(out, j)
		}
	}
	return out
}

// base is the cap of now.
func (r *mixedRun) base() units.Power {
	if r.now >= mixedFrom && r.now < mixedTo {
		return mixedCut
	}
	return mixedBase
}

// cap is what the server may draw now.
func (r *mixedRun) cap() units.Power {
	if r.sprint != nil {
		return min(mixedRated, r.base()+mixedRise)
	}
	return r.base()
}

// speedAt is how fast tasks run under a cap with so many of the containers busy, as a
// multiple of the speed at mixedBase, all busy; and what the server draws then.
func speedAt(limit units.Power, busy int) (speed float64, draws units.Power) {
	load := float64(busy) / mixedContainers
	if busy == 0 {
		return 0, mixedIdle
	}
	dynamic := (mixedRated - mixedIdle).Watts() * load
	full := math.Pow((mixedBase-mixedIdle).Watts()/(mixedRated-mixedIdle).Watts(), 1/mixedExponent)
	s := min(1, math.Pow((limit-mixedIdle).Watts()/dynamic, 1/mixedExponent))
	return s / full, mixedIdle + units.FromWatts(dynamic*math.Pow(s, mixedExponent))
}

// run runs the jobs to their end.
func (r *mixedRun) run() {
	for r.now < mixedMost && (r.now < mixedSpan || len(r.running()) > 0) {
		r.step()
	}
	r.settle()
}

// step lets one tick go by.
func (r *mixedRun) step() {
	jobs := r.running()
	for _, j := range jobs {
		if r.theta && j.theta == 0 && j.Begun == 0 && j.class.theta > 0 {
			r.deflate(j, j.class.theta)
		}
	}
	r.hand(jobs)
	busy := 0
	for _, j := range jobs {
		busy += j.Running()
	}
	speed, draws := speedAt(r.cap(), busy)
	r.now += mixedTick
	dt := mixedTick.Seconds()
	r.energy += draws.Watts() * dt
	r.balance = min(mixedJoules.Joules()-r.escrow, r.balance+mixedRefill.Watts()*dt)
	if r.sprint != nil {
		r.drawn += max(0, (draws-r.base()).Watts()) * dt
		if r.sprintFor -= mixedTick; r.sprintFor <= 0 {
			r.settle()
		}
	}
	for _, j := range jobs {
		j.work(r.now, speed*dt)
		if j.end > 0 {
			r.ended = append(r.ended, arbiter.Ended{ID: j.id, Runtime: j.end - j.first})
			if r.sprint == j {
				r.settle()
			}
		}
	}
	if r.told != nil && r.now >= r.tellAt {
		for _, j := range jobs {
			j.share = r.told[j.id]
		}
		r.told = nil
	}
	if r.now%mixedLook == 0 {
		r.look()
	}
}

// settle ends the sprint: what was not drawn goes back.
func (r *mixedRun) settle() {
	if r.sprint == nil {
		return
	}
	r.spent += min(r.drawn, r.escrow)
	r.balance = min(mixedJoules.Joules(), r.balance+max(0, r.escrow-r.drawn))
	r.sprint, r.escrow, r.drawn = nil, 0, 0
}

// begin puts joules aside and lets a job sprint.
func (r *mixedRun) begin(j *mixedJob, d time.Duration) {
	r.escrow = (min(mixedRated, r.base()+mixedRise) - r.base()).Watts() * d.Seconds()
	r.balance -= r.escrow
	r.sprint, r.sprintFor, r.drawn, r.rank = j, d, 0, j.rank
	r.sprints++
}

// deflate raises a job's ratio: tasks that have not begun go, down to what it leaves.
func (r *mixedRun) deflate(j *mixedJob, theta float64) {
	j.theta = theta
	j.Drop(len(j.Times) - j.Dropped - units.Ratio(1-theta).Kept(len(j.Times)))
}

// hand gives free containers to the job furthest below its share; one without a share has
// its equal part.
func (r *mixedRun) hand(jobs []*mixedJob) {
	free := mixedContainers
	for _, j := range jobs {
		free -= j.Running()
	}
	below := func(j *mixedJob) int {
		if j.share > 0 {
			return j.share - j.Running()
		}
		return mixedContainers/len(jobs) - j.Running()
	}
	for ; free > 0; free-- {
		var next *mixedJob
		for _, j := range jobs {
			if j.Pending() == 0 || j.share > 0 && below(j) <= 0 {
				continue
			}
			if next == nil || below(j) > below(next) {
				next = j
			}
		}
		if next == nil {
			return
		}
		if next.Begun == 0 {
			next.first = r.now
		}
		next.Begin()
	}
}

// look is one turn of the job loop.
func (r *mixedRun) look() {
	in := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: mixedContainers, Ended: r.ended}
	r.ended = nil
	if !r.cab {
		in.Settings.Containers = containers.Fair
	}
	by := map[string]*mixedJob{}
	for _, j := range r.running() {
		by[j.id] = j
		if j.Begun > 0 {
			in.Jobs = append(in.Jobs, r.reported(j))
		}
	}
	d := r.arbiter.Step(r.now, in)
	for _, u := range d.Uncapped {
		by[u.ID].uncapped = u.At
	}
	if d.Changed {
		r.told, r.tellAt = map[string]int{}, r.now+mixedLag
		for _, s := range d.Shares {
			r.told[s.ID] = s.Containers
		}
	}
	for _, s := range d.Stops {
		if r.cab {
			j := by[s.ID]
			j.stopped = true
			j.Drop(s.Tasks - s.MinTasks - j.Dropped)
		}
	}
	switch {
	case r.moves:
		r.move(d.Outlooks, by)
	case r.timer:
		r.fire(by)
	}
}

// reported is what the job loop is told of a job.
func (r *mixedRun) reported(j *mixedJob) arbiter.Job {
	fast := min(mixedRated, r.base()+mixedRise)
	return arbiter.Job{
		ID: j.id, Name: j.class.name, Tasks: len(j.Times), Done: j.Done, Running: j.Running(), Pending: j.Pending(), Dropped: j.Dropped, Work: j.Worked(),
		Phase: progress.Map, Reduced: -1, Elapsed: max(1, r.now-j.first), Floor: j.class.floor, Uncapped: j.uncapped, Stopped: j.stopped, Held: j.Running(),
		Power: r.cap(), Full: mixedBase, Base: r.base(), Fast: fast, ByRatio: r.moves || r.theta,
	}
}

// due tells whether the job's sprint timer has fired.
func (r *mixedRun) due(j *mixedJob) bool {
	return r.timer && j.class.sprints && r.now-j.comes >= mixedTimer
}

// fire lets the timers alone decide: the first job that is due sprints to its end, as far as
// the joules go.
func (r *mixedRun) fire(by map[string]*mixedJob) {
	for _, j := range r.jobs {
		if by[j.id] == nil || !r.due(j) || r.sprint != nil || r.balance < mixedRise.Watts()*10 {
			continue
		}
		r.begin(j, seconds(r.balance/mixedRise.Watts()))
	}
}

// move lets the movers decide.
func (r *mixedRun) move(outlooks []arbiter.Outlook, by map[string]*mixedJob) {
	var jobs []arbiter.Contender
	for _, o := range outlooks {
		j := by[o.ID]
		c := arbiter.Contender{
			ID: j.id, Class: j.class.name, Rank: j.rank, Tasks: len(j.Times), Dropped: j.Dropped, Pending: j.Pending(), Floor: j.class.floor, Elapsed: max(1, r.now-j.first), Run: 1, Outlook: o,
			Due: r.due(j), MaySprint: j.class.sprints, MayDeflate: true, Theta: j.theta, Deflated: j.theta > 0,
			Offer: arbiter.Offer{
				Domain: "site", Balance: units.FromJoules(max(0, r.balance)), Rise: min(mixedRated, r.base()+mixedRise) - r.base(), Nodes: 1,
			},
		}
		if r.theta {
			c.ClassTheta = j.class.theta
		}
		if j.class.deadline > 0 {
			c.Deadline = max(1, j.comes+j.class.deadline-j.first)
		}
		switch r.sprint {
		case nil:
		case j:
			c.Sprint, c.Own = "s-"+j.id, true
		default:
			c.Offer.Busy, c.Offer.BusyRank, c.Offer.Yields = "s-"+r.sprint.id, r.rank, true
		}
		jobs = append(jobs, c)
	}
	out := r.movers.Step(r.now, jobs)
	if len(out.Ends) > 0 {
		r.settle()
	}
	for _, g := range out.Grants {
		if r.sprint == nil {
			r.begin(by[g.ID], g.Duration)
		}
	}
	for _, d := range out.Deflates {
		r.rises++
		r.deflate(by[d.ID], d.Theta)
	}
}
