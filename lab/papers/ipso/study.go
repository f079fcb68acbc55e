// Package ipso is `powerlab paper ipso`: the results of IPSO (Li, Duan, Nguyen, Che, Lei, Jiang:
// "IPSO: A Scaling Model for Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's
// dissertation), computed by package jobs/scaling/ipso. The paper prints Table 2.1; for the other
// cases only slopes, a step and a bound, so measurements of that shape are generated, with noise, from seeds.
package ipso

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/spf13/cobra"

	"headroom/jobs/scaling/ipso"
	"headroom/jobs/scaling/regress"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// table21 is Table 2.1: collaborative filtering of fixed size, in seconds.
func table21() []ipso.Workloads {
	return []ipso.Workloads{
		{N: 10, Slowest: 209.0, Overhead: 5.5},
		{N: 30, Slowest: 79.3, Overhead: 17.7},
		{N: 60, Slowest: 43.7, Overhead: 36.0},
		{N: 90, Slowest: 31.1, Overhead: 54.3},
	}
}

// taskAlone is E[T_p,1(1)] as printed, s.
const taskAlone = 1602.5

// rules are what the study computes with; a mutant has a mistake in one.
type rules struct {
	// speedup is (2.16), measured (2.7).
	speedup  func(m ipso.Model, n float64) float64
	measured func(w ipso.Workloads) float64
	kind     func(m ipso.Model) ipso.Type
	peak     func(m ipso.Model) (int, float64, bool)
	table    func() []ipso.Workloads
	bound    func(m ipso.Model) (float64, bool)
	stepped  func(x, y []float64) (ipso.Stepped, error)
	overhead func(w ipso.Workloads) float64 // q(n) by (2.6) from a job's overhead
	fit      func(points []ipso.Point, held map[string]float64) (*ipso.Fitted, error)
}

func honest() rules {
	return rules{
		speedup: ipso.Model.Speedup, measured: ipso.Workloads.Speedup, kind: ipso.Model.Type, peak: ipso.Model.Peak, table: table21, bound: ipso.Model.Bound, stepped: ipso.FitStepped,
		overhead: func(w ipso.Workloads) float64 { return float64(w.N) * w.Overhead / taskAlone },
		fit:      ipso.Fit,
	}
}

// filtering is what is computed of Table 2.1.
type filtering struct {
	line     ipso.Line // W_o
	residual float64   // the largest of that line
	slope    regress.Estimate
	slowest  []float64 // a and b of a*n^b through E[max T]
	offset   []float64 // a, b and c of a*n^b + c
	points   []ipso.Point
	fitted   *ipso.Fitted // (2.16) with a fixed size, through the speed-ups alone
}

func (r rules) filter() (*filtering, error) {
	f := &filtering{}
	var n, wo, logN, logQ, slowest []float64
	for _, w := range r.table() {
		w.Parallel = taskAlone
		n, wo, slowest = append(n, float64(w.N)), append(wo, w.Overhead), append(slowest, w.Slowest)
		logN, logQ = append(logN, math.Log(float64(w.N))), append(logQ, math.Log(r.overhead(w)))
		f.points = append(f.points, ipso.Point{N: w.N, Speedup: r.measured(w)})
	}
	var q ipso.Line
	errs := make([]error, 5)
	f.line, errs[0] = ipso.FitLine(n, wo)
	q, errs[1] = ipso.FitLine(logN, logQ)
	f.slowest, errs[2] = curve(n, slowest, []float64{taskAlone, -1})
	f.offset, errs[3] = curve(n, slowest, []float64{taskAlone, -1, 0}, []float64{taskAlone, -0.9, 3})
	f.fitted, errs[4] = r.fit(f.points, map[string]float64{"delta": 0})
	for i := range n {
		f.residual = max(f.residual, math.Abs(wo[i]-f.line.At(n[i])))
	}
	f.slope = q.Slope
	return f, errors.Join(errs...)
}

// curve fits a*n^b, or a*n^b + c where the starts have three values, by least squares.
func curve(n, y []float64, starts ...[]float64) ([]float64, error) {
	all := []regress.Parameter{{Name: "a", Low: 0, High: 1e6}, {Name: "b", Low: -5, High: 5}, {Name: "c", Low: -100, High: 100}}
	fit, err := regress.Solve(regress.Problem{
		Parameters: all[:len(starts[0])],
		Rows:       len(n), Y: func(i int) float64 { return y[i] },
		Model: func(p []float64, i int) float64 {
			x := p[0] * math.Pow(n[i], p[1])
			if len(p) > 2 {
				x += p[2]
			}
			return x
		},
		Starts: starts,
	})
	if err != nil {
		return nil, err
	}
	return fit.Values(), nil
}

