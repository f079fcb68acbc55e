package arbitration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"headroom/internal/cli"
	"headroom/jobs/arbiter"
	"headroom/jobs/scaling/runs"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// Result is the result of one policy.
type Result struct {
	Name    string                 `json:"name"`
	Says    string                 `json:"says"`
	Figures map[string]report.Stat `json:"figures"`

	each map[string][]float64
}

// Answer is the result of `powerlab arbitrate` on one load.
type Answer struct {
	Seed     uint64    `json:"seed"`
	Seeds    int       `json:"seeds"`
	Load     string    `json:"load"`
	Variants []Result  `json:"variants"`
	Judged   []Judged  `json:"judged"`   // each baseline against the member of our family at its cost, figure by figure
	Verdicts []Verdict `json:"verdicts"` // the sums of that, by baseline
}

// contest is who takes part in a study.
type contest struct {
	baselines []variant
	member    func(price time.Duration, keep reserve) variant // makes a member of the family
	prices    []time.Duration
	reserves  []reserve
	shown     []variant // always
}

type seedRange struct {
	first uint64
	count int
}

// tuning has the results on the seeds that timers and members are chosen on, by what a variant is, and the first error.
type tuning struct {
	load  *Load
	seeds seedRange
	known map[string]Result
	err   error
}

func (t *tuning) run(ctx context.Context, variants []variant) []Result {
	var fresh []variant
	for _, v := range variants {
		if _, ran := t.known[v.says]; !ran && !contains(fresh, v) {
			fresh = append(fresh, v)
		}
	}
	if t.err == nil {
		var results []Result
		results, t.err = runAll(ctx, t.load, fresh, t.seeds)
		for i := range results {
			t.known[results[i].Says] = results[i]
		}
	}
	out := make([]Result, len(variants))
	for i, v := range variants {
		out[i] = t.known[v.says]
	}
	return out
}

// measure runs the contest on a load: first on so many tuning seeds from 1 on, or, where these are judged, after the judged ones, on which
// timers and members are chosen; then on the judged ones.
func (c *contest) measure(ctx context.Context, l *Load, judged seedRange, tune int) (*Answer, error) {
	t := &tuning{load: l, seeds: seedRange{1, tune}, known: map[string]Result{}}
	if judged.first <= uint64(tune) {
		t.seeds.first = judged.first + uint64(judged.count)
	}
	var all, members []variant
	var notes []string
	for _, b := range c.baselines {
		timed, result := t.timed(ctx, &b)
		m, note := c.choose(ctx, t, &result)
		all, members, notes = append(all, timed), append(members, m), append(notes, note)
	}
	if t.err != nil {
		return nil, t.err
	}
	for _, v := range slices.Concat(c.shown, members) {
		if !contains(all, v) {
			all = append(all, v)
		}
	}
	a := &Answer{Seed: judged.first, Seeds: judged.count, Load: l.Name}
	var err error
	if a.Variants, err = runAll(ctx, l, all, judged); err != nil {
		return nil, err
	}
	for i, m := range members {
		at := slices.IndexFunc(all, func(v variant) bool { return v.name == m.name })
		a.judge(&a.Variants[i], &a.Variants[at], notes[i], len(members))
	}
	return a, nil
}

func contains(all []variant, v variant) bool {
	return slices.ContainsFunc(all, func(x variant) bool { return x.says == v.says })
}

// timed returns a baseline with the sprint timer that is best by the objective, and its result.
func (t *tuning) timed(ctx context.Context, v *variant) (variant, Result) {
	var trials []variant
	for _, timer := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		trials = append(trials, v.with(timer))
	}
	results, at := t.run(ctx, trials), 0
	for i := range results {
		if results[i].Figures[WeightedS].Mean < results[at].Figures[WeightedS].Mean {
			at = i
		}
	}
	return trials[at], results[at]
}

// runAll runs all variants on the seeds of a load, as many at a time as there are CPUs. Results are in the order of the variants.
func runAll(ctx context.Context, l *Load, variants []variant, seeds seedRange) ([]Result, error) {
	found := make([]map[string]float64, len(variants)*seeds.count)
	err := papers.Each(len(found), func(i int) error {
		v := &variants[i/seeds.count]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := newRun(l, seeds.first+uint64(i%seeds.count), v.decide())
		if v.learns {
			r.book = &runs.Book{}
		}
		if !r.run() {
			return cli.Failed("reduce the number of jobs, or give more watts or containers",
				"load %s: under %s, jobs have not ended %v after the last may come", l.Name, v.name, drainMost)
		}
		found[i] = r.figures()
		return nil
	}, func(int) {})
	if err != nil {
		return nil, err
	}
	out := make([]Result, len(variants))
	for i, v := range variants {
		out[i] = Result{Name: v.name, Says: v.says, Figures: map[string]report.Stat{}, each: map[string][]float64{}}
		for _, figures := range found[i*seeds.count : (i+1)*seeds.count] {
			for name, x := range figures {
				out[i].each[name] = append(out[i].each[name], x)
			}
		}
		for name, each := range out[i].each {
			out[i].Figures[name] = report.Of(each)
		}
	}
	return out, nil
}

