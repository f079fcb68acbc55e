package command

import (
	"fmt"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

// scalingItem is how a job's speed follows its containers, in -o json.
type scalingItem struct {
	// Peak is the number beyond which more containers slow it down; null where none is known.
	Peak *uint32 `json:"peak"`
	Runs uint32  `json:"runs"`
	// Type is I, II, III or IV; null while unknown.
	Type      *string        `json:"type"`
	Error     float64        `json:"error"`
	Exploring bool           `json:"exploring"`
	Points    []scalingPoint `json:"points"`
}

// scalingPoint is how many times as fast the job is on so many containers as on one.
type scalingPoint struct {
	Containers uint32  `json:"containers"`
	Speedup    float64 `json:"speedup"`
}

// scalingItemOf is a scaling curve for programs, nil for none.
func scalingItemOf(s *headroomv1.Scaling) *scalingItem {
	if s == nil {
		return nil
	}
	peak := scalingPeak(s)
	item := &scalingItem{Peak: cli.Known(peak, peak > 0), Runs: s.GetRuns(), Type: cli.Known(s.GetType(), s.GetType() != ""), Error: s.GetError(), Exploring: s.GetExploring()}
	for _, p := range s.GetPoints() {
		item.Points = append(item.Points, scalingPoint{p.GetContainers(), p.GetSpeedup()})
	}
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

// scalingText says what a curve means for the job.
func scalingText(s *headroomv1.Scaling) string {
	peak, learned := scalingPeak(s), fmt.Sprintf("learned from %d runs", s.GetRuns())
	if s.GetType() != "" {
		learned += fmt.Sprintf(", type %s, mean error %s", s.GetType(), units.Percent(s.GetError()))
	}
	switch {
	case s.GetExploring():
		return fmt.Sprintf("at most %d containers in this run, to learn how it scales; %s", peak, learned)
	case peak > 0:
		return fmt.Sprintf("more than %d containers slow it down; %s", peak, learned)
	}
	return "no number of containers is known that slows it down; " + learned
}
