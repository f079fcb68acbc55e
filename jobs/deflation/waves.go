package deflation

import (
	"math"
	"slices"

	"headroom/jobs/queueing"
	"headroom/units"
)

// WaveJob is how long the jobs of a class take when their map tasks run in waves (DIAS,
// section 4.2): a whole wave for any tasks left over, however few they are.
//
//	T(theta) = Setup + SetupSlope theta + First + Wave ceil(kept/Slots) + Shuffle + ReduceWave ceil(Reduces/Slots)
//
// It is the one model of a job's time for the scheduler and for the studies, and has
// parameters only that finished runs tell ([Learn]).
type WaveJob struct {
	// Slots is how many tasks run at once, at least 1.
	Slots int
	// Tasks are the numbers of map tasks that jobs have with nothing dropped, each as likely
	// as the others.
	Tasks []int
	// Depth states how far a drop ratio goes: (1-theta)^Depth of the map tasks run. It is 1 for
	// one stage, and more where each of several stages drops from what the one before left.
	Depth float64
	// Reduces is how many reduce tasks there are; none of them is dropped.
	Reduces int
	// Setup is the time before the first map task, SetupSlope what a drop ratio of 1 adds to
	// it: less than 0 where less input is quicker to prepare. In seconds, as all that follow.
	Setup, SetupSlope float64
	// Wave and ReduceWave are the lengths of a wave, First what the first wave of map tasks takes
	// beyond that (executors warm up), Shuffle all else after the map tasks.
	First, Wave, Shuffle, ReduceWave float64
	// CV is the coefficient of variation of jobs around these times.
	CV float64
}

// Kept returns how many of n map tasks run at a drop ratio.
func (w WaveJob) Kept(n int, theta float64) int {
	if theta <= 0 {
		return n
	}
	return units.Ratio(math.Pow(1-theta, w.Depth)).Kept(n)
}

// Waves returns how many waves of map tasks a job of n of them runs at a drop ratio.
func (w WaveJob) Waves(n int, theta float64) int { return waves(w.Kept(n, theta), w.Slots) }

func waves(tasks, slots int) int { return (tasks + max(slots, 1) - 1) / max(slots, 1) }

// of returns the mean time of jobs of n map tasks at a drop ratio.
func (w WaveJob) of(n int, theta float64) float64 {
	return max(0, w.Setup+w.SetupSlope*theta) + w.First + w.Wave*float64(w.Waves(n, theta)) + w.Shuffle + w.ReduceWave*float64(waves(w.Reduces, w.Slots))
}

// Moments returns the mean time of a job at a drop ratio, in seconds, and its coefficient of
// variation: jobs differ in their numbers of tasks, and around these times.
func (w WaveJob) Moments(theta float64) (mean, cv float64) {
	square := 0.0
	for _, n := range w.Tasks {
		x := w.of(n, theta)
		mean, square = mean+x, square+x*x*(1+w.CV*w.CV)
	}
	n := float64(len(w.Tasks))
	mean, square = mean/n, square/n
	return mean, math.Sqrt(max(0, square/(mean*mean)-1))
}

// Jobs returns the model as [Class] takes it, for drop ratios up to most. Where setup does not
// depend on the ratio, only ratios that drop a wave are tried: tasks dropped beyond cost
// accuracy and save nothing.
func (w WaveJob) Jobs(most float64) Jobs {
	return Jobs{Ratios: w.ratios(most), Time: func(theta float64) (queueing.PH, error) {
		return fit(moments(w.Moments(theta)))
	}}
}

// ratios returns the drop ratios up to most that make a difference, at most ratiosMost.
func (w WaveJob) ratios(most float64) []float64 {
	n := w.usual()
	whole, all := []float64{0}, []float64{0}
	for left := n - 1; left >= 1; left-- {
		theta := w.dropping(n, left)
		if theta > most+1e-9 {
			break
		}
		all = append(all, theta)
		if left%max(w.Slots, 1) == 0 {
			whole = append(whole, theta)
		}
	}
	if len(whole) > ratiosMost || w.SetupSlope == 0 {
		return thinnedRatios(whole, ratiosMost)
	}
	return sorted(append(whole, thinnedRatios(all, ratiosMost-len(whole))...))
}

