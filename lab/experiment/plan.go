package experiment

import (
	"maps"
	"slices"
	"strings"
)

// firstSeed is the seed of the first pair; the others follow it.
const firstSeed = 1001

// pairs are the counted runs by seed. The runs of a pair are of one machine: of one that has all variants, and of this one where none has.
func pairs(s *Spec, records []Record, machine string) map[uint64]Pair {
	type place struct {
		seed    uint64
		machine string
	}
	by, out := map[place]Pair{}, map[uint64]Pair{}
	for i := range records {
		r := &records[i]
		if r.Noisy || !slices.Contains(s.Variants, r.Variant) {
			continue
		}
		at := place{r.Seed, r.Machine}
		if by[at] == nil {
			by[at] = Pair{}
		}
		by[at][r.Variant] = r.Figures
	}
	at := slices.SortedFunc(maps.Keys(by), func(a, b place) int { return strings.Compare(a.machine, b.machine) })
	for _, p := range at {
		if s.whole(by[p]) || p.machine == machine && !s.whole(out[p.seed]) {
			out[p.seed] = by[p]
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

type attempt struct {
	seed    uint64
	variant string
}

// next is the next run to make on this machine, without those that were tried in vain, and the earlier ones of its pair; false
// when no claim needs one. Every second pair runs in the opposite order, so that slow changes of the machine meet all alike.
func next(s *Spec, records []Record, machine string, tried map[attempt]bool) (todo attempt, earlier Pair, more bool) {
	by := pairs(s, records, machine)
	for i := range uint64(wanted(s, records)) {
		seed := firstSeed + i
		order := slices.Clone(s.Variants)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, v := range order {
			if _, made := by[seed][v]; !made && !s.whole(by[seed]) && !tried[attempt{seed, v}] {
				return attempt{seed, v}, by[seed], true
			}
		}
	}
	return attempt{}, nil, false
}

// wanted is how many pairs the claims of a spec need.
func wanted(s *Spec, records []Record) int {
	most, have := s.Pairs, len(wholePairs(s, records))
	for _, j := range Judge(s, records) {
		most = max(most, have+j.More)
	}
	return most
}
