package progress

import (
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// Phase is what a running job does now.
type Phase int

// Phases in their order. Unphased stands for an engine that does not tell.
const (
	Unphased Phase = iota
	Waiting
	Map
	Shuffle
	Reduce
)

// String returns the phase in words.
func (p Phase) String() string {
	switch p {
	case Waiting:
		return "waiting"
	case Map:
		return "map"
	case Shuffle:
		return "shuffle"
	case Reduce:
		return "reduce"
	case Unphased:
	}
	return "unknown"
}

// Observation is how far a job is at one moment.
type Observation struct {
	// Elapsed is the time since the job's start.
	Elapsed time.Duration
	// Tasks are the job's map tasks, Done those that have ended.
	Tasks, Done int
	// Work is the map work done, in tasks, the finished part of running ones
	// included; below 0 when unknown.
	Work  float64
	Phase Phase
	// Reduced is the reduce work done, 0 to 1; below 0 for a job without any, or when unknown.
	Reduced float64
	// Power is the cap now, Full the power at full speed, both at the wall and weighted
	// over the nodes that the job runs on; 0 when unknown.
	Power, Full units.Power
	// Containers are those that run tasks of the job.
	Containers float64
}

// check finds what cannot be true.
func (o *Observation) check() error {
	switch {
	case o.Elapsed < 0 || o.Elapsed > longest:
		return fmt.Errorf("%w: %v since its start", errNonsense, o.Elapsed)
	case o.Tasks < 0 || o.Done < 0 || o.Done > o.Tasks:
		return fmt.Errorf("%w: %d of %d tasks done", errNonsense, o.Done, o.Tasks)
	case math.IsNaN(o.Work) || o.Work > float64(o.Tasks)*1.001+1e-6:
		return fmt.Errorf("%w: work of %g tasks done of %d", errNonsense, o.Work, o.Tasks)
	case math.IsNaN(o.Reduced) || o.Reduced > 1:
		return fmt.Errorf("%w: reduce work %g done", errNonsense, o.Reduced)
	case !(o.Containers >= 0) || math.IsInf(o.Containers, 1):
		return fmt.Errorf("%w: %g containers", errNonsense, o.Containers)
	case o.Power < 0 || o.Full < 0:
		return fmt.Errorf("%w: %v of %v", errNonsense, o.Power, o.Full)
	case o.Phase < Unphased || o.Phase > Reduce:
		return fmt.Errorf("%w: phase %d", errNonsense, o.Phase)
	}
	return nil
}

// mapped reports whether the map tasks are over.
func (o *Observation) mapped() bool {
	return o.Phase >= Shuffle || o.Tasks > 0 && o.Done == o.Tasks
}
