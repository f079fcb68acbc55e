package arbitration

import (
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/lab/report"
)

// At equal cost: a member gives up no more tasks than the baseline, but for qualitySlack, and takes no more joules, but
// for joulesSlack of them. Members are chosen by half of that of energy where one is, since other seeds give other figures.
const (
	qualitySlack = 0.005
	joulesSlack  = 0.01
)

// figure is a figure of a run as it is printed and judged.
type figure struct {
	head, name string
	// scale turns it into the column's unit, which is printed with so many digits.
	scale  float64
	digits int
	// sign is 1 if less is better, -1 if more is; 0 if it is not judged.
	sign float64
	// slack is the difference that counts as level, absolute or as a part of the baseline's.
	slack    float64
	relative bool
}

func figures() []figure {
	return []figure{
		{head: "URGENT", name: UrgentMean, scale: 1, digits: 1, sign: 1},
		{head: "P95", name: UrgentP95, scale: 1, digits: 1, sign: 1},
		{head: "MISSED", name: UrgentMissed, scale: 100, digits: 1, sign: 1},
		{head: "TOLERANT", name: TolerantMean, scale: 1, sign: 1},
		{head: "P95", name: TolerantP95, scale: 1, sign: 1},
		{head: "QUALITY", name: TolerantQuality, scale: 100, digits: 1, sign: -1, slack: qualitySlack},
		{head: "ENERGY", name: EnergyJ, scale: 1e-3, sign: 1, slack: joulesSlack, relative: true},
		{head: "PER TASK", name: energyPerTaskJ, scale: 1},
		{head: "SPRINTS", name: SprintJ, scale: 1e-3, digits: 1},
		{head: "WEIGHTED", name: WeightedS, scale: 1, digits: 2},
	}
}

// judgedFigures are those that are judged.
func judgedFigures() []figure {
	return slices.DeleteFunc(figures(), func(f figure) bool { return f.sign == 0 })
}

// Standing is how the member stands against a baseline in one figure.
type Standing string

// The standings.
const (
	Ahead  Standing = "ahead"
	Level  Standing = "level"
	Behind Standing = "behind"
)

// Judged is one figure of a baseline against the member of our family at its cost.
type Judged struct {
	Baseline string `json:"baseline"`
	Member   string `json:"member"`
	Figure   string `json:"figure"`
	// Behind is by how much the member is worse, seed by seed; below 0: better.
	Behind report.Stat `json:"behind"`
	// Verdict is ahead or behind where the difference lies on one side of 0, beyond the slack of the figure, by bounds
	// that hold for all figures of a load at once (see Answer.judge). Met: it is not behind.
	Verdict Standing `json:"verdict"`
	Met     bool     `json:"met"`
	Note    string   `json:"note"`
}

// Verdict is the sum of the figures against one baseline.
type Verdict struct {
	Baseline string `json:"baseline"`
	Member   string `json:"member"`
	// Verdict is met where the member is ahead in some figure and behind in none, order where it is level in all, and
	// short where it is behind in some.
	Verdict string `json:"verdict"`
	Ahead   int    `json:"ahead"`
	Behind  int    `json:"behind"`
}

// aheadLeast is in how many of the figures the arbiter must be ahead of some baseline.
const aheadLeast = 3

// choose picks the member of the family that stands against a baseline, by their results on the tuning seeds. For
// each reserve, the price of quality is fitted to the baseline's quality, as low as qualitySlack lets it be.
func (c contest) choose(run func([]variant) ([]Result, error), baseline *Result) (chosen variant, note string, err error) {
	var members []variant
	for _, keep := range c.reserves {
		var of []variant
		for _, p := range c.prices {
			of = append(of, c.member(p, keep))
		}
		results, err := run(of)
		if err != nil {
			return chosen, "", err
		}
		members = append(members, of...)
		if p, ok := fit(of, results, baseline.Figures[TolerantQuality].Mean-0.8*qualitySlack); ok {
			members = append(members, c.member(p, keep))
		}
	}
	results, err := run(members)
	if err != nil {
		return chosen, "", err
	}
	at, note := best(baseline, results)
	return members[at], note, nil
}

// fit returns the price at which members give up no more than quality leaves: between two neighbours whose qualities
// are above and below it, on a line over the logarithm of the price. False where none is below it.
func fit(members []variant, results []Result, quality float64) (time.Duration, bool) {
	for i := 1; i < len(members); i++ {
		above, below := results[i-1].Figures[TolerantQuality].Mean, results[i].Figures[TolerantQuality].Mean
		if above < quality || below >= quality || above == below {
			continue
		}
		from, to := members[i-1].price.Seconds(), members[i].price.Seconds()
		if members[i-1].price == noPrice {
			from = 2 * to // about where the first task is given up
		}
		x := math.Exp(math.Log(to) + (math.Log(from)-math.Log(to))*(quality-below)/(above-below))
		return time.Duration(math.Ceil(100*x)) * 10 * time.Millisecond, true
	}
	return 0, false
}

