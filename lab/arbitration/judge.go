package arbitration

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/lab/report"
	"headroom/units"
)

// At equal cost: what a member may give up and take more than the baseline. Members are chosen by half of joulesSlack where one is.
const (
	qualitySlack = 0.005
	joulesSlack  = 0.01
)

// figure is a figure of a run that is judged.
type figure struct {
	name     string
	sign     float64 // 1 if less is better, -1 if more is
	slack    float64 // the difference that counts as level, absolute or as a part of the baseline's
	relative bool
}

func judgedFigures() []figure {
	return []figure{
		{name: UrgentMean, sign: 1},
		{name: UrgentP95, sign: 1},
		{name: UrgentMissed, sign: 1},
		{name: TolerantMean, sign: 1},
		{name: TolerantP95, sign: 1},
		{name: TolerantQuality, sign: -1, slack: qualitySlack},
		{name: EnergyJ, sign: 1, slack: joulesSlack, relative: true},
	}
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
	Baseline string      `json:"baseline"`
	Member   string      `json:"member"`
	Figure   string      `json:"figure"`
	Behind   report.Stat `json:"behind"`  // by how much the member is worse, seed by seed; below 0: better
	Verdict  Standing    `json:"verdict"` // ahead or behind where that is beyond the slack of the figure, see Answer.judge
	Met      bool        `json:"met"`     // it is not behind
	Note     string      `json:"note"`
}

// Verdict is the sum of the figures against one baseline: met where the member is ahead in some figure and behind in none, order
// where it is level in all, and short where it is behind in some.
type Verdict struct {
	Baseline string `json:"baseline"`
	Member   string `json:"member"`
	Verdict  string `json:"verdict"`
	Ahead    int    `json:"ahead"`
	Behind   int    `json:"behind"`
}

// choose picks the member of the family that stands against a baseline, by their results on the tuning seeds. For
// each reserve, the price of quality is fitted to the baseline's quality, as low as qualitySlack lets it be.
func (c *contest) choose(ctx context.Context, t *tuning, baseline *Result) (chosen variant, note string) {
	var members []variant
	for _, keep := range c.reserves {
		var of []variant
		for _, p := range c.prices {
			of = append(of, c.member(p, keep))
		}
		members = append(members, of...)
		if p, ok := fit(of, t.run(ctx, of), baseline.Figures[TolerantQuality].Mean-0.8*qualitySlack); ok {
			members = append(members, c.member(p, keep))
		}
	}
	at, note := best(baseline, t.run(ctx, members))
	return members[at], note
}

// fit returns the price between two neighbours whose qualities are above and below one, on a line over the logarithm of the price.
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

// best returns the member at a baseline's cost whose worst time is best beside the baseline's. Both kinds of joules are equal within a part
// of all that the baseline takes. Where none is at its cost, joules of sprints count least, and quality most.
func best(baseline *Result, members []Result) (at int, note string) {
	const noSprints = "at equal quality and energy; no member takes as few joules of sprints"
	all, inf := baseline.Figures[EnergyJ].Mean, math.Inf(1)
	for _, level := range []struct {
		note                     string
		quality, energy, sprints float64
	}{
		{"at equal quality, energy and joules of sprints", qualitySlack, joulesSlack / 2 * all, all * joulesSlack},
		{noSprints, qualitySlack, joulesSlack / 2 * all, inf},
		{noSprints, qualitySlack, joulesSlack * all, inf},
		{"at equal quality; no member takes as little energy", qualitySlack, inf, inf},
		{"no member gives up as few tasks", inf, inf, inf},
	} {
		least := math.Inf(1)
		for i := range members {
			m := &members[i]
			fits := m.more(TolerantQuality, baseline) >= -level.quality && m.more(EnergyJ, baseline) <= level.energy && m.more(SprintJ, baseline) <= level.sprints
			if x := m.worst(baseline); fits && x < least {
				least, at, note = x, i, level.note
			}
		}
		if note != "" {
			break
		}
	}
	return at, note
}

