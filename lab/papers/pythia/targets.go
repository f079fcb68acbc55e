package pythia

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/jobs/admission"
	"headroom/lab/report"
)

// figures are the trials of one source, from which targets are made.
type figures struct {
	*source

	trials []trial
}

// judge is a target on this source: those on traces have the trace's name in their id.
func (f *figures) judge(id, what, unit string, got report.Stat, ordered bool, note string) report.Target {
	if f.traced {
		id = strings.Replace(id, "/", "/"+f.name+"/", 1)
	}
	return report.Judge(id, what, unit, got, ordered, note)
}

func (f *figures) each(of func(t trial) float64) report.Stat { return report.Over(f.trials, of) }

func sdr(m measures) float64    { return m.sdr }
func ptr(m measures) float64    { return m.ptr }
func wasted(m measures) float64 { return m.wasted }

func fixed(p admission.Policy, capacity int) key { return key{policy: p, capacity: capacity} }

func with(k key, p admission.Policy) key {
	k.policy = p
	return k
}

// percent is a measure of a run in percent, over the seeds.
func (f *figures) percent(k key, of func(measures) float64) report.Stat {
	return f.each(func(t trial) float64 { return 100 * of(t[k]) })
}

// over is by how many percent PYTHIA's measure exceeds that of another run under the same deadlines and capacity.
func (f *figures) over(than key, of func(measures) float64) report.Stat {
	mine := fixed(admission.Pythia, than.capacity)
	return f.each(func(t trial) float64 { return gain(of(t[mine]), of(t[than])) })
}

func gain(a, b float64) float64 { return (a/b - 1) * 100 }

// variable is a mean of a measure over the variable deadlines, of runs that are otherwise like k.
func (t trial) variable(k key, of func(measures) float64) float64 {
	sum, types := 0.0, len(multiples())-1
	for k.deadlines = 1; k.deadlines <= types; k.deadlines++ {
		sum += of(t[k])
	}
	return sum / float64(types)
}

// targets are B1 to B6, and the goal of ours. On a trace those are left out that repeat what another one shows.
func (f *figures) targets() []report.Target {
	r := f.reactive(fixed(admission.Reactive, tight), "")
	s := f.reactive(key{policy: admission.Reactive, byTasks: true}, ", shares by tasks")
	noDrop, dropped := f.over(fixed(admission.NoDrop, tight), sdr), fixed(admission.NoDrop, tight)
	oracle := f.each(func(t trial) float64 {
		return 100 * (t[fixed(admission.Oracle, tight)].sdr - t[fixed(admission.Pythia, tight)].sdr)
	})
	done, met := f.each(func(t trial) float64 { return t[dropped].ptr }), f.each(func(t trial) float64 { return t[dropped].sdr })
	worst := f.each(func(t trial) float64 {
		return 100 * max(t.variable(fixed(admission.Pythia, tight), wasted), t.variable(fixed(admission.Pythia, middle), wasted))
	})
	all := []report.Target{
		report.From(295, report.AtLeast(100), f.judge("B1/nodrop", "SDR, Fixed2x, tightest capacity: pythia over nodrop", "%", noDrop, noDrop.Mean > 0, "to be higher")), r[0],
		f.judge("B1/oracle", "SDR, Fixed2x, tightest capacity: oracle beyond pythia", "points", oracle, oracle.Mean >= 0, "not to be lower"),
		report.From(0, report.AtMost(0.1), f.judge("B2/nodrop", "PTR of nodrop, Fixed2x, tightest capacity", "", done, met.Mean > 0.1,
			fmt.Sprintf("although its SDR is %.2f (paper: about 0.2), which is to be above 0.1", met.Mean))), r[1],
		f.belowOracle(), r[2], r[3],
		report.From(0, report.AtMost(3), f.judge("B4/pythia", "wasted by pythia, variable deadlines, the worse of two capacities", "%", worst, worst.Mean < 3, "")), r[4], r[5],
		f.waste(fixed(admission.NoDrop, tight), "", report.Range{Low: 98, High: 100}), f.waste(fixed(admission.NoDrop, middle), "", report.Range{Low: 84, High: 93}),
		f.classes(), f.unconstrained(), s[0], s[1], s[2], s[4], s[3], s[5],
	}
	all = append(all, f.goals()...)
	return slices.DeleteFunc(all, func(t report.Target) bool {
		id := strings.Replace(t.ID, f.name+"/", "", 1)
		return f.traced && !slices.Contains([]string{"B1/nodrop", "B1/reactive", "B2/nodrop", "B3/oracle", "B4/pythia", "B6/spread", "ours/sdr-Fixed2x", "ours/ptr-Fixed2x"}, id)
	})
}

// where is one of the two smaller capacities in ids and in words.
func (k key) where() (id, words string) {
	if k.capacity == tight {
		return "tight", "tightest capacity"
	}
	return "middle", "twice that capacity"
}

