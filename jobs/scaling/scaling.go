package scaling

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"headroom/jobs/scaling/ipso"
	"headroom/jobs/scaling/regress"
	"headroom/jobs/scaling/usba"
)

// The errors of a fit, for [errors.Is].
var (
	ErrTooFew    = regress.ErrTooFew
	ErrCollinear = regress.ErrCollinear
	ErrNumber    = regress.ErrNumber
)

// DegreeMost bounds degrees and problem sizes.
const DegreeMost = ipso.DegreeMost

// The models.
const (
	IPSO      = "ipso"
	USBA      = "usba"
	Amdahl    = "amdahl"
	Gustafson = "gustafson"
	SunNi     = "sunni"
)

// Models returns the names of all models.
func Models() []string { return []string{IPSO, USBA, Amdahl, Gustafson, SunNi} }

// Point is a measured speed-up. The package comment says what N and M are.
type Point struct {
	N, M    int
	Speedup float64
}

// Parameter is a fitted parameter with its 95 % confidence interval.
type Parameter struct {
	Value, Low, High float64
	// P is the p-value of the hypothesis that it is 0; NaN where the parameter was not fitted, or is at its bound.
	P float64
}

// Curve is a model with its parameters, fitted or given.
type Curve struct {
	// Model is its name.
	Model string
	// Parameters are those of the model by name.
	Parameters map[string]Parameter
	// Type is how the job scales, as [ipso.Type] has it. For usba it is that of the largest size with more
	// units, as far as it can be told: IV, or empty.
	Type string
	// RMSE is the root of the mean squared residual of all points, 0 for a curve that was not fitted.
	RMSE float64

	// byM: of two numbers M is the degree.
	byM  bool
	line ipso.Model
	area usba.Model
	// size is the largest problem size that was measured.
	size    int
	predict func(n, m int) (speedup, low, high float64) // nil where the curve was not fitted
}

// forms returns what the laws fix of IPSO's parameters.
func forms(model string) map[string]float64 {
	switch model {
	case Amdahl:
		return map[string]float64{"delta": 0, "beta": 0, "gamma": 0}
	case Gustafson:
		return map[string]float64{"delta": 1, "beta": 0, "gamma": 0}
	case SunNi:
		return map[string]float64{"beta": 0, "gamma": 0}
	}
	return nil
}

// names returns the parameters of a model as they are called outside, with IPSO's own names.
func names(model string) map[string]string {
	switch model {
	case Amdahl, Gustafson:
		return map[string]string{"eta": "eta"}
	case SunNi:
		return map[string]string{"eta": "eta", "g": "delta"}
	case IPSO:
		return map[string]string{"eta": "eta", "alpha": "alpha", "delta": "delta", "beta": "beta", "gamma": "gamma"}
	default:
		return map[string]string{"alpha": "alpha", "beta": "beta", "gamma": "gamma", "eps": "eps", "theta": "theta", "r": "r"}
	}
}

// Fit fits a model to points.
func Fit(model string, points []Point) (*Curve, error) { return FitHeld(model, points, nil) }

// FitHeld returns Fit with some parameters known, by name.
func FitHeld(model string, points []Point, held map[string]float64) (*Curve, error) {
	if err := knownNames(model, held); err != nil {
		return nil, err
	}
	if model == USBA {
		return fitArea(points, held)
	}
	return fitLine(model, points, held)
}

// knownNames checks the names of a model and of its parameters.
func knownNames(model string, parameters map[string]float64) error {
	if !slices.Contains(Models(), model) {
		return fmt.Errorf("scaling: %w: model %q; want one of %s", ErrNumber, model, strings.Join(Models(), ", "))
	}
	all := names(model)
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if _, ok := all[name]; !ok {
			return fmt.Errorf("scaling: %w: %s has no parameter %q; its parameters are %s", ErrNumber, model, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
	}
	return nil
}

func fitArea(points []Point, held map[string]float64) (*Curve, error) {
	c := &Curve{Model: USBA, byM: true}
	var ps []usba.Point
	for i, p := range points {
		if p.M == 0 {
			return nil, fmt.Errorf("scaling: %w: points[%d]: m is missing, the parallel degree of a job of size n", ErrNumber, i)
		}
		ps = append(ps, usba.Point{N: p.N, M: p.M, Speedup: p.Speedup})
		c.size = max(c.size, p.N)
	}
	f, err := usba.Fit(ps, held)
	if err != nil {
		return nil, err
	}
	c.area, c.predict = f.Model, f.Predict
	c.Parameters = parametersOf(f.Fit, names(USBA))
	c.RMSE = c.rmse(points)
	if _, _, ok := c.Peak(0); ok {
		c.Type = string(ipso.Peaked)
	}
	return c, nil
}

func fitLine(model string, points []Point, held map[string]float64) (*Curve, error) {
	c := &Curve{Model: model}
	var err error
	if c.byM, err = byM(points); err != nil {
		return nil, err
	}
	var ps []ipso.Point
	for _, p := range points {
		ps = append(ps, ipso.Point{N: c.degree(p.N, p.M), Speedup: p.Speedup})
		c.size = max(c.size, p.N)
	}
	all, fixed := names(model), forms(model)
	known := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		known[all[name]] = held[name]
	}
	var f *ipso.Fitted
	if model == IPSO {
		f, err = ipso.Fit(ps, known)
	} else {
		maps.Copy(known, fixed)
		f, err = ipso.Law(ps, known)
	}
	if err != nil {
		return nil, err
	}
	c.line, c.Type = f.Model, string(f.Type())
	c.predict = func(n, m int) (float64, float64, float64) { return f.Predict(c.degree(n, m)) }
	c.Parameters = parametersOf(f.Fit, all)
	c.RMSE = c.rmse(points)
	return c, nil
}

