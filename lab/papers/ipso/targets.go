package ipso

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"headroom/jobs/scaling/ipso"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// The streams of random numbers of a seed.
const (
	modelStream = iota + 1
	teraStream
	programStream
	noiseStream
)

// The tolerances.
const (
	// identity is what rounding may miss of an exact identity.
	identity = 1e-12
	// printed is what the printed digits and the unnamed family of curves leave: 3 %.
	printed = 0.03
	// models is how many are drawn for each seed.
	models = 300
)

// trial is what a seed gives.
type trial struct {
	deviation, types, bounds, peaks float64
	stepAt, below, above, jump      float64
	ours, gustafson                 map[string]float64
	blind                           float64
	recognised                      float64
}

// trial runs the experiments of a seed.
func (r rules) trial(seed uint64) (*trial, error) {
	t := &trial{ours: map[string]float64{}, gustafson: map[string]float64{}}
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	r.draw(t, random(modelStream))
	if err := r.tera(t, random(teraStream)); err != nil {
		return nil, err
	}
	for _, p := range programs() {
		ours, gustafson, err := r.predicted(&p, p.from, p.to, random(programStream))
		if err != nil {
			return nil, err
		}
		t.ours[p.name], t.gustafson[p.name] = ours, gustafson
		if p.name == "terasort" {
			if t.blind, _, err = r.predicted(&p, 1, teraStep-1, random(programStream)); err != nil {
				return nil, err
			}
		}
	}
	return t, r.recognise(t, random(noiseStream))
}

// draw compares models with what is known of them in closed form.
func (r rules) draw(t *trial, random *rand.Rand) {
	pick := func(values ...float64) float64 { return values[random.IntN(len(values))] }
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
			t.deviation = max(t.deviation, math.Abs(r.speedup(x.m, n)/x.want-1))
		}
		m := ipso.Model{
			Eta: pick(0.3, 0.9, 1), Alpha: 0.5 + 4*random.Float64(), Delta: pick(0, 0.4, 1),
			Beta: pick(0, 0.01, 0.5), Gamma: pick(0, 0.5, 1, 1.5),
		}
		if r.asymptotic(m) {
			right++
		}
		if b, ok := r.bound(m); ok {
			t.bounds = max(t.bounds, 100*math.Abs(r.speedup(m, 1e15)/b-1))
		}
		beta, gamma := math.Pow(10, -1-3*random.Float64()), 1.3+1.5*random.Float64()
		if want := math.Pow(1/(beta*(gamma-1)), 1/gamma); want > 10 {
			got, _, _ := r.peak(ipso.Model{Eta: 1, Alpha: 1, Beta: beta, Gamma: gamma})
			t.peaks = max(t.peaks, math.Abs(float64(got)-want))
		}
	}
	t.types = 100 * float64(right) / models
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
func (r rules) tera(t *trial, random *rand.Rand) error {
	p := programs()[3]
	var x, y []float64
	all := p.measure(random)
	for _, w := range all {
		x, y = append(x, float64(w.N)), append(y, w.Serial/all[0].Serial)
	}
	s, err := r.stepped(x, y)
	if err != nil {
		return err
	}
	t.stepAt, t.above = float64(s.From), s.Above.Slope.Value
	if s.From > 0 {
		t.below, t.jump = s.Below.Slope.Value, 100*(s.Above.At(teraStep)/s.Below.At(teraStep)-1)
	}
	return nil
}

// recognise fits noisy speed-ups of each type and counts whose type is found.
func (r rules) recognise(t *trial, random *rand.Rand) error {
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
			return err
		}
		if f.Type() == m.Type() {
			right++
		}
	}
	t.recognised = 100 * float64(right) / float64(len(all))
	return nil
}

// figures are what is judged.
type figures struct {
	rules
	table  *filtering
	trials []*trial
}

// run makes the experiments on so many seeds.
func (r rules) run(seed uint64, seeds int) (*figures, error) {
	table, err := r.filter()
	if err != nil {
		return nil, err
	}
	f := &figures{rules: r, table: table, trials: make([]*trial, seeds)}
	return f, papers.Each(seeds, func(i int) (err error) {
		f.trials[i], err = r.trial(seed + uint64(i))
		return err
	}, func(int) {})
}

