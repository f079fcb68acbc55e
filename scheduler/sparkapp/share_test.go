// Claims: executors are whole and fit the shares together, but for the one that each application keeps; an application
// misses less than one executor of its share, unless others' firsts took it; the order does not matter among unequal ones.
package sparkapp

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestExecutors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shares []Share
		want   map[string]int
	}{
		"they fit":                 {[]Share{{"a", 4, 2}, {"b", 2, 1}}, map[string]int{"a": 2, "b": 2}},
		"the first of equals":      {[]Share{{"a", 3, 2}, {"b", 3, 2}}, map[string]int{"a": 2, "b": 1}},
		"the larger remainder":     {[]Share{{"a", 5, 4}, {"b", 7, 4}}, map[string]int{"a": 1, "b": 2}},
		"a share of nothing":       {[]Share{{"a", 0, 2}, {"b", 4, 2}}, map[string]int{"a": 1, "b": 2}},
		"less than one executor":   {[]Share{{"a", 1, 4}, {"b", 3, 2}}, map[string]int{"a": 1, "b": 1}},
		"unknown is at least one":  {[]Share{{"a", 3, 0}}, map[string]int{"a": 3}},
		"the most that hooks take": {[]Share{{"a", 1 << 29, 1}}, map[string]int{"a": ExecutorsMax}},
		"nobody":                   {nil, map[string]int{}},
	} {
		if got := Executors(c.shares); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestExecutorsFitTheShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var shares []Share
		for i := range rapid.IntRange(1, 8).Draw(t, "jobs") {
			shares = append(shares, Share{fmt.Sprint("j", i), rapid.IntRange(0, 40).Draw(t, "cores"), rapid.IntRange(1, 9).Draw(t, "unit")})
		}
		got := Executors(shares)
		held, all, first := 0, 0, 0
		for _, s := range shares {
			n := got[s.Job]
			held, all = held+n*s.Unit, all+s.Cores
			if s.Cores < s.Unit {
				first += s.Unit - s.Cores
			}
			if n < max(1, s.Cores/s.Unit) || n > s.Cores/s.Unit+1 {
				t.Errorf("%+v has %d executors", s, n)
			}
		}
		if held > all+first {
			t.Errorf("%d cores held, the shares have %d and firsts take %d more: %+v", held, all, first, got)
		}
	})
}
