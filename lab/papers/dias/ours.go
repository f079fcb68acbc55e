package dias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"headroom/jobs/buffers"
	"headroom/jobs/deflation"
	"headroom/jobs/queueing"
	"headroom/lab/papers"
	"headroom/units"
)

// ours is the policy whose drop ratio and sprint timer package deflation finds, under
// the bounds that the paper's own setting keeps.
const ours = "ours"

// choice is what was chosen, beside the paper's setting.
type choice struct {
	experiment string
	static     string  // the paper's setting
	error      float64 // of the static setting's low jobs
	point      deflation.Point
	policy     policy
	// bounds on the mean response times, the highest class first; 0: none.
	bounds [2]float64
}

// tryRatios are the drop ratios that are tried: every task of a text job up to the paper's 40 %.
func tryRatios() []float64 {
	var all []float64
	for n := range 21 {
		all = append(all, float64(n)/partitions)
	}
	return all
}

// jobs is the model of a class's jobs from a profiling run at each ratio.
func jobs(w work, ratios []float64) (deflation.Jobs, error) {
	var measures []deflation.Measure
	for _, r := range ratios {
		m := profile(w, r)
		measures = append(measures, deflation.Measure{Drop: r, Mean: m.mean, CV: math.Sqrt(max(0, m.square/(m.mean*m.mean)-1))})
	}
	return deflation.Measured(measures)
}

// problem is that of an experiment with two classes, the low one dropping up to an error.
func (e experiment) problem(errorMax float64) (deflation.Problem, error) {
	var table []deflation.Loss
	for _, a := range accuracy() {
		table = append(table, deflation.Loss{Drop: a.X / 100, Error: a.Y / 100})
	}
	loss, _, err := deflation.ProfileOf("text", table)
	if err != nil {
		return deflation.Problem{}, err
	}
	lows, err := jobs(e.classes[low].work, tryRatios())
	if err != nil {
		return deflation.Problem{}, err
	}
	highs, err := jobs(e.classes[high].work, []float64{0})
	if err != nil {
		return deflation.Problem{}, err
	}
	return deflation.Problem{
		Busy: units.Power(busyWatts) * units.Watt,
		Classes: []deflation.Class{
			{Name: "low", Rate: e.classes[low].rate, Jobs: lows, Profile: loss, ErrorMax: errorMax},
			{Name: "high", Rate: e.classes[high].rate, Jobs: highs},
		},
	}, nil
}

// useCase is that of section 5.2.1: up to 30 % error, high jobs within 100 s in the mean,
// for which the paper drops 20 %.
func useCase(e experiment) (*choice, error) {
	p, err := e.problem(0.30)
	if err != nil {
		return nil, err
	}
	c := &choice{experiment: e.name, static: "DA(0,20)", error: 0.15, bounds: [2]float64{100, 0}}
	p.Classes[1].MeanMax = c.bounds[high]
	return c, c.choose(p)
}

// withSprints is Fig. 11 with the limited budget: up to 15 % error, no class slower than
// the model has it under DIAS(0,20) with the timer at 65 s.
func withSprints(e experiment) (*choice, error) {
	p, err := e.problem(0.15)
	if err != nil {
		return nil, err
	}
	c := &choice{experiment: e.name, static: "DIAS(0,20) " + limitedBudget, error: 0.15}
	if c.bounds, err = e.static(0.2); err != nil {
		return nil, err
	}
	p.Classes[0].MeanMax, p.Classes[1].MeanMax = reserve*c.bounds[low], c.bounds[high]
	p.Classes[1].SprintUp, p.Classes[1].SprintExtra = speedup, units.Power(extraWatts)*units.Watt
	for t := 0.0; t <= 130; t += 5 {
		p.Classes[1].Timeouts = append(p.Classes[1].Timeouts, t)
	}
	p.Budget = &deflation.Bucket{Capacity: budgetJoules * units.Joule, Refill: units.Power(refillWatts) * units.Watt}
	return c, c.choose(p)
}

// reserve is what is asked of the model for the lowest class: package deflation says that its
// answer may be a tenth too short where the budget pays only a part of the sprints.
const reserve = 0.9

