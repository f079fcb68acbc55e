package dias

import (
	"fmt"
	"math"
	"strings"

	"headroom/lab/papers"
)

// Classes of an experiment with two.
const high, low = 0, 1

// near judges a number against the paper's with an absolute tolerance.
func near(id, what, unit string, paper, tolerance float64, got papers.Stat, why string) papers.Target {
	return papers.From(paper, papers.Around(paper, tolerance), papers.Judge(id, what, unit, got, math.Abs(got.Mean-paper) <= tolerance, why))
}

// rising tells whether each number is above the one before.
func rising(values ...float64) bool {
	for i := 1; i < len(values); i++ {
		if !(values[i] > values[i-1]) {
			return false
		}
	}
	return true
}

// targets judges everything.
func (s *study) targets() []papers.Target {
	var all []papers.Target
	for _, part := range [][]papers.Target{
		s.waste(), s.fig7(), s.fig8(), s.fig9(), {s.fig10()}, s.sprints(), s.table2(), s.energy(), s.fig11(),
	} {
		all = append(all, part...)
	}
	return all
}

// waste is A1 and A2.
func (s *study) waste() []papers.Target {
	return []papers.Target{
		near("A1", "P: machine time of killed runs, two classes", "%", 4, 1, s.of(reference, "P", wasteOf), ""),
		near("A2", "P: machine time of killed runs, three classes", "%", 16, 3, s.of(three, "P", wasteOf), ""),
	}
}

// fig7 is A3 to A8: the reference set-up.
func (s *study) fig7() []papers.Target {
	than := func(policy string, q quantity) papers.Stat { return s.change(reference, policy, "P", q) }
	qh, ql := s.of(reference, "P", queueOf(high)), s.of(reference, "P", queueOf(low))
	np, ten, twenty := than("NP", meanOf(high)), than("DA(0,10)", meanOf(low)), than("DA(0,20)", meanOf(low))
	highMean := than("DA(0,20)", meanOf(high))
	gap := papers.Of(differences(s.each(reference, "DA(0,10)", "P", meanOf(low)), s.each(reference, "DA(0,20)", "P", meanOf(low))))
	const between = "a high job that comes while a low one runs, half of all, waits for its rest"
	return []papers.Target{
		papers.From(0.03, papers.Around(0.03, 0.03), papers.Judge("A3/high", "P: mean queueing time of the high class", "s", qh, qh.Mean < ql.Mean/100, fmt.Sprintf(
			"to be below a hundredth of the low class's; with Poisson arrivals high jobs wait for each other for %.2f s, so 0.03 s is out of reach", s.alone(reference)))),
		papers.From(310, papers.Range{Low: 155, High: 620}, papers.Judge("A3/low", "P: mean queueing time of the low class", "s", ql, ql.Mean > 155 && ql.Mean < 620, "to be of this order, within a factor of 2")),
		near("A4", "NP against P: mean response of the low class", "%", -20, 8, than("NP", meanOf(low)), ""),
		near("A5", "NP against P: mean response of the high class", "%", 80, 20, np, between),
		near("A6/mean", "DA(0,20) against P: mean response of the low class", "%", -65, 10, twenty, ""),
		near("A6/p95", "DA(0,20) against P: 95th percentile of the low class", "%", -65, 10, than("DA(0,20)", tailOf(low)), ""),
		papers.Judge("A7", "by how much DA(0,20) gains more than DA(0,10), low mean", "points", gap, gap.Low > 0, fmt.Sprintf(
			"DA(0,10) %.1f %%, DA(0,20) %.1f %%: the second to gain more, as a whole wave drops: %d, %d and %d waves", ten.Mean, twenty.Mean, waves(0), waves(0.1), waves(0.2))),
		papers.From(10, papers.Around(10, 10), papers.Judge("A8", "DA(0,20) against P: mean response of the high class", "%", highMean, highMean.Mean > 0 && highMean.Mean < np.Mean, fmt.Sprintf(
			"to be a rise, below that of NP (%.1f %%); +10 %% is out of reach for one server at this load: %s", np.Mean, between))),
	}
}

// waves of a text job's maps at a drop ratio.
func waves(theta float64) int { return (kept(partitions, theta) + slots - 1) / slots }

