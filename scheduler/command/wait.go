package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/scheduler"
)

const (
	// lookLeast and lookMost bound the time between two looks at a job. Between them it is a tenth of the time waited so far,
	// so that a long job costs the scheduler little.
	lookLeast, lookMost = 100 * time.Millisecond, 2 * time.Second
	// heartbeat is how often a wait without news prints that it goes on.
	heartbeat = 30 * time.Second
	// goneWait is how long a job that was listed may be missing: a scheduler that has just taken over lists an engine's jobs
	// once the engine has answered.
	goneWait = 30 * time.Second
	// verdictWait is how long an ended job may be without the verdict on its deadline, which is committed with its end.
	verdictWait = 5 * time.Second
	// waitsMost bounds the jobs of one command.
	waitsMost = 1000
)

const promiseLong = "\n\nThe exit code is 0 if every job is done and met its deadline, if it has one; 8 (deadline-missed) if a job is done but\n" +
	"missed its deadline; 1 (job-failed, job-cancelled) if a job failed or was cancelled; 6 (admission) if a job that\n" +
	"waited for slots was refused; 7 (timeout) if a job still runs after --timeout. A scheduler that is restarted, or\n" +
	"replaced by its standby, does not end the wait. Ctrl-C leaves the job running."

// jobWait follows jobs until they end.
type jobWait struct {
	to    target
	out   cli.Output
	limit time.Duration

	stdout, notes io.Writer
	began         time.Time
	// heard is when the scheduler last answered, zero before it first did; noted is when something was last printed.
	heard, noted time.Time
	// gone is since when the job is no longer listed, over since when it is listed as ended.
	gone, over time.Time
	// changed is called with each answer, for commands that print changes.
	changed func(resp *headroomv1.ListResponse) error
}

func waitCommand(path string) *cobra.Command {
	var w jobWait
	cmd := &cobra.Command{
		Use:     "wait ID...",
		Short:   "Wait for jobs to end and exit by their promises",
		Long:    "Wait for jobs to end and exit by their promises." + promiseLong,
		Example: "  " + path + " words-7f3a90c1 --timeout 10m\n  " + path + " words-7f3a90c1 sort-1b2c3d4e -o json",
		Args:    cobra.RangeArgs(1, waitsMost), ValidArgsFunction: w.to.jobIDs,
		RunE: func(cmd *cobra.Command, args []string) error { return w.run(cmd, args, 0) },
	}
	w.flags(cmd)
	return cmd
}

func watchCommand(path string) *cobra.Command {
	var w jobWait
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Print each change of a job until it ends",
		Long: "Print each change of a job until it ends: its state, its progress, what the coordinators decide about it, and its end.\n" +
			"With -o json it prints one document for each change, and one at the end." + promiseLong,
		Example: "  " + path + " words-7f3a90c1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: w.to.jobIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.changed = w.printChanges(cmd.OutOrStdout(), cmd)
			return w.run(cmd, args, 0)
		},
	}
	w.flags(cmd)
	return cmd
}

func (w *jobWait) flags(cmd *cobra.Command) {
	w.to.flags(cmd)
	w.out.Flags(cmd)
	cmd.Flags().DurationVar(&w.limit, "timeout", 0, "return after this time; the job continues (0: no limit)")
}

// run waits for the end of the jobs, prints them, and returns the error of a promise that was not kept. revision is that of a
// job that was just submitted.
func (w *jobWait) run(cmd *cobra.Command, ids []string, revision uint64) error {
	w.stdout, w.notes, w.began = cmd.OutOrStdout(), cmd.ErrOrStderr(), time.Now()
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if w.limit != 0 {
		if w.limit < 0 {
			return cli.Usage("--timeout is %v; it must be above 0", w.limit)
		}
		ctx, cancel = context.WithTimeout(ctx, w.limit)
	}
	defer cancel()
	jobs, runs, broken := []*headroomv1.Job(nil), details{}, error(nil)
	for _, id := range ids {
		resp, err := w.end(ctx, id)
		if err != nil {
			return w.stopped(cmd.Context(), id, err)
		}
		j := resp.GetJobs()[0]
		jobs, runs[id], broken = append(jobs, j), detailsOf(resp.GetRuns())[id], worse(broken, promiseError(j, time.Now()))
		if w.changed == nil && w.out.IsTable() {
			if _, err := fmt.Fprintln(w.stdout, endText(j, time.Now())); err != nil {
				return err
			}
		}
	}
	if err := w.document(jobs, runs, revision); err != nil {
		return err
	}
	return broken
}

