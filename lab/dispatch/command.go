package dispatch

import (
	"errors"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
)

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
			var in Input
			if err := jsonfile.Read(cmd.InOrStdin(), "--input", name, &in); err != nil {
				return err
			}
			o, err := Solve(cmd.Context(), &in)
			if _, known := errors.AsType[*cli.Error](err); err != nil && !known && cmd.Context().Err() == nil {
				err = jsonfile.Bad(name, "%v", err)
			}
			switch {
			case err != nil:
				return err
			case out.IsJSON():
				return out.JSON(cmd.OutOrStdout(), o)
			}
			return o.Print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&name, "input", "", "file with policy, workers, groups and trace; - for stdin")
	out.Flags(cmd)
	return cmd
}
