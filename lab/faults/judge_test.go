// Claims: too many watts together, and a node above its fail-safe cap after its lease,
// are found once they last; what the promises allow is not.
package faults

import (
	"math"
	"slices"
	"testing"
	"time"
)

// look has the judge look ten times a second at constant draws, and returns its violations.
func look(j *judge, from, to float64, watts ...float64) []string {
	draws := map[string]float64{}
	for i, w := range watts {
		if !math.IsNaN(w) {
			draws[j.nodes[i]] = w
		}
	}
	for s := from; s < to; s += 0.1 {
		j.look(at(s), draws)
	}
	_, wrong, _ := j.report()
	return wrong
}

func TestJudge(t *testing.T) {
	t.Parallel()
	blind := math.NaN()
	for name, c := range map[string]struct {
		before func(*judge)
		watts  []float64
		until  float64
		wrong  bool
	}{
		"within the budget":             {nil, []float64{150, 150, 100}, 60, false},
		"over the budget":               {nil, []float64{200, 150, 100}, 60, true},
		"over it for a moment":          {nil, []float64{200, 150, 100}, 21, false},
		"a machine that nobody sees":    {nil, []float64{200, 150, blind}, 60, false},
		"a stopped powerd is shortfall": {func(j *judge) { j.unheld["n1"] = at(100) }, []float64{240, 95, 95}, 60, false},
		"beyond that shortfall":         {func(j *judge) { j.unheld["n1"] = at(100) }, []float64{240, 150, 95}, 60, true},
		"its charge is not paid for":    {func(j *judge) { j.unheld["n1"] = at(100) }, []float64{150, 150, 150}, 60, true},
		"a lease that ends":             {func(j *judge) { j.silent["n1"][1] = at(20) }, []float64{150, 100, 100}, 26, false},
		"a lease that does not end":     {func(j *judge) { j.silent["n1"][1] = at(20) }, []float64{150, 100, 100}, 40, true},
		"at the fail-safe cap":          {func(j *judge) { j.silent["n1"][1] = at(20) }, []float64{95, 150, 150}, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{first: 500, changes: []*change{done("a", 400, 1, 2, 5)}}
			j := newJudge(h, []string{"n1", "n2", "n3"}, nil)
			if c.before != nil {
				c.before(j)
			}
			if wrong := look(j, 20, c.until, c.watts...); (len(wrong) > 0) != c.wrong {
				t.Errorf("%q", wrong)
			}
		})
	}
}

// Every kind of fault comes once before any comes again, and names differ.
func TestFaultsDiffer(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range faults() {
		if f.more <= 0 || f.least+f.more > time.Minute {
			t.Errorf("%s lasts %v and up to %v more", f.name, f.least, f.more)
		}
		names = append(names, f.name)
	}
	slices.Sort(names)
	if got := len(slices.Compact(slices.Clone(names))); got != len(names) {
		t.Errorf("names repeat: %q", names)
	}
}
