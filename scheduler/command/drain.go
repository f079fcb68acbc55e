package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
)

// drainLook is the polling interval of the number of running jobs.
const drainLook = time.Second

func drainCommand() *cobra.Command {
	var (
		to        target
		why       change
		out       cli.Output
		off, wait bool
	)
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Finish running jobs and start no new ones",
		Long: "Finish running jobs and start no new ones. Use it before maintenance. Jobs can still be submitted and wait.\n" +
			"The scheduler stays drained across restarts until \"scheduler drain --off\".",
		Example: "  scheduler drain --wait --reason \"new kernel\"\n  scheduler drain --off",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if off && wait {
				return cli.Usage("--wait cannot be combined with --off: jobs start at once")
			}
			why.fill()
			resp, err := to.drain(cmd.Context(), &headroomv1.DrainRequest{
				Off: off, Change: &headroomv1.Change{Actor: cli.Actor(), Reason: why.reason, RequestId: why.requestID},
			})
			if err != nil {
				return err
			}
			if wait {
				if resp, err = to.untilDrained(cmd, resp); err != nil {
					return err
				}
			}
			return printDrain(cmd.OutOrStdout(), &out, resp)
		},
	}
	to.flags(cmd)
	why.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().BoolVar(&off, "off", false, "start jobs again")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no job is running; print the number of running jobs")
	return cmd
}

func (t *target) drain(ctx context.Context, req *headroomv1.DrainRequest) (*headroomv1.DrainResponse, error) {
	return ask(ctx, t, "drain", headroomv1connect.SchedulerServiceClient.Drain, req)
}

// untilDrained polls until no job is running and prints each change of their number to
// stderr. It returns an error when the drain is ended meanwhile.
func (t *target) untilDrained(cmd *cobra.Command, resp *headroomv1.DrainResponse) (*headroomv1.DrainResponse, error) {
	told := uint32(0)
	for resp.GetRunning() > 0 && resp.GetDrained() {
		if resp.GetRunning() != told {
			told = resp.GetRunning()
			cli.Notef(cmd.ErrOrStderr(), "%s still running", cli.Count(int(told), "job"))
		}
		if !pause.For(cmd.Context(), drainLook) {
			return nil, cmd.Context().Err()
		}
		var err error
		if resp, err = t.drain(cmd.Context(), &headroomv1.DrainRequest{Look: true}); err != nil {
			return nil, err
		}
	}
	if !resp.GetDrained() {
		return nil, &cli.Error{
			Code: "conflict", Exit: cli.ExitConflict, Message: "drain was ended by another user", Hint: "repeat scheduler drain --wait",
		}
	}
	return resp, nil
}

func printDrain(w io.Writer, out *cli.Output, r *headroomv1.DrainResponse) error {
	if out.IsJSON() {
		return out.JSON(w, envelope("Drain", []any{struct {
			Drained bool   `json:"drained"`
			Running uint32 `json:"running"`
			Waiting uint32 `json:"waiting"`
		}{r.GetDrained(), r.GetRunning(), r.GetWaiting()}}))
	}
	text := "drained: no new jobs start"
	if !r.GetDrained() {
		text = "not drained: jobs start"
	}
	_, err := fmt.Fprintf(w, "%s; %d running, %d waiting\n", text, r.GetRunning(), r.GetWaiting())
	return err
}