// document prints the ended jobs for programs.
func (w *jobWait) document(jobs []*headroomv1.Job, runs details, revision uint64) error {
	switch {
	case w.changed != nil || w.out.IsTable():
		return nil
	case w.out.IsJSON():
		kind := "Job"
		if len(jobs) != 1 {
			kind = "JobList"
		}
		env := envelope(kind, jobItems(jobs, runs))
		env.Revision = revision
		return w.out.JSON(w.stdout, env)
	}
	for _, j := range jobs {
		if _, err := fmt.Fprintln(w.stdout, j.GetId()); err != nil {
			return err
		}
	}
	return nil
}

// stopped returns why a wait ended before the job.
func (w *jobWait) stopped(parent context.Context, id string, err error) error {
	switch {
	case parent.Err() != nil:
		cli.Notef(w.notes, "job %s continues; scheduler job wait %s waits for it again", id, id)
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return &cli.Error{
			Code: "timeout", Exit: cli.ExitUnknown, Message: fmt.Sprintf("job %s has not ended after %v", id, w.limit),
			Hint: fmt.Sprintf("it continues: scheduler job wait %s waits again, scheduler job cancel %s ends it", id, id),
		}
	}
	return err
}

// end returns a job once it has ended.
func (w *jobWait) end(ctx context.Context, id string) (*headroomv1.ListResponse, error) {
	w.noted, w.gone, w.over = time.Now(), time.Time{}, time.Time{}
	for {
		resp, err := w.look(ctx, id)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, err
		case resp == nil: // no answer, for now
		case ended(resp.GetJobs()[0]) && !w.judged(resp.GetJobs()[0]): // its verdict is about to come
		default:
			if w.changed != nil {
				err = w.changed(resp)
			}
			if err != nil || ended(resp.GetJobs()[0]) {
				return resp, err
			}
		}
		if resp != nil && time.Since(w.noted) >= heartbeat {
			w.note("job %s is %s", id, progressText(resp.GetJobs()[0]))
		}
		if !pause.For(ctx, max(lookLeast, min(lookMost, time.Since(w.began)/10))) {
			return nil, ctx.Err()
		}
	}
}

// judged reports whether the verdict on an ended job's deadline is known, or will not be.
func (w *jobWait) judged(j *headroomv1.Job) bool {
	if w.over.IsZero() {
		w.over = time.Now()
	}
	return j.DeadlineS == nil || j.GetState() == headroomv1.JobState_JOB_STATE_CANCELLED || j.GetEnd().GetVerdict() != "" || time.Since(w.over) > verdictWait
}

// look returns the job; nil without an error if the scheduler does not answer and has answered before: it is restarted, or a
// standby takes over.
func (w *jobWait) look(ctx context.Context, id string) (*headroomv1.ListResponse, error) {
	resp, err := w.to.list(ctx, id)
	switch {
	case err == nil && len(resp.GetJobs()) > 0 && id != "":
		w.heard, w.gone = time.Now(), time.Time{}
		return resp, nil
	case err == nil:
		if w.gone.IsZero() {
			w.gone = time.Now()
		}
		if w.heard.IsZero() || time.Since(w.gone) > goneWait {
			return nil, scheduler.NoJob(id)
		}
	case !w.bears(err):
		return nil, err
	}
	return nil, nil
}

// bears reports whether a wait goes on in spite of an error: the scheduler has answered before, and this is no refusal.
func (w *jobWait) bears(err error) bool {
	e, _ := errors.AsType[*cli.Error](err)
	if w.heard.IsZero() || e != nil && (e.Exit == cli.ExitUsage || e.Exit == cli.ExitDenied || e.Exit == cli.ExitRefused) {
		return false
	}
	if time.Since(w.noted) >= heartbeat || w.noted.Before(w.heard) {
		w.note("%v; waiting for a scheduler", err)
	}
	return true
}

func (w *jobWait) note(format string, args ...any) {
	w.noted = time.Now()
	cli.Notef(w.notes, format, args...)
}

// printChanges returns what prints a job when it has changed: to a writer, or as JSON to the output of the command, if there is
// one.
func (w *jobWait) printChanges(to io.Writer, cmd *cobra.Command) func(*headroomv1.ListResponse) error {
	var before []string
	return func(resp *headroomv1.ListResponse) error {
		j := resp.GetJobs()[0]
		now := []string{progressText(j)}
		if ended(j) {
			now[0] = endText(j, time.Now())
		}
		if m := j.GetOutlook().GetMove(); m != nil {
			now = append(now, fmt.Sprintf("decided %s: %s", moveName(m.GetKind()), m.GetReason()))
		}
		if t := detailsOf(resp.GetRuns())[j.GetId()].GetTrouble(); t != "" {
			now = append(now, "trouble: "+t)
		}
		defer func() { before = now }()
		if strings.Join(before, "\n") == strings.Join(now, "\n") {
			return nil
		}
		w.noted = time.Now()
		if w.out.IsJSON() && cmd != nil {
			return w.out.Print(cmd, &cli.Watch{On: true}, envelope("Job", jobItems([]*headroomv1.Job{j}, detailsOf(resp.GetRuns()))), nil)
		}
		for i, line := range now {
			if i < len(before) && before[i] == line {
				continue
			}
			if _, err := fmt.Fprintf(to, "%s  %s\n", time.Now().Format(time.TimeOnly), line); err != nil {
				return err
			}
		}
		return nil
	}
}