// speedup is (2.18) with the curves through Table 2.1.
func (f *filtering) speedup(n float64) float64 {
	return taskAlone / (f.slowest[0]*math.Pow(n, f.slowest[1]) + f.line.At(n))
}

// program is a MapReduce program of section 2.5.1: its parallel part at n = 1, and how its serial work grows.
type program struct {
	name     string
	eta      float64
	in       func(n float64) float64
	from, to int // the degrees that it is fitted on
}

// TeraSort's reducer no longer fits its memory at this degree, and its serial work steps up.
const (
	teraStep  = 15
	teraBelow = 0.15
	teraAbove = 0.25
	teraJump  = 1.3
	teraRatio = 4.3
	teraBound = 3.0
)

// programs are the four. The slopes of TeraSort are printed. That of Sort is not: 0.5 is from Fig. 2.6's order. WordCount and QMC have
// IN = 1, and QMC no serial work.
func programs() []program {
	tera := func(n float64) float64 {
		if n < teraStep {
			return 1 + teraBelow*(n-1)
		}
		return teraJump*(1+teraBelow*(teraStep-1)) + teraAbove*(n-teraStep)
	}
	return []program{
		{"wordcount", 0.9, func(float64) float64 { return 1 }, 1, 16},
		{"qmc", 1, func(float64) float64 { return 0 }, 1, 16},
		{"sort", 0.5, func(n float64) float64 { return 1 + 0.5*(n-1) }, 1, 16},
		{"terasort", 0.317, tera, 16, 64},
	}
}

const (
	noise     = 0.02 // the deviation of measured times, as a part of them
	degreeFar = 160  // what is predicted: the largest of Fig. 2.7
)

func degrees() []int { return []int{1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 56, 64} }

// measure draws a program's workloads at all degrees, as means of repeated runs are.
func (p *program) measure(r *rand.Rand) (all []ipso.Workloads) {
	off := func() float64 { return math.Exp(noise * r.NormFloat64()) }
	for _, n := range degrees() {
		w := ipso.Workloads{N: n, Parallel: 100 * p.eta * float64(n) * off(), Serial: 100 * (1 - p.eta) * p.in(float64(n)) * off()}
		w.Slowest = w.Parallel / float64(n) * 1.05
		all = append(all, w)
	}
	return all
}

// predicted is by how many percent the speed-up at the far degree is missed by the factors that were fitted on degrees from and to, and by
// Gustafson's law. The workloads at n = 1 are always known.
func (r rules) predicted(p *program, from, to int, random *rand.Rand) (ours, gustafson float64, err error) {
	var n, ex, in []float64
	all := p.measure(random)
	base := all[0]
	for _, w := range all {
		if w.N < from || w.N > to {
			continue
		}
		n, ex = append(n, float64(w.N)), append(ex, w.Parallel/base.Parallel)
		if p.eta < 1 {
			in = append(in, w.Serial/base.Serial)
		}
	}
	eta := base.Parallel / (base.Parallel + base.Serial)
	lineEX, err := ipso.FitLine(n, ex)
	var lineIN ipso.Stepped
	if err == nil && p.eta < 1 {
		lineIN, err = r.stepped(n, in)
	}
	w := ipso.Workloads{Parallel: eta * lineEX.At(degreeFar), Serial: (1 - eta) * lineIN.Above.At(degreeFar)}
	w.Slowest = w.Parallel / degreeFar * base.Slowest / base.Parallel
	truth := ipso.Workloads{Parallel: 100 * p.eta * degreeFar, Slowest: 105 * p.eta, Serial: 100 * (1 - p.eta) * p.in(degreeFar)}.Speedup()
	return 100 * math.Abs(r.measured(w)/truth-1), 100 * math.Abs(r.speedup(ipso.Gustafson(eta), degreeFar)/truth-1), err
}

// NewCommand is `powerlab paper ipso`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "ipso", Seeds: 20,
		Short: "How data-intensive jobs scale out (IPSO)",
		Long: `Computes IPSO's results: the laws that are its special cases, the scaling types with their bounds, Table 2.1 with its
peak, TeraSort's step, and predictions ten times beyond the measured range. Table 2.1 is the paper's own. The paper does
not print its other measurements; they are generated from the printed slopes, with noise drawn from the seed.`,
		Run: func(_ context.Context, o *papers.Options) (*papers.Result, error) {
			targets, err := honest().judged(o.Seed, o.Seeds)
			return &papers.Result{Targets: targets}, err
		},
	}.Command()
}

