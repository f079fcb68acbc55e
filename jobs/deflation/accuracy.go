package deflation

import (
	"fmt"
	"math"

	"headroom/jobs/quality"
)

// Loss is one row of an accuracy profile: at this drop ratio the result is off by so much,
// both from 0 to 1.
type Loss struct{ Drop, Error float64 }

// ProfileOf returns a table of drop ratios and errors as a quality profile: errors never fall
// with the drop ratio (rows that say otherwise are pooled and named in a warning), dropping
// nothing is exact, dropping everything leaves nothing. DIAS's Fig. 6 is such a table. The
// error is a *ProblemError.
func ProfileOf(name string, table []Loss) (*quality.Profile, []string, error) {
	if len(table) == 0 {
		return nil, nil, bad("profile", "is empty; measure one with `scheduler profile`, or give rows with drop and error")
	}
	p := quality.Profile{Name: name, Engine: "table"}
	for i, row := range table {
		place := fmt.Sprintf("profile[%d]", i)
		switch {
		case !(row.Drop >= 0 && row.Drop <= 1):
			return nil, nil, bad(place+".drop", "is %v; a drop ratio is from 0 to 1", row.Drop)
		case !(row.Error >= 0 && row.Error <= 1):
			return nil, nil, bad(place+".error", "is %v; an error is from 0 to 1", row.Error)
		case row.Drop == 0 && row.Error > 0:
			return nil, nil, bad(place+".error", "is %v at drop ratio 0; errors are relative to that result, so it must be 0", row.Error)
		case row.Drop == 1 && row.Error < 1:
			return nil, nil, bad(place+".error", "is %v at drop ratio 1; no result remains, so it must be 1", row.Error)
		case row.Drop == 1:
			continue // every profile has that end
		}
		accuracy := 1 - row.Error
		p.Points = append(p.Points, quality.Point{Fraction: 1 - row.Drop, Accuracy: accuracy, Low: accuracy, High: accuracy, Runs: 1})
	}
	if len(p.Points) == 0 {
		return nil, nil, bad("profile", "has only the row for drop ratio 1; give a row with a drop ratio below 1")
	}
	made, warnings, err := quality.New(p)
	if err != nil {
		return nil, nil, because("profile", "is invalid", err)
	}
	return &made, warnings, nil
}

// ErrorAt returns by how much a result is off at a drop ratio from 0 to 1: in the worst run that
// was measured, as quality floors go by that too. Dropping nothing is exact.
func ErrorAt(p *quality.Profile, theta float64) float64 {
	if theta <= 0 || math.IsNaN(theta) {
		return 0
	}
	_, low, _ := p.Accuracy(1 - theta)
	return 1 - low
}

// DropWithin returns the greatest drop ratio, in percents, at which a result is off by no more
// than a bound.
func DropWithin(p *quality.Profile, errorMax float64) float64 {
	for percent := 99; percent > 0; percent-- {
		if theta := float64(percent) / 100; ErrorAt(p, theta) <= errorMax+1e-12 {
			return theta
		}
	}
	return 0
}