func (f *figures) each(of func(*trial) float64) report.Stat { return report.Over(f.trials, of) }

// judged runs and judges everything.
func (r rules) judged(seed uint64, seeds int) ([]report.Target, error) {
	f, err := r.run(seed, seeds)
	if err != nil {
		return nil, err
	}
	return f.targets(), nil
}

// targets are E1 to E7.
func (f *figures) targets() []report.Target {
	return slices.Concat(f.closed(), f.filterTargets(), f.teraTargets(), f.predictTargets())
}

// closed are E1 and E2: identities, types and bounds.
func (f *figures) closed() []report.Target {
	deviation := f.each(func(t *trial) float64 { return t.deviation })
	types, bounds, peaks := f.each(func(t *trial) float64 { return t.types }), f.each(func(t *trial) float64 { return t.bounds }), f.each(func(t *trial) float64 { return t.peaks })
	tera := ipso.Model{Eta: 2 / 6.3, Alpha: teraRatio}
	bound, _ := f.bound(tera)
	return []report.Target{
		report.Judge("E1/laws", "(2.12): largest relative deviation of Amdahl's, Gustafson's and Sun-Ni's laws as special cases", "", deviation, deviation.High < identity, "exact but for rounding"),
		report.From(100, report.AtLeast(100), report.Judge("E2/types", "types I to IV: models that grow as their type says", "%", types, types.Mean > 50, fmt.Sprintf("%d models a seed", models))),
		report.From(0, report.AtMost(0.1), report.Judge("E2/bounds", "bounds of III,1 and III,2: largest deviation of the speed-up at n = 1e15", "%", bounds, bounds.Mean < 10, "")),
		report.From(0, report.AtMost(1), report.Judge("E2/peaks", "(2.17): largest distance of the peak from (1/(beta(gamma-1)))^(1/gamma)", "", peaks, peaks.Mean < 10, "the nearest whole number")),
		report.From(teraBound, report.Around(teraBound, 0.01), report.Judge("E2/terasort", "bound of TeraSort by III,1 with EX/IN = 4.3", "", report.Once(bound), bound > 1, "eta = 0.317 follows from the bound, it is not printed")),
	}
}

// filterTargets are E3 and E4: Table 2.1.
func (f *figures) filterTargets() []report.Target {
	t := f.table
	slope := report.Stat{Mean: t.slope.Value, Low: t.slope.Low, High: t.slope.High, Known: true}
	overhead := report.Stat{Mean: t.line.Slope.Value, Low: t.line.Slope.Low, High: t.line.Slope.High, Known: true}
	n, s := t.peak()
	all := []report.Target{
		report.From(2, report.Around(2, 2*printed), report.Judge("E3/gamma", "slope of q in logarithms: gamma", "", slope, slope.Mean > 1, "above 1: type IV")),
		report.From(0.61, report.Around(0.61, 0.61*printed), report.Judge("E3/overhead", "W_o for each unit", "s", overhead, overhead.Low > 0, fmt.Sprintf("W_o = %.2f n %+.2f", t.line.Slope.Value, t.line.Intercept.Value))),
		report.Judge("E3/residual", "largest residual of that line", "s", report.Once(t.residual), t.residual < 0.1, "to be below 0.1"),
		report.From(taskAlone, report.Around(taskAlone, taskAlone*printed), report.Judge("E3/alone", "E[T_p,1(1)] extrapolated by a*n^b", "s", report.Once(t.slowest.at(1)), t.slowest.at(1) > 1000, "the paper does not name its curve")),
		report.From(taskAlone, report.Around(taskAlone, taskAlone*printed), report.Judge("E3/alone-offset", "E[T_p,1(1)] extrapolated by a*n^b + c", "s", report.Once(t.alone), t.alone > 1000, "the paper does not name its curve")),
		report.From(21, report.Range{Low: 20, High: 21}, report.Judge("E4/peak", "largest speed-up", "", report.Once(s), s > t.speedup(10) && s > t.speedup(200), "by (2.18) with the fitted curves")),
		report.From(60, report.Around(60, 5), report.Judge("E4/at", "degree of the largest speed-up", "", report.Once(float64(n)), n > 30 && n < 90, "")),
	}
	for _, x := range []struct{ n, want float64 }{{120, 16.6}, {200, 11.7}} {
		got := t.speedup(x.n)
		all = append(all, report.From(x.want, report.Around(x.want, x.want*printed), report.Judge(fmt.Sprintf("E4/%.0f", x.n), fmt.Sprintf("speed-up at %.0f", x.n), "", report.Once(got), got < s, "beyond the peak, lower")))
	}
	for i, want := range []float64{7.471, 16.521, 20.107, 18.765} {
		p := t.points[i]
		all = append(all, report.From(want, report.Around(want, 1e-3), report.Judge(fmt.Sprintf("E4/measured-%d", p.N), fmt.Sprintf("measured speed-up at %d", p.N), "", report.Once(p.Speedup), p.Speedup > 1, "")))
	}
	return append(all, f.fitTargets()...)
}

