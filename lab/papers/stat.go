package papers

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gonum.org/v1/gonum/stat/distuv"
)

// Stat is a mean over the seeds, or over other independent runs, with the bounds that hold the mean of
// others in 95 of 100 cases.
type Stat struct {
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Known bool    `json:"-"`
}

// Confidence is the confidence level of bounds of a mean.
const Confidence = 0.95

// Once is the stat of a single value, which has no bounds.
func Once(x float64) Stat { return Stat{x, x, x, true} }

// Of is the stat of one value for each seed; unknown without any, or where one is unknown.
func Of(values []float64) Stat { return Within(values, Confidence) }

// Within is the same with bounds of another confidence, above 0 and below 1, by Student's t.
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

// Judge is a target of a stat: met where the ordering or the sign that it asks for holds,
// short where it does not, or where the stat is not known: a number that is missing
// reproduces nothing.
func Judge(id, what, unit string, got Stat, ordered bool, note string) Target {
	t := Target{ID: id, What: what, Unit: unit, Note: note, Verdict: Short}
	if !got.Known {
		t.Note = "not measured"
		return t
	}
	if ordered {
		t.Verdict = Met
	}
	t.Got, t.Low, t.High = &got.Mean, &got.Low, &got.High
	return t
}

// Range is the tolerance range around a paper's number, both ends included.
type Range struct{ Low, High float64 }

// Around is the range from number - by to number + by.
func Around(number, by float64) Range { return Range{number - by, number + by} }

// AtMost is the range of all numbers up to high.
func AtMost(high float64) Range { return Range{math.Inf(-1), high} }

// AtLeast is the range of all numbers from low.
func AtLeast(low float64) Range { return Range{low, math.Inf(1)} }

// miss says by how much x lies outside, empty inside; x is a number.
func (r Range) miss(x float64) string {
	by := max(r.Low-x, x-r.High)
	if by <= 0 {
		return ""
	}
	return strconv.FormatFloat(by, 'f', 2, 64)
}

func (r Range) words() string {
	high := strconv.FormatFloat(r.High, 'f', 2, 64)
	if math.IsInf(r.Low, -1) {
		return "up to " + high
	}
	low := strconv.FormatFloat(r.Low, 'f', 2, 64)
	if math.IsInf(r.High, 1) {
		return low + " or more"
	}
	return low + " to " + high
}

// From adds the paper's own number to a target whose ordering is judged. A value outside
// the range that the tolerance leaves has the verdict order at best, and the note says by
// how much it misses.
func From(number float64, tolerance Range, t Target) Target {
	t.Paper = &number
	if t.Got == nil {
		return t
	}
	rule := "tolerance " + tolerance.words()
	if by := tolerance.miss(*t.Got); by != "" {
		rule += ", missed by " + strings.TrimSpace(by+" "+t.Unit)
		if t.Verdict == Met {
			t.Verdict = Order
		}
	}
	t.Note = strings.TrimPrefix(t.Note+"; "+rule, "; ")
	return t
}

// Left is a target whose experiment this command does not make; how says what makes it.
func Left(id, what, unit, how string) Target {
	return Target{ID: id, What: what, Unit: unit, Verdict: NotRun, Note: how}
}

// WithOracle adds what would come out if all were told what nobody can know.
func WithOracle(got Stat, t Target) Target {
	if got.Known {
		t.Oracle = &got.Mean
	}
	return t
}

// Number is a number as tables have it.
func Number(x float64) string { return strconv.FormatFloat(x, 'f', 5, 64) }

// maybe is a number as tables have it, empty where it is unknown.
func maybe(x *float64) string {
	if x == nil {
		return ""
	}
	return Number(*x)
}

// Each tries 0 to n-1 on all cores and returns the error of the first that failed; said
// hears after each how many are done.
func Each(n int, try func(i int) error, said func(done int)) error {
	failed, next, ended := make([]error, n), make(chan int), make(chan struct{})
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				failed[i] = try(i)
				ended <- struct{}{}
			}
		})
	}
	workers.Go(func() {
		defer close(next)
		for i := range n {
			next <- i
		}
	})
	for i := range n {
		<-ended
		said(i + 1)
	}
	workers.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	return nil
}
