package queueing

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"headroom/units"
)

// TaskModel is a job of map and reduce tasks, each of exponential length (DIAS, section
// 4.1): setup, then maps on all slots, then shuffle, then reduces on all slots.
type TaskModel struct {
	// Slots is C, how many tasks run at a time; at least 1.
	Slots int
	// Maps[t] and Reduces[u] are the probabilities of t map and of u reduce tasks; see
	// [Exactly]. An empty list is none.
	Maps, Reduces []float64
	// MapDrop and ReduceDrop are theta, the part of the tasks that is dropped, from 0
	// to 1; see [Kept].
	MapDrop, ReduceDrop float64
	// MapMean and ReduceMean are the mean times of a task, Setup and Shuffle those of
	// the stages; 0 leaves a stage out.
	MapMean, ReduceMean, Setup, Shuffle float64
	// Speed multiplies all rates, as an effective sprint rate does; 0 is 1.
	Speed float64
}

// WaveModel is a job whose tasks run in waves of up to Slots (DIAS, section 4.2). The
// meanings are those of [TaskModel].
type WaveModel struct {
	Slots               int
	Maps, Reduces       []float64
	MapDrop, ReduceDrop float64
	// MapWaves[d-1] is the length of the map wave with which d waves are left to go,
	// counted with itself: MapWaves[0] is the last wave, so a job of one wave runs that
	// alone. Where there are more waves than entries, the last entry stands for them.
	MapWaves, ReduceWaves []PH
	// Setup and Shuffle are the other stages; a zero PH leaves one out.
	Setup, Shuffle PH
	Speed          float64
}

// Exactly returns the list of probabilities of a number that is always n.
func Exactly(n int) []float64 {
	list := make([]float64, max(n, 0)+1)
	list[len(list)-1] = 1
	return list
}

// Kept returns how many of n tasks are left when the part theta is dropped: the least whole
// number that is not below n*(1-theta), as DIAS rounds. Rounding in the product does not
// keep a task more: 50 tasks at 0.1 are 45.
func Kept(n int, theta float64) int {
	return units.Ratio(1 - theta).Of(n)
}

// TaskLevel returns the distribution of a job's time on an idle cluster, DIAS's equation (1).
// Its phases are, in order: setup; maps left, from the most down to 1; shuffle; reduces
// left. The diagonal is minus what leaves. With theta = 1 setup goes straight to shuffle.
func TaskLevel(m TaskModel) (PH, error) {
	if err := checkJob(m.Slots, m.Speed, m.MapDrop, m.ReduceDrop); err != nil {
		return PH{}, err
	}
	return job(
		m.Speed,
		func() (part, error) { return stage("setup", m.Setup) },
		func() (part, error) { return tasks("maps", m.Maps, m.MapDrop, m.MapMean, m.Slots) },
		func() (part, error) { return stage("shuffle", m.Shuffle) },
		func() (part, error) { return tasks("reduces", m.Reduces, m.ReduceDrop, m.ReduceMean, m.Slots) },
	)
}

// WaveLevel returns the distribution of a job's time on an idle cluster, DIAS's section 4.2.
func WaveLevel(m WaveModel) (PH, error) {
	if err := checkJob(m.Slots, m.Speed, m.MapDrop, m.ReduceDrop); err != nil {
		return PH{}, err
	}
	return job(
		m.Speed,
		func() (part, error) { return given("setup", m.Setup) },
		func() (part, error) { return waves("map", m.Maps, m.MapDrop, m.Slots, m.MapWaves) },
		func() (part, error) { return given("shuffle", m.Shuffle) },
		func() (part, error) { return waves("reduce", m.Reduces, m.ReduceDrop, m.Slots, m.ReduceWaves) },
	)
}

func checkJob(slots int, speed, mapDrop, reduceDrop float64) error {
	switch {
	case slots < 1:
		return bad("slots", "are %d; a job needs at least 1", slots)
	case speed != 0 && !isRate(speed):
		return bad("speed", "is %v; it must be above 0 and finite", speed)
	case !(mapDrop >= 0 && mapDrop <= 1):
		return bad("map drop ratio", "is %v; it must be from 0 to 1", mapDrop)
	case !(reduceDrop >= 0 && reduceDrop <= 1):
		return bad("reduce drop ratio", "is %v; it must be from 0 to 1", reduceDrop)
	}
	return nil
}

