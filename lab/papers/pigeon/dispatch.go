package pigeon

import (
	"context"

	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// setup is how a run dispatches its jobs; the seed comes with the jobs.
type setup dispatch.Setup

// dispatch runs jobs, and calls seen with each that ends and how long it took, s. Jobs are numbered from 0 in the order of the list.
func (s setup) dispatch(ctx context.Context, jobs []traces.Job, seed uint64, seen func(job int, took float64)) error {
	set := dispatch.Setup(s)
	set.Seed = seed
	set.Ended = func(e dispatch.Ended) { seen(e.Index, e.Completion) }
	_, err := dispatch.Run(ctx, set, traces.All(jobs))
	return err
}
