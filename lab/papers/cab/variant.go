package cab

import (
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

// variant is one way to run a set. All of them are settings of one job loop, which is
// given the same: what this run has shown so far, and what earlier runs of jobs of these
// names taught.
type variant struct {
	name string
	// uncapped: no cap, no job loop. exact: all tasks of all jobs are run.
	uncapped, exact bool
	// kills: an early stop ends the running maps too, as the paper's does; otherwise they
	// run to their ends.
	kills bool
	// oracle: the job loop gets the true uncapped finish times.
	oracle   bool
	settings arbiter.Settings
	mistake  mistake
}

// mistake is what a mutant's job loop does wrong; the zero value is none.
type mistake struct {
	// blind: the job loop sees that there is a cap, and the same one throughout.
	blind bool
	// neverStops: early stops are decided and not carried out. noFloor: the job loop
	// takes a single task for every job's floor.
	neverStops, noFloor bool
	// swaps: the first job gets the last one's share, and so on.
	swaps bool
}

// The variants by name; the first two run all tasks of all jobs. Where a name ends in
// how a job is stopped, that differs from the variant of the name alone.
const (
	uncapped = "uncapped"
	capped   = "capped"
	approx   = "approxhadoop"
	paper    = "paper"
	released = "released"
	equal    = "equal"
	ours     = "stretch"
	oursKill = "stretch-kill"
)

// variants are those that run under a cap, in the order in which they are shown.
func variants() []variant {
	plain := arbiter.Settings{Estimator: progress.Paper, Containers: containers.Fair}
	// The paper and its code have no hysteresis; both give new shares every 20 s, the
	// length of the window that they look back.
	printed := arbiter.Settings{Estimator: progress.Paper, Containers: containers.Paper, Damping: containers.Damping{Every: 20 * time.Second}}
	code := arbiter.Settings{Estimator: progress.Released, Containers: containers.Released, Damping: containers.Damping{Every: 20 * time.Second}}
	even := arbiter.DefaultSettings()
	even.Containers = containers.Equal
	return []variant{
		{name: capped, exact: true, settings: plain},
		{name: approx, kills: true, settings: plain},
		{name: paper, kills: true, settings: printed},
		{name: released, kills: true, settings: code},
		{name: equal, settings: even},
		{name: ours, settings: arbiter.DefaultSettings()},
		{name: oursKill, kills: true, settings: arbiter.DefaultSettings()},
	}
}

// named are the variants of some names.
func named(names ...string) []variant {
	return slices.DeleteFunc(variants(), func(v variant) bool { return !slices.Contains(names, v.name) })
}

// oracles are variants with the true uncapped finish times. The capped one requests none.
func oracles(of []variant) []variant {
	var all []variant
	for _, v := range of {
		if v.oracle = true; !v.exact {
			all = append(all, v)
		}
	}
	return all
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
		stepping(),
	}
}

func stepping() caps { return caps{name: "stepping", steps: true} }
