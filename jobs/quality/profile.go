package quality

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Point is what a part of a job's tasks was worth.
type Point struct {
	// Fraction is the part of the map tasks that ran, above 0 and at most 1.
	Fraction float64 `json:"fraction"`
	// Accuracy is how near the results came to the exact one, 0 to 1: the mean of the runs.
	Accuracy float64 `json:"accuracy"`
	// Low and High are the worst and the best run.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Runs are how many there were, at least 1.
	Runs int `json:"runs"`
}

// PointOf returns the point of the accuracies of some runs, at least one.
func PointOf(fraction float64, runs []float64) Point {
	p := Point{Fraction: fraction, Low: slices.Min(runs), High: slices.Max(runs), Runs: len(runs)}
	for _, a := range runs {
		p.Accuracy += a / float64(len(runs))
	}
	// Rounding in the sum must not leave the mean outside.
	p.Accuracy = min(max(p.Accuracy, p.Low), p.High)
	return p
}

// Profile is how accuracy follows the part of a job's tasks that runs. New and Parse
// make valid ones: points in rising order of fractions, monotone.
type Profile struct {
	// Name is the job's.
	Name string `json:"name"`
	// Engine ran it: "local" or "yarn".
	Engine string `json:"engine"`
	// Comparison is how results were compared; empty where nobody has noted it.
	Comparison Comparison `json:"comparison,omitempty"`
	// Scaled states that sums were scaled up by the part that was left out.
	Scaled bool `json:"scaled,omitempty"`
	// Tasks are the map tasks of the job that was measured; 0 when unknown.
	Tasks  int     `json:"tasks,omitempty"`
	Points []Point `json:"points"`
}

// pointsMax bounds a profile: more says nothing more.
const pointsMax = 1000

// New returns p made valid: its points in order, and monotone. Each warning names points
// that had to be pooled because fewer tasks seemed better. The error wraps ErrProfile.
func New(p Profile) (Profile, []string, error) {
	p.Points = slices.Clone(p.Points)
	slices.SortFunc(p.Points, func(a, b Point) int { return cmp.Compare(a.Fraction, b.Fraction) })
	if err := p.check(); err != nil {
		return Profile{}, nil, err
	}
	warnings := p.pool()
	return p, warnings, nil
}

func (p *Profile) check() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("%w: name is missing", errProfile)
	case p.Engine == "":
		return fmt.Errorf("%w: engine is missing", errProfile)
	case p.Tasks < 0:
		return fmt.Errorf("%w: tasks is %d", errProfile, p.Tasks)
	case len(p.Points) == 0 || len(p.Points) > pointsMax:
		return fmt.Errorf("%w: %d points; must be from 1 to %d", errProfile, len(p.Points), pointsMax)
	}
	if p.Comparison != "" {
		if _, err := ParseComparison(string(p.Comparison)); err != nil {
			return fmt.Errorf("%w: %w", errProfile, err)
		}
	}
	for i, x := range p.Points {
		if err := x.check(); err != nil {
			return err
		}
		if i > 0 && p.Points[i-1].Fraction == x.Fraction {
			return fmt.Errorf("%w: two points for fraction %v", errProfile, x.Fraction)
		}
	}
	return nil
}

func (x Point) check() error {
	switch {
	case !(x.Fraction > 0 && x.Fraction <= 1):
		return fmt.Errorf("%w: fraction %v must be above 0 and at most 1", errProfile, x.Fraction)
	case !(x.Low >= 0 && x.Low <= x.Accuracy && x.Accuracy <= x.High && x.High <= 1):
		return fmt.Errorf("%w: at fraction %v the order 0 <= low <= accuracy <= high <= 1 does not hold: low %v, accuracy %v, high %v",
			errProfile, x.Fraction, x.Low, x.Accuracy, x.High)
	case x.Runs < 1:
		return fmt.Errorf("%w: at fraction %v there are %d runs; at least 1", errProfile, x.Fraction, x.Runs)
	}
	return nil
}

// pool makes accuracies and bounds rise: neighbours that fall get their mean, weighted
// by their runs (pool adjacent violators), which is the nearest rising sequence.
func (p *Profile) pool() (warnings []string) {
	raise(p.Points, func(x *Point) *float64 { return &x.Low })
	raise(p.Points, func(x *Point) *float64 { return &x.High })
	for _, b := range raise(p.Points, func(x *Point) *float64 { return &x.Accuracy }) {
		if b.first < b.last {
			warnings = append(warnings, p.warning(b.first, b.last))
		}
	}
	for i := range p.Points { // pooling keeps the order of the three, but for rounding
		x := &p.Points[i]
		x.Low, x.High = min(x.Low, x.Accuracy), max(x.High, x.Accuracy)
	}
	return warnings
}

