package pigeon

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"headroom/lab/traces"
)

// published is the paper's data on one of its traces (Table 4.1 and section 4.4), and of the cluster it runs on. Times are in s.
type published struct {
	name              string
	fanMean, fanMost  float64 // of the numbers of tasks
	least, mean, most float64 // the times of tasks; mean is over the jobs of the mean times of their tasks
	cutoff            float64 // the longest mean time of a short job
	workers           int
	scale             float64 // by what the workers and the numbers of tasks are smaller here
	load              float64
	pigeon, eagle     float64 // the parts of the workers that each reserves for short jobs

	// The paper does not give these; they are as in the parts of the traces that are public, where there are any: fanLong is
	// by what the mean number of tasks of a long job is above that of a short one, shortSpread and longSpread are the deviations
	// of the logarithms of these numbers.
	fanLong, shortSpread, longSpread float64
}

// allPublished are the three traces of the paper. The paper names 3K workers for Yahoo at about 95 % and 12K for Cloudera at about 93 %; of
// Google only the range of its figure, 3K to 80K, is known. No part of Cloudera's trace is public.
func allPublished() []published {
	return []published{
		{"yahoo", 39.91, 5900, 1.54e-5, 118.78, 21259.9, 90.5811, 3000, 1, 0.95, 0.02, 0.02, 9, 0.9, 2},
		{"cloudera", 272.93, 51834, 3.89e-5, 162.19, 97941.8, 272.783, 12_000, 5, 0.93, 0.07, 0.09, 5, 1.5, 2},
		{"google", 35.32, 49960, 1e-6, 661.74, 774922, 1129.532, 30_000, 10, 0.95, 0.09, 0.17, 2.4, 2, 2},
	}
}

func (p published) size() int { return int(math.Round(float64(p.workers) / p.scale)) }

const (
	longPart   = 0.1  // of the jobs are long, as in the sample of section 4.5, "in line with the statistics of the original trace"
	shortTime  = 0.15 // is what short jobs add to the mean of all jobs' mean times
	timeSpread = 1.0  // the deviation of the logarithm of jobs' mean times within a class
	taskSpread = 0.35 // that of the times of a job's tasks: in the public parts they vary by 13 to 36 %
)

// laws are what a class of jobs is drawn from: numbers of tasks, and mean times.
type laws struct{ fan, time lognormal }

// laws are those of short and of long jobs. All are log-normal and cut at the ends that are published, with the means that are
// left by what is published for both classes together.
func (p published) laws() (short, long laws) {
	fan := p.fanMean / p.scale / (1 - longPart + longPart*p.fanLong)
	most := p.fanMost / p.scale
	return laws{truncated(max(fan, 1), 0.5, most+0.5, p.shortSpread), truncated(p.mean*shortTime/(1-longPart), p.least, p.cutoff, timeSpread)},
		laws{truncated(fan*p.fanLong, 0.5, most+0.5, p.longSpread), truncated(p.mean*(1-shortTime)/longPart, p.cutoff, p.most, timeSpread)}
}

// generate draws jobs with the moments of a trace, until they have so many tasks. Arrivals are Poisson, at a pace that offers the
// cluster its load exactly: the work that was drawn over the time it arrives in.
func (p published) generate(seed uint64, tasks int) []traces.Job {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b9))
	short, long := p.laws()
	var jobs []traces.Job
	for left := tasks; left > 0; {
		law := short
		if r.Float64() < longPart {
			law = long
		}
		mean := law.time.draw(r)
		times := make([]float64, min(left, max(1, int(math.Round(law.fan.draw(r))))))
		sum := 0.0
		for i := range times {
			times[i] = min(max(mean*math.Exp(taskSpread*r.NormFloat64()-taskSpread*taskSpread/2), p.least), p.most)
			sum += times[i]
		}
		left -= len(times)
		jobs = append(jobs, traces.Job{Mean: sum / float64(len(times)), Times: times})
	}
	arrive(r, jobs, p.load*float64(p.size()), 0)
	return jobs
}

// arrive sets Poisson arrivals at which the jobs keep so many workers busy in the mean, if a task holds its worker for some time
// more than it takes.
func arrive(r *rand.Rand, jobs []traces.Job, busy, more float64) {
	now, work := 0.0, 0.0
	for i := range jobs {
		now += r.ExpFloat64()
		jobs[i].Arrival = now
		work += jobs[i].Work() + more*float64(len(jobs[i].Times))
	}
	for i := range jobs {
		jobs[i].Arrival *= work / busy / now
	}
}

// held is how long messages hold a worker beside its task, s: the one that starts it, and the one that reports that it has ended.
const held = 2 * hop

// equal draws jobs of one class as in section 4.3: all with the same number of tasks, times exponential, arrivals Poisson.
func equal(seed uint64, count, fanout int, mean, busy float64) []traces.Job {
	r := rand.New(rand.NewPCG(seed, 0x85ebca6b))
	jobs := make([]traces.Job, count)
	times := make([]float64, count*fanout)
	for i := range times {
		times[i] = mean * r.ExpFloat64()
	}
	for i := range jobs {
		jobs[i] = traces.Job{Mean: mean, Times: times[i*fanout : (i+1)*fanout]}
	}
	arrive(r, jobs, busy, held)
	return jobs
}

type lognormal struct{ mu, spread, least, most float64 }

func truncated(mean, least, most, spread float64) lognormal {
	const steps = 60 // halves a span of 40 to 1e-16
	low, high := math.Log(mean)-20, math.Log(mean)+20
	for range steps {
		if mid := (low + high) / 2; (lognormal{mid, spread, least, most}).mean() < mean {
			low = mid
		} else {
			high = mid
		}
	}
	return lognormal{(low + high) / 2, spread, least, most}
}

func (l lognormal) mean() float64 {
	within := func(shift float64) float64 {
		n := distuv.Normal{Mu: l.mu + shift, Sigma: l.spread}
		return n.CDF(math.Log(l.most)) - n.CDF(math.Log(l.least))
	}
	of := within(0)
	if of < 1e-12 { // all of it lies beyond an end
		if l.mu < math.Log(l.least) {
			return l.least
		}
		return l.most
	}
	return math.Exp(l.mu+l.spread*l.spread/2) * within(l.spread*l.spread) / of
}

func (l lognormal) draw(r *rand.Rand) float64 {
	for {
		if x := math.Exp(l.mu + l.spread*r.NormFloat64()); x >= l.least && x <= l.most {
			return x
		}
	}
}
