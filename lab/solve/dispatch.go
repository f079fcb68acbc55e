package solve

import (
	"context"
	"fmt"
	"io"
	"os"

	"headroom/internal/cli"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// dispatching is a simulation of the jobs of a trace.
type dispatching struct {
	Policy       dispatch.Policy `json:"policy"`
	Workers      int             `json:"workers" in:"1 1e6"`
	Groups       int             `json:"groups"`
	Reserved     int             `json:"reserved"`
	W            *int            `json:"w" in:"1 1e9"`
	Cutoff       *float64        `json:"cutoff_s" in:"0 1e300" need:"the mean task time up to which a job is short"`
	Hop          float64         `json:"hop_s" in:"0 10"`
	Distributors int             `json:"distributors" in:"1 1000"`
	Seed         uint64          `json:"seed"`
	Trace        string          `json:"trace" need:"a file with a line per job"`
	// Load is what the arrivals are stretched to: beyond 1 the queues grow until the trace ends.
	Load      *float64 `json:"load" in:"1e-9 10"`
	Placement string   `json:"placement"`
	SRPT      bool     `json:"srpt"`
	SBP       bool     `json:"sbp"`
	Caps      []struct {
		At     float64  `json:"at_s" in:"0 1e300"`
		Group  int      `json:"group"`
		Speed  *float64 `json:"speed" in:"1e-9 100"`
		Usable *int     `json:"usable"`
	} `json:"caps"`
}

func dispatchTasks(ctx context.Context, in *dispatching) (object, error) {
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
		if s.Stretch, err = in.stretch(f); err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, cli.Usage("trace: %w", err)
		}
	}
	r, err := dispatch.Run(ctx, s, traces.Tasks(f, in.Trace))
	if err != nil {
		return nil, err
	}
	class := func(c dispatch.Class) object {
		return object{"p50": finite(c.P50), "p90": finite(c.P90), "p99": finite(c.P99), "mean": finite(c.Mean)}
	}
	return object{
		"short": class(r.Short), "long": class(r.Long), "slowdown": object{"short_p99": finite(r.Short.Slow99), "long_p99": finite(r.Long.Slow99)},
		"tasks": r.Tasks, "jobs": r.Jobs, "util": r.Util,
	}, nil
}

func (in *dispatching) setup() (dispatch.Setup, error) {
	s := dispatch.Setup{
		Policy: in.Policy, Workers: in.Workers, Groups: in.Groups, Reserved: in.Reserved, Hop: in.Hop, Seed: in.Seed,
		Distributors: in.Distributors, SRPT: in.SRPT, SBP: in.SBP, Cutoff: *in.Cutoff,
	}
	if in.W != nil {
		s.W = *in.W
	}
	switch {
	case (in.SRPT || in.SBP) && in.Policy != dispatch.Eagle:
		return s, fmt.Errorf("srpt and sbp are only for policy eagle, not for %s", in.Policy)
	case in.Placement == "block":
		s.Placement = pigeon.Block
	case in.Placement != "" && in.Placement != "round-robin":
		return s, fmt.Errorf("unknown placement %q: must be round-robin or block", in.Placement)
	}
	for _, c := range in.Caps {
		limit := dispatch.Cap{At: c.At, Group: c.Group, Speed: 1}
		if c.Speed != nil {
			limit.Speed = *c.Speed
		}
		if c.Usable != nil {
			limit.Usable = *c.Usable
		} else if s.Groups > 0 {
			limit.Usable = s.Size(c.Group)
		}
		s.Caps = append(s.Caps, limit)
	}
	return s, nil
}

// stretch is the factor of the arrivals at which the trace offers the load to the workers.
func (in *dispatching) stretch(f io.Reader) (float64, error) {
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
	return work / ((last - first) * float64(in.Workers) * *in.Load), nil
}
