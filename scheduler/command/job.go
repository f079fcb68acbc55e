package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
)

func submitCommand() *cobra.Command {
	var (
		to     target
		why    change
		out    cli.Output
		dryRun bool
		queue  bool
	)
	cmd := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a job",
		Long: "Submit a job. The command returns when the job is committed: from then on it survives every crash.\n\n" +
			"Keys of a job file (YAML); relative paths begin at folder, and folder at the job file's own:\n" +
			"  name            short name; the job's id begins with it\n" +
			"  class           priority class, one of the scheduler's\n" +
			"  slots           most tasks at once\n" +
			"  map.input       glob; each file is the input of one map task\n" +
			"  map.command     program and arguments; {input}, {output} and {index} are replaced\n" +
			"  reduce.command  program and arguments, the map outputs follow; without reduce those are the result\n" +
			"  output          folder for the results\n" +
			"  min_tasks       least part of the map tasks that counts as a result, 75% or 0.75; otherwise all\n" +
			"  quality         least accuracy of the result, 90% or 0.9: as many map tasks as its profile says\n" +
			"  profile         name of that profile in the scheduler's folder of profiles; otherwise the job's name\n" +
			"  error           part of the map tasks that the result may do without, 5% or 0.05: the job ends as soon as the others are done\n" +
			"  max_attempts    how often one task may fail; otherwise 3\n" +
			"  deadline        when it ought to have ended, from its submission, 5m; otherwise its class's. A job that names one is\n" +
			"                  accepted only where the deadline can be kept, and where it may end on fewer tasks, it then ends\n" +
			"  folder          where tasks run\n\n" +
			"An application of Spark has a section spark instead of map, reduce and output, and slots are its most cores:\n" +
			"  spark.application  jar or Python program; spark.main is the class of a jar\n" +
			"  spark.args         its arguments\n" +
			"  spark.conf         properties, spark.executor.memory: 1g\n" +
			"  spark.jars         further jars\n\n" +
			"The strictest of min_tasks, quality and error counts, as it is at the submission. Where no profile can be used, all\n" +
			"map tasks must be done, and scheduler show tells why.",
		Example: "  scheduler submit words.yaml --reason \"weekly report\"\n  scheduler submit words.yaml --dry-run\n  scheduler submit words.yaml --queue",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			why.fill()
			req, err := submitRequest(args[0], dryRun, queue, why)
			if err != nil {
				return err
			}
			resp, err := ask(cmd.Context(), &to, "submit", headroomv1connect.SchedulerServiceClient.Submit, req)
			if err != nil {
				return withRequest(err, why.requestID)
			}
			if err := printSubmitted(cmd, &out, resp, dryRun, queue); err != nil {
				return err
			}
			return scheduler.Refused(resp.GetJob().GetName(), resp.GetJob().GetAdmission(), queue || !dryRun)
		},
	}
	to.flags(cmd)
	why.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the job, and ask whether its deadline can be kept; accept nothing")
	cmd.Flags().BoolVar(&queue, "queue", false, "where too few slots are free for the deadline, wait for them as long as it can be kept")
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

// readJobFile reads no more than the scheduler would take.
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

// withRequest adds the key to repeat the command with.
func withRequest(err error, id string) error {
	e, ok := errors.AsType[*cli.Error](err)
	if !ok {
		return err
	}
	named := *e
	named.RequestID = id
	if named.Exit == cli.ExitUnknown {
		named.Hint = "the outcome is unknown; repeat the command with --request-id " + id
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
		did = "was accepted before by the same request, " + stateWord(j) + " now"
	}
	work := number(j.GetProgress().GetTasks()) + " tasks"
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
	if j.GetAdmission() == nil {
		return nil
	}
	return out.Table(w, nil, admissionRows(j))
}

func listCommand() *cobra.Command {
	var (
		to      target
		out     cli.Output
		workers bool
		groups  bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List jobs, the workers, or the groups of workers that masters dispatch to",
		Example: "  scheduler list\n  scheduler list -o json\n  scheduler list --workers\n  scheduler list --groups",
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
			return printJobs(cmd.OutOrStdout(), &out, resp)
		},
	}
	to.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().BoolVar(&workers, "workers", false, "list the workers of the nodes instead")
	cmd.Flags().BoolVar(&groups, "groups", false, "list the groups of workers instead, with their masters and what waits for them")
	cmd.MarkFlagsMutuallyExclusive("workers", "groups")
	return cmd
}

func (t *target) list(ctx context.Context, id string) (*headroomv1.ListResponse, error) {
	return ask(ctx, t, "list", headroomv1connect.SchedulerServiceClient.List, &headroomv1.ListRequest{Id: id})
}

func showCommand() *cobra.Command {
	var (
		to  target
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one job",
		Example: "  scheduler show words-7f3a90c1",
		Args:    cobra.ExactArgs(1),
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

func cancelCommand() *cobra.Command {
	var (
		to  target
		why change
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:     "cancel ID",
		Short:   "Cancel a job and stop its tasks",
		Example: "  scheduler cancel words-7f3a90c1 --reason \"wrong input\"",
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
		text = fmt.Sprintf("job %s was cancelled before", id)
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
