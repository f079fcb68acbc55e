package pythia

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/jobs/admission"
	"headroom/lab/report"
)

// figures are the trials of one source, from which targets, tables and plots are made.
type figures struct {
	*source

	trials []trial
}

// id is that of a target on this source: those on traces have the trace's name in it.
func (s *source) id(id string) string {
	if !s.traced {
		return id
	}
	target, what, _ := strings.Cut(id, "/")
	return target + "/" + s.name + "/" + what
}

// each is one value for each seed.
func (f *figures) each(of func(t trial) float64) report.Stat {
	return report.Over(f.trials, of)
}

func sdr(m measures) float64    { return m.sdr }
func ptr(m measures) float64    { return m.ptr }
func wasted(m measures) float64 { return m.wasted }

// fixed is a run under the fixed deadlines.
func fixed(p admission.Policy, capacity int) key {
	return key{policy: p, multiple: multiples()[0].name, capacity: capacity}
}

// percent is a measure of a run in percent, over the seeds.
func (f *figures) percent(k key, of func(measures) float64) report.Stat {
	return f.each(func(t trial) float64 { return 100 * of(t[k]) })
}

// variable is a mean of a measure over the variable deadlines, of runs that are otherwise like k.
func (t trial) variable(k key, of func(measures) float64) float64 {
	sum, types := 0.0, multiples()[1:]
	for _, m := range types {
		k.multiple = m.name
		sum += of(t[k])
	}
	return sum / float64(len(types))
}

// bestPTR is by how much PYTHIA's PTR exceeds another run's under the fixed deadlines, at the better of the two smaller capacities.
func (f *figures) bestPTR(than func(capacity int) key) report.Stat {
	return f.each(func(t trial) float64 {
		most := math.Inf(-1)
		for capacity := tight; capacity <= middle; capacity++ {
			most = max(most, gain(t[fixed(admission.Pythia, capacity)].ptr, t[than(capacity)].ptr))
		}
		return most
	})
}

// gain is by how many percent one value exceeds another.
func gain(a, b float64) float64 { return (a/b - 1) * 100 }

// targets are B1 to B6, and the goal of ours. On a trace those are left out that repeat what another one shows.
func (f *figures) targets() []report.Target {
	all := f.fixedTargets()
	all = append(all, f.variableTargets()...)
	all = append(all, f.wasteTargets()...)
	all = append(append(all, f.classes(), f.unconstrained()), f.byTasksTargets()...)
	all = append(all, f.goals()...)
	return slices.DeleteFunc(all, func(t report.Target) bool { return f.traced && !slices.Contains(f.tracedIDs(), t.ID) })
}

// tracedIDs are the targets on a trace.
func (f *figures) tracedIDs() (ids []string) {
	for _, id := range []string{"B1/nodrop", "B1/reactive", "B2/nodrop", "B3/oracle", "B4/pythia", "B6/spread", "ours/sdr-Fixed2x", "ours/ptr-Fixed2x"} {
		ids = append(ids, f.id(id))
	}
	return ids
}

