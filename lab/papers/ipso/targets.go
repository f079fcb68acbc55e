package ipso

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"headroom/jobs/scaling/ipso"
	"headroom/lab/papers"
	"headroom/lab/report"
)

const (
	identity = 1e-12 // what rounding may miss of an exact identity
	printed  = 0.03  // what the printed digits and the unnamed family of curves leave
	models   = 300   // are drawn for each seed
	farMost  = 10    // percent that a prediction at ten times the degree may miss
)

// trial is what a seed gives: values of targets by their ids, and what Gustafson's law misses by the names of programs.
type trial map[string]float64

// trial runs the experiments of a seed.
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

// over is the value of a target over the seeds.
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
