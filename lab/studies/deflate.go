package studies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/deflation"
	"headroom/jobs/quality"
	"headroom/jobs/queueing"
	"headroom/lab/jsonfile"
	"headroom/units"
)

// frontierMost bounds the printed points of the frontier.
const frontierMost = 30

// deflating is the file of `powerlab deflate`. What is absent is not bounded, or not there.
type deflating struct {
	Discipline string           `json:"discipline"`
	Sprints    string           `json:"sprints"`
	Budget     *deflatingBudget `json:"sprint_budget"`
	Busy       float64          `json:"busy_w"`
	Classes    []deflatingClass `json:"classes"`
}

type deflatingBudget struct {
	Capacity float64 `json:"capacity_j"`
	Refill   float64 `json:"refill_w"`
}

type deflatingClass struct {
	Name        string             `json:"name"`
	Rate        float64            `json:"rate_per_s"`
	Job         *deflatingJob      `json:"job"`
	Profile     json.RawMessage    `json:"profile"`
	ErrorMax    float64            `json:"error_max"`
	Weight      float64            `json:"weight"`
	Thetas      []float64          `json:"thetas"`
	MeanMax     *float64           `json:"mean_max_s"`
	Percentiles map[string]float64 `json:"percentiles_max_s"`
	Sprint      *deflatingSprint   `json:"sprint"`
}

type deflatingSprint struct {
	Up       float64   `json:"speed_up"`
	Extra    float64   `json:"extra_w"`
	Share    float64   `json:"share"`
	Timeouts []float64 `json:"timeouts_s"`
}

// deflatingJob is either measured or a model of tasks or waves.
type deflatingJob struct {
	Measured []deflatingMeasure `json:"measured"`
	Model    string             `json:"model"`
	Stages   string             `json:"stages"`
	Slots    int                `json:"slots"`
	Maps     int                `json:"maps"`
	Reduces  int                `json:"reduces"`
	Map      float64            `json:"map_s"`
	Reduce   float64            `json:"reduce_s"`
	Setup    float64            `json:"setup_s"`
	Shuffle  float64            `json:"shuffle_s"`
	CV       float64            `json:"cv"`
}

type deflatingMeasure struct {
	Drop float64 `json:"drop"`
	Mean float64 `json:"mean_s"`
	CV   float64 `json:"cv"`
}

// NewDeflateCommand is `powerlab deflate`.
func NewDeflateCommand() *cobra.Command {
	var file, svg string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "deflate",
		Short: "Choose drop ratios and sprint timeouts by the queueing model",
		Long: `Chooses, for each priority class, how many tasks are dropped and when its jobs sprint. The input file:

  {"discipline": "np", "sprint_budget": {"capacity_j": 22000, "refill_w": 9}, "classes": [
    {"name": "low", "rate_per_s": 0.0042, "error_max": 0.3,
     "job": {"slots": 20, "maps": 50, "map_s": 40, "setup_s": 8},
     "profile": [{"drop": 0.1, "error": 0.085}, {"drop": 0.2, "error": 0.15}, {"drop": 0.4, "error": 0.32}],
     "percentiles_max_s": {"0.95": 900}},
    {"name": "high", "rate_per_s": 0.0018, "mean_max_s": 150,
     "job": {"measured": [{"drop": 0, "mean_s": 148.5, "cv": 0.2}]},
     "sprint": {"speed_up": 2.5, "extra_w": 90}}]}

Classes are listed from lowest to highest priority. Times are from arrival to end.
  job      either measurements at drop ratios, or a model: maps and reduces on slots with mean times map_s and
           reduce_s; or, with "model": "wave", waves with that mean and the coefficient of variation cv
  stages   "all" drops reduces too
  profile  a table, or the output of "powerlab profile --out"
  thetas, timeouts_s of sprint
           values to try; by default every drop ratio that changes the number of tasks, and eighths of the
           mean time
  weight   factor of the class's error (default 1)
  busy_w   power of a running job above that of the idle cluster

Of the settings within all bounds, the one with the least error is chosen, then the least power, then the
least latency. If there is none, the output is the nearest setting and the bounds it misses. discipline is
np (default) or pr. sprints is timed (default: a job's time is transformed) or paper (its rates are
multiplied).`,
		Example: "  powerlab deflate --input classes.json\n  powerlab deflate --input - -o json < classes.json\n" +
			"  powerlab deflate --input classes.json --plot frontier.svg",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, warnings, err := deflate(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			for _, w := range warnings {
				cli.Notef(cmd.ErrOrStderr(), "%s", w)
			}
			if svg != "" {
				picture, err := drawFrontier(answer)
				if err == nil {
					err = renameio.WriteFile(svg, picture, 0o644)
				}
				if err != nil {
					return cli.Failed("check that the folder exists and is writable", "--plot: %w", err)
				}
			}
			return answer.print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&file, "input", "", "file with the classes and their bounds; - for stdin")
	cmd.Flags().StringVar(&svg, "plot", "", "write a plot of the frontier to this SVG file")
	out.Flags(cmd)
	return cmd
}

