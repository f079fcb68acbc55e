package admit

import (
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
)

// NewCommand is `powerlab admit`.
func NewCommand() *cobra.Command {
	var name string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "admit",
		Short: "Simulate admission control of jobs with deadlines",
		Long: `Simulates which jobs are admitted and which meet their deadlines. The input file:

  {"policy": "adaptive", "capacity": 100, "jobs": [
    {"arrival_s": 0, "tasks": 40, "work_s": 1000, "deadline_s": 50}, ...]}

Jobs are in order of arrival. work_s is the total time of a job's tasks; only the policy oracle knows it in
advance. deadline_s counts from arrival_s. A job may have a user. capacity is in slots, and may change:

  "capacity_changes": [{"at_s": 600, "capacity": 50}, ...], or, with "power": {"idle_w": 1000, "full_w": 3000},
  "capacity_changes": [{"at_s": 600, "budget_w": 2000}, ...]

Policies:
  adaptive  learn the needs of jobs by size class and user; check commitments again when capacity changes
            (default)
  pythia    the paper's: use the largest fraction of tasks that an ended job needed, for all jobs
  oracle    know the work of each job in advance
  nodrop    share slots fairly, stop no job
  reactive  share slots fairly, stop each job at its deadline

Output:
  decision  admitted (started at once), queued (started later) or refused (never ran)
  slots     mean number of slots that the job held
  sdr       fraction of jobs that met their deadlines
  ptr       their fraction of all work
  wasted    fraction of slot time used by jobs that missed their deadlines
  cpu_frac  the learned value after the end of each job`,
		Example: "  powerlab admit --input jobs.json\n  powerlab admit --input - -o json < jobs.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var in Input
			if err := jsonfile.Read(cmd.InOrStdin(), "--input", name, &in); err != nil {
				return err
			}
			o, err := Solve(&in)
			switch {
			case err != nil:
				return jsonfile.Bad(name, "%v", err)
			case out.IsJSON():
				return out.JSON(cmd.OutOrStdout(), o)
			}
			return o.Print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&name, "input", "", "file with policy, capacity and jobs; - for stdin")
	out.Flags(cmd)
	return cmd
}
