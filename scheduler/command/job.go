package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
)

func submitCommand(path string) *cobra.Command {
	var (
		w      jobWait
		why    change
		dryRun bool
		queue  bool
		wait   bool
	)
	to, out := &w.to, &w.out
	cmd := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a job",
		Long: "Submit a job. The command returns once the job is committed; it then survives a crash of any server.\n\n" +
			"Keys of a job file (YAML). Relative paths are relative to folder; folder is relative to the job file:\n" +
			"  name            short name, the prefix of the job's id\n" +
			"  class           priority class defined in scheduler.yaml\n" +
			"  slots           maximum number of concurrent tasks; none with dispatch: pigeon\n" +
			"  dispatch        pigeon: masters dispatch the tasks; default the scheduler itself\n" +
			"  length          short or long, with dispatch: pigeon; default by task_time, or else by the class\n" +
			"  task_time       expected time of a task, 800ms, with dispatch: pigeon\n" +
			"  map.input       glob; each file is the input of one map task\n" +
			"  map.tasks       number of map tasks of a job without input files, instead of map.input\n" +
			"  map.command     program and arguments; {input}, {output} and {index} are replaced\n" +
			"  reduce.command  program and arguments, followed by the map outputs; without reduce, the map outputs are the result\n" +
			"  output          folder for the results\n" +
			"  min_tasks       minimum fraction of the map tasks needed for a result, 75% or 0.75; default all\n" +
			"  quality         minimum accuracy of the result, 90% or 0.9; the profile gives the number of map tasks\n" +
			"  profile         name of the profile in the scheduler's profile folder; default the job's name\n" +
			"  error           fraction of the map tasks that may be missing, 5% or 0.05; the job ends once the others are done\n" +
			"  max_attempts    maximum attempts of one task; default 3\n" +
			"  deadline        time from submission to completion, 5m; default that of its class. A job with a deadline is accepted\n" +
			"                  only if the deadline can be met; a job that may end with fewer tasks ends at its deadline\n" +
			"  folder          working directory of the tasks\n\n" +
			"A Spark application has a section spark instead of map, reduce and output; slots is its maximum number of cores:\n" +
			"  spark.application  jar or Python program\n" +
			"  spark.main         main class of a jar; default the one that its manifest names\n" +
			"  spark.args         its arguments\n" +
			"  spark.conf         properties, spark.executor.memory: 1g\n" +
			"  spark.jars         additional jars\n\n" +
			"The strictest of min_tasks, quality and error applies, as evaluated at submission. Without a usable profile all map\n" +
			"tasks must be done; the answer prints the reason as settings, a dry run too." +
			strings.Replace(promiseLong, "The exit code", "With --wait the exit code", 1),
		Example: "  " + path + " words.yaml --reason \"weekly report\"\n  " + path + " words.yaml --dry-run\n  " + path + " words.yaml --queue\n  " + path + " words.yaml --wait --timeout 1h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait && dryRun || w.limit != 0 && !wait {
				return cli.Usage("--timeout needs --wait, and --wait cannot be combined with --dry-run")
			}
			why.fill()
			req, err := submitRequest(args[0], dryRun, queue, why)
			if err != nil {
				return err
			}
			resp, err := ask(cmd.Context(), to, "submit", headroomv1connect.SchedulerServiceClient.Submit, req)
			if err != nil {
				return withRequest(err, why.requestID)
			}
			if !wait || out.IsTable() {
				if err := printSubmitted(cmd, out, resp, dryRun, queue); err != nil {
					return err
				}
			}
			if wait {
				w.heard = time.Now()
				return w.run(cmd, []string{resp.GetJob().GetId()}, resp.GetRevision())
			}
			return scheduler.Refused(resp.GetJob().GetName(), resp.GetJob().GetAdmission(), queue || !dryRun)
		},
	}
	w.flags(cmd)
	why.flags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the job and exit by its promise")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the job and whether its deadline can be met; submit nothing")
	cmd.Flags().BoolVar(&queue, "queue", false, "if too few slots are free for the deadline, wait for them while it can still be met")
	return cmd
}

func submitRequest(name string, dryRun, queue bool, why change) (*headroomv1.SubmitRequest, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("scheduler: job file %s: %w", name, err)
	}
	data, err := readJobFile(path)
	if err != nil {
		return nil, err
	}
	return &headroomv1.SubmitRequest{
		Spec: data, File: path, DryRun: dryRun, Queue: queue,
		Change: &headroomv1.Change{Actor: cli.Actor(), Reason: why.reason, RequestId: why.requestID},
	}, nil
}

// readJobFile reads a job file up to the size that the scheduler accepts.
func readJobFile(path string) ([]byte, error) {
	data, err := config.ReadFile(path, jobfile.SizeMax+1)
	if err == nil {
		return data, nil
	}
	cause := err
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		cause = e.Err
	}
	return nil, &cli.Error{
		Code: "job-file", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("job file %s: %v", path, cause),
		Hint: "name a readable job file (YAML)",
	}
}

