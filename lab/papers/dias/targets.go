package dias

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/lab/report"
)

const high, low = 0, 1 // classes of an experiment with two

// near judges a number against the paper's with an absolute tolerance; ordered is what must hold of it at least.
func near(id, what, unit string, paper, tolerance float64, got report.Stat, ordered bool, why string) report.Target {
	return report.From(paper, report.Around(paper, tolerance), report.Judge(id, what, unit, got, ordered, why))
}

// rising reports whether each number is above the one before.
func rising(values ...float64) bool {
	for i := 1; i < len(values); i++ {
		if !(values[i] > values[i-1]) {
			return false
		}
	}
	return true
}

// targets judges everything.
func (s *study) targets() []report.Target {
	return slices.Concat(s.waste(), s.fig7(), s.fig8(), s.fig8b(), s.fig9(), s.fig10(), s.sprints(), s.table2(), s.energy(), s.fig11())
}

// waste is A1 and A2: P alone wastes anything.
func (s *study) waste() []report.Target {
	share := func(id, what, name string, paper, tolerance float64) report.Target {
		got, np := s.of(name, "P", wasteOf), s.of(name, "NP", wasteOf)
		return near(id, "P: machine time of killed runs, "+what, "%", paper, tolerance, got, got.Low > 0 && np.Mean == 0, "P to waste some, NP nothing")
	}
	return []report.Target{share("A1", "two classes", reference, 4, 1), share("A2", "three classes", three, 16, 3)}
}

// fig7 is A3 to A8: the reference set-up.
func (s *study) fig7() []report.Target {
	than := func(policy string, q quantity) report.Stat { return s.change(reference, policy, "P", q) }
	qh, ql := s.of(reference, "P", queueOf(high)), s.of(reference, "P", queueOf(low))
	passed := s.of(reference, "P", func(r *result) float64 { return 100 * r.overtaken })
	npLow, np, ten, twenty := than("NP", meanOf(low)), than("NP", meanOf(high)), than("DA(0,10)", meanOf(low)), than("DA(0,20)", meanOf(low))
	tail, highMean := than("DA(0,20)", tailOf(low)), than("DA(0,20)", meanOf(high))
	// What each tenth gains beyond what came before it, in points.
	gains := s.each(reference, "NP", "P", meanOf(low))
	once, twice := s.each(reference, "DA(0,10)", "P", meanOf(low)), s.each(reference, "DA(0,20)", "P", meanOf(low))
	for i := range gains {
		gains[i] = once[i] - twice[i] - (gains[i] - once[i])
	}
	gap := report.Of(gains)
	const between = "a high job that comes while a low one runs, half of all, waits for its rest"
	return []report.Target{
		near("A3/high", "P: mean queueing time of the high class", "s", 0.03, 0.03, qh, qh.Mean < ql.Mean/100,
			"to be below a hundredth of the low class's; with Poisson arrivals high jobs wait for each other, so 0.03 s is out of reach"),
		near("A3/low", "P: mean queueing time of the low class", "s", 310, 0.15*310, ql, ql.Mean > 155 && ql.Mean < 620, "to be of this order, within a factor of 2"),
		report.Judge("A3/order", "P: jobs that a later one of their class overtakes", "%", passed, passed.High == 0, "to be none: a killed job goes back to the head of its buffer"),
		near("A4", "NP against P: mean response of the low class", "%", -20, 8, npLow, npLow.High < 0, "to fall"),
		near("A5", "NP against P: mean response of the high class", "%", 80, 20, np, np.Low > 0, "to rise; "+between),
		near("A6/mean", "DA(0,20) against P: mean response of the low class", "%", -65, 10, twenty, rising(twenty.Mean, ten.Mean, npLow.Mean), "more than DA(0,10), and that more than NP"),
		near("A6/p95", "DA(0,20) against P: 95th percentile of the low class", "%", -65, 10, tail, tail.Mean < than("DA(0,10)", tailOf(low)).Mean, "more than DA(0,10)"),
		report.Judge("A7", "by how much more the second tenth gains than the first, low mean", "points", gap, gap.Low > 0, "the second tenth to gain more, as a whole wave drops"),
		near("A8", "DA(0,20) against P: mean response of the high class", "%", 10, 10, highMean, highMean.Mean > 0 && highMean.High < np.Low, fmt.Sprintf(
			"to be a rise, below that of NP (%.1f %%); +10 %% is out of reach for one server at this load: %s", np.Mean, between)),
	}
}