const (
	identity = 1e-12 // what rounding may miss of an exact identity
	printed  = 0.03  // what the printed digits and the unnamed family of curves leave
	models   = 300   // are drawn for each seed
	farMost  = 10    // percent that a prediction at ten times the degree may miss
)

// trial is what a seed gives: values of targets by their ids, and what Gustafson's law misses by the names of programs.
type trial map[string]float64

func (r rules) trial(seed uint64) (trial, error) {
	t := trial{}
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	r.draw(t, random(1))
	if err := r.tera(t, random(2)); err != nil {
		return nil, err
	}
	for _, p := range programs() {
		var err error
		if t["E6/"+p.name], t[p.name], err = r.predicted(&p, p.from, p.to, random(3)); err != nil {
			return nil, err
		}
	}
	blind, _, err := r.predicted(&programs()[3], 1, teraStep-1, random(3))
	if err != nil {
		return nil, err
	}
	t["E6/blind"], t["E6/gustafson"] = blind-t["E6/terasort"], min(t["sort"], t["terasort"])
	t["E7/recognised"], err = r.recognise(random(4))
	return t, err
}

// draw compares models with what is known of them in closed form.
func (r rules) draw(t trial, random *rand.Rand) {
	pick := func(values ...float64) float64 { return values[random.IntN(len(values))] }
	worst := func(id string, x float64) { t[id] = max(t[id], x) }
	right := 0
	for range models {
		n, eta, growth := float64(2+random.IntN(5000)), 0.01+0.98*random.Float64(), random.Float64()
		g := math.Pow(n, growth)
		for _, x := range []struct {
			m    ipso.Model
			want float64
		}{
			{ipso.Amdahl(eta), 1 / (eta/n + 1 - eta)},
			{ipso.Gustafson(eta), eta*n + 1 - eta},
			{ipso.SunNi(eta, growth), (eta*g + 1 - eta) / (eta*g/n + 1 - eta)},
		} {
			worst("E1/laws", math.Abs(r.speedup(x.m, n)/x.want-1))
		}
		m := ipso.Model{
			Eta: pick(0.3, 0.9, 1), Alpha: 0.5 + 4*random.Float64(), Delta: pick(0, 0.4, 1),
			Beta: pick(0, 0.01, 0.5), Gamma: pick(0, 0.5, 1, 1.5),
		}
		if r.asymptotic(m) {
			right++
		}
		if b, ok := r.bound(m); ok {
			worst("E2/bounds", 100*math.Abs(r.speedup(m, 1e15)/b-1))
		}
		beta, gamma := math.Pow(10, -1-3*random.Float64()), 1.3+1.5*random.Float64()
		if want := math.Pow(1/(beta*(gamma-1)), 1/gamma); want > 10 {
			got, _, _ := r.peak(ipso.Model{Eta: 1, Alpha: 1, Beta: beta, Gamma: gamma})
			worst("E2/peaks", math.Abs(float64(got)-want))
		}
	}
	t["E2/types"] = 100 * float64(right) / models
}

// asymptotic reports whether the speed-up grows from n = 1e15 to 1e18 as its type requires.
func (r rules) asymptotic(m ipso.Model) bool {
	growth := math.Log(r.speedup(m, 1e18)/r.speedup(m, 1e15)) / math.Log(1e3)
	switch r.kind(m) {
	case ipso.Linear:
		return growth > 0.99
	case ipso.Unbounded:
		return growth > 0.05 && growth < 0.99
	case ipso.BoundedSerial, ipso.BoundedOverhead:
		return math.Abs(growth) < 1e-3
	case ipso.Peaked:
		return growth < -0.05
	}
	return false
}

// tera finds TeraSort's step in measurements with noise.
func (r rules) tera(t trial, random *rand.Rand) error {
	var x, y []float64
	all := programs()[3].measure(random)
	for _, w := range all {
		x, y = append(x, float64(w.N)), append(y, w.Serial/all[0].Serial)
	}
	s, err := r.stepped(x, y)
	t["E5/step"], t["E5/above"] = float64(s.From), s.Above.Slope.Value
	if s.From > 0 {
		t["E5/below"], t["E5/jump"] = s.Below.Slope.Value, 100*(s.Above.At(teraStep)/s.Below.At(teraStep)-1)
	}
	return err
}