// withRequest adds the idempotency key to retry with.
func withRequest(err error, id string) error {
	e, ok := errors.AsType[*cli.Error](err)
	if !ok {
		return err
	}
	named := *e
	named.RequestID = id
	if named.Exit == cli.ExitUnknown {
		named.Hint = "outcome unknown; retry with --request-id " + id
	}
	return &named
}

func printSubmitted(cmd *cobra.Command, out *cli.Output, r *headroomv1.SubmitResponse, dryRun, queue bool) error {
	w := cmd.OutOrStdout()
	j := r.GetJob()
	switch {
	case out.IsJSON():
		env := envelope("Job", jobItems([]*headroomv1.Job{j}, nil))
		env.Revision, env.DryRun = r.GetRevision(), dryRun
		return out.JSON(w, env)
	case out.Format == "name":
		_, err := fmt.Fprintln(w, j.GetId())
		return err
	}
	did := fmt.Sprintf("accepted at revision %d", r.GetRevision())
	switch {
	case dryRun && scheduler.Refused("", j.GetAdmission(), queue) != nil:
		did = "would be refused (dry run, nothing changed)"
	case dryRun:
		did = "would be accepted (dry run, nothing changed)"
	case r.GetRevision() == 0:
		did = "was already accepted by the same request, now " + stateWord(j)
	}
	work := cli.Count(int(j.GetProgress().GetTasks()), "task")
	switch j.GetEngine() {
	case "":
	case jobfile.Pigeon:
		work += ", dispatched by masters"
	default:
		work = "on " + j.GetEngine()
	}
	if _, err := fmt.Fprintf(w, "job %s %s: class %s, %s\n", j.GetId(), did, j.GetClass(), work); err != nil {
		return err
	}
	rows := append(settingsRows(j), admissionRows(j)...)
	if len(rows) == 0 {
		return nil
	}
	return out.Table(w, nil, rows)
}

func listCommand(path string) *cobra.Command {
	var (
		to      target
		out     cli.Output
		chosen  cli.JobFilter
		workers bool
		groups  bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List jobs, workers, or groups of workers",
		Example: "  " + path + "\n  " + path + " -o json\n  " + path + " --missed --since 24h\n  " + path + " --workers\n  " + path + " --groups",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := to.list(cmd.Context(), "")
			if err != nil {
				return err
			}
			if groups {
				return printGroups(cmd.OutOrStdout(), &out, resp.GetGroups())
			}
			if workers {
				return printWorkers(cmd.OutOrStdout(), &out, resp.GetWorkers())
			}
			resp.Jobs = chosen.Of(resp.GetJobs(), time.Now())
			return printJobs(cmd.OutOrStdout(), &out, resp)
		},
	}
	to.flags(cmd)
	out.Flags(cmd)
	chosen.Flags(cmd)
	cmd.Flags().BoolVar(&workers, "workers", false, "list workers instead")
	cmd.Flags().BoolVar(&groups, "groups", false, "list groups of workers instead, with their masters and queues")
	cmd.MarkFlagsMutuallyExclusive("workers", "groups")
	return cmd
}

func (t *target) list(ctx context.Context, id string) (*headroomv1.ListResponse, error) {
	return ask(ctx, t, doingList, headroomv1connect.SchedulerServiceClient.List, &headroomv1.ListRequest{Id: id})
}

func showCommand(path string) *cobra.Command {
	var (
		to  target
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one job",
		Example: "  " + path + " words-7f3a90c1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: to.jobIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			resp, err := to.list(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(resp.GetJobs()) == 0 || args[0] == "" {
				return scheduler.NoJob(args[0])
			}
			return printJob(cmd.OutOrStdout(), &out, resp)
		},
	}
	to.flags(cmd)
	out.Flags(cmd)
	return cmd
}

func cancelCommand(path string) *cobra.Command {
	var (
		to  target
		why change
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a job and stop its tasks", ValidArgsFunction: to.jobIDs,
		Example: "  " + path + " words-7f3a90c1 --reason \"wrong input\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			why.fill()
			req := &headroomv1.CancelRequest{Id: args[0], Change: &headroomv1.Change{Actor: cli.Actor(), Reason: why.reason, RequestId: why.requestID}}
			resp, err := ask(cmd.Context(), &to, "cancel", headroomv1connect.SchedulerServiceClient.Cancel, req)
			if err != nil {
				return withRequest(err, why.requestID)
			}
			return printCancelled(cmd.OutOrStdout(), &out, args[0], resp.GetRevision())
		},
	}
	to.flags(cmd)
	why.flags(cmd)
	out.Flags(cmd)
	return cmd
}

func printCancelled(w io.Writer, out *cli.Output, id string, revision uint64) error {
	if out.IsJSON() {
		env := envelope("Job", []any{struct {
			ID    string `json:"id"`
			State string `json:"state"`
		}{id, dispatch.Cancelled.String()}})
		env.Revision = revision
		return out.JSON(w, env)
	}
	text := fmt.Sprintf("job %s cancelled at revision %d", id, revision)
	if revision == 0 {
		text = fmt.Sprintf("job %s was already cancelled", id)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// stateWord is a job's state in words.
func stateWord(j *headroomv1.Job) string {
	s := j.GetState()
	if s == headroomv1.JobState_JOB_STATE_UNSPECIFIED {
		return cli.Unknown
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}
