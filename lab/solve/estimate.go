package solve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"headroom/internal/cli"
	"headroom/progress"
	"headroom/units"
)

// estimation requests a job's rate and end under a cap, for several numbers of containers.
type estimation struct {
	Policy   string   `json:"policy"`
	Interval *float64 `json:"interval_s"`
	// History is newest first.
	History []struct {
		Rate       *float64 `json:"rate_per_s"`
		Power      *float64 `json:"power_w"`
		Containers *float64 `json:"containers"`
	} `json:"history"`
	Cap        *float64  `json:"cap_w"`
	Elapsed    *float64  `json:"elapsed_s"`
	Tasks      *float64  `json:"tasks"`
	Done       *float64  `json:"done"`
	Containers []float64 `json:"containers"`
}

const (
	samplesMost = 100_000
	// usualInterval is how often the job loop samples (CAB's window), s.
	usualInterval = 5.0
)

func estimate(_ context.Context, in *estimation) (object, error) {
	policy, ok := policyOf(in.Policy, progress.Policies())
	if !ok {
		return nil, fmt.Errorf("unknown policy %q: must be one of %v", in.Policy, progress.Policies())
	}
	history, err := in.samples()
	if err != nil {
		return nil, err
	}
	power, answers := units.FromWatts(*in.Cap), []object{}
	model := progress.Learn(history, progress.DefaultPrior())
	for _, c := range in.Containers {
		var rate, low, high float64
		var known bool
		bounded := policy == progress.Learned // the others have no bounds
		switch policy {
		case progress.Learned:
			rate, low, high, known = model.Rate(power, c)
		case progress.Paper:
			rate, known = progress.Filter(history, power, c)
		case progress.Released:
			rate, known = progress.FilterReleased(history, power)
		}
		a := object{
			"containers": c, "rate_per_s": cli.Known(rate, known), "finish_s": in.finish(rate, known),
			"rate_low_per_s": cli.Known(low, known && bounded), "rate_high_per_s": cli.Known(high, known && bounded), "finish_low_s": nil, "finish_high_s": nil,
		}
		if bounded {
			a["finish_low_s"], a["finish_high_s"] = in.finish(high, known), in.finish(low, known)
		}
		answers = append(answers, a)
	}
	return object{"estimates": answers}, nil
}

// samples are the history as the estimators take it.
func (in *estimation) samples() ([]progress.Sample, error) {
	every := or(in.Interval, usualInterval)
	numbers := []number{
		{"interval_s", &every, math.SmallestNonzeroFloat64, secondsMost},
		{"cap_w", in.Cap, 1e-6, wattsMost},
		{"elapsed_s", in.Elapsed, 0, secondsMost},
		{"tasks", in.Tasks, 0, most},
		{"done", in.Done, 0, most},
	}
	for i := range in.Containers {
		numbers = append(numbers, number{fmt.Sprintf("containers[%d]", i), &in.Containers[i], 0, containersMost})
	}
	if len(in.History) > samplesMost {
		return nil, fmt.Errorf("history has %d samples; at most %d", len(in.History), samplesMost)
	}
	interval := time.Duration(max(1, math.Round(every*1e9)))
	out := make([]progress.Sample, len(in.History))
	for i, s := range in.History {
		rate, power, held := or(s.Rate, math.NaN()), or(s.Power, 0), or(s.Containers, 0)
		place := fmt.Sprintf("history[%d].", i)
		numbers = append(numbers, number{place + "power_w", &power, 0, wattsMost}, number{place + "containers", &held, 0, containersMost})
		if s.Rate != nil {
			numbers = append(numbers, number{place + "rate_per_s", &rate, 0, most})
		}
		out[i] = progress.Sample{Rate: rate, Interval: interval, Power: units.FromWatts(power), Containers: held}
	}
	switch err := within(numbers...); {
	case err != nil:
		return nil, err
	case in.Containers == nil:
		return nil, errors.New("containers is missing: name the numbers to try")
	case *in.Tasks != math.Trunc(*in.Tasks) || *in.Done != math.Trunc(*in.Done):
		return nil, fmt.Errorf("tasks is %v and done is %v: must be whole numbers", *in.Tasks, *in.Done)
	case *in.Done > *in.Tasks:
		return nil, fmt.Errorf("done is %v, more than the tasks, %v", *in.Done, *in.Tasks)
	}
	return out, nil
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
