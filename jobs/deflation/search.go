package deflation

import (
	"math"
	"slices"
)

// found is a setting as the search remembers it: its number, and what its means say.
type found struct {
	number                int
	error, watts, latency float64
}

// search walks through the settings of a problem.
type search struct {
	*solver
	// ratios are how many drop ratios of each class are looked at.
	ratios []int
	// strict: bounds on the error hold.
	strict bool
	found  []found
	// failed and passed are drop ratios that cannot, and can, keep the bounds if all sprints
	// are granted and start as early as they may.
	failed, passed [][]int
	// refused are picks that missed a bound.
	refused []refusal
	// cut reports that the bound on the model's calls ended the search.
	cut bool
}

// refusal is a pick that missed a bound; alone: only under its own timeouts, because the
// budget did not pay all sprints, so that later timeouts may do better.
type refusal struct {
	pick  pick
	alone bool
}

// newSearch works out the means of all settings.
func newSearch(d *solver, strict bool) *search {
	s := &search{solver: d, strict: strict}
	size := 1
	for i := range d.menus {
		n := d.menus[i].ratios
		if strict {
			n = d.menus[i].within
		}
		s.ratios = append(s.ratios, n)
		size *= n * d.menus[i].timeouts
	}
	s.found = make([]found, size)
	for n := range s.found {
		options := d.options(s.pick(n))
		o := d.outcome(options, d.granted(options))
		s.found[n] = found{number: n, error: o.error, watts: o.watts, latency: o.latency}
	}
	return s
}

// pick returns the n-th setting.
func (s *search) pick(n int) pick {
	out := pick{make([]int, len(s.menus)), make([]int, len(s.menus))}
	for i := range s.menus {
		out.timeout[i], n = n%s.menus[i].timeouts, n/s.menus[i].timeouts
		out.ratio[i], n = n%s.ratios[i], n/s.ratios[i]
	}
	return out
}

// most returns the setting with the shortest jobs if all sprints are granted.
func (s *search) most() pick {
	out := pick{make([]int, len(s.menus)), make([]int, len(s.menus))}
	for i := range s.menus {
		out.ratio[i], out.timeout[i] = s.ratios[i]-1, s.menus[i].timeouts-1
	}
	return out
}

// best returns the first setting in the order of the objective that keeps all bounds; nil: none.
func (s *search) best() (*solved, error) {
	order := slices.DeleteFunc(slices.Clone(s.found), func(f found) bool { return math.IsInf(f.latency, 1) })
	slices.SortFunc(order, func(a, b found) int { return compare(&a, &b) })
	for _, f := range order {
		at := s.pick(f.number)
		if s.meansMiss(at) || s.isRefused(at) {
			continue
		}
		if s.calls >= s.CallsMost {
			s.cut = true
			return nil, nil //nolint:nilnil // none was found, and cut says why
		}
		possible, err := s.possible(at.ratio)
		if err != nil {
			return nil, err
		}
		if !possible {
			continue
		}
		got, err := s.solve(at)
		if err != nil {
			return nil, err
		}
		if s.keeps(got) {
			return got, nil
		}
		alone := slices.ContainsFunc(got.point.Classes, func(c Setting) bool { return c.Granted < 1 })
		s.refused = append(s.refused, refusal{at, alone})
	}
	return nil, nil //nolint:nilnil // that nothing keeps the bounds is no error
}

// keeps reports whether a point keeps the bounds that this search minds.
func (s *search) keeps(got *solved) bool {
	if got.point.Load >= loadMost {
		return false
	}
	return !slices.ContainsFunc(got.missed, func(v Violation) bool { return s.strict || v.What != "error" })
}

// meansMiss reports whether the bounds on means alone are missed: that costs no call.
func (s *search) meansMiss(at pick) bool {
	options := s.options(at)
	return s.miss(s.outcome(options, s.granted(options)))
}

func (s *search) miss(o outcome) bool {
	if o.means == nil {
		return true
	}
	for i, m := range o.means {
		if most := s.Classes[i].MeanMax; most > 0 && m > most {
			return true
		}
	}
	return false
}

// isRefused reports whether a setting whose jobs are no longer than here has missed a bound.
// Fewer tasks never make anybody's jobs longer, nor do earlier sprints that are all paid.
func (s *search) isRefused(at pick) bool {
	return slices.ContainsFunc(s.refused, func(r refusal) bool {
		if r.alone && !slices.Equal(r.pick.timeout, at.timeout) {
			return false
		}
		return below(at.ratio, r.pick.ratio) && below(at.timeout, r.pick.timeout)
	})
}

