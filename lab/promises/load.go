package promises

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"headroom/lab/apps"
	"headroom/units"
)

// kind is what a job promises.
type kind string

// The kinds: a third of the jobs promises nothing, a third has an error bound, and a third a deadline. Of these half need all
// of their tasks, and half return what is done.
const (
	exact   kind = "exact"
	strict  kind = "deadline"
	partial kind = "partial"
	bounded kind = "error"
)

// order is in which order the kinds come.
func order() []kind { return []kind{exact, strict, bounded, exact, partial, bounded} }

// due reports whether jobs of the kind have a deadline.
func (k kind) due() bool { return k == strict || k == partial }

// class is the class of the scheduler that jobs of the kind are of: those that promise something go first.
func (k kind) class() string {
	if k == exact {
		return "exact"
	}
	return "promised"
}

// job is a job that comes.
type job struct {
	name    string
	kind    kind
	arrival time.Duration
	tasks   int
	// deadline is when it ought to have ended, since its submission; 0 for none.
	deadline time.Duration
	// error is the part of its tasks that it may leave out.
	error float64
}

// partialFloor is the least part of its tasks that a job which returns what is done must have: little, since its accuracy
// is what is measured.
const partialFloor = 0.1

// need is how many tasks it may end on.
func (j *job) need() int {
	switch j.kind {
	case partial:
		return units.Ratio(partialFloor).Least(j.tasks)
	case bounded:
		return units.Ratio(1 - j.error).Least(j.tasks)
	case exact, strict:
	}
	return j.tasks
}

// load is the jobs of a run.
type load struct {
	count  int
	within time.Duration
	// least and most bound the tasks of a job; their distribution is a bounded Pareto one.
	least, most int
	// task is about how long a task takes that is not slow, when all slots are busy; slots are those that caps leave of all nodes.
	task  time.Duration
	slots int
	// start is about how long an engine takes until a job's first task begins.
	start time.Duration
}

// Sizes by their tasks: what of a job runs in one wave, in some, and in many.
const (
	sizeAlpha   = 1.1
	smallWaves  = 1
	mediumWaves = 2
)

func (l *load) size(tasks int) string {
	switch {
	case tasks <= smallWaves*l.slots:
		return "small"
	case tasks <= mediumWaves*l.slots:
		return "medium"
	}
	return "large"
}

// Bounds of promises: the errors of GRASS, and its factors of deadlines.
const (
	errorLeast, errorMost   = 0.05, 0.30
	factorLeast, factorMost = 1.02, 1.20
)

// jobs are those of a seed, by their arrival.
func (l *load) jobs(seed uint64) (out []job) {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(low, high float64) float64 { return low + (high-low)*r.Float64() }
	gap := float64(l.within) / float64(l.count)
	seen := map[kind]int{}
	for i := range l.count {
		j := job{kind: order()[i%len(order())], arrival: time.Duration((float64(i) + r.Float64()) * gap), tasks: l.tasks(r.Float64())}
		factor, multiple := between(factorLeast, factorMost), multiple(seen[j.kind], between)
		bound := between(errorLeast, errorMost)
		switch j.kind {
		case strict:
			j.deadline = l.ideal(j.tasks, l.slots, multiple)
		case partial:
			j.deadline = l.ideal(j.tasks, l.slots/2, factor)
		case bounded:
			j.error = math.Round(100*bound) / 100
		case exact:
		}
		seen[j.kind]++
		j.name = fmt.Sprintf("j%02d-%s-%s", i, j.kind, l.size(j.tasks))
		out = append(out, j)
	}
	return out
}

// tasks draws how many tasks a job has.
func (l *load) tasks(u float64) int {
	part := 1 - math.Pow(float64(l.least)/float64(l.most), sizeAlpha)
	return min(l.most, int(float64(l.least)*math.Pow(1-u*part, -1/sizeAlpha)))
}

// multiple is the i-th multiple of the ideal time: the five kinds of PYTHIA in turn.
func multiple(i int, between func(low, high float64) float64) float64 {
	u := between(0, 1)
	switch i % 5 {
	case 0:
		return 2
	case 1:
		return 1 + math.Round(u)
	case 2:
		return 2 + 2*math.Round(u)
	case 3:
		return 1 + 2*u
	}
	return 2 + 2*u
}

// slowMedian is how many times as long the median task takes as one that is not slow.
const slowMedian = 1.6

// ideal is so many times what a job of median tasks takes on so many slots, with its start. GRASS's factors are of half of them: its jobs, too,
// ran among others.
func (l *load) ideal(tasks, slots int, times float64) time.Duration {
	waves := math.Ceil(float64(tasks) / float64(slots))
	return time.Duration(times * (float64(l.start) + waves*slowMedian*float64(l.task))).Round(time.Second / 10)
}

// terms are what a job promises, as its job file has it.
func (j *job) terms() string {
	var b strings.Builder
	if j.deadline > 0 {
		fmt.Fprintf(&b, "deadline: %v\n", j.deadline)
	}
	if j.kind == partial {
		fmt.Fprintf(&b, "min_tasks: %.0f%%\n", 100*partialFloor)
	}
	if j.kind == bounded {
		fmt.Fprintf(&b, "error: %.0f%%\n", 100*j.error)
	}
	return b.String()
}

// attempts is for how many attempts of a task it is drawn how slow they are. Later ones are as slow as these in turn.
const attempts = 3

// draws are how many times as long the attempts of a job's tasks take in a run of that seed, as the applications for Hadoop and
// Spark are told: a number for each task, and those of the next attempts after a semicolon.
func (j *job) draws(seed uint64) string {
	var b strings.Builder
	for attempt := range attempts {
		for task := range j.tasks {
			switch {
			case task > 0:
				b.WriteByte(',')
			case attempt > 0:
				b.WriteByte(';')
			}
			fmt.Fprintf(&b, "%.2f", apps.Slow(fmt.Sprintf("%d/%s-%d.%d", seed, j.name, task, attempt)))
		}
	}
	return b.String()
}

// step is the caps of the nodes from a moment on, as parts of what they are rated.
type step struct {
	at   time.Duration
	caps []float64
}

// margin is what the budget leaves above the caps of all nodes, for sprints, as a part of what they are rated.
const margin = 0.2

// budget is what the site may hold at a step.
func (s *step) budget() float64 {
	sum := margin
	for _, c := range s.caps {
		sum += c / float64(len(s.caps))
	}
	return min(1, sum)
}

// steps are the caps of a run: the second node is held harder than the first, and both are held harder in the middle third.
func steps(within time.Duration) []step {
	return []step{{0, []float64{0.80, 0.60}}, {within / 3, []float64{0.70, 0.50}}, {within * 2 / 3, []float64{0.80, 0.60}}}
}

// says is a description of the load.
func (l *load) says() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d jobs of %d to %d tasks within %v, a third exact, a third with deadlines, a third with error bounds; nodes held at", l.count, l.least, l.most, l.within)
	for i, s := range steps(l.within) {
		if i > 0 {
			fmt.Fprintf(&b, ", from %.0f s on at", s.at.Seconds())
		}
		fmt.Fprintf(&b, " %.0f and %.0f %%", 100*s.caps[0], 100*s.caps[1])
	}
	return b.String() + " of what they are rated"
}
