package experiment

import (
	"math"
	"slices"

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
	for _, c := range s.Claims {
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
	if c.Every && slices.ContainsFunc(values, func(x float64) bool { return !c.Met.Mean.Has(x, x) }) {
		j.Verdict = report.Short
		return j
	}
	if j.More = max(0, least-len(values)); j.More > 0 {
		return j
	}
	if c.Every {
		j.Verdict = report.Met
		return j
	}
	for i, a := range []Aim{c.Met, c.Order} {
		if a.holds(s) {
			j.Verdict = []report.Verdict{report.Met, report.Order}[i]
			return j
		}
		if room := a.Bounds.Room(s.Mean); a.Mean.Has(s.Mean, s.Mean) && room > 0 {
			if j.More = more(values, room, confidence); j.Pairs+j.More <= pairsMost {
				return j
			}
			break // the truth lies too near the edge to be distinguished from it
		}
	}
	j.Verdict, j.More = report.Short, 0
	if c.Order.holds(s) {
		j.Verdict = report.Order
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
	half := func(n int) float64 { // the half width of the bounds of n values that spread by 1
		return distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile((1+confidence)/2) / math.Sqrt(float64(n))
	}
	spread := (s.High - s.Low) / 2 / half(len(values))
	for k := len(values) + 1; k <= pairsMost; k++ {
		if half(k)*spread < room {
			return k - len(values)
		}
	}
	return pairsMost
}
