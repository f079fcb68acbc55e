package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"headroom/internal/cli"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/traces"
)

// loadMost bounds the offered load: beyond 1 the queues grow until the trace ends.
const loadMost = 10

// Input is a simulation. Fields that are absent have their defaults.
type Input struct {
	Policy       Policy   `json:"policy"`
	Workers      int      `json:"workers"`
	Groups       *int     `json:"groups"`
	Reserved     int      `json:"reserved"`
	W            *int     `json:"w"`
	Cutoff       *float64 `json:"cutoff_s"`
	Hop          *float64 `json:"hop_s"`
	Distributors *int     `json:"distributors"`
	Seed         uint64   `json:"seed"`
	Trace        string   `json:"trace"`
	Load         *float64 `json:"load"`
	Placement    string   `json:"placement"`
	SRPT         bool     `json:"srpt"`
	SBP          bool     `json:"sbp"`
	Caps         []struct {
		At     float64  `json:"at_s"`
		Group  int      `json:"group"`
		Speed  *float64 `json:"speed"`
		Usable *int     `json:"usable"`
	} `json:"caps"`
}

// Output is the result. Times are completion times in seconds; what no job yields is null.
type Output struct {
	Short    OutputClass `json:"short"`
	Long     OutputClass `json:"long"`
	Slowdown struct {
		Short *float64 `json:"short_p99"`
		Long  *float64 `json:"long_p99"`
	} `json:"slowdown"`
	Tasks int     `json:"tasks"`
	Jobs  int     `json:"jobs"`
	Util  float64 `json:"util"`
}

// OutputClass is one class of jobs of an Output.
type OutputClass struct {
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`
	Mean *float64 `json:"mean"`
}

// Solve simulates an input. Errors without a hint are mistakes in the input.
func Solve(ctx context.Context, in *Input) (*Output, error) {
	s, err := in.setup()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(in.Trace)
	if err != nil {
		return nil, cli.Usage("trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	if in.Load != nil {
		if s.Stretch, err = in.stretch(f, s.Workers); err != nil {
			return nil, explained(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, cli.Usage("trace: %w", err)
		}
	}
	r, err := Run(ctx, s, traces.Tasks(f, in.Trace))
	if err != nil {
		return nil, explained(err)
	}
	return r.output(), nil
}

// setup is the simulation of the input, checked.
func (in *Input) setup() (Setup, error) {
	s := Setup{
		Policy: in.Policy, Workers: in.Workers, Groups: or(in.Groups, 1), Reserved: in.Reserved, Hop: or(in.Hop, HopUsual), Seed: in.Seed,
		Distributors: or(in.Distributors, DistributorsUsual), SRPT: in.SRPT, SBP: in.SBP, Cutoff: or(in.Cutoff, 0), W: or(in.W, 0),
	}
	switch {
	case in.Trace == "":
		return s, errors.New("trace is missing: a file with a line per job")
	case in.Cutoff == nil:
		return s, errors.New("cutoff_s is missing: the mean task time up to which a job is short")
	case in.W != nil && *in.W < 1:
		return s, fmt.Errorf("w is %d: must be at least 1, or null for strict priority", *in.W)
	case in.Load != nil && !(*in.Load > 0 && *in.Load <= loadMost):
		return s, fmt.Errorf("load is %v: must be above 0 and at most %d, or null to keep the arrivals", *in.Load, loadMost)
	case (in.SRPT || in.SBP) && in.Policy != Eagle:
		return s, fmt.Errorf("srpt and sbp are only for policy eagle, not for %s", in.Policy)
	case !slices.Contains([]string{"", "round-robin", "block"}, in.Placement):
		return s, fmt.Errorf("unknown placement %q: must be round-robin or block", in.Placement)
	case in.Placement == "block":
		s.Placement = pigeon.Block
	}
	for _, c := range in.Caps {
		all := 0
		if c.Group >= 0 && c.Group < s.Groups {
			all = s.size(c.Group)
		}
		s.Caps = append(s.Caps, Cap{At: c.At, Group: c.Group, Speed: or(c.Speed, 1), Usable: or(c.Usable, all)})
	}
	return s, s.check()
}

// or is a value, or the default of one that is absent.
func or[T any](v *T, usual T) T {
	if v == nil {
		return usual
	}
	return *v
}

// explained is an error of a run; that of a trace with a hint.
func explained(err error) error {
	if e, ok := errors.AsType[*traces.Error](err); ok {
		return &cli.Error{
			Code: "input", Exit: cli.ExitUsage, Message: e.Error(), Err: err,
			Hint: "correct the trace: each line is arrival, number of tasks, mean time, then the time of each task, in seconds",
		}
	}
	return err
}

// stretch is the factor of the arrivals at which the trace offers the load to so many workers.
func (in *Input) stretch(f io.Reader, workers int) (float64, error) {
	work, first, last, n := 0.0, 0.0, 0.0, 0
	for j, err := range traces.Tasks(f, in.Trace) {
		if err != nil {
			return 0, err
		}
		if n == 0 {
			first = j.Arrival
		}
		last = j.Arrival
		work += j.Work()
		n++
	}
	if last <= first || work == 0 {
		return 0, fmt.Errorf("load: %s has %d jobs from %v to %v s with %v s of work; a load needs jobs at different times", in.Trace, n, first, last, work)
	}
	return Stretch(work, last-first, float64(workers), *in.Load), nil
}

// Stretch returns the factor of the arrivals over a span at which their work is a load of so many workers.
func Stretch(work, span, workers, load float64) float64 { return work / (span * workers * load) }

func (r *Result) output() *Output {
	known := func(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }
	class := func(c Class) OutputClass { return OutputClass{known(c.P50), known(c.P90), known(c.P99), known(c.Mean)} }
	o := &Output{Short: class(r.Short), Long: class(r.Long), Tasks: r.Tasks, Jobs: r.Jobs, Util: r.Util}
	o.Slowdown.Short, o.Slowdown.Long = known(r.Short.Slow99), known(r.Long.Slow99)
	return o
}