// fixedTargets are B1 and B2: Fig. 2 and Fig. 3 at the tightest capacity.
func (f *figures) fixedTargets() []report.Target {
	pythia := fixed(admission.Pythia, tight)
	than := func(p admission.Policy, of func(measures) float64) report.Stat {
		return f.each(func(t trial) float64 { return gain(of(t[pythia]), of(t[fixed(p, tight)])) })
	}
	mean := func(p admission.Policy) float64 { return f.percent(fixed(p, tight), sdr).Mean }
	note := fmt.Sprintf("SDR at %d slots: oracle %.1f %%, pythia %.1f %%, reactive %.1f %%, nodrop %.1f %%", f.capacities[tight],
		mean(admission.Oracle), mean(admission.Pythia), mean(admission.Reactive), mean(admission.NoDrop))
	oracle := f.each(func(t trial) float64 { return 100 * (t[fixed(admission.Oracle, tight)].sdr - t[pythia].sdr) })
	noDrop, reactive := than(admission.NoDrop, sdr), than(admission.Reactive, sdr)
	dropped := fixed(admission.NoDrop, tight)
	ptrNoDrop, sdrNoDrop := f.each(func(t trial) float64 { return t[dropped].ptr }), f.each(func(t trial) float64 { return t[dropped].sdr })
	best := f.bestPTR(func(capacity int) key { return fixed(admission.Reactive, capacity) })
	return []report.Target{
		report.From(295, report.AtLeast(100), report.Judge(f.id("B1/nodrop"), "SDR, Fixed2x, tightest capacity: pythia over nodrop", "%", noDrop, noDrop.Mean > 0, note)),
		report.From(143, report.AtLeast(0), report.Judge(f.id("B1/reactive"), "SDR, Fixed2x, tightest capacity: pythia over reactive", "%", reactive, reactive.Mean > 0, note+": to be higher")),
		report.Judge(f.id("B1/oracle"), "SDR, Fixed2x, tightest capacity: oracle beyond pythia", "points", oracle, oracle.Mean >= 0, "not to be lower"),
		report.From(0, report.AtMost(0.1), report.Judge(f.id("B2/nodrop"), "PTR of nodrop, Fixed2x, tightest capacity", "", ptrNoDrop, sdrNoDrop.Mean > 0.1,
			fmt.Sprintf("although its SDR is %.2f (paper: about 0.2), which is to be above 0.1", sdrNoDrop.Mean))),
		report.From(93, report.AtLeast(0), report.Judge(f.id("B2/reactive"), "PTR, Fixed2x: pythia over reactive, at the better of the two smaller capacities", "%", best, best.Mean > 0, "to be higher")),
	}
}

// variableTargets are B3: Fig. 4.
func (f *figures) variableTargets() []report.Target {
	short, at := report.Stat{Mean: math.Inf(-1)}, ""
	for _, m := range multiples()[1:] {
		for capacity := tight; capacity <= middle; capacity++ {
			s := f.each(func(t trial) float64 {
				return -gain(t[key{policy: admission.Pythia, multiple: m.name, capacity: capacity}].sdr, t[key{policy: admission.Oracle, multiple: m.name, capacity: capacity}].sdr)
			})
			if s.Mean > short.Mean {
				short, at = s, fmt.Sprintf("%s at %d slots", m.name, f.capacities[capacity])
			}
		}
	}
	over := func(capacity int) report.Stat {
		return f.each(func(t trial) float64 {
			return gain(t.variable(fixed(admission.Pythia, capacity), sdr), t.variable(fixed(admission.Reactive, capacity), sdr))
		})
	}
	first, second := over(tight), over(middle)
	return []report.Target{
		report.From(5, report.AtMost(10), report.Judge(f.id("B3/oracle"), "SDR, variable deadlines: pythia below oracle, the worst of all", "%", short, short.Mean <= 10, at)),
		report.From(177, report.AtLeast(0), report.Judge(f.id("B3/tight"), "SDR, variable deadlines, tightest capacity: pythia over reactive", "%", first, first.Mean > 0, "to be higher")),
		report.From(58, report.AtLeast(0), report.Judge(f.id("B3/middle"), "SDR, variable deadlines, twice that capacity: pythia over reactive", "%", second, second.Mean > 0, "to be higher")),
	}
}

