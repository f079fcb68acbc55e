package report

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the confidence level of bounds of a mean.
const Confidence = 0.95

// Stat is a mean over seeds or other independent runs, with its bounds.
type Stat struct {
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Known bool    `json:"-"`
}

// Once is the stat of a single value, which has no bounds.
func Once(x float64) Stat { return Stat{x, x, x, true} }

// Of is the stat of one value for each run; unknown without any, or if one is unknown.
func Of(values []float64) Stat { return Within(values, Confidence) }

// Each is the stat of one value for each run. Runs for which of has none are left out.
func Each[T any](runs []T, of func(T) (float64, bool)) Stat {
	var values []float64
	for _, r := range runs {
		if v, ok := of(r); ok {
			values = append(values, v)
		}
	}
	return Of(values)
}

// Over is the stat of one value for each run.
func Over[T any](runs []T, of func(T) float64) Stat {
	return Each(runs, func(r T) (float64, bool) { return of(r), true })
}

// Within is the stat with bounds of another confidence, above 0 and below 1, by Student's t.
func Within(values []float64, confidence float64) Stat {
	n := float64(len(values))
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / n
	if n == 0 || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return Stat{}
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	half := 0.0
	if n > 1 {
		half = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1+confidence)/2) * math.Sqrt(squares/(n-1)/n)
	}
	return Stat{Mean: mean, Low: mean - half, High: mean + half, Known: true}
}

// String returns the mean with half the width of its bounds.
func (s Stat) String() string {
	digits := 0
	switch size := max(math.Abs(s.Mean), math.Abs(s.High-s.Low)); {
	case size < 10:
		digits = 3
	case size < 1000:
		digits = 1
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, s.Mean, digits, (s.High-s.Low)/2)
}
