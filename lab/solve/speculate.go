package solve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/jobs/speculation"
)

// speculating requests what a job with a deadline or an error bound runs next in its free slots.
type speculating struct {
	Policy string `json:"policy"`
	Bound  struct {
		Deadline *float64 `json:"deadline_s"`
		Error    *float64 `json:"error"`
		Rounding string   `json:"rounding"`
	} `json:"bound"`
	Slots *int             `json:"slots"`
	Now   float64          `json:"now_s"`
	Tasks []speculatedTask `json:"tasks"`

	Speeds      []float64 `json:"slot_speeds"`
	Width       int       `json:"width"`
	Typical     float64   `json:"typical_s"`
	Utilisation float64   `json:"utilisation"`
	Accuracy    float64   `json:"accuracy"`
	Greedy      bool      `json:"greedy"`

	Samples []struct {
		Policy      string  `json:"policy"`
		Tasks       int     `json:"tasks"`
		Deadline    float64 `json:"deadline_s"`
		Needed      float64 `json:"needed"`
		Completed   float64 `json:"completed"`
		Took        float64 `json:"took_s"`
		Utilisation float64 `json:"utilisation"`
		Accuracy    float64 `json:"accuracy"`
		Width       int     `json:"width"`
	} `json:"samples"`
}

// speculatedTask is one task. What is absent is unknown.
type speculatedTask struct {
	ID        taskID   `json:"id"`
	State     string   `json:"state"`
	Remaining *float64 `json:"t_rem_s"`
	New       *float64 `json:"t_new_s"`
	Copies    int      `json:"copies"`
	Rate      float64  `json:"rate"`
	Speed     float64  `json:"speed"`
	Measured  float64  `json:"speed_measured"`
}

// taskID is a whole number or a text, as in the file.
type taskID struct {
	known  bool
	text   string
	number int64
	isText bool
}

// UnmarshalJSON reads a whole number or a text.
func (id *taskID) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	id.known = true
	if data[0] == '"' {
		id.isText = true
		return json.Unmarshal(data, &id.text)
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return fmt.Errorf("task id %.40s: must be a whole number or a string", data)
	}
	id.number = n
	return nil
}

// MarshalJSON writes what was read.
func (id *taskID) MarshalJSON() ([]byte, error) {
	if id.isText {
		return json.Marshal(id.text)
	}
	return json.Marshal(id.number)
}

// String is the ID as in tables.
func (id *taskID) String() string {
	if id.isText {
		return id.text
	}
	return strconv.FormatInt(id.number, 10)
}

// compare orders numbers before texts, and texts by their bytes.
func (id *taskID) compare(o *taskID) int {
	if id.isText != o.isText {
		if o.isText {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(id.number, o.number), strings.Compare(id.text, o.text))
}

func speculate(_ context.Context, in *speculating) (object, error) {
	answer, err := in.decide()
	if err == nil {
		return answer, nil
	}
	problem := err.Error()
	for _, prefix := range []string{speculation.ErrInput.Error() + ": ", "speculation: "} {
		problem = strings.TrimPrefix(problem, prefix)
	}
	if errors.Is(err, speculation.ErrTooLarge) {
		e := cli.Usage("%s", problem)
		e.Hint = "use another policy, or a smaller case"
		return nil, e
	}
	return nil, errors.New(problem)
}

func (in *speculating) decide() (object, error) {
	policy, err := speculation.ParsePolicy(in.Policy)
	if err != nil {
		return nil, err
	}
	tasks, err := in.sorted()
	if err != nil {
		return nil, err
	}
	view, err := in.view(tasks)
	if err != nil {
		return nil, err
	}
	past, err := in.past()
	if err != nil {
		return nil, err
	}
	decision, err := speculation.Decide(policy, view, past)
	if err != nil {
		return nil, err
	}
	actions := []object{}
	for _, a := range decision.Actions {
		out := object{"action": string(a.Kind)}
		if a.Kind != speculation.Wait {
			out["task"] = &in.Tasks[a.Task].ID
			if len(in.Speeds) > 0 {
				out["slot"] = a.Slot
			}
		}
		actions = append(actions, out)
	}
	out := object{"actions": actions}
	if slices.Contains([]speculation.Policy{speculation.GRASS, speculation.Strawman, speculation.Ours}, policy) { // which switch
		out["greedy"] = decision.Greedy
	}
	return out, nil
}

// sorted puts the tasks in the order of their IDs and returns them as policies see them, where a task's ID is its place.
// Mistakes are reported with their places in the file.
func (in *speculating) sorted() ([]speculation.Task, error) {
	at := make([]int, len(in.Tasks))
	for i := range in.Tasks {
		if !in.Tasks[i].ID.known {
			return nil, fmt.Errorf("tasks[%d]: id is missing", i)
		}
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return in.Tasks[a].ID.compare(&in.Tasks[b].ID) })
	sorted := make([]speculatedTask, len(at))
	for i, place := range at {
		sorted[i] = in.Tasks[place]
		if i > 0 && sorted[i].ID == sorted[i-1].ID {
			return nil, fmt.Errorf("tasks[%d]: id %s is already used by tasks[%d]", place, &sorted[i].ID, at[i-1])
		}
	}
	seen := make([]speculation.Task, len(at))
	for i := range in.Tasks {
		var err error
		if seen[i], err = in.Tasks[i].task(); err != nil {
			return nil, fmt.Errorf("tasks[%d] (%s): %w", i, &in.Tasks[i].ID, err)
		}
	}
	in.Tasks = sorted
	tasks := make([]speculation.Task, len(at))
	for i, place := range at {
		tasks[i] = seen[place]
		tasks[i].ID = i
	}
	return tasks, nil
}

