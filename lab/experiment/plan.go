package experiment

import (
	"maps"
	"slices"
)

// firstSeed is the seed of the first pair; the others follow it.
const firstSeed = 1001

// pairs are the counted runs by seed. The runs of a pair are of one machine: those of the machine with
// the most variants, and of this one where none has all.
func pairs(s *Spec, records []Record, machine string) map[uint64]Pair {
	by := map[uint64]map[string]Pair{}
	for i := range records {
		r := &records[i]
		if r.Noisy || !slices.Contains(s.Variants, r.Variant) {
			continue
		}
		if by[r.Seed] == nil {
			by[r.Seed] = map[string]Pair{}
		}
		if by[r.Seed][r.Machine] == nil {
			by[r.Seed][r.Machine] = Pair{}
		}
		by[r.Seed][r.Machine][r.Variant] = r.Figures
	}
	out := map[uint64]Pair{}
	for seed, machines := range by {
		out[seed] = machines[machine]
		for _, name := range slices.Sorted(maps.Keys(machines)) {
			if s.whole(machines[name]) {
				out[seed] = machines[name]
			}
		}
	}
	return out
}

func (s *Spec) whole(p Pair) bool { return len(p) == len(s.Variants) }

// wholePairs are the complete pairs in the order of their seeds.
func wholePairs(s *Spec, records []Record) (all []Pair) {
	by := pairs(s, records, "")
	for _, seed := range slices.Sorted(maps.Keys(by)) {
		if s.whole(by[seed]) {
			all = append(all, by[seed])
		}
	}
	return all
}

// attempt identifies a run.
type attempt struct {
	seed    uint64
	variant string
}

// step is a run to make, after those of its pair.
type step struct {
	attempt

	earlier Pair
}

// next is the next run to make on this machine, without those that were tried in vain; false when no claim
// needs one. Every second pair runs in the opposite order, so that slow changes of the machine meet all alike.
func next(s *Spec, records []Record, machine string, tried map[attempt]bool) (step, bool) {
	by := pairs(s, records, machine)
	for i := range uint64(wanted(s, records)) {
		seed := firstSeed + i
		order := slices.Clone(s.Variants)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, v := range order {
			if _, made := by[seed][v]; !made && !s.whole(by[seed]) && !tried[attempt{seed, v}] {
				return step{attempt{seed, v}, by[seed]}, true
			}
		}
	}
	return step{}, false
}

// wanted is how many pairs the claims of a spec need.
func wanted(s *Spec, records []Record) int {
	most, have := s.Pairs, len(wholePairs(s, records))
	for _, j := range Judge(s, records) {
		most = max(most, have+j.More)
	}
	return most
}
