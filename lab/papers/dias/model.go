package dias

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"headroom/jobs/deflation"
	"headroom/jobs/queueing"
	"headroom/lab/report"
)

// The model predicts what was observed, as in section 4.3. Jobs are real ones: the record of
// runs on Spark has some with all tasks and with a tenth of them, which the model is fitted
// to (the paper's profiling), and others at all ratios, whose times it predicts (Fig. 4).
// From these and the rates follow the response times of both classes (Fig. 5): the queue
// is the dispatcher in virtual time, and each of its jobs takes as long as a real one did.

// fitting makes of finished runs a model of a job's time by drop ratio.
type fitting func(runs []deflation.Finished) (func(theta float64) (queueing.PH, error), error)

// byWaves is production's.
func byWaves(runs []deflation.Finished) (func(theta float64) (queueing.PH, error), error) {
	w, known := deflation.Learn(runs)
	if !known {
		return nil, fmt.Errorf("%w: no run to learn from", errRecord)
	}
	return w.Jobs(1).Time, nil
}

// byTasks is equation (1): tasks of exponential length. A task is as long as a wave is in
// the mean, as it is for tasks of equal length.
func byTasks(runs []deflation.Finished) (func(theta float64) (queueing.PH, error), error) {
	w, known := deflation.Learn(runs)
	if !known {
		return nil, fmt.Errorf("%w: no run to learn from", errRecord)
	}
	n := w.Tasks[0]
	return func(theta float64) (queueing.PH, error) {
		return queueing.TaskLevel(queueing.TaskModel{
			Slots: w.Slots, Maps: queueing.Exactly(n), Reduces: queueing.Exactly(w.Reduces), MapDrop: theta,
			MapMean: w.Wave + w.First/float64(w.Waves(n, 0)), ReduceMean: w.ReduceWave, Setup: w.Setup + w.SetupSlope*theta, Shuffle: w.Shuffle,
		})
	}, nil
}

// byShare is what was thought before: a job's time is in proportion to the tasks that it keeps.
func byShare(runs []deflation.Finished) (func(theta float64) (queueing.PH, error), error) {
	w, known := deflation.Learn(runs)
	if !known {
		return nil, fmt.Errorf("%w: no run to learn from", errRecord)
	}
	return share(w).Jobs(1).Time, nil
}

// share is the model in proportion to the kept tasks: every task a wave, and nothing else.
func share(w deflation.WaveJob) deflation.WaveJob {
	mean, _ := w.Moments(0)
	n := w.Tasks[0]
	return deflation.WaveJob{Slots: 1, Tasks: []int{n}, Depth: 1, Wave: mean / float64(n), CV: w.CV}
}

// theory is what the models are: a job's time, and whether the queue has priorities.
type theory struct {
	fit fitting
	// upsideDown serves the lowest class first: of a mutant.
	upsideDown bool
}

// validation holds the models' results beside the observed ones.
type validation struct {
	noise     float64 // of the machine that the record was made on
	jobs      []jobPoint
	responses []responsePoint
}

// jobPoint is one drop ratio of Fig. 4, in seconds; oracle is the model fitted to the very
// runs that are judged.
type jobPoint struct {
	class                               int
	ratio                               float64 // percent
	observed, wave, task, share, oracle float64
}

// responsePoint is one class at one drop ratio of Fig. 5, in seconds.
type responsePoint struct {
	class          int
	ratio          float64     // percent
	observed, tail report.Stat // mean and 95th percentile
	mean, p95      float64     // predicted
	// share is the mean that follows from times in proportion to the kept tasks.
	share float64
}

// replayed are jobs that take as long as recorded ones did, drawn by chance.
type replayed struct {
	of    *record
	class string
}

func (w replayed) job(theta float64, rng *rand.Rand) course {
	times := w.of.at(w.class, int(math.Round(100*theta)))
	return course{maps: times[rng.IntN(len(times))], tasks: 1, kept: 1}
}

// experiment is the reference set-up with recorded jobs: one high job to nine low ones, at a
// load of 80 % by the runs that the model is fitted to.
func (r *record) experiment() experiment {
	e := experiment{name: "recorded", what: "Fig. 5"}
	rates := [2]float64{0.1, 0.9}
	load := 0.0
	for i, name := range classNames() {
		e.classes = append(e.classes, class{name: name, work: replayed{r, name}})
		sum, n := 0.0, 0.0
		for _, x := range r.of(name, calibrate) {
			if x.Percent == 0 {
				sum, n = sum+x.Job, n+1
			}
		}
		load += rates[i] * sum / n
	}
	for i := range e.classes {
		e.classes[i].rate = rates[i] * usualLoad / load
	}
	for _, r := range ratios() {
		e.policies = append(e.policies, dropping(r))
	}
	return e
}