// fitTargets are what the fit makes of the four speed-ups alone.
func (f *figures) fitTargets() []report.Target {
	n, s, ok := f.table.fitted.Peak()
	return []report.Target{
		report.From(21, report.Range{Low: 20, High: 21}, report.Judge("E4/fit-peak", "largest speed-up, fitted to the four speed-ups alone", "", report.Once(s), ok, "type "+string(f.table.fitted.Type())+", to be IV")),
		report.From(60, report.Around(60, 5), report.Judge("E4/fit-at", "its degree", "", report.Once(float64(n)), ok, "")),
	}
}

// teraTargets are E5: the step of TeraSort's serial work.
func (f *figures) teraTargets() []report.Target {
	at, below, above, jump := f.each(func(t *trial) float64 { return t.stepAt }), f.each(func(t *trial) float64 { return t.below }), f.each(func(t *trial) float64 { return t.above }), f.each(func(t *trial) float64 { return t.jump })
	note := fmt.Sprintf("drawn with %.0f %% of noise", 100*noise)
	return []report.Target{
		report.From(teraStep, report.Around(teraStep, 2), report.Judge("E5/step", "TeraSort: degree at which IN steps up", "", at, at.Mean > 0, note)),
		report.From(teraBelow, report.Around(teraBelow, 0.02), report.Judge("E5/below", "TeraSort: slope of IN before", "", below, below.Mean > 0, note)),
		report.From(teraAbove, report.Around(teraAbove, 0.02), report.Judge("E5/above", "TeraSort: slope of IN after", "", above, above.Mean > 0, note)),
		report.From(30, report.Around(30, 5), report.Judge("E5/jump", "TeraSort: by how much IN steps up", "%", jump, jump.Mean > 0, note)),
	}
}

// farMost is by how many percent a prediction at ten times the degree may miss.
const farMost = 10

// predictTargets are E6 and E7: predictions far beyond the measured degrees, and types from noisy speed-ups.
func (f *figures) predictTargets() (all []report.Target) {
	for _, p := range programs() {
		ours, law := f.each(func(t *trial) float64 { return t.ours[p.name] }), f.each(func(t *trial) float64 { return t.gustafson[p.name] })
		all = append(all, report.Judge("E6/"+p.name, fmt.Sprintf("%s: by how much the speed-up at %d is missed, fitted on %d to %d", p.name, degreeFar, p.from, p.to), "%", ours, ours.Mean < farMost,
			fmt.Sprintf("to be below %d; Gustafson's law misses it by %.0f %%", farMost, law.Mean)))
	}
	tera := f.each(func(t *trial) float64 { return t.blind - t.ours["terasort"] })
	law := f.each(func(t *trial) float64 { return min(t.gustafson["sort"], t.gustafson["terasort"]) })
	recognised := f.each(func(t *trial) float64 { return t.recognised })
	return append(all,
		report.Judge("E6/gustafson", "sort and terasort: by how much Gustafson's law misses the speed-up, the better case", "%", law, law.Low > 100, "the paper: it fails; here to be above 100"),
		report.Judge("E6/blind", "terasort: by how much more it is missed when fitted below the step", "points", tera, tera.Low > 0, "the paper: the fit must be from beyond the step"),
		report.Judge("E7/recognised", "ours: types found from 12 speed-ups with noise", "%", recognised, recognised.Mean >= 80, "goal: 80"),
	)
}