// fig8 is A9 and A10: what the gains depend on.
func (s *study) fig8() []report.Target {
	gain := func(name, policy string, q quantity) report.Stat { return s.change(name, policy, "P", q) }
	lows := func(policy string) float64 { return s.of(sameSize, policy, meanOf(low)).Mean }
	same, sameHigh, refHigh := gain(sameSize, "DA(0,20)", meanOf(low)), gain(sameSize, "DA(0,20)", meanOf(high)), gain(reference, "DA(0,20)", meanOf(high))
	quiet, quietHigh, npHigh := gain(lowLoad, "NP", meanOf(low)), gain(lowLoad, "NP", meanOf(high)), gain(reference, "NP", meanOf(high))
	return []report.Target{
		near("A9", "same size: DA(0,20) against P, mean response of the low class", "%", -80, 10, same,
			rising(lows("DA(0,20)"), lows("DA(0,10)"), lows("NP"), lows("P")) && sameHigh.Mean < refHigh.Mean, fmt.Sprintf(
				"P, NP, DA(0,10), DA(0,20) to be ever quicker, and the high class to lose less (%+.1f %%) than in the reference (%+.1f %%); 80 %% is out of reach: the drop takes a fifth of the low jobs' time, so the load falls to 0.66 only",
				sameHigh.Mean, refHigh.Mean)),
		near("A10", "half the load: NP against P, mean response of the low class", "%", 0, 10, quiet, quiet.Mean > gain(reference, "NP", meanOf(low)).Mean, "nearer to 0 than in the reference"),
		near("A10/high", "half the load: NP against P, mean response of the high class", "%", 0, 10, quietHigh, quietHigh.High < npHigh.Low, fmt.Sprintf(
			"less than in the reference (%+.1f %%); a high job waits behind a low one at any load", npHigh.Mean)),
	}
}

// fig8b is A11: nine high jobs to one low.
func (s *study) fig8b() []report.Target {
	against := func(name, than string, q quantity) report.Stat { return s.change(name, "DA(0,20)", than, q) }
	most, mostTail := against(mostlyHigh, "NP", meanOf(low)), against(mostlyHigh, "NP", tailOf(low))
	ref, refTail := against(reference, "NP", meanOf(low)), against(reference, "NP", tailOf(low))
	tail, grows, refGrows := against(mostlyHigh, "P", tailOf(low)), against(mostlyHigh, "P", meanOf(high)), against(reference, "P", meanOf(high))
	slower := report.Judge("A11/high", "nine high jobs to one low: DA(0,20) against P, mean response of the high class", "%", grows,
		grows.Low > 0 && grows.Mean < s.change(mostlyHigh, "NP", "P", meanOf(high)).Mean, fmt.Sprintf("to rise, less than under NP, and more than in the reference (%+.1f %%): that does not hold at load %g", refGrows.Mean, mostlyHighFor))
	if slower.Verdict == report.Met && grows.Mean <= refGrows.Mean {
		slower.Verdict = report.Order
	}
	return []report.Target{
		near("A11/low", "nine high jobs to one low: DA(0,20) against P, 95th percentile of the low class", "%", -20, 10, tail,
			tail.High < 0 && most.High < 0 && most.Mean > ref.Mean && mostTail.Mean > refTail.Mean, fmt.Sprintf(
				"over NP it is to gain something, and less than in the reference: mean %.1f and %.1f %%, tail %.1f and %.1f %%; at load %g, as P has no steady state at 0.8",
				most.Mean, ref.Mean, mostTail.Mean, refTail.Mean, mostlyHighFor)),
		slower,
	}
}

// fig9 is A12: three classes. What the drop itself gains, against NP: all three tails must fall, those of the low class by a
// wave's worth.
func (s *study) fig9() (all []report.Target) {
	const medium, lowest = 1, 2
	for i, policy := range []string{"DA(0,10,20)", "DA(0,20,40)"} {
		change := func(than string, q quantity) report.Stat { return s.change(three, policy, than, q) }
		h, m, l := change("P", tailOf(high)), change("P", tailOf(medium)), change("P", tailOf(lowest))
		lm, mm := change("P", meanOf(lowest)), change("P", meanOf(medium))
		dh, dm, dl := change("NP", tailOf(high)), change("NP", tailOf(medium)), change("NP", tailOf(lowest))
		least := []float64{-40, -55}[i]
		all = append(all, near("A12/"+policy, "three classes: "+policy+" against P, 95th percentile of the low class", "%", -60, 10, l,
			l.Mean < m.Mean && lm.Mean < mm.Mean && l.Mean < 0 && dh.High < 0 && dm.High < 0 && dl.Mean <= least, fmt.Sprintf(
				"against P the low class to gain more than the medium one (tails %.1f and %+.1f %%, means %.1f and %+.1f %%), and against NP all three tails to fall, the low one's by %g %% or more (%.1f, %.1f, %.1f %%)"+
					"; the paper cuts all three tails against P, ours grows the high one (%+.0f %%), as low jobs are longer than high ones; P runs %.0f %% of the time here, so its low jobs wait long",
				l.Mean, m.Mean, lm.Mean, mm.Mean, -least, dh.Mean, dm.Mean, dl.Mean, h.Mean, s.of(three, "P", busyOf).Mean)))
	}
	return all
}

