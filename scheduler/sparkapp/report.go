package sparkapp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// ErrReport is returned for an invalid report of a hook.
var ErrReport = errors.New("invalid report")

// ExecutorsMax is the most executors that a hook takes.
const ExecutorsMax = 10_000

// Report is a hook's report: docs/hooks.md. Missing fields are errors, those that are
// not known here are not.
type Report struct {
	Job string
	Run uint32
	// App is Spark's own id of the application, Attempt counts the starts of its driver by
	// YARN; empty and 0 where the hook does not tell.
	App      string
	Attempt  int
	Sequence uint64
	Ended    bool
	Stages   []stageReport
	Shuffles []Shuffle
	// RunningOn is how many tasks run on each host, CoresOn the cores of its executors;
	// nil where the hook does not tell.
	RunningOn, CoresOn map[string]int
	Executors, Surplus int
	Done, Total        int
	// Asks are what its owner asks for, by the last parts of the properties' names.
	Asks    map[string]string
	Trouble string
	// Exact is why its newest action was computed completely although partitions were to be dropped.
	Exact string
}

// stageReport is a hook's report of one stage.
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
	// TypicalMS is the median duration of the newest successes, Attempts are the oldest that
	// run; of map stages that run alone.
	TypicalMS int64     `json:"typical_ms"`
	Attempts  []Attempt `json:"attempts"`
}

// Attempt is an attempt of a task that runs.
type Attempt struct {
	Partition int    `json:"partition"`
	Host      string `json:"host"`
	MS        int64  `json:"ms"`
}

// ParseReport reads a hook's report.
func ParseReport(body io.Reader) (Report, error) {
	var in struct {
		Job        *string           `json:"job"`
		Run        *uint32           `json:"run"`
		App        string            `json:"app"`
		Attempt    int               `json:"attempt"`
		Sequence   *uint64           `json:"sequence"`
		Ended      *bool             `json:"ended"`
		Stages     *[]stageReport    `json:"stages"`
		Shuffles   *[]Shuffle        `json:"shuffles"`
		RunningOn  map[string]int    `json:"running_on"`
		CoresOn    map[string]int    `json:"cores_on"`
		Executors  *int              `json:"executors"`
		Surplus    int               `json:"surplus"`
		TasksDone  *int              `json:"tasks_done"`
		TasksTotal *int              `json:"tasks_total"`
		Asks       map[string]string `json:"asks"`
		Trouble    string            `json:"trouble"`
		Exact      string            `json:"exact"`
	}
	d := json.NewDecoder(body)
	err := d.Decode(&in)
	if err == nil && d.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return Report{}, fmt.Errorf("the body is not the JSON described in docs/hooks.md: %w", err)
	}
	if in.Job == nil || in.Run == nil || in.Sequence == nil || in.Ended == nil || in.Stages == nil || in.Shuffles == nil || in.Executors == nil || in.TasksDone == nil || in.TasksTotal == nil {
		return Report{}, fmt.Errorf("job, run, sequence, ended, stages, shuffles, executors, tasks_done and tasks_total are required: %w", ErrReport)
	}
	r := Report{
		Job: *in.Job, Run: *in.Run, App: in.App, Attempt: in.Attempt, Sequence: *in.Sequence, Ended: *in.Ended, Stages: *in.Stages, Shuffles: *in.Shuffles,
		RunningOn: in.RunningOn, CoresOn: in.CoresOn, Executors: *in.Executors, Surplus: in.Surplus, Done: *in.TasksDone, Total: *in.TasksTotal,
		Asks: in.Asks, Trouble: in.Trouble, Exact: in.Exact,
	}
	if !r.sound() {
		return Report{}, fmt.Errorf("a number is negative, too large or inconsistent: %w", ErrReport)
	}
	return r, nil
}

// Bounds of what an owner asks for.
const (
	asksMax = 32
	// attemptsMax bounds the reported attempts of one stage.
	attemptsMax = 256
	askMost     = 256
)

