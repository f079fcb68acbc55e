package progress

import (
	"math"
	"time"
)

// notesMax bounds what a Score keeps of one policy; beyond it every other one goes.
const notesMax = 512

// Score keeps what policies said of one job, to judge them once it has ended. The
// zero value is ready.
type Score struct {
	notes map[Policy]*notes
}

// notes are the predictions of one policy.
type notes struct {
	kept []Finish
	// every is how many predictions one kept stands for; seen are all.
	every, seen int
}

// Note takes what a policy says now; what it does not know is not held against it.
func (s *Score) Note(p Policy, f Finish) {
	if !f.Known {
		return
	}
	if s.notes == nil {
		s.notes = map[Policy]*notes{}
	}
	n := s.notes[p]
	if n == nil {
		n = &notes{every: 1}
		s.notes[p] = n
	}
	if n.seen++; n.seen%n.every != 0 {
		return
	}
	n.kept = append(n.kept, f)
	if len(n.kept) > notesMax {
		for i := range len(n.kept) / 2 {
			n.kept[i] = n.kept[2*i+1]
		}
		n.kept, n.every = n.kept[:len(n.kept)/2], 2*n.every
	}
}

// Verdict is how well a policy foresaw the end of a job.
type Verdict struct {
	Policy Policy
	// Predictions are how many it made.
	Predictions int
	// Error is the mean distance of its predictions to the true runtime, relative to that.
	Error float64
	// Covered is the part of its predictions whose bounds held the true runtime.
	Covered float64
}

// Judge compares what was noted with the runtime that came true, policy by policy;
// policies that predicted nothing are left out.
func (s *Score) Judge(runtime time.Duration) []Verdict {
	var out []Verdict
	for _, p := range Policies() {
		n := s.notes[p]
		if n == nil || runtime <= 0 || len(n.kept) == 0 {
			continue
		}
		v := Verdict{Policy: p, Predictions: n.seen}
		for _, f := range n.kept {
			v.Error += math.Abs(f.At.Seconds()-runtime.Seconds()) / runtime.Seconds()
			if f.Low <= runtime && runtime <= f.High {
				v.Covered++
			}
		}
		v.Error /= float64(len(n.kept))
		v.Covered /= float64(len(n.kept))
		out = append(out, v)
	}
	return out
}
