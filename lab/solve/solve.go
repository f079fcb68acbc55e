// Package solve is `powerlab solve`: one decision of production code or of a simulator, for the
// problem in a JSON file.
//
// The one idea: every kind of problem is a function from an input to an output. The frame reads the
// file strictly, checks the bounds in the tags of the input's fields, and prints the output. The
// package makes no decisions itself.
package solve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
	"headroom/lab/dispatch"
	"headroom/scheduler/scale"
)

// NewCommand is `powerlab solve`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "solve",
		Short:   "Solve one problem from a file: a decision, a queue or a short simulation",
		Long:    `Reads the problem from a JSON file and prints the answer. The help of each kind describes its fields. A value that is absent or null is unknown, or as usual. A mistake in the file is reported with its place.`,
		Example: "  powerlab solve allocate --input jobs.json\n  powerlab solve queue --input - -o json < queue.json",
	}
	cmd.AddCommand(
		kind("estimate", "Estimate when a job ends under a power cap", estimation{Interval: 5}, estimate),
		kind("allocate", "Divide containers among jobs by a policy", allocation{}, allocate),
		kind("queue", "Compute waiting and sojourn times of priority queues", usualQueue(), solveQueue),
		kind("deflate", "Choose drop ratios and sprint timeouts by the queueing model", deflating{}, deflate),
		kind("speculate", "Choose the next tasks or copies of a job for its free slots", speculating{}, speculate),
		kind("admit", "Simulate admission control of jobs with deadlines", admissions{}, admitJobs),
		kind("dispatch", "Simulate the dispatch of many small tasks", dispatching{Groups: 1, Hop: dispatch.HopUsual, Distributors: dispatch.DistributorsUsual}, dispatchTasks),
		kind("scale", "Fit a scaling model to speed-ups, or predict them from its parameters", scale.Input{}, func(_ context.Context, in *scale.Input) (*scale.Answer, error) { return scale.Solve(in) }),
	)
	return cmd
}

// object is a JSON object of an output.
type object map[string]any

// kind is the command of one kind of problem, with the usual values of its input. Errors of solve that have no exit
// code of their own are mistakes in the file.
func kind[In, Out any](use, short string, usual In, solve func(ctx context.Context, in *In) (Out, error)) *cobra.Command {
	var file string
	out := cli.Output{Format: "yaml"}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Long:    short + ". The input:\n\n" + formats()[use],
		Example: fmt.Sprintf("  powerlab solve %s --input problem.json -o json", use),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := usual
			if err := jsonfile.Read(cmd.InOrStdin(), "--input", file, &in); err != nil {
				return err
			}
			if err := check(reflect.ValueOf(in), "", ""); err != nil {
				return jsonfile.Bad(file, "%v", err)
			}
			answer, err := solve(cmd.Context(), &in)
			switch e, ok := errors.AsType[*cli.Error](err); {
			case err == nil:
				return out.JSON(cmd.OutOrStdout(), answer)
			case ok:
				e.Message = jsonfile.Name(file) + ": " + e.Message
				return e
			case errors.Is(err, context.Canceled):
				return err
			}
			return jsonfile.Bad(file, "%v", err)
		},
	}
	cmd.Flags().StringVar(&file, "input", "", "file with the problem; - for stdin")
	out.Flags(cmd)
	return cmd
}

// check returns an error for the first number of an input that is out of the bounds of its field's tag, such as
// `in:"0 100"`, and for a field with the tag `need` that is absent; the text of the tag describes it.
func check(v reflect.Value, place, bounds string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return check(v.Elem(), place, bounds)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := check(v.Index(i), fmt.Sprintf("%s[%d]", place, i), bounds); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for field, x := range v.Fields() {
			name := strings.TrimPrefix(place+"."+field.Tag.Get("json"), ".")
			if what, need := field.Tag.Lookup("need"); need && x.IsZero() {
				return errors.New(strings.TrimSuffix(name+" is missing: "+what, ": "))
			}
			if err := check(x, name, field.Tag.Get("in")); err != nil {
				return err
			}
		}
	case reflect.Int:
		return within(place, float64(v.Int()), bounds)
	case reflect.Float64:
		return within(place, v.Float(), bounds)
	default:
	}
	return nil
}

func within(place string, x float64, bounds string) error {
	var low, high float64
	if n, _ := fmt.Sscan(bounds, &low, &high); n < 2 || x >= low && x <= high {
		return nil
	}
	if low < 1 && x >= 0 && x < low {
		return fmt.Errorf("%s is %v: must be above 0", place, x)
	}
	return fmt.Errorf("%s is %v: must be from %g to %g", place, x, low, high)
}

// policyOf is the policy of a name; of no name the first, which is the default.
func policyOf[P ~string](name string, all []P) (P, error) {
	p := cmp.Or(P(name), all[0])
	if !slices.Contains(all, p) {
		return p, fmt.Errorf("unknown policy %q: must be one of %v", name, all)
	}
	return p, nil
}

// bare is an error without the prefixes of the package that found it.
func bare(err error, prefixes ...string) error {
	if err == nil {
		return nil
	}
	problem := err.Error()
	for _, p := range prefixes {
		problem = strings.TrimPrefix(problem, p)
	}
	return errors.New(problem)
}

// finite is x; nil if it is no number or has no end.
func finite(x float64) *float64 { return cli.Known(x, !math.IsNaN(x) && !math.IsInf(x, 0)) }

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