type variant struct {
	name, says string
	decide     func() decider // makes the decider of one run
	tuned      baseline       // one whose sprint timer is chosen for each load
	learns     bool           // how jobs scale
	price      time.Duration  // of a member of our family
}

func (v *variant) with(timer time.Duration) variant {
	return variant{name: v.name, says: fmt.Sprintf("%s; sprint timer %v", v.says, timer), decide: func() decider {
		b := v.tuned
		b.timer = timer
		return &b
	}}
}

// baselines are the ways to decide that ours is held against.
func baselines() []variant {
	out := []variant{
		{name: "cab", says: "CAB alone: containers by stretch, early stops behind the uncapped finish", tuned: baseline{order: byShare}},
		{name: "cab-urgent-first", says: "urgent jobs first, CAB divides what they leave", tuned: baseline{order: byShareBelow}},
		{name: "dias", says: "DIAS: one job at a time by class, not preempted, drop ratio 20 %", tuned: baseline{order: oneByOne, theta: 0.2}},
		{name: "urgent-first", says: "urgent jobs first, inside a class who came first", tuned: baseline{order: byTurn}},
		{name: "urgent-first-fair", says: "urgent jobs first, inside a class in equal parts", tuned: baseline{order: byClass}},
		{name: "urgent-first-spend", says: "urgent jobs first, and all classes sprint", tuned: baseline{order: byTurn, spend: true}},
	}
	for _, percent := range []int{10, 20, 30, 40} {
		out = append(out, variant{
			name: fmt.Sprintf("dias-sweep-%d", percent), says: fmt.Sprintf("urgent jobs first, drop ratio %d %% for tolerant ones", percent),
			tuned: baseline{order: byTurn, theta: float64(percent) / 100},
		})
	}
	return out
}

// prices are those of quality that the family is tried with first: of a percent of a job's tasks, from no task given up
// to all that floors leave.
func prices() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{noPrice, 30_000 * ms, 15_000 * ms, 8000 * ms, 5000 * ms, arbiter.DefaultPercent, 2000 * ms, 1400 * ms, 1000 * ms, 500 * ms}
}

// noPrice stands for no task given up at any price.
const noPrice time.Duration = 0

// reserve is how a member of the family keeps joules for urgent jobs.
type reserve string

// The reserves: that of production, a tenth of it, nothing, and everything.
const usual, spend, free, save reserve = "", "-spend", "-all", "-save"

// member is one of our family: the arbiter with a price of quality and a reserve.
func member(price time.Duration, keep reserve) variant {
	name, says := "arbiter", "the arbiter"
	switch price {
	case arbiter.DefaultPercent:
	case noPrice:
		name, says = name+"-exact", says+", no task given up"
	default:
		text := strconv.FormatFloat(float64(price.Milliseconds())/1000, 'f', -1, 64)
		name, says = name+"-"+text+"s", says+", a percent of the tasks costs "+text+" s"
	}
	says += map[reserve]string{
		spend: ", a tenth of the usual joules reserved for urgent jobs",
		free:  ", no joules reserved for urgent jobs",
		save:  ", tolerant jobs never sprint",
	}[keep]
	v := ours(name+string(keep), says, tweak{percent: price, exact: price == noPrice, keep: keep})
	v.price = price
	return v
}

// shown are the variants of ours that are always shown: the default, its family over prices, the two other reserves,
// and two that show what a part of it is worth and never stand against baselines.
func shown() []variant {
	out := []variant{member(arbiter.DefaultPercent, usual)}
	for _, p := range prices() {
		if p != arbiter.DefaultPercent {
			out = append(out, member(p, usual))
		}
	}
	return append(out, member(arbiter.DefaultPercent, spend), member(arbiter.DefaultPercent, save),
		ours("arbiter-no-holds", "the arbiter, no machine gives watts to others", tweak{noHolds: true}),
		ours("arbiter-oracle", "the arbiter, if it knew the time of every task exactly", tweak{oracle: true}),
	)
}

func ours(name, says string, t tweak) variant {
	return variant{name: name, says: says, decide: func() decider { return &joint{tweak: t} }}
}
