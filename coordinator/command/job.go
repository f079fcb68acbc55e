package command

import (
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
)

func jobCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "job", Short: "Show jobs", Example: "  coordinator job list\n  coordinator job show words-7f3a"}
	group.AddCommand(jobList(o), jobShow(o))
	return group
}

func jobList(o *operator) *cobra.Command {
	var w watching
	stale := false
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"watch"}, Short: "List jobs with their progress; watch goes on", Args: cobra.NoArgs,
		Example: "  coordinator job list\n  coordinator job watch --interval 2s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.on = w.on || cmd.CalledAs() == "watch"
			return w.run(cmd, func() error {
				r, err := o.jobs(cmd, "job list", &headroomv1.ListJobsRequest{Stale: stale, WithoutSpecs: true})
				if err != nil {
					return err
				}
				return o.print(cmd, &w, wrap("JobList", r.GetMeta(), jobItems(r.GetJobs())), func(out io.Writer) error {
					return o.jobTable(out, r.GetJobs())
				})
			})
		},
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "ask the addressed server itself, without the leader")
	return cmd
}

func jobShow(o *operator) *cobra.Command {
	var w watching
	stale := false
	cmd := &cobra.Command{
		Use: "show JOB...", Short: "Show some jobs: where they run, how they ended, and their job file", Args: cobra.MinimumNArgs(1),
		Example: "  coordinator job show words-7f3a\n  coordinator job show words-7f3a --watch",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return w.run(cmd, func() error {
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
	w.flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "ask the addressed server itself, without the leader")
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
	for i, item := range jobItems(jobs) {
		on := maps.Clone(jobs[i].GetProgress().GetRunningOn())
		if on == nil {
			on = map[string]uint32{}
		}
		out = append(out, jobDetail{item, on, string(jobs[i].GetSpec())})
	}
	return out
}

func jobText(j *headroomv1.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%s)  class %s, %s\n", j.GetId(), j.GetName(), j.GetClass(), jobState(j.GetState()))
	fmt.Fprintf(&b, "  submitted  %s\n", time.UnixMicro(j.GetSubmittedUs()).Local().Format(time.DateTime))
	if p := j.GetProgress(); p != nil {
		fmt.Fprintf(&b, "  progress   %d of %d done, %d running, %d dropped, %s, for %s\n", p.GetDone(), p.GetTasks(), p.GetRunning(), p.GetDropped(), shownRate(p), shownRuntime(p))
		for _, node := range slices.Sorted(maps.Keys(p.GetRunningOn())) {
			fmt.Fprintf(&b, "  runs on    %s: %d\n", node, p.GetRunningOn()[node])
		}
	}
	if j.GetOutcome() != "" {
		fmt.Fprintf(&b, "  outcome    %s\n", j.GetOutcome())
	}
	if spec := strings.TrimSpace(string(j.GetSpec())); spec != "" {
		fmt.Fprintf(&b, "  job file\n    %s\n", strings.ReplaceAll(spec, "\n", "\n    "))
	}
	return b.String()
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
			SubmittedAt: time.UnixMicro(j.GetSubmittedUs()).UTC().Format(time.RFC3339Nano), Outcome: j.GetOutcome(),
		}
		if p := j.GetProgress(); p != nil {
			item.Tasks, item.Done, item.Running, item.Dropped = &p.Tasks, &p.Done, &p.Running, &p.Dropped
			item.RatePerS, item.RuntimeS = p.RatePerS, p.RuntimeS
		}
		out = append(out, item)
	}
	return out
}

func (o *operator) jobTable(w io.Writer, jobs []*headroomv1.Job) error {
	var rows [][]string
	for _, j := range jobs {
		done, running, rate, runtime := cli.Unknown, cli.Unknown, cli.Unknown, cli.Unknown
		if p := j.GetProgress(); p != nil {
			done, running = fmt.Sprintf("%d/%d", p.GetDone(), p.GetTasks()), fmt.Sprint(p.GetRunning())
			rate, runtime = shownRate(p), shownRuntime(p)
		}
		rows = append(rows, []string{j.GetId(), j.GetName(), j.GetClass(), jobState(j.GetState()), done, running, rate, runtime})
	}
	return o.out.Table(w, []string{"JOB", "NAME", "CLASS", "STATE", "DONE", "RUNNING", "RATE", "RUNTIME"}, rows)
}