// recognise fits noisy speed-ups of each type and counts whose type is found.
func (r rules) recognise(random *rand.Rand) (percent float64, err error) {
	all := []ipso.Model{
		ipso.Amdahl(0.95), ipso.SunNi(0.9, 0.5),
		{Eta: 1, Alpha: 1, Delta: 1},
		{Eta: 1, Alpha: 1, Delta: 1, Beta: 0.001, Gamma: 2},
		{Eta: 0.98, Alpha: 1, Beta: 0.001, Gamma: 2},
	}
	right := 0
	for _, m := range all {
		var points []ipso.Point
		for _, n := range []int{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128} {
			points = append(points, ipso.Point{N: n, Speedup: m.Speedup(float64(n)) * math.Exp(noise*random.NormFloat64())})
		}
		f, err := r.fit(points, nil)
		if err != nil {
			return 0, err
		}
		if f.Type() == m.Type() {
			right++
		}
	}
	return 100 * float64(right) / float64(len(all)), nil
}

// study is the targets that are judged, from the trials.
type study struct {
	trials []trial
	all    []report.Target
}

// add judges a value, and against the paper's number where there is a range.
func (s *study) add(id, what, unit string, got report.Stat, ordered bool, note string, paper float64, within ...report.Range) {
	t := report.Judge(id, what, unit, got, ordered, note)
	if len(within) > 0 {
		t = report.From(paper, within[0], t)
	}
	s.all = append(s.all, t)
}

func (s *study) over(id string) report.Stat {
	return report.Over(s.trials, func(t trial) float64 { return t[id] })
}

// judged runs and judges everything, E1 to E7, on so many seeds.
func (r rules) judged(seed uint64, seeds int) ([]report.Target, error) {
	table, err := r.filter()
	if err != nil {
		return nil, err
	}
	s := &study{trials: make([]trial, seeds)}
	if err := papers.Each(seeds, func(i int) (err error) {
		s.trials[i], err = r.trial(seed + uint64(i))
		return err
	}, func(int) {}); err != nil {
		return nil, err
	}
	bound, _ := r.bound(ipso.Model{Eta: 2 / 6.3, Alpha: teraRatio})
	s.closed(bound)
	s.filtered(table)
	s.predictions()
	return s.all, nil
}

// closed are E1 and E2: identities, types and bounds.
func (s *study) closed(bound float64) {
	laws, types, bounds, peaks := s.over("E1/laws"), s.over("E2/types"), s.over("E2/bounds"), s.over("E2/peaks")
	s.add("E1/laws", "(2.12): largest relative deviation of Amdahl's, Gustafson's and Sun-Ni's laws as special cases", "", laws, laws.High < identity, "exact but for rounding", 0)
	s.add("E2/types", "types I to IV: models that grow as their type says", "%", types, types.Mean > 50, fmt.Sprintf("%d models a seed", models), 100, report.AtLeast(100))
	s.add("E2/bounds", "bounds of III,1 and III,2: largest deviation of the speed-up at n = 1e15", "%", bounds, bounds.Mean < 10, "", 0, report.AtMost(0.1))
	s.add("E2/peaks", "(2.17): largest distance of the peak from (1/(beta(gamma-1)))^(1/gamma)", "", peaks, peaks.Mean < 10, "the nearest whole number", 0, report.AtMost(1))
	s.add("E2/terasort", "bound of TeraSort by III,1 with EX/IN = 4.3", "", report.Once(bound), bound > 1, "eta = 0.317 follows from the bound, it is not printed",
		teraBound, report.Around(teraBound, 0.01))
}