// best returns the member at a baseline's cost whose worst time is best beside the baseline's. At its cost is a member
// that gives up no more tasks, and takes no more energy and joules of sprints, all within what counts as equal: for both
// kinds of joules a part of all that the baseline takes, since a sprint that costs no more than that is no spending.
// Where none is at its cost, joules of sprints count least, and quality most.
func best(baseline *Result, members []Result) (at int, note string) {
	quality := func(m *Result) bool { return m.more(TolerantQuality, baseline) >= -qualitySlack }
	within := func(figure string, slack float64) func(m *Result) bool {
		return func(m *Result) bool { return m.more(figure, baseline) <= slack*baseline.Figures[EnergyJ].Mean }
	}
	energy, sprints := within(EnergyJ, joulesSlack/2), within(SprintJ, joulesSlack)
	for _, level := range []struct {
		note string
		all  []func(m *Result) bool
	}{
		{"at equal quality, energy and joules of sprints", []func(m *Result) bool{quality, energy, sprints}},
		{"at equal quality and energy; no member takes as few joules of sprints", []func(m *Result) bool{quality, energy}},
		{"at equal quality and energy; no member takes as few joules of sprints", []func(m *Result) bool{quality, within(EnergyJ, joulesSlack)}},
		{"at equal quality; no member takes as little energy", []func(m *Result) bool{quality}},
		{"no member gives up as few tasks", nil},
	} {
		least := math.Inf(1)
		at = -1
		for i := range members {
			m := &members[i]
			fits := !slices.ContainsFunc(level.all, func(f func(m *Result) bool) bool { return !f(m) })
			if x := m.worst(baseline); fits && x < least {
				least, at = x, i
			}
		}
		if at >= 0 {
			return at, level.note
		}
	}
	return 0, "nothing is known of the baseline"
}

// more returns by how much more the member has of a figure than a baseline; 0 where one does not have it.
func (m *Result) more(figure string, baseline *Result) float64 {
	x, known := m.Figures[figure]
	y, too := baseline.Figures[figure]
	if !known || !too {
		return 0
	}
	return x.Mean - y.Mean
}

// worst returns the time of the member that is worst beside the baseline's, as a part of that.
func (m *Result) worst(baseline *Result) float64 {
	worst := 0.0
	for _, name := range []string{UrgentMean, UrgentP95, TolerantMean, TolerantP95} {
		if x, y := m.Figures[name], baseline.Figures[name]; y.Mean > 0 {
			worst = max(worst, x.Mean/y.Mean)
		}
	}
	return worst
}

// judge holds a member against a baseline, seed by seed. It is one of so many baselines: the bounds that decide hold
// for all their figures at once with the confidence of one (Bonferroni), since of 70 figures that are level, two or
// three would else be called ahead or behind by chance.
func (a *Answer) judge(baseline, member *Result, note string, baselines int) {
	v, all := Verdict{Baseline: baseline.Name, Member: member.Name}, judgedFigures()
	for _, f := range all {
		ours, theirs := member.each[f.name], baseline.each[f.name]
		if len(ours) < 2 || len(ours) != len(theirs) {
			continue // the load has no such class, or not in every seed
		}
		each, slack := f.behind(ours, theirs), f.slack
		if f.relative {
			slack *= meanOf(theirs)
		}
		j := Judged{Baseline: baseline.Name, Member: member.Name, Figure: f.name, Behind: report.Of(each), Note: note}
		j.Verdict = standing(report.Within(each, 1-(1-report.Confidence)/float64(baselines*len(all))), slack)
		if j.Met = j.Verdict != Behind; !j.Met {
			j.Note = fmt.Sprintf("%s; by %s", note, j.Behind)
			v.Behind++
		}
		if j.Verdict == Ahead {
			v.Ahead++
		}
		a.Judged = append(a.Judged, j)
	}
	switch {
	case v.Behind > 0:
		v.Verdict = "short"
	case v.Ahead == 0:
		v.Verdict = "order"
	default:
		v.Verdict = "met"
	}
	a.Verdicts = append(a.Verdicts, v)
}

// standing is the verdict on a difference with such bounds.
func standing(f report.Stat, slack float64) Standing {
	switch {
	case f.Low > slack:
		return Behind
	case f.High < -slack:
		return Ahead
	}
	return Level
}

// behind returns by how much ours is worse, seed by seed.
func (f *figure) behind(ours, theirs []float64) []float64 {
	each := make([]float64, len(ours))
	for i := range each {
		each[i] = f.sign * (ours[i] - theirs[i])
	}
	return each
}
