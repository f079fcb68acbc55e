package cli

import (
	"fmt"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// Scaling is how a job's speed follows its containers, in -o json.
type Scaling struct {
	// Peak is the number beyond which more containers slow it down; null where none is known.
	Peak *uint32 `json:"peak" of:"-"`
	Runs uint32  `json:"runs"`
	// Type is I, II, III or IV; null while unknown.
	Type      *string        `json:"type"`
	Error     float64        `json:"error"`
	Exploring bool           `json:"exploring"`
	Points    []ScalingPoint `json:"points"`
}

// ScalingPoint is how many times as fast the job is on so many containers as on one.
type ScalingPoint struct {
	Containers uint32  `json:"containers"`
	Speedup    float64 `json:"speedup"`
}

// ScalingOf is a scaling curve for programs, nil for none.
func ScalingOf(s *headroomv1.Scaling) *Scaling {
	if s == nil {
		return nil
	}
	peak := scalingPeak(s)
	item := &Scaling{Peak: Known(peak, peak > 0)}
	Fill(item, s)
	return item
}

// scalingPeak is the highest point of a curve, 0 where that is its last.
func scalingPeak(s *headroomv1.Scaling) uint32 {
	best := 0
	for i, p := range s.GetPoints() {
		if p.GetSpeedup() > s.GetPoints()[best].GetSpeedup() {
			best = i
		}
	}
	if best >= len(s.GetPoints())-1 {
		return 0
	}
	return s.GetPoints()[best].GetContainers()
}

// ScalingText says what a curve means for the job, whose containers are called by a name: "slots", say.
func ScalingText(s *headroomv1.Scaling, containers string) string {
	peak, learned := scalingPeak(s), fmt.Sprintf("learned from %d runs", s.GetRuns())
	if s.GetType() != "" {
		learned += fmt.Sprintf(", type %s, mean error %s", s.GetType(), units.Percent(s.GetError()))
	}
	switch {
	case s.GetExploring():
		return fmt.Sprintf("at most %d %s in this run, to learn how it scales; %s", peak, containers, learned)
	case peak > 0:
		return fmt.Sprintf("more than %d %s slow it down; %s", peak, containers, learned)
	}
	return fmt.Sprintf("no number of %s is known that slows it down; %s", containers, learned)
}
