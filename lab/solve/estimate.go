package solve

import (
	"context"
	"fmt"
	"math"

	"headroom/internal/cli"
	"headroom/progress"
	"headroom/units"
)

// estimation requests a job's rate and end under a cap, for several numbers of containers.
type estimation struct {
	Policy string `json:"policy"`
	// Interval is how often the job loop samples: CAB's window.
	Interval float64 `json:"interval_s" in:"1e-300 3e9"`
	// History is newest first.
	History []struct {
		Rate       *float64 `json:"rate_per_s" in:"0 1e9"`
		Power      float64  `json:"power_w" in:"0 1e9"`
		Containers float64  `json:"containers" in:"0 1e7"`
	} `json:"history"`
	Cap        *float64  `json:"cap_w" in:"1e-6 1e9" need:""`
	Elapsed    *float64  `json:"elapsed_s" in:"0 3e9" need:""`
	Tasks      *float64  `json:"tasks" in:"0 1e9" need:""`
	Done       *float64  `json:"done" in:"0 1e9" need:""`
	Containers []float64 `json:"containers" in:"0 1e7" need:"name the numbers to try"`
}

func estimate(_ context.Context, in *estimation) (object, error) {
	policy, err := policyOf(in.Policy, progress.Policies())
	switch {
	case err != nil:
		return nil, err
	case *in.Tasks != math.Trunc(*in.Tasks) || *in.Done != math.Trunc(*in.Done):
		return nil, fmt.Errorf("tasks is %v and done is %v: must be whole numbers", *in.Tasks, *in.Done)
	case *in.Done > *in.Tasks:
		return nil, fmt.Errorf("done is %v, more than the tasks, %v", *in.Done, *in.Tasks)
	}
	history := make([]progress.Sample, len(in.History))
	for i, s := range in.History {
		history[i] = progress.Sample{Rate: math.NaN(), Interval: max(1, seconds(in.Interval)), Power: units.FromWatts(s.Power), Containers: s.Containers}
		if s.Rate != nil {
			history[i].Rate = *s.Rate
		}
	}
	power, answers := units.FromWatts(*in.Cap), []object{}
	model := progress.Learn(history, progress.DefaultPrior())
	for _, c := range in.Containers {
		var rate, low, high float64
		var known bool
		switch policy {
		case progress.Learned:
			rate, low, high, known = model.Rate(power, c)
		case progress.Paper:
			rate, known = progress.Filter(history, power, c)
		case progress.Released:
			rate, known = progress.FilterReleased(history, power)
		}
		a := object{"containers": c, "rate_per_s": cli.Known(rate, known), "finish_s": in.finish(rate, known), "finish_low_s": nil, "finish_high_s": nil}
		bounded := policy == progress.Learned // the others have no bounds
		a["rate_low_per_s"], a["rate_high_per_s"] = cli.Known(low, known && bounded), cli.Known(high, known && bounded)
		if bounded {
			a["finish_low_s"], a["finish_high_s"] = in.finish(high, known), in.finish(low, known)
		}
		answers = append(answers, a)
	}
	return object{"estimates": answers}, nil
}

// finish is when the job ends at a rate, in seconds after its start. A job whose tasks are all done
// has ended, whatever its rate.
func (in *estimation) finish(rate float64, known bool) *float64 {
	if !known {
		rate = 0
	}
	at, known := progress.FinishTime(seconds(*in.Elapsed), *in.Tasks-*in.Done, rate)
	return cli.Known(at.Seconds(), known)
}
