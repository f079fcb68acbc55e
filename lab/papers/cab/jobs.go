package cab

import (
	"math"
	"math/rand/v2"
)

// app is one of the paper's five applications: how its tasks are distributed. The
// paper gives no sizes; inputs are chosen here so that the jobs of a set are
// about as long as each other.
type app struct {
	name string
	// tasks is how many map tasks it has, each how long one takes at full speed, s.
	tasks int
	each  float64
	// spread is the coefficient of variation of the task times, which are lognormal:
	// most are a little shorter than the mean, a few much longer.
	spread float64
	// reduce is the length of its one reduce task at full speed, s.
	reduce float64
	// profile names its measured quality profile.
	profile string
}

// The applications: Pi computes the same in every task, the others read text of which
// no two splits are alike, ratings (Histogram-Movies) least so.
func appPi() app    { return app{"Pi-Estimator", 270, 12, 0.05, 12, "pi"} }
func appTopN() app  { return app{"Top-N", 290, 11, 0.3, 14, "topn"} }
func appMean() app  { return app{"Word-Mean", 290, 11, 0.25, 12, "wordmean"} }
func appCount() app { return app{"Word-Count", 260, 12.5, 0.3, 18, "wordcount"} }
func appHist() app  { return app{"Hist-Movies", 320, 10, 0.35, 12, "histmovies"} }

// qualities are the columns of Table I, in percent of accuracy.
func qualities() []int { return []int{95, 90, 85, 80} }

// set is one workload set of Table I.
type set struct {
	number int
	apps   []app
	// queues has a row for each application: the queue (1 to 3) by quality.
	queues [][]int
}

// sets is Table I.
func sets() []set {
	return []set{
		{1, []app{appPi(), appTopN(), appMean()}, [][]int{{1, 1, 1, 1}, {1, 2, 3, 3}, {3, 3, 3, 3}}},
		{2, []app{appCount(), appTopN(), appHist()}, [][]int{{1, 1, 2, 2}, {1, 1, 3, 3}, {3, 3, 3, 3}}},
		{3, []app{appPi(), appCount(), appTopN()}, [][]int{{1, 1, 1, 1}, {1, 1, 2, 2}, {1, 2, 3, 3}}},
	}
}

// draw is the task times of a job at full speed, in s.
func (a app) draw(rng *rand.Rand) []float64 {
	sigma := math.Sqrt(math.Log(1 + a.spread*a.spread))
	times := make([]float64, a.tasks)
	for i := range times {
		times[i] = a.each * math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2)
	}
	return times
}
