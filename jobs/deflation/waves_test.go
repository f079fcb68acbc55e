// Claims: a job's time falls by whole waves; the model has the numbers of DIAS's section 4.2
// (package queueing) for the same job; what it is fitted to is found again, and what runs do
// not tell is not made up; the choice goes by waves; a sprint's speed is found from runs with
// and without one.
package deflation_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/deflation"
	"headroom/jobs/queueing"
	"headroom/units"
)

// text is a job of DIAS's size: 50 map tasks on 20 slots.
func text() deflation.WaveJob {
	return deflation.WaveJob{Slots: 20, Tasks: []int{50}, Depth: 1, Reduces: 10, Setup: 40, SetupSlope: -30, Wave: 21.4, Shuffle: 4, ReduceWave: 12.8, CV: 0.1}
}

// ran is a finished run of the job at a drop ratio, in which all takes part times as long.
func ran(w deflation.WaveJob, theta, part float64) deflation.Finished {
	n := w.Tasks[0]
	return deflation.Finished{
		Theta: theta, Tasks: n, Kept: w.Kept(n, theta), Slots: w.Slots, Reduces: w.Reduces, Setup: part * (w.Setup + w.SetupSlope*theta),
		Maps: part * (w.First + w.Wave*float64(w.Waves(n, theta))), Shuffle: part * w.Shuffle, Reduce: part * w.ReduceWave,
	}
}

// Waves of the paper's job (section 5.1): 3, 3, 2, 2, 1 at 0, 10, 20, 40 and 90 %.
func TestWaveJobSteps(t *testing.T) {
	t.Parallel()
	w := text()
	for theta, want := range map[float64]int{0: 3, 0.1: 3, 0.2: 2, 0.4: 2, 0.9: 1} {
		if got := w.Waves(50, theta); got != want {
			t.Errorf("%v: %d waves, want %d", theta, got, want)
		}
		mean, cv := w.Moments(theta)
		if takes := 40 - 30*theta + 21.4*float64(want) + 16.8; math.Abs(mean-takes) > 1e-9 || math.Abs(cv-0.1) > 1e-9 {
			t.Errorf("%v: %v s, cv %v; want %v s, 0.1", theta, mean, cv, takes)
		}
	}
	w.Tasks = []int{10, 50} // one wave, and three
	if mean, cv := w.Moments(0); math.Abs(mean-(40+2*21.4+16.8)) > 1e-9 || cv < 0.2 {
		t.Errorf("jobs of 10 and of 50 tasks take %v s, cv %v", mean, cv)
	}
}

// The mean is that of the wave-level matrix of section 4.2 for the same stages.
func TestWaveJobIsThePapers(t *testing.T) {
	t.Parallel()
	w := text()
	w.SetupSlope = 0
	ph := func(mean float64) queueing.PH { return testkit.Need(queueing.Erlang(4, 4/mean))(t) }
	matrix := queueing.WaveModel{
		Slots: 20, Maps: queueing.Exactly(50), Reduces: queueing.Exactly(10), Setup: ph(40), Shuffle: ph(4),
		MapWaves: []queueing.PH{ph(21.4)}, ReduceWaves: []queueing.PH{ph(12.8)},
	}
	for _, theta := range []float64{0, 0.1, 0.2, 0.4, 0.6, 0.9} {
		matrix.MapDrop = theta
		mine, theirs := testkit.Need(w.Jobs(1).Time(theta))(t), testkit.Need(queueing.WaveLevel(matrix))(t)
		if math.Abs(mine.Mean()/theirs.Mean()-1) > 1e-9 {
			t.Errorf("%v: %v s, by the matrix %v", theta, mine.Mean(), theirs.Mean())
		}
	}
}

// What made the runs is found again, within what so few runs can tell.
func TestLearn(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	w := text()
	w.First = 10
	var runs []deflation.Finished
	for i := range 200 {
		runs = append(runs, ran(w, []float64{0, 0.2, 0.4}[i%3], 1+0.1*rng.NormFloat64()))
	}
	got, known := deflation.Learn(runs)
	if !known || got.Slots != 20 || got.Reduces != 10 || got.Depth != 1 {
		t.Fatalf("%v: %+v", known, got)
	}
	for name, x := range map[string][2]float64{
		"setup": {got.Setup, 40}, "first wave": {got.First, 10}, "wave": {got.Wave, 21.4}, "shuffle": {got.Shuffle, 4}, "reduce": {got.ReduceWave, 12.8}, "slope": {got.SetupSlope, -30}, "cv": {got.CV, 0.1},
	} {
		if math.Abs(x[0]/x[1]-1) > 0.3 {
			t.Errorf("%s is %v, want %v", name, x[0], x[1])
		}
	}
	for _, theta := range []float64{0, 0.3, 0.9} { // also where no run was
		mine, _ := got.Moments(theta)
		if truth, _ := w.Moments(theta); math.Abs(mine/truth-1) > 0.06 {
			t.Errorf("%v: %v s, want %v", theta, mine, truth)
		}
	}
}