// dropping returns the least drop ratio that leaves no more than left of n tasks.
func (w WaveJob) dropping(n, left int) float64 {
	if w.Depth == 1 {
		return float64(n-left) / float64(n) // as people write it
	}
	return 1 - math.Pow(float64(left)/float64(n), 1/w.Depth)
}

// usual returns the median of the numbers of tasks.
func (w WaveJob) usual() int {
	return slices.Sorted(slices.Values(w.Tasks))[len(w.Tasks)/2]
}

// thinnedRatios returns at most so many of all, evenly spread, the first one among them.
func thinnedRatios(all []float64, most int) []float64 {
	if len(all) <= most {
		return slices.Clone(all)
	}
	var out []float64
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}

// Finished is what a finished run tells of its class's jobs. Times are in seconds, as they
// would have been without a sprint.
type Finished struct {
	// Theta is the drop ratio that it ran with, Tasks how many map tasks it had, Kept how
	// many of them ran, Slots how many at most at once, Reduces its reduce tasks.
	Theta                       float64
	Tasks, Kept, Slots, Reduces int
	// Setup is from its dispatch to its first map task, Maps to the end of the last one,
	// Reduce the time of its reduce tasks, and Shuffle all else after the maps.
	Setup, Maps, Shuffle, Reduce float64
}

// seconds returns the time of the whole run.
func (f *Finished) seconds() float64 { return f.Setup + f.Maps + f.Shuffle + f.Reduce }

// whole reports whether a run can be learned from.
func (f *Finished) whole() bool {
	return f.Kept >= 1 && f.Tasks >= f.Kept && f.Slots >= 1 && f.Theta >= 0 && f.Theta < 1 && f.Setup >= 0 && f.Maps > 0 && f.Shuffle >= 0 && f.Reduce >= 0
}

// Learn returns the model of the jobs that these runs were of. It needs no more than runs at
// one drop ratio: until others tell how setup, waves and kept tasks depend on it, setup
// counts as the same for all, all waves as alike, and tasks as dropped once. It is false
// without any run.
func Learn(runs []Finished) (w WaveJob, known bool) {
	runs = slices.DeleteFunc(slices.Clone(runs), func(f Finished) bool { return !f.whole() })
	if len(runs) == 0 {
		return w, false
	}
	var reduces, reduceWaves, deep, drop float64
	var maps, setup points
	for i := range runs {
		f := &runs[i]
		w.Slots, w.Reduces = max(w.Slots, f.Slots), max(w.Reduces, f.Reduces)
		w.Tasks = append(w.Tasks, f.Tasks)
		w.Shuffle += f.Shuffle / float64(len(runs))
		maps = append(maps, [2]float64{float64(waves(f.Kept, f.Slots)), f.Maps})
		setup = append(setup, [2]float64{f.Theta, f.Setup})
		reduces, reduceWaves = reduces+f.Reduce, reduceWaves+float64(waves(f.Reduces, f.Slots))
		if f.Theta > 0 {
			deep, drop = deep+math.Log(float64(f.Kept)/float64(f.Tasks)), drop+math.Log(1-f.Theta)
		}
	}
	w.Depth = depth(deep, drop)
	if w.First, w.Wave = maps.line(); w.First <= 0 || w.Wave <= 0 || !maps.sure(w.First, w.Wave) {
		w.First, w.Wave = 0, maps.through()
	}
	if reduceWaves > 0 {
		w.ReduceWave = reduces / reduceWaves
	} else {
		w.Shuffle += reduces / float64(len(runs))
	}
	if w.Setup, w.SetupSlope = setup.line(); !setup.sloped(w.SetupSlope) {
		w.Setup, w.SetupSlope = setup.middle()[1], 0
	}
	w.CV = w.spread(runs)
	return w, true
}

// depthMost bounds a depth: of so many stages that drop from one another nothing is left.
const depthMost = 20

// depth returns the power of 1-theta that is kept, by the sums of logarithms of what was kept
// and of what the ratios alone would have kept. Rounding up to whole tasks makes it less
// than 1 for small jobs; it counts as 1 then, as the model rounds by itself.
func depth(kept, ratios float64) float64 {
	if ratios == 0 {
		return 1
	}
	return min(max(kept/ratios, 1), depthMost)
}