// byM reports whether M is the degree of points on a line.
func byM(points []Point) (bool, error) {
	withM, oneN, oneM, oneRatio := 0, true, true, true
	for i, p := range points {
		if p.M < 0 {
			return false, fmt.Errorf("scaling: %w: points[%d]: m is %d; it must be 1 or more", ErrNumber, i, p.M)
		}
		if p.M > 0 {
			withM++
		}
		first := points[0]
		oneN, oneM = oneN && p.N == first.N, oneM && p.M == first.M
		oneRatio = oneRatio && p.N*first.M == first.N*p.M
	}
	switch {
	case withM == 0:
		return false, nil
	case withM < len(points):
		return false, fmt.Errorf("scaling: %w: m is given in %d of %d points; give it in all, or in none if n is the degree", ErrNumber, withM, len(points))
	case oneM:
		return false, nil
	case oneN || oneRatio:
		return true, nil
	}
	return false, fmt.Errorf("scaling: %w: the points lie on no line (constant n, m or n/m); use model usba, or fit each line separately", ErrNumber)
}

// OnLine reports whether points lie on one line: all but usba ask for that.
func OnLine(points []Point) bool {
	_, err := byM(points)
	return err == nil
}

// degree returns the scale-out degree of a point.
func (c *Curve) degree(n, m int) int {
	if c.byM && m > 0 {
		return m
	}
	return n
}

// parametersOf returns the estimates by their outer names.
func parametersOf(f *regress.Fit, all map[string]string) map[string]Parameter {
	out := map[string]Parameter{}
	for outer, inner := range all {
		for _, e := range f.Estimates {
			if e.Name == inner {
				out[outer] = Parameter{Value: e.Value, Low: e.Low, High: e.High, P: e.P}
			}
		}
	}
	return out
}

func (c *Curve) rmse(points []Point) float64 {
	sum := 0.0
	for _, p := range points {
		d := p.Speedup - c.Speedup(p.N, p.M)
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(points)))
}

// Given returns a curve with given parameters. Of ipso alpha is 1 and the others 0 where they are left out; of usba theta is 1 and the
// others 0; eta and r may not be left out.
func Given(model string, parameters map[string]float64) (*Curve, error) {
	if err := knownNames(model, parameters); err != nil {
		return nil, err
	}
	c := &Curve{Model: model, byM: model == USBA, Parameters: map[string]Parameter{}}
	for name, x := range parameters {
		c.Parameters[name] = Parameter{Value: x, Low: x, High: x, P: math.NaN()}
	}
	needed := "eta"
	if model == USBA {
		needed = "r"
	}
	if _, ok := parameters[needed]; !ok {
		return nil, fmt.Errorf("scaling: %w: parameter %s of %s is missing", ErrNumber, needed, model)
	}
	get := func(name string, otherwise float64) float64 {
		if x, ok := parameters[name]; ok {
			return x
		}
		return otherwise
	}
	if model == USBA {
		c.area = usba.Model{R: get("r", 0), Alpha: get("alpha", 0), Beta: get("beta", 0), Gamma: get("gamma", 0), Eps: get("eps", 0), Theta: get("theta", 1)}
		return c, c.area.Check()
	}
	c.line = ipso.Model{Eta: get("eta", 0), Alpha: get("alpha", 1), Delta: get("delta", get("g", 0)), Beta: get("beta", 0), Gamma: get("gamma", 0)}
	if x, ok := forms(model)["delta"]; ok {
		c.line.Delta = x
	}
	c.Type = string(c.line.Type())
	return c, c.line.Check()
}

// Speedup returns the speed-up at a point.
func (c *Curve) Speedup(n, m int) float64 {
	if c.Model == USBA {
		return c.area.Speedup(float64(n), float64(m))
	}
	return c.line.Speedup(float64(c.degree(n, m)))
}

// Predict returns the speed-up at a point with the bounds within which 95 of 100 further measurements lie; for a curve that
// was not fitted they are the speed-up itself.
func (c *Curve) Predict(n, m int) (speedup, low, high float64) {
	if c.predict == nil {
		s := c.Speedup(n, m)
		return s, s, s
	}
	return c.predict(n, m)
}

// At returns the speed-up of a job of a size on so many units. Only usba looks at the size; 0 is the largest that was measured.
func (c *Curve) At(size, units int) float64 {
	if c.Model != USBA {
		return c.line.Speedup(float64(units))
	}
	if size == 0 {
		size = c.size
	}
	return c.area.Speedup(float64(size), float64(units))
}

// Peak returns the degree at which a job of a size is fastest, and the speed-up there; false where more units never slow it down. Only usba
// looks at the size; 0 is the largest that was measured.
func (c *Curve) Peak(size int) (units int, speedup float64, ok bool) {
	if c.Model != USBA {
		return c.line.Peak()
	}
	if size == 0 {
		size = c.size
	}
	return c.area.Peak(size)
}

// NeedsM reports whether what is asked must have M.
func (c *Curve) NeedsM() bool { return c.byM }

// Size returns the largest problem size that was measured; 0 for a curve that was not fitted.
func (c *Curve) Size() int { return c.size }
