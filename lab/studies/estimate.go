package studies

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/jsonfile"
	"headroom/progress"
	"headroom/units"
)

// Bounds of a file of `powerlab estimate`.
const (
	// maxWatts is more than any site draws; more does not fit units.Power.
	maxWatts = 1e9
	// maxRate and maxTasks keep the arithmetic of estimates far from its ends.
	maxRate    = 1e9
	maxTasks   = 1e9
	maxSamples = 100_000
	// usualInterval is how often the job loop samples (CAB's window).
	usualInterval = 5.0
)

// estimation is the file of `powerlab estimate`. What is absent is unknown.
type estimation struct {
	Policy     string             `json:"policy"`
	Interval   *float64           `json:"interval_s"`
	History    []estimationSample `json:"history"`
	Cap        *float64           `json:"cap_w"`
	Elapsed    *float64           `json:"elapsed_s"`
	Tasks      *float64           `json:"tasks"`
	Done       *float64           `json:"done"`
	Containers []float64          `json:"containers"`
}

// estimationSample is one interval of the history.
type estimationSample struct {
	Rate       *float64 `json:"rate_per_s"`
	Power      *float64 `json:"power_w"`
	Containers *float64 `json:"containers"`
}

// estimated is the answer; null is unknown.
type estimated struct {
	Estimates []estimate `json:"estimates"`
}

// estimate is the answer for one number of containers. The bounds hold in 9 of 10
// cases; the policies paper and released know none.
type estimate struct {
	Containers float64  `json:"containers"`
	Rate       *float64 `json:"rate_per_s"`
	Finish     *float64 `json:"finish_s"`
	RateLow    *float64 `json:"rate_low_per_s"`
	RateHigh   *float64 `json:"rate_high_per_s"`
	FinishLow  *float64 `json:"finish_low_s"`
	FinishHigh *float64 `json:"finish_high_s"`
}

// NewEstimateCommand is `powerlab estimate`.
func NewEstimateCommand() *cobra.Command {
	return fileCommand(&cobra.Command{
		Use:   "estimate",
		Short: "Estimate when a job ends under a power cap",
		Long: `Estimates a job's progress rate and end under a cap, for several numbers of containers. The input file:

  {"policy": "paper", "interval_s": 5, "history": [
     {"rate_per_s": 0.50, "power_w": 250, "containers": 9}, ...],
   "cap_w": 175, "elapsed_s": 120, "tasks": 200, "done": 60, "containers": [9, 12]}

history is newest first. Each entry covers interval_s (default 5): the tasks completed per second, and the
cap and containers at that time. A value that is null, absent or 0 is unknown; with learned, a rate of 0
means that no task ended. cap_w is the cap now, and containers lists the numbers to try. In the output,
rate_per_s and finish_s (seconds after the job's start) are null where no estimate is possible.

Policies:
  learned   learn how the rate depends on cap and containers, with 90 % bounds (default)
  paper     CAB, equations 1 and 2: the mean rate, in proportion to cap and containers
  released  CAB's published code: the mean time per task weighted by the caps; ignores containers`,
		Example: "  powerlab estimate --input job.json\n  powerlab estimate --input - -o json < job.json",
	}, "the job's past and what to estimate", estimateFile)
}

func estimateFile(stdin io.Reader, file string) (*estimated, error) {
	var in estimation
	if err := jsonfile.Read(stdin, "--input", file, &in); err != nil {
		return nil, err
	}
	policy, err := progress.ParsePolicy(in.Policy)
	if err != nil {
		return nil, jsonfile.Bad(file, "unknown policy %q: must be one of %v", in.Policy, progress.Policies())
	}
	if err := in.check(file); err != nil {
		return nil, err
	}
	return in.answer(policy), nil
}

// check refuses what is missing and what cannot be true, each with its JSON path.
func (in *estimation) check(file string) error {
	if in.Interval == nil {
		usual := usualInterval
		in.Interval = &usual
	}
	if len(in.History) > maxSamples {
		return jsonfile.Bad(file, "history has %d samples; at most %d", len(in.History), maxSamples)
	}
	if in.Containers == nil {
		return jsonfile.Bad(file, "containers is missing: name the numbers to try")
	}
	ranges := []number{
		{"interval_s", in.Interval, math.SmallestNonzeroFloat64, maxSeconds},
		{"cap_w", in.Cap, 1e-6, maxWatts},
		{"elapsed_s", in.Elapsed, 0, maxSeconds},
		{"tasks", in.Tasks, 0, maxTasks},
		{"done", in.Done, 0, maxTasks},
	}
	for i := range in.Containers {
		ranges = append(ranges, number{fmt.Sprintf("containers[%d]", i), &in.Containers[i], 0, maxContainers})
	}
	for i := range in.History {
		ranges = append(ranges, in.History[i].numbers(i)...)
	}
	for _, n := range ranges {
		if problem := n.problem(); problem != "" {
			return jsonfile.Bad(file, "%s", problem)
		}
	}
	switch tasks, done := *in.Tasks, *in.Done; {
	case tasks != math.Trunc(tasks):
		return jsonfile.Bad(file, "tasks is %v: must be a whole number", tasks)
	case done != math.Trunc(done):
		return jsonfile.Bad(file, "done is %v: must be a whole number", done)
	case done > tasks:
		return jsonfile.Bad(file, "done is %v, more than the tasks, %v", done, tasks)
	}
	return nil
}

