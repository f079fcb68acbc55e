package solve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/mat"

	"headroom/internal/cli"
	"headroom/jobs/queueing"
)

// queue is a cluster that serves one job at a time by priority. Classes are listed from lowest to highest.
type queue struct {
	Discipline string `json:"discipline"`
	Arrivals   struct {
		Rates []float64     `json:"rates"`
		D     [][][]float64 `json:"D"`
	} `json:"arrivals"`
	Services []struct {
		Alpha []float64   `json:"alpha"`
		A     [][]float64 `json:"A"`
	} `json:"services"`
	Percentiles []float64 `json:"percentiles"`
	Moments     *int      `json:"moments"`
	// Simulation is for discipline p, which has no closed form.
	Simulation *struct {
		Jobs         *int    `json:"jobs"`
		Replications *int    `json:"replications"`
		Seed         *uint64 `json:"seed"`
	} `json:"simulation"`
}

// statesMost bounds an MMAP's matrices.
const statesMost = 200

func solveQueue(_ context.Context, in *queue) (object, error) {
	q, o, err := in.queue()
	started := time.Now()
	var answer object
	switch {
	case err != nil:
	case q.Discipline == queueing.PreemptiveRepeat:
		answer, err = in.simulate(q, o)
	default:
		answer, err = in.exact(q, o)
	}
	if err == nil {
		answer["solve_s"] = time.Since(started).Seconds()
		return answer, nil
	}
	problem := strings.TrimPrefix(err.Error(), "queueing: ")
	if e, ok := errors.AsType[*queueing.NumericError](err); ok { // a limit of the method
		return nil, cli.Failed(e.Hint, "%s", strings.TrimSuffix(problem, "; "+e.Hint))
	}
	e := cli.Usage("%s", problem)
	e.Code, e.Hint = "input", "correct the file; see --help for its format"
	if _, ok := errors.AsType[*queueing.UnstableError](err); ok {
		e.Message, e.Hint, _ = strings.Cut(problem, "; ")
	}
	return nil, e
}

// queue is the file's queue, and its options. Its errors name a place in the file.
func (in *queue) queue() (q queueing.Queue, o queueing.Options, err error) {
	q = queueing.Queue{Discipline: queueing.Discipline(in.Discipline), Arrivals: queueing.Arrivals{Rates: in.Arrivals.Rates}}
	o = queueing.Options{Moments: or(in.Moments, 3), Percentiles: in.Percentiles}
	if o.Percentiles == nil {
		o.Percentiles = []float64{0.95}
	}
	all := []queueing.Discipline{queueing.NonPreemptive, queueing.PreemptiveResume, queueing.PreemptiveRepeat}
	switch {
	case !slices.Contains(all, q.Discipline):
		return q, o, fmt.Errorf("unknown discipline %q: must be one of %v", in.Discipline, all)
	case in.Simulation != nil && q.Discipline != queueing.PreemptiveRepeat:
		return q, o, fmt.Errorf("simulation: leave it out; discipline %s is solved exactly", in.Discipline)
	case o.Moments < 1:
		return q, o, fmt.Errorf("moments is %d: must be at least 1", o.Moments)
	}
	for k, s := range in.Services {
		p, err := queueing.NewPH(s.Alpha, s.A)
		if err != nil {
			return q, o, fmt.Errorf("services[%d].%s", k, strings.TrimPrefix(err.Error(), "queueing: "))
		}
		q.Services = append(q.Services, p)
	}
	for k, rows := range in.Arrivals.D {
		n := len(rows)
		if n == 0 || n > statesMost {
			return q, o, fmt.Errorf("arrivals.D[%d] has %d rows: must be from 1 to %d", k, n, statesMost)
		}
		m := mat.NewDense(n, n, nil)
		for i, row := range rows {
			if len(row) != n {
				return q, o, fmt.Errorf("arrivals.D[%d][%d] has %d columns for %d rows: the matrix must be square", k, i, len(row), n)
			}
			m.SetRow(i, row)
		}
		q.Arrivals.D = append(q.Arrivals.D, m)
	}
	if in.Arrivals.D != nil && q.Arrivals.D == nil {
		q.Arrivals.D = []*mat.Dense{}
	}
	return q, o, nil
}

func (in *queue) exact(q queueing.Queue, o queueing.Options) (object, error) {
	result, err := queueing.Solve(q, o)
	if err != nil {
		return nil, err
	}
	measure := func(m queueing.Measure) object {
		moments, at := []*float64{}, object{}
		for _, x := range m.Moments {
			moments = append(moments, finite(x))
		}
		for _, p := range m.Percentiles {
			at[percentile(p.P)] = finite(p.At)
		}
		return object{"mean": finite(m.Mean), "moments": moments, "percentiles": at}
	}
	classes := []object{}
	for _, c := range result.Classes {
		classes = append(classes, object{"sojourn": measure(c.Sojourn), "wait": measure(c.Wait)})
	}
	return object{"rho": result.Rho, "classes": classes}, nil
}

func (in *queue) simulate(q queueing.Queue, o queueing.Options) (object, error) {
	s, seed := queueing.Simulation{Jobs: 20_000, Replications: 10, Options: o}, uint64(1)
	if x := in.Simulation; x != nil {
		s.Jobs, s.Replications, seed = or(x.Jobs, s.Jobs), or(x.Replications, s.Replications), or(x.Seed, seed)
	}
	if s.Jobs == 0 || s.Replications == 0 {
		return nil, fmt.Errorf("simulation: jobs %d and replications %d must be above 0", s.Jobs, s.Replications)
	}
	seen, err := queueing.Simulate(q, s, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return nil, err
	}
	bounds := func(i queueing.Interval) [2]*float64 { return [2]*float64{finite(i.Low), finite(i.High)} }
	measure := func(m queueing.SimulatedMeasure) object {
		moments, at, intervals := []*float64{}, object{}, object{}
		for _, x := range m.Moments {
			moments = append(moments, finite(x.Value))
		}
		for _, p := range m.Percentiles {
			at[percentile(p.P)], intervals[percentile(p.P)] = finite(p.At.Value), bounds(p.At)
		}
		return object{"mean": finite(m.Mean.Value), "moments": moments, "percentiles": at, "interval": object{"mean": bounds(m.Mean), "percentiles": intervals}}
	}
	classes := []object{}
	for _, c := range seen.Classes {
		classes = append(classes, object{"sojourn": measure(c.Sojourn), "wait": measure(c.Wait)})
	}
	return object{"rho": seen.Rho.Value, "classes": classes, "simulation": object{
		"jobs": s.Jobs, "replications": s.Replications, "seed": seed,
		"waste": finite(seen.Waste.Value), "waste_interval": bounds(seen.Waste), "rho_interval": bounds(seen.Rho),
	}}, nil
}

// percentile is the key of a percentile, as in the file: "0.95".
func percentile(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }
