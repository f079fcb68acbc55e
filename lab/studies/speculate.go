package studies

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/speculation"
	"headroom/lab/jsonfile"
)

// speculationFile is the file of `powerlab speculate`.
type speculationFile struct {
	Policy string            `json:"policy"`
	Bound  speculationBound  `json:"bound"`
	Slots  *int              `json:"slots"`
	Now    float64           `json:"now_s"`
	Tasks  []speculationTask `json:"tasks"`

	Speeds      []float64 `json:"slot_speeds"`
	Width       int       `json:"width"`
	Typical     float64   `json:"typical_s"`
	Utilisation float64   `json:"utilisation"`
	Accuracy    float64   `json:"accuracy"`
	Greedy      bool      `json:"greedy"`

	Samples []speculationSample `json:"samples"`
}

type speculationBound struct {
	Deadline *float64 `json:"deadline_s"`
	Error    *float64 `json:"error"`
	Rounding string   `json:"rounding"`
}

// speculationTask is one task. What is absent is unknown.
type speculationTask struct {
	ID        taskID   `json:"id"`
	State     string   `json:"state"`
	Remaining *float64 `json:"t_rem_s"`
	New       *float64 `json:"t_new_s"`
	Copies    int      `json:"copies"`
	Rate      float64  `json:"rate"`
	Speed     float64  `json:"speed"`
	Measured  float64  `json:"speed_measured"`
}

