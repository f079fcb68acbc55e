package dias

import (
	"fmt"
	"math"

	"headroom/jobs/deflation"
	"headroom/jobs/quality"
)

// The input of ours is what the scheduler would have noted of earlier runs with other draws
// (seeds below those that are judged), and learned by the same functions: rates, jobs by
// waves, and how fast a sprint is. It begins without dropping and without sprints, chooses,
// runs with what it chose (the paper's setting while it finds nothing), and chooses again
// from what it has seen. Each judged seed
// has lessons of its own, so what chance there is in them shows in the bounds.

// The lessons.
const (
	// lessonRounds is how often it chooses, lessonJobs how many jobs run before each choice.
	lessonRounds, lessonJobs = 3, 1000
	// lessonRuns and lessonArrivals are how many runs and arrivals of a class the scheduler
	// remembers (package scheduler).
	lessonRuns, lessonArrivals = 200, 2000
	// lessonStream keeps the draws of the lessons apart from those of all experiments.
	lessonStream = 1 << 20
	// toldSpeed is what an operator would expect of a sprint: the clocks' 2.4 over 0.8 GHz.
	toldSpeed = 3
	// boundSeeds is how many earlier runs show what the paper's setting achieves.
	boundSeeds = 5
)

// controller finds an operating point as the scheduler does; a mutant's has another part.
type controller struct {
	learn func([]deflation.Finished) (deflation.WaveJob, bool)
	speed func(plain []float64, timed []deflation.TimerRun) (float64, bool)
	// change spoils the question.
	change func(*deflation.Problem)
}

// production is the scheduler's.
func production() *controller {
	return &controller{learn: deflation.Learn, speed: deflation.LearnSpeed, change: func(*deflation.Problem) {}}
}

// noted is what the scheduler has noted of a class.
type noted struct {
	arrivals []float64 // s
	runs     []notedRun
	plain    []float64 // s, of runs without a sprint timer, which are remembered apart
}

// notedRun is a run that has ended: how it went, in parts as they would be without a sprint, and
// in all as it was.
type notedRun struct {
	finished deflation.Finished
	timed    bool
	timer    deflation.TimerRun
}

func latest[T any](all []T, most int) []T { return all[max(0, len(all)-most):] }

// choose finds the point after all lessons; seed is that of the first.
func (c *controller) choose(a *asked, seed uint64) (at *deflation.Point, speed float64, err error) {
	var notes [2]noted
	policy, began := nonPreemptive(), 0.0
	for round := range uint64(lessonRounds) {
		if began, err = a.note(&notes, began, seed+round, policy); err != nil {
			return nil, 0, err
		}
		var p deflation.Problem
		if p, speed, err = c.question(a, &notes, began); err != nil {
			return nil, 0, err
		}
		better, err := solve(p)
		if err != nil {
			return nil, 0, err
		}
		if better != nil { // the last point stays where nothing keeps the bounds
			at = better
		}
		policy = a.policy(ours, at)
	}
	return at, speed, nil
}

// note runs jobs under a policy from a moment on and notes what the scheduler would; it
// returns when the last one came.
func (a *asked) note(notes *[2]noted, began float64, seed uint64, p policy) (ended float64, err error) {
	tr := arrive(seed, lessonStream, a.classes, lessonJobs)
	o, err := simulate(tr, p, a.faults)
	if err != nil {
		return 0, err
	}
	for i := range o.jobs {
		d := &o.jobs[i]
		n := &notes[d.class]
		n.arrivals = latest(append(n.arrivals, began+tr.jobs[i].at.Seconds()), lessonArrivals)
		if !d.timed {
			n.plain = latest(append(n.plain, d.exec), lessonRuns)
		}
		n.runs = deflation.Remember(n.runs, notedRun{
			tr.course(i, d.theta).finished(d.theta), d.timed, deflation.TimerRun{Plain: d.exec - d.fast, Sprinted: d.fast},
		}, lessonRuns, func(r *notedRun) float64 { return r.finished.Theta })
	}
	return began + tr.jobs[len(tr.jobs)-1].at.Seconds(), nil
}

// question is the deflator's problem from what was noted up to now.
func (c *controller) question(a *asked, notes *[2]noted, now float64) (p deflation.Problem, speed float64, err error) {
	model, known := c.learn(notes[low].finished())
	profile, err := fig6()
	if !known || err != nil {
		return p, 0, fmt.Errorf("nothing was learned of low jobs: %w", err)
	}
	if speed, known = c.speed(notes[high].sprints()); !known {
		speed = toldSpeed
	}
	highs, err := deflation.Measured([]deflation.Measure{notes[high].unsprinted(speed)})
	if err != nil {
		return p, 0, err
	}
	if p, err = a.problem(model.Jobs(deflation.DropWithin(profile, a.errorMax)), highs, [2]float64{notes[high].rate(now), notes[low].rate(now)}, speed); err != nil {
		return p, 0, err
	}
	c.change(&p)
	return p, speed, nil
}

// rate is the class's jobs a second, up to now.
func (n *noted) rate(now float64) float64 {
	return float64(len(n.arrivals)-1) / (now - n.arrivals[0])
}

func (n *noted) finished() (all []deflation.Finished) {
	for i := range n.runs {
		all = append(all, n.runs[i].finished)
	}
	return all
}

// sprints are the runs without and with a sprint timer.
func (n *noted) sprints() (plain []float64, timed []deflation.TimerRun) {
	for i := range n.runs {
		if n.runs[i].timed {
			timed = append(timed, n.runs[i].timer)
		}
	}
	return n.plain, timed
}

// unsprinted is the time of a class's jobs, without sprints.
func (n *noted) unsprinted(speed float64) deflation.Measure {
	var sum, square float64
	for i := range n.runs {
		x := n.runs[i].timer.Plain + speed*n.runs[i].timer.Sprinted
		sum, square = sum+x, square+x*x
	}
	count := float64(len(n.runs))
	mean := sum / count
	return deflation.Measure{Mean: mean, CV: math.Sqrt(max(0, square/count/(mean*mean)-1))}
}

// responses are the mean response times under a policy in earlier runs, the highest class
// first. Those runs were made without a mutant's faults: they set the bounds.
func (e experiment) responses(p policy) (means [2]float64, err error) {
	for seed := range uint64(boundSeeds) {
		o, err := simulate(arrive(seed+1, lessonStream+1, e.classes, jobsWhole), p, faults{})
		if err != nil {
			return means, err
		}
		r := measure(o, len(e.classes))
		for class := range means {
			means[class] += r.classes[class].mean / boundSeeds
		}
	}
	return means, nil
}

// fig6 is the accuracy profile of the text jobs: mean absolute error by drop ratio (Fig. 6).
func fig6() (*quality.Profile, error) {
	profile, _, err := deflation.ProfileOf("text", []deflation.Loss{{}, {Drop: 0.1, Error: 0.085}, {Drop: 0.2, Error: 0.15}, {Drop: 0.4, Error: 0.32}})
	return profile, err
}