// dropping is the policy in which low jobs drop a ratio, in percent.
func dropping(ratio float64) policy {
	if ratio == 0 {
		return nonPreemptive()
	}
	return da(0, ratio)
}

// fitted are the models of both classes' jobs, the highest first.
func (r *record) fitted(use string, fit fitting) (models [2]func(theta float64) (queueing.PH, error), err error) {
	for class, name := range classNames() {
		var runs []deflation.Finished
		for _, x := range r.of(name, use) {
			runs = append(runs, x.finished(r))
		}
		if models[class], err = fit(runs); err != nil {
			return models, err
		}
	}
	return models, nil
}

// validate solves the models at all points; the queue of recorded jobs runs on as many
// seeds as the study, and no longer.
func (r *record) validate(ctx context.Context, t theory, seed uint64, seeds, jobs int) (*validation, error) {
	v := &validation{noise: r.noise()}
	if err := v.fig4(r, t); err != nil {
		return nil, fmt.Errorf("the model of a job: %w", err)
	}
	e := r.experiment()
	s, err := run(ctx, []experiment{e}, seed, seeds, jobs, func(int, int) {})
	if err != nil {
		return nil, err
	}
	if v.responses, err = s.predicted(e, r, t); err != nil {
		return nil, fmt.Errorf("the model of the queue: %w", err)
	}
	shares, err := s.predicted(e, r, theory{fit: byShare})
	if err != nil {
		return nil, fmt.Errorf("the model of the queue, by kept tasks: %w", err)
	}
	for i := range shares {
		v.responses[i].share = shares[i].mean
	}
	return v, nil
}

// predicted are the response times of all ratios by the models.
func (s *study) predicted(e experiment, r *record, t theory) (all []responsePoint, err error) {
	models, err := r.fitted(calibrate, t.fit)
	if err != nil {
		return nil, err
	}
	for _, ratio := range ratios() {
		services := make([]queueing.PH, len(models))
		for class, model := range models {
			if services[class], err = model([]float64{0, ratio / 100}[class]); err != nil {
				return nil, err
			}
		}
		points, err := s.solve(e, ratio, services, t)
		if err != nil {
			return nil, fmt.Errorf("at %g %%: %w", ratio, err)
		}
		all = append(all, points...)
	}
	return all, nil
}

// fig4 fills in the job times.
func (v *validation) fig4(r *record, t theory) error {
	wave, err := r.fitted(calibrate, t.fit)
	if err != nil {
		return err
	}
	task, err := r.fitted(calibrate, byTasks)
	if err != nil {
		return err
	}
	share, err := r.fitted(calibrate, byShare)
	if err != nil {
		return err
	}
	best, err := r.fitted(judged, byWaves)
	if err != nil {
		return err
	}
	for class, name := range classNames() {
		for _, ratio := range ratios() {
			p := jobPoint{class: class, ratio: ratio, observed: mean(r.at(name, int(ratio)))}
			for i, model := range []func(float64) (queueing.PH, error){wave[class], task[class], share[class], best[class]} {
				ph, err := model(ratio / 100)
				if err != nil {
					return err
				}
				*[]*float64{&p.wave, &p.task, &p.share, &p.oracle}[i] = ph.Mean()
			}
			v.jobs = append(v.jobs, p)
		}
	}
	return nil
}