// below reports whether no index of a is above that of b.
func below(a, b []int) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// possible reports whether drop ratios can keep the bounds at all. It asks half-way to the
// greatest ratios first: where these cannot either, everything below them is settled.
func (s *search) possible(ratio []int) (bool, error) {
	far := make([]int, len(ratio))
	for i := range far {
		far[i] = s.ratios[i] - 1
	}
	for {
		ok, err := s.fastest(far)
		if !ok || err != nil || slices.Equal(far, ratio) {
			return ok, err
		}
		for i := range far {
			far[i] = (far[i] + ratio[i]) / 2 // rounds towards ratio, and so gets there
		}
	}
}

// fastest reports whether drop ratios keep the bounds if all sprints are granted and as early
// as may be.
func (s *search) fastest(ratio []int) (bool, error) {
	if slices.ContainsFunc(s.failed, func(f []int) bool { return below(ratio, f) }) {
		return false, nil
	}
	if slices.ContainsFunc(s.passed, func(p []int) bool { return below(p, ratio) }) {
		return true, nil
	}
	at := pick{ratio: slices.Clone(ratio), timeout: s.most().timeout}
	options := s.options(at)
	granted := make([]float64, len(options))
	for i := range granted {
		granted[i] = 1
	}
	o := s.outcome(options, granted)
	ok := !s.miss(o)
	if ok {
		got, err := s.finish(at, options, o)
		if err != nil {
			return false, err
		}
		ok = s.keeps(got)
	}
	if ok {
		s.passed = append(s.passed, at.ratio)
	} else {
		s.failed = append(s.failed, at.ratio)
	}
	return ok, nil
}

// nearest returns the setting that misses the bounds by the least part. No drop ratios do better
// than the greatest; of the timeouts all are tried, and then ratios fall back as far as that
// costs nothing.
func (s *search) nearest() (*solved, error) {
	var best *solved
	least := math.Inf(1)
	for n := range s.found {
		at := s.pick(n)
		if !slices.Equal(at.ratio, s.most().ratio) || math.IsInf(s.found[n].latency, 1) {
			continue
		}
		if best != nil && s.calls >= s.CallsMost {
			s.cut = true
			break
		}
		got, err := s.solve(at)
		if err != nil {
			return nil, err
		}
		if by := worst(got.missed); by < least || by == least && got.point.Power < best.point.Power {
			best, least = got, by
		}
	}
	if best == nil {
		return nil, nil //nolint:nilnil // all are overloaded
	}
	return s.fallBack(best)
}

// fallBack lowers drop ratios, one class after the other, while the worst violation does not grow.
func (s *search) fallBack(from *solved) (*solved, error) {
	for i := range s.menus {
		for from.pick.ratio[i] > 0 && s.calls < s.CallsMost {
			back := pick{slices.Clone(from.pick.ratio), from.pick.timeout}
			back.ratio[i]--
			got, err := s.solve(back)
			if err != nil {
				return nil, err
			}
			if got.point.Load >= loadMost || worst(got.missed) > worst(from.missed)*(1+1e-9) {
				break
			}
			from = got
		}
	}
	return from, nil
}

// worst returns the part by which the worst of the bounds is missed; 0: none is.
func worst(missed []Violation) float64 {
	out := 0.0
	for _, v := range missed {
		out = max(out, v.excess())
	}
	return out
}

// apart is by what part a point must beat another to stand beside it.
const apart = 1e-3

// frontier returns the settings that no other beats.
func (s *search) frontier() ([]Point, error) {
	if s.FrontierMost == 0 {
		return nil, nil
	}
	order := slices.DeleteFunc(slices.Clone(s.found), func(f found) bool { return math.IsInf(f.latency, 1) })
	slices.SortFunc(order, func(a, b found) int { return compare(&a, &b) })
	var kept []found
	for _, f := range order {
		beaten := slices.ContainsFunc(kept, func(k found) bool {
			return k.watts <= f.watts*(1+apart) && k.latency <= f.latency*(1+apart) // and no more error, by the order
		})
		if !beaten {
			kept = append(kept, f)
		}
	}
	var out []Point
	told := min(len(kept), s.FrontierMost)
	for i := range told {
		f := kept[i*len(kept)/told]
		got, err := s.solve(s.pick(f.number))
		if err != nil {
			return nil, err
		}
		out = append(out, got.point)
	}
	return out, nil
}
