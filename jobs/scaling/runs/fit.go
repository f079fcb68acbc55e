package runs

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/jobs/containers"
	"headroom/jobs/scaling"
	"headroom/jobs/scaling/regress"
)

// When a curve counts; the package comment says why.
const (
	runsLeast     = 6
	distinctLeast = 3
	spread        = 1.5
	errorMost     = 0.12
	evidence      = 1.15
	evidenceRuns  = 2
	// pointStep is the ratio of the containers of two points of a curve.
	pointStep = 1.25
)

// curve is what was fitted.
type curve struct {
	Points []containers.CurvePoint `json:"points"`
	Peak   int                     `json:"peak,omitempty"`
	Runs   int                     `json:"runs"`
	Type   string                  `json:"type"`
	Error  float64                 `json:"error"`
	// Single is the container time of a task on one container at full power, s, and Exponent that by which power slows it.
	Single   float64 `json:"single_s"`
	Exponent float64 `json:"exponent,omitempty"`
}

func (c *curve) check() error {
	if c == nil {
		return nil
	}
	shape, err := containers.NewCurve(c.Points)
	if err != nil {
		return err
	}
	if c.Peak != shape.Peak() || c.Runs < 1 || !(c.Error >= 0 && c.Error <= 1) || !(c.Single > 0 && c.Single <= busyMost) || !(c.Exponent >= 0 && c.Exponent <= exponentMost) {
		return fmt.Errorf("%w: its peak, runs, error, single_s or exponent is out of range", errRun)
	}
	return nil
}

// exponentMost bounds by which power of its cap a task may slow.
const exponentMost = 1

// expects returns the container time of a task of a run by the curve.
func (c *curve) expects(r *Run) float64 {
	shape, err := containers.NewCurve(c.Points)
	if err != nil {
		return r.each() // it was checked
	}
	n := max(1, int(math.Round(r.Containers)))
	return c.Single * float64(n) / shape.Speedup(n) * r.slowed(c.Exponent)
}

// slowed returns by how much the run's caps slow a task, with this exponent.
func (r *Run) slowed(exponent float64) float64 {
	if r.Power == 0 {
		return 1
	}
	return math.Pow(r.Power, -exponent)
}

// distinct returns how many numbers of containers there are, a tenth apart.
func distinct(runs []Run) (count int) {
	all := make([]float64, 0, len(runs))
	for _, r := range runs {
		all = append(all, r.Containers)
	}
	slices.Sort(all)
	last := 0.0
	for _, n := range all {
		if n >= 1.1*last {
			count, last = count+1, n
		}
	}
	return count
}

// fit returns the curve of runs; nil where they do not show one well enough.
func fit(runs []Run) *curve {
	e := entry{Runs: runs}
	least, most := e.span()
	if len(runs) < runsLeast || distinct(runs) < distinctLeast || most < spread*least {
		return nil
	}
	single, exponent, ok := reference(runs)
	if !ok {
		return nil
	}
	points := make([]scaling.Point, 0, len(runs))
	for i := range runs {
		r := &runs[i]
		n := max(1, int(math.Round(r.Containers)))
		points = append(points, scaling.Point{N: n, Speedup: single * float64(n) * r.slowed(exponent) / r.each()})
	}
	f, err := scaling.Fit(scaling.IPSO, points)
	if err != nil {
		return nil
	}
	c := &curve{Runs: len(runs), Type: strings.TrimRight(f.Type, ",12"), Single: single, Exponent: exponent}
	for _, p := range points {
		c.Error += math.Abs(math.Log(p.Speedup/f.Speedup(p.N, 0))) / float64(len(points))
	}
	if !(c.Error <= errorMost) {
		return nil
	}
	c.draw(f, runs, int(math.Round(most)))
	if c.check() != nil {
		return nil
	}
	return c
}

// draw takes the points of a fitted curve up to the most containers that a run held. Its peak is kept where runs have shown it.
func (c *curve) draw(f *scaling.Curve, runs []Run, most int) {
	peak, _, has := f.Peak(0)
	end := most
	if has && peak < most {
		end = peak
	}
	for n := 1; ; n = max(n+1, int(pointStep*float64(n))) {
		n = min(n, end)
		c.Points = append(c.Points, containers.CurvePoint{Containers: n, Speedup: f.Speedup(n, 0)})
		if n == end {
			break
		}
	}
	c.Points[0].Speedup = 1
	if end == most || !shown(f, runs, peak) {
		return
	}
	c.Peak = end
	c.Points = append(c.Points, containers.CurvePoint{Containers: most, Speedup: f.Speedup(most, 0)})
}

// shown reports whether runs beyond the peak were slower than that.
func shown(f *scaling.Curve, runs []Run, peak int) bool {
	beyond, top := 0, f.Speedup(peak, 0)
	farthest := 0
	for i := range runs {
		if n := int(math.Round(runs[i].Containers)); float64(n) >= evidence*float64(peak) {
			beyond++
			farthest = max(farthest, n)
		}
	}
	if beyond < evidenceRuns {
		return false
	}
	_, _, high := f.Predict(farthest, 0)
	return high < top
}

// reference returns the container time of a task on one container at full power, and the exponent by which power slows it: a quadratic
// in the containers, as the universal scalability law has it, whose residuals count as parts.
func reference(runs []Run) (single, exponent float64, ok bool) {
	known, low, high := true, 1.0, 0.0
	sum := 0.0
	for i := range runs {
		known = known && runs[i].Power > 0
		low, high = min(low, runs[i].Power), max(high, runs[i].Power)
		sum += math.Log(runs[i].each()) / float64(len(runs))
	}
	p := regress.Problem{
		Parameters: []regress.Parameter{
			{Name: "single", Low: math.Log(1e-9), High: math.Log(busyMost)},
			{Name: "contention", Low: 0, High: 1e3},
			{Name: "coherency", Low: 0, High: 1e3},
			{Name: "exponent", Low: 0, High: exponentMost},
		},
		Rows: len(runs), Y: func(i int) float64 { return math.Log(runs[i].each()) },
		Model: func(x []float64, i int) float64 {
			n := runs[i].Containers
			return x[0] + math.Log(1+x[1]*(n-1)+x[2]*n*(n-1)) + math.Log(runs[i].slowed(x[3]))
		},
		Starts: [][]float64{{sum, 0.01, 0.001, 0.5}, {sum, 0.3, 0.0001, 0.5}, {sum - 1, 0.5, 0.01, 0.8}},
	}
	if !known || high-low < 0.05 { // nothing to tell the exponent by
		p.Parameters[3].Fixed = new(0.0)
	}
	f, err := regress.Solve(p)
	if err != nil {
		return 0, 0, false
	}
	x := f.Values()
	return math.Exp(x[0]), x[3], true
}