// measured predicts NP in an experiment from the first two moments of the jobs that ran: the
// queue of package queueing against the dispatcher's.
func (s *study) measured(t theory) ([]responsePoint, error) {
	e, ok := s.find(reference)
	if !ok {
		return nil, nil
	}
	var services []queueing.PH
	for _, c := range e.classes {
		m := profile(c.work, 0)
		ph, err := queueing.Fit(m.mean, max(m.square/(m.mean*m.mean)-1, 0.01))
		if err != nil {
			return nil, err
		}
		services = append(services, ph)
	}
	return s.solve(e, 0, services, t)
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

// solve computes the queue and puts the results beside what was simulated; services are the
// highest class's first.
func (s *study) solve(e experiment, ratio float64, services []queueing.PH, t theory) ([]responsePoint, error) {
	var order []int // from the lowest priority on
	for i := range slices.Backward(services) {
		order = append(order, i)
	}
	if t.upsideDown {
		slices.Reverse(order)
	}
	q := queueing.Queue{Discipline: queueing.NonPreemptive}
	for _, i := range order {
		q.Arrivals.Rates, q.Services = append(q.Arrivals.Rates, e.classes[i].rate), append(q.Services, services[i])
	}
	answer, err := queueing.Solve(q, queueing.Options{Percentiles: []float64{0.95}})
	if err != nil {
		return nil, err
	}
	var out []responsePoint
	for i := range services {
		m, name := answer.Classes[slices.Index(order, i)].Sojourn, dropping(ratio).name
		out = append(out, responsePoint{
			class: i, ratio: ratio, mean: m.Mean, p95: m.Percentiles[0].At,
			observed: s.of(e.name, name, meanOf(i)), tail: s.of(e.name, name, tailOf(i)),
		})
	}
	return out, nil
}

// off is the mean error of a prediction over the points of a class (of both below 0), in
// percent of what was observed.
func off[P any](points []P, of func(P) (predicted, observed float64, counts bool)) report.Stat {
	var all []float64
	for _, p := range points {
		if x, y, counts := of(p); counts {
			all = append(all, 100*math.Abs(x/y-1))
		}
	}
	s := report.Of(all)
	s.Low, s.High = s.Mean, s.Mean // of points, not of seeds
	return s
}

// targets are V1 and V2: Figs. 4 and 5.
func (v *validation) targets() []report.Target {
	var all []report.Target
	for class, name := range classNames() {
		paper := []float64{7.8, 11.1}[class]
		by := func(model func(jobPoint) float64) report.Stat {
			return off(v.jobs, func(p jobPoint) (float64, float64, bool) { return model(p), p.observed, p.class == class })
		}
		wave, task, share := by(func(p jobPoint) float64 { return p.wave }), by(func(p jobPoint) float64 { return p.task }), by(func(p jobPoint) float64 { return p.share })
		note := fmt.Sprintf("fitted to runs at 0 and 90 %%, judged on others at all ratios; to be below half of what a time in proportion to the kept tasks misses by (%.1f %%); eq. (1), tasks of exponential length, misses by %.1f %%; runs alike differ by %.1f %% on that machine",
			share.Mean, task.Mean, 100*v.noise)
		all = append(all, report.WithOracle(by(func(p jobPoint) float64 { return p.oracle }), report.From(paper, report.AtMost(paper), report.Judge(
			"V1/"+name, "Fig. 4: error of the modelled time of the "+name+" class's jobs on Spark, over the drop ratios", "%", wave, wave.Mean < share.Mean/2, note))))
	}
	by := func(what func(responsePoint) (float64, report.Stat)) report.Stat {
		return off(v.responses, func(p responsePoint) (float64, float64, bool) { x, y := what(p); return x, y.Mean, y.Known })
	}
	mean := by(func(p responsePoint) (float64, report.Stat) { return p.mean, p.observed })
	tail := by(func(p responsePoint) (float64, report.Stat) { return p.p95, p.tail })
	share := by(func(p responsePoint) (float64, report.Stat) { return p.share, p.observed })
	return append(all, report.From(18.7, report.AtMost(18.7), report.Judge("V2", "Fig. 5: error of the modelled mean response times, both classes, over the drop ratios", "%", mean,
		mean.Mean < share.Mean/2, fmt.Sprintf("real job times in the dispatcher's queue at a load of 80 %%; to be below half of what a time in proportion to the kept tasks misses by (%.1f %%); 95th percentiles are off by %.1f %%", share.Mean, tail.Mean))))
}

// crosses are V3.
func crosses(points []responsePoint) (all []report.Target) {
	for i := range points {
		all = append(all, points[i].cross())
	}
	return all
}

// cross is V3: the queue's answer from measured moments within the simulation's bounds.
func (p *responsePoint) cross() report.Target {
	name := classNames()[p.class]
	const slack = 0.02
	low, high := min(p.observed.Low, p.observed.Mean*(1-slack)), max(p.observed.High, p.observed.Mean*(1+slack))
	return report.Judge("V3/"+name, "NP, reference: mean response of the "+name+" class, simulated", "s", p.observed, p.mean >= low && p.mean <= high,
		fmt.Sprintf("%.2f s by the queueing model with the jobs' measured mean and variation: to be within the bounds, or within 2 %%", p.mean))
}

// judge judges V1 and V2 on a new record.
func (r *record) judge(ctx context.Context, seed uint64, seeds, jobs int) ([]report.Target, error) {
	v, err := r.validate(ctx, theory{fit: byWaves}, seed, seeds, jobs)
	if err != nil {
		return nil, err
	}
	return v.targets(), nil
}