// byTasksTargets are B1 to B4 of Reactive with slots shared in proportion to tasks.
func (f *figures) byTasksTargets() []report.Target {
	shared := func(p admission.Policy, capacity int) key {
		k := fixed(p, capacity)
		k.byTasks = true
		return k
	}
	reactive := shared(admission.Reactive, tight)
	first := f.each(func(t trial) float64 { return gain(t[fixed(admission.Pythia, tight)].sdr, t[reactive].sdr) })
	best := f.bestPTR(func(capacity int) key { return shared(admission.Reactive, capacity) })
	note := fmt.Sprintf("SDR: reactive %.1f %%, nodrop %.1f %%", f.percent(reactive, sdr).Mean, f.percent(shared(admission.NoDrop, tight), sdr).Mean)
	all := []report.Target{
		report.From(143, report.AtLeast(0), report.Judge(f.id("B1/reactive-by-tasks"), "SDR, Fixed2x, tightest capacity: pythia over reactive, shares by tasks", "%", first, first.Mean > 0, note)),
		report.From(93, report.AtLeast(0), report.Judge(f.id("B2/reactive-by-tasks"), "PTR, Fixed2x: pythia over reactive, shares by tasks, at the better of the two smaller capacities", "%", best, best.Mean > 0, "to be higher")),
	}
	for _, x := range []struct {
		id, what         string
		capacity         int
		paper, low, high float64
	}{
		{"tight", "tightest capacity", tight, 177, 24, 30},
		{"middle", "twice that capacity", middle, 58, 12, 30},
	} {
		mine, than := fixed(admission.Pythia, x.capacity), shared(admission.Reactive, x.capacity)
		met := f.each(func(t trial) float64 { return gain(t.variable(mine, sdr), t.variable(than, sdr)) })
		lost := f.each(func(t trial) float64 { return 100 * t.variable(than, wasted) })
		least := f.each(func(t trial) float64 { return 100 * t.variable(mine, wasted) })
		all = append(all,
			report.From(x.paper, report.AtLeast(0), report.Judge(f.id("B3/"+x.id+"-by-tasks"), "SDR, variable deadlines, "+x.what+": pythia over reactive, shares by tasks", "%", met, met.Mean > 0, "to be higher")),
			report.From((x.low+x.high)/2, report.Range{Low: x.low, High: x.high}, report.Judge(f.id("B4/reactive-"+x.id+"-by-tasks"), "wasted by reactive, shares by tasks, "+x.what, "%", lost, lost.Mean > least.Mean, "to be more than pythia")),
		)
	}
	return all
}

// wasteTargets are B4.
func (f *figures) wasteTargets() []report.Target {
	by := func(p admission.Policy, capacity int) report.Stat {
		return f.each(func(t trial) float64 { return 100 * t.variable(fixed(p, capacity), wasted) })
	}
	worst := f.each(func(t trial) float64 {
		return 100 * max(t.variable(fixed(admission.Pythia, tight), wasted), t.variable(fixed(admission.Pythia, middle), wasted))
	})
	all := []report.Target{
		report.From(0, report.AtMost(3), report.Judge(f.id("B4/pythia"), "wasted by pythia, variable deadlines, the worse of two capacities", "%", worst, worst.Mean < 3, "")),
	}
	for _, x := range []struct {
		id, what string
		policy   admission.Policy
		capacity int
		paper    report.Range
	}{
		{"B4/reactive-tight", "wasted by reactive, tightest capacity", admission.Reactive, tight, report.Range{Low: 24, High: 30}},
		{"B4/reactive-middle", "wasted by reactive, twice that capacity", admission.Reactive, middle, report.Range{Low: 12, High: 30}},
		{"B4/nodrop-tight", "wasted by nodrop, tightest capacity", admission.NoDrop, tight, report.Range{Low: 98, High: 100}},
		{"B4/nodrop-middle", "wasted by nodrop, twice that capacity", admission.NoDrop, middle, report.Range{Low: 84, High: 93}},
	} {
		got, least := by(x.policy, x.capacity), by(admission.Pythia, x.capacity)
		if x.policy == admission.NoDrop {
			least = by(admission.Reactive, x.capacity)
		}
		all = append(all, report.From((x.paper.Low+x.paper.High)/2, x.paper, report.Judge(f.id(x.id), x.what, "%", got, got.Mean > least.Mean,
			fmt.Sprintf("to be more than %.1f %% of the policy before it in nodrop, reactive, pythia", least.Mean))))
	}
	return all
}

// classes is B5: under how many of the variable deadlines PYTHIA does more of the work than Reactive, of both capacities.
func (f *figures) classes() report.Target {
	won, note := 0, ""
	for _, m := range multiples()[1:] {
		for capacity := tight; capacity <= middle; capacity++ {
			a, b := f.percent(key{policy: admission.Pythia, multiple: m.name, capacity: capacity}, ptr), f.percent(key{policy: admission.Reactive, multiple: m.name, capacity: capacity}, ptr)
			if a.Mean > b.Mean {
				won++
			}
			note += fmt.Sprintf("%s at %d: %.1f, reactive %.1f; ", m.name, f.capacities[capacity], a.Mean, b.Mean)
		}
	}
	return report.Judge(f.id("B5/classes"), "PTR, variable deadlines: cases of eight in which pythia is above reactive", "", report.Once(float64(won)), won > 0,
		note+"the paper: in some, here to be one or more")
}

