package solve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/jobs/speculation"
)

// speculating requests what a job with a deadline or an error bound runs next in its free slots.
type speculating struct {
	Policy string `json:"policy"`
	Bound  struct {
		Deadline *float64 `json:"deadline_s" in:"-3e9 3e9"`
		Error    *float64 `json:"error"`
		Rounding string   `json:"rounding"`
	} `json:"bound"`
	Slots *int             `json:"slots" need:""`
	Now   float64          `json:"now_s" in:"-3e9 3e9"`
	Tasks []speculatedTask `json:"tasks"`

	Speeds      []float64 `json:"slot_speeds"`
	Width       int       `json:"width"`
	Typical     float64   `json:"typical_s" in:"0 1e9"`
	Utilisation float64   `json:"utilisation"`
	Accuracy    float64   `json:"accuracy"`
	Greedy      bool      `json:"greedy"`

	Samples []struct {
		Policy      speculation.Policy `json:"policy"`
		Tasks       int                `json:"tasks"`
		Deadline    float64            `json:"deadline_s"`
		Needed      float64            `json:"needed"`
		Completed   float64            `json:"completed"`
		Took        float64            `json:"took_s"`
		Utilisation float64            `json:"utilisation"`
		Accuracy    float64            `json:"accuracy"`
		Width       int                `json:"width"`
	} `json:"samples"`
}

// speculatedTask is one task. What is absent is unknown.
type speculatedTask struct {
	// ID is a whole number or a text.
	ID        any      `json:"id" need:""`
	State     string   `json:"state"`
	Remaining *float64 `json:"t_rem_s" in:"0 1e9"`
	New       *float64 `json:"t_new_s" in:"1e-9 1e9"`
	Copies    int      `json:"copies"`
	Rate      float64  `json:"rate"`
	Speed     float64  `json:"speed"`
	Measured  float64  `json:"speed_measured"`
}

func speculate(_ context.Context, in *speculating) (object, error) {
	answer, err := in.decide()
	problem := bare(err, speculation.ErrInput.Error()+": ", "speculation: ")
	if errors.Is(err, speculation.ErrTooLarge) {
		e := cli.Usage("%w", problem)
		e.Hint = "use another policy, or a smaller case"
		return nil, e
	}
	return answer, problem
}

func (in *speculating) decide() (object, error) {
	policy, err := speculation.ParsePolicy(in.Policy)
	if err != nil {
		return nil, err
	}
	view := speculation.View{
		Slots: *in.Slots, Speeds: in.Speeds, Width: in.Width, Typical: seconds(in.Typical), Utilisation: in.Utilisation, Accuracy: in.Accuracy, Greedy: in.Greedy,
	}
	past := speculation.NewSamples(speculation.AllFactors)
	tasks, ids, err := in.tasks()
	if err != nil {
		return nil, err
	}
	view.Tasks = tasks
	if view.Bound, err = in.bound(); err != nil {
		return nil, err
	}
	if err := in.samples(past); err != nil {
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
			out["task"] = ids[a.Task]
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

// tasks are the tasks as policies see them, where a task's ID is its place in the order of the file's IDs, with those.
// Mistakes are reported with their places in the file.
func (in *speculating) tasks() (tasks []speculation.Task, ids []any, err error) {
	order := make([]int, len(in.Tasks))
	seen := make([]speculation.Task, len(in.Tasks))
	for i := range in.Tasks {
		id := in.Tasks[i].ID
		if _, isText := id.(string); !isText {
			if n, isNumber := id.(float64); !isNumber || n != math.Trunc(n) {
				return nil, nil, fmt.Errorf("tasks[%d]: task id %v: must be a whole number or a string", i, id)
			}
		}
		if seen[i], err = in.Tasks[i].task(); err != nil {
			return nil, nil, fmt.Errorf("tasks[%d] (%v): %w", i, id, err)
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareIDs(in.Tasks[a].ID, in.Tasks[b].ID) })
	for place, i := range order {
		id := in.Tasks[i].ID
		if place > 0 && id == ids[place-1] {
			return nil, nil, fmt.Errorf("tasks[%d]: id %v is already used by tasks[%d]", i, id, order[place-1])
		}
		seen[i].ID = place
		tasks, ids = append(tasks, seen[i]), append(ids, id)
	}
	return tasks, ids, nil
}

// compareIDs orders numbers before texts, and texts by their bytes.
func compareIDs(a, b any) int {
	x, areNumbers := a.(float64)
	y, isNumber := b.(float64)
	if areNumbers == isNumber {
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}
	if areNumbers {
		return -1
	}
	return 1
}

func (in *speculating) bound() (speculation.Bound, error) {
	b := &in.Bound
	switch {
	case (b.Deadline == nil) == (b.Error == nil):
		return speculation.Bound{}, errors.New("bound needs either deadline_s or error")
	case b.Rounding != "" && b.Rounding != "floor" && b.Rounding != "ceil":
		return speculation.Bound{}, fmt.Errorf("bound: rounding %q: must be floor or ceil", b.Rounding)
	case b.Error != nil:
		return speculation.Bound{Error: *b.Error, Ceil: b.Rounding == "ceil"}, nil
	case *b.Deadline < in.Now:
		return speculation.Bound{}, fmt.Errorf("bound: deadline_s %v is before now_s %v", *b.Deadline, in.Now)
	}
	return speculation.Bound{ByDeadline: true, Left: seconds(*b.Deadline) - seconds(in.Now)}, nil
}

// task is the task without its ID.
func (t *speculatedTask) task() (speculation.Task, error) {
	out := speculation.Task{Rate: t.Rate, Speed: t.Speed, Measured: t.Measured, Remaining: -1}
	switch {
	case t.State == "done":
		return speculation.Task{State: speculation.Done}, nil
	case t.State == "waiting" && t.Copies != 0:
		return out, fmt.Errorf("copies is %d: must be 0 for a waiting task", t.Copies)
	case t.State == "running":
		out.State, out.Copies = speculation.Running, t.Copies
		if t.Remaining != nil {
			out.Remaining = seconds(*t.Remaining)
		}
	case t.State != "waiting":
		return out, fmt.Errorf("unknown state %q: must be waiting, running or done", t.State)
	}
	if t.New != nil {
		out.New = seconds(*t.New)
	}
	return out, nil
}

func (in *speculating) samples(past *speculation.Samples) error {
	for i, s := range in.Samples {
		x := speculation.Sample{
			Greedy: s.Policy == speculation.GS, ByDeadline: s.Deadline != 0, Tasks: s.Tasks, Width: s.Width,
			Size: s.Needed, Result: s.Took, Utilisation: s.Utilisation, Accuracy: s.Accuracy,
		}
		switch {
		case !x.Greedy && s.Policy != speculation.RAS:
			return fmt.Errorf("samples[%d]: policy %q: must be gs or ras", i, s.Policy)
		case (s.Deadline != 0) == (s.Needed != 0):
			return fmt.Errorf("samples[%d]: needs either deadline_s and completed, or needed and took_s", i)
		case x.ByDeadline:
			x.Size, x.Result = s.Deadline, s.Completed
		}
		if err := past.Add(x); err != nil {
			_, problem, _ := strings.Cut(err.Error(), "sample: ")
			return fmt.Errorf("samples[%d]: %s", i, problem)
		}
	}
	return nil
}