// filtered are E3 and E4: Table 2.1, and what the fit makes of its four speed-ups alone.
func (s *study) filtered(t *filtering) {
	const curves = "the paper does not name its curve"
	slope := report.Stat{Mean: t.slope.Value, Low: t.slope.Low, High: t.slope.High, Known: true}
	overhead := report.Stat{Mean: t.line.Slope.Value, Low: t.line.Slope.Low, High: t.line.Slope.High, Known: true}
	at, most := 0, 0.0
	for k := 1; k <= 1000; k++ {
		if x := t.speedup(float64(k)); x > most {
			at, most = k, x
		}
	}
	one, offset := t.slowest[0], t.offset[0]+t.offset[2]
	s.add("E3/gamma", "slope of q in logarithms: gamma", "", slope, slope.Mean > 1, "above 1: type IV", 2, report.Around(2, 2*printed))
	s.add("E3/overhead", "W_o for each unit", "s", overhead, overhead.Low > 0, fmt.Sprintf("W_o = %.2f n %+.2f", t.line.Slope.Value, t.line.Intercept.Value),
		0.61, report.Around(0.61, 0.61*printed))
	s.add("E3/residual", "largest residual of that line", "s", report.Once(t.residual), t.residual < 0.1, "to be below 0.1", 0)
	s.add("E3/alone", "E[T_p,1(1)] extrapolated by a*n^b", "s", report.Once(one), one > 1000, curves, taskAlone, report.Around(taskAlone, taskAlone*printed))
	s.add("E3/alone-offset", "E[T_p,1(1)] extrapolated by a*n^b + c", "s", report.Once(offset), offset > 1000, curves, taskAlone, report.Around(taskAlone, taskAlone*printed))
	s.add("E4/peak", "largest speed-up", "", report.Once(most), most > t.speedup(10) && most > t.speedup(200), "by (2.18) with the fitted curves", 21, report.Range{Low: 20, High: 21})
	s.add("E4/at", "degree of the largest speed-up", "", report.Once(float64(at)), at > 30 && at < 90, "", 60, report.Around(60, 5))
	for _, x := range []struct{ n, want float64 }{{120, 16.6}, {200, 11.7}} {
		n, got := strconv.Itoa(int(x.n)), t.speedup(x.n)
		s.add("E4/"+n, "speed-up at "+n, "", report.Once(got), got < most, "beyond the peak, lower", x.want, report.Around(x.want, x.want*printed))
	}
	for i, want := range []float64{7.471, 16.521, 20.107, 18.765} {
		n, got := strconv.Itoa(t.points[i].N), t.points[i].Speedup
		s.add("E4/measured-"+n, "measured speed-up at "+n, "", report.Once(got), got > 1, "", want, report.Around(want, 1e-3))
	}
	n, peak, ok := t.fitted.Peak()
	s.add("E4/fit-peak", "largest speed-up, fitted to the four speed-ups alone", "", report.Once(peak), ok, "type "+string(t.fitted.Type())+", to be IV", 21, report.Range{Low: 20, High: 21})
	s.add("E4/fit-at", "its degree", "", report.Once(float64(n)), ok, "", 60, report.Around(60, 5))
}

// predictions are E5 to E7: the step of TeraSort's serial work, predictions far beyond the measured degrees, and types from noisy speed-ups.
func (s *study) predictions() {
	for _, x := range []struct {
		id, what, unit string
		paper, by      float64
	}{
		{"E5/step", "TeraSort: degree at which IN steps up", "", teraStep, 2},
		{"E5/below", "TeraSort: slope of IN before", "", teraBelow, 0.02},
		{"E5/above", "TeraSort: slope of IN after", "", teraAbove, 0.02},
		{"E5/jump", "TeraSort: by how much IN steps up", "%", 30, 5},
	} {
		got := s.over(x.id)
		s.add(x.id, x.what, x.unit, got, got.Mean > 0, fmt.Sprintf("drawn with %.0f %% of noise", 100*noise), x.paper, report.Around(x.paper, x.by))
	}
	for _, p := range programs() {
		ours := s.over("E6/" + p.name)
		s.add("E6/"+p.name, fmt.Sprintf("%s: by how much the speed-up at %d is missed, fitted on %d to %d", p.name, degreeFar, p.from, p.to), "%", ours, ours.Mean < farMost,
			fmt.Sprintf("to be below %d; Gustafson's law misses it by %.0f %%", farMost, s.over(p.name).Mean), 0)
	}
	law, blind, recognised := s.over("E6/gustafson"), s.over("E6/blind"), s.over("E7/recognised")
	s.add("E6/gustafson", "sort and terasort: by how much Gustafson's law misses the speed-up, the better case", "%", law, law.Low > 100, "the paper: it fails; here to be above 100", 0)
	s.add("E6/blind", "terasort: by how much more it is missed when fitted below the step", "points", blind, blind.Low > 0, "the paper: the fit must be from beyond the step", 0)
	s.add("E7/recognised", "ours: types found from 12 speed-ups with noise", "%", recognised, recognised.Mean >= 80, "goal: 80", 0)
}