// alone is how long the highest class waits for itself alone (Pollaczek and Khinchine), s.
func (s *study) alone(name string) float64 {
	for _, e := range s.experiments {
		if e.name == name {
			c := e.classes[0]
			m := profile(c.work, 0)
			return c.rate * m.square / 2 / (1 - c.rate*m.mean)
		}
	}
	return math.NaN()
}

// each is a change of every seed, in percent.
func (s *study) each(experiment, policy, than string, q quantity) []float64 {
	a, b := s.results(experiment, policy), s.results(experiment, than)
	if len(a) != len(b) {
		return nil
	}
	var values []float64
	for i := range a {
		values = append(values, (q(a[i])/q(b[i])-1)*100)
	}
	return values
}

func differences(a, b []float64) []float64 {
	if len(a) != len(b) {
		return nil
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// fig8 is A9 to A11: what the gains depend on.
func (s *study) fig8() []papers.Target {
	gain := func(name, policy, than string, q quantity) papers.Stat { return s.change(name, policy, than, q) }
	lows := func(policy string) float64 { return s.of(sameSize, policy, meanOf(low)).Mean }
	same, sameHigh, refHigh := gain(sameSize, "DA(0,20)", "P", meanOf(low)), gain(sameSize, "DA(0,20)", "P", meanOf(high)), gain(reference, "DA(0,20)", "P", meanOf(high))
	quiet := gain(lowLoad, "NP", "P", meanOf(low))
	most, mostTail := gain(mostlyHigh, "DA(0,20)", "NP", meanOf(low)), gain(mostlyHigh, "DA(0,20)", "NP", tailOf(low))
	ref, refTail := gain(reference, "DA(0,20)", "NP", meanOf(low)), gain(reference, "DA(0,20)", "NP", tailOf(low))
	mostHigh := gain(mostlyHigh, "DA(0,20)", "P", meanOf(high))
	return []papers.Target{
		papers.From(-80, papers.Around(-80, 10), papers.Judge("A9", "same size: DA(0,20) against P, mean response of the low class", "%", same,
			rising(lows("DA(0,20)"), lows("DA(0,10)"), lows("NP"), lows("P")) && sameHigh.Mean < refHigh.Mean, fmt.Sprintf(
				"P, NP, DA(0,10), DA(0,20) to be ever quicker, and the high class to lose less (%+.1f %%) than in the reference (%+.1f %%); 80 %% is out of reach: the drop takes a fifth of the low jobs' time, so the load falls to 0.66 only",
				sameHigh.Mean, refHigh.Mean))),
		papers.From(0, papers.Around(0, 10), papers.Judge("A10", "half the load: NP against P, mean response of the low class", "%", quiet, math.Abs(quiet.Mean) <= 10, fmt.Sprintf(
			"to be within 10 %%; the high class, %+.0f %%, still waits behind low jobs, at any load", gain(lowLoad, "NP", "P", meanOf(high)).Mean))),
		papers.Judge("A11", "nine high jobs to one low: what DA(0,20) gains over NP, mean response of the low class", "%", most,
			most.Mean > ref.Mean && mostTail.Mean > refTail.Mean && mostHigh.Mean > 0, fmt.Sprintf(
				"to be less than in the reference (%.1f %%; tails %.1f and %.1f %%), and the high class slower than under P (%+.1f %%); at load %g, as P has no steady state at 0.8",
				ref.Mean, mostTail.Mean, refTail.Mean, mostHigh.Mean, mostlyHighFor)),
	}
}

// fig9 is A12: three classes.
func (s *study) fig9() []papers.Target {
	const medium, lowest = 1, 2
	var all []papers.Target
	for _, policy := range []string{"DA(0,10,20)", "DA(0,20,40)"} {
		h, m, l := s.change(three, policy, "P", tailOf(high)), s.change(three, policy, "P", tailOf(medium)), s.change(three, policy, "P", tailOf(lowest))
		lm, mm := s.change(three, policy, "P", meanOf(lowest)), s.change(three, policy, "P", meanOf(medium))
		note := fmt.Sprintf("low to gain more than medium: tails %.1f and %.1f %%, means %.1f and %.1f %%", l.Mean, m.Mean, lm.Mean, mm.Mean)
		note += fmt.Sprintf("; P runs %.0f %% of the time here, so low jobs wait long; the paper's gain of the high class's tail is out of reach (%+.0f %%): low jobs are longer than high ones",
			100*s.of(three, "P", func(r *result) float64 { return r.busy }).Mean, h.Mean)
		all = append(all, papers.From(-60, papers.Around(-60, 10), papers.Judge("A12/"+policy, "three classes: "+policy+" against P, 95th percentile of the low class", "%", l,
			l.Mean < m.Mean && lm.Mean < mm.Mean && l.Mean < 0, note)))
	}
	return all
}

// fig10 is A13: the triangle count.
func (s *study) fig10() papers.Target {
	five, ten := s.change(triangle, "DA(0,5)", "P", meanOf(low)), s.change(triangle, "DA(0,10)", "P", meanOf(low))
	ordered := true
	for _, q := range []quantity{meanOf(low), tailOf(low), meanOf(high), tailOf(high)} {
		var by []float64
		for _, policy := range []string{"DA(0,20)", "DA(0,10)", "DA(0,5)", "DA(0,2)", "DA(0,1)"} {
			by = append(by, s.of(triangle, policy, q).Mean)
		}
		ordered = ordered && rising(by...)
	}
	return papers.From(-50, papers.AtMost(-50), papers.Judge("A13", "triangle count: DA(0,5) against P, mean response of the low class", "%", five, five.Mean <= -50 && ten.Mean <= -50 && ordered, fmt.Sprintf(
		"5 and 10 %% each stage to gain 50 %% or more (%.1f and %.1f %%), and all latencies to fall with the ratio; tails at 5 %%: low %+.1f %%, high %+.1f %% against P, %+.1f and %+.1f %% against NP",
		five.Mean, ten.Mean, s.change(triangle, "DA(0,5)", "P", tailOf(low)).Mean, s.change(triangle, "DA(0,5)", "P", tailOf(high)).Mean,
		s.change(triangle, "DA(0,5)", "NP", tailOf(low)).Mean, s.change(triangle, "DA(0,5)", "NP", tailOf(high)).Mean)))
}

// sprints is A14 and A15.
func (s *study) sprints() []papers.Target {
	nps := "NPS " + limitedBudget
	cut := s.change(complete, "NPS "+unlimitedBudget, "P", execOf(high))
	watts := s.of(complete, "NPS "+unlimitedBudget, func(r *result) float64 { return r.classes[high].joules / r.classes[high].exec })
	const table = 99.8
	return []papers.Target{
		papers.From(-60, papers.Around(-60, 10), papers.Judge("A14", "sprint from the start: execution time of the high class", "%", cut, math.Abs(cut.Mean+60) <= 1 && math.Abs(watts.Mean-sprintWatts) < 1, fmt.Sprintf(
			"to be -60 %% within 1 point, at %d instead of %d W (%.1f W measured): these are inputs", sprintWatts, busyWatts, watts.Mean))),
		near("A15/exec", "sprint after 65 s, 22 kJ: execution time of the high class", "s", table, 0.02*table, s.of(complete, nps, execOf(high)),
			"65 + (148.5 - 65) / 2.5 = 98.4 s when the budget never runs out"),
		near("A15/share", "sprint after 65 s, 22 kJ: part of the high class's time that is sprinted", "%", 35, 2, s.of(complete, nps, shareOf(high)), ""),
	}
}

// paperTable2 is Table 2: queueing and execution times by policy and class, s.
func paperTable2() []struct {
	policy string
	times  [2][2]float64
} {
	return []struct {
		policy string
		times  [2][2]float64
	}{
		{"NPS", [2][2]float64{{70.6, 99.8}, {378.9, 148.5}}},
		{"DIAS(0,10)", [2][2]float64{{70.0, 100.2}, {286.42, 139.0}}},
		{"DIAS(0,20)", [2][2]float64{{55.1, 99.4}, {238.0, 131.1}}},
	}
}

// table2 is A16, within 15 %.
func (s *study) table2() []papers.Target {
	var all []papers.Target
	for _, row := range paperTable2() {
		for class, times := range row.times {
			name := []string{"high", "low"}[class]
			for i, what := range []string{"queue", "exec"} {
				got := s.of(complete, row.policy+" "+limitedBudget, []quantity{queueOf(class), execOf(class)}[i])
				note := fmt.Sprintf("to be within 15 %%: %+.1f %%", (got.Mean/times[i]-1)*100)
				long := []string{"queueing", "execution"}[i]
				all = append(all, papers.From(times[i], papers.Around(times[i], 0.15*times[i]), papers.Judge(fmt.Sprintf("A16/%s/%s/%s", row.policy, name, what),
					fmt.Sprintf("Table 2: mean %s time of the %s class under %s", long, name, row.policy), "s", got,
					math.Abs(got.Mean/times[i]-1) <= 0.15, note)))
			}
		}
	}
	return all
}

// energy is A17: the energy of all jobs against P.
func (s *study) energy() []papers.Target {
	paper := map[string][]float64{limitedBudget: {-15, -18.3, -21.6}, unlimitedBudget: {-26, -28.2, -31}}
	policies := []string{"NPS", "DIAS(0,10)", "DIAS(0,20)"}
	saved := func(policy, budget string) papers.Stat { return s.change(complete, policy+" "+budget, "P", energyOf) }
	ordered := true
	below := [2]float64{} // what the policy before saves, from nothing on
	for _, policy := range policies {
		l, u := saved(policy, limitedBudget).Mean, saved(policy, unlimitedBudget).Mean
		ordered = ordered && u < l && rising(l, below[0]) && rising(u, below[1])
		below = [2]float64{l, u}
	}
	var all []papers.Target
	for _, budget := range []string{limitedBudget, unlimitedBudget} {
		for i, policy := range policies {
			whole := s.change(complete, policy+" "+budget, "P", wholeOf)
			t := near("A17/"+policy+"/"+budget, "energy of the jobs: "+policy+", "+budget+" sprints, against P", "%", paper[budget][i], 6, saved(policy, budget),
				fmt.Sprintf("more drops and more sprints to save more; %+.1f %% if idle servers draw %d W", whole.Mean, idleWatts))
			if !ordered {
				t.Verdict = papers.Short
			}
			all = append(all, t)
		}
	}
	return all
}

// fig11 is A18: latency of the complete DIAS against P.
func (s *study) fig11() []papers.Target {
	paper := map[string][2]float64{limitedBudget: {-40, -90}, unlimitedBudget: {-60, -90}}
	var all []papers.Target
	for _, policy := range []string{"DIAS(0,10)", "DIAS(0,20)"} {
		for _, budget := range []string{limitedBudget, unlimitedBudget} {
			for class, name := range []string{"high", "low"} {
				all = append(all, papers.From(paper[budget][class], papers.Around(paper[budget][class], 10), s.latency(policy, budget, class, name)))
			}
		}
	}
	return all
}

func (s *study) latency(policy, budget string, class int, name string) papers.Target {
	than := func(budget string, q quantity) float64 { return s.change(complete, policy+" "+budget, "P", q).Mean }
	mean, tail := s.change(complete, policy+" "+budget, "P", meanOf(class)), s.change(complete, policy+" "+budget, "P", tailOf(class))
	met := mean.Mean < 0 && tail.Mean < 0 &&
		than(budget, meanOf(low)) < than(budget, meanOf(high)) && than(unlimitedBudget, meanOf(class)) < than(limitedBudget, meanOf(class))
	notes := []string{fmt.Sprintf("mean and tail (%+.1f %%) to fall, low more than high, more by unlimited sprints", tail.Mean)}
	if class == high {
		notes = append(notes, fmt.Sprintf("under P high jobs wait only for each other, %.0f s of %.0f s, which leaves little to gain", s.of(complete, "P", queueOf(high)).Mean, s.of(complete, "P", meanOf(high)).Mean))
	} else {
		notes = append(notes, fmt.Sprintf("killed runs keep P busy %.1f %% of the time: its low queue grows as long as the run is", 100*s.of(complete, "P", func(r *result) float64 { return r.busy }).Mean))
	}
	return papers.Judge(fmt.Sprintf("A18/%s/%s/%s", policy, budget, name), fmt.Sprintf("%s, %s sprints, against P: mean response of the %s class", policy, budget, name), "%",
		mean, met, strings.Join(notes, "; "))
}
