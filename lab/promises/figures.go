package promises

import "headroom/lab/runs"

// Figures of a run, by name. A kind without jobs has none.
const (
	figureSDR      = "sdr"
	figurePTR      = "ptr"
	figureAccuracy = "accuracy"
	figureRan      = "accuracy_ran"
	figureBound    = "bound_s"
	figureExact    = "exact_s"
	figureWasted   = "wasted_s"
	figureEnergy   = "energy_j"
	figureRefused  = "refused"
)

// columns are the figures as tables show them.
func columns() []runs.Column {
	return []runs.Column{
		{Head: "SDR", Figure: figureSDR, Scale: 100, Digits: 1, Sign: -1},
		{Head: "PTR", Figure: figurePTR, Scale: 100, Digits: 1, Sign: -1},
		{Head: "ACCURACY", Figure: figureAccuracy, Scale: 100, Digits: 1, Sign: -1},
		{Head: "OF THOSE RUN", Figure: figureRan, Scale: 100, Digits: 1},
		{Head: "BOUND", Figure: figureBound, Scale: 1, Digits: 1, Sign: 1},
		{Head: "EXACT", Figure: figureExact, Scale: 1, Digits: 1, Sign: 1},
		{Head: "WASTED", Figure: figureWasted, Scale: 1, Digits: 1, Sign: 1},
		{Head: "ENERGY", Figure: figureEnergy, Scale: 1e-3, Digits: 1, Sign: 1},
		{Head: "REFUSED", Figure: figureRefused, Scale: 100, Digits: 1},
	}
}

// judges reports whether the verdict is by a figure.
func judges(figure string) bool {
	return figure == figureSDR || figure == figureAccuracy || figure == figureBound
}

// figures are those of a run whose jobs have all ended.
func (w *watch) figures() map[string]float64 {
	var met, all, accuracy, ran, bound, whole, refused mean
	work, kept, wasted := 0.0, 0.0, 0.0
	for i := range w.jobs {
		j, o := &w.jobs[i], &w.outcomes[i]
		wasted += o.waste(j)
		if j.kind.due() {
			ok := o.met(j)
			met.add(one(ok))
			refused.add(one(o.refused))
			work += o.work
			kept += o.work * one(ok)
		}
		switch j.kind {
		case partial:
			part := float64(o.inTime) / float64(j.tasks)
			accuracy.add(part * one(!o.refused))
			if !o.refused {
				ran.add(part)
			}
		case bounded:
			bound.add(o.bound.Seconds())
		case exact:
			whole.add(o.took.Seconds())
		case strict:
		}
	}
	if work > 0 {
		all.add(kept / work)
	}
	out := map[string]float64{}
	if !w.blind {
		out[figureWasted] = wasted
	}
	for name, m := range map[string]mean{
		figureSDR: met, figurePTR: all, figureAccuracy: accuracy, figureRan: ran, figureBound: bound, figureExact: whole, figureRefused: refused,
	} {
		if m.n > 0 {
			out[name] = m.sum / m.n
		}
	}
	return out
}

// waste is the work of a job that counted for nothing: all of it where it missed its deadline or has no result.
func (o *outcome) waste(j *job) float64 {
	if j.kind.due() && !o.met(j) || o.refused {
		return max(o.work, o.wasted)
	}
	return o.wasted
}

type mean struct{ sum, n float64 }

func (m *mean) add(x float64) { m.sum, m.n = m.sum+x, m.n+1 }

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