// job puts the stages together and runs them at a speed.
func job(speed float64, make ...func() (part, error)) (PH, error) {
	var stages []part
	n := 0
	for _, f := range make {
		s, err := f()
		if err != nil {
			return PH{}, err
		}
		stages, n = append(stages, s), n+s.Phases()
	}
	if n > MaxPhases {
		return PH{}, bad("job", "has %d phases; the maximum is %d: give fewer tasks, or waves instead of tasks", n, MaxPhases)
	}
	whole := sequence(stages...)
	if ever := mass(whole.Alpha); ever < 1-tolerance {
		return PH{}, bad("job", "takes no time with probability %.6g; give setup or shuffle a time, or keep a task", 1-ever)
	}
	normalise(whole.Alpha)
	if speed == 0 {
		speed = 1
	}
	return whole.Scale(1 / speed)
}

// stage returns one exponential phase; none for a mean of 0.
func stage(name string, mean float64) (part, error) {
	if mean == 0 {
		return part{}, nil
	}
	p, err := exponential(1 / mean)
	if err != nil {
		return part{}, bad(name+" mean", "is %v; it must be 0 or more and finite", mean)
	}
	return p, nil
}

// given returns a stage of any distribution; none for a zero one.
func given(name string, p PH) (part, error) {
	if len(p.Alpha) == 0 && p.A == nil {
		return part{}, nil
	}
	return p, within(name, p.validate())
}

// kept returns the distribution of what is left of a number of tasks: several numbers may
// share what is left of them (the sum over all t with kept(t) = tbar).
func kept(name string, tasks []float64, drop float64) ([]float64, error) {
	if len(tasks) == 0 {
		return []float64{1}, nil
	}
	if len(tasks) > MaxPhases+1 {
		return nil, bad(name, "are up to %d; the maximum is %d tasks", len(tasks)-1, MaxPhases)
	}
	if err := checkProbabilities(name, tasks); err != nil {
		return nil, err
	}
	left := make([]float64, 1)
	for t, p := range tasks {
		if p == 0 {
			continue
		}
		k := Kept(t, drop)
		for len(left) <= k {
			left = append(left, 0)
		}
		left[k] += p
	}
	normalise(left)
	return left, nil
}

// tasks returns a stage of tasks of exponential length, min(t, slots) of t at a time.
func tasks(name string, probabilities []float64, drop, mean float64, slots int) (part, error) {
	left, err := kept(name, probabilities, drop)
	if err != nil {
		return part{}, err
	}
	most := len(left) - 1
	if most == 0 {
		return part{}, nil
	}
	if !isRate(mean) || !isRate(1/mean) {
		return part{}, bad(name+" mean", "is %v; it must be above 0 and finite", mean)
	}
	p := chain(most, func(i int) float64 { return float64(min(most-i, slots)) / mean })
	for i := range most {
		p.Alpha[i] = left[most-i]
	}
	return p, nil
}

// waves returns a stage of waves, entered at the wave from which as many are left to go as
// the job has.
func waves(name string, probabilities []float64, drop float64, slots int, lengths []PH) (part, error) {
	left, err := kept(name+" tasks", probabilities, drop)
	if err != nil {
		return part{}, err
	}
	most := (len(left) - 2 + slots) / slots
	if most == 0 {
		return part{}, nil
	}
	if len(lengths) == 0 {
		return part{}, bad(name+" waves", "are missing; jobs have up to %d", most)
	}
	entered := make([]float64, most+1) // q(d): by waves to go
	for t, p := range left {
		entered[(t+slots-1)/slots] += p
	}
	parts, sizes := make([]part, 0, most), 0
	for d := most; d >= 1; d-- {
		p := lengths[min(d, len(lengths))-1]
		if err := p.validate(); err != nil {
			return part{}, within(fmt.Sprintf("%s waves[%d]", name, min(d, len(lengths))-1), err)
		}
		if sizes += p.Phases(); sizes > MaxPhases {
			return part{}, bad(name+" waves", "have more than %d phases in total; give fewer waves, or fewer phases per wave", MaxPhases)
		}
		parts = append(parts, p)
	}
	whole := sequence(parts...)
	at := 0
	for i, p := range parts {
		for j, a := range p.Alpha {
			whole.Alpha[at+j] = entered[most-i] * a
		}
		at += p.Phases()
	}
	return part{Alpha: whole.Alpha, A: mat.DenseCopyOf(whole.A)}, nil
}
