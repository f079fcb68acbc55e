package dias

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/queueing"
	"headroom/lab/papers"
)

// The model predicts what the simulation observes, as in section 4.3: from the mean
// times of tasks and from overheads with all tasks and with a tenth of them, the time of a job
// (Fig. 4); from that and the rates, the response times of both classes (Fig. 5).

// stagePhases is how many phases a stage or wave has in the wave-level model: its
// coefficient of variation is then 0.2, and a job's about that of the simulated ones.
const stagePhases = 25

// models are the two of sections 4.1 and 4.2.
type models struct{ wave, task queueing.PH }

// predict is a text job's time by both models at a drop ratio.
func (w text) predict(theta float64) (models, error) {
	task, err := queueing.TaskLevel(queueing.TaskModel{
		Slots: slots, Maps: queueing.Exactly(w.maps), Reduces: queueing.Exactly(w.reduces), MapDrop: theta,
		MapMean: w.task, ReduceMean: w.reduce, Setup: w.overhead(theta), Shuffle: w.shuffle,
	})
	if err != nil {
		return models{}, err
	}
	var stages [4]queueing.PH
	for i, mean := range []float64{w.overhead(theta), w.task, w.shuffle, w.reduce} {
		if stages[i], err = queueing.Erlang(stagePhases, stagePhases/mean); err != nil {
			return models{}, err
		}
	}
	wave, err := queueing.WaveLevel(queueing.WaveModel{
		Slots: slots, Maps: queueing.Exactly(w.maps), Reduces: queueing.Exactly(w.reduces), MapDrop: theta,
		MapWaves: stages[1:2], ReduceWaves: stages[3:4], Setup: stages[0], Shuffle: stages[2],
	})
	return models{wave, task}, err
}

// validation is what the models say beside what was simulated.
type validation struct {
	jobs      []jobPoint
	responses []responsePoint
	exact     []responsePoint // from measured moments: NP in the reference set-up
}

// jobPoint is one drop ratio of Fig. 4, in seconds.
type jobPoint struct {
	class                int
	ratio                float64 // percent
	observed, wave, task float64
}

// responsePoint is one class at one drop ratio of Fig. 5, in seconds.
type responsePoint struct {
	class          int
	ratio          float64     // percent
	observed, tail papers.Stat // mean and 95th percentile
	mean, p95      float64     // predicted
}

// validate asks the models for all points.
func (s *study) validate() (*validation, error) {
	ref, ok := s.find(reference)
	if !ok {
		return &validation{}, nil
	}
	v := &validation{}
	for class, c := range ref.classes {
		w, ok := c.work.(text)
		if !ok {
			continue
		}
		for _, r := range ratios() {
			m, err := w.predict(r / 100)
			if err != nil {
				return nil, fmt.Errorf("the model of a job at %g %%: %w", r, err)
			}
			v.jobs = append(v.jobs, jobPoint{class, r, profile(w, r/100).mean, m.wave.Mean(), m.task.Mean()})
		}
	}
	for _, r := range ratios() {
		points, err := s.respond(ref, r)
		if err != nil {
			return nil, fmt.Errorf("the model of the queue at %g %%: %w", r, err)
		}
		v.responses = append(v.responses, points...)
	}
	var err error
	v.exact, err = s.measured(ref)
	return v, err
}

// find is an experiment by its name.
func (s *study) find(name string) (experiment, bool) {
	for _, e := range s.experiments {
		if e.name == name {
			return e, true
		}
	}
	return experiment{}, false
}

// dropping is the policy of the reference set-up in which low jobs drop a ratio, in percent.
func dropping(ratio float64) string {
	if ratio == 0 {
		return "NP"
	}
	return da(0, ratio).name
}

// respond predicts both classes' response times when low jobs drop a ratio.
func (s *study) respond(e experiment, ratio float64) ([]responsePoint, error) {
	var services []queueing.PH
	for class, c := range e.classes {
		w, ok := c.work.(text)
		if !ok {
			return nil, nil
		}
		m, err := w.predict([]float64{0, ratio / 100}[class])
		if err != nil {
			return nil, err
		}
		services = append(services, m.wave)
	}
	return s.solve(e, ratio, services)
}