func (m *Result) more(figure string, baseline *Result) float64 {
	return m.Figures[figure].Mean - baseline.Figures[figure].Mean
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

// judge holds a member against a baseline, seed by seed. It is one of so many baselines: the bounds that decide hold for all their
// figures at once (Bonferroni).
func (a *Answer) judge(baseline, member *Result, note string, baselines int) {
	v, all := Verdict{Baseline: baseline.Name, Member: member.Name}, judgedFigures()
	for _, f := range all {
		ours, theirs := member.each[f.name], baseline.each[f.name]
		if len(ours) < 2 || len(ours) != len(theirs) {
			continue // the load has no such class, or not in every seed
		}
		each, slack := less(ours, theirs, f.sign), f.slack
		if f.relative {
			slack *= meanOf(theirs)
		}
		j := Judged{Baseline: baseline.Name, Member: member.Name, Figure: f.name, Behind: report.Of(each), Verdict: Level, Met: true, Note: note}
		switch bounds := report.Within(each, 1-(1-report.Confidence)/float64(baselines*len(all))); {
		case bounds.Low > slack:
			j.Verdict, j.Met, j.Note = Behind, false, fmt.Sprintf("%s; by %s", note, j.Behind)
			v.Behind++
		case bounds.High < -slack:
			j.Verdict = Ahead
			v.Ahead++
		}
		a.Judged = append(a.Judged, j)
	}
	if v.Verdict = "met"; v.Ahead == 0 {
		v.Verdict = "order"
	}
	if v.Behind > 0 {
		v.Verdict = "short"
	}
	a.Verdicts = append(a.Verdicts, v)
}

// less returns ours less theirs, seed by seed, times a sign.
func less(ours, theirs []float64, sign float64) (each []float64) {
	for i := range ours {
		each = append(each, sign*(ours[i]-theirs[i]))
	}
	return each
}

// shortfalls are the baselines that the arbiter is behind, and the load itself if the arbiter is ahead in fewer than three figures.
func (a *Answer) shortfalls() (out []string) {
	ahead, judged := map[string]bool{}, map[string]bool{}
	for _, j := range a.Judged {
		if judged[j.Figure] = true; j.Verdict == Ahead {
			ahead[j.Figure] = true
		}
		if !j.Met {
			out = append(out, fmt.Sprintf("%s behind %s in %s", a.Load, j.Baseline, j.Figure))
		}
	}
	if least := min(3, len(judged)); len(ahead) < least {
		out = append(out, fmt.Sprintf("%s ahead in %d figures of %d", a.Load, len(ahead), least))
	}
	return out
}

// Figures of a run, by name. A class without jobs has none.
const (
	UrgentMean      = "urgent_mean_s"
	UrgentP95       = "urgent_p95_s"
	UrgentMissed    = "urgent_missed"
	TolerantMean    = "tolerant_mean_s"
	TolerantP95     = "tolerant_p95_s"
	TolerantQuality = "tolerant_quality"
	EnergyJ         = "energy_j"
	SprintJ         = "sprint_j"
	energyPerTaskJ  = "energy_per_task_j"
	WeightedS       = "weighted_s"
)

// Served is a job that has ended: how long it took, and how many of its tasks it has computed and given up.
type Served struct {
	Job

	Took          time.Duration
	Done, Dropped int
}

// figures returns the figures of a run that has ended.
func (r *run) figures() map[string]float64 {
	var jobs []Served
	tasks := 0
	for _, j := range r.jobs {
		jobs = append(jobs, Served{j.Job, j.end - j.Arrival, j.done, j.dropped})
		tasks += j.done
	}
	out := FiguresOf(jobs)
	out[SprintJ], out[EnergyJ], out["sprints"], out["holds"] = r.spent, r.energy, float64(r.sprints), float64(r.holds)
	if tasks > 0 {
		out[energyPerTaskJ] = r.energy / float64(tasks)
	}
	return out
}

// FiguresOf returns the figures of a run's jobs: latencies, missed deadlines and quality by class, and the objective.
// A class without jobs has none.
func FiguresOf(jobs []Served) map[string]float64 {
	sum := 0.0
	for i := range jobs {
		sum += jobs[i].cost(jobs[i].Took, jobs[i].Dropped)
	}
	out := map[string]float64{WeightedS: sum / float64(max(1, len(jobs)))}
	for _, c := range []Class{Urgent, Tolerant} {
		var took []float64
		missed, due, done, all := 0, 0, 0, 0
		for i := range jobs {
			j := &jobs[i]
			if j.Class != c {
				continue
			}
			took = append(took, j.Took.Seconds())
			done, all = done+j.Done, all+j.Tasks
			if j.Deadline > 0 {
				due++
				if j.Took > j.Deadline {
					missed++
				}
			}
		}
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		name := string(c)
		out[name+"_mean_s"], out[name+"_p95_s"] = meanOf(took), took[min(len(took)-1, int(math.Ceil(0.95*float64(len(took))))-1)]
		out[name+"_quality"] = float64(done) / float64(all)
		if due > 0 {
			out[name+"_missed"] = float64(missed) / float64(due)
		}
	}
	return out
}

// The objective as the study states it, apart from the arbiter's own constants: what a second of the tolerant class counts of one of the
// urgent, what a second past a deadline counts on top, and the price of a percent of a job's tasks, s.
const (
	tolerantWeight = 1.0 / 20
	lateWeight     = 2
	percentPrice   = 3
)

// cost returns what a job costs that took so long and gave up so many tasks. The first task that it may give up costs
// half of the price, the last one and a half.
func (j *Job) cost(took time.Duration, dropped int) float64 {
	cost := took.Seconds()
	if j.Deadline > 0 {
		cost += lateWeight * max(0, (took-j.Deadline).Seconds())
	}
	if all := j.Tasks - units.Ratio(j.Floor).Least(j.Tasks); dropped > 0 && all > 0 {
		given := float64(dropped)
		cost += percentPrice * 100 / float64(j.Tasks) * (given/2 + given*given/2/float64(all))
	}
	if j.Class == Tolerant {
		cost *= tolerantWeight
	}
	return cost
}

func meanOf(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}
