package experiment

import (
	"context"
	"math"
	"path/filepath"

	"headroom/lab/report"
)

// Spec is one experiment on real programs.
type Spec struct {
	// Name names the file of results; Says describes the comparison in one line.
	Name, Says string
	// Variants are compared with each other: a pair is one run of each, with the same seed.
	Variants []string
	// Files must exist beside powerlab, the programs aside.
	Files []string
	// Traces: it needs the folder of published traces.
	Traces bool
	// Pairs is the least number of pairs that a claim is judged by.
	Pairs  int
	Claims []Claim
	// Run runs a variant once and returns its figures.
	Run func(ctx context.Context, r *Run) (Figures, error)
}

// Figures are the results of one run, by name. A figure that was not measured is absent.
type Figures map[string]float64

// Pair is one run of each variant with the same seed.
type Pair map[string]Figures

// Run is one run of one variant.
type Run struct {
	Variant string
	Seed    uint64
	// Dir is the run's folder, Bin the one of the programs.
	Dir, Bin string
	// Traces is the folder of published traces; empty for none.
	Traces string
	// Note prints progress.
	Note func(format string, args ...any)
	// Earlier are the figures of this pair's runs so far.
	Earlier Pair
}

// Path is a path below the run's folder.
func (r *Run) Path(parts ...string) string {
	return filepath.Join(append([]string{r.Dir}, parts...)...)
}

// Program is the path of a program or a jar.
func (r *Run) Program(name string) string { return filepath.Join(r.Bin, name) }

// Aim is what the mean of a claim's values and their bounds must lie within.
type Aim struct{ Mean, Bounds report.Range }

// Within is the aim of bounds within a range.
func Within(r report.Range) Aim { return Aim{r, r} }

// Mean is the aim of a mean within a range, whatever its bounds.
func Mean(r report.Range) Aim { return Aim{r, report.Anything()} }

// Claim is one statement about the pairs of a spec.
type Claim struct {
	ID, What, Unit string
	// Value is the claim's value in one pair, NaN if it was not measured.
	Value func(p Pair) float64
	// Met and Order are the aims of the verdicts of these names.
	Met, Order Aim
	// Every requires each value, not only their mean, to lie within Met.Mean.
	Every bool
}

// Of is the value of a figure of one variant.
func Of(variant, figure string) func(Pair) float64 {
	return func(p Pair) float64 { return p.figure(variant, figure) }
}

// Change is the difference of a figure between two variants in percent of the second.
func Change(figure, ours, theirs string) func(Pair) float64 {
	return func(p Pair) float64 { return 100 * (p.figure(ours, figure)/p.figure(theirs, figure) - 1) }
}

// Gap is the difference of a figure between two variants.
func Gap(figure, ours, theirs string) func(Pair) float64 {
	return func(p Pair) float64 { return p.figure(ours, figure) - p.figure(theirs, figure) }
}

// Ratio is the ratio of two figures of one variant.
func Ratio(variant, above, below string) func(Pair) float64 {
	return func(p Pair) float64 { return p.figure(variant, above) / p.figure(variant, below) }
}

// figure is NaN where it was not measured.
func (p Pair) figure(variant, name string) float64 {
	if x, known := p[variant][name]; known {
		return x
	}
	return math.NaN()
}
