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
	stepsMost      = 1000
	jobsMost       = 1000
	tasksMost      = 100_000 // of all jobs together
	taskMost       = 3600    // s
	wattsMost      = 1e6
)

// loadFile is the file of --load.
type loadFile struct {
	Containers int     `json:"containers"`
	For        float64 `json:"for_s"`
	Budget     []struct {
		At    float64  `json:"at_s"`
		Watts *float64 `json:"w"`
	} `json:"budget"`
	Jobs []fileJob `json:"jobs"`
}

type fileJob struct {
	Class    Class    `json:"class"`
	Arrival  float64  `json:"arrival_s"`
	Tasks    int      `json:"tasks"`
	Task     float64  `json:"task_s"`
	Deadline *float64 `json:"deadline_s"`
	Floor    *float64 `json:"floor"`
}

// readLoad reads a load from a file, or from stdin for "-".
func readLoad(stdin io.Reader, file string) (*Load, error) {
	var in loadFile
	if err := jsonfile.Read(stdin, "--load", file, &in); err != nil {
		return nil, err
	}
	if problem := in.check(); problem != "" {
		return nil, jsonfile.Bad(file, "%s", problem)
	}
	l := &Load{Name: jsonfile.Name(file), Says: "the jobs of a file", Containers: in.Containers, For: seconds(in.For)}
	for _, s := range in.Budget {
		l.Budget = append(l.Budget, Step{seconds(s.At), units.FromWatts(*s.Watts)})
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
	jobs = sorted(jobs)
	l.Jobs = func(uint64) []Job { return slices.Clone(jobs) }
	return l, nil
}

// between returns a problem where x is not from low to high; empty where it is.
func between(field string, x, low, high float64) string {
	if x >= low && x <= high {
		return ""
	}
	return fmt.Sprintf("%s is %v: must be from %v to %v", field, x, low, high)
}

// check returns what is wrong with the file, with its place; empty where nothing is.
func (in *loadFile) check() string {
	problems := []string{
		between("containers", float64(in.Containers), 1, containersMost),
		between("for_s", in.For, 1, forMost),
		between("the number of steps of budget", float64(len(in.Budget)), 1, stepsMost),
		between("the number of jobs", float64(len(in.Jobs)), 1, jobsMost),
	}
	last, all := -1.0, 0
	for i, s := range in.Budget {
		place := fmt.Sprintf("budget[%d].", i)
		switch {
		case i == 0 && s.At != 0:
			problems = append(problems, fmt.Sprintf("%sat_s is %v; the first step begins at 0", place, s.At))
		case s.At <= last:
			problems = append(problems, fmt.Sprintf("%sat_s is %v, not after the step before, at %v; order the steps by time", place, s.At, last))
		case s.Watts == nil:
			problems = append(problems, place+"w is missing: give the budget in watts")
		default:
			problems = append(problems, between(place+"at_s", s.At, 0, forMost), between(place+"w", *s.Watts, 1, wattsMost))
		}
		last = s.At
	}
	for i := range in.Jobs {
		all += max(0, min(in.Jobs[i].Tasks, tasksMost+1))
		problems = append(problems, in.Jobs[i].check(fmt.Sprintf("jobs[%d].", i), in.For))
	}
	problems = append(problems, between("the number of tasks of all jobs", float64(all), 1, tasksMost))
	return cmp.Or(problems...)
}

// check returns what is wrong with a job; empty where nothing is.
func (j *fileJob) check(place string, span float64) string {
	problems := []string{
		between(place+"arrival_s", j.Arrival, 0, span),
		between(place+"tasks", float64(j.Tasks), 1, tasksMost),
		between(place+"task_s", j.Task, 0.001, taskMost),
	}
	if j.Class != Urgent && j.Class != Tolerant {
		problems = append(problems, fmt.Sprintf("%sclass %q: must be %s or %s", place, j.Class, Urgent, Tolerant))
	}
	if j.Deadline != nil {
		problems = append(problems, between(place+"deadline_s", *j.Deadline, 0.001, forMost))
	}
	if j.Floor != nil && !(*j.Floor > 0 && *j.Floor <= 1) {
		problems = append(problems, fmt.Sprintf("%sfloor is %v: must be above 0, and at most 1 for all tasks", place, *j.Floor))
	}
	return cmp.Or(problems...)
}

// notes are remarks on the load's figures.
func (l *Load) notes() []string {
	least, floor := l.Budget[0].Budget, units.Power(0)
	for _, s := range l.Budget {
		least = min(least, s.Budget)
	}
	for _, n := range newCluster(l.Containers, least).nodes {
		floor += n.floor()
	}
	if least >= floor {
		return nil
	}
	return []string{fmt.Sprintf("the budget falls to %v; machines of %d containers cannot be held below %v and stay there", least, l.Containers, floor)}
}
