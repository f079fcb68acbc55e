package arbitration

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Bounds and defaults of a call.
const (
	seedsDefault = 40
	seedsMost    = 1000
	seedDefault  = 1001
)

// options are those of `powerlab arbitrate`.
type options struct {
	load    string
	seed    uint64
	seeds   int
	out     string
	optimum bool
	scaling bool
	output  cli.Output
}

// NewCommand is `powerlab arbitrate`.
func NewCommand() *cobra.Command {
	o := options{load: "steady", seed: seedDefault, seeds: seedsDefault}
	cmd := &cobra.Command{
		Use:   "arbitrate",
		Short: "Compare the arbiter with other policies in simulations",
		Long: `Compares the coordinators' arbiter with other policies: CAB, DIAS and simple rules. All run the same jobs on
four simulated machines with 28 containers in total: urgent jobs with deadlines, and tolerant jobs that may
skip tasks, under a changing budget. All policies have the same joules for sprints and decide at the same
moments.

The report has, per policy: latencies by class, missed deadlines, quality (fraction of tasks computed), energy
and sprint joules, as means over the seeds with 95 % bounds. Each other policy is compared, seed by seed, with
the member of the arbiter's family (by price of quality and reserve of joules) that drops no more tasks (within
0.5 points) and uses no more energy and sprint joules (within 1 % of all its joules). Members, and the sprint
timers of the others, are chosen on 40 separate seeds, starting at 1, which are not judged.

--load names a load ("list" lists them, "all" runs every one) or a file (- for stdin):

  {"containers": 28, "for_s": 3600, "budget": [{"at_s": 0, "w": 250}, {"at_s": 1200, "w": 175}],
   "jobs": [{"class": "urgent", "arrival_s": 12.5, "tasks": 40, "task_s": 6.4, "deadline_s": 90, "floor": 1},
            {"class": "tolerant", "arrival_s": 0, "tasks": 240, "task_s": 7.7, "deadline_s": null, "floor": 0.6}]}

task_s is the mean task time on a machine at full speed; each seed draws the tasks around it. deadline_s counts
from the arrival. 28 containers draw 350 W at full speed and 100 W idle, and cannot be capped below 112.5 W.

--out writes figures.csv, judged.csv, quality.svg (tolerant latency over quality) and joules.svg (urgent latency
over joules). --optimum compares the arbiter with the best schedule of an offline search, on small cases that are
known in advance. --scaling compares each policy with and without knowledge of how jobs scale, on jobs of the
four scaling types; curves are learned from ended runs.

The exit code is 8 if the arbiter is behind another policy in any result, or ahead in fewer than three.
Bounds that decide hold for all results at once. "powerlab campaign" compares them on real programs.`,
		Example: "  powerlab arbitrate\n  powerlab arbitrate --load bursty --seeds 100 -o json\n  powerlab arbitrate --load jobs.json --out arbitrate-out\n  powerlab arbitrate --optimum",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.load, "load", o.load, "name of a load, a file, - for stdin, all, or list to print the names")
	f.IntVar(&o.seeds, "seeds", o.seeds, "number of judged seeds")
	f.Uint64Var(&o.seed, "seed", o.seed, "first judged seed; the others follow it")
	f.StringVar(&o.out, "out", "", "folder for tables and plots")
	f.BoolVar(&o.optimum, "optimum", false, "compare with an offline optimum on small cases")
	f.BoolVar(&o.scaling, "scaling", false, "compare policies with and without knowledge of how jobs scale")
	o.output.Flags(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if o.seeds < 2 || o.seeds > seedsMost {
		return cli.Usage("--seeds %d: must be from 2 to %d, because bounds need more than one", o.seeds, seedsMost)
	}
	if o.optimum && o.scaling {
		return cli.Usage("--optimum and --scaling cannot be combined")
	}
	if o.optimum {
		if cmd.Flags().Changed("load") || o.out != "" {
			return cli.Usage("--optimum cannot be combined with --load or --out: it generates its own cases")
		}
		return o.printOptimum(cmd)
	}
	if o.scaling {
		if cmd.Flags().Changed("load") || o.out != "" {
			return cli.Usage("--scaling cannot be combined with --load or --out: its load is fixed")
		}
		return o.printScaling(cmd)
	}
	if o.load == "list" {
		return o.printLoads(cmd.OutOrStdout())
	}
	loads, err := o.loads(cmd.InOrStdin())
	if err != nil {
		return err
	}
	report := &Report{Seed: o.seed, Seeds: o.seeds, Load: o.load}
	for i := range loads {
		for _, note := range loads[i].notes() {
			cli.Notef(cmd.ErrOrStderr(), "%s: %s", loads[i].Name, note)
		}
		if len(loads) > 1 {
			cli.Notef(cmd.ErrOrStderr(), "%s: %s", loads[i].Name, loads[i].Says)
		}
		a, err := everybody().measure(cmd.Context(), &loads[i], seedRange{o.seed, o.seeds}, tuningSeeds)
		if err != nil {
			return err
		}
		report.Loads = append(report.Loads, *a)
	}
	if o.out != "" {
		if err := report.files().Write(o.out); err != nil {
			return cli.Failed("use another folder with --out", "--out: %w", err)
		}
	}
	if err := report.print(cmd.OutOrStdout(), &o.output); err != nil {
		return err
	}
	return report.verdict()
}

// loads are those that --load names.
func (o *options) loads(stdin io.Reader) ([]Load, error) {
	all := Loads()
	if o.load == "all" {
		return all, nil
	}
	if i := slices.IndexFunc(all, func(l Load) bool { return l.Name == o.load }); i >= 0 {
		return all[i : i+1], nil
	}
	if o.load != "-" {
		if _, err := os.Stat(o.load); errors.Is(err, os.ErrNotExist) {
			return nil, unknownLoad(o.load, all)
		}
	}
	l, err := readLoad(stdin, o.load)
	if err != nil {
		return nil, err
	}
	return []Load{*l}, nil
}

func (o *options) printLoads(w io.Writer) error {
	items, rows := []map[string]string{}, [][]string{}
	for _, l := range Loads() {
		items = append(items, map[string]string{"name": l.Name, "says": l.Says})
		rows = append(rows, []string{l.Name, l.Says})
	}
	if o.output.IsJSON() {
		return o.output.JSON(w, map[string]any{"loads": items})
	}
	return o.output.Table(w, []string{"LOAD", "WHAT"}, rows)
}
