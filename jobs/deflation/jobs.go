package deflation

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/queueing"
)

// Jobs is the model of a class's jobs: how long one takes on the whole cluster.
type Jobs struct {
	// Ratios are the drop ratios that make a difference, rising, the first one 0.
	Ratios []float64
	// Time is the time of one job at a drop ratio, without a sprint, in seconds. It is asked
	// for Ratios, or for those that the class names, and for nothing outside 0 to 1.
	Time func(theta float64) (queueing.PH, error)
}

// ratiosMost bounds the drop ratios that are tried of one class: between 16 of them lie
// differences smaller than the error of any profile.
const ratiosMost = 16

// Measure is what was measured of a class's jobs at one drop ratio: the mean of their time
// in seconds, and its coefficient of variation.
type Measure struct{ Drop, Mean, CV float64 }

// Measured returns the model of jobs of which no more is known than what was measured; only the
// drop ratios that were measured are tried. The times are fitted to mean and variation.
// The error is a *ProblemError.
func Measured(measures []Measure) (Jobs, error) {
	if len(measures) == 0 {
		return Jobs{}, bad("measured", "is empty; give at least the mean time without dropping")
	}
	at := make(map[float64]queueing.PH, len(measures))
	var ratios []float64
	for i, m := range measures {
		place := fmt.Sprintf("measured[%d]", i)
		switch {
		case !(m.Drop >= 0 && m.Drop <= 1):
			return Jobs{}, bad(place+".drop", "is %v; a drop ratio is from 0 to 1", m.Drop)
		case slices.Contains(ratios, m.Drop):
			return Jobs{}, bad(place+".drop", "%v is given twice", m.Drop)
		case !(m.Mean > 0 && m.Mean < math.MaxInt32):
			return Jobs{}, bad(place+".mean_s", "is %v; a job takes more than 0 s", m.Mean)
		case !(m.CV >= 0 && m.CV < 1000):
			return Jobs{}, bad(place+".cv", "is %v; a coefficient of variation is 0 or more", m.CV)
		}
		ph, err := fit(moments(m.Mean, m.CV))
		if err != nil {
			return Jobs{}, because(place, "cannot be fitted", err)
		}
		at[m.Drop], ratios = ph, append(ratios, m.Drop)
	}
	slices.Sort(ratios)
	if ratios[0] != 0 {
		return Jobs{}, bad("measured", "starts at drop ratio %v; give the time at drop ratio 0 too", ratios[0])
	}
	return Jobs{Ratios: ratios, Time: func(theta float64) (queueing.PH, error) {
		ph, ok := at[theta]
		if !ok {
			return queueing.PH{}, bad("drop ratio", "%v was not measured; measured ratios: %v", theta, ratios)
		}
		return ph, nil
	}}, nil
}
