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
	Containers int    `json:"containers"`
	Jobs       []struct {
		Name string `json:"name"`
		// Finish is the expected end, Uncapped without a cap. A job with neither gets an equal share.
		Finish   *float64 `json:"finish_s"`
		Uncapped *float64 `json:"uncapped_finish_s"`
		// Containers are those it holds now, Least the fewest that it may get.
		Containers int     `json:"containers"`
		Elapsed    float64 `json:"elapsed_s"`
		Least      int     `json:"least"`
	} `json:"jobs"`
}

func allocate(_ context.Context, in *allocation) (object, error) {
	policy, ok := policyOf(in.Policy, containers.Policies())
	if !ok {
		return nil, fmt.Errorf("unknown policy %q: must be one of %v", in.Policy, containers.Policies())
	}
	if in.Containers < 1 || in.Containers > containersMost {
		return nil, fmt.Errorf("containers is %d: must be from 1 to %d", in.Containers, containersMost)
	}
	jobs := make([]containers.Job, len(in.Jobs))
	for i, j := range in.Jobs {
		place := fmt.Sprintf("jobs[%d] (%q): ", i, j.Name)
		switch {
		case j.Name == "":
			return nil, fmt.Errorf("jobs[%d]: name is missing", i)
		case (j.Finish == nil) != (j.Uncapped == nil):
			return nil, fmt.Errorf("%sfinish_s and uncapped_finish_s go together: give both, or neither where they are unknown", place)
		case j.Containers < 0 || j.Containers > containersMost || j.Least < 0 || j.Least > containersMost:
			return nil, fmt.Errorf("%scontainers %d and least %d must be from 0 to %d", place, j.Containers, j.Least, containersMost)
		}
		job := containers.Job{Name: j.Name, Held: j.Containers, Least: j.Least, Elapsed: seconds(j.Elapsed), Known: j.Finish != nil}
		if err := within(number{place + "elapsed_s", &j.Elapsed, 0, secondsMost}); err != nil {
			return nil, err
		}
		if job.Known {
			if err := within(number{place + "finish_s", j.Finish, 1e-9, secondsMost}, number{place + "uncapped_finish_s", j.Uncapped, 1e-9, secondsMost}); err != nil {
				return nil, err
			}
			job.Finish, job.Uncapped = max(1, seconds(*j.Finish)), max(1, seconds(*j.Uncapped))
		}
		jobs[i] = job
	}
	plan, err := containers.Allocate(policy, in.Containers, jobs, containers.Settings{})
	if few, ok := errors.AsType[*containers.TooFewError](err); ok {
		e := cli.Usage("%w", few)
		e.Hint = "give more containers, or leave out the jobs that get none"
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	shares := []object{}
	for _, s := range plan.Shares {
		shares = append(shares, object{"name": s.Name, "share": s.Exact, "containers": s.Containers})
	}
	return object{"jobs": shares}, nil
}
