package dias

import (
	"context"
	_ "embed" // the recorded runs
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"headroom/jobs/deflation"
	"headroom/jobs/queueing"
	"headroom/lab/report"
)

// The model predicts what was observed, as in section 4.3. Jobs are real ones: the record of runs on Spark has some with all
// tasks and with a tenth of them, which the model is fitted to (the paper's profiling), and others at all ratios, whose times it
// predicts (Fig. 4). From these and the rates follow the response times of both classes (Fig. 5): the queue is the dispatcher in
// virtual time, and each of its jobs takes as long as a real one did.

// recordedJSON has single jobs on an idle Spark, made by the command that commit e0402198 still has.
//
//go:embed data/spark.json
var recordedJSON []byte

// record is a file of real runs; those of one class, in seconds, are judged or calibrate the model.
type record struct {
	Slots      int           `json:"slots"`
	Partitions int           `json:"partitions"`
	Reduces    int           `json:"reduces"`
	Runs       []recordedRun `json:"runs"`
}

// recordedRun is one job of its own. Job is from the start of the driver to its end; Setup to the first map task's begin, Maps
// from there to the last one's end, Reduce from the first reduce task's begin to the last one's end.
type recordedRun struct {
	Class   string  `json:"class"`
	Use     string  `json:"use"`
	Percent int     `json:"drop_percent"`
	Kept    int     `json:"map_tasks"`
	Job     float64 `json:"job_s"`
	Setup   float64 `json:"setup_s"`
	Maps    float64 `json:"maps_s"`
	Reduce  float64 `json:"reduce_s"`
}

// The uses of a run.
const calibrate, judged = "calibrate", "judge"

// recorded is the record that the repository keeps.
func recorded() (*record, error) {
	var out record
	return &out, json.Unmarshal(recordedJSON, &out)
}

// of are the runs of a class for one use.
func (r *record) of(class, use string) []recordedRun {
	return slices.DeleteFunc(slices.Clone(r.Runs), func(x recordedRun) bool { return x.Class != class || x.Use != use })
}

// at are the times of the jobs of a class for one use, at a drop ratio in percent.
func (r *record) at(class, use string, percent float64) (times []float64) {
	for _, x := range r.of(class, use) {
		if x.Percent == int(percent) {
			times = append(times, x.Job)
		}
	}
	return times
}

func classNames() []string { return []string{"high", "low"} }

// share is a job whose time is in proportion to the kept tasks: every task a wave, and nothing else.
func share(w deflation.WaveJob) deflation.WaveJob {
	mean, _ := w.Moments(0)
	n := w.Tasks[0]
	return deflation.WaveJob{Slots: 1, Tasks: []int{n}, Depth: 1, Wave: mean / float64(n), CV: w.CV}
}

// theory is what the models are: production's, or of a job in proportion to the kept tasks, or of a queue that serves the lowest
// class first.
type theory struct{ inProportion, upsideDown bool }

// fitted are the models of both classes' jobs, the highest first.
func (t theory) fitted(r *record) (models [2]deflation.Jobs) {
	for class, name := range classNames() {
		var runs []deflation.Finished
		for _, x := range r.of(name, calibrate) {
			runs = append(runs, deflation.Finished{
				Theta: float64(x.Percent) / 100, Tasks: r.Partitions, Kept: x.Kept, Slots: r.Slots, Reduces: r.Reduces,
				Setup: x.Setup, Maps: x.Maps, Shuffle: x.Job - x.Setup - x.Maps - x.Reduce, Reduce: x.Reduce,
			})
		}
		w, _ := deflation.Learn(runs)
		if t.inProportion {
			w = share(w)
		}
		models[class] = w.Jobs(1)
	}
	return models
}

// queue is the mean response time of both classes by the queueing model, whose services are given.
func (t theory) queue(classes []class, services []queueing.PH) (means [2]float64, err error) {
	order := []int{low, high} // from the lowest priority on
	if t.upsideDown {
		slices.Reverse(order)
	}
	q := queueing.Queue{Discipline: queueing.NonPreemptive}
	for _, i := range order {
		q.Arrivals.Rates, q.Services = append(q.Arrivals.Rates, classes[i].rate), append(q.Services, services[i])
	}
	answer, err := queueing.Solve(q, queueing.Options{})
	if err != nil {
		return means, fmt.Errorf("the model of the queue: %w", err)
	}
	for i, class := range order {
		means[class] = answer.Classes[i].Sojourn.Mean
	}
	return means, nil
}

// predict are the times of jobs of both classes at the ratios, and their response times.
func (t theory) predict(r *record, classes []class) (jobs, responses [2][]float64, err error) {
	models := t.fitted(r)
	var whole queueing.PH // of a high job: only low ones drop
	for _, ratio := range ratios() {
		var services [2]queueing.PH
		for class, m := range models {
			services[class], err = m.Time(ratio / 100)
			if err != nil {
				return jobs, responses, err
			}
			jobs[class] = append(jobs[class], services[class].Mean())
		}
		if ratio == 0 {
			whole = services[high]
		}
		means, err := t.queue(classes, []queueing.PH{whole, services[low]})
		if err != nil {
			return jobs, responses, err
		}
		for class := range means {
			responses[class] = append(responses[class], means[class])
		}
	}
	return jobs, responses, nil
}