// reactive are B1 to B4 of Reactive, by shares in some way: PYTHIA's SDR under the fixed deadlines (Fig. 2) and its PTR (Fig. 3), its SDR
// under the variable ones at two capacities (Fig. 4), and what Reactive wastes there.
func (f *figures) reactive(k key, by string) []report.Target {
	suffix := strings.TrimPrefix(strings.ReplaceAll(by, " ", "-"), ",-shares")
	first := f.over(k, sdr)
	best := f.each(func(t trial) float64 {
		most := math.Inf(-1)
		for than := k; than.capacity <= middle; than.capacity++ {
			most = max(most, gain(t[fixed(admission.Pythia, than.capacity)].ptr, t[than].ptr))
		}
		return most
	})
	all := []report.Target{
		report.From(143, report.AtLeast(0), f.judge("B1/reactive"+suffix, "SDR, Fixed2x, tightest capacity: pythia over reactive"+by, "%", first, first.Mean > 0, "to be higher")),
		report.From(93, report.AtLeast(0), f.judge("B2/reactive"+suffix, "PTR, Fixed2x: pythia over reactive"+by+", at the better of the two smaller capacities", "%",
			best, best.Mean > 0, "to be higher")),
	}
	for i, paper := range []float64{177, 58} {
		k.capacity = i
		id, where := k.where()
		met := f.each(func(t trial) float64 { return gain(t.variable(fixed(admission.Pythia, i), sdr), t.variable(k, sdr)) })
		all = append(all, report.From(paper, report.AtLeast(0), f.judge("B3/"+id+suffix, "SDR, variable deadlines, "+where+": pythia over reactive"+by, "%", met, met.Mean > 0, "to be higher")))
	}
	for i, low := range []float64{24, 12} {
		k.capacity = i
		all = append(all, f.waste(k, by, report.Range{Low: low, High: 30}))
	}
	return all
}

// waste is B4 of a policy: what it wastes under the variable deadlines, more than PYTHIA, or NoDrop than Reactive.
func (f *figures) waste(k key, by string, paper report.Range) report.Target {
	than, suffix := fixed(admission.Pythia, k.capacity), ""
	if k.policy == admission.NoDrop {
		than.policy = admission.Reactive
	}
	got := f.each(func(t trial) float64 { return 100 * t.variable(k, wasted) })
	least := f.each(func(t trial) float64 { return 100 * t.variable(than, wasted) })
	note := fmt.Sprintf("to be more than %.1f %% of the policy before it in nodrop, reactive, pythia", least.Mean)
	if k.byTasks {
		note, suffix = "to be more than pythia", "-by-tasks"
	}
	id, where := k.where()
	return report.From((paper.Low+paper.High)/2, paper, f.judge(fmt.Sprintf("B4/%s-%s%s", k.policy, id, suffix), fmt.Sprintf("wasted by %s%s, %s", k.policy, by, where), "%",
		got, got.Mean > least.Mean, note))
}

// belowOracle is B3 against the oracle, at the worst of all variable deadlines and smaller capacities.
func (f *figures) belowOracle() report.Target {
	short := report.Stat{Mean: math.Inf(-1)}
	for _, k := range variableKeys() {
		if s := f.each(func(t trial) float64 { return -gain(t[k].sdr, t[with(k, admission.Oracle)].sdr) }); s.Mean > short.Mean {
			short = s
		}
	}
	return report.From(5, report.AtMost(10), f.judge("B3/oracle", "SDR, variable deadlines: pythia below oracle, the worst of all", "%", short, short.Mean <= 10, ""))
}

func variableKeys() (all []key) {
	for i := 1; i < len(multiples()); i++ {
		for capacity := tight; capacity <= middle; capacity++ {
			all = append(all, key{policy: admission.Pythia, deadlines: i, capacity: capacity})
		}
	}
	return all
}

// classes is B5: under how many of the variable deadlines PYTHIA does more of the work than Reactive, of both capacities.
func (f *figures) classes() report.Target {
	won := 0
	for _, k := range variableKeys() {
		if f.percent(k, ptr).Mean > f.percent(with(k, admission.Reactive), ptr).Mean {
			won++
		}
	}
	return f.judge("B5/classes", "PTR, variable deadlines: cases of eight in which pythia is above reactive", "", report.Once(float64(won)), won > 0,
		"the paper: in some, here to be one or more")
}

func (f *figures) unconstrained() report.Target {
	spread := f.each(func(t trial) float64 {
		least, most := math.Inf(1), math.Inf(-1)
		for _, p := range []admission.Policy{admission.Oracle, admission.Pythia, admission.Reactive, admission.NoDrop} {
			x := 100 * t[fixed(p, ample)].sdr
			least, most = min(least, x), max(most, x)
		}
		return most - least
	})
	return report.From(0, report.AtMost(2), f.judge("B6/spread", "SDR, Fixed2x, ample capacity: spread of the four policies", "points", spread, spread.Mean < 2,
		fmt.Sprintf("at %d slots", f.capacities[ample])))
}

// goals are what adaptive is held to, for each deadline type: the worst of both capacities, with a cut and without. It may meet fewer
// deadlines than PYTHIA by a point.
func (f *figures) goals() (all []report.Target) {
	for i, m := range multiples() {
		met := f.worst(i, func(t trial, k key) float64 { return t[k].sdr - t[with(k, admission.Pythia)].sdr })
		done := f.worst(i, func(t trial, k key) float64 {
			return t[k].ptr - max(t[with(k, admission.Pythia)].ptr, t[with(k, admission.Reactive)].ptr)
		})
		all = append(all,
			f.judge("ours/sdr-"+m.name, "SDR: adaptive beyond pythia, the worst case", "points", met, met.Mean >= -1, "goal: not lower by more than 1"),
			f.judge("ours/ptr-"+m.name, "PTR: adaptive beyond the better of pythia and reactive, the worst case", "points", done, done.Mean >= 0, "goal: not lower"),
		)
	}
	return all
}

// worst is the least of some cases, by how many points adaptive is beyond.
func (f *figures) worst(deadlines int, by func(t trial, k key) float64) (worst report.Stat) {
	worst.Mean = math.Inf(1)
	for capacity := tight; capacity <= middle; capacity++ {
		for _, c := range []bool{false, true} {
			k := key{policy: admission.Adaptive, deadlines: deadlines, capacity: capacity, cut: c}
			if x := f.each(func(t trial) float64 { return 100 * by(t, k) }); x.Mean < worst.Mean {
				worst = x
			}
		}
	}
	return worst
}
