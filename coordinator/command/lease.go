package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/ledger"
)

type nodeLeaseItem struct {
	Node       string   `json:"node" of:"name"`
	CapW       *float64 `json:"cap_w" of:"target_uw"`
	FailSafeW  float64  `json:"fail_safe_w"`
	Epoch      uint64   `json:"epoch" of:"stamp.epoch.term"`
	Seq        uint64   `json:"seq" of:"stamp.seq"`
	RemainingS *float64 `json:"remaining_s" of:"lease_ms"`
	State      string   `json:"state"`
	SprintID   *string  `json:"sprint_id" of:"sprint.id"`
}

func leaseCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "lease", Short: "List leases, and show and set their length", Example: "  coordinator lease list"}
	var w cli.Watch
	stale := false
	list := &cobra.Command{
		Use: "list", Aliases: []string{"watch"}, Short: "List the leases: cap, remaining time and fail-safe cap of each node", Args: cobra.NoArgs,
		Example: "  coordinator lease list\n  coordinator lease watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.On = w.On || cmd.CalledAs() == "watch"
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "lease list", &headroomv1.ListNodesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListNodes)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				rows := each.List(r.GetNodes(), func(n *headroomv1.Node) []string {
					return []string{
						n.GetName(), n.GetState(), nodeCap(n), cli.Opt(n.LeaseMs, shownAge), shownWatts(n.GetFailSafeUw()),
						fmt.Sprint(n.GetStamp().GetEpoch().GetTerm()), fmt.Sprint(n.GetStamp().GetSeq()), n.GetSprint().GetId(),
					}
				})
				return o.print(cmd, &w, wrap("LeaseList", r.GetMeta(), cli.Filled[nodeLeaseItem](r.GetNodes())), func(out io.Writer) error {
					return o.out.TableOf(out, cli.Table{Head: []string{"NODE", "STATE", "CAP", "ENDS IN", "FAIL-SAFE", "EPOCH", "SEQ", "SPRINT"}, Rows: rows, Noun: "lease"})
				})
			})
		},
	}
	w.Flags(list)
	list.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	group.AddCommand(list, leaseShow(o), leaseSet(o))
	return group
}

type leaseLengthItem struct {
	LeaseS   *float64 `json:"lease_s"`
	LongestS *float64 `json:"longest_s"`
	SettleS  *float64 `json:"settle_s"`
}

func leaseShow(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the length of leases, and the longest that may still be in use", Args: cobra.NoArgs, Example: "  coordinator lease show",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "lease show", &headroomv1.GetStatusRequest{}, headroomv1connect.ClusterServiceClient.GetStatus)
			if err != nil {
				return err
			}
			known := func(ms int64) *float64 { return cli.Known(float64(ms)/1000, ms > 0) }
			item := leaseLengthItem{known(r.GetLeaseMs()), known(r.GetLongestLeaseMs()), known(r.GetSettleMs())}
			return o.print(cmd, &cli.Watch{}, wrap("LeaseLength", r.GetMeta(), []leaseLengthItem{item}), func(out io.Writer) error {
				span := func(ms int64) string {
					if ms <= 0 {
						return "unknown"
					}
					return (time.Duration(ms) * time.Millisecond).String()
				}
				return o.out.Table(out, []string{"LEASE", "LONGEST IN USE", "SETTLE"}, [][]string{{span(r.GetLeaseMs()), span(r.GetLongestLeaseMs()), span(r.GetSettleMs())}})
			})
		},
	}
}

func leaseSet(o *operator) *cobra.Command {
	c := &changing{o: o}
	var settle time.Duration
	cmd := &cobra.Command{
		Use: "set DURATION", Short: "Set the length of leases", Args: cobra.ExactArgs(1),
		Long: "Set the length of leases. The length is committed; lease: in the servers' configuration applies to a new cluster only. The longer\n" +
			"of the two lengths counts until the last lease granted with it has expired. --settle is the additional time that a lost node may\n" +
			"need to reach its fail-safe cap: powerd hangs, its watchdog restarts it, and it writes the cap. The default is 30s.",
		Example: "  coordinator lease set 20s --reason \"long garbage collections\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := time.ParseDuration(args[0])
			if err != nil || d < ledger.LeaseLeast || d > ledger.LeaseMost {
				return flagError(fmt.Sprintf("%q is not a valid lease length", args[0]), fmt.Sprintf("write a time from %v to %v, e.g. 10s", ledger.LeaseLeast, ledger.LeaseMost))
			}
			if cmd.Flags().Changed("settle") && (settle < ledger.SettleLeast || settle > ledger.SettleMost) {
				return flagError(fmt.Sprintf("--settle %v is out of bounds", settle), fmt.Sprintf("write a time from %v to %v, e.g. 30s", ledger.SettleLeast, ledger.SettleMost))
			}
			x := &headroomv1.SetLease{LengthMs: d.Milliseconds(), SettleMs: settle.Milliseconds()}
			return c.send(cmd, "lease set", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetLease{SetLease: x}})
		},
	}
	c.flags(cmd)
	cmd.Flags().DurationVar(&settle, "settle", 0, "additional time for a lost node to reach its fail-safe cap (default: unchanged)")
	return cmd
}
