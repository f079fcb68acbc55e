package arbitration

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/internal/jsonfile"
	"headroom/jobs/containers"
	"headroom/units"
)

// Class is whose job it is.
type Class string

// The two classes, the higher first.
const (
	Urgent   Class = "urgent"
	Tolerant Class = "tolerant"
)

func (c Class) rank() int {
	if c == Urgent {
		return 0
	}
	return 1
}

// Job is one job of a load.
type Job struct {
	Class    Class
	Arrival  time.Duration
	Tasks    int
	Task     time.Duration // the mean time of a task at full speed
	Deadline time.Duration // since its arrival; 0 for none
	Floor    float64       // the least part of its tasks that it may end on
	Name     string        // what its user calls it; its class when empty
	Scales   scaleType     // of the machines' true curve; empty where its tasks do not slow each other down
}

// Step is a budget from a moment on.
type Step struct {
	At     time.Duration
	Budget units.Power
}

// Load is a cluster's load.
type Load struct {
	Name       string
	Containers int
	For        time.Duration // during which jobs arrive
	Budget     []Step
	Jobs       func(seed uint64) []Job // in order of arrival
	Fails      time.Duration           // the mean time between two failures of a machine, 0 for none
	Stragglers float64                 // the part of tasks that take three times as long
}

type job struct {
	Job

	id            string
	times         []float64 // of its tasks at full speed, s
	next          int       // the first task that never began
	again         []int     // tasks whose machine has failed
	done, dropped int
	running       []*attempt
	first, end    time.Duration
	began         bool
	share         int
	stopped       bool
	uncapped      time.Duration
	theta         float64
	curve         *containers.Curve // what is known of how it scales
	limit         int               // how many containers it may hold for that: 0 for no bound, below 0 for none at all
	meter         meter
}

func (j *job) open() bool { return j.pending() > 0 && (j.limit == 0 || len(j.running) < j.limit) }

func (j *job) pending() int { return max(0, len(j.times)-j.next-j.dropped) + len(j.again) }

func (j *job) take() int {
	if n := len(j.again); n > 0 {
		t := j.again[n-1]
		j.again = j.again[:n-1]
		return t
	}
	j.next++
	return j.next - 1
}

func (j *job) forget(a *attempt) {
	last := len(j.running) - 1
	j.running[slices.Index(j.running, a)] = j.running[last]
	j.running = j.running[:last]
}

// work returns how much of its map work is done, in tasks.
func (j *job) work() float64 {
	sum := float64(j.done)
	for _, a := range j.running {
		if all := a.until - a.from; all > 0 {
			sum += min(1, max(0, (a.node.done-a.from)/all))
		}
	}
	return sum
}

