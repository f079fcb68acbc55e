package cab

import (
	"embed"
	"fmt"
	"math"
	"math/rand/v2"

	"headroom/jobs/containers"
	"headroom/jobs/quality"
)

// app is one of the paper's applications. The paper gives no sizes; inputs are chosen here so that the jobs of a set are about
// as long as each other.
type app struct {
	name string
	// tasks is how many map tasks it has, each how long one takes at full speed, s, in the mean of a lognormal distribution with
	// the coefficient of variation spread. reduce is the length of its one reduce task at full speed, s.
	tasks                int
	each, spread, reduce float64
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
func qualities() [4]int { return [4]int{95, 90, 85, 80} }

// set is one workload set of Table I.
type set struct {
	number int
	apps   [3]app
	// queues has a row for each application: the queue (1 to 3) by quality.
	queues [3][4]int
}

// sets is Table I.
func sets() []set {
	return []set{
		{1, [3]app{appPi(), appTopN(), appMean()}, [3][4]int{{1, 1, 1, 1}, {1, 2, 3, 3}, {3, 3, 3, 3}}},
		{2, [3]app{appCount(), appTopN(), appHist()}, [3][4]int{{1, 1, 2, 2}, {1, 1, 3, 3}, {3, 3, 3, 3}}},
		{3, [3]app{appPi(), appCount(), appTopN()}, [3][4]int{{1, 1, 1, 1}, {1, 1, 2, 2}, {1, 2, 3, 3}}},
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

// floors are the quality floors of a set's jobs in a column of Table I.
func (w set) floors(column int, v variant) (floors [3]float64) {
	for i := range floors {
		floors[i] = 1
		if !v.exact {
			floors[i] = containers.QueueFloors()[w.queues[i][column]-1]
		}
	}
	return floors
}

// profiles are the quality profiles of our own programs, as `scheduler profile` measured them; profiles/README.md describes how.
//
//go:embed profiles/*.json
var profiles embed.FS

// profileOf reads the profile of an application.
func profileOf(a app) (quality.Profile, error) {
	data, err := profiles.ReadFile("profiles/" + a.profile + ".json")
	if err != nil {
		return quality.Profile{}, fmt.Errorf("cab: the profile of %s: %w", a.name, err)
	}
	p, _, err := quality.Parse(data)
	return p, err
}

// queueFor is the least sensitive queue whose guarantee keeps an accuracy, in percent, in the worst run of the profile.
func queueFor(p quality.Profile, percent int) int {
	need, ok := p.Fraction(float64(percent) / 100)
	queue := 1
	for i, floor := range containers.QueueFloors() {
		if ok && floor >= need {
			queue = i + 1
		}
	}
	return queue
}

// profiled is Table I with the queues that profiles give.
func profiled(profile func(app) (quality.Profile, error)) ([]set, error) {
	all := sets()
	for i := range all {
		for row, a := range all[i].apps {
			p, err := profile(a)
			if err != nil {
				return nil, err
			}
			for column, q := range qualities() {
				all[i].queues[row][column] = queueFor(p, q)
			}
		}
	}
	return all, nil
}
