package simulation

import (
	"slices"
	"time"
)

// shrinkRuns bounds how many schedules one shrinking runs: some seconds.
const shrinkRuns = 400

// shrinker looks for a lesser schedule that still breaks the same promise.
type shrinker struct {
	best     Schedule
	happened []string // occurrences of the best
	runs     int
}

// shrink turns a schedule that breaks a promise into the least one it can find that does so too: fewer classes of faults, fewer occurrences,
// a shorter span. A schedule that breaks nothing comes back as it is, and false.
func shrink(s Schedule, promise string) (Schedule, bool) {
	s.Promise = promise
	k := &shrinker{}
	if !k.try(s) {
		return s, false
	}
	k.classes()
	k.occurrences()
	k.classes()
	for s = k.best; k.runs < shrinkRuns; s = k.best { // let the faults end earlier
		s.SpanMS -= (5 * time.Second).Milliseconds()
		if s.span() < minSpan || !k.try(s) {
			break
		}
	}
	return k.best, true
}

// try runs a schedule, and keeps it when it still breaks the promise.
func (k *shrinker) try(s Schedule) bool {
	k.runs++
	w := s.run(nil)
	i := slices.IndexFunc(w.judge.found, func(v Violation) bool { return v.Promise == s.Promise })
	if i < 0 {
		return false
	}
	if s.Only == nil {
		s.Only = []string{}
		for _, c := range classes() {
			if w.on[c.name] {
				s.Only = append(s.Only, c.name)
			}
		}
	}
	s.What = w.judge.found[i].What
	k.best, k.happened = s, w.happened
	return true
}

// classes turns off one class after the other, as long as that is possible.
func (k *shrinker) classes() {
	for again := true; again && k.runs < shrinkRuns; {
		again = false
		for _, class := range slices.Clone(k.best.Only) {
			s := k.best
			s.Only = slices.DeleteFunc(slices.Clone(s.Only), func(c string) bool { return c == class })
			again = k.try(s) || again
		}
	}
}

// occurrences leaves out as many as it can: halves first, then smaller parts (delta debugging; Zeller and Hildebrandt, TSE 2002).
func (k *shrinker) occurrences() {
	for size := max(1, len(k.happened)/2); size >= 1 && k.runs < shrinkRuns; {
		smaller := false
		for at := 0; at < len(k.happened) && k.runs < shrinkRuns; {
			s := k.best
			s.Keep = slices.Delete(slices.Clone(k.happened), at, min(len(k.happened), at+size))
			if k.try(s) {
				smaller = true
			} else {
				at += size
			}
		}
		if !smaller || size > len(k.happened) {
			size /= 2
		}
	}
}
