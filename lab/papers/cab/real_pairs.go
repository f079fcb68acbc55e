package cab

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"headroom/lab/chart"
	"headroom/lab/report"
)

// A real run compares variants in pairs: every pair runs each variant once, the one after
// the other on the same cluster, and is judged by itself. What changes slowly, such as
// other work of the machine, then moves all figures of a pair alike. Every second pair
// runs in the opposite order, ABBA, so that what grows from run to run favours nobody.

// abba are the variants in the order of a pair, which counts from 0.
func abba(pair int, variants []realVariant) []realVariant {
	order := slices.Clone(variants)
	if pair%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// realPair is one run of each variant.
type realPair []*realVariantRun

// pairs are the runs by pair.
func (r *realResults) pairs() []realPair {
	var all []realPair
	for i := range r.runs {
		run := &r.runs[i]
		for len(all) <= run.pair {
			all = append(all, nil)
		}
		all[run.pair] = append(all[run.pair], run)
	}
	return all
}

// by is the run of a variant, or nil.
func (p realPair) by(name string) *realVariantRun {
	for _, run := range p {
		if run.variant.name == name {
			return run
		}
	}
	return nil
}

// setTime and jobTimes are what runtimes of a variant are over the pair's uncapped ones:
// of the set, and the mean of its jobs.
func (p realPair) setTime(name string) float64 {
	return p.by(name).makespan().Seconds() / p.by(uncapped).makespan().Seconds()
}

func (p realPair) jobTimes(name string) (mean float64) {
	jobs := len(p.by(name).ended)
	for i := range jobs {
		mean += p.jobTime(name, i) / float64(jobs)
	}
	return mean
}

func (p realPair) jobTime(name string, job int) float64 {
	return p.by(name).runtime(job).Seconds() / p.by(uncapped).runtime(job).Seconds()
}

// impactGone is how much of a cap's impact, held, goes away where mine is left; unknown
// where the cap has no impact to speak of.
func impactGone(held, mine float64) float64 {
	if held < impactMin {
		return math.NaN()
	}
	return 1 - mine/held
}

// says is what came of the pair, in %, and what the machine did meanwhile.
func (p realPair) says(gone float64) string {
	value := "-"
	if !math.IsNaN(gone) {
		value = fmt.Sprintf("%.0f %%", gone)
	}
	span := func(of func(run *realVariantRun) float64, digits int) string {
		least, most := math.Inf(1), math.Inf(-1)
		for _, run := range p {
			least, most = min(least, of(run)), max(most, of(run))
		}
		return fmt.Sprintf("%.*f to %.*f", digits, least, digits, most)
	}
	return fmt.Sprintf("pair %d: %s, CPUs %s %% busy, %s %% stolen, burn %s s", p[0].pair+1, value,
		span(func(run *realVariantRun) float64 { return 100 * run.host.busy }, 0),
		span(func(run *realVariantRun) float64 { return 100 * run.host.steal }, 0),
		span(func(run *realVariantRun) float64 { return run.burn.Seconds() }, 2))
}

// summary is what came of a pair that has ended.
func (p realPair) summary() string {
	gone := 100 * impactGone(p.setTime(capped)-1, p.setTime(ours)-1)
	return fmt.Sprintf("capped %.2f, ours %.2f times the uncapped runtime, impact down: %s", p.setTime(capped), p.setTime(ours), p.says(gone))
}

// paired is a target of one value for each pair. A single pair has no bounds, and so the
// verdict order at best.
func paired(id, what, unit string, values []float64, note string, verdict func(s report.Stat) report.Verdict) report.Target {
	s := report.Of(values)
	t := report.Judge(id, what, unit, s, true, note)
	if !s.Known {
		return t
	}
	t.Verdict = verdict(s)
	if len(values) > 1 {
		t.Note = fmt.Sprintf("%s; %d pairs", note, len(values))
		return t
	}
	t.Low, t.High = nil, nil
	if t.Verdict == report.Met {
		t.Verdict = report.Order
	}
	t.Note = note + "; one pair has no bounds: order at best"
	return t
}

// impactVerdict judges how much of a cap's impact goes away, in %.
func impactVerdict(s report.Stat) report.Verdict {
	switch {
	case s.Mean >= impactDown && s.Low > impactBound:
		return report.Met
	case s.Low > 0:
		return report.Order
	}
	return report.Short
}

// ratioVerdict judges a ratio that is to be small: below 1 the order holds.
func ratioVerdict(met bool, mean float64) report.Verdict {
	switch {
	case met:
		return report.Met
	case mean < 1:
		return report.Order
	}
	return report.Short
}

// bounded is a mean with its bounds, in words.
func bounded(s report.Stat, digits int) string {
	switch {
	case !s.Known:
		return "-"
	case s.Low == s.High:
		return fmt.Sprintf("%.*f", digits, s.Mean)
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.Mean, digits, s.Low, digits, s.High)
}

// writePairs has the runs in their order, with the noise of the machine beside each.
func (r *realResults) writePairs(w io.Writer) error {
	rows := [][]string{{"pair", "variant", "set_s", "normalised", "jobs_normalised", "burn_s", "busy", "steal", "load", "cap_least", "cap_most", "masters"}}
	pairs := r.pairs()
	for i := range r.runs {
		run := &r.runs[i]
		p, name := pairs[run.pair], run.variant.name
		row := []string{strconv.Itoa(run.pair + 1), name}
		for _, x := range []float64{
			run.makespan().Seconds(), p.setTime(name), p.jobTimes(name), run.burn.Seconds(), run.host.busy, run.host.steal, run.host.load, run.least, run.most,
		} {
			row = append(row, report.Number(x))
		}
		rows = append(rows, append(row, strings.Join(run.masters, " ")))
	}
	return report.CSV(w, rows)
}

// drawPairs has the set's runtime over the uncapped one, by pair and variant.
func (r *realResults) drawPairs(w io.Writer) error {
	p := chart.New(fmt.Sprintf("Set %d at %d %% on YARN, cap %.0f %% of full power", r.set, r.quality, 100*r.cap), "pair", "runtime over uncapped")
	pairs := r.pairs()
	var names, labels []string
	for _, name := range []string{capped, approx, ours, stepped} {
		if pairs[0].by(name) != nil {
			names = append(names, name)
		}
	}
	const wide = 12
	most := 0.
	for i, name := range names {
		var values plotter.Values
		for _, pair := range pairs {
			values = append(values, pair.setTime(name))
		}
		bars, err := plotter.NewBarChart(values, vg.Points(wide))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = chart.Colours()[i+1], 0
		bars.Offset = vg.Points(wide * (float64(i) - float64(len(names)-1)/2))
		p.Add(bars)
		p.Legend.Add(name, bars)
		most = max(most, slices.Max(values))
	}
	for i := range pairs {
		labels = append(labels, strconv.Itoa(i+1))
	}
	p.NominalX(labels...)
	p.Y.Min, p.Y.Max = 0, 1.4*most // room for the legend
	return chart.Save(p, w)
}