// Remember adds a run to those remembered and returns at most so many: where there are more,
// the oldest of the drop ratio with the most runs is forgotten. So a class that has run at
// one ratio for long still knows what it saw at others, which [Learn] needs.
func Remember[T any](runs []T, run T, most int, theta func(*T) float64) []T {
	runs = append(runs, run)
	if len(runs) <= most {
		return runs
	}
	count := map[float64]int{}
	for i := range runs {
		count[theta(&runs[i])]++
	}
	at := 0
	for i := range runs {
		if count[theta(&runs[i])] > count[theta(&runs[at])] {
			at = i
		}
	}
	return slices.Delete(runs, at, at+1)
}

// points are pairs of numbers that a line may go through.
type points [][2]float64

// middle returns the means of both.
func (p points) middle() (m [2]float64) {
	for _, at := range p {
		m[0], m[1] = m[0]+at[0]/float64(len(p)), m[1]+at[1]/float64(len(p))
	}
	return m
}

// sums returns those of the squares and of the product of what both differ from their means.
func (p points) sums() (xx, xy, yy float64) {
	m := p.middle()
	for _, at := range p {
		dx, dy := at[0]-m[0], at[1]-m[1]
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	return xx, xy, yy
}

// line returns the one of least squares, level where all have the same first number.
func (p points) line() (at0, slope float64) {
	xx, xy, _ := p.sums()
	if xx > spreadLeast*float64(len(p)) {
		slope = xy / xx
	}
	m := p.middle()
	return m[1] - slope*m[0], slope
}

// through returns the slope of the line through 0 and the means.
func (p points) through() float64 { m := p.middle(); return m[1] / m[0] }

const (
	// spreadLeast is the least variance of the first numbers that says anything of a slope.
	spreadLeast = 1e-6
	// surely is by how many of its standard errors a number must differ from 0 to count: noise
	// would be carried on to ratios that were never tried.
	surely = 2
)

// sloped reports whether the slope of the line differs from 0 by more than chance.
func (p points) sloped(slope float64) bool { return math.Abs(slope) > surely*p.deviation(slope, 0) }

// sure reports whether the line misses 0 by more than chance.
func (p points) sure(at0, slope float64) bool {
	return math.Abs(at0) > surely*p.deviation(slope, p.middle()[0])
}

// deviation returns the standard error of the line's height so far from the middle, or for 0 of
// its slope; infinite where too few points tell.
func (p points) deviation(slope, from float64) float64 {
	n := float64(len(p))
	xx, xy, yy := p.sums()
	if n < 3 || xx <= spreadLeast*n {
		return math.Inf(1)
	}
	around := max(0, yy-slope*xy) / (n - 2)
	if from == 0 {
		return math.Sqrt(around / xx)
	}
	return math.Sqrt(around * (1/n + from*from/xx))
}

// spread returns the coefficient of variation of the runs around the model.
func (w WaveJob) spread(runs []Finished) float64 {
	sum := 0.0
	for i := range runs {
		off := runs[i].seconds()/w.of(runs[i].Tasks, runs[i].Theta) - 1
		sum += off * off
	}
	return math.Sqrt(sum / float64(len(runs)))
}

// TimerRun is what a run under a sprint timer tells of sprints: its seconds at plain speed and
// those that were sprinted. Both ends of a sprint are known, so one that ended early counts.
type TimerRun struct{ Plain, Sprinted float64 }

// speedRuns is how many runs with and without a timer tell how much faster a sprint is.
const speedRuns = 5

// LearnSpeed returns how many times as fast a sprint makes a job: what all runs under a timer
// would have taken in the mean is what runs without one do take. So also those belong to
// timed that ended before their timer, and those that the budget refused: without them
// only long jobs would be compared. It is false while too little was seen.
func LearnSpeed(plain []float64, timed []TimerRun) (up float64, known bool) {
	if len(plain) < speedRuns || len(timed) < speedRuns {
		return 0, false
	}
	var whole, slow, fast float64
	for _, s := range plain {
		whole += s / float64(len(plain))
	}
	for _, t := range timed {
		slow, fast = slow+t.Plain/float64(len(timed)), fast+t.Sprinted/float64(len(timed))
	}
	if fast <= 0 {
		return 0, false
	}
	up = (whole - slow) / fast
	return up, up > 1 && up <= 100
}
