package sparkapp

import (
	"cmp"
	"slices"
)

// Share is what one application may hold.
type Share struct {
	// Job is its id.
	Job string
	// Cores is its share, Unit the cores of one executor; at least 1.
	Cores, Unit int
}

// Executors makes whole executors of shares. Each application gets as many as fit into its
// share, at least one; what is left over of all shares goes to those that miss the least of
// a further one, by largest remainder, as long as it lasts. The order of the shares decides
// among equals.
func Executors(shares []Share) map[string]int {
	out := make(map[string]int, len(shares))
	order := make([]int, len(shares))
	left := 0
	for i, s := range shares {
		order[i] = i
		n := max(1, s.whole())
		out[s.Job] = min(n, ExecutorsMax)
		left += max(0, s.Cores) - n*s.unit()
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(shares[b].remainder(), shares[a].remainder()) })
	for _, i := range order {
		if s := shares[i]; s.remainder() > 0 && s.whole() > 0 && left >= s.unit() && out[s.Job] < ExecutorsMax {
			out[s.Job]++
			left -= s.unit()
		}
	}
	return out
}

func (s Share) unit() int { return max(1, s.Unit) }

func (s Share) whole() int { return max(0, s.Cores) / s.unit() }

// remainder returns what is left of the share, as a part of one executor.
func (s Share) remainder() float64 { return float64(max(0, s.Cores)%s.unit()) / float64(s.unit()) }
