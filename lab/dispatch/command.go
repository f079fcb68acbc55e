package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/dispatch/pigeon"
	"headroom/internal/jsonfile"
	"headroom/lab/traces"
)

// loadMost bounds the offered load: beyond 1 the queues grow until the trace ends.
const loadMost = 10

// file is the input. What is absent is as usual.
type file struct {
	Policy       Policy    `json:"policy"`
	Workers      int       `json:"workers"`
	Groups       *int      `json:"groups"`
	Reserved     int       `json:"reserved"`
	W            *int      `json:"w"`
	Cutoff       *float64  `json:"cutoff_s"`
	Hop          *float64  `json:"hop_s"`
	Distributors *int      `json:"distributors"`
	Seed         uint64    `json:"seed"`
	Trace        string    `json:"trace"`
	Load         *float64  `json:"load"`
	Placement    string    `json:"placement"`
	SRPT         bool      `json:"srpt"`
	SBP          bool      `json:"sbp"`
	Caps         []fileCap `json:"caps"`
}

type fileCap struct {
	At     float64  `json:"at_s"`
	Group  int      `json:"group"`
	Speed  *float64 `json:"speed"`
	Usable *int     `json:"usable"`
}

// answer is the output. Times are completion times in seconds; what no job gave is null.
type answer struct {
	Short    answerClass    `json:"short"`
	Long     answerClass    `json:"long"`
	Slowdown answerSlowdown `json:"slowdown"`
	Tasks    int            `json:"tasks"`
	Jobs     int            `json:"jobs"`
	Util     float64        `json:"util"`
}

