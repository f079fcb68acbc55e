package scheduler

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/scheduler/profiles"
)

// jsonEnvelope is what every -o json answer is wrapped in; additive only.
type jsonEnvelope struct {
	Kind     string    `json:"kind"`
	API      string    `json:"api"`
	AsOf     time.Time `json:"as_of"`
	Revision uint64    `json:"revision,omitempty"`
	DryRun   bool      `json:"dry_run,omitempty"`
	Items    []any     `json:"items"`
}

// jsonJob is a job in -o json; unknown values are null.
type jsonJob struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Class     string    `json:"class"`
	State     string    `json:"state"`
	Tasks     uint32    `json:"tasks"`
	Done      uint32    `json:"done"`
	Running   uint32    `json:"running"`
	Dropped   uint32    `json:"dropped"`
	RatePerS  *float64  `json:"rate_per_s"`
	RuntimeS  *float64  `json:"runtime_s"`
	Submitted time.Time `json:"submitted_at"`
	Outcome   string    `json:"outcome"`
	Engine    string    `json:"engine"`
	Queue     string    `json:"queue"`
	// Floor is the least fraction of the map tasks; null where it is not known.
	Floor       *float64          `json:"floor"`
	FloorReason string            `json:"floor_reason"`
	RunningOn   map[string]uint32 `json:"running_on"`
}

// jsonWorker is a worker in -o json.
type jsonWorker struct {
	Node      string `json:"node"`
	Slots     uint32 `json:"slots"`
	Usable    uint32 `json:"usable"`
	Running   uint32 `json:"running"`
	Connected bool   `json:"connected"`
}

func envelope(kind string, items []any) jsonEnvelope {
	return jsonEnvelope{Kind: kind, API: "v1", AsOf: time.Now().UTC(), Items: items}
}

func jobItems(jobs []*headroomv1.Job) []any {
	items := make([]any, 0, len(jobs))
	for _, j := range jobs {
		p := j.GetProgress()
		item := jsonJob{
			ID: j.GetId(), Name: j.GetName(), Class: j.GetClass(), State: stateWord(j),
			Tasks: p.GetTasks(), Done: p.GetDone(), Running: p.GetRunning(), Dropped: p.GetDropped(),
			Submitted: submittedAt(j).UTC(), Outcome: j.GetOutcome(), Engine: cmp.Or(j.GetEngine(), "local"), Queue: j.GetQueue(), RunningOn: p.GetRunningOn(),
			FloorReason: floorReason(j.GetSpec()),
		}
		if floor := j.GetFloor(); floor > 0 {
			item.Floor = &floor
		}
		if p != nil {
			item.RatePerS, item.RuntimeS = p.RatePerS, p.RuntimeS
		}
		if item.RunningOn == nil {
			item.RunningOn = map[string]uint32{}
		}
		items = append(items, item)
	}
	return items
}

func printJobs(w io.Writer, out *cli.Output, jobs []*headroomv1.Job) error {
	if out.IsJSON() {
		return out.JSON(w, envelope("JobList", jobItems(jobs)))
	}
	head := []string{"JOB", "CLASS", "STATE", "TASKS", "DONE", "RUNNING", "RUNTIME", "SUBMITTED"}
	if out.IsWide() {
		head = append(head, "DROPPED", "RATE", "OUTCOME")
	}
	rows := make([][]string, 0, len(jobs))
	for _, j := range jobs {
		p := j.GetProgress()
		row := []string{
			j.GetId(), j.GetClass(), stateWord(j), number(p.GetTasks()), number(p.GetDone()), number(p.GetRunning()),
			runtimeText(p), cli.Clock(submittedAt(j)),
		}
		if out.IsWide() {
			row = append(row, number(p.GetDropped()), rateText(p), j.GetOutcome())
		}
		rows = append(rows, row)
	}
	return out.Table(w, head, rows)
}

func printJob(w io.Writer, out *cli.Output, j *headroomv1.Job) error {
	if out.IsJSON() {
		return out.JSON(w, envelope("Job", jobItems([]*headroomv1.Job{j})))
	}
	if out.Format != "table" {
		return printJobs(w, out, []*headroomv1.Job{j})
	}
	p := j.GetProgress()
	rows := [][]string{
		{"job", j.GetId()},
		{"name", j.GetName()},
		{"class", j.GetClass()},
		{"state", stateWord(j)},
		{"tasks", fmt.Sprintf("%d of %d done, %d running, %d dropped", p.GetDone(), p.GetTasks(), p.GetRunning(), p.GetDropped())},
		{"running on", runningOn(p)},
		{"rate", rateText(p)},
		{"runtime", runtimeText(p)},
		{"submitted", cli.Clock(submittedAt(j))},
		{"outcome", textOr(j.GetOutcome())},
	}
	if j.GetEngine() != "" {
		rows = slices.Insert(rows, 4, []string{"engine", j.GetEngine() + ", queue " + textOr(j.GetQueue())}, []string{"quality floor", floorText(j)})
	} else if floorReason(j.GetSpec()) != "" {
		rows = slices.Insert(rows, 4, []string{"quality floor", floorText(j)})
	}
	return out.Table(w, nil, rows)
}

// floorText is the floor with its reason, where the job says one.
func floorText(j *headroomv1.Job) string {
	text := profiles.Percent(cmp.Or(j.GetFloor(), 1))
	if why := floorReason(j.GetSpec()); why != "" {
		text += " of the map tasks: " + why
	}
	return text
}

func printWorkers(w io.Writer, out *cli.Output, workers []*headroomv1.Worker) error {
	if out.IsJSON() {
		items := make([]any, 0, len(workers))
		for _, k := range workers {
			items = append(items, jsonWorker{k.GetNode(), k.GetSlots(), k.GetUsable(), k.GetRunning(), k.GetConnected()})
		}
		return out.JSON(w, envelope("WorkerList", items))
	}
	rows := make([][]string, 0, len(workers))
	for _, k := range workers {
		state := "ok"
		if !k.GetConnected() {
			state = "lost"
		}
		rows = append(rows, []string{k.GetNode(), state, number(k.GetSlots()), number(k.GetUsable()), number(k.GetRunning())})
	}
	return out.Table(w, []string{"NODE", "STATE", "SLOTS", "USABLE", "RUNNING"}, rows)
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func textOr(s string) string {
	if s == "" {
		return cli.Unknown
	}
	return s
}

func runtimeText(p *headroomv1.JobProgress) string {
	if p == nil || p.RuntimeS == nil {
		return cli.Unknown
	}
	return cli.Age(time.Duration(p.GetRuntimeS() * float64(time.Second)))
}

func rateText(p *headroomv1.JobProgress) string {
	if p == nil || p.RatePerS == nil {
		return cli.Unknown
	}
	return fmt.Sprintf("%.2f tasks/s", p.GetRatePerS())
}

func runningOn(p *headroomv1.JobProgress) string {
	nodes := slices.Sorted(maps.Keys(p.GetRunningOn()))
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = fmt.Sprintf("%s (%d)", n, p.GetRunningOn()[n])
	}
	return textOr(strings.Join(parts, ", "))
}