// unconstrained is B6.
func (f *figures) unconstrained() report.Target {
	spread := f.each(func(t trial) float64 {
		least, most := math.Inf(1), math.Inf(-1)
		for _, p := range []admission.Policy{admission.Oracle, admission.Pythia, admission.Reactive, admission.NoDrop} {
			x := 100 * t[fixed(p, ample)].sdr
			least, most = min(least, x), max(most, x)
		}
		return most - least
	})
	return report.From(0, report.AtMost(2), report.Judge(f.id("B6/spread"), "SDR, Fixed2x, ample capacity: spread of the four policies", "points", spread, spread.Mean < 2,
		fmt.Sprintf("at %d slots", f.capacities[ample])))
}

// sdrSlack is by how many points ours may meet fewer deadlines than PYTHIA.
const sdrSlack = 1

// goals are what adaptive is held to, for each deadline type: the worst of both capacities, with a cut and without.
func (f *figures) goals() (all []report.Target) {
	for _, m := range multiples() {
		meets := f.worst(m.name, sdr, func(t trial, k key) float64 { return t[with(k, admission.Pythia)].sdr })
		does := f.worst(m.name, ptr, func(t trial, k key) float64 {
			return max(t[with(k, admission.Pythia)].ptr, t[with(k, admission.Reactive)].ptr)
		})
		all = append(all,
			report.Judge(f.id("ours/sdr-"+m.name), "SDR: adaptive beyond pythia, the worst case", "points", meets.by, meets.by.Mean >= -sdrSlack, meets.note+"goal: not lower by more than 1"),
			report.Judge(f.id("ours/ptr-"+m.name), "PTR: adaptive beyond the better of pythia and reactive, the worst case", "points", does.by, does.by.Mean >= 0, does.note+"goal: not lower"),
		)
	}
	return all
}

// worstCase is the worst of some cases, and all of them in words.
type worstCase struct {
	by   report.Stat
	note string
}

func (f *figures) worst(deadlines string, of func(measures) float64, than func(t trial, k key) float64) worstCase {
	w := worstCase{by: report.Stat{Mean: math.Inf(1)}}
	for capacity := tight; capacity <= middle; capacity++ {
		for _, c := range []bool{false, true} {
			k := key{policy: admission.Adaptive, multiple: deadlines, capacity: capacity, cut: c}
			by := f.each(func(t trial) float64 { return 100 * (of(t[k]) - than(t, k)) })
			if by.Mean < w.by.Mean {
				w.by = by
			}
			w.note += fmt.Sprintf("%s: %.1f, %+.1f; ", k.where(f.source), f.percent(k, of).Mean, by.Mean)
		}
	}
	return w
}

// where is the capacity of a run in words.
func (k key) where(s *source) string {
	if k.cut {
		return fmt.Sprintf("%d slots, cut", s.capacities[k.capacity])
	}
	return fmt.Sprintf("%d slots", s.capacities[k.capacity])
}

func with(k key, p admission.Policy) key {
	k.policy = p
	return k
}

// policies are SDR / PTR / wasted in percent, a row for each experiment.
func policies(all []*figures) [][]string {
	head := []string{"jobs", "slots", "deadlines"}
	for _, p := range admission.Policies() {
		head = append(head, p.String())
	}
	rows := [][]string{head}
	for _, f := range all {
		for _, k := range keys() {
			if k.policy != admission.Adaptive {
				continue
			}
			row := []string{f.name, k.where(f.source), k.multiple}
			for _, p := range admission.Policies() {
				row = append(row, f.cell(with(k, p)))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// cell is SDR / PTR / wasted of a run in percent; empty where it is not made.
func (f *figures) cell(k key) string {
	if _, made := f.trials[0][k]; !made {
		return ""
	}
	return fmt.Sprintf("%.1f / %.1f / %.1f", f.percent(k, sdr).Mean, f.percent(k, ptr).Mean, f.percent(k, wasted).Mean)
}
