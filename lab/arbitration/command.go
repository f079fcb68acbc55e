// Package arbitration compares the arbiter with other policies on simulated machines: `powerlab
// arbitrate`. Every policy runs the same jobs on the same machines, under the same budget, with the
// same sprint joules and decisions at the same times. Only three things differ: which jobs are
// served, which sprint, and which drop tasks. A comparison is meaningful only at equal cost, so the
// arbiter takes part as a family, over prices of quality and reserves of joules. The same seeds give
// the same results, whatever the number of CPUs.
package arbitration

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// options are those of `powerlab arbitrate`.
type options struct {
	load             string
	seeds            seedRange
	optimum, scaling bool
	output           cli.Output
}

// NewCommand is `powerlab arbitrate`.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "arbitrate",
		Short: "Compare the arbiter with other policies on simulated machines",
		Long: `Compares the coordinators' arbiter with other policies: CAB, DIAS and simple rules. All run the same jobs on
four simulated machines with 28 containers in total: urgent jobs with deadlines, and tolerant jobs that may
skip tasks, under a changing budget. All policies have the same joules for sprints and decide at the same
moments.

Each other policy is compared, seed by seed, with the member of the arbiter's family (by price of quality and
reserve of joules) that drops no more tasks (within 0.5 points) and uses no more energy and sprint joules
(within 1 % of all its joules). Members, and the sprint timers of the others, are chosen on 40 separate seeds,
starting at 1, which are not judged. With -o json the report also has, per policy: latencies by class, missed
deadlines, quality (fraction of tasks computed), energy and sprint joules, as means with 95 % bounds.

--load names a load (steady, heavy, bursty, heterogeneous, failures, power-trace, narrow, or all of them) or a file
(- for stdin):

  {"containers": 28, "for_s": 3600, "budget": [{"at_s": 0, "w": 250}, {"at_s": 1200, "w": 175}],
   "jobs": [{"class": "urgent", "arrival_s": 12.5, "tasks": 40, "task_s": 6.4, "deadline_s": 90, "floor": 1},
            {"class": "tolerant", "arrival_s": 0, "tasks": 240, "task_s": 7.7, "deadline_s": null, "floor": 0.6}]}

task_s is the mean task time on a machine at full speed; each seed draws the tasks around it. deadline_s counts
from the arrival. 28 containers draw 350 W at full speed and 100 W idle, and cannot be capped below 112.5 W.

--optimum compares the arbiter with the best schedule of an offline search, on small cases that are known in
advance. --scaling compares each policy with and without knowledge of how jobs scale, on jobs of the four
scaling types; curves are learned from ended runs. Both print YAML by default.

The exit code is 8 if the arbiter is behind another policy in any result, or ahead in fewer than three.
Bounds that decide hold for all results at once. "powerlab campaign" compares them on real programs.`,
		Example: "  powerlab arbitrate\n  powerlab arbitrate --load bursty --seeds 100 -o json\n  powerlab arbitrate --load jobs.json\n  powerlab arbitrate --optimum",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.load, "load", "steady", "name of a load, all, a file, or - for stdin")
	f.IntVar(&o.seeds.count, "seeds", 40, "number of judged seeds")
	f.Uint64Var(&o.seeds.first, "seed", 1001, "first judged seed; the others follow it")
	f.BoolVar(&o.optimum, "optimum", false, "compare with an offline optimum on small cases")
	f.BoolVar(&o.scaling, "scaling", false, "compare policies with and without knowledge of how jobs scale")
	o.output.Flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("load", "optimum", "scaling")
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if n := o.seeds.count; n < 2 || n > 1000 {
		return cli.Usage("--seeds %d: must be from 2 to 1000, because bounds need more than one", n)
	}
	var found any
	var err error
	switch {
	case o.optimum:
		found, err = measureOptimum(cmd.Context(), o.seeds)
	case o.scaling:
		found, err = measureScaling(cmd.Context(), o.seeds)
	default:
		return o.compare(cmd)
	}
	if !o.output.IsJSON() {
		o.output.Format = "yaml"
	}
	if err != nil {
		return err
	}
	return o.output.JSON(cmd.OutOrStdout(), found)
}

// Report is the result of a call on its loads.
type Report struct {
	Seed  uint64   `json:"seed"`
	Seeds int      `json:"seeds"`
	Load  string   `json:"load"`
	Loads []Answer `json:"loads"`
}

// compare compares all policies on the loads.
func (o *options) compare(cmd *cobra.Command) error {
	loads, err := o.loads(cmd.InOrStdin())
	if err != nil {
		return err
	}
	all := contest{baselines(), member, prices(), []reserve{usual, spend, free, save}, shown()}
	r := &Report{Seed: o.seeds.first, Seeds: o.seeds.count, Load: o.load}
	for i := range loads {
		a, err := all.measure(cmd.Context(), &loads[i], o.seeds, 40)
		if err != nil {
			return err
		}
		r.Loads = append(r.Loads, *a)
	}
	switch {
	case o.output.IsJSON() && len(r.Loads) == 1:
		err = o.output.JSON(cmd.OutOrStdout(), r.Loads[0])
	case o.output.IsJSON():
		err = o.output.JSON(cmd.OutOrStdout(), r)
	default:
		var rows [][]string
		for _, a := range r.Loads {
			for _, v := range a.Verdicts {
				rows = append(rows, []string{a.Load, v.Baseline, v.Member, v.Verdict, strconv.Itoa(v.Ahead), strconv.Itoa(v.Behind)})
			}
		}
		err = o.output.Table(cmd.OutOrStdout(), []string{"LOAD", "BASELINE", "MEMBER", "VERDICT", "AHEAD", "BEHIND"}, rows)
	}
	if err != nil {
		return err
	}
	return r.verdict()
}

// verdict is the error of an arbiter that is behind somewhere.
func (r *Report) verdict() error {
	var short []string
	for i := range r.Loads {
		short = append(short, r.Loads[i].shortfalls()...)
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: "the arbiter misses its goals: " + strings.Join(short, ", "),
		Hint: "see lab/docs/arbiter.md for known cases and reasons; repeat with another --seed to rule out chance",
	}
}

// loads are those that --load names.
func (o *options) loads(stdin io.Reader) ([]Load, error) {
	all, names := Loads(), []string{}
	for i := range all {
		if all[i].Name == o.load {
			return all[i : i+1], nil
		}
		names = append(names, all[i].Name)
	}
	if o.load == "all" {
		return all, nil
	}
	if _, err := os.Stat(o.load); o.load != "-" && errors.Is(err, os.ErrNotExist) {
		err := cli.Usage("unknown --load %q: neither a load's name nor a file", o.load)
		err.Hint = "use a file, all, or one of " + strings.Join(names, ", ")
		return nil, err
	}
	l, err := readLoad(stdin, o.load)
	return []Load{l}, err
}
