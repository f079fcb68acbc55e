package command

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

func jobCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "job", Short: "Show jobs", Example: "  coordinator job list\n  coordinator job explain words-7f3a"}
	group.AddCommand(jobList(o), jobShow(o), jobExplain(o))
	return group
}

func jobList(o *operator) *cobra.Command {
	var w cli.Watch
	var chosen cli.JobFilter
	stale := false
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"watch"}, Short: "List jobs and their progress", Args: cobra.NoArgs,
		Example: "  coordinator job list\n  coordinator job list --missed --since 24h\n  coordinator job watch --interval 2s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.On = w.On || cmd.CalledAs() == "watch"
			return w.Run(cmd, func() error {
				r, err := o.jobs(cmd, "job list", &headroomv1.ListJobsRequest{Stale: stale, WithoutSpecs: true})
				if err != nil {
					return err
				}
				jobs := chosen.Of(r.GetJobs(), time.Now())
				return o.print(cmd, &w, wrap("JobList", r.GetMeta(), jobItems(jobs)), func(out io.Writer) error {
					return o.jobTable(out, jobs)
				})
			})
		},
	}
	w.Flags(cmd)
	chosen.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

func jobShow(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "show JOB...", Short: "Show jobs in detail", Args: cobra.MinimumNArgs(1),
		Example: "  coordinator job show words-7f3a\n  coordinator job show words-7f3a --watch",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return w.Run(cmd, func() error {
				r, err := o.jobs(cmd, "job show", &headroomv1.ListJobsRequest{Stale: stale})
				if err != nil {
					return err
				}
				jobs, err := jobsNamed(r.GetJobs(), ids)
				if err != nil {
					return err
				}
				return o.print(cmd, &w, wrap("JobList", r.GetMeta(), jobDetails(jobs)), func(out io.Writer) error {
					for _, j := range jobs {
						if _, err := io.WriteString(out, jobText(j)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

// jobs reads all jobs, page by page; the answer is the last page's, with the jobs of all.
func (o *operator) jobs(cmd *cobra.Command, doing string, req *headroomv1.ListJobsRequest) (*headroomv1.ListJobsResponse, error) {
	var jobs []*headroomv1.Job
	for {
		r, err := callOn(cmd.Context(), o, doing, req, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ListJobs)
		if err != nil {
			return nil, err
		}
		page := r.GetJobs()
		jobs = append(jobs, page...)
		if !r.GetMore() || len(page) == 0 {
			r.Jobs = jobs
			staleNote(cmd, r.GetMeta())
			return r, nil
		}
		req.After = page[len(page)-1].GetId()
	}
}

// jobsNamed are the jobs with these ids, in the order asked for.
func jobsNamed(jobs []*headroomv1.Job, ids []string) ([]*headroomv1.Job, error) {
	var out []*headroomv1.Job
	for _, id := range ids {
		i := slices.IndexFunc(jobs, func(j *headroomv1.Job) bool { return j.GetId() == id })
		if i < 0 {
			e := cli.Usage("job %q: unknown job", id)
			e.Code, e.Hint = "unknown-job", "coordinator job list lists the jobs"
			return nil, e
		}
		out = append(out, jobs[i])
	}
	return out, nil
}

// jobDetail is a job as `job show` tells it.
type jobDetail struct {
	jobItem

	RunningOn map[string]uint32 `json:"running_on"`
	Spec      string            `json:"spec"`
}

func jobDetails(jobs []*headroomv1.Job) []jobDetail {
	out := make([]jobDetail, 0, len(jobs))
	for _, j := range jobs {
		on := maps.Clone(j.GetProgress().GetRunningOn())
		if on == nil {
			on = map[string]uint32{}
		}
		out = append(out, jobDetail{jobItems([]*headroomv1.Job{j})[0], on, string(j.GetSpec())})
	}
	return out
}

func jobText(j *headroomv1.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%s)  class %s, %s\n", j.GetId(), j.GetName(), j.GetClass(), jobState(j.GetState()))
	fmt.Fprintf(&b, "  submitted  %s\n", cli.Clock(time.UnixMicro(j.GetSubmittedUs())))
	if p := j.GetProgress(); p != nil {
		fmt.Fprintf(&b, "  progress   %d of %d done, %d running, %d dropped, %s, for %s\n", p.GetDone(), p.GetTasks(), p.GetRunning(), p.GetDropped(), shownRate(p), shownRuntime(p))
		for _, node := range slices.Sorted(maps.Keys(p.GetRunningOn())) {
			fmt.Fprintf(&b, "  runs on    %s: %d\n", node, p.GetRunningOn()[node])
		}
	}
	b.WriteString(outlookText(j))
	if e := j.GetEnergy(); e != nil {
		fmt.Fprintf(&b, "  energy     %s\n", shownEnergy(e))
	}
	b.WriteString(moveText(j))
	if v := cli.VerdictOf(j.GetEnd()); v.Verdict != nil {
		fmt.Fprintf(&b, "  deadline   %s: %s\n", v, j.GetEnd().GetWhy())
	}
	if j.GetOutcome() != "" {
		fmt.Fprintf(&b, "  outcome    %s\n", j.GetOutcome())
	}
	if spec := strings.TrimSpace(string(j.GetSpec())); spec != "" {
		fmt.Fprintf(&b, "  job file\n    %s\n", strings.ReplaceAll(spec, "\n", "\n    "))
	}
	return b.String()
}

// outlookText tells what is promised, expected and decided.
func outlookText(j *headroomv1.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  engine     %s", j.GetEngine())
	if j.GetQueue() != "" {
		fmt.Fprintf(&b, ", queue %s", j.GetQueue())
	}
	if p := j.GetProgress(); p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_UNSPECIFIED {
		fmt.Fprintf(&b, ", phase %s", phaseName(p.GetPhase()))
	}
	fmt.Fprintf(&b, "\n  floor      %s of its map tasks\n", shownFloor(j))
	if o := j.GetOutlook(); o != nil {
		between := ""
		if o.FinishLowS != nil && o.FinishHighS != nil {
			between = fmt.Sprintf(" (%.0f to %.0f s in 9 of 10 cases)", o.GetFinishLowS(), o.GetFinishHighS())
		}
		without := ""
		if o.UncappedLowS != nil && o.UncappedHighS != nil {
			without = fmt.Sprintf(" (%.0f to %.0f s)", o.GetUncappedLowS(), o.GetUncappedHighS())
		}
		fmt.Fprintf(&b, "  finish     %s%s, uncapped %s%s, stretch %s\n", shownFinish(j), between, cli.Opt(uncapped(j), shownSeconds), without,
			cli.Opt(stretch(j), func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }))
		by := "as the engine divides them"
		if o.Containers != nil {
			by = "by policy " + o.GetPolicy()
		}
		fmt.Fprintf(&b, "  containers %s %s, cap %s of full power\n", shownHeld(j), by, shownCap(j))
		fmt.Fprintf(&b, "  why        %s\n", o.GetWhy())
	} else if d := uncapped(j); d != nil {
		fmt.Fprintf(&b, "  uncapped   %s\n", shownSeconds(*d))
	}
	if j.GetState() == headroomv1.JobState_JOB_STATE_DONE {
		fmt.Fprintf(&b, "  estimates  %s\n", shownErrors(j.GetEstimateErrors()))
	}
	if x := j.GetStop(); x != nil {
		fmt.Fprintf(&b, "  stop       at %d of %d tasks: %s\n", x.GetMinTasks(), x.GetTasks(), cmp.Or(x.GetReason(), cli.Unknown))
	}
	var dropped []string
	for _, r := range j.GetDropped() {
		if r.GetFirst() == r.GetLast() {
			dropped = append(dropped, fmt.Sprint(r.GetFirst()))
			continue
		}
		dropped = append(dropped, fmt.Sprintf("%d-%d", r.GetFirst(), r.GetLast()))
	}
	if len(dropped) > 0 {
		fmt.Fprintf(&b, "  dropped    tasks %s\n", strings.Join(dropped, ", "))
	}
	return b.String()
}

// shownErrors is how far off the finish times of a job that is done were.
func shownErrors(errs []*headroomv1.EstimateError) string {
	if len(errs) == 0 {
		return cli.Unknown
	}
	words := each.Of(errs, func(e *headroomv1.EstimateError) string {
		return fmt.Sprintf("%.1f %% (%s)", 100*e.GetMeanError(), e.GetPolicy())
	})
	return fmt.Sprintf("off by %s over %d looks", strings.Join(words, ", "), errs[0].GetSamples())
}

// shownEnergy is what nodes drew for a job, over how much of its time that was measured, and from when on.
func shownEnergy(e *headroomv1.JobEnergy) string {
	gap := ""
	if e.GetUnknownS() >= 1 {
		gap = fmt.Sprintf(", unknown for %.0f s", e.GetUnknownS())
	}
	return fmt.Sprintf("%s, measured for %.0f s of its nodes%s, since %s by %s", units.Energy(e.GetUj()), e.GetMeasuredS(), gap,
		shownTime(e.GetSinceUs()), cmp.Or(strings.Join(e.GetFrom(), " and "), "what nodes count"))
}

func shownRate(p *headroomv1.JobProgress) string {
	return cli.Opt(p.RatePerS, func(r float64) string { return fmt.Sprintf("%.2f/s", r) })
}

func shownRuntime(p *headroomv1.JobProgress) string {
	return cli.Opt(p.RuntimeS, func(s float64) string { return cli.Age(time.Duration(s * float64(time.Second))) })
}

type jobItem struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Class       string   `json:"class"`
	State       string   `json:"state"`
	Tasks       *uint32  `json:"tasks"`
	Done        *uint32  `json:"done"`
	Running     *uint32  `json:"running"`
	Dropped     *uint32  `json:"dropped"`
	RatePerS    *float64 `json:"rate_per_s"`
	RuntimeS    *float64 `json:"runtime_s"`
	SubmittedAt string   `json:"submitted_at"`
	Outcome     string   `json:"outcome"`

	Engine     string      `json:"engine"`
	Queue      *string     `json:"queue"`
	Phase      *string     `json:"phase"`
	Floor      float64     `json:"floor"`
	MinTasks   *uint32     `json:"min_tasks"`
	AimTasks   *uint32     `json:"aim_tasks"`
	FinishS    *float64    `json:"finish_s"`
	FinishLow  *float64    `json:"finish_low_s"`
	FinishHigh *float64    `json:"finish_high_s"`
	UncappedS  *float64    `json:"uncapped_s"`
	UncapLow   *float64    `json:"uncapped_low_s"`
	UncapHigh  *float64    `json:"uncapped_high_s"`
	Stretch    *float64    `json:"stretch"`
	CapShare   *float64    `json:"cap_share"`
	Containers *uint32     `json:"containers"`
	Given      *uint32     `json:"containers_given"`
	Policy     *string     `json:"policy"`
	Stop       *stopItem   `json:"stop"`
	DroppedAre []taskRange `json:"dropped_tasks"`
	Why        *string     `json:"why"`

	Errors *[]estimateError `json:"estimate_errors"`

	Energy         *float64       `json:"energy_j"`
	EnergyMeasured *float64       `json:"energy_measured_s"`
	EnergyUnknown  *float64       `json:"energy_unknown_s"`
	EnergySince    *string        `json:"energy_since"`
	Rank           uint32         `json:"rank"`
	DeadlineS      *float64       `json:"deadline_s"`
	Deflation      *deflationItem `json:"deflation"`
	Move           *jobMoveItem   `json:"move"`

	// Admission is what was decided about its deadline at the door; null for a job that was not asked about.
	Admission    *admissionItem `json:"admission"`
	ErrorBound   *float64       `json:"error_bound"`
	Promised     *uint32        `json:"promised"`
	Copies       *uint32        `json:"copies"`
	CopiesWanted *uint32        `json:"copies_wanted"`
	CopiesSaveS  *float64       `json:"copies_save_s"`
	WastedS      *float64       `json:"wasted_s"`
	// Scaling is how its speed follows its containers, as earlier runs have shown; null while unknown.
	Scaling *cli.Scaling `json:"scaling"`

	cli.Verdict
}

// admissionItem is what was decided about a job's deadline at the door.
type admissionItem struct {
	Decision   string   `json:"decision"`
	Slots      uint32   `json:"slots"`
	Need       *uint32  `json:"need"`
	Free       uint32   `json:"free"`
	WorkS      *float64 `json:"work_s"`
	Confidence *float64 `json:"confidence"`
	Samples    uint32   `json:"samples"`
	Until      *string  `json:"until" of:"until_us"`
	Finish     *string  `json:"finish" of:"finish_us"`
	Reason     string   `json:"reason"`
}

// admissionItemOf is an admission for programs, nil for none.
func admissionItemOf(a *headroomv1.Admission) *admissionItem {
	if a == nil {
		return nil
	}
	item := &admissionItem{}
	cli.Fill(item, a)
	return item
}

// estimateError is how far off the finish times by one policy were, as a part of the true runtime.
type estimateError struct {
	Policy    string  `json:"policy"`
	MeanError float64 `json:"mean_error"`
	Samples   uint32  `json:"samples"`
}

// stopItem is the early stop in force.
type stopItem struct {
	Tasks    uint32 `json:"tasks"`
	MinTasks uint32 `json:"min_tasks"`
	Reason   string `json:"reason"`
	At       string `json:"at"`
}

// taskRange is map tasks, both ends included, counted from 0.
type taskRange struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// jobState is a job's state in words.
func jobState(s headroomv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

func jobItems(jobs []*headroomv1.Job) []jobItem {
	out := make([]jobItem, 0, len(jobs))
	for _, j := range jobs {
		item := jobItem{
			ID: j.GetId(), Name: j.GetName(), Class: j.GetClass(), State: jobState(j.GetState()),
			SubmittedAt: stamped(j.GetSubmittedUs()), Outcome: j.GetOutcome(),
		}
		if p := j.GetProgress(); p != nil {
			item.Tasks, item.Done, item.Running, item.Dropped = &p.Tasks, &p.Done, &p.Running, &p.Dropped
			item.RatePerS, item.RuntimeS = p.RatePerS, p.RuntimeS
			item.ErrorBound, item.Promised = p.Error, cli.Known(p.GetPromised(), p.GetPromised() > 0)
			item.Copies, item.CopiesWanted, item.CopiesSaveS, item.WastedS = &p.Copies, &p.CopiesWanted, p.CopiesSaveS, &p.WastedS
			item.Containers = cli.Known(p.GetContainers(), p.GetContainers() > 0)
			item.Phase = cli.Known(phaseName(p.GetPhase()), p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_UNSPECIFIED)
		}
		item.Admission, item.Scaling, item.Verdict = admissionItemOf(j.GetAdmission()), cli.ScalingOf(j.GetScaling()), cli.VerdictOf(j.GetEnd())
		item.outlook(j)
		if e := j.GetEnergy(); e != nil {
			item.Energy, item.EnergyMeasured, item.EnergyUnknown = new(units.Energy(e.GetUj()).Joules()), new(e.GetMeasuredS()), new(e.GetUnknownS())
			item.EnergySince = new(stamped(e.GetSinceUs()))
		}
		out = append(out, item)
	}
	return out
}

// outlook fills in what is expected of a job and decided for it.
func (item *jobItem) outlook(j *headroomv1.Job) {
	item.Engine, item.Queue, item.Floor, item.UncappedS = j.GetEngine(), cli.Known(j.GetQueue(), j.GetQueue() != ""), j.GetFloor(), uncapped(j)
	item.Stretch, item.DroppedAre = stretch(j), cli.Filled[taskRange](j.GetDropped())
	item.Rank, item.DeadlineS, item.Deflation, item.Move = j.GetRank(), j.DeadlineS, deflationItemOf(j.GetDeflation()), jobMoveItemOf(j.GetOutlook().GetMove())
	if x := j.GetStop(); x != nil {
		item.Stop = &stopItem{}
		cli.Fill(item.Stop, x)
	}
	if len(j.GetEstimateErrors()) > 0 {
		item.Errors = new(cli.Filled[estimateError](j.GetEstimateErrors()))
	}
	o := j.GetOutlook()
	if o == nil {
		return
	}
	item.MinTasks, item.AimTasks = cli.Known(o.GetMinTasks(), o.GetMinTasks() > 0), cli.Known(o.GetAimTasks(), o.GetAimTasks() > 0)
	item.FinishS, item.FinishLow, item.FinishHigh = o.FinishS, o.FinishLowS, o.FinishHighS
	item.UncapLow, item.UncapHigh = o.UncappedLowS, o.UncappedHighS
	item.CapShare, item.Given = o.CapShare, o.Containers
	item.Policy, item.Why = cli.Known(o.GetPolicy(), o.GetPolicy() != ""), cli.Known(o.GetWhy(), o.GetWhy() != "")
}

// uncapped is when the job would end without a cap: as committed, else as expected; nil while unknown.
func uncapped(j *headroomv1.Job) *float64 {
	if j.UncappedS != nil {
		return j.UncappedS
	}
	if o := j.GetOutlook(); o != nil {
		return o.UncappedS
	}
	return nil
}

// stretch is by how much the job ends later than without a cap, as a part of that
// time; 0 when it does not; nil while unknown.
func stretch(j *headroomv1.Job) *float64 {
	d, o := uncapped(j), j.GetOutlook()
	if d == nil || *d <= 0 || o == nil || o.FinishS == nil {
		return nil
	}
	return new(max(0, (o.GetFinishS()-*d) / *d))
}

// phaseName is what a running job does, in words.
func phaseName(p headroomv1.JobPhase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "JOB_PHASE_"))
}

func shownSeconds(s float64) string { return fmt.Sprintf("%.0f s", s) }

// shownFloor is the least tasks that a job may end on, and as a part of all.
func shownFloor(j *headroomv1.Job) string {
	floor, p := j.GetFloor(), j.GetProgress()
	if p.GetWhole() {
		floor = 1 // nothing in it can leave out a task
	}
	text := fmt.Sprintf("%.4g %%", 100*floor)
	if n := p.GetTasks(); n > 0 {
		return fmt.Sprintf("%d (%s)", units.Ratio(floor).Least(int(n)), text)
	}
	return text
}

// shownHeld are the containers that a job holds, and those it was given.
func shownHeld(j *headroomv1.Job) string {
	held := cli.Unknown
	if n := j.GetProgress().GetContainers(); n > 0 {
		held = fmt.Sprint(n)
	}
	if o := j.GetOutlook(); o != nil && o.Containers != nil {
		return fmt.Sprintf("%s/%d", held, o.GetContainers())
	}
	return held
}

func shownCap(j *headroomv1.Job) string {
	if o := j.GetOutlook(); o != nil {
		return cli.Opt(o.CapShare, func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) })
	}
	return cli.Unknown
}

func shownFinish(j *headroomv1.Job) string {
	if o := j.GetOutlook(); o != nil {
		return cli.Opt(o.FinishS, shownSeconds)
	}
	return cli.Unknown
}

// shownPromise is what the job was promised, and its error bound and copies, as far as there are any.
func shownPromise(j *headroomv1.Job) string {
	var words []string
	if v := cli.VerdictOf(j.GetEnd()); v.Verdict != nil {
		words = append(words, v.String())
	}
	p := j.GetProgress()
	switch n := cmp.Or(p.GetPromised(), j.GetAdmission().GetSlots()); {
	case n > 0:
		words = append(words, fmt.Sprintf("%d containers", n))
	case j.GetAdmission() != nil:
		words = append(words, j.GetAdmission().GetDecision())
	}
	if p != nil && p.Error != nil {
		words = append(words, "error "+units.Percent(p.GetError()))
	}
	if p.GetCopies() > 0 {
		words = append(words, fmt.Sprintf("%d copies", p.GetCopies()))
	}
	return cmp.Or(strings.Join(words, ", "), cli.Unknown)
}

func (o *operator) jobTable(w io.Writer, jobs []*headroomv1.Job) error {
	var rows [][]string
	for _, j := range jobs {
		done, running, rate, runtime := cli.Unknown, cli.Unknown, cli.Unknown, cli.Unknown
		if p := j.GetProgress(); p != nil {
			done, running = fmt.Sprintf("%d/%d", p.GetDone(), p.GetTasks()), fmt.Sprint(p.GetRunning())
			rate, runtime = shownRate(p), shownRuntime(p)
		}
		rows = append(rows, []string{
			j.GetId(), j.GetName(), j.GetClass(), jobState(j.GetState()), done, running, rate, runtime,
			shownCap(j), shownFinish(j), cli.Opt(uncapped(j), shownSeconds), shownFloor(j), shownHeld(j), shownPromise(j), cmp.Or(j.GetOutlook().GetWhy(), cli.Unknown),
		})
	}
	return o.out.Table(w, []string{"JOB", "NAME", "CLASS", "STATE", "DONE", "RUNNING", "RATE", "RUNTIME", "CAP", "FINISH", "UNCAPPED", "FLOOR", "CONTAINERS", "PROMISE", "WHY"}, rows)
}
