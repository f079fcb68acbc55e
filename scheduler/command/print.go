package command

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
	"headroom/internal/each"
	"headroom/jobs/buffers"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

// jsonEnvelope is what every -o json answer is wrapped in; additive only.
type jsonEnvelope struct {
	cli.List[any]

	// Dispatch is how jobs begin; in lists of jobs only.
	Dispatch *jsonDispatch `json:"dispatch,omitempty"`
}

// jsonDispatch is the dispatcher in -o json; waste is null until a run has ended.
type jsonDispatch struct {
	Discipline string      `json:"discipline"`
	Width      *uint32     `json:"width"` // null for "shared"
	Drained    bool        `json:"drained"`
	KilledS    float64     `json:"killed_s"`
	TotalS     float64     `json:"total_s"`
	Waste      *float64    `json:"waste"`
	Classes    []jsonClass `json:"classes"`
}

// jsonClass is a class with its operating point.
type jsonClass struct {
	Name         string   `json:"name"`
	Theta        float64  `json:"theta"`
	SprintAfterS *float64 `json:"sprint_after_s"`
	Why          string   `json:"why"`
	Waiting      uint32   `json:"waiting"`
}

// jsonSprint is a sprint of a job.
type jsonSprint struct {
	ID        string    `json:"id"`
	Nodes     []string  `json:"nodes"`
	CapW      float64   `json:"cap_w"`
	Since     time.Time `json:"since"`
	DurationS float64   `json:"duration_s"`
}

// jsonStage is a stage of an engine's job.
type jsonStage struct {
	ID      uint32 `json:"id"`
	Attempt uint32 `json:"attempt"`
	Name    string `json:"name"`
	Kept    uint32 `json:"kept"`
	Total   uint32 `json:"total"`
	Done    uint32 `json:"done"`
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
	// Place is in its buffer, 1 is next; null when it does not wait.
	Place *uint32 `json:"place"`
	// Run counts the executions; null before the first.
	Run *uint32 `json:"run"`
	// Theta is the drop ratio; null while the job does not run, or it is not decided.
	Theta        *float64    `json:"theta"`
	ThetaWhy     string      `json:"theta_why"`
	Seed         *uint64     `json:"seed"`
	Stopping     string      `json:"stopping_for"`
	Began        *time.Time  `json:"began_at"`
	SprintAfterS *float64    `json:"sprint_after_s"`
	SprintDue    bool        `json:"sprint_due"`
	Sprint       *jsonSprint `json:"sprint"`
	Deadline     *time.Time  `json:"deadline_at"`
	// DeadlineLeftS is below 0 for a job that is late; null where it has ended, or has none.
	DeadlineLeftS *float64    `json:"deadline_left_s"`
	Stages        []jsonStage `json:"stages,omitempty"`
	Executors     uint32      `json:"executors,omitempty"`
	Cores         uint32      `json:"cores,omitempty"`
	Surplus       uint32      `json:"surplus_executors,omitempty"`
	Source        string      `json:"source,omitempty"`
	Trouble       string      `json:"trouble,omitempty"`
	// Submitter is null if the caller was not authenticated.
	Submitter *string        `json:"submitter"`
	Admission *jsonAdmission `json:"admission"`
	// Scaling is how its speed follows its slots, as earlier runs have shown; null while unknown.
	Scaling *cli.Scaling `json:"scaling"`
	// ErrorBound is the part of its tasks that it may leave out; null for none.
	ErrorBound *float64 `json:"error_bound"`
	// Error is the part of its tasks that a job left out that is done; null before.
	Error        *float64 `json:"error"`
	Promised     uint32   `json:"promised"`
	Copies       uint32   `json:"copies"`
	CopiesWanted uint32   `json:"copies_wanted"`
	CopiesSaveS  *float64 `json:"copies_save_s"`
	WastedS      float64  `json:"wasted_s"`
	CPUS         float64  `json:"cpu_s"`
	Speculation  string   `json:"speculation"`
	// Length is short or long for a job that masters dispatch; null for others, and before it has begun.
	Length *string `json:"length"`
	// Move is the coordinators' decision about it; null without a decision or an answer, and in lists.
	Move *jsonMove `json:"move"`
	// Notes list the settings that were not applied as its owner asked.
	Notes []string `json:"notes,omitempty"`

	cli.Verdict
}