// numbers are those of a sample that are there.
func (s *estimationSample) numbers(i int) []number {
	place := fmt.Sprintf("history[%d].", i)
	all := []number{
		{place + "rate_per_s", s.Rate, 0, maxRate},
		{place + "power_w", s.Power, 0, maxWatts},
		{place + "containers", s.Containers, 0, maxContainers},
	}
	return slices.DeleteFunc(all, func(n number) bool { return n.value == nil })
}

// number is a value of the file with its bounds.
type number struct {
	path      string
	value     *float64
	low, high float64
}

// problem is what is wrong with it, in words.
func (n number) problem() string {
	switch {
	case n.value == nil:
		return n.path + " is missing"
	case *n.value < 0:
		return fmt.Sprintf("%s is %v; it must not be negative", n.path, *n.value)
	case *n.value < n.low:
		return fmt.Sprintf("%s is %v: must be above 0", n.path, *n.value)
	case !(*n.value <= n.high):
		return fmt.Sprintf("%s is %v: must be at most %.0f", n.path, *n.value, n.high)
	}
	return ""
}

// samples are the history as the estimators take it.
func (in *estimation) samples() []progress.Sample {
	interval := time.Duration(max(1, math.Round(*in.Interval*1e9)))
	out := make([]progress.Sample, len(in.History))
	for i, s := range in.History {
		out[i] = progress.Sample{Rate: math.NaN(), Interval: interval}
		if s.Rate != nil {
			out[i].Rate = *s.Rate
		}
		if s.Power != nil {
			out[i].Power = units.FromWatts(*s.Power)
		}
		if s.Containers != nil {
			out[i].Containers = *s.Containers
		}
	}
	return out
}

func (in *estimation) answer(policy progress.Policy) *estimated {
	power, history := units.FromWatts(*in.Cap), in.samples()
	model := progress.Learn(history, progress.DefaultPrior())
	answer := &estimated{Estimates: []estimate{}}
	for _, c := range in.Containers {
		e := estimate{Containers: c}
		var rate, low, high float64
		var known bool
		switch policy {
		case progress.Learned:
			rate, low, high, known = model.Rate(power, c)
			e.RateLow, e.RateHigh = cli.Known(low, known), cli.Known(high, known)
			e.FinishLow, e.FinishHigh = in.finish(high, known), in.finish(low, known)
		case progress.Paper:
			rate, known = progress.Filter(history, power, c)
		case progress.Released:
			rate, known = progress.FilterReleased(history, power)
		}
		e.Rate, e.Finish = cli.Known(rate, known), in.finish(rate, known)
		answer.Estimates = append(answer.Estimates, e)
	}
	return answer
}

// finish is when the job ends at a rate, in seconds after its start. A job of which
// all tasks are done has ended, whatever its rate.
func (in *estimation) finish(rate float64, known bool) *float64 {
	if !known {
		rate = 0
	}
	at, known := progress.FinishTime(seconds(*in.Elapsed), *in.Tasks-*in.Done, rate)
	return cli.Known(at.Seconds(), known)
}

// print is the answer as JSON or as a table.
func (a *estimated) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	span := func(low, high *float64, show func(float64) string) string {
		if low == nil || high == nil {
			return cli.Unknown
		}
		return strings.TrimSuffix(show(*low), " s") + " to " + show(*high)
	}
	rate := func(v float64) string { return fmt.Sprintf("%.4f", v) }
	at := func(v float64) string { return fmt.Sprintf("%.1f s", v) }
	rows := make([][]string, 0, len(a.Estimates))
	for _, e := range a.Estimates {
		rows = append(rows, []string{
			strconv.FormatFloat(e.Containers, 'f', -1, 64), cli.Opt(e.Rate, rate), cli.Opt(e.Finish, at),
			span(e.RateLow, e.RateHigh, rate), span(e.FinishLow, e.FinishHigh, at),
		})
	}
	return out.Table(w, []string{"CONTAINERS", "TASKS/S", "ENDS AT", "TASKS/S, 9 OF 10", "ENDS AT, 9 OF 10"}, rows)
}