// raise makes one value of the points rise and returns the blocks that it now has.
func raise(points []Point, of func(*Point) *float64) []block {
	all := blocks(points, of)
	for _, b := range all {
		for i := b.first; i <= b.last; i++ {
			*of(&points[i]) = b.mean
		}
	}
	return all
}

func (p *Profile) warning(first, last int) string {
	var names []string
	for _, x := range p.Points[first : last+1] {
		names = append(names, fmt.Sprintf("%.4g", x.Fraction))
	}
	return fmt.Sprintf("accuracy is not monotone: fractions %s were pooled to accuracy %.4g; measure more runs",
		strings.Join(names, ", "), p.Points[first].Accuracy)
}

// block is a run of points with one value.
type block struct {
	first, last  int
	mean, weight float64
}

// blocks returns the values of the points with falling neighbours pooled.
func blocks(points []Point, of func(*Point) *float64) []block {
	var out []block
	for i := range points {
		b := block{first: i, last: i, mean: *of(&points[i]), weight: float64(points[i].Runs)}
		for len(out) > 0 && out[len(out)-1].mean > b.mean {
			a := out[len(out)-1]
			out = out[:len(out)-1]
			weight := a.weight + b.weight
			b = block{first: a.first, last: b.last, mean: (a.mean*a.weight + b.mean*b.weight) / weight, weight: weight}
		}
		out = append(out, b)
	}
	return out
}

// corners returns the points with the ends that every profile has: nothing of nothing, all of all.
func (p *Profile) corners() []Point {
	out := append([]Point{{}}, p.Points...)
	if last := out[len(out)-1]; last.Fraction < 1 {
		return append(out, Point{Fraction: 1, Accuracy: 1, Low: 1, High: 1, Runs: 1})
	}
	return out
}

// Accuracy returns what to expect of a part of the tasks: mean, worst and best. What is
// outside of 0 to 1 counts as the nearest end; it is all 0 for NaN.
func (p *Profile) Accuracy(fraction float64) (mean, low, high float64) {
	c := p.corners()
	if !(fraction > 0) {
		return 0, 0, 0
	}
	i, found := slices.BinarySearchFunc(c, fraction, func(x Point, f float64) int { return cmp.Compare(x.Fraction, f) })
	if found || i == len(c) {
		x := c[min(i, len(c)-1)]
		return x.Accuracy, x.Low, x.High
	}
	a, b := c[i-1], c[i]
	w := (fraction - a.Fraction) / (b.Fraction - a.Fraction)
	mix := func(x, y float64) float64 { return x + w*(y-x) }
	return mix(a.Accuracy, b.Accuracy), mix(a.Low, b.Low), mix(a.High, b.High)
}

// Fraction returns the least part of the tasks that keeps an accuracy even in the worst
// run. ok is false for an accuracy that no part keeps: above 1, or no number.
func (p *Profile) Fraction(accuracy float64) (fraction float64, ok bool) {
	if !(accuracy <= 1) {
		return 1, false
	}
	if accuracy <= 0 {
		return 0, true
	}
	c := p.corners()
	for i := 1; i < len(c); i++ {
		a, b := c[i-1], c[i]
		if b.Low < accuracy {
			continue
		}
		w := (accuracy - a.Low) / (b.Low - a.Low)
		return min(a.Fraction+w*(b.Fraction-a.Fraction), b.Fraction), true
	}
	return 1, true // a file may say that not even all tasks are exact; all is the most there is
}

// Parse reads a profile's JSON strictly; warnings and errors are those of New, or
// tell the line and column.
func Parse(data []byte) (Profile, []string, error) {
	var p Profile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Profile{}, nil, fmt.Errorf("%w: %s: %s", errProfile, position(data, offsetOf(err, data, dec.InputOffset())), strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, nil, fmt.Errorf("%w: %s: more than one document", errProfile, position(data, dec.InputOffset()))
	}
	return New(p)
}

// offsetOf returns where an error of JSON stands; the decoder itself is then still before
// the document, or behind it.
func offsetOf(err error, data []byte, otherwise int64) int64 {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return e.Offset - 1 // it counts what was read
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return e.Offset - 1
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return int64(len(data))
	}
	return otherwise
}

// position returns line:column of an offset.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset, 0), int64(len(data)))]
	return fmt.Sprintf("%d:%d", bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'))
}

// Encode returns the profile as Parse reads it.
func (p *Profile) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(p)
	return b.Bytes(), err
}