// measured predicts NP from the first two moments of the jobs that ran.
func (s *study) measured(e experiment) ([]responsePoint, error) {
	var services []queueing.PH
	for _, c := range e.classes {
		ph, err := fitted(profile(c.work, 0))
		if err != nil {
			return nil, err
		}
		services = append(services, ph)
	}
	return s.solve(e, 0, services)
}

// fitted is a PH of these moments.
func fitted(m moments) (queueing.PH, error) {
	return queueing.Fit(m.mean, max(m.square/(m.mean*m.mean)-1, 0.01))
}

// solve asks the queue and puts its answers beside what was simulated; services are the
// highest class's first.
func (s *study) solve(e experiment, ratio float64, services []queueing.PH) ([]responsePoint, error) {
	q := queueing.Queue{Discipline: queueing.NonPreemptive}
	for i, service := range slices.Backward(services) {
		q.Arrivals.Rates, q.Services = append(q.Arrivals.Rates, e.classes[i].rate), append(q.Services, service)
	}
	answer, err := queueing.Solve(q, queueing.Options{Percentiles: []float64{0.95}})
	if err != nil {
		return nil, err
	}
	var out []responsePoint
	for i := range services {
		m := answer.Classes[len(services)-1-i].Sojourn
		out = append(out, responsePoint{
			class: i, ratio: ratio, mean: m.Mean, p95: m.Percentiles[0].At,
			observed: s.of(e.name, dropping(ratio), meanOf(i)), tail: s.of(e.name, dropping(ratio), tailOf(i)),
		})
	}
	return out, nil
}

// errors are the mean errors of a class's job times, in percent, by both models.
func (v *validation) errors(class int) (wave, task papers.Stat) {
	var waves, tasks []float64
	for _, p := range v.jobs {
		if p.class == class {
			waves = append(waves, 100*math.Abs(p.wave/p.observed-1))
			tasks = append(tasks, 100*math.Abs(p.task/p.observed-1))
		}
	}
	return only(waves), only(tasks)
}

// only is a mean without bounds: of points, not of seeds.
func only(values []float64) papers.Stat {
	s := papers.Of(values)
	s.Low, s.High = s.Mean, s.Mean
	return s
}

// targets are V1 to V3: Figs. 4 and 5, and the exact queue against the simulation.
func (v *validation) targets() []papers.Target {
	var all []papers.Target
	for class, name := range []string{"high", "low"} {
		paper := []float64{7.8, 11.1}[class]
		wave, task := v.errors(class)
		all = append(all, papers.From(paper, papers.AtMost(paper), papers.Judge("V1/"+name, "Fig. 4: error of the modelled time of the "+name+" class's jobs, over the drop ratios", "%", wave,
			wave.Mean <= paper, fmt.Sprintf("by waves, to be no more than the paper's; %.1f %% by tasks of exponential length (eq. 1), which are not those of real tasks", task.Mean))))
	}
	var means, tails []float64
	for _, p := range v.responses {
		if p.observed.Known {
			means, tails = append(means, 100*math.Abs(p.mean/p.observed.Mean-1)), append(tails, 100*math.Abs(p.p95/p.tail.Mean-1))
		}
	}
	mean := only(means)
	all = append(all, papers.From(18.7, papers.AtMost(18.7), papers.Judge("V2", "Fig. 5: error of the modelled mean response times, both classes, over the drop ratios", "%", mean,
		mean.Mean <= 18.7, fmt.Sprintf("to be no more than the paper's; 95th percentiles are off by %.1f %%", only(tails).Mean))))
	for _, p := range v.exact {
		all = append(all, p.cross())
	}
	return all
}

// cross is V3: the queue's answer from measured moments within the simulation's bounds.
func (p *responsePoint) cross() papers.Target {
	name := []string{"high", "low"}[p.class]
	const slack = 0.02
	low, high := min(p.observed.Low, p.observed.Mean*(1-slack)), max(p.observed.High, p.observed.Mean*(1+slack))
	return papers.Judge("V3/"+name, "NP, reference: mean response of the "+name+" class, simulated", "s", p.observed, p.mean >= low && p.mean <= high,
		fmt.Sprintf("%.2f s by the queueing model with the jobs' measured mean and variation: to be within the bounds, or within 2 %%", p.mean))
}
