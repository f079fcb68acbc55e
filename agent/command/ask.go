package command

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// fetchStatus returns the status of the running powerd. The error is a *cli.Error.
func fetchStatus(ctx context.Context, dir string) (*headroomv1.GetAgentStatusResponse, error) {
	res, err := agent.Client(dir).GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	if err != nil {
		return nil, socketError(err, "status", dir, "")
	}
	return res.Msg, nil
}

// answering returns the status of the powerd of a state directory. It is nil without an error
// if none runs, and with one if powerd runs and does not answer as it should.
func answering(ctx context.Context, dir string) (*headroomv1.GetAgentStatusResponse, error) {
	if dir == "" {
		return nil, nil
	}
	if _, err := os.Stat(agent.SocketPath(dir)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s, err := fetchStatus(ctx, dir)
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Code == "unreachable" {
		return nil, nil // the socket of one that was killed
	}
	return s, err
}

// show passes the status of the running powerd to each: once, or at each interval of
// a watch.
func (p *shown) show(cmd *cobra.Command, each func(*headroomv1.GetAgentStatusResponse) error) error {
	dir, err := p.state()
	if err != nil {
		return err
	}
	return p.watch.Run(cmd, func() error {
		s, err := fetchStatus(cmd.Context(), dir)
		if err != nil {
			return err
		}
		return each(s)
	})
}

// socketError translates an error of powerd's socket for the operator.
func socketError(err error, doing, dir, requestID string) error {
	e := rpc.AsCLI(err, doing, agent.SocketPath(dir))
	e.RequestID = requestID
	switch {
	case e.Code == "unreachable":
		e.Message, e.Hint = "no powerd answers on "+agent.SocketPath(dir), "start powerd, or select another state directory with --state-dir"
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		e.Message, e.Hint = doing+": not supported by the running powerd", "its version differs from this command's: see powerd status and powerd version"
	}
	return e
}

// changing holds the flags of commands that change this node.
type changing struct {
	reason    string
	requestID string
}

func (c *changing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "reason, for the audit log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key (default: generated)")
}

func (c *changing) change() *headroomv1.Change {
	return &headroomv1.Change{Actor: cli.Actor(), Reason: c.reason, RequestId: cmp.Or(c.requestID, cli.RequestID())}
}