// replayed are jobs that take as long as recorded ones did, drawn by chance.
type replayed struct {
	of    *record
	class string
}

func (w replayed) job(theta float64, rng *rand.Rand) course {
	times := w.of.at(w.class, judged, math.Round(100*theta))
	return course{maps: times[rng.IntN(len(times))], tasks: 1, kept: 1}
}

// experiment is the reference set-up with recorded jobs: one high job to nine low ones, at a
// load of 80 % by the runs that the model is fitted to.
func (r *record) experiment() experiment {
	e := experiment{name: "recorded"}
	rates := [2]float64{0.1, 0.9}
	load := 0.0
	for i, name := range classNames() {
		e.classes = append(e.classes, class{name: name, work: replayed{r, name}})
		times, sum := r.at(name, calibrate, 0), 0.0
		for _, t := range times {
			sum += t
		}
		load += rates[i] * sum / float64(len(times))
	}
	for i := range e.classes {
		e.classes[i].rate = rates[i] * usualLoad / load
	}
	for _, ratio := range ratios() {
		e.policies = append(e.policies, da(0, ratio))
	}
	return e
}

// off is the mean error of predictions, in percent of what was observed: over points, not seeds.
func off(predicted, observed []float64) float64 {
	sum := 0.0
	for i, x := range predicted {
		sum += 100 * math.Abs(x/observed[i]-1)
	}
	return sum / float64(len(predicted))
}

// validate are V1 and V2, Figs. 4 and 5: the model fitted to one part of the runs and judged on the others. The queue of recorded
// jobs runs on as many seeds as the study, and no longer.
func (t theory) validate(ctx context.Context, seed uint64, seeds, jobs int) (all []report.Target, err error) {
	r, err := recorded()
	if err != nil {
		return nil, err
	}
	e := r.experiment()
	s, err := run(ctx, []experiment{e}, seed, seeds, jobs, io.Discard)
	if err != nil {
		return nil, err
	}
	times, responses, err := t.predict(r, e.classes)
	if err != nil {
		return nil, err
	}
	shareTimes, shareResponses, err := theory{inProportion: true}.predict(r, e.classes)
	if err != nil {
		return nil, err
	}
	for class, name := range classNames() {
		paper := []float64{7.8, 11.1}[class]
		var observed []float64
		for _, ratio := range ratios() {
			observed = append(observed, report.Of(r.at(name, judged, ratio)).Mean)
		}
		wave, share := off(times[class], observed), off(shareTimes[class], observed)
		all = append(all, report.From(paper, report.AtMost(paper), report.Judge(
			"V1/"+name, "Fig. 4: error of the modelled time of the "+name+" class's jobs on Spark, over the drop ratios", "%", report.Once(wave), wave < share/2, fmt.Sprintf(
				"fitted to runs at 0 and 90 %%, judged on others at all ratios; to be below half of what a time in proportion to the kept tasks misses by (%.1f %%)", share))))
	}
	var observed, predicted, shares []float64
	for i, p := range e.policies {
		for class := range classNames() {
			observed = append(observed, s.of(e.name, p.name, meanOf(class)).Mean)
			predicted, shares = append(predicted, responses[class][i]), append(shares, shareResponses[class][i])
		}
	}
	mean, share := off(predicted, observed), off(shares, observed)
	return append(all, report.From(18.7, report.AtMost(18.7), report.Judge("V2", "Fig. 5: error of the modelled mean response times, both classes, over the drop ratios", "%",
		report.Once(mean), mean < share/2, fmt.Sprintf("real job times in the dispatcher's queue at a load of 80 %%; to be below half of what a time in proportion to the kept tasks misses by (%.1f %%)", share)))), nil
}

// cross are V3, of NP in the reference: the queue's answer from the first two moments of the jobs that ran, within the
// simulation's bounds.
func (t theory) cross(s *study) (all []report.Target, err error) {
	const slack = 0.02
	at := s.index(reference)
	if at < 0 {
		return nil, nil
	}
	classes := s.experiments[at].classes
	services := make([]queueing.PH, len(classes))
	for i, c := range classes {
		m := profile(c.work, 0)
		if services[i], err = queueing.Fit(m.mean, max(m.square/(m.mean*m.mean)-1, 0.01)); err != nil {
			return nil, err
		}
	}
	means, err := t.queue(classes, services)
	for class, name := range classNames() {
		got, by := s.of(reference, "NP", meanOf(class)), means[class]
		within := by >= min(got.Low, got.Mean*(1-slack)) && by <= max(got.High, got.Mean*(1+slack))
		all = append(all, report.Judge("V3/"+name, "NP, reference: mean response of the "+name+" class, simulated", "s", got, within,
			fmt.Sprintf("%.2f s by the queueing model with the jobs' measured mean and variation: to be within the bounds, or within 2 %%", by)))
	}
	return all, err
}
