package clean

import (
	"errors"
	"maps"
	"slices"
	"time"
)

type state struct {
	nodes  map[string]int
	events []string
}

//headroom:apply
func (s *state) Apply(at time.Time) (int, error) {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.events = append(s.events, name)
	}
	var small []string
	for name, n := range s.nodes { // collect, then sort
		if n < 10 {
			small = append(small, name)
		}
	}
	slices.Sort(small)
	sum, most, any, twice := 0, 0, false, map[string]int{}
	for name, n := range s.nodes {
		sum += n
		most = max(most, n)
		any = any || n > 3
		half := n / 2
		half++
		twice[name] = 2*n + half
		put(s.nodes, name, n+1)
		if n == 0 {
			delete(s.nodes, name)
			continue
		}
		switch {
		case n > 100:
			return 0, errors.New("too many")
		default:
			sum++
		}
	}
	return sum + most + int(at.Unix()), nil
}

func put(m map[string]int, key string, v int) { m[key] = v }

//headroom:apply
func (s *state) Full() bool {
	for _, n := range s.nodes {
		if n < 5 {
			return false
		}
	}
	return true
}

// Not marked and not reached.
func First(m map[string]int) string {
	for name := range m {
		return name
	}
	return time.Now().String()
}
