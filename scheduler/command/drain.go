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

// drainLook is the time between two looks at how many jobs still run.
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
		Short: "Let running jobs end and begin none",
		Long: "Let running jobs end and begin none, before maintenance. Jobs can be submitted; they wait. A drained scheduler\n" +
			"stays drained over a restart, until \"scheduler drain --off\".",
		Example: "  scheduler drain --wait --reason \"new kernel\"\n  scheduler drain --off",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if off && wait {
				return cli.Usage("--wait beside --off: jobs begin at once, there is nothing to wait for")
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
	cmd.Flags().BoolVar(&off, "off", false, "let jobs begin again")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no job runs, and tell how many still do")
	return cmd
}

func (t *target) drain(ctx context.Context, req *headroomv1.DrainRequest) (*headroomv1.DrainResponse, error) {
	return ask(ctx, t, "drain", headroomv1connect.SchedulerServiceClient.Drain, req)
}

// untilDrained looks until no job runs, and tells on standard error when the number
// of those that do has changed. It ends early when somebody lets jobs begin again.
func (t *target) untilDrained(cmd *cobra.Command, resp *headroomv1.DrainResponse) (*headroomv1.DrainResponse, error) {
	told := uint32(0)
	for resp.GetRunning() > 0 && resp.GetDrained() {
		if resp.GetRunning() != told {
			told = resp.GetRunning()
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%d jobs still run\n", told) // progress is a courtesy
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
			Code: "conflict", Exit: cli.ExitConflict, Message: "somebody let jobs begin again meanwhile", Hint: "scheduler drain --wait again",
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
	text := "drained: no job begins"
	if !r.GetDrained() {
		text = "not drained: jobs begin"
	}
	_, err := fmt.Fprintf(w, "%s; %d running, %d waiting\n", text, r.GetRunning(), r.GetWaiting())
	return err
}