// static is the mean response times of the paper's setting by the model, when every
// sprint is paid.
func (e experiment) static(theta float64) (means [2]float64, err error) {
	lowJobs, err := fitted(profile(e.classes[low].work, theta))
	if err != nil {
		return means, err
	}
	highJobs, err := fitted(profile(sprinting{e.classes[high].work}, 0))
	if err != nil {
		return means, err
	}
	answer, err := queueing.Solve(queueing.Queue{
		Discipline: queueing.NonPreemptive, Services: []queueing.PH{lowJobs, highJobs},
		Arrivals: queueing.Arrivals{Rates: []float64{e.classes[low].rate, e.classes[high].rate}},
	}, queueing.Options{})
	if err != nil {
		return means, err
	}
	return [2]float64{answer.Classes[1].Sojourn.Mean, answer.Classes[0].Sojourn.Mean}, nil
}

// sprinting is a job that sprints from the paper's timer to its end.
type sprinting struct{ work work }

func (s sprinting) seconds(theta float64, rng *rand.Rand) float64 {
	x, t := s.work.seconds(theta, rng), sprintAfter.Seconds()
	return min(x, t) + max(0, x-t)/speedup
}

// choose asks the deflator and makes a policy of its answer.
func (c *choice) choose(p deflation.Problem) error {
	answer, err := deflation.Choose(p)
	if err != nil {
		return err
	}
	if answer.Chosen == nil {
		return fmt.Errorf("%s: nothing keeps the bounds of %s", c.experiment, c.static)
	}
	c.point = *answer.Chosen
	lows, highs := c.point.Classes[0], c.point.Classes[1]
	c.policy = policy{name: ours, discipline: buffers.DA, thetas: []float64{highs.Theta, lows.Theta}}
	if !math.IsInf(highs.After, 1) {
		c.policy.discipline, c.policy.pot = buffers.DIAS, limited
		c.policy.after = time.Duration(highs.After * float64(time.Second))
	}
	return nil
}

// choices are ours, and adds them to the experiments.
func choices(all []experiment) ([]choice, error) {
	var out []choice
	for i, e := range all {
		ask, ok := map[string]func(experiment) (*choice, error){reference: useCase, complete: withSprints}[e.name]
		if !ok {
			continue
		}
		c, err := ask(e)
		if err != nil {
			return nil, fmt.Errorf("what to drop in %s: %w", e.name, err)
		}
		out = append(out, *c)
		all[i].policies = append(all[i].policies, c.policy)
	}
	return out, nil
}

// targets are B1 and B2: less error than by the paper's setting, under the same bounds.
func (c *choice) targets(s *study, id string) []papers.Target {
	lows, highs := c.point.Classes[0], c.point.Classes[1]
	what := fmt.Sprintf("low jobs drop %.0f %%", 100*lows.Theta)
	if c.policy.pot != nil {
		what += fmt.Sprintf(", high jobs sprint after %.0f s (their time by the model %.1f s, simulated %.1f s)", highs.After, highs.Service, s.of(c.experiment, ours, execOf(high)).Mean)
	}
	lost := papers.Once(100 * lows.Error)
	lost.Known = s.of(c.experiment, ours, meanOf(low)).Known
	all := []papers.Target{papers.From(100*c.error, papers.AtMost(100*c.error), papers.Judge(id+"/error", c.experiment+": error of low jobs, ours against "+c.static, "%", lost, lows.Error < c.error, what+": to be less"))}
	for class, name := range []string{"high", "low"} {
		if c.bounds[class] == 0 {
			continue
		}
		const slack = 1.03
		mine, theirs := s.of(c.experiment, ours, meanOf(class)), s.of(c.experiment, c.static, meanOf(class))
		all = append(all, papers.Judge(id+"/"+name, c.experiment+": mean response of the "+name+" class, ours", "s", mine, mine.Mean <= slack*c.bounds[class], fmt.Sprintf(
			"to be within %.1f s, the bound, and 3 %%; %s has %.1f s", c.bounds[class], c.static, theirs.Mean)))
	}
	return all
}