func deflate(stdin io.Reader, file string) (*deflated, []string, error) {
	var in deflating
	if err := jsonfile.Read(stdin, "--input", file, &in); err != nil {
		return nil, nil, err
	}
	problem, warnings, err := in.problem(file)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	answer, err := deflation.Choose(problem)
	if err != nil {
		return nil, nil, misfit(file, err)
	}
	return in.told(answer, time.Since(began)), warnings, nil
}

// misfit is what package deflation refuses, as bad input.
func misfit(file string, err error) error {
	if errors.Is(err, deflation.ErrProblem) {
		return jsonfile.Bad(file, "%s", strings.TrimPrefix(err.Error(), "deflation: "))
	}
	return jsonfile.Bad(file, "%v", err)
}

// problem is the file as package deflation takes it.
func (in *deflating) problem(file string) (deflation.Problem, []string, error) {
	p := deflation.Problem{
		Discipline: queueing.Discipline(in.Discipline), Sprints: deflation.Policy(in.Sprints), FrontierMost: frontierMost,
	}
	var warnings []string
	watts := []number{{"busy_w", &in.Busy, 0, maxWatts}}
	if b := in.Budget; b != nil {
		watts = append(watts, number{"sprint_budget.refill_w", &b.Refill, 0, maxWatts}, number{"sprint_budget.capacity_j", &b.Capacity, 0, maxWatts})
	}
	for i := range in.Classes {
		if s := in.Classes[i].Sprint; s != nil {
			watts = append(watts, number{fmt.Sprintf("classes[%d].sprint.extra_w", i), &s.Extra, 0, maxWatts})
		}
	}
	for _, n := range watts {
		if problem := n.problem(); problem != "" {
			return p, nil, jsonfile.Bad(file, "%s", problem)
		}
	}
	p.Busy = units.FromWatts(in.Busy)
	if b := in.Budget; b != nil {
		p.Budget = &deflation.Bucket{Capacity: units.FromJoules(b.Capacity), Refill: units.FromWatts(b.Refill)}
	}
	for i := range in.Classes {
		c, warned, err := in.Classes[i].class(i)
		if err != nil {
			return p, nil, jsonfile.Bad(file, "classes[%d].%s", i, strings.TrimPrefix(err.Error(), "deflation: "))
		}
		p.Classes, warnings = append(p.Classes, c), append(warnings, warned...)
	}
	return p, warnings, nil
}

func (c *deflatingClass) class(i int) (deflation.Class, []string, error) {
	if c.Name == "" {
		c.Name = strconv.Itoa(i)
	}
	out := deflation.Class{Name: c.Name, Rate: c.Rate, ErrorMax: c.ErrorMax, Weight: c.Weight, Ratios: c.Thetas}
	if c.MeanMax != nil {
		if out.MeanMax = *c.MeanMax; !(out.MeanMax > 0) {
			return out, nil, fmt.Errorf("mean_max_s is %v: must be above 0, or left out", out.MeanMax)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Percentiles)) {
		p, err := strconv.ParseFloat(name, 64)
		if err != nil {
			return out, nil, fmt.Errorf("percentiles_max_s: invalid percentile %q; use a fraction such as \"0.95\"", name)
		}
		out.Percentiles = append(out.Percentiles, deflation.Percentile{P: p, Max: c.Percentiles[name]})
	}
	if s := c.Sprint; s != nil {
		out.SprintUp, out.SprintExtra, out.SprintShare, out.Timeouts = s.Up, units.FromWatts(s.Extra), s.Share, s.Timeouts
	}
	if c.Job == nil {
		return out, nil, errors.New("job is missing: needs measurements or a task model")
	}
	var err error
	if out.Jobs, err = c.Job.jobs(); err != nil {
		return out, nil, fmt.Errorf("job.%s", strings.TrimPrefix(err.Error(), "deflation: "))
	}
	var warnings []string
	out.Profile, warnings, err = profileOf(c.Name, c.Profile)
	for j := range warnings {
		warnings[j] = "class " + c.Name + ": " + warnings[j]
	}
	return out, warnings, err
}

// profileOf reads a table, or a profile as `powerlab profile --out` has written it.
func profileOf(name string, raw json.RawMessage) (*quality.Profile, []string, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return nil, nil, nil
	case raw[0] == '{':
		p, warnings, err := quality.Parse(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("profile: %w", err)
		}
		return &p, warnings, nil
	}
	var rows []struct {
		Drop  *float64 `json:"drop"`
		Error *float64 `json:"error"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rows); err != nil {
		return nil, nil, fmt.Errorf("profile: %s", jsonfile.Explain(err))
	}
	table := make([]deflation.Loss, len(rows))
	for i, r := range rows {
		if r.Drop == nil || r.Error == nil {
			return nil, nil, fmt.Errorf("profile[%d]: drop or error is missing", i)
		}
		table[i] = deflation.Loss{Drop: *r.Drop, Error: *r.Error}
	}
	return deflation.ProfileOf(name, table)
}

func (j *deflatingJob) jobs() (deflation.Jobs, error) {
	if j.Measured != nil {
		measures := make([]deflation.Measure, len(j.Measured))
		for i, m := range j.Measured {
			measures[i] = deflation.Measure{Drop: m.Drop, Mean: m.Mean, CV: m.CV}
		}
		return deflation.Measured(measures)
	}
	switch {
	case j.Slots < 1:
		return deflation.Jobs{}, fmt.Errorf("slots is %d: must be at least 1", j.Slots)
	case j.Maps < 1 || j.Maps > queueing.MaxPhases:
		return deflation.Jobs{}, fmt.Errorf("maps is %d: must be from 1 to %d", j.Maps, queueing.MaxPhases)
	case j.Reduces < 0 || j.Reduces > queueing.MaxPhases:
		return deflation.Jobs{}, fmt.Errorf("reduces is %d: must be from 0 to %d", j.Reduces, queueing.MaxPhases)
	case j.Stages != "" && j.Stages != "input" && j.Stages != "all":
		return deflation.Jobs{}, fmt.Errorf("stages %q: must be input or all", j.Stages)
	}
	switch j.Model {
	case "", "task":
		return deflation.Tasks(queueing.TaskModel{
			Slots: j.Slots, Maps: queueing.Exactly(j.Maps), Reduces: queueing.Exactly(j.Reduces),
			MapMean: j.Map, ReduceMean: j.Reduce, Setup: j.Setup, Shuffle: j.Shuffle,
		}, j.Stages == "all"), nil
	case "wave":
		return j.waves()
	}
	return deflation.Jobs{}, fmt.Errorf("model %q: must be task or wave", j.Model)
}

func (j *deflatingJob) waves() (deflation.Jobs, error) {
	m := queueing.WaveModel{Slots: j.Slots, Maps: queueing.Exactly(j.Maps), Reduces: queueing.Exactly(j.Reduces)}
	var problems []error
	length := func(name string, mean float64) (ph queueing.PH) {
		if mean != 0 {
			var err error
			if ph, err = queueing.Fit(mean, j.CV*j.CV); err != nil {
				problems = append(problems, fmt.Errorf("%s with cv: %w", name, err))
			}
		}
		return ph
	}
	m.MapWaves = []queueing.PH{length("map_s", j.Map)}
	if j.Reduces > 0 {
		m.ReduceWaves = []queueing.PH{length("reduce_s", j.Reduce)}
	}
	m.Setup, m.Shuffle = length("setup_s", j.Setup), length("shuffle_s", j.Shuffle)
	return deflation.Waves(m, j.Stages == "all"), errors.Join(problems...)
}

// deflated is the answer; null is none.
type deflated struct {
	Feasible bool              `json:"feasible"`
	Chosen   *deflatedPoint    `json:"chosen"`
	Frontier []deflatedPoint   `json:"frontier"`
	Binding  []deflatedBinding `json:"binding"`
	Nearest  *deflatedPoint    `json:"nearest"`
	Beyond   *deflatedPoint    `json:"beyond"`
	Overload *deflatedOverload `json:"overload"`
	Settings int               `json:"settings"`
	Calls    int               `json:"calls"`
	Complete bool              `json:"complete"`
	Solve    float64           `json:"solve_s"`
}

type deflatedPoint struct {
	Classes []deflatedClass  `json:"classes"`
	Error   float64          `json:"error"`
	Latency *float64         `json:"latency_s"`
	Power   float64          `json:"power_w"`
	Load    float64          `json:"load"`
	Missed  []deflatedMissed `json:"missed,omitempty"`
}

type deflatedClass struct {
	Name        string              `json:"name"`
	Theta       float64             `json:"theta"`
	After       *float64            `json:"sprint_after_s"`
	Error       float64             `json:"error"`
	Mean        float64             `json:"mean_s"`
	P95         float64             `json:"p95_s"`
	Percentiles map[string]*float64 `json:"percentiles_s"`
	Service     float64             `json:"service_s"`
	Sprinting   float64             `json:"sprinting"`
	Granted     *float64            `json:"granted"`
}

type deflatedMissed struct {
	Class string  `json:"class"`
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
}

type deflatedBinding struct {
	Class  string           `json:"class"`
	Knob   string           `json:"knob"`
	From   *float64         `json:"from"`
	To     *float64         `json:"to"`
	Missed []deflatedMissed `json:"missed"`
	Load   float64          `json:"load"`
}

type deflatedOverload struct {
	Plain float64 `json:"load"`
	Least float64 `json:"least_load"`
}

// told is the answer as it is printed.
func (in *deflating) told(a *deflation.Answer, took time.Duration) *deflated {
	out := &deflated{
		Feasible: a.Chosen != nil, Frontier: []deflatedPoint{}, Binding: []deflatedBinding{},
		Settings: a.Settings, Calls: a.Calls, Complete: a.Complete, Solve: took.Seconds(),
	}
	if a.Chosen != nil {
		out.Chosen = in.point(a.Chosen, nil)
	}
	if a.Nearest != nil {
		out.Nearest = in.point(&a.Nearest.Point, a.Nearest.Missed)
	}
	if a.Beyond != nil {
		out.Beyond = in.point(&a.Beyond.Point, a.Beyond.Missed)
	}
	for i := range a.Frontier {
		out.Frontier = append(out.Frontier, *in.point(&a.Frontier[i], nil))
	}
	for _, b := range a.Binding {
		knob := "theta"
		if b.Timeout {
			knob = "sprint_after_s"
		}
		out.Binding = append(out.Binding, deflatedBinding{
			Class: in.Classes[b.Class].Name, Knob: knob, From: finite(b.From), To: finite(b.To), Missed: in.missed(b.Missed), Load: b.Load,
		})
	}
	if o := a.Overload; o != nil {
		out.Overload = &deflatedOverload{o.Plain, o.Least}
	}
	return out
}

func (in *deflating) point(p *deflation.Point, missed []deflation.Violation) *deflatedPoint {
	out := &deflatedPoint{Error: p.Error, Latency: finite(p.Latency), Power: p.Power.Watts(), Load: p.Load, Missed: in.missed(missed)}
	for i, s := range p.Classes {
		c := deflatedClass{
			Name: in.Classes[i].Name, Theta: s.Theta, After: finite(s.After), Error: s.Error, Mean: s.Mean,
			Percentiles: map[string]*float64{}, Service: s.Service, Sprinting: s.Sprinting,
			Granted: cli.Known(s.Granted, !math.IsInf(s.After, 1)),
		}
		for _, x := range s.Percentiles {
			if x.P == 0.95 {
				c.P95 = x.At
			}
			c.Percentiles[strconv.FormatFloat(x.P, 'g', -1, 64)] = finite(x.At)
		}
		out.Classes = append(out.Classes, c)
	}
	return out
}

func (in *deflating) missed(all []deflation.Violation) []deflatedMissed {
	out := []deflatedMissed{}
	for _, v := range all {
		out = append(out, deflatedMissed{Class: in.Classes[v.Class].Name, What: v.What, Value: v.Value, Bound: v.Bound})
	}
	return out
}

// finite is x; null where it has no end.
func finite(x float64) *float64 { return cli.Known(x, !math.IsInf(x, 0) && !math.IsNaN(x)) }