// Runs at one ratio do not tell what setup has to do with it; those that contradict
// themselves tell nothing.
func TestLearnMakesNothingUp(t *testing.T) {
	t.Parallel()
	w := text()
	var runs []deflation.Finished
	for i := range 10 {
		runs = append(runs, ran(w, 0.2, 1+0.01*float64(i)))
	}
	if got, _ := deflation.Learn(runs); got.SetupSlope != 0 || math.Abs(got.Setup/(34*1.045)-1) > 1e-9 {
		t.Errorf("setup %v + %v theta of runs at one ratio", got.Setup, got.SetupSlope)
	}
	broken := ran(w, 0, 1)
	broken.Kept = 60
	for name, runs := range map[string][]deflation.Finished{"none": nil, "more tasks than there are": {broken}, "no maps": {{Tasks: 3, Kept: 3, Slots: 2}}} {
		if got, known := deflation.Learn(runs); known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Stages that drop from one another keep less than the ratio says; how much less is learned.
func TestLearnDepth(t *testing.T) {
	t.Parallel()
	w := deflation.WaveJob{Slots: 20, Tasks: []int{1200}, Depth: 3, Wave: 0.5, Shuffle: 100}
	got, _ := deflation.Learn([]deflation.Finished{ran(w, 0, 1), ran(w, 0.1, 1), ran(w, 0.2, 1)})
	if math.Abs(got.Depth-3) > 0.02 {
		t.Errorf("depth %v, want 3", got.Depth)
	}
	if kept := got.Kept(1200, 0.1); kept < 870 || kept > 880 { // 0.9^3 of 1200 are 874.8
		t.Errorf("%d of 1200 tasks at 10 %%", kept)
	}
}

// Where setup does not depend on the ratio, only whole waves are dropped; what is chosen
// steps with the bound from one wave to the next.
func TestChoiceGoesByWaves(t *testing.T) {
	t.Parallel()
	w := text()
	w.SetupSlope = 0
	profile, _, err := deflation.ProfileOf("words", []deflation.Loss{{Drop: 0.1, Error: 0.085}, {Drop: 0.2, Error: 0.15}, {Drop: 0.4, Error: 0.32}})
	testkit.Check(t, err)
	most := deflation.DropWithin(profile, 0.8)
	if most < 0.6 || most >= 1 {
		t.Errorf("an error of 80 %% permits to drop %v", most)
	}
	if got := w.Jobs(most).Ratios; !slices.Equal(got, []float64{0, 0.2, 0.6}) {
		t.Errorf("ratios %v, want 0, 0.2, 0.6", got)
	}
	chosen := []float64{}
	for bound := 400.; bound >= 100; bound -= 5 {
		a := choose(t, deflation.Problem{Classes: []deflation.Class{{Rate: 0.006, Jobs: w.Jobs(most), Profile: profile, ErrorMax: 0.8, MeanMax: bound}}, Busy: 100 * units.Watt})
		if a.Chosen != nil {
			chosen = append(chosen, a.Chosen.Classes[0].Theta)
		}
	}
	if !slices.IsSorted(chosen) || !slices.Equal(slices.Compact(chosen), []float64{0, 0.2, 0.6}) {
		t.Errorf("from the loosest bound on %v are chosen", chosen)
	}
	w.SetupSlope = -30
	if got := w.Jobs(0.4).Ratios; len(got) > 16 || len(got) < 10 || !slices.Contains(got, 0.2) || slices.Max(got) > 0.4+1e-9 {
		t.Errorf("with a setup that gets shorter: %v", got)
	}
}

// Sprints of 2.5 times the speed are found, although only long jobs sprint and some are refused.
func TestLearnSpeed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	var plain []float64
	var timed []deflation.TimerRun
	for i := range 400 {
		plain = append(plain, 100*(1+0.3*rng.NormFloat64()))
		x := 100 * (1 + 0.3*rng.NormFloat64())
		if x > 80 && i%4 > 0 {
			timed = append(timed, deflation.TimerRun{Plain: 80, Sprinted: (x - 80) / 2.5})
		} else {
			timed = append(timed, deflation.TimerRun{Plain: x})
		}
	}
	if up, known := deflation.LearnSpeed(plain, timed); !known || math.Abs(up-2.5) > 0.4 {
		t.Errorf("%v, %v; want 2.5", up, known)
	}
	for name, f := range map[string]func() (float64, bool){
		"too few":    func() (float64, bool) { return deflation.LearnSpeed(plain[:4], timed) },
		"no sprints": func() (float64, bool) { return deflation.LearnSpeed(plain, make([]deflation.TimerRun, 9)) },
		"slower":     func() (float64, bool) { return deflation.LearnSpeed(make([]float64, 9), timed) },
	} {
		if up, known := f(); known {
			t.Errorf("%s: %v", name, up)
		}
	}
}

// What was seen at one drop ratio is not forgotten for many runs at another; the newest stay.
func TestRemember(t *testing.T) {
	t.Parallel()
	var runs []deflation.Finished
	for i := range 100 {
		theta := 0.
		if i >= 20 {
			theta = 0.2
		}
		runs = deflation.Remember(runs, deflation.Finished{Theta: theta, Setup: float64(i)}, 10, func(f *deflation.Finished) float64 { return f.Theta })
	}
	var kept []float64
	for _, f := range runs {
		kept = append(kept, f.Setup)
	}
	if want := []float64{15, 16, 17, 18, 19, 95, 96, 97, 98, 99}; !slices.Equal(kept, want) {
		t.Errorf("remembered are %v, want %v", kept, want)
	}
}
