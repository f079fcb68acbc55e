package command

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/internal/rpc"
)

// schedulerItem is one scheduler, as it answers.
type schedulerItem struct {
	Address string `json:"address"`
	// State is active, standby or unreachable.
	State string `json:"state"`
	// Epoch of the active one's lease; null without one.
	Epoch *uint64 `json:"epoch"`
	// Active is where a standby says that the active one is; null while unknown.
	Active *string `json:"active"`
	Why    string  `json:"why"`
}

func statusCommand() *cobra.Command {
	var (
		to  target
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which scheduler is active and which are on standby",
		Long: "Show which of the schedulers in --addr is active, and which are on standby. Exit code 3 means that none is active;\n" +
			"a standby takes over within 10 s after the active scheduler is lost.",
		Example: "  scheduler status --addr 10.0.0.20:7410,10.0.0.21:7410",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			items, err := to.status(cmd.Context())
			if err != nil {
				return err
			}
			if err := printStatus(cmd, &out, items); err != nil {
				return err
			}
			for _, x := range items {
				if x.State == "active" {
					return nil
				}
			}
			return &cli.Error{
				Code: "unreachable", Exit: cli.ExitUnreachable, Message: "no scheduler is active",
				Hint: "start a scheduler, and check that the coordinators have a leader; name every scheduler with --addr",
			}
		},
	}
	to.flags(cmd)
	out.Flags(cmd)
	return cmd
}

// status asks each scheduler for a job that does not exist: a standby refuses every call alike.
func (t *target) status(parent context.Context) ([]schedulerItem, error) {
	peers, err := t.peers()
	if err != nil {
		return nil, err
	}
	defer peers.Close()
	ctx, cancel := context.WithTimeout(parent, callWait)
	defer cancel()
	var items []schedulerItem
	for _, addr := range t.addrs() {
		client := headroomv1connect.NewSchedulerServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
		resp, err := client.List(ctx, connect.NewRequest(&headroomv1.ListRequest{Id: "-"}))
		x := schedulerItem{Address: addr, State: "active"}
		hint, standby := rpc.LeaderOf(err)
		switch {
		case err == nil:
			if epoch := rpc.SchedulerEpoch(resp.Header()); epoch != 0 {
				x.Epoch = &epoch
			}
		case standby:
			x.State, x.Active = "standby", cli.Known(hint, hint != "")
			x.Why = rpc.AsCLI(err, "status", addr).Message
		case rpc.AsCLI(err, "status", addr).Exit == cli.ExitUnreachable:
			x.State, x.Why = "unreachable", rpc.AsCLI(err, "status", addr).Message
		default:
			return nil, t.failed("status", addr, err)
		}
		items = append(items, x)
	}
	return items, nil
}

func printStatus(cmd *cobra.Command, out *cli.Output, items []schedulerItem) error {
	if out.IsJSON() {
		all := each.List(items, func(x schedulerItem) any { return x })
		return out.JSON(cmd.OutOrStdout(), envelope("SchedulerList", all))
	}
	table := cli.Table{Head: []string{"ADDRESS", "STATE", "EPOCH", "ACTIVE"}, Noun: "scheduler"}
	for _, x := range items {
		table.Rows = append(table.Rows, []string{
			x.Address, x.State, cli.Opt(x.Epoch, func(e uint64) string { return fmt.Sprint(e) }), cli.Opt(x.Active, func(a string) string { return a }),
		})
	}
	return out.TableOf(cmd.OutOrStdout(), table)
}
