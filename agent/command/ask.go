package command

import (
	"cmp"
	"context"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// fetchStatus asks the running agent. The error is a *cli.Error.
func fetchStatus(ctx context.Context, dir string) (*headroomv1.GetAgentStatusResponse, error) {
	res, err := agent.Client(dir).GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	if err != nil {
		return nil, asked(err, "status", dir, "")
	}
	return res.Msg, nil
}

// answering is the answer of the agent of a state directory, nil when there is none.
func answering(ctx context.Context, dir string) *headroomv1.GetAgentStatusResponse {
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(agent.SocketPath(dir)); err != nil {
		return nil
	}
	s, err := fetchStatus(ctx, dir)
	if err != nil {
		return nil
	}
	return s
}

// show asks the running agent and hands its answer to each: once, or at each
// interval of a watch.
func (p *place) show(cmd *cobra.Command, w *cli.Watch, each func(*headroomv1.GetAgentStatusResponse) error) error {
	dir, err := p.state()
	if err != nil {
		return err
	}
	return w.Run(cmd, func() error {
		s, err := fetchStatus(cmd.Context(), dir)
		if err != nil {
			return err
		}
		return each(s)
	})
}

// asked makes an error of the agent's socket one that an operator understands.
func asked(err error, doing, dir, requestID string) error {
	e := rpc.AsCLI(err, doing, agent.SocketPath(dir))
	e.RequestID = requestID
	switch {
	case e.Code == "unreachable":
		e.Message, e.Hint = "no powerd answers on "+agent.SocketPath(dir), "start it with powerd run, or name another one with --state-dir"
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		e.Message, e.Hint = doing+": the powerd that runs here does not know this", "it is another version than this command: powerd status, powerd version"
	}
	return e
}

// changing are the flags of commands that change something on this node.
type changing struct {
	reason    string
	requestID string
}

func (c *changing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the audit log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key; one is made when absent")
}

func (c *changing) change() *headroomv1.Change {
	return &headroomv1.Change{Actor: cli.Actor(), Reason: c.reason, RequestId: cmp.Or(c.requestID, cli.RequestID())}
}
