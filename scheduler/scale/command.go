package scale

import (
	"cmp"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
	"headroom/jobs/scaling"
	"headroom/units"
)

// NewCommand is `scheduler scale`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "scale",
		Short:   "Determine how far jobs should scale out",
		Long:    "Determines how far jobs should scale out, from the logs of ended runs. docs/scaling.md describes the models.",
		Example: "  scheduler scale fit --input points.json",
	}
	cmd.AddCommand(newFit())
	return cmd
}

// fitOptions are the flags of `scheduler scale fit`.
type fitOptions struct {
	input     string
	sparkLogs []string
	histories []string
	model     string
	power     power
	out       cli.Output
}

func newFit() *cobra.Command {
	o := fitOptions{power: power{worth: worthDefault}}
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Fit a scaling model to measured speed-ups or to logs of runs",
		Long: `Fits a model to the speed-ups in a file:

  {"model": "ipso", "points": [{"n": 1, "speedup": 1}, {"n": 10, "speedup": 7.5}, ...], "predict": [{"n": 200}]}

Models: ipso, amdahl, gustafson and sunni (n is the scale-out degree), and usba (n is the problem size,
m the degree). If points have m, and n or n/m is constant, m is the degree for the other models too.
"fixed": {"delta": 0} holds known parameters. Bounds are 95 %: low and high are the confidence interval
of a parameter, or the prediction interval of a further measurement. p is the p-value of the hypothesis
that the parameter is 0.

With --spark-log or --history the speed-ups come from logs of runs of one job, one log per run: Spark
event logs (a file or the folder of a rolling log), or MapReduce history files (.jhist), as they are or
compressed with zstd, lz4 or gzip: --spark-log app-1 --spark-log app-2 --container-power 12W. The log
of a run that has not ended or is not whole is an error.
Spark speed-ups are relative to the log with one task on one executor, or with the same number of tasks
on one executor. The output then also has the measurements, and advice: the number of containers beyond
which power is wasted.`,
		Example: "  scheduler scale fit --input points.json -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := o.run(cmd)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), &o.out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.input, "input", "", "file with model and points; - for stdin")
	f.StringArrayVar(&o.sparkLogs, "spark-log", nil, "event log of a run of a Spark application (repeatable)")
	f.StringArrayVar(&o.histories, "history", nil, "history file of a run of a MapReduce job (repeatable)")
	f.StringVar(&o.model, "model", "", "with logs: model (default: ipso for histories and for runs on one line, otherwise usba)")
	f.Var(&o.power.base, "base-power", "with logs: power of a job apart from its containers")
	f.Var(&o.power.container, "container-power", "with logs: power of each container")
	f.Float64Var(&o.power.worth, "worth", worthDefault, "with logs: least gain of speed, in percent, per percent of power")
	o.out.Flags(cmd)
	return cmd
}

// run checks the flags and fits.
func (o *fitOptions) run(cmd *cobra.Command) (*Answer, error) {
	given := 0
	for _, is := range []bool{o.input != "", len(o.sparkLogs) > 0, len(o.histories) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, cli.Usage("exactly one of --input, --spark-log and --history is needed")
	case o.input != "" && (o.model != "" || o.power.container != 0 || o.power.base != 0):
		return nil, cli.Usage("--model, --base-power and --container-power cannot be combined with --input: the file names its model")
	case !(o.power.worth > 0 && o.power.worth <= worthMost):
		return nil, cli.Usage("--worth %v: must be above 0 and at most %d", o.power.worth, worthMost)
	case o.power.base < 0 || o.power.container < 0 || o.power.base > powerMost || o.power.container > powerMost:
		return nil, cli.Usage("--base-power and --container-power must be from 0W to %s", powerMost.Exact())
	case o.power.base > 0 && o.power.container == 0:
		return nil, cli.Usage("--base-power needs --container-power")
	case o.input != "":
		var in Input
		if err := jsonfile.Read(cmd.InOrStdin(), "--input", o.input, &in); err != nil {
			return nil, err
		}
		a, err := Solve(&in)
		if err != nil {
			return nil, jsonfile.Bad(o.input, "%v", err)
		}
		return a, nil
	case len(o.sparkLogs) > 0:
		return o.fitSpark()
	}
	return o.fitHistories()
}

const (
	// worthMost bounds --worth: a container that must be worth a hundred times its watts never is.
	worthMost = 100
	// powerMost bounds a container's power: a site's.
	powerMost = 100_000_000 * units.Watt
)

func (o *fitOptions) fitSpark() (*Answer, error) {
	all, err := measured(o.sparkLogs, readSpark)
	if err != nil {
		return nil, err
	}
	whole, err := bySparks(all)
	if err != nil {
		return nil, err
	}
	model := scaling.IPSO
	if whole && !scaling.OnLine(points(all)) {
		model = scaling.USBA
	}
	return o.fitRuns(all, cmp.Or(o.model, model))
}

func (o *fitOptions) fitHistories() (*Answer, error) {
	all, err := measured(o.histories, readMapReduce)
	if err != nil {
		return nil, err
	}
	byHistories(all)
	a, err := o.fitRuns(all, cmp.Or(o.model, scaling.IPSO))
	if err != nil {
		return nil, err
	}
	if a.Factors, err = factorsOf(all); err != nil {
		a.NoFactors = reason(err)
	}
	return a, nil
}

// fitRuns fits a model to measurements, and advises.
func (o *fitOptions) fitRuns(all []measurement, model string) (*Answer, error) {
	c, err := scaling.Fit(model, points(all))
	if err != nil {
		return nil, &cli.Error{
			Code: "input", Exit: cli.ExitUsage, Message: reason(err), Err: err,
			Hint: "add logs of runs at other degrees; runs of the same degree are averaged into one point",
		}
	}
	a := answerOf(c, nil)
	a.Model, a.Measurements = model, all
	most := 1
	for i := range all {
		most = max(most, all[i].M)
	}
	a.Advice = advise(c, most, o.power)
	return a, nil
}
