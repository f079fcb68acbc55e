package ledger

import (
	"fmt"
	"reflect"
	"slices"

	"headroom/jobs/containers"
)

// Scaling is how a job's speed follows its containers, as its scheduler has learned from earlier runs.
type Scaling struct {
	// Points are those of a containers.Curve.
	Points []ScalingPoint `json:"points"`
	// Runs are those that it was learned from, Type the type of scaling, and Error the mean error of their times by the
	// curve, as a part of them.
	Runs  uint32  `json:"runs,omitempty"`
	Type  string  `json:"type,omitempty"`
	Error float64 `json:"error,omitempty"`
	// Exploring is true where the curve lets the job have more containers than earlier runs had, to learn from it.
	Exploring bool `json:"exploring,omitempty"`
}

// ScalingPoint is how many times as fast a job is on so many containers as on one.
type ScalingPoint struct {
	Containers uint32  `json:"containers"`
	Speedup    float64 `json:"speedup"`
}

// maxScalingRuns bounds the runs that a curve may be learned from.
const maxScalingRuns = 1_000_000

// scalingTypes are the types of scaling; empty where it is not known.
func scalingTypes() []string { return []string{"", "I", "II", "III", "IV"} }

// Curve returns the curve; nil without one. An error names the field that makes no sense.
func (s *Scaling) Curve() (*containers.Curve, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // nil is the curve of a job of which none is known
	}
	points := make([]containers.CurvePoint, min(len(s.Points), containers.CurvePointsMost+1))
	for i := range points {
		points[i] = containers.CurvePoint{Containers: int(s.Points[i].Containers), Speedup: s.Points[i].Speedup}
	}
	return containers.NewCurve(points)
}

// Check refuses numbers that make no sense about the job of this name, and says which.
func (s *Scaling) Check(job string) error {
	if s == nil {
		return nil
	}
	if len(s.Points) > containers.CurvePointsMost {
		return fmt.Errorf("job %q: its scaling.points are %d, at most %d are taken: %w", job, len(s.Points), containers.CurvePointsMost, ErrJob)
	}
	if _, err := s.Curve(); err != nil {
		return fmt.Errorf("job %q: its scaling: %w: %w", job, err, ErrJob)
	}
	switch {
	case s.Runs > maxScalingRuns:
		return fmt.Errorf("job %q: its scaling.runs are %d, at most %d are taken: %w", job, s.Runs, maxScalingRuns, ErrJob)
	case !slices.Contains(scalingTypes(), s.Type):
		return fmt.Errorf("job %q: its scaling.type is %.20q; it is I, II, III, IV or left out: %w", job, s.Type, ErrJob)
	case !(s.Error >= 0 && s.Error <= 1):
		return fmt.Errorf("job %q: its scaling.error is %v; it must be from 0 to 1: %w", job, s.Error, ErrJob)
	}
	return nil
}

// rescale takes another curve of a job that was accepted before.
func (t *tx) rescale(c Command, id string, s *Scaling) {
	j := t.Jobs[id]
	if s == nil || j.State != JobAccepted || reflect.DeepEqual(j.Scaling, s) {
		return
	}
	j.Scaling = s
	put(t, t.Jobs, id, j)
	t.record(c, fmt.Sprintf("job %s: %s", id, s.words()))
}

// words says what is known of the curve.
func (s *Scaling) words() string {
	if s.Exploring {
		return fmt.Sprintf("scaling curve of %d runs, exploring beyond it", s.Runs)
	}
	if c, err := s.Curve(); err == nil && c.Peak() > 0 {
		return fmt.Sprintf("more than %d containers slow it down, learned from %d runs", c.Peak(), s.Runs)
	}
	return fmt.Sprintf("scaling curve of %d runs", s.Runs)
}
