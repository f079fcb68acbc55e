package scaling

import (
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/scaling"
	"headroom/units"
)

// NewCommand is `powerlab scale`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Predict how a job scales out, and fit scaling models",
		Long: "How much faster a job is with more units, and where more of them are wasted: by IPSO, USBA, Amdahl's, Gustafson's and\n" +
			"Sun-Ni's laws. docs/scaling.md has the models and the formats.",
		Example: "  powerlab scale fit --input points.json -o json\n  powerlab scale predict --input curve.json",
	}
	cmd.AddCommand(newFit(), newPredict(), newReal())
	return cmd
}

// fitOptions are the flags of `powerlab scale fit`.
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
		Short: "Fit a scaling model to measured speed-ups, or to logs of runs",
		Long: "Fits a model to the speed-ups in a file:\n\n" +
			`  {"model": "ipso", "points": [{"n": 1, "speedup": 1}, {"n": 10, "speedup": 7.5}, ...], "predict": [{"n": 200}]}` + "\n\n" +
			"Models: ipso, amdahl, gustafson, sunni (n is the scale-out degree) and usba (n is the problem size, m the degree). Where\n" +
			"points have m, and n or n/m is the same in all, m is the degree for the others too. \"fixed\": {\"delta\": 0} holds\n" +
			"parameters that are known. Bounds are of 95 %: low and high of a parameter hold it, those of a prediction hold a\n" +
			"further measurement; p is the p-value of the hypothesis that the parameter is 0.\n\n" +
			"--spark-log and --history take the logs of runs of one job in their place: event logs of Spark (plain or gzip, a file or the\n" +
			"folder of a rolling log) or history files of MapReduce (.jhist), one of each run. Speed-ups of Spark are against the log of one task\n" +
			"on one executor, or of as many tasks on one executor. The answer then has what was measured and advice: the number of\n" +
			"containers beyond which watts are wasted.",
		Example: "  powerlab scale fit --input points.json -o json\n  powerlab scale fit --spark-log app-1 --spark-log app-2 --container-power 12W --base-power 40W\n" +
			"  powerlab scale fit --history job_1.jhist --history job_2.jhist",
		Args: cobra.NoArgs,
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
	f.StringArrayVar(&o.sparkLogs, "spark-log", nil, "event log of a run of a Spark application; may be repeated")
	f.StringArrayVar(&o.histories, "history", nil, "history file of a run of a MapReduce job; may be repeated")
	f.StringVar(&o.model, "model", "", "model for logs; ipso for histories and for runs on one line, otherwise usba")
	f.Var(&o.power.base, "base-power", "with logs: what a job draws beside its containers")
	f.Var(&o.power.container, "container-power", "with logs: what each container draws")
	f.Float64Var(&o.power.worth, "worth", worthDefault, "with logs: percent of speed that each percent of power must give")
	o.out.Flags(cmd)
	return cmd
}

// run checks the flags and fits.
func (o *fitOptions) run(cmd *cobra.Command) (*answer, error) {
	given := 0
	for _, is := range []bool{o.input != "", len(o.sparkLogs) > 0, len(o.histories) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, cli.Usage("give one of --input, --spark-log and --history")
	case o.input != "" && (o.model != "" || o.power.container != 0 || o.power.base != 0):
		return nil, cli.Usage("--model, --base-power and --container-power are for logs; a file names its model")
	case !(o.power.worth > 0 && o.power.worth <= worthMost):
		return nil, cli.Usage("--worth is %v; it must be above 0 and at most %d", o.power.worth, worthMost)
	case o.power.base < 0 || o.power.container < 0 || o.power.base > powerMost || o.power.container > powerMost:
		return nil, cli.Usage("--base-power and --container-power must be from 0W to %s", powerMost.Exact())
	case o.power.base > 0 && o.power.container == 0:
		return nil, cli.Usage("--base-power needs --container-power")
	case o.input != "":
		return fitFile(cmd.InOrStdin(), o.input)
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

func (o *fitOptions) fitSpark() (*answer, error) {
	runs, err := readAll(o.sparkLogs, readSparkLog)
	if err != nil {
		return nil, err
	}
	all := group(runs)
	whole, err := bySparks(all)
	if err != nil {
		return nil, err
	}
	model := o.model
	if model == "" {
		model = scaling.IPSO
		if whole && !scaling.OnLine(points(all)) {
			model = scaling.USBA
		}
	}
	return o.fitRuns(all, model)
}

func (o *fitOptions) fitHistories() (*answer, error) {
	runs, err := readAll(o.histories, readHistory)
	if err != nil {
		return nil, err
	}
	all := group(runs)
	byHistories(all)
	model := o.model
	if model == "" {
		model = scaling.IPSO
	}
	a, err := o.fitRuns(all, model)
	if err != nil {
		return nil, err
	}
	if f, err := factorsOf(all); err == nil {
		a.Factors = f
	} else {
		a.NoFactors = reason(err)
	}
	return a, nil
}

// fitRuns fits a model to measurements, and advises.
func (o *fitOptions) fitRuns(all []measurement, model string) (*answer, error) {
	c, err := scaling.Fit(model, points(all))
	if err != nil {
		return nil, &cli.Error{
			Code: "input", Exit: cli.ExitUsage, Message: reason(err), Err: err,
			Hint: "name logs of more runs, at other degrees; repeats of the same degree are averaged into one point",
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

func newPredict() *cobra.Command {
	var input string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Predict speed-ups from the parameters of a scaling model",
		Long: "Predicts the speed-ups of a model whose parameters a file gives:\n\n" +
			`  {"model": "ipso", "parameters": {"eta": 0.97, "beta": 0.001, "gamma": 1.8}, "predict": [{"n": 16}, {"n": 200}]}` + "\n\n" +
			"Parameters are numbers, or as powerlab scale fit prints them. ipso: eta, and alpha (1), delta, beta, gamma (0) where\n" +
			"they differ; amdahl and gustafson: eta; sunni: eta and g; usba: r, alpha, beta, gamma, eps, theta.",
		Example: "  powerlab scale predict --input curve.json -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := predictFile(cmd.InOrStdin(), input)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&input, "input", "", "file with model, parameters and what to predict; - for stdin")
	out.Flags(cmd)
	return cmd
}