// sound reports whether the numbers can be.
func (r Report) sound() bool {
	ok := inRange(r.Executors) && inRange(r.Surplus) && inRange(r.Attempt) && inRange(r.Total) && r.Done >= 0 && r.Done <= r.Total &&
		len(r.Stages) <= stagesMax && len(r.Shuffles) <= stagesMax && len(r.RunningOn) <= hostsMax && len(r.CoresOn) <= hostsMax && len(r.Asks) <= asksMax && len(r.App) <= askMost
	for _, s := range r.Stages {
		ok = ok && inRange(s.ID) && inRange(s.Attempt) && inRange(s.Partitions) && s.Kept >= 0 && s.Kept <= s.Partitions && inRange(s.Done) && inRange(s.Running) &&
			s.TaskMS >= 0 && s.TaskMS < partsMost && len(s.Name) <= nameMax && s.TypicalMS >= 0 && s.TypicalMS < partsMost && len(s.Attempts) <= attemptsMax
		for _, a := range s.Attempts {
			ok = ok && inRange(a.Partition) && a.MS >= 0 && a.MS < partsMost && len(a.Host) <= askMost
		}
	}
	for _, s := range r.Shuffles {
		ok = ok && inRange(s.ID) && inRange(s.Total) && s.Kept >= 0 && s.Kept <= s.Total && s.Theta >= 0 && s.Theta <= 1 && !math.IsNaN(s.Theta)
	}
	for _, on := range []map[string]int{r.RunningOn, r.CoresOn} {
		for _, n := range on {
			ok = ok && inRange(n)
		}
	}
	for key, value := range r.Asks {
		ok = ok && len(key) <= askMost && len(value) <= askMost
	}
	return ok
}

// Progress returns what follows from a report for an application that was told theta. node names
// the node of a host.
func (r Report) Progress(theta float64, node func(host string) string) Progress {
	p := Progress{
		Known: true, Tasks: r.Total, Done: r.Done, Shuffles: r.Shuffles, Executors: r.Executors, Cores: sum(r.CoresOn), Surplus: r.Surplus,
		Theta: theta, Trouble: Clip(r.Trouble), Exact: Clip(r.Exact),
	}
	for _, s := range r.Shuffles {
		p.Dropped += s.Total - s.Kept
	}
	p.Tasks += p.Dropped
	for _, s := range r.Stages {
		p.Running += s.Running
		p.Copies += s.copies()
		p.Stages = append(p.Stages, Stage{
			ID: s.ID, Attempt: s.Attempt, Name: Clip(s.Name), Kind: s.Kind, Partitions: s.Partitions, Kept: s.Kept, Done: s.Done, Running: s.Running,
			Seconds: float64(s.TaskMS) / 1000, Begun: s.Begun, Ended: s.Ended,
		})
	}
	p.Running = min(p.Running, p.Tasks-p.Done-p.Dropped) // copies of a task are one
	if r.RunningOn != nil {
		// Before its first action an application is about to begin one.
		waits := !r.Ended && (p.Pending() > 0 || r.Total == 0)
		p.RunningOn = places(r.RunningOn, r.CoresOn, waits, node)
	}
	return p
}

// Reply is the answer to a hook.
type Reply struct {
	Theta     float64 `json:"theta"`
	Seed      int64   `json:"seed"` // Java has no unsigned numbers
	Executors *int    `json:"executors"`
	Cancel    bool    `json:"cancel"`
	// End is the part of its partitions that a map stage may leave out if it ends now.
	End float64 `json:"end,omitempty"`
	// Refused is the reason why its deadline is not promised.
	Refused string `json:"refused,omitempty"`
	// Copies are tasks that run of which a second attempt is wanted.
	Copies []Copy `json:"copies,omitempty"`
}

// Copy is a task that runs.
type Copy struct {
	Stage     int `json:"stage"`
	Attempt   int `json:"attempt"`
	Partition int `json:"partition"`
}

// Stopped reports that a hook received an answer when its application had already ended,
// as it may at every normal end: that is no trouble.
func Stopped(trouble string) bool { return strings.Contains(trouble, "stopped SparkContext") }

// FirstLine removes the stack trace below a Java error.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(Clip(text), "\n")
	return line
}