// progressText is a job's state with its progress.
func progressText(j *headroomv1.Job) string {
	p, text := j.GetProgress(), stateWord(j)
	switch {
	case p.GetPlace() > 0:
		text += fmt.Sprintf(", place %d", p.GetPlace())
	case p.GetTasks() > 0:
		text += fmt.Sprintf(", %d of %d tasks done", p.GetDone(), p.GetTasks())
	}
	if p.GetDropped() > 0 {
		text += fmt.Sprintf(", %d dropped", p.GetDropped())
	}
	if p.GetTheta() > 0 {
		text += ", drop ratio " + thetaText(p)
	}
	return text
}

// endText is how a job ended, with its promise.
func endText(j *headroomv1.Job, seen time.Time) string {
	text := fmt.Sprintf("job %s %s", j.GetId(), stateWord(j))
	if j.GetOutcome() != "" {
		text += ": " + j.GetOutcome()
	}
	if j.DeadlineS == nil {
		return text
	}
	switch late, missed := lateBy(j, seen); {
	case missed && late > 0:
		text += "; deadline missed by " + cli.Age(late)
	case missed:
		text += "; deadline missed"
	case j.GetState() == headroomv1.JobState_JOB_STATE_DONE:
		text += "; deadline met"
	}
	if why := j.GetEnd().GetWhy(); why != "" {
		text += " (" + why + ")"
	}
	return text
}

// lateBy is by how much an ended job missed its deadline, 0 for one that ended before it without a result; false for one that
// met it, or has none. Without a verdict, which an engine's job may lack, the time at which the end was seen counts.
func lateBy(j *headroomv1.Job, seen time.Time) (time.Duration, bool) {
	_, left, ok := deadline(j, seen)
	switch j.GetEnd().GetVerdict() {
	case "met":
		return 0, false
	case "missed":
		return seconds(j.GetEnd().GetLateS()), true
	}
	return -left, ok && left < 0 && j.GetState() != headroomv1.JobState_JOB_STATE_CANCELLED
}

// promiseError is nil for a job that is done and met its deadline.
func promiseError(j *headroomv1.Job, seen time.Time) *cli.Error {
	hint := "scheduler job show " + j.GetId() + " shows why; scheduler job logs " + j.GetId() + " prints what it wrote"
	late, missed := lateBy(j, seen)
	switch {
	case j.GetState() == headroomv1.JobState_JOB_STATE_CANCELLED:
		return &cli.Error{Code: "job-cancelled", Exit: cli.ExitFailed, Message: fmt.Sprintf("job %s was cancelled: %s", j.GetId(), cmp.Or(j.GetOutcome(), "no reason is known")), Hint: hint}
	case j.GetState() == headroomv1.JobState_JOB_STATE_FAILED && strings.HasPrefix(j.GetOutcome(), scheduler.OutcomeRefused):
		return &cli.Error{Code: "admission", Exit: cli.ExitRefused, Message: fmt.Sprintf("job %s was %s", j.GetId(), j.GetOutcome()), Hint: "set a later deadline, or none"}
	case j.GetState() == headroomv1.JobState_JOB_STATE_FAILED:
		return &cli.Error{Code: "job-failed", Exit: cli.ExitFailed, Message: fmt.Sprintf("job %s failed: %s", j.GetId(), cmp.Or(j.GetOutcome(), "no reason is known")), Hint: hint}
	case missed:
		return &cli.Error{Code: "deadline-missed", Exit: cli.ExitDegraded, Message: fmt.Sprintf("job %s is done, but missed its deadline by %s", j.GetId(), cli.Age(late)), Hint: hint}
	}
	return nil
}

// worse returns the error that a command with several jobs ends with: a failed one before a missed deadline.
func worse(before error, next *cli.Error) error {
	first, ok := errors.AsType[*cli.Error](before)
	if next == nil || ok && (first.Exit != cli.ExitDegraded || next.Exit == cli.ExitDegraded) {
		return before
	}
	return next
}
