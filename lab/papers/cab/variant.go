package cab

import (
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

// variant is one way to run a set. All of them are settings of one job loop.
type variant struct {
	name string
	// uncapped: no cap, no job loop. exact: all tasks of all jobs are run.
	uncapped, exact bool
	settings        arbiter.Settings
}

// The variants by name; the first two run all tasks of all jobs.
const (
	uncapped = "uncapped"
	capped   = "capped"
	approx   = "approxhadoop"
	paper    = "paper"
	released = "released"
	ours     = "stretch"
)

// variants are those that run under a cap, in the order in which they are shown.
func variants() []variant {
	plain := arbiter.Settings{Estimator: progress.Paper, Containers: containers.Fair}
	// The paper and its code know no hysteresis; both give new shares every 20 s, the
	// length of the window that they look back.
	printed := arbiter.Settings{Estimator: progress.Paper, Containers: containers.Paper, Damping: containers.Damping{Every: 20 * time.Second}}
	code := arbiter.Settings{Estimator: progress.Released, Containers: containers.Released, Damping: containers.Damping{Every: 20 * time.Second}}
	return []variant{
		{name: capped, exact: true, settings: plain},
		{name: approx, settings: plain},
		{name: paper, settings: printed},
		{name: released, settings: code},
		{name: ours, settings: arbiter.DefaultSettings()},
	}
}

// noCap is the run that all others are measured against.
func noCap() variant {
	return variant{name: uncapped, uncapped: true, exact: true}
}

// schedules are the caps of the experiments: Fig. 4 has the fixed ones, Table II and
// Fig. 5 the stepping one.
func schedules() []caps {
	return []caps{
		{name: "250", fixed: 250 * units.Watt},
		{name: "200", fixed: 200 * units.Watt},
		{name: "175", fixed: 175 * units.Watt},
		{name: "stepping", steps: true},
	}
}
