package arbitration

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"headroom/internal/jsonfile"
	"headroom/units"
)

// Bounds of a file: more takes longer than anybody waits.
const (
	containersMost = 1000
	forMost        = 24 * 3600 // s
	listMost       = 1000      // jobs, and steps of the budget
	tasksMost      = 100_000   // of all jobs together
	taskMost       = 3600      // s
	wattsMost      = 1e6
	least          = 0.001 // s, or the part of the tasks
)

// loadFile is the file of --load.
type loadFile struct {
	Containers int     `json:"containers"`
	For        float64 `json:"for_s"`
	Budget     []struct {
		At    float64 `json:"at_s"`
		Watts float64 `json:"w"`
	} `json:"budget"`
	Jobs []struct {
		Class    Class    `json:"class"`
		Arrival  float64  `json:"arrival_s"`
		Tasks    int      `json:"tasks"`
		Task     float64  `json:"task_s"`
		Deadline *float64 `json:"deadline_s"`
		Floor    *float64 `json:"floor"`
	} `json:"jobs"`
}

// readLoad reads a load from a file, or from stdin for "-".
func readLoad(stdin io.Reader, file string) (l Load, err error) {
	var in loadFile
	if err := jsonfile.Read(stdin, "--load", file, &in); err != nil {
		return l, err
	}
	if problem := in.check(); problem != "" {
		return l, jsonfile.Bad(file, "%s", problem)
	}
	l = Load{Name: jsonfile.Name(file), Containers: in.Containers, For: seconds(in.For)}
	for _, s := range in.Budget {
		l.Budget = append(l.Budget, Step{seconds(s.At), units.FromWatts(s.Watts)})
	}
	var jobs []Job
	for _, j := range in.Jobs {
		x := Job{Class: j.Class, Arrival: seconds(j.Arrival), Tasks: j.Tasks, Task: seconds(j.Task), Floor: 1}
		if j.Deadline != nil {
			x.Deadline = seconds(*j.Deadline)
		}
		if j.Floor != nil {
			x.Floor = *j.Floor
		}
		jobs = append(jobs, x)
	}
	l.Jobs = func(uint64) []Job { return sorted(slices.Clone(jobs)) }
	return l, nil
}

// check returns the first thing that is wrong with the file, with its place; empty where nothing is.
func (in *loadFile) check() (problem string) {
	between := func(place string, x, low, high float64) {
		if x < low || x > high {
			problem = cmp.Or(problem, fmt.Sprintf("%s is %v: must be from %v to %v", place, x, low, high))
		}
	}
	between("containers", float64(in.Containers), 1, containersMost)
	between("for_s", in.For, 1, forMost)
	between("the number of steps of budget", float64(len(in.Budget)), 1, listMost)
	between("the number of jobs", float64(len(in.Jobs)), 1, listMost)
	from, to := 0.0, 0.0 // the first step begins at 0, the others are in order
	for i, s := range in.Budget {
		place := fmt.Sprintf("budget[%d].", i)
		between(place+"at_s", s.At, from, to)
		between(place+"w", s.Watts, 1, wattsMost)
		from, to = s.At+least, forMost
	}
	all := 0
	for i, j := range in.Jobs {
		place := fmt.Sprintf("jobs[%d].", i)
		between(place+"arrival_s", j.Arrival, 0, in.For)
		between(place+"tasks", float64(j.Tasks), 1, tasksMost)
		between(place+"task_s", j.Task, least, taskMost)
		if j.Class != Urgent && j.Class != Tolerant {
			problem = cmp.Or(problem, fmt.Sprintf("%sclass %q: must be %s or %s", place, j.Class, Urgent, Tolerant))
		}
		if j.Deadline != nil {
			between(place+"deadline_s", *j.Deadline, least, forMost)
		}
		if j.Floor != nil {
			between(place+"floor", *j.Floor, least, 1)
		}
		all += min(j.Tasks, tasksMost+1)
	}
	between("the number of tasks of all jobs", float64(all), 1, tasksMost)
	return problem
}
