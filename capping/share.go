package capping

import "headroom/units"

// Socket is one package for Share.
type Socket struct {
	// Power that it draws, smoothed; unknown counts as an equal part.
	Power Reading
	// Limit that it holds now, 0 when nothing was written yet.
	Limit units.Power
	// Min and Max are the lowest and the highest limit it takes; 0: not known.
	Min, Max units.Power
}

const (
	// shareMin is the part of an equal share that no socket goes below: an idle
	// one must be able to start work before the next step.
	shareMin = 0.4
	// shareMore is how much more than it draws a socket asks for when it stands
	// at its limit; what it would really use is not to be seen.
	shareMore = 1.25
)

// Share divides a limit between packages by measured demand: the watts of an idle socket
// go to the busy one. The parts sum to
// at most total (from 1 W a socket and the sum of Min up); each is a multiple of Grain and
// at least Grain and Min.
func Share(total units.Power, sockets []Socket) []units.Power {
	parts := make([]units.Power, len(sockets))
	if len(sockets) == 0 {
		return parts
	}
	free := total // by the minimums
	for _, s := range sockets {
		free = max(0, free-s.least())
	}
	least := shareMin * free.Watts() / float64(len(sockets))
	demand := demands(total, sockets)
	var sum float64
	for _, d := range demand {
		sum += d
	}
	rest := free.Watts() - least*float64(len(sockets))
	for i, d := range demand {
		parts[i] = grain(sockets[i].least().Watts() + least + rest*d/sum)
	}
	return topUp(total, parts, sockets)
}

// least returns Min as a limit can hold it.
func (s Socket) least() units.Power { return (s.Min + Grain - 1) / Grain * Grain }

// demands returns positive weights: the power that each socket would use without a limit.
func demands(total units.Power, sockets []Socket) []float64 {
	equal := total.Watts() / float64(len(sockets))
	demand := make([]float64, len(sockets))
	for i, s := range sockets {
		demand[i] = equal
		if s.Power.Known {
			demand[i] = max(s.Power.Power.Watts(), 0.01*equal, Grain.Watts())
		}
		if s.Power.Known && s.Limit > 0 && s.Power.Power.Watts() >= s.Limit.Watts()*(1-limitedBand) {
			demand[i] *= shareMore
		}
	}
	return demand
}

// topUp moves power above a socket's highest limit to the others.
func topUp(total units.Power, parts []units.Power, sockets []Socket) []units.Power {
	left := total
	for i, s := range sockets {
		if s.Max > 0 && parts[i] > s.Max {
			parts[i] = max(Grain, s.Max/Grain*Grain)
		}
		left -= parts[i]
	}
	for i, s := range sockets {
		if left < Grain {
			break
		}
		more := left / Grain * Grain
		if s.Max > 0 {
			more = min(more, (s.Max-parts[i])/Grain*Grain)
		}
		if more > 0 {
			parts[i], left = parts[i]+more, left-more
		}
	}
	return parts
}
