package spark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Progress is how far a run has come, as its hook told last.
type Progress struct {
	// Known tells that the hook was heard of lately. Otherwise the rest is old, or nothing
	// when there never was a report.
	Known bool
	// Tasks are those of all stages that Spark has begun to plan so far, the dropped ones
	// included: Done + Running + Dropped never exceeds it, and Done + Dropped is it at a
	// good end.
	Tasks, Done, Running, Dropped int
	// Stages are the newest ones.
	Stages []Stage
	// Shuffles tell what was kept of each.
	Shuffles []Shuffle
	// RunningOn is how many tasks run on each node; nil while the hook does not tell.
	RunningOn map[string]int
	// Executors that are registered; the driver is none.
	Executors int
	// Theta is the drop ratio that the run has been told last.
	Theta float64
	// Trouble is what went wrong last in the hook, in words.
	Trouble string
}

// Stage is one stage of the application.
type Stage struct {
	ID, Attempt int
	Name        string
	// Kind is map or result.
	Kind string
	// Partitions is what it would compute, Kept what it does.
	Partitions, Kept int
	Done, Running    int
	// Seconds is the sum of the durations of the attempts that succeeded.
	Seconds      float64
	Begun, Ended bool
}

// Shuffle is what was kept of a shuffle's map partitions.
type Shuffle struct {
	ID    int     `json:"id"`
	Total int     `json:"total"`
	Kept  int     `json:"kept"`
	Theta float64 `json:"theta"`
	Seed  int64   `json:"seed"`
	Input bool    `json:"input"`
}

// report is what a hook tells: docs/hooks.md. Missing fields are errors, those that are
// not known here are not.
type report struct {
	Job      string
	Run      uint32
	Sequence uint64
	Ended    bool
	Stages   []stageReport
	Shuffles []Shuffle
	// RunningOn is how many tasks run on each host.
	RunningOn   map[string]int
	Executors   int
	Done, Total int
	Trouble     string
}

type stageReport struct {
	ID         int    `json:"id"`
	Attempt    int    `json:"attempt"`
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Partitions int    `json:"partitions"`
	Kept       int    `json:"kept"`
	Done       int    `json:"done"`
	Running    int    `json:"running"`
	TaskMS     int64  `json:"task_ms"`
	Begun      bool   `json:"begun"`
	Ended      bool   `json:"ended"`
}

// Bounds of a report.
const (
	stagesMax = 1024
	hostsMax  = 10_000
	numberMax = 1 << 30
	textMax   = 1 << 10
	partsMost = 1 << 40
)

// parseReport reads a hook's report.
func parseReport(body io.Reader) (report, error) {
	var in struct {
		Job        *string        `json:"job"`
		Run        *uint32        `json:"run"`
		Sequence   *uint64        `json:"sequence"`
		Ended      *bool          `json:"ended"`
		Stages     *[]stageReport `json:"stages"`
		Shuffles   *[]Shuffle     `json:"shuffles"`
		RunningOn  map[string]int `json:"running_on"`
		Executors  *int           `json:"executors"`
		TasksDone  *int           `json:"tasks_done"`
		TasksTotal *int           `json:"tasks_total"`
		Trouble    string         `json:"trouble"`
	}
	d := json.NewDecoder(body)
	err := d.Decode(&in)
	if err == nil && d.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return report{}, fmt.Errorf("the body is not the JSON that docs/hooks.md tells: %w", err)
	}
	if in.Job == nil || in.Run == nil || in.Sequence == nil || in.Ended == nil || in.Stages == nil || in.Shuffles == nil || in.Executors == nil || in.TasksDone == nil || in.TasksTotal == nil {
		return report{}, fmt.Errorf("job, run, sequence, ended, stages, shuffles, executors, tasks_done and tasks_total are needed: %w", errReport)
	}
	r := report{
		Job: *in.Job, Run: *in.Run, Sequence: *in.Sequence, Ended: *in.Ended, Stages: *in.Stages, Shuffles: *in.Shuffles,
		RunningOn: in.RunningOn, Executors: *in.Executors, Done: *in.TasksDone, Total: *in.TasksTotal, Trouble: in.Trouble,
	}
	if !r.sound() {
		return report{}, fmt.Errorf("a number is below 0, above what can be, or contradicts another: %w", errReport)
	}
	return r, nil
}

// sound tells whether the numbers can be.
func (r report) sound() bool {
	ok := inRange(r.Executors) && inRange(r.Total) && r.Done >= 0 && r.Done <= r.Total &&
		len(r.Stages) <= stagesMax && len(r.Shuffles) <= stagesMax && len(r.RunningOn) <= hostsMax
	for _, s := range r.Stages {
		ok = ok && inRange(s.ID) && inRange(s.Attempt) && inRange(s.Partitions) && s.Kept >= 0 && s.Kept <= s.Partitions && inRange(s.Done) && inRange(s.Running) &&
			s.TaskMS >= 0 && s.TaskMS < partsMost && len(s.Name) <= textMax*4
	}
	for _, s := range r.Shuffles {
		ok = ok && inRange(s.ID) && inRange(s.Total) && s.Kept >= 0 && s.Kept <= s.Total && s.Theta >= 0 && s.Theta <= 1 && !math.IsNaN(s.Theta)
	}
	for _, n := range r.RunningOn {
		ok = ok && inRange(n)
	}
	return ok
}

func inRange(n int) bool { return n >= 0 && n <= numberMax }

// progress is what follows from a report for a run.
func (r report) progress(cfg Config, x *execution) Progress {
	p := Progress{Known: true, Tasks: r.Total, Done: r.Done, Shuffles: r.Shuffles, Executors: r.Executors, Theta: x.theta, Trouble: clip(r.Trouble)}
	for _, s := range r.Shuffles {
		p.Dropped += s.Total - s.Kept
	}
	p.Tasks += p.Dropped
	for _, s := range r.Stages {
		p.Running += s.Running
		p.Stages = append(p.Stages, Stage{
			ID: s.ID, Attempt: s.Attempt, Name: clip(s.Name), Kind: s.Kind, Partitions: s.Partitions, Kept: s.Kept, Done: s.Done, Running: s.Running,
			Seconds: float64(s.TaskMS) / 1000, Begun: s.Begun, Ended: s.Ended,
		})
	}
	p.Running = min(p.Running, p.Tasks-p.Done-p.Dropped) // copies of a task are one
	if r.RunningOn != nil {
		p.RunningOn = make(map[string]int, len(r.RunningOn))
		for host, n := range r.RunningOn {
			if n > 0 {
				p.RunningOn[cfg.node(host)] += n
			}
		}
	}
	return p
}