type speculationSample struct {
	Policy      string  `json:"policy"`
	Tasks       int     `json:"tasks"`
	Deadline    float64 `json:"deadline_s"`
	Needed      float64 `json:"needed"`
	Completed   float64 `json:"completed"`
	Took        float64 `json:"took_s"`
	Utilisation float64 `json:"utilisation"`
	Accuracy    float64 `json:"accuracy"`
	Width       int     `json:"width"`
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

// speculated is the answer.
type speculated struct {
	Actions []speculatedAction `json:"actions"`
	// Greedy is only there for policies that switch.
	Greedy *bool `json:"greedy,omitempty"`
}

type speculatedAction struct {
	Action string  `json:"action"`
	Task   *taskID `json:"task,omitempty"`
	// Slot is only there where the file gives slot_speeds.
	Slot *int `json:"slot,omitempty"`
}

// NewSpeculateCommand is `powerlab speculate`.
func NewSpeculateCommand() *cobra.Command {
	return fileCommand(&cobra.Command{
		Use:   "speculate",
		Short: "Choose the next tasks or copies of a job for its free slots",
		Long: `Chooses what a job with a deadline or an error bound runs next in its free slots: new tasks, or copies of
stragglers. The input file:

  {"policy": "ras", "bound": {"deadline_s": 6}, "slots": 1, "now_s": 1, "tasks": [
    {"id": 1, "state": "running", "t_rem_s": 5, "t_new_s": 2, "copies": 1},
    {"id": 2, "state": "done"}, {"id": 3, "state": "waiting", "t_new_s": 1}, ...]}

  t_rem_s     time that the fastest running copy still needs; if unknown, t_new_s is used
  t_new_s     time that a new copy takes; if unknown, the median of the other tasks is used
  copies      number of running copies, the original included (default 1)
  deadline_s  absolute time, on the clock of now_s
  error       in place of deadline_s: {"error": 0.2} completes floor(tasks x (1 - error)) tasks as soon as
              possible; "rounding": "ceil" rounds up

Policies:
` + speculationHelp() + `
There is at most one action per free slot; wait covers all remaining slots. Ties go to the lowest id:
numbers before texts, texts in byte order.

Optional fields: width (all slots of the job), typical_s (median duration of completed tasks), greedy (the
job has switched to gs; the output says when to set it). grass and ours also take utilisation, accuracy and
samples of past jobs:
  {"policy": "gs", "tasks": 100, "deadline_s": 60, "completed": 80, "utilisation": 0.5, "accuracy": 0.7}
  {"policy": "ras", "tasks": 100, "needed": 80, "took_s": 60, ...}
If all samples have width, jobs of different widths are compared by the result per slot.
For ours, a task may have speed (of its node under the current cap, 0 to 1) and speed_measured (while
t_rem_s was measured). slot_speeds lists the speeds of the free slots' nodes; actions then name the slot.
For late, rate is the fraction of a task that is completed per second.`,
		Example: "  powerlab speculate --input job.json\n  powerlab speculate --input - -o json < job.json",
	}, "policy, bound, slots, now_s and tasks", speculate)
}

func speculationHelp() string {
	var text strings.Builder
	for _, p := range speculation.Policies() {
		fmt.Fprintf(&text, "  %-9s %s\n", p, p.Sentence())
	}
	return text.String()
}

// speculate reads the file and decides.
func speculate(stdin io.Reader, file string) (*speculated, error) {
	var in speculationFile
	if err := jsonfile.Read(stdin, "--input", file, &in); err != nil {
		return nil, err
	}
	policy, err := speculation.ParsePolicy(in.Policy)
	if err != nil {
		return nil, speculationError(file, err)
	}
	tasks, err := in.sorted()
	if err != nil {
		return nil, speculationError(file, err)
	}
	view, err := in.view(tasks)
	if err != nil {
		return nil, speculationError(file, err)
	}
	past, err := in.past()
	if err != nil {
		return nil, speculationError(file, err)
	}
	decision, err := speculation.Decide(policy, view, past)
	if err != nil {
		return nil, speculationError(file, err)
	}
	answer := &speculated{Actions: []speculatedAction{}}
	for _, a := range decision.Actions {
		out := speculatedAction{Action: string(a.Kind)}
		if a.Kind != speculation.Wait {
			out.Task = &in.Tasks[a.Task].ID
			if len(in.Speeds) > 0 {
				out.Slot = &a.Slot
			}
		}
		answer.Actions = append(answer.Actions, out)
	}
	if slices.Contains([]speculation.Policy{speculation.GRASS, speculation.Strawman, speculation.Ours}, policy) {
		answer.Greedy = &decision.Greedy
	}
	return answer, nil
}

// speculationError is a mistake in the file.
func speculationError(file string, err error) error {
	problem := err.Error()
	for _, prefix := range []string{speculation.ErrInput.Error() + ": ", "speculation: "} {
		problem = strings.TrimPrefix(problem, prefix)
	}
	e := jsonfile.Bad(file, "%s", problem)
	if errors.Is(err, speculation.ErrTooLarge) {
		e.Hint = "use another policy, or a smaller case"
	}
	return e
}

// sorted puts the tasks in the order of their IDs and returns them as policies see them, where a task's ID is its place.
// Mistakes are reported with their places in the file.
func (in *speculationFile) sorted() ([]speculation.Task, error) {
	at := make([]int, len(in.Tasks))
	for i := range in.Tasks {
		if !in.Tasks[i].ID.known {
			return nil, fmt.Errorf("tasks[%d]: id is missing", i)
		}
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return in.Tasks[a].ID.compare(&in.Tasks[b].ID) })
	sorted := make([]speculationTask, len(at))
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
func (in *speculationFile) view(tasks []speculation.Task) (speculation.View, error) {
	v := speculation.View{
		Tasks: tasks, Speeds: in.Speeds, Width: in.Width, Utilisation: in.Utilisation, Accuracy: in.Accuracy, Greedy: in.Greedy,
	}
	if in.Slots == nil {
		return v, errors.New("slots is missing")
	}
	v.Slots = *in.Slots
	var err error
	if v.Bound, err = in.Bound.bound(in.Now); err != nil {
		return v, err
	}
	v.Typical, err = span("typical_s", in.Typical)
	return v, err
}

func (b *speculationBound) bound(now float64) (speculation.Bound, error) {
	switch {
	case (b.Deadline == nil) == (b.Error == nil):
		return speculation.Bound{}, errors.New("bound needs either deadline_s or error")
	case math.Abs(now) > maxSeconds || b.Deadline != nil && math.Abs(*b.Deadline) > maxSeconds:
		return speculation.Bound{}, fmt.Errorf("now_s and deadline_s must be within %g", float64(maxSeconds))
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
func (t *speculationTask) task() (speculation.Task, error) {
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
func (in *speculationFile) past() (*speculation.Samples, error) {
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

// print is the answer as JSON or as a table.
func (a *speculated) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	rows := make([][]string, 0, len(a.Actions))
	for _, x := range a.Actions {
		row := []string{x.Action, "", ""}
		if x.Task != nil {
			row[1] = x.Task.String()
		}
		if x.Slot != nil {
			row[2] = strconv.Itoa(*x.Slot)
		}
		rows = append(rows, row)
	}
	return out.Table(w, []string{"ACTION", "TASK", "SLOT"}, rows)
}