// fig10 is A13: the triangle count.
func (s *study) fig10() []report.Target {
	change := func(policy string, q quantity) report.Stat { return s.change(triangle, policy, "P", q) }
	five, ten, np := change("DA(0,5)", meanOf(low)), change("DA(0,10)", meanOf(low)), change("NP", meanOf(low))
	ordered := true
	for _, q := range []quantity{meanOf(low), tailOf(low), meanOf(high), tailOf(high)} {
		var by []float64
		for _, policy := range []string{"DA(0,20)", "DA(0,10)", "DA(0,5)", "DA(0,2)", "DA(0,1)", "NP"} {
			by = append(by, s.of(triangle, policy, q).Mean)
		}
		ordered = ordered && rising(by...)
	}
	lows, highs := change("DA(0,5)", tailOf(low)), change("DA(0,5)", tailOf(high))
	return []report.Target{
		report.From(-50, report.AtMost(-50), report.Judge("A13/mean", "triangle count: DA(0,5) against P, mean response of the low class", "%", five, ordered && ten.Mean <= -50, fmt.Sprintf(
			"5 and 10 %% each stage to gain 50 %% or more (%.1f and %.1f %%), and means and tails of both classes to fall with the ratio, from NP on; NP alone gains %.1f %%", five.Mean, ten.Mean, np.Mean))),
		near("A13/tail", "triangle count: DA(0,5) against P, 95th percentile of the high class", "%", -50, 10, highs, ordered, fmt.Sprintf(
			"the paper's falls by a factor like the low class's (here %.1f %%): ours falls with the ratio only, %.1f %% against NP, as a high job waits behind a low one of its own size", lows.Mean, s.change(triangle, "DA(0,5)", "NP", tailOf(high)).Mean)),
	}
}

// sprints is A14 and A15.
func (s *study) sprints() []report.Target {
	nps := "NPS " + limitedBudget
	cut, exec := s.change(complete, "NPS "+unlimitedBudget, "P", execOf(high)), s.of(complete, nps, execOf(high))
	share := s.of(complete, nps, func(r *result) float64 { return 100 * r.classes[high].share })
	watts := s.of(complete, "NPS "+unlimitedBudget, func(r *result) float64 { return r.classes[high].joules / r.classes[high].exec })
	const table = 99.8
	return []report.Target{
		near("A14", "sprint from the start: execution time of the high class", "%", -60, 1, cut, math.Abs(watts.Mean-sprintWatts) < 1, fmt.Sprintf(
			"at %d instead of %d W (%.1f W measured): these are inputs", sprintWatts, busyWatts, watts.Mean)),
		near("A15/exec", "sprint after 65 s, 22 kJ: execution time of the high class", "s", table, 0.02*table, exec, exec.High < s.of(complete, "NP", execOf(high)).Low,
			"to be less than without sprints; 65 + (148.5 - 65) / 2.5 = 98.4 s when the budget never runs out"),
		near("A15/share", "sprint after 65 s, 22 kJ: part of the high class's time that is sprinted", "%", 35, 2, share, share.Low > 0 && share.High < 100, ""),
	}
}

// sprinters are the policies with sprints.
func sprinters() []string { return []string{"NPS", "DIAS(0,10)", "DIAS(0,20)"} }

// paperTable2 is Table 2: queueing and execution times by policy and class, s.
func paperTable2() map[string][2][2]float64 {
	return map[string][2][2]float64{
		"NPS":        {{70.6, 99.8}, {378.9, 148.5}},
		"DIAS(0,10)": {{70.0, 100.2}, {286.42, 139.0}},
		"DIAS(0,20)": {{55.1, 99.4}, {238.0, 131.1}},
	}
}

// table2 is A16, within 15 %; policies must be in the paper's order.
func (s *study) table2() (all []report.Target) {
	for _, policy := range sprinters() {
		for class, times := range paperTable2()[policy] {
			for i, what := range []string{"queue", "exec"} {
				by := func(policy string, class int) report.Stat {
					return s.of(complete, policy+" "+limitedBudget, []quantity{queueOf(class), execOf(class)}[i])
				}
				got, paper := by(policy, class), times[i]
				ordered, rule := rising(by("DIAS(0,20)", class).Mean, by("DIAS(0,10)", class).Mean, by("NPS", class).Mean), "NPS, DIAS(0,10), DIAS(0,20) to be ever shorter"
				if class == high && what == "exec" {
					part, words := 0.75, "a quarter"
					if policy == "DIAS(0,20)" { // 99.4 of 131.1 s in the paper
						part, words = 0.76, "24 %"
					}
					ordered, rule = got.Mean <= part*by(policy, low).Mean, words+" less than the low class's, or more"
				}
				all = append(all, near(fmt.Sprintf("A16/%s/%s/%s", policy, classNames()[class], what),
					fmt.Sprintf("Table 2: mean %s time of the %s class under %s", []string{"queueing", "execution"}[i], classNames()[class], policy), "s", paper, 0.15*paper, got, ordered,
					fmt.Sprintf("%s; %+.1f %%", rule, (got.Mean/paper-1)*100)))
			}
		}
	}
	return all
}