type answerClass struct {
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`
	Mean *float64 `json:"mean"`
}

type answerSlowdown struct {
	Short *float64 `json:"short_p99"`
	Long  *float64 `json:"long_p99"`
}

// NewCommand is `powerlab dispatch`.
func NewCommand() *cobra.Command {
	var name string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "dispatch",
		Short: "Simulate the dispatch of many small tasks",
		Long: `Simulates how the tasks of a trace are dispatched to workers, and how long its jobs take. The input file:

  {"policy": "pigeon", "workers": 120, "groups": 3, "reserved": 4, "w": null, "cutoff_s": 1, "hop_s": 0.0005,
   "distributors": 10, "seed": 1, "trace": "trace.txt", "load": null}

  trace     file with a line per job: arrival, number of tasks, mean task time, then the time of each task,
            in seconds
  load      rescale the arrivals so that tasks take this fraction of the workers' time; null keeps them
  cutoff_s  jobs with a mean task time up to this are short; their tasks have high priority
  reserved  workers per group for short jobs only
  w         while tasks of both priorities wait, at least one of every w has low priority; null is strict
            priority
  hop_s     network delay between two nodes

Policies:
  pigeon         split jobs evenly over groups; the master of each dispatches to its workers
  central        one master has all workers, including those that the groups reserve
  sparrow        probe 2 workers per task; groups and reserved are ignored
  eagle          place long jobs centrally and probe for short ones; groups x reserved workers take no long
                 tasks. It takes "srpt": true and "sbp": true
  ours           split in proportion to learned power; the remainder goes to the groups with the least queued work
  ours-weighted  split in proportion to learned power; the remainder is random
  queues         give tasks to the group with the least queued work per usable slot
  two-queues     give tasks to the shorter queue of two random groups

Policies with groups take "placement": "round-robin" (default) or "block", and power caps:

  "caps": [{"at_s": 0, "group": 2, "speed": 0.5, "usable": 30}, ...]

speed is the speed of the group's slots (default 1), and usable how many of them may be used (default all).

Percentiles are exact. A slowdown is a percentile of completion times divided by the same percentile of the
jobs' longest tasks. util is the fraction of the workers' time that was used, from the first arrival to the
last end.`,
		Example: "  powerlab dispatch --input dispatch.json\n  powerlab dispatch --input - -o json < dispatch.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := study(cmd.Context(), cmd.InOrStdin(), name)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&name, "input", "", "file with policy, workers, groups and trace; - for stdin")
	out.Flags(cmd)
	return cmd
}

// study reads the file and simulates.
func study(ctx context.Context, stdin io.Reader, name string) (*answer, error) {
	in, s, err := read(stdin, name)
	if err != nil {
		return nil, err
	}
	if in.Load != nil {
		if s.Stretch, err = in.stretch(name, &s); err != nil {
			return nil, err
		}
	}
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r, err := Run(ctx, s, traces.Tasks(f, in.Trace))
	if err != nil {
		return nil, in.problem(name, err)
	}
	return r.answer(), nil
}

// read reads the file into a Setup that Run takes.
func read(stdin io.Reader, name string) (*file, Setup, error) {
	var in file
	if err := jsonfile.Read(stdin, "--input", name, &in); err != nil {
		return nil, Setup{}, err
	}
	s, err := in.setup()
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, s, jsonfile.Bad(name, "%v", err)
	}
	return &in, s, nil
}

// setup is what the file asks for.
func (in *file) setup() (Setup, error) {
	s := Setup{
		Policy: in.Policy, Workers: in.Workers, Groups: or(in.Groups, 1), Reserved: in.Reserved, Hop: or(in.Hop, HopUsual), Seed: in.Seed,
		Distributors: or(in.Distributors, DistributorsUsual), SRPT: in.SRPT, SBP: in.SBP,
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
	case in.Placement != "" && !slices.Contains([]string{"round-robin", "block"}, in.Placement):
		return s, fmt.Errorf("unknown placement %q: must be round-robin or block", in.Placement)
	}
	s.Cutoff, s.W = *in.Cutoff, or(in.W, 0)
	if in.Placement == "block" {
		s.Placement = pigeon.Block
	}
	for _, c := range in.Caps {
		all := 0
		if c.Group >= 0 && c.Group < s.Groups {
			all = s.size(c.Group)
		}
		s.Caps = append(s.Caps, Cap{At: c.At, Group: c.Group, Speed: or(c.Speed, 1), Usable: or(c.Usable, all)})
	}
	return s, nil
}

// or is a value, or the usual one.
func or[T any](v *T, usual T) T {
	if v == nil {
		return usual
	}
	return *v
}

func (in *file) open() (*os.File, error) {
	f, err := os.Open(in.Trace)
	if err != nil {
		return nil, cli.Usage("trace: %w", err)
	}
	return f, nil
}

// problem is an error of Run with the file in which it is.
func (in *file) problem(name string, err error) error {
	if e, ok := errors.AsType[*traces.Error](err); ok {
		return &cli.Error{
			Code: "input", Exit: cli.ExitUsage, Message: e.Error(), Err: err,
			Hint: "correct the trace: each line is arrival, number of tasks, mean time, then the time of each task, in seconds",
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return jsonfile.Bad(name, "%v", err)
}

// stretch is by what the arrivals are multiplied to offer the load.
func (in *file) stretch(name string, s *Setup) (float64, error) {
	f, err := in.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	work, first, last, n := 0.0, 0.0, 0.0, 0
	for j, err := range traces.Tasks(f, in.Trace) {
		if err != nil {
			return 0, in.problem(name, err)
		}
		if n == 0 {
			first = j.Arrival
		}
		last = j.Arrival
		work += j.Work()
		n++
	}
	if last <= first || work == 0 {
		return 0, jsonfile.Bad(name, "load: %s has %d jobs from %v to %v s with %v s of work; a load needs jobs at different times", in.Trace, n, first, last, work)
	}
	return Stretch(work, last-first, float64(s.Workers), *in.Load), nil
}

// Stretch returns by what the arrivals over a span have to be multiplied so that their work is a load of so many workers.
func Stretch(work, span, workers, load float64) float64 { return work / (span * workers * load) }

func (r *Result) answer() *answer {
	class := func(c Class) answerClass { return answerClass{known(c.P50), known(c.P90), known(c.P99), known(c.Mean)} }
	return &answer{
		Short: class(r.Short), Long: class(r.Long), Slowdown: answerSlowdown{known(r.Short.Slow99), known(r.Long.Slow99)},
		Tasks: r.Tasks, Jobs: r.Jobs, Util: r.Util,
	}
}

func known(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }

// print is the answer as JSON or as a table.
func (a *answer) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	show := func(v *float64) string {
		return cli.Opt(v, func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) })
	}
	row := func(name string, c answerClass, slow *float64) []string {
		return []string{name, show(c.P50), show(c.P90), show(c.P99), show(c.Mean), show(slow)}
	}
	err := out.Table(w, []string{"JOBS", "P50 S", "P90 S", "P99 S", "MEAN S", "SLOWDOWN P99"}, [][]string{
		row("short", a.Short, a.Slowdown.Short), row("long", a.Long, a.Slowdown.Long),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d tasks of %d jobs; workers busy %.3g of the time\n", a.Tasks, a.Jobs, a.Util)
	return err
}
