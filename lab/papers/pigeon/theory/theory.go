// Package theory has the closed forms of Pigeon's analysis: the probability that a task, or a job, waits for no other, and how
// long tasks wait, in a cluster of groups and in one of independent workers that are probed, as Sparrow does. The source is Li's
// dissertation, chapter 4, equations (4.1) to (4.6).
//
// The one idea: while a job has no more tasks than the cluster has groups, each group is an M/M/n queue of its own, and Erlang's
// C formula says all about it.
//
// Guarantees: answers are exact up to rounding (1e-10) for up to [MaxWorkers] workers in a group; input outside the model is an
// [*InputError] that names the number, the rule and the way out, never NaN. (4.3) takes the groups for independent, and (4.6)
// takes the task that lasts longest for the one that ends last: both are approximations, and the paper's.
//
// The package does no I/O, reads no clock and draws no random numbers.
package theory

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Bounds of the input: beyond them the sums take long, and no cluster is that large.
const (
	MaxWorkers = 1_000_000
	MaxGroups  = 1_000_000
	MaxFanout  = 1_000_000
)

// InputError is a number that the model does not cover.
type InputError struct {
	// Field is the name of the number, Problem the rule it breaks, with the numbers.
	Field, Problem string
	// Hint is the way out.
	Hint string
}

// Error returns the field, the rule and the way out.
func (e *InputError) Error() string {
	return "theory: " + e.Field + " " + e.Problem + "; " + e.Hint
}

// Cluster is a cluster of groups that serves one class of jobs, all with the same number of tasks. Jobs arrive in a Poisson
// process, and execution times are exponential.
type Cluster struct {
	// Groups is N_g, Workers is N_w, the workers of one group.
	Groups, Workers int
	// Load is rho, the part of the time in which a worker is busy: at least 0 and below 1.
	Load float64
	// Fanout is F, the tasks of a job: from 1 to Groups.
	Fanout int
	// Mean is T_e, the mean execution time of a task, in any unit of time.
	Mean float64
}

// Prediction is what the closed forms say of a cluster. Times are in the unit of Cluster.Mean.
type Prediction struct {
	// TaskZero is the probability that a task does not wait, (4.1).
	TaskZero float64
	// Wait is the mean time that a task waits, (4.2).
	Wait float64
	// JobZeroSame is the probability that no task of a job waits, (4.3). It decides where all tasks of the job take the same time.
	JobZeroSame float64
	// JobZeroVaried is the probability that a job ends as if it were alone, where the times of its tasks are exponential, (4.6).
	JobZeroVaried float64
}

// Predict evaluates (4.1), (4.2), (4.3) and (4.6).
func Predict(c Cluster) (Prediction, error) {
	if err := c.check(); err != nil {
		return Prediction{}, err
	}
	waits := erlangC(c.Workers, c.Load)
	// N_w/T_e - lambda_t of (4.2) is N_w (1 - rho) / T_e.
	p := Prediction{TaskZero: 1 - waits, Wait: waits * c.Mean / (float64(c.Workers) * (1 - c.Load))}
	p.JobZeroSame = math.Exp(float64(c.Fanout) * math.Log1p(-waits))
	p.JobZeroVaried = p.TaskZero * Gap(p.Wait, c.Mean)
	return p, nil
}

// Gap returns the probability that of two exponential times of one mean the longer exceeds the shorter by more than wait, (4.5).
func Gap(wait, mean float64) float64 { return math.Exp(-wait / mean) }

// Sparrow returns the probability that no task of a job waits where it probes two workers for each of its tasks, (4.4): at least
// fanout of 2 fanout workers are idle.
func Sparrow(load float64, fanout int) (float64, error) {
	if err := checkLoad(load); err != nil {
		return 0, err
	}
	if err := checkCount("Fanout", fanout, MaxFanout); err != nil {
		return 0, err
	}
	if load == 0 {
		return 1, nil
	}
	f := float64(fanout)
	return mathext.RegIncBeta(f, f+1, 1-load), nil
}

// erlangC returns the probability that an arrival waits in M/M/n, by the recurrence of Erlang's B formula.
func erlangC(workers int, load float64) float64 {
	offered, lost := float64(workers)*load, 1.0
	for k := 1; k <= workers; k++ {
		lost = offered * lost / (float64(k) + offered*lost)
	}
	return lost / (1 - load*(1-lost))
}

func (c *Cluster) check() error {
	for _, x := range []struct {
		field   string
		n, most int
	}{{"Groups", c.Groups, MaxGroups}, {"Workers", c.Workers, MaxWorkers}, {"Fanout", c.Fanout, MaxFanout}} {
		if err := checkCount(x.field, x.n, x.most); err != nil {
			return err
		}
	}
	if err := checkLoad(c.Load); err != nil {
		return err
	}
	switch {
	case c.Fanout > c.Groups:
		return &InputError{
			"Fanout", fmt.Sprintf("is %d and must be at most the number of groups, %d", c.Fanout, c.Groups),
			"a group that gets several tasks of one job is not an M/M/n queue; use more groups, or simulate with powerlab solve dispatch",
		}
	case !(c.Mean > 0) || math.IsInf(c.Mean, 1):
		return &InputError{"Mean", fmt.Sprintf("is %v and must be above 0", c.Mean), "give the mean execution time of a task"}
	}
	return nil
}

func checkCount(field string, n, most int) error {
	if n >= 1 && n <= most {
		return nil
	}
	return &InputError{field, fmt.Sprintf("is %d and must be from 1 to %d", n, most), "give a whole number in that range"}
}

func checkLoad(load float64) error {
	if load >= 0 && load < 1 {
		return nil
	}
	return &InputError{"Load", fmt.Sprintf("is %v and must be at least 0 and below 1", load), "at load 1 the queue grows without bound; use more workers"}
}