// drawn returns the source of one stream of numbers of a seed.
func drawn(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

const streamUrgent, streamTolerant, streamTasks, streamFailures = 1, 2, 3, 4

// draw makes the jobs of a seed.
func (l *Load) draw(seed uint64) (jobs []*job) {
	r := drawn(seed, streamTasks)
	for i, x := range l.Jobs(seed) {
		j := &job{Job: x, id: fmt.Sprintf("%s-%04d", x.Class, i)}
		for range x.Tasks {
			t := x.Task.Seconds() * varied(r, []float64{0.2, 0.3}[x.Class.rank()])
			if l.Stragglers > 0 && r.Float64() < l.Stragglers {
				t *= 3
			}
			j.times = append(j.times, t)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// varied draws from a log-normal law of mean 1 with this coefficient of variation.
func varied(r *rand.Rand, spread float64) float64 {
	sigma := math.Sqrt(math.Log(1 + spread*spread))
	return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
}

// arrivals draws arrivals with exponential gaps.
func arrivals(r *rand.Rand, every, span time.Duration, f func(at time.Duration)) {
	for at := r.ExpFloat64() * every.Seconds(); at < span.Seconds(); at += r.ExpFloat64() * every.Seconds() {
		f(seconds(at))
	}
}

func sorted(jobs []Job) []Job {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return jobs
}

// atBase is how fast tasks run on a full server at 250 of 350 W, as a part of full speed.
var atBase = math.Pow(float64(250*units.Watt-idleServer)/float64(ratedServer-idleServer), 1/exponent)

// based returns a task that takes so many seconds on a full server at 250 of 350 W.
func based(s float64) time.Duration { return seconds(s * atBase) }

// maker makes the jobs that come at a time.
type maker func(r *rand.Rand, at time.Duration) []Job

func urgentJob(_ *rand.Rand, at time.Duration) []Job {
	return []Job{{Class: Urgent, Arrival: at, Tasks: 40, Task: based(10), Deadline: 90 * time.Second, Floor: 1}}
}

func tolerantJob(_ *rand.Rand, at time.Duration) []Job {
	return []Job{{Class: Tolerant, Arrival: at, Tasks: 240, Task: based(12), Floor: 0.6}}
}

// streams are two Poisson streams of jobs, which come after such gaps in the mean.
func streams(span, urgent time.Duration, u maker, tolerant time.Duration, t maker) func(seed uint64) []Job {
	return func(seed uint64) (jobs []Job) {
		r := drawn(seed, streamUrgent)
		arrivals(r, urgent, span, func(at time.Duration) { jobs = append(jobs, u(r, at)...) })
		x := drawn(seed, streamTolerant)
		arrivals(x, tolerant, span, func(at time.Duration) { jobs = append(jobs, t(x, at)...) })
		return sorted(jobs)
	}
}

// several makes jobs that come from least to most at a time, within a while.
func several(least, most int, within float64, of maker) maker {
	return func(r *rand.Rand, at time.Duration) (jobs []Job) {
		for range least + r.IntN(most-least+1) {
			jobs = append(jobs, of(r, at+seconds(within*r.Float64()))...)
		}
		return jobs
	}
}

// mixed are jobs of many sizes, deadlines and floors.
func mixed(seed uint64) []Job {
	return streams(time.Hour, time.Minute, func(r *rand.Rand, at time.Duration) []Job {
		jobs := urgentJob(r, at)
		jobs[0].Tasks, jobs[0].Task = 10+r.IntN(61), based(4+12*r.Float64())
		jobs[0].Deadline = seconds(60 + 120*r.Float64())
		return jobs
	}, 280*time.Second, func(r *rand.Rand, at time.Duration) []Job {
		jobs := tolerantJob(r, at)
		jobs[0].Tasks = min(1500, max(20, int(240*varied(r, 1))))
		jobs[0].Floor = []float64{1, 0.9, 0.75, 0.5}[r.IntN(4)]
		return jobs
	})(seed)
}

// narrowJob is an urgent job of few long tasks: what it waits for is the speed of the few machines that it runs on.
func narrowJob(_ *rand.Rand, at time.Duration) []Job {
	return []Job{{Class: Urgent, Arrival: at, Tasks: 2, Task: based(40), Deadline: 90 * time.Second, Floor: 1}}
}

// cut is the usual budget: 250 W of 350, 175 W from minute 20 to 35.
func cut() []Step {
	return []Step{{0, 250 * units.Watt}, {20 * time.Minute, 175 * units.Watt}, {35 * time.Minute, 250 * units.Watt}}
}

// hourlyLoad is the metered load of the zone PJM East on Friday, 24 May 2002, by the hour that ends at 1:00 to 24:00,
// in MW: published by PJM Interconnection as its hourly metered load; in the data set "Hourly Energy Consumption"
// (Kaggle, R. Mulla) as PJME_hourly.csv, of which the public repository KaniamLaes/EnergyConsumption holds a copy.
var hourlyLoad = [24]float64{
	23630, 22362, 21704, 21487, 21761, 23116, 25996, 28785, 30203, 31391, 32408, 33004,
	33279, 33895, 34179, 34248, 34323, 34105, 33386, 32602, 33074, 32849, 30588, 27772,
}

// traced is the budget that the rest of a site leaves of 500 W, a day in an time.Hour: 300 W at night, 160 W at the peak.
func traced() (steps []Step) {
	least, most := slices.Min(hourlyLoad[:]), slices.Max(hourlyLoad[:])
	for i, x := range hourlyLoad {
		rest := 200*units.Watt + units.Power(float64(140*units.Watt)*(x-least)/(most-least))
		steps = append(steps, Step{time.Duration(i) * time.Hour / 24, 500*units.Watt - rest})
	}
	return steps
}

// Loads returns the loads that have a name.
func Loads() []Load {
	steady := streams(time.Hour, time.Minute, urgentJob, 280*time.Second, tolerantJob)
	all := []Load{
		{Name: "steady", Jobs: steady},
		{Name: "heavy", Jobs: streams(time.Hour, time.Minute, urgentJob, 200*time.Second, tolerantJob)},
		{Name: "bursty", Jobs: streams(time.Hour, 4*time.Minute, several(2, 6, 10, urgentJob), 14*time.Minute, several(1, 5, 30, tolerantJob))},
		{Name: "heterogeneous", Jobs: mixed},
		{Name: "failures", Jobs: steady, Fails: 20 * time.Minute, Stragglers: 0.05},
		{Name: "power-trace", Jobs: streams(time.Hour, 75*time.Second, urgentJob, 400*time.Second, tolerantJob), Budget: traced()},
		{Name: "narrow", Jobs: streams(time.Hour, 90*time.Second, narrowJob, 200*time.Second, tolerantJob)},
	}
	for i := range all {
		l := &all[i]
		l.Containers, l.For = perServer, time.Hour
		if l.Budget == nil {
			l.Budget = cut()
		}
	}
	return all
}

// Bounds of a file: more takes longer than anybody waits.
const (
	containersMost = 1000
	forMost        = 24 * 3600 // s
	listMost       = 1000      // jobs, and steps of the budget
	tasksMost      = 100_000   // of all jobs together
	taskMost       = 3600      // s
	wattsMost      = 1e6
	least          = 0.001 // s, or the part of the tasks
)

// loadFile is the file of --load.
type loadFile struct {
	Containers int     `json:"containers"`
	For        float64 `json:"for_s"`
	Budget     []struct {
		At    float64 `json:"at_s"`
		Watts float64 `json:"w"`
	} `json:"budget"`
	Jobs []struct {
		Class    Class    `json:"class"`
		Arrival  float64  `json:"arrival_s"`
		Tasks    int      `json:"tasks"`
		Task     float64  `json:"task_s"`
		Deadline *float64 `json:"deadline_s"`
		Floor    *float64 `json:"floor"`
	} `json:"jobs"`
}

// readLoad reads a load from a file, or from stdin for "-".
func readLoad(stdin io.Reader, file string) (l Load, err error) {
	var in loadFile
	if err := jsonfile.Read(stdin, "--load", file, &in); err != nil {
		return l, err
	}
	if problem := in.check(); problem != "" {
		return l, jsonfile.Bad(file, "%s", problem)
	}
	l = Load{Name: jsonfile.Name(file), Containers: in.Containers, For: seconds(in.For)}
	for _, s := range in.Budget {
		l.Budget = append(l.Budget, Step{seconds(s.At), units.FromWatts(s.Watts)})
	}
	var jobs []Job
	for _, j := range in.Jobs {
		x := Job{Class: j.Class, Arrival: seconds(j.Arrival), Tasks: j.Tasks, Task: seconds(j.Task), Floor: 1}
		if j.Deadline != nil {
			x.Deadline = seconds(*j.Deadline)
		}
		if j.Floor != nil {
			x.Floor = *j.Floor
		}
		jobs = append(jobs, x)
	}
	l.Jobs = func(uint64) []Job { return sorted(slices.Clone(jobs)) }
	return l, nil
}

// check returns the first thing that is wrong with the file, with its place; empty where nothing is.
func (in *loadFile) check() (problem string) {
	between := func(place string, x, low, high float64) {
		if x < low || x > high {
			problem = cmp.Or(problem, fmt.Sprintf("%s is %v: must be from %v to %v", place, x, low, high))
		}
	}
	between("containers", float64(in.Containers), 1, containersMost)
	between("for_s", in.For, 1, forMost)
	between("the number of steps of budget", float64(len(in.Budget)), 1, listMost)
	between("the number of jobs", float64(len(in.Jobs)), 1, listMost)
	from, to := 0.0, 0.0 // the first step begins at 0, the others are in order
	for i, s := range in.Budget {
		place := fmt.Sprintf("budget[%d].", i)
		between(place+"at_s", s.At, from, to)
		between(place+"w", s.Watts, 1, wattsMost)
		from, to = s.At+least, forMost
	}
	all := 0
	for i, j := range in.Jobs {
		place := fmt.Sprintf("jobs[%d].", i)
		between(place+"arrival_s", j.Arrival, 0, in.For)
		between(place+"tasks", float64(j.Tasks), 1, tasksMost)
		between(place+"task_s", j.Task, least, taskMost)
		if j.Class != Urgent && j.Class != Tolerant {
			problem = cmp.Or(problem, fmt.Sprintf("%sclass %q: must be %s or %s", place, j.Class, Urgent, Tolerant))
		}
		if j.Deadline != nil {
			between(place+"deadline_s", *j.Deadline, least, forMost)
		}
		if j.Floor != nil {
			between(place+"floor", *j.Floor, least, 1)
		}
		all += min(j.Tasks, tasksMost+1)
	}
	between("the number of tasks of all jobs", float64(all), 1, tasksMost)
	return problem
}
