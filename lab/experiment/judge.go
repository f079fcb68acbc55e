package experiment

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"headroom/lab/report"
)

// Judged is a claim with its values over all complete pairs.
type Judged struct {
	Spec  string   `json:"spec"`
	Claim string   `json:"claim"`
	What  string   `json:"what"`
	Unit  string   `json:"unit"`
	Got   *float64 `json:"got"`
	// Low and High are bounds that hold for all claims of the spec at once.
	Low     *float64       `json:"low"`
	High    *float64       `json:"high"`
	Pairs   int            `json:"pairs"`
	Verdict report.Verdict `json:"verdict"`
	// More is the number of further pairs that a verdict is expected to need.
	More int `json:"more"`
}

// Judge judges the claims of a spec by its finished runs.
func Judge(s *Spec, records []Record) (all []Judged) {
	found := wholePairs(s, records)
	for i := range s.Claims {
		c := &s.Claims[i]
		var values []float64
		for _, p := range found {
			if x := c.Value(p); !math.IsNaN(x) && !math.IsInf(x, 0) {
				values = append(values, x)
			}
		}
		j := c.judge(values, s.Pairs, len(s.Claims))
		j.Spec = s.Name
		all = append(all, j)
	}
	return all
}

// judge judges the values of one of so many claims, which needs so many pairs at least.
func (c *Claim) judge(values []float64, least, claims int) Judged {
	j := Judged{Claim: c.ID, What: c.What, Unit: c.Unit, Pairs: len(values), Verdict: report.Few}
	confidence := 1 - (1-report.Confidence)/float64(claims)
	s := report.Within(values, confidence)
	if s.Known {
		j.Got = &s.Mean
	}
	if len(values) > 1 {
		j.Low, j.High = &s.Low, &s.High
	}
	if c.Every {
		return c.every(j, values, least)
	}
	if j.More = least - len(values); j.More > 0 {
		return j
	}
	j.More = 0
	switch {
	case c.Met.holds(s):
		j.Verdict = report.Met
	case c.Met.Mean.Has(s.Mean, s.Mean) && c.Met.Bounds.Room(s.Mean) > 0:
		j.More = more(values, c.Met.Bounds.Room(s.Mean), confidence)
	case c.Order.holds(s):
		j.Verdict = report.Order
	case c.Order.Mean.Has(s.Mean, s.Mean) && c.Order.Bounds.Room(s.Mean) > 0:
		j.More = more(values, c.Order.Bounds.Room(s.Mean), confidence)
	default:
		j.Verdict = report.Short
	}
	if j.Verdict == report.Few && j.Pairs+j.More > pairsMost { // the truth lies too near the edge to be distinguished from it
		j.Verdict, j.More = report.Short, 0
		if c.Order.holds(s) {
			j.Verdict = report.Order
		}
	}
	return j
}

// every judges a claim that each value must satisfy.
func (c *Claim) every(j Judged, values []float64, least int) Judged {
	for _, x := range values {
		if !c.Met.Mean.Has(x, x) {
			j.Verdict = report.Short
			return j
		}
	}
	if j.More = max(0, least-len(values)); j.More == 0 {
		j.Verdict = report.Met
	}
	return j
}

func (a Aim) holds(s report.Stat) bool {
	return a.Mean.Has(s.Mean, s.Mean) && a.Bounds.Has(s.Low, s.High)
}

// pairsMost bounds the pairs of a spec.
const pairsMost = 40

// more is how many further values make the bounds of the mean narrower than room, if they spread as the
// present ones do.
func more(values []float64, room, confidence float64) int {
	s := report.Within(values, confidence)
	n := float64(len(values))
	spread := (s.High - s.Low) / 2 * math.Sqrt(n) / quantile(n-1, confidence)
	for k := len(values) + 1; k <= pairsMost; k++ {
		if quantile(float64(k-1), confidence)*spread/math.Sqrt(float64(k)) < room {
			return k - len(values)
		}
	}
	return pairsMost
}

// quantile is Student's t of a two-sided bound.
func quantile(freedom, confidence float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + confidence) / 2)
}
