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
	Discipline queueing.Discipline `json:"discipline"`
	Arrivals   struct {
		Rates []float64     `json:"rates"`
		D     [][][]float64 `json:"D"`
	} `json:"arrivals"`
	Services []struct {
		Alpha []float64   `json:"alpha"`
		A     [][]float64 `json:"A"`
	} `json:"services"`
	Percentiles []float64 `json:"percentiles"`
	Moments     int       `json:"moments" in:"1 1e9"`
	// Simulation is for discipline p, which has no closed form.
	Simulation struct {
		Jobs         int    `json:"jobs" in:"1 1e9"`
		Replications int    `json:"replications" in:"1 1e9"`
		Seed         uint64 `json:"seed"`
	} `json:"simulation"`
}

func usualQueue() queue {
	q := queue{Percentiles: []float64{0.95}, Moments: 3}
	q.Simulation.Jobs, q.Simulation.Replications, q.Simulation.Seed = 20_000, 10, 1
	return q
}

const statesMost = 200

func solveQueue(_ context.Context, in *queue) (object, error) {
	q, err := in.queue()
	started := time.Now()
	var answer object
	switch o := (queueing.Options{Moments: in.Moments, Percentiles: in.Percentiles}); {
	case err != nil:
	case q.Discipline == queueing.PreemptiveRepeat:
		answer, err = in.simulate(q, o)
	default:
		answer, err = exactly(q, o)
	}
	if err == nil {
		answer["solve_s"] = time.Since(started).Seconds()
		return answer, nil
	}
	problem := strings.TrimPrefix(err.Error(), "queueing: ")
	if e, ok := errors.AsType[*queueing.NumericError](err); ok { // a limit of the method
		return nil, cli.Failed(e.Hint, "%s", strings.TrimSuffix(problem, "; "+e.Hint))
	}
	if _, ok := errors.AsType[*queueing.UnstableError](err); ok {
		e := cli.Usage("%s", problem)
		e.Code = "input"
		e.Message, e.Hint, _ = strings.Cut(problem, "; ")
		return nil, e
	}
	return nil, errors.New(problem)
}

// queue is the file's queue. Its errors name a place in the file.
func (in *queue) queue() (queueing.Queue, error) {
	q := queueing.Queue{Discipline: in.Discipline, Arrivals: queueing.Arrivals{Rates: in.Arrivals.Rates}}
	all := []queueing.Discipline{queueing.NonPreemptive, queueing.PreemptiveResume, queueing.PreemptiveRepeat}
	if !slices.Contains(all, q.Discipline) {
		return q, fmt.Errorf("unknown discipline %q: must be one of %v", in.Discipline, all)
	}
	for k, s := range in.Services {
		p, err := queueing.NewPH(s.Alpha, s.A)
		if err != nil {
			return q, fmt.Errorf("services[%d].%w", k, bare(err, "queueing: "))
		}
		q.Services = append(q.Services, p)
	}
	for k, rows := range in.Arrivals.D {
		n := len(rows)
		if n == 0 || n > statesMost {
			return q, fmt.Errorf("arrivals.D[%d] has %d rows: must be from 1 to %d", k, n, statesMost)
		}
		m := mat.NewDense(n, n, nil)
		for i, row := range rows {
			if len(row) != n {
				return q, fmt.Errorf("arrivals.D[%d][%d] has %d columns for %d rows: the matrix must be square", k, i, len(row), n)
			}
			m.SetRow(i, row)
		}
		q.Arrivals.D = append(q.Arrivals.D, m)
	}
	return q, nil
}

// exactly solves a queue as if it had been simulated without a spread.
func exactly(q queueing.Queue, o queueing.Options) (object, error) {
	result, err := queueing.Solve(q, o)
	if err != nil {
		return nil, err
	}
	measure := func(m queueing.Measure) object {
		s := queueing.SimulatedMeasure{Mean: queueing.Interval{Value: m.Mean}}
		for _, x := range m.Moments {
			s.Moments = append(s.Moments, queueing.Interval{Value: x})
		}
		for _, p := range m.Percentiles {
			s.Percentiles = append(s.Percentiles, queueing.SimulatedPercentile{P: p.P, At: queueing.Interval{Value: p.At}})
		}
		out := measured(s)
		delete(out, "interval")
		return out
	}
	classes := []object{}
	for _, c := range result.Classes {
		classes = append(classes, object{"sojourn": measure(c.Sojourn), "wait": measure(c.Wait)})
	}
	return object{"rho": result.Rho, "classes": classes}, nil
}

func measured(m queueing.SimulatedMeasure) object {
	moments, at, intervals := []*float64{}, object{}, object{}
	for _, x := range m.Moments {
		moments = append(moments, finite(x.Value))
	}
	for _, p := range m.Percentiles {
		key := strconv.FormatFloat(p.P, 'f', -1, 64) // as in the file: "0.95"
		at[key], intervals[key] = finite(p.At.Value), bounds(p.At)
	}
	return object{"mean": finite(m.Mean.Value), "moments": moments, "percentiles": at, "interval": object{"mean": bounds(m.Mean), "percentiles": intervals}}
}

func bounds(i queueing.Interval) [2]*float64 { return [2]*float64{finite(i.Low), finite(i.High)} }

func (in *queue) simulate(q queueing.Queue, o queueing.Options) (object, error) {
	s := in.Simulation
	seen, err := queueing.Simulate(q, queueing.Simulation{Jobs: s.Jobs, Replications: s.Replications, Options: o}, rand.New(rand.NewPCG(s.Seed, 0)))
	if err != nil {
		return nil, err
	}
	classes := []object{}
	for _, c := range seen.Classes {
		classes = append(classes, object{"sojourn": measured(c.Sojourn), "wait": measured(c.Wait)})
	}
	return object{"rho": seen.Rho.Value, "classes": classes, "simulation": object{
		"jobs": s.Jobs, "replications": s.Replications, "seed": s.Seed,
		"waste": finite(seen.Waste.Value), "waste_interval": bounds(seen.Waste), "rho_interval": bounds(seen.Rho),
	}}, nil
}
