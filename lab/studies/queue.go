package studies

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/mat"

	"headroom/internal/cli"
	"headroom/jobs/queueing"
	"headroom/lab/jsonfile"
)

// Bounds and defaults of a file of `powerlab queue`.
const (
	maxStates     = 200 // of an MMAP's matrices
	usualMoments  = 3
	usualAt       = 0.95
	usualRepeated = 20_000 // jobs in a replication
	usualTimes    = 10     // replications
	usualSeed     = 1
)

// queueFile is the file of `powerlab queue`.
type queueFile struct {
	Discipline  string           `json:"discipline"`
	Arrivals    queueArrivals    `json:"arrivals"`
	Services    []queueService   `json:"services"`
	Percentiles []float64        `json:"percentiles"`
	Moments     *int             `json:"moments"`
	Simulation  *queueSimulation `json:"simulation"`
}

type queueArrivals struct {
	Rates []float64     `json:"rates"`
	D     [][][]float64 `json:"D"`
}

type queueService struct {
	Alpha []float64   `json:"alpha"`
	A     [][]float64 `json:"A"`
}

// queueSimulation is taken with discipline p. What is absent is as usual.
type queueSimulation struct {
	Jobs         *int    `json:"jobs"`
	Replications *int    `json:"replications"`
	Seed         *uint64 `json:"seed"`
}

// queued is the answer. Simulation is there where the answer is simulated.
type queued struct {
	Rho        float64           `json:"rho"`
	Solve      float64           `json:"solve_s"`
	Classes    []queuedClass     `json:"classes"`
	Simulation *queuedSimulation `json:"simulation,omitempty"`
}

type queuedClass struct {
	Sojourn queuedMeasure `json:"sojourn"`
	Wait    queuedMeasure `json:"wait"`
}

// queuedMeasure is a distribution of times. Null is unknown: a class without jobs in a
// simulation. Interval holds the 95 % confidence intervals of simulated values.
type queuedMeasure struct {
	Mean        *float64            `json:"mean"`
	Moments     []*float64          `json:"moments"`
	Percentiles map[string]*float64 `json:"percentiles"`
	Interval    *queuedInterval     `json:"interval,omitempty"`
}

type queuedInterval struct {
	Mean        [2]*float64            `json:"mean"`
	Percentiles map[string][2]*float64 `json:"percentiles"`
}

// queuedSimulation describes what was simulated, and the work of killed runs.
type queuedSimulation struct {
	Jobs          int         `json:"jobs"`
	Replications  int         `json:"replications"`
	Seed          uint64      `json:"seed"`
	Waste         *float64    `json:"waste"`
	WasteInterval [2]*float64 `json:"waste_interval"`
	RhoInterval   [2]*float64 `json:"rho_interval"`
}

// NewQueueCommand is `powerlab queue`.
func NewQueueCommand() *cobra.Command {
	return fileCommand(&cobra.Command{
		Use:   "queue",
		Short: "Compute waiting and sojourn times of priority queues",
		Long: `Computes waiting and sojourn times of a cluster that serves one job at a time by priority. The input file:

  {"discipline": "np", "arrivals": {"rates": [0.004, 0.0005]},
   "services": [{"alpha": [1, 0], "A": [[-0.02, 0.02], [0, -0.01]]}, {"alpha": [1], "A": [[-0.02]]}],
   "percentiles": [0.95], "moments": 3}

Classes are listed from lowest to highest priority. rates are arrivals per unit of time, one per class. D
may be given in place of rates: the matrices of a marked Markovian arrival process, D0 and one per class. A
service is a phase-type distribution: the initial probabilities and the rates between phases.

Results are in the time unit of the rates: rho is the utilisation, sojourn the time from arrival to end,
and wait the time from arrival to the first service.

Disciplines:
  np   non-preemptive: an arrival waits until the current job has ended (exact)
  pr   preemptive resume: an arrival suspends a job of a lower class (exact)
  p    preemptive restart: an arrival kills a job of a lower class, which restarts from the beginning
       (simulated, with 95 % intervals). It takes "simulation": {"jobs": 20000, "replications": 10, "seed": 1};
       waste is the work of killed runs

Exact means are accurate to 1e-9, and percentiles up to 0.999 to 1e-7, of their value.`,
		Example: "  powerlab queue --input queue.json\n  powerlab queue --input - -o json < queue.json",
	}, "discipline, arrivals and services", queueOf)
}