// view is the job as policies see it.
func (in *speculating) view(tasks []speculation.Task) (speculation.View, error) {
	v := speculation.View{
		Tasks: tasks, Speeds: in.Speeds, Width: in.Width, Utilisation: in.Utilisation, Accuracy: in.Accuracy, Greedy: in.Greedy,
	}
	if in.Slots == nil {
		return v, errors.New("slots is missing")
	}
	v.Slots = *in.Slots
	var err error
	if v.Bound, err = in.bound(); err != nil {
		return v, err
	}
	v.Typical, err = span("typical_s", in.Typical)
	return v, err
}

func (in *speculating) bound() (speculation.Bound, error) {
	b, now := &in.Bound, in.Now
	switch {
	case (b.Deadline == nil) == (b.Error == nil):
		return speculation.Bound{}, errors.New("bound needs either deadline_s or error")
	case math.Abs(now) > secondsMost || b.Deadline != nil && math.Abs(*b.Deadline) > secondsMost:
		return speculation.Bound{}, fmt.Errorf("now_s and deadline_s must be within %g", float64(secondsMost))
	case b.Rounding != "" && b.Rounding != "floor" && b.Rounding != "ceil":
		return speculation.Bound{}, fmt.Errorf("bound: rounding %q: must be floor or ceil", b.Rounding)
	case b.Error != nil:
		return speculation.Bound{Error: *b.Error, Ceil: b.Rounding == "ceil"}, nil
	case *b.Deadline < now:
		return speculation.Bound{}, fmt.Errorf("bound: deadline_s %v is before now_s %v", *b.Deadline, now)
	}
	return speculation.Bound{ByDeadline: true, Left: seconds(*b.Deadline) - seconds(now)}, nil
}

// span is a time of the file, from 0 on.
func span(name string, s float64) (time.Duration, error) {
	if most := speculation.TimeMost.Seconds(); !(s >= 0 && s <= most) {
		return 0, fmt.Errorf("%s is %v: must be from 0 to %v", name, s, most)
	}
	return seconds(s), nil
}

// task is the task without its ID.
func (t *speculatedTask) task() (speculation.Task, error) {
	out := speculation.Task{Rate: t.Rate, Speed: t.Speed, Measured: t.Measured, Remaining: -1}
	switch t.State {
	case "done":
		return speculation.Task{State: speculation.Done}, nil
	case "waiting":
		if t.Copies != 0 {
			return out, fmt.Errorf("copies is %d: must be 0 for a waiting task", t.Copies)
		}
	case "running":
		out.State, out.Copies = speculation.Running, t.Copies
	default:
		return out, fmt.Errorf("unknown state %q: must be waiting, running or done", t.State)
	}
	var err error
	if t.New != nil {
		if out.New, err = span("t_new_s", *t.New); err == nil && out.New == 0 {
			err = fmt.Errorf("t_new_s is %v: must be at least 1e-9, or left out if unknown", *t.New)
		}
	}
	if t.Remaining != nil && t.State == "running" && err == nil {
		out.Remaining, err = span("t_rem_s", *t.Remaining)
	}
	return out, err
}

// past are the file's samples.
func (in *speculating) past() (*speculation.Samples, error) {
	past := speculation.NewSamples(speculation.AllFactors)
	for i, s := range in.Samples {
		x := speculation.Sample{
			Greedy: s.Policy == string(speculation.GS), ByDeadline: s.Deadline != 0, Tasks: s.Tasks, Width: s.Width,
			Size: s.Needed, Result: s.Took, Utilisation: s.Utilisation, Accuracy: s.Accuracy,
		}
		switch {
		case !x.Greedy && s.Policy != string(speculation.RAS):
			return nil, fmt.Errorf("samples[%d]: policy %q: must be gs or ras", i, s.Policy)
		case (s.Deadline != 0) == (s.Needed != 0):
			return nil, fmt.Errorf("samples[%d]: needs either deadline_s and completed, or needed and took_s", i)
		case x.ByDeadline:
			x.Size, x.Result = s.Deadline, s.Completed
		}
		if err := past.Add(x); err != nil {
			_, problem, _ := strings.Cut(err.Error(), "sample: ")
			return nil, fmt.Errorf("samples[%d]: %s", i, problem)
		}
	}
	return past, nil
}
