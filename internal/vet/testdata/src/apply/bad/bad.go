package bad

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

type state struct {
	nodes  map[string]int
	loads  map[string]float64
	events []string
	last   string
}

type node struct{ cap int }

//headroom:apply
func (s *state) Apply() int {
	s.clock()
	s.record()
	return s.pick()
}

func (s *state) clock() {
	_ = time.Now()     // want `time.Now differs between servers \(Apply > clock\)`
	_ = rand.IntN(3)   // want `rand.IntN differs`
	_ = os.Getenv("X") // want `os.Getenv differs`
	now := time.Now    // want `time.Now differs`
	_ = now
	go s.pick() // want `a goroutine ends in no fixed order`
}

func (s *state) record() {
	for name := range s.nodes {
		s.events = append(s.events, name) // want `depends on the order of the map`
	}
	for name := range s.nodes {
		s.note(name) // want `depends on the order of the map`
	}
	for name := range maps.Keys(s.nodes) {
		s.last = name // want `depends on the order of the map`
	}
	s.events = slices.Collect(maps.Keys(s.nodes)) // want `in the order of a map`
}

func (s *state) note(string) {}

func (s *state) pick() int {
	for _, n := range s.nodes {
		if n > 10 {
			return n // want `depends on the order of the map`
		}
	}
	sum, free := 0.0, 100
	for _, l := range s.loads {
		sum += l // want `depends on the order of the map`
	}
	for _, n := range s.nodes {
		if free > 0 {
			free = free - n
			continue
		}
		break // want `depends on the order of the map`
	}
	return free
}

func last(all map[string]*node, one *node) {
	for _, n := range all {
		one.cap = n.cap // want `depends on the order of the map`
	}
}

//headroom:apply
func Sweep(all map[string]*node) { last(all, &node{}) }