// energy is A17: the energy of all jobs against P.
func (s *study) energy() (all []report.Target) {
	saved := func(policy string) report.Stat {
		return s.change(complete, policy, "P", func(r *result) float64 { return r.joules })
	}
	np, ordered := saved("NP").Mean, true
	below := [2]float64{np, np} // what the policy before saves, from no sprints on
	for _, policy := range sprinters() {
		l, u := saved(policy+" "+limitedBudget).Mean, saved(policy+" "+unlimitedBudget).Mean
		ordered = ordered && u < l && l < below[0] && u < below[1]
		below = [2]float64{l, u}
	}
	for i, budget := range []string{limitedBudget, unlimitedBudget} {
		for k, policy := range sprinters() {
			paper := [2][3]float64{{-15, -18.3, -21.6}, {-26, -28.2, -31}}[i][k]
			whole := s.change(complete, policy+" "+budget, "P", func(r *result) float64 { return r.idle })
			all = append(all, near("A17/"+policy+"/"+budget, "energy of the jobs: "+policy+", "+budget+" sprints, against P", "%", paper, 6, saved(policy+" "+budget), ordered,
				fmt.Sprintf("more drops and more sprints to save more, from NP on (%.1f %%); %+.1f %% if idle servers draw %d W", np, whole.Mean, idleWatts)))
		}
	}
	return all
}

// dropGain is what the drop itself gains over NPS in the paper, in percent of the mean
// response: queueing and execution times of Table 2.
func dropGain(policy string, class int) float64 {
	a, b := paperTable2()[policy][class], paperTable2()["NPS"][class]
	return ((a[0]+a[1])/(b[0]+b[1]) - 1) * 100
}

// fig11 is A18: latency of the complete DIAS against P.
func (s *study) fig11() (all []report.Target) {
	for _, policy := range sprinters()[1:] {
		for _, budget := range []string{limitedBudget, unlimitedBudget} {
			all = append(all, s.latency(policy, budget, high), s.latency(policy, budget, low))
		}
	}
	return all
}

// latency is A18 of a class: against P, and what the drop itself gains against NPS with the same sprints.
func (s *study) latency(policy, budget string, class int) report.Target {
	paper := map[string][2]float64{limitedBudget: {-40, -90}, unlimitedBudget: {-60, -90}}[budget][class]
	name := classNames()[class]
	than := func(budget string, q quantity) report.Stat { return s.change(complete, policy+" "+budget, "P", q) }
	mean, tail := than(budget, meanOf(class)), than(budget, tailOf(class))
	drop := s.change(complete, policy+" "+budget, "NPS "+budget, meanOf(class))
	met := mean.Mean < 0 && tail.Mean < 0 && than(budget, meanOf(low)).Mean < than(budget, meanOf(high)).Mean &&
		than(unlimitedBudget, meanOf(class)).Mean < than(limitedBudget, meanOf(class)).Mean && drop.High < 0
	gains := fmt.Sprintf("%.1f %%", drop.Mean)
	if budget == limitedBudget {
		const slack = 10 // points
		met = met && math.Abs(drop.Mean-dropGain(policy, class)) <= slack
		gains += fmt.Sprintf(", by Table 2 %.1f %%, within %d points", dropGain(policy, class), slack)
	}
	why := fmt.Sprintf("killed runs keep P busy %.1f %% of the time: its low queue grows as long as the run is", s.of(complete, "P", busyOf).Mean)
	if class == high {
		why = fmt.Sprintf("under P high jobs wait only for each other, %.0f s of %.0f s, which leaves little to gain", s.of(complete, "P", queueOf(high)).Mean, s.of(complete, "P", meanOf(high)).Mean)
	}
	return near(strings.Join([]string{"A18", policy, budget, name}, "/"), fmt.Sprintf("%s, %s sprints, against P: mean response of the %s class", policy, budget, name), "%", paper, 6, mean, met,
		fmt.Sprintf("mean and tail (%+.1f %%) to fall, low more than high, more by unlimited sprints; the drop itself to gain over NPS with the same sprints: %s; %s", tail.Mean, gains, why))
}