// jsonWorker is a worker in -o json.
type jsonWorker struct {
	Node      string `json:"node"`
	Slots     uint32 `json:"slots"`
	Usable    uint32 `json:"usable"`
	Running   uint32 `json:"running"`
	Connected bool   `json:"connected"`
	// Controls are what it can do with all processes of a task, and Trouble is why that is not everything; null while
	// unknown.
	Controls []string `json:"controls"`
	Trouble  *string  `json:"trouble"`
}

// controlsOf lists what a worker can do with its tasks, nil while unknown.
func controlsOf(c *headroomv1.TaskControls) (names []string, trouble *string) {
	if c == nil {
		return nil, nil
	}
	names = []string{}
	for i, has := range []bool{c.GetKill(), c.GetFreeze(), c.GetCpuTime(), c.GetMemory()} {
		if has {
			names = append(names, []string{"kill", "freeze", "cpu", "memory"}[i])
		}
	}
	return names, new(c.GetTrouble())
}

func envelope(kind string, items []any) jsonEnvelope {
	return jsonEnvelope{List: cli.NewList(kind, items)}
}

// details are the runs of jobs by the jobs' ids.
type details map[string]*headroomv1.RunDetail

func detailsOf(runs []*headroomv1.RunDetail) details {
	d := make(details, len(runs))
	for _, r := range runs {
		d[r.GetId()] = r
	}
	return d
}

// fill adds what is known of a job's run.
func (item *jsonJob) fill(j *headroomv1.Job, d *headroomv1.RunDetail) {
	p := j.GetProgress()
	item.Admission, item.ErrorBound, item.Error, item.Promised = admissionItem(j.GetAdmission()), errorBound(j), leftOut(j), p.GetPromised()
	item.Scaling, item.Verdict = cli.ScalingOf(j.GetScaling()), cli.VerdictOf(j.GetEnd())
	item.Move = moveItem(j.GetOutlook().GetMove())
	item.Copies, item.CopiesWanted, item.WastedS, item.CPUS, item.Speculation = p.GetCopies(), p.GetCopiesWanted(), p.GetWastedS(), p.GetCpuS(), d.GetSpeculation()
	item.Length = cli.Known(d.GetLength(), d.GetLength() != "")
	if p != nil {
		item.CopiesSaveS = p.CopiesSaveS
		item.Theta, item.SprintAfterS, item.SprintDue = p.Theta, p.SprintAfterS, p.GetSprintDue()
	}
	if place := p.GetPlace(); place > 0 {
		item.Place = &place
	}
	if run := p.GetRun(); run > 0 {
		item.Run = &run
	}
	if at, left, ok := deadline(j, time.Now()); ok {
		at = at.UTC()
		item.Deadline = &at
		if !ended(j) {
			item.DeadlineLeftS = new(left.Seconds())
		}
	}
	if d == nil {
		return
	}
	item.ThetaWhy, item.Stopping, item.Executors, item.Trouble = d.GetThetaWhy(), d.GetStopping(), d.GetExecutors(), d.GetTrouble()
	item.Cores, item.Surplus, item.Source = d.GetCores(), d.GetSurplus(), d.GetSource()
	if d.GetSeed() > 0 && p.GetTheta() > 0 {
		item.Seed = &d.Seed
	}
	if d.GetBeganUs() > 0 {
		item.Began = new(time.UnixMicro(d.GetBeganUs()).UTC())
	}
	if k := d.GetSprint(); k != nil {
		item.Sprint = &jsonSprint{k.GetId(), k.GetNodes(), units.Power(k.GetCapUw()).Watts(), time.UnixMicro(k.GetSinceUs()).UTC(), float64(k.GetDurationMs()) / 1000}
	}
	for _, k := range d.GetStages() {
		item.Stages = append(item.Stages, jsonStage{k.GetId(), k.GetAttempt(), k.GetName(), k.GetKept(), k.GetTotal(), k.GetDone()})
	}
}

// deadline is when a job ought to have ended, and how long that is from now, below 0
// when it has passed; false for none.
func deadline(j *headroomv1.Job, now time.Time) (at time.Time, left time.Duration, ok bool) {
	if j.DeadlineS == nil {
		return at, 0, false
	}
	at = submittedAt(j).Add(time.Duration(j.GetDeadlineS() * float64(time.Second)))
	return at, at.Sub(now), true
}

// deadlineText is the time left, or by how much it was missed.
func deadlineText(j *headroomv1.Job, now time.Time) string {
	at, left, ok := deadline(j, now)
	if !ok {
		return cli.Unknown
	}
	if ended(j) {
		if v := cli.VerdictOf(j.GetEnd()); v.Verdict != nil {
			return v.String()
		}
		return cli.Clock(at)
	}
	if left < 0 {
		return "missed by " + cli.Age(-left)
	}
	return cli.Age(left) + " left"
}

