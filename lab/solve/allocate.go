package solve

import (
	"context"
	"errors"
	"fmt"

	"headroom/internal/cli"
	"headroom/jobs/containers"
)

// allocation divides containers among jobs, as the coordinators' job loop does.
type allocation struct {
	Policy     string `json:"policy"`
	Containers int    `json:"containers" in:"1 1e7"`
	Jobs       []struct {
		Name string `json:"name" need:""`
		// Finish is the expected end, Uncapped without a cap. A job with neither gets an equal share.
		Finish   *float64 `json:"finish_s" in:"1e-9 3e9"`
		Uncapped *float64 `json:"uncapped_finish_s" in:"1e-9 3e9"`
		// Containers are those it holds now, Least the fewest that it may get.
		Containers int     `json:"containers" in:"0 1e7"`
		Elapsed    float64 `json:"elapsed_s" in:"0 3e9"`
		Least      int     `json:"least" in:"0 1e7"`
	} `json:"jobs"`
}

func allocate(_ context.Context, in *allocation) (object, error) {
	policy, err := policyOf(in.Policy, containers.Policies())
	if err != nil {
		return nil, err
	}
	jobs := make([]containers.Job, len(in.Jobs))
	for i, j := range in.Jobs {
		if (j.Finish == nil) != (j.Uncapped == nil) {
			return nil, fmt.Errorf("jobs[%d] (%q): finish_s and uncapped_finish_s go together: give both, or neither where they are unknown", i, j.Name)
		}
		jobs[i] = containers.Job{Name: j.Name, Held: j.Containers, Least: j.Least, Elapsed: seconds(j.Elapsed), Known: j.Finish != nil}
		if j.Finish != nil {
			jobs[i].Finish, jobs[i].Uncapped = max(1, seconds(*j.Finish)), max(1, seconds(*j.Uncapped))
		}
	}
	plan, err := containers.Allocate(policy, in.Containers, jobs, containers.Settings{})
	if few, ok := errors.AsType[*containers.TooFewError](err); ok {
		e := cli.Usage("%w", few)
		e.Hint = "give more containers, or leave out the jobs that get none"
		return nil, e
	}
	shares := []object{}
	for _, s := range plan.Shares {
		shares = append(shares, object{"name": s.Name, "share": s.Exact, "containers": s.Containers})
	}
	return object{"jobs": shares}, err
}