// queueOf reads the file and solves or simulates.
func queueOf(stdin io.Reader, file string) (*queued, error) {
	var in queueFile
	if err := jsonfile.Read(stdin, "--input", file, &in); err != nil {
		return nil, err
	}
	q, err := in.queue()
	if err != nil {
		return nil, queueError(file, err)
	}
	var answer *queued
	started := time.Now()
	if q.Discipline == queueing.PreemptiveRepeat {
		answer, err = in.simulate(q)
	} else {
		answer, err = in.solve(q)
	}
	if err != nil {
		return nil, queueError(file, err)
	}
	answer.Solve = time.Since(started).Seconds()
	return answer, nil
}

// queueError distinguishes errors in the file from limits of the method.
func queueError(file string, err error) error {
	problem := strings.TrimPrefix(err.Error(), "queueing: ")
	if e, ok := errors.AsType[*queueing.NumericError](err); ok {
		return cli.Failed(e.Hint, "%s: %s", jsonfile.Name(file), strings.TrimSuffix(problem, "; "+e.Hint))
	}
	e := jsonfile.Bad(file, "%s", problem)
	if _, ok := errors.AsType[*queueing.UnstableError](err); ok {
		message, hint, _ := strings.Cut(problem, "; ")
		e.Message, e.Hint = jsonfile.Name(file)+": "+message, hint
	}
	return e
}

// queue is the file's queue. Its errors name a place in the file.
func (in *queueFile) queue() (queueing.Queue, error) {
	q := queueing.Queue{Discipline: queueing.Discipline(in.Discipline), Arrivals: queueing.Arrivals{Rates: in.Arrivals.Rates}}
	all := []queueing.Discipline{queueing.NonPreemptive, queueing.PreemptiveResume, queueing.PreemptiveRepeat}
	if !slices.Contains(all, q.Discipline) {
		return q, fmt.Errorf("unknown discipline %q: must be one of %v", in.Discipline, all)
	}
	for k, s := range in.Services {
		p, err := queueing.NewPH(s.Alpha, s.A)
		if err != nil {
			return q, fmt.Errorf("services[%d].%s", k, strings.TrimPrefix(err.Error(), "queueing: "))
		}
		q.Services = append(q.Services, p)
	}
	if in.Simulation != nil && q.Discipline != queueing.PreemptiveRepeat {
		return q, fmt.Errorf("simulation: leave it out; discipline %s is solved exactly", in.Discipline)
	}
	if in.Arrivals.D == nil {
		return q, nil
	}
	q.Arrivals.D = []*mat.Dense{}
	for k, rows := range in.Arrivals.D {
		m, err := square(rows)
		if err != nil {
			return q, fmt.Errorf("arrivals.D[%d]%w", k, err)
		}
		q.Arrivals.D = append(q.Arrivals.D, m)
	}
	return q, nil
}

// square is a matrix of the file.
func square(rows [][]float64) (*mat.Dense, error) {
	n := len(rows)
	if n == 0 || n > maxStates {
		return nil, fmt.Errorf(" has %d rows: must be from 1 to %d", n, maxStates)
	}
	m := mat.NewDense(n, n, nil)
	for i, row := range rows {
		if len(row) != n {
			return nil, fmt.Errorf("[%d] has %d columns for %d rows: the matrix must be square", i, len(row), n)
		}
		m.SetRow(i, row)
	}
	return m, nil
}

// options are what the file asks for, or what is usual.
func (in *queueFile) options() (queueing.Options, error) {
	o := queueing.Options{Moments: usualMoments, Percentiles: in.Percentiles}
	if in.Percentiles == nil {
		o.Percentiles = []float64{usualAt}
	}
	if in.Moments != nil {
		if o.Moments = *in.Moments; o.Moments < 1 {
			return o, fmt.Errorf("moments is %d: must be at least 1", o.Moments)
		}
	}
	return o, nil
}

func (in *queueFile) solve(q queueing.Queue) (*queued, error) {
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	result, err := queueing.Solve(q, o)
	if err != nil {
		return nil, err
	}
	answer := &queued{Rho: result.Rho, Classes: []queuedClass{}}
	for _, c := range result.Classes {
		answer.Classes = append(answer.Classes, queuedClass{Sojourn: solved(c.Sojourn), Wait: solved(c.Wait)})
	}
	return answer, nil
}

