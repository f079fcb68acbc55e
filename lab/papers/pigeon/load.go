package pigeon

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"headroom/lab/traces"
)

// published is what the paper says of one of its traces (Table 4.1 and section 4.4), and of the cluster it runs on. Times in s.
type published struct {
	name string
	// fanMean and fanMost are of the numbers of tasks, least, mean and most of the times of tasks.
	fanMean, fanMost  float64
	least, mean, most float64
	// cutoff is the longest mean time of a short job.
	cutoff float64
	// workers is the size of the cluster, and scale by what it and the numbers of tasks are smaller here.
	workers int
	scale   float64
	// pigeon and eagle are the parts of the workers that each reserves for short jobs.
	pigeon, eagle float64
}

// The three traces of the paper. They are not public as a whole: jobs are generated with these moments. The paper names 3K workers
// for Yahoo and 12K for Cloudera; of Google only the range of its figure, 3K to 80K, is known.
func yahoo() published {
	return published{
		name: "yahoo", fanMean: 39.91, fanMost: 5900, least: 1.54e-5, mean: 118.78, most: 21259.9, cutoff: 90.5811,
		workers: 3000, scale: 1, pigeon: 0.02, eagle: 0.02,
	}
}

func cloudera() published {
	return published{
		name: "cloudera", fanMean: 272.93, fanMost: 51834, least: 3.89e-5, mean: 162.19, most: 97941.8, cutoff: 272.783,
		workers: 12_000, scale: 6, pigeon: 0.07, eagle: 0.09,
	}
}

func google() published {
	return published{
		name: "google", fanMean: 35.32, fanMost: 49960, least: 1e-6, mean: 661.74, most: 774922, cutoff: 1129.532,
		workers: 40_000, scale: 10, pigeon: 0.09, eagle: 0.17,
	}
}

func allPublished() []published { return []published{yahoo(), cloudera(), google()} }

// size is the number of workers here.
func (p published) size() int { return int(float64(p.workers) / p.scale) }

const (
	// longPart of the jobs are long: 10 % of the sample of section 4.5, "in line with the statistics of the original trace".
	longPart = 0.1
	// shortWork is the part of all work that is of short jobs: "less than 20 %", and 12 % in that sample.
	shortWork = 0.15
	// spread is the deviation of the logarithm of jobs' mean times within a class. The paper does not give it.
	spread = 1.0
)

// generate draws jobs with the moments of a trace, until they have so many tasks. Numbers of tasks are Pareto between 1 and the
// most, with the mean that is published. A job is long with probability longPart. Mean times of jobs are log-normal, those of
// short jobs up to the cutoff and those of long ones above it, with means that give short jobs their part of the work; times of
// tasks are exponential about the mean of their job, between the least and the most. Arrivals are Poisson, at a pace that offers
// the cluster the load: the work that was drawn over the time it arrives in.
func (p published) generate(seed uint64, tasks int, load float64) []traces.Job {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b9))
	fan := boundedPareto(p.fanMost/p.scale, max(p.fanMean/p.scale, 1))
	short := truncated(p.mean*shortWork/(1-longPart), p.least, p.cutoff)
	long := truncated(p.mean*(1-shortWork)/longPart, p.cutoff, p.most)
	var jobs []traces.Job
	for left := tasks; left > 0; {
		law := short
		if r.Float64() < longPart {
			law = long
		}
		mean := law.draw(r)
		times := make([]float64, min(left, fan.draw(r)))
		sum := 0.0
		for i := range times {
			times[i] = min(max(mean*r.ExpFloat64(), p.least), p.most)
			sum += times[i]
		}
		left -= len(times)
		jobs = append(jobs, traces.Job{Mean: sum / float64(len(times)), Times: times})
	}
	arrive(r, jobs, load*float64(p.size()))
	return jobs
}

// arrive sets Poisson arrivals at which the jobs keep so many workers busy in the mean.
func arrive(r *rand.Rand, jobs []traces.Job, busy float64) {
	now, work := 0.0, 0.0
	for i := range jobs {
		now += r.ExpFloat64()
		jobs[i].Arrival = now
		work += jobs[i].Work()
	}
	for i := range jobs {
		jobs[i].Arrival *= work / busy / now
	}
}

// equal draws jobs of one class as in section 4.3: all with the same number of tasks, times exponential, arrivals Poisson.
func equal(seed uint64, count, fanout int, mean, busy float64) []traces.Job {
	r := rand.New(rand.NewPCG(seed, 0x85ebca6b))
	jobs := make([]traces.Job, count)
	times := make([]float64, count*fanout)
	for i := range times {
		times[i] = mean * r.ExpFloat64()
	}
	now := 0.0
	for i := range jobs {
		now += r.ExpFloat64() * float64(fanout) * mean / busy
		jobs[i] = traces.Job{Arrival: now, Mean: mean, Times: times[i*fanout : (i+1)*fanout]}
	}
	return jobs
}

// bisect finds where a rising function is 0, from low to high.
func bisect(low, high float64, f func(float64) float64) float64 {
	const steps = 60 // halves a span of 40 to 1e-16
	for range steps {
		if mid := (low + high) / 2; f(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// pareto is a Pareto law of whole numbers from 1 to most, with tail shape: the integer part of the continuous law from 1 to most+1.
type pareto struct{ most, shape float64 }

// boundedPareto has a mean.
func boundedPareto(most, mean float64) pareto {
	shape := -bisect(-8, -1e-3, func(minus float64) float64 { return pareto{most, -minus}.mean() - mean })
	return pareto{most, shape}
}

// mean is the mean of the integer part: the sum of the tails.
func (p pareto) mean() float64 {
	sum := 0.0
	for k := 1.0; k <= p.most; k++ {
		sum += p.tail(k)
	}
	return sum
}

// tail is the probability of k or more, k from 1.
func (p pareto) tail(k float64) float64 {
	end := math.Pow(p.most+1, -p.shape)
	return (math.Pow(k, -p.shape) - end) / (1 - end)
}

func (p pareto) draw(r *rand.Rand) int {
	end := math.Pow(p.most+1, -p.shape)
	return max(1, int(min(math.Pow(r.Float64()*(1-end)+end, -1/p.shape), p.most)))
}

// lognormal is a log-normal law cut at both ends.
type lognormal struct{ mu, least, most float64 }

// truncated has a mean between its ends.
func truncated(mean, least, most float64) lognormal {
	return lognormal{bisect(math.Log(mean)-20, math.Log(mean)+20, func(mu float64) float64 { return lognormal{mu, least, most}.mean() - mean }), least, most}
}

func (l lognormal) mean() float64 {
	within := func(shift float64) float64 {
		n := distuv.Normal{Mu: l.mu + shift, Sigma: spread}
		return n.CDF(math.Log(l.most)) - n.CDF(math.Log(l.least))
	}
	of := within(0)
	if of < math.SmallestNonzeroFloat64*1e20 { // all of it lies beyond an end
		if l.mu < math.Log(l.least) {
			return l.least
		}
		return l.most
	}
	return math.Exp(l.mu+spread*spread/2) * within(spread*spread) / of
}

func (l lognormal) draw(r *rand.Rand) float64 {
	for {
		if x := math.Exp(l.mu + spread*r.NormFloat64()); x >= l.least && x <= l.most {
			return x
		}
	}
}
