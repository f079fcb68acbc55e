package sparkapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
)

// AnswerMax bounds one answer of a driver: the thousand stages that Spark keeps are some 2 MB.
// Nesting is bounded by encoding/json.
const AnswerMax = 8 << 20

// ErrAnswer states that a driver's REST interface answered something that is invalid.
var ErrAnswer = errors.New("invalid answer of Spark's REST interface")

// Ask gets the body of one answer of a driver's REST interface, of at most AnswerMax bytes.
// The path begins behind /api/v1.
type Ask func(ctx context.Context, path string) ([]byte, error)

// Identity is which application a driver is.
type Identity struct {
	// ID is Spark's id of it.
	ID string
	// Properties are those of its configuration that the hook reads, spark.headroom.NAME.
	Properties map[string]string
}

// Identify asks a driver which application it is.
func Identify(ctx context.Context, ask Ask) (Identity, error) {
	body, err := ask(ctx, "/applications")
	if err != nil {
		return Identity{}, err
	}
	var apps []struct {
		ID string `json:"id"`
	}
	if err := read(body, &apps); err != nil {
		return Identity{}, err
	}
	if len(apps) != 1 || apps[0].ID == "" || len(apps[0].ID) > askMost { // a driver's own page knows no other
		return Identity{}, fmt.Errorf("%d applications: %w", len(apps), ErrAnswer)
	}
	if body, err = ask(ctx, "/applications/"+apps[0].ID+"/environment"); err != nil {
		return Identity{}, err
	}
	var env struct {
		Properties [][]string `json:"sparkProperties"`
	}
	if err := read(body, &env); err != nil {
		return Identity{}, err
	}
	id := Identity{ID: apps[0].ID, Properties: map[string]string{}}
	for _, p := range env.Properties {
		if len(p) == 2 && len(p[0]) > len(prefix) && p[0][:len(prefix)] == prefix && len(p[1]) <= askMost && len(id.Properties) < asksMax {
			id.Properties[p[0]] = p[1]
		}
	}
	return id, nil
}

// prefix begins the properties that the hook reads.
const prefix = "spark.headroom."

// stageAnswer is a stage of /stages.
type stageAnswer struct {
	Status    string `json:"status"`
	ID        int    `json:"stageId"`
	Attempt   int    `json:"attemptId"`
	Tasks     int    `json:"numTasks"`
	Active    int    `json:"numActiveTasks"`
	Completed int    `json:"numCompletedIndices"`
	RunTime   int64  `json:"executorRunTime"`
	Name      string `json:"name"`
}

// executorAnswer is an executor of /executors; the driver is among them.
type executorAnswer struct {
	ID       string `json:"id"`
	HostPort string `json:"hostPort"`
	Active   bool   `json:"isActive"`
	Cores    int    `json:"totalCores"`
	Tasks    int    `json:"activeTasks"`
}

// Look reads an application's progress from its driver. What the hook has reported of shuffles stays
// known only to it: known is the last progress.
func Look(ctx context.Context, ask Ask, app string, known Progress, node func(host string) string) (Progress, error) {
	body, err := ask(ctx, "/applications/"+app+"/stages")
	if err != nil {
		return Progress{}, err
	}
	p, err := readStages(body)
	if err != nil {
		return Progress{}, err
	}
	if body, err = ask(ctx, "/applications/"+app+"/executors"); err != nil {
		return Progress{}, err
	}
	running, cores, n, err := readExecutors(body)
	if err != nil {
		return Progress{}, err
	}
	p.Known, p.From, p.Theta, p.Shuffles, p.Dropped = true, ByREST, known.Theta, known.Shuffles, known.Dropped
	p.Tasks += p.Dropped
	waits := p.Pending() > 0 || p.Tasks == 0
	p.Executors, p.Cores, p.RunningOn = n, sum(cores), places(running, cores, waits, node)
	return p, nil
}

func readStages(body []byte) (p Progress, err error) {
	var all []stageAnswer
	if err := read(body, &all); err != nil {
		return p, err
	}
	newest := map[int]*Stage{}
	for _, s := range all {
		switch {
		case !inRange(s.ID) || !inRange(s.Attempt) || !inRange(s.Tasks) || !inRange(s.Active) || s.Completed < 0 || s.Completed > s.Tasks || s.RunTime < 0 || s.RunTime > partsMost:
			return p, fmt.Errorf("stage %d.%d of %d tasks, %d active, %d completed: %w", s.ID, s.Attempt, s.Tasks, s.Active, s.Completed, ErrAnswer)
		case s.Status == "SKIPPED":
			continue
		}
		k := newest[s.ID]
		if k == nil {
			k = &Stage{ID: s.ID, Attempt: -1}
			newest[s.ID] = k
		}
		k.add(s)
	}
	for _, k := range newest {
		p.Tasks, p.Done, p.Running = min(p.Tasks+k.Kept, numberMax), p.Done+k.Done, p.Running+k.Running
		p.Stages = append(p.Stages, *k)
	}
	slices.SortFunc(p.Stages, func(a, b Stage) int { return a.ID - b.ID })
	p.Stages = p.Stages[max(0, len(p.Stages)-stagesMax):]
	p.Done = min(p.Done, p.Tasks)
	p.Running = min(p.Running, p.Tasks-p.Done) // copies of a task are one
	return p, nil
}

// add takes over an attempt of the stage. A later attempt has as many tasks as results are missing.
func (k *Stage) add(s stageAnswer) {
	missing := s.Tasks - s.Completed
	k.Kept = max(k.Kept, s.Tasks)
	k.Partitions = k.Kept
	k.Seconds += float64(s.RunTime) / 1000
	if s.Attempt > k.Attempt {
		k.Attempt, k.Name, k.Running = s.Attempt, Clip(s.Name), s.Active
		k.Begun, k.Ended = s.Status != "PENDING", s.Status == "COMPLETE" || s.Status == "FAILED"
		k.missing = missing
	}
	k.Done = max(0, k.Kept-k.missing)
}

func readExecutors(body []byte) (running, cores map[string]int, n int, err error) {
	var all []executorAnswer
	if err := read(body, &all); err != nil {
		return nil, nil, 0, err
	}
	running, cores = map[string]int{}, map[string]int{}
	for _, x := range all {
		if x.ID == "driver" || !x.Active {
			continue
		}
		host, _, err := net.SplitHostPort(x.HostPort)
		if err != nil || host == "" || !inRange(x.Cores) || !inRange(x.Tasks) {
			return nil, nil, 0, fmt.Errorf("executor %q on %q with %d cores, %d tasks: %w", Clip(x.ID), Clip(x.HostPort), x.Cores, x.Tasks, ErrAnswer)
		}
		running[host] += x.Tasks
		cores[host] += x.Cores
		n++
	}
	return running, cores, n, nil
}

func read(body []byte, into any) error {
	if len(body) > AnswerMax {
		return fmt.Errorf("more than %d bytes: %w", AnswerMax, ErrAnswer)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %w", err, ErrAnswer)
	}
	return nil
}
