// Package solve is `powerlab solve`: one decision of production code or of a simulator, for the
// problem in a JSON file.
//
// The one idea: every kind of problem is a function from an input to an output. The frame reads the
// file strictly, and prints the output. The package makes no decisions itself.
package solve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
	"headroom/lab/admit"
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
		kind("estimate", "Estimate when a job ends under a power cap", estimate),
		kind("allocate", "Divide containers among jobs by a policy", allocate),
		kind("queue", "Compute waiting and sojourn times of priority queues", solveQueue),
		kind("deflate", "Choose drop ratios and sprint timeouts by the queueing model", deflate),
		kind("speculate", "Choose the next tasks or copies of a job for its free slots", speculate),
		kind("admit", "Simulate admission control of jobs with deadlines", func(_ context.Context, in *admit.Input) (*admit.Output, error) { return admit.Solve(in) }),
		kind("dispatch", "Simulate the dispatch of many small tasks", dispatch.Solve),
		kind("scale", "Fit a scaling model to speed-ups, or predict them from its parameters", func(_ context.Context, in *scale.Input) (*scale.Answer, error) { return scale.Solve(in) }),
	)
	return cmd
}

// object is a JSON object of an output.
type object map[string]any

// kind is the command of one kind of problem. Errors of solve that have no exit code of their own are
// mistakes in the file.
func kind[In, Out any](use, short string, solve func(ctx context.Context, in *In) (Out, error)) *cobra.Command {
	var file string
	out := cli.Output{Format: "yaml"}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Long:    short + ". The input:\n\n" + formats()[use],
		Example: fmt.Sprintf("  powerlab solve %s --input problem.json -o json", use),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var in In
			if err := jsonfile.Read(cmd.InOrStdin(), "--input", file, &in); err != nil {
				return err
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

// Bounds of numbers in files.
const (
	// wattsMost is more than any site draws, secondsMost about a century: more fits no unit.
	wattsMost      = 1e9
	secondsMost    = 3e9
	containersMost = 10_000_000
	// most keeps other numbers far from the ends of arithmetic.
	most = 1e9
)

// number is a value of a file with its bounds.
type number struct {
	place     string
	value     *float64
	low, high float64
}

// within returns an error for the first number that is missing or out of its bounds.
func within(numbers ...number) error {
	for _, n := range numbers {
		switch {
		case n.value == nil:
			return fmt.Errorf("%s is missing", n.place)
		case n.low > 0 && *n.value >= 0 && *n.value < n.low:
			return fmt.Errorf("%s is %v: must be above 0", n.place, *n.value)
		case !(*n.value >= n.low && *n.value <= n.high):
			return fmt.Errorf("%s is %v: must be from %g to %g", n.place, *n.value, n.low, n.high)
		}
	}
	return nil
}

// or is a value of a file, or the usual one.
func or[T any](v *T, usual T) T {
	if v == nil {
		return usual
	}
	return *v
}

// policyOf is the policy of a name; of no name the first, which is the default.
func policyOf[P ~string](name string, all []P) (P, bool) {
	p := cmp.Or(P(name), all[0])
	return p, slices.Contains(all, p)
}

// finite is x; nil if it is no number or has no end.
func finite(x float64) *float64 { return cli.Known(x, !math.IsNaN(x) && !math.IsInf(x, 0)) }

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