func solved(m queueing.Measure) queuedMeasure {
	out := queuedMeasure{Mean: known(m.Mean), Moments: []*float64{}, Percentiles: map[string]*float64{}}
	for _, x := range m.Moments {
		out.Moments = append(out.Moments, known(x))
	}
	for _, p := range m.Percentiles {
		out.Percentiles[percentile(p.P)] = known(p.At)
	}
	return out
}

func (in *queueFile) simulate(q queueing.Queue) (*queued, error) {
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	s := queueing.Simulation{Jobs: usualRepeated, Replications: usualTimes, Options: o}
	seed := uint64(usualSeed)
	if x := in.Simulation; x != nil {
		if x.Jobs != nil {
			s.Jobs = *x.Jobs
		}
		if x.Replications != nil {
			s.Replications = *x.Replications
		}
		if x.Seed != nil {
			seed = *x.Seed
		}
	}
	if s.Jobs == 0 || s.Replications == 0 {
		return nil, fmt.Errorf("simulation: jobs %d and replications %d must be above 0", s.Jobs, s.Replications)
	}
	seen, err := queueing.Simulate(q, s, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return nil, err
	}
	answer := &queued{Rho: seen.Rho.Value, Classes: []queuedClass{}, Simulation: &queuedSimulation{
		Jobs: s.Jobs, Replications: s.Replications, Seed: seed,
		Waste: known(seen.Waste.Value), WasteInterval: bounds(seen.Waste), RhoInterval: bounds(seen.Rho),
	}}
	for _, c := range seen.Classes {
		answer.Classes = append(answer.Classes, queuedClass{Sojourn: simulated(c.Sojourn), Wait: simulated(c.Wait)})
	}
	return answer, nil
}

func simulated(m queueing.SimulatedMeasure) queuedMeasure {
	out := queuedMeasure{Mean: known(m.Mean.Value), Moments: []*float64{}, Percentiles: map[string]*float64{}, Interval: &queuedInterval{
		Mean: bounds(m.Mean), Percentiles: map[string][2]*float64{},
	}}
	for _, x := range m.Moments {
		out.Moments = append(out.Moments, known(x.Value))
	}
	for _, p := range m.Percentiles {
		out.Percentiles[percentile(p.P)] = known(p.At.Value)
		out.Interval.Percentiles[percentile(p.P)] = bounds(p.At)
	}
	return out
}

// known is nil for what is no number.
func known(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }

func bounds(i queueing.Interval) [2]*float64 { return [2]*float64{known(i.Low), known(i.High)} }

// percentile is the key of a percentile, as in the file: "0.95".
func percentile(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

// print is the answer as JSON or as a table, one line per class and measure.
func (a *queued) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	head := []string{"CLASS", "TIME", "MEAN"}
	keys := a.percentiles()
	for _, k := range keys {
		head = append(head, "P"+k)
	}
	show := func(v *float64, span *[2]*float64) string {
		text := cli.Opt(v, func(x float64) string { return strconv.FormatFloat(x, 'g', 7, 64) })
		if v != nil && span != nil && span[0] != nil && span[1] != nil {
			text += fmt.Sprintf(" +-%.2g", (*span[1]-*span[0])/2)
		}
		return text
	}
	var rows [][]string
	for k, c := range a.Classes {
		for _, x := range []struct {
			name string
			m    queuedMeasure
		}{{"sojourn", c.Sojourn}, {"wait", c.Wait}} {
			var span *[2]*float64
			if x.m.Interval != nil {
				span = &x.m.Interval.Mean
			}
			row := []string{strconv.Itoa(k), x.name, show(x.m.Mean, span)}
			for _, key := range keys {
				if x.m.Interval != nil {
					at := x.m.Interval.Percentiles[key]
					span = &at
				}
				row = append(row, show(x.m.Percentiles[key], span))
			}
			rows = append(rows, row)
		}
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	line := fmt.Sprintf("rho %.6g, solved in %.3g s; class 0 is the lowest", a.Rho, a.Solve)
	if s := a.Simulation; s != nil {
		line = fmt.Sprintf("simulated in %.3g s: %d times %d jobs, seed %d, 95 %% intervals; rho %.4g, waste %s; class 0 is the lowest",
			a.Solve, s.Replications, s.Jobs, s.Seed, a.Rho, show(s.Waste, &s.WasteInterval))
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// percentiles are the keys of the answer, rising.
func (a *queued) percentiles() []string {
	var keys []string
	if len(a.Classes) > 0 {
		for k := range a.Classes[0].Wait.Percentiles {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys) // all are 0.…: the order of letters is that of numbers
	return keys
}
