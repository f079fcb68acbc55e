package grass

import "math/rand/v2"

// caps are the nodes' power caps, which come and go: a third of the nodes runs at a part of its
// speed from the start, and another third from the midst of the job on, while the first are free.
type caps struct{ speeds float64 }

// change is when the caps change, s.
func (c *caps) change(s *spec) float64 { return s.ideal() / 2 }

// speed is that of a slot's node at a time; no caps are full speed.
func (c *caps) speed(s *spec, slot int, at float64) float64 {
	if c == nil {
		return 1
	}
	third := rand.New(rand.NewPCG(s.seed, uint64(slot)<<1|1<<60)).IntN(3)
	if early := at < c.change(s); third == 0 && early || third == 1 && !early {
		return c.speeds
	}
	return 1
}

// mean is the mean speed from one time to another.
func (c *caps) mean(s *spec, slot int, from, to float64) float64 {
	if c == nil {
		return 1
	}
	at := c.change(s)
	if from >= at || to <= at || to <= from {
		return c.speed(s, slot, to)
	}
	return min(1, (c.speed(s, slot, from)*(at-from)+c.speed(s, slot, to)*(to-at))/(to-from))
}
