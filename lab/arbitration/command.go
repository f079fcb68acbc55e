package arbitration

import (
	"context"
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
	load             string
	seed             uint64
	seeds            int
	optimum, scaling bool
	output           cli.Output
}

// NewCommand is `powerlab arbitrate`.
func NewCommand() *cobra.Command {
	o := options{load: "steady", seed: seedDefault, seeds: seedsDefault}
	cmd := &cobra.Command{
		Use:   "arbitrate",
		Short: "Compare the arbiter with other policies on simulated machines",
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

--optimum compares the arbiter with the best schedule of an offline search, on small cases that are known in
advance. --scaling compares each policy with and without knowledge of how jobs scale, on jobs of the four
scaling types; curves are learned from ended runs.

The exit code is 8 if the arbiter is behind another policy in any result, or ahead in fewer than three.
Bounds that decide hold for all results at once. "powerlab campaign" compares them on real programs.`,
		Example: "  powerlab arbitrate\n  powerlab arbitrate --load bursty --seeds 100 -o json\n  powerlab arbitrate --load jobs.json\n  powerlab arbitrate --optimum",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.load, "load", o.load, "name of a load, a file, - for stdin, all, or list to print the names")
	f.IntVar(&o.seeds, "seeds", o.seeds, "number of judged seeds")
	f.Uint64Var(&o.seed, "seed", o.seed, "first judged seed; the others follow it")
	f.BoolVar(&o.optimum, "optimum", false, "compare with an offline optimum on small cases")
	f.BoolVar(&o.scaling, "scaling", false, "compare policies with and without knowledge of how jobs scale")
	o.output.Flags(cmd)
	return cmd
}

// printer is a result that prints itself as a table.
type printer interface {
	print(w io.Writer, out *cli.Output) error
}

func (o *options) run(cmd *cobra.Command) error {
	if o.seeds < 2 || o.seeds > seedsMost {
		return cli.Usage("--seeds %d: must be from 2 to %d, because bounds need more than one", o.seeds, seedsMost)
	}
	var measure func(context.Context, seedRange) (printer, error)
	switch fixed := cmd.Flags().Changed("load"); {
	case o.optimum && o.scaling:
		return cli.Usage("--optimum and --scaling cannot be combined")
	case o.optimum && fixed:
		return cli.Usage("--optimum cannot be combined with --load: it generates its own cases")
	case o.scaling && fixed:
		return cli.Usage("--scaling cannot be combined with --load: its load is fixed")
	case o.optimum:
		measure = func(ctx context.Context, s seedRange) (printer, error) { return measureOptimum(ctx, s) }
	case o.scaling:
		measure = func(ctx context.Context, s seedRange) (printer, error) { return measureScaling(ctx, s) }
	case o.load == "list":
		return o.printLoads(cmd.OutOrStdout())
	default:
		return o.compare(cmd)
	}
	found, err := measure(cmd.Context(), seedRange{o.seed, o.seeds})
	if err != nil {
		return err
	}
	if o.output.IsJSON() {
		return o.output.JSON(cmd.OutOrStdout(), found)
	}
	return found.print(cmd.OutOrStdout(), &o.output)
}

// compare compares all policies on the loads.
func (o *options) compare(cmd *cobra.Command) error {
	loads, err := o.loads(cmd.InOrStdin())
	if err != nil {
		return err
	}
	report := &Report{Seed: o.seed, Seeds: o.seeds, Load: o.load}
	for i := range loads {
		notes := loads[i].notes()
		if len(loads) > 1 {
			notes = append(notes, loads[i].Says)
		}
		for _, note := range notes {
			cli.Notef(cmd.ErrOrStderr(), "%s: %s", loads[i].Name, note)
		}
		a, err := everybody().measure(cmd.Context(), &loads[i], seedRange{o.seed, o.seeds}, tuningSeeds)
		if err != nil {
			return err
		}
		report.Loads = append(report.Loads, *a)
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
	if _, err := os.Stat(o.load); o.load != "-" && errors.Is(err, os.ErrNotExist) {
		return nil, unknownLoad(o.load, all)
	}
	l, err := readLoad(stdin, o.load)
	if err != nil {
		return nil, err
	}
	return []Load{*l}, nil
}

// unknownLoad is the error of a load that is neither known nor a file.
func unknownLoad(name string, loads []Load) *cli.Error {
	var names []string
	for _, l := range loads {
		names = append(names, l.Name)
	}
	err := cli.Usage("unknown --load %q: neither a load's name nor a file", name)
	err.Hint = "powerlab arbitrate --load list names them"
	if near := cli.Nearest(name, names); near != "" {
		err.Hint = "did you mean " + near + "?"
	}
	return err
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