func jobItems(jobs []*headroomv1.Job, runs details) []any {
	items := make([]any, 0, len(jobs))
	for _, j := range jobs {
		p := j.GetProgress()
		item := jsonJob{
			ID: j.GetId(), Name: j.GetName(), Class: j.GetClass(), State: stateWord(j),
			Tasks: p.GetTasks(), Done: p.GetDone(), Running: p.GetRunning(), Dropped: p.GetDropped(),
			Submitted: submittedAt(j).UTC(), Outcome: j.GetOutcome(), Engine: cmp.Or(j.GetEngine(), "local"), Queue: j.GetQueue(), RunningOn: p.GetRunningOn(),
			FloorReason: jobfile.FloorReason(j.GetSpec()), Notes: jobfile.Notes(j.GetSpec()),
		}
		if name := j.GetSubmitter(); name != "" {
			item.Submitter = &name
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
		item.fill(j, runs[j.GetId()])
		items = append(items, item)
	}
	return items
}

func printJobs(w io.Writer, out *cli.Output, resp *headroomv1.ListResponse) error {
	jobs, runs := resp.GetJobs(), detailsOf(resp.GetRuns())
	if out.IsJSON() {
		e := envelope("JobList", jobItems(jobs, runs))
		e.Dispatch = dispatchItem(resp.GetDispatch())
		return out.JSON(w, e)
	}
	head := []string{"JOB", "CLASS", "STATE", "PLACE", "RUN", "THETA", "TASKS", "DONE", "RUNNING", "RUNTIME", "DEADLINE", "SUBMITTED"}
	if out.IsWide() {
		head = append(head, "DROPPED", "RATE", "SUBMITTER", "OUTCOME")
	}
	rows := make([][]string, 0, len(jobs))
	for _, j := range jobs {
		p := j.GetProgress()
		row := []string{
			j.GetId(), j.GetClass(), stateText(j, runs[j.GetId()]), positive(p.GetPlace()), positive(p.GetRun()), thetaText(p),
			number(p.GetTasks()), number(p.GetDone()), number(p.GetRunning()), runtimeText(p), deadlineText(j, time.Now()), cli.Clock(submittedAt(j)),
		}
		if out.IsWide() {
			row = append(row, number(p.GetDropped()), rateText(p), cmp.Or(j.GetSubmitter(), cli.Unknown), j.GetOutcome())
		}
		rows = append(rows, row)
	}
	if err := out.Table(w, head, rows); err != nil || !out.IsTable() || out.NoHeaders {
		return err
	}
	_, err := io.WriteString(w, dispatchText(resp.GetDispatch()))
	return err
}

// dispatchText is how jobs begin, for people; nothing where jobs only share the slots.
func dispatchText(d *headroomv1.Dispatch) string {
	var b strings.Builder
	if d.GetDrained() {
		b.WriteString("drained: no new jobs start until scheduler drain --off\n")
	}
	if d == nil || d.GetWidth() == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "discipline %s, %d at a time", d.GetDiscipline(), d.GetWidth())
	if w := (buffers.Waste{Killed: seconds(d.GetKilledS()), Total: seconds(d.GetTotalS())}); w.Killed > 0 {
		ratio, _ := w.Ratio()
		fmt.Fprintf(&b, "; killed runs took %s of %s: %s wasted", cli.Age(w.Killed), cli.Age(w.Total), units.Percent(ratio))
	}
	b.WriteString("\n")
	for _, k := range d.GetClasses() {
		if k.GetTheta() == 0 && k.SprintAfterS == nil && k.GetWhy() == scheduler.PointGiven {
			continue
		}
		fmt.Fprintf(&b, "class %s: drops %s", k.GetName(), units.Percent(k.GetTheta()))
		if k.SprintAfterS != nil {
			fmt.Fprintf(&b, ", sprints after %s", cli.Age(seconds(k.GetSprintAfterS())))
		}
		fmt.Fprintf(&b, " (%s)\n", k.GetWhy())
	}
	return b.String()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func dispatchItem(d *headroomv1.Dispatch) *jsonDispatch {
	if d == nil {
		return nil
	}
	item := &jsonDispatch{Discipline: d.GetDiscipline(), Drained: d.GetDrained(), KilledS: d.GetKilledS(), TotalS: d.GetTotalS(), Classes: []jsonClass{}}
	if width := d.GetWidth(); width > 0 {
		item.Width = &width
	}
	if ratio, known := (buffers.Waste{Killed: seconds(d.GetKilledS()), Total: seconds(d.GetTotalS())}).Ratio(); known {
		item.Waste = &ratio
	}
	for i, k := range d.GetClasses() {
		c := jsonClass{Name: k.GetName(), Theta: k.GetTheta(), SprintAfterS: k.SprintAfterS, Why: k.GetWhy()}
		if i < len(d.GetWaiting()) {
			c.Waiting = d.GetWaiting()[i]
		}
		item.Classes = append(item.Classes, c)
	}
	return item
}

// stateText is the state of a job, and that it is being killed.
func stateText(j *headroomv1.Job, d *headroomv1.RunDetail) string {
	if d.GetStopping() != "" && j.GetState() == headroomv1.JobState_JOB_STATE_RUNNING {
		return "stopping"
	}
	return stateWord(j)
}

// positive is a number that is not known at 0.
func positive(n uint32) string {
	if n == 0 {
		return cli.Unknown
	}
	return number(n)
}

func thetaText(p *headroomv1.JobProgress) string {
	if p == nil || p.Theta == nil {
		return cli.Unknown
	}
	return units.Percent(p.GetTheta())
}

// executorsText is what executors a run has.
func executorsText(d *headroomv1.RunDetail) string {
	text := number(d.GetExecutors())
	if d.GetCores() > 0 {
		text += fmt.Sprintf(" with %d cores", d.GetCores())
	}
	if d.GetSurplus() > 0 {
		text += fmt.Sprintf(", %d of them to go once nothing needs their shuffle files", d.GetSurplus())
	}
	return text
}

// stagesShown bounds the lines about stages; JSON has all that are known.
const stagesShown = 10

// dispatched are the lines about a job's run.
func dispatched(j *headroomv1.Job, d *headroomv1.RunDetail, now time.Time) (rows [][]string) {
	p := j.GetProgress()
	if p.GetPlace() > 0 {
		rows = append(rows, []string{"place", fmt.Sprintf("%d in the buffer of class %s", p.GetPlace(), j.GetClass())})
	}
	if at, _, ok := deadline(j, now); ok {
		rows = append(rows, []string{"deadline", fmt.Sprintf("%s, %s", cli.Clock(at), deadlineText(j, now))})
	}
	if why := j.GetEnd().GetWhy(); why != "" {
		rows = append(rows, []string{"verdict", why})
	}
	rows = append(rows, admissionRows(j)...)
	if part := errorBound(j); part != nil {
		rows = append(rows, []string{"error bound", fmt.Sprintf("%s: ends once %s of its map tasks are done", units.Percent(*part), units.Percent(1-*part))})
	}
	if part := leftOut(j); part != nil && *part > 0 {
		rows = append(rows, []string{"error", units.Percent(*part)})
	}
	if s := j.GetScaling(); s != nil {
		rows = append(rows, []string{"scaling", cli.ScalingText(s, "slots")})
	}
	rows = append(rows, copiesRows(j, d)...)
	rows = append(rows, moveRows(j.GetOutlook().GetMove())...)
	if d == nil {
		return rows
	}
	run := number(p.GetRun())
	if d.GetBeganUs() > 0 {
		run += ", since " + cli.Clock(time.UnixMicro(d.GetBeganUs()))
	}
	if d.GetStopping() != "" {
		run += ", being stopped for " + d.GetStopping()
	}
	if p.GetRun() > 0 {
		rows = append(rows, []string{"run", run})
	}
	switch {
	case d.GetDeciding():
		rows = append(rows, []string{"drop ratio", "waiting for the coordinators"})
	case d.GetThetaWhy() != "":
		rows = append(rows, []string{"drop ratio", fmt.Sprintf("%s: %s", thetaText(p), d.GetThetaWhy())})
	}
	if p != nil && p.SprintAfterS != nil {
		text := "due after " + cli.Age(seconds(p.GetSprintAfterS()))
		if p.GetSprintDue() {
			text = "due since " + cli.Clock(time.UnixMicro(d.GetBeganUs()).Add(seconds(p.GetSprintAfterS()))) + ", waiting for the coordinators"
		}
		if d.GetSprint() == nil {
			rows = append(rows, []string{"sprint", text})
		}
	}
	if k := d.GetSprint(); k != nil {
		rows = append(rows, []string{"sprint", fmt.Sprintf("since %s, escrow %s, %s on %s", cli.Clock(time.UnixMicro(k.GetSinceUs())),
			k.GetId(), units.Power(k.GetCapUw()), textOr(strings.Join(k.GetNodes(), ", ")))})
	}
	if d.GetExecutors() > 0 {
		rows = append(rows, []string{"executors", executorsText(d)})
	}
	if d.GetSource() != "" {
		rows = append(rows, []string{"source", d.GetSource()})
	}
	if d.GetTrouble() != "" {
		rows = append(rows, []string{"trouble", d.GetTrouble()})
	}
	for _, k := range d.GetStages()[max(0, len(d.GetStages())-stagesShown):] {
		rows = append(rows, []string{fmt.Sprintf("stage %d.%d", k.GetId(), k.GetAttempt()), fmt.Sprintf("%d of %d tasks kept, %d done  %s", k.GetKept(), k.GetTotal(), k.GetDone(), k.GetName())})
	}
	return rows
}

func printJob(w io.Writer, out *cli.Output, resp *headroomv1.ListResponse) error {
	j, d := resp.GetJobs()[0], detailsOf(resp.GetRuns())[resp.GetJobs()[0].GetId()]
	if out.IsJSON() {
		return out.JSON(w, envelope("Job", jobItems([]*headroomv1.Job{j}, detailsOf(resp.GetRuns()))))
	}
	if out.Format != "table" {
		return printJobs(w, out, resp)
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
		{"submitter", textOr(j.GetSubmitter())},
		{"outcome", textOr(j.GetOutcome())},
	}
	rows = append(rows, settingsRows(j)...)
	rows = slices.Insert(rows, slices.IndexFunc(rows, func(r []string) bool { return r[0] == "submitter" }), dispatched(j, d, time.Now())...)
	if j.GetEngine() != "" {
		engine := j.GetEngine()
		if j.GetQueue() != "" {
			engine += ", queue " + j.GetQueue()
		}
		if d.GetLength() != "" {
			engine += ", " + d.GetLength() + " job"
		}
		rows = slices.Insert(rows, 4, []string{"engine", engine}, []string{"quality floor", floorText(j)})
	} else if jobfile.FloorReason(j.GetSpec()) != "" {
		rows = slices.Insert(rows, 4, []string{"quality floor", floorText(j)})
	}
	return out.Table(w, nil, rows)
}

// settingsRows are the lines about settings that were not applied as the job's owner asked.
func settingsRows(j *headroomv1.Job) (rows [][]string) {
	for _, note := range jobfile.Notes(j.GetSpec()) {
		rows = append(rows, []string{"settings", note})
	}
	return rows
}

// floorText returns the floor with its reason, if the job has one.
func floorText(j *headroomv1.Job) string {
	text := units.Percent(cmp.Or(j.GetFloor(), 1))
	if why := jobfile.FloorReason(j.GetSpec()); why != "" {
		text += " of the map tasks: " + why
	}
	return text
}

func printWorkers(w io.Writer, out *cli.Output, workers []*headroomv1.Worker) error {
	if out.IsJSON() {
		items := make([]any, 0, len(workers))
		for _, k := range workers {
			controls, trouble := controlsOf(k.GetControls())
			items = append(items, jsonWorker{k.GetNode(), k.GetSlots(), k.GetUsable(), k.GetRunning(), k.GetConnected(), controls, trouble})
		}
		return out.JSON(w, envelope("WorkerList", items))
	}
	rows := make([][]string, 0, len(workers))
	for _, k := range workers {
		state := "ok"
		if !k.GetConnected() {
			state = "lost"
		}
		controls, _ := controlsOf(k.GetControls())
		shown := cmp.Or(strings.Join(controls, ","), cli.Unknown)
		rows = append(rows, []string{k.GetNode(), state, number(k.GetSlots()), number(k.GetUsable()), number(k.GetRunning()), shown})
	}
	return out.TableOf(w, cli.Table{Head: []string{"NODE", "STATE", "SLOTS", "USABLE", "RUNNING", "CONTROLS"}, Rows: rows, Noun: "worker"})
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
	parts := each.List(nodes, func(n string) string { return fmt.Sprintf("%s (%d)", n, p.GetRunningOn()[n]) })
	return textOr(strings.Join(parts, ", "))
}

func submittedAt(j *headroomv1.Job) time.Time { return time.UnixMicro(j.GetSubmittedUs()) }

// ended reports whether the job is in a final state.
func ended(j *headroomv1.Job) bool {
	switch j.GetState() {
	case headroomv1.JobState_JOB_STATE_DONE, headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
		return true
	default:
		return false
	}
}
