package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

type nodeLeaseItem struct {
	Node       string   `json:"node"`
	CapW       float64  `json:"cap_w"`
	FailSafeW  float64  `json:"fail_safe_w"`
	Epoch      uint64   `json:"epoch"`
	Seq        uint64   `json:"seq"`
	RemainingS *float64 `json:"remaining_s"`
	State      string   `json:"state"`
	SprintID   *string  `json:"sprint_id"`
}

func leaseCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "lease", Short: "Show who may use how much until when", Example: "  coordinator lease list"}
	var w watching
	stale := false
	list := &cobra.Command{
		Use: "list", Aliases: []string{"watch"}, Short: "List the leases as the leader counts them; watch goes on", Args: cobra.NoArgs,
		Example: "  coordinator lease list\n  coordinator lease watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.on = w.on || cmd.CalledAs() == "watch"
			return w.run(cmd, func() error {
				r, err := call(cmd.Context(), o, "lease list", &headroomv1.ListNodesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListNodes)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				items, rows := []nodeLeaseItem{}, [][]string{}
				for _, n := range r.GetNodes() {
					id := n.GetSprint().GetId()
					items = append(items, nodeLeaseItem{
						n.GetName(), watts(n.GetTargetUw()), watts(n.GetFailSafeUw()), n.GetStamp().GetEpoch().GetTerm(), n.GetStamp().GetSeq(),
						seconds(n.LeaseMs), n.GetState(), cli.Known(id, id != ""),
					})
					rows = append(rows, []string{
						n.GetName(), n.GetState(), shownWatts(n.GetTargetUw()), cli.Opt(n.LeaseMs, shownAge), shownWatts(n.GetFailSafeUw()),
						fmt.Sprint(n.GetStamp().GetEpoch().GetTerm()), fmt.Sprint(n.GetStamp().GetSeq()), id,
					})
				}
				return o.print(cmd, &w, wrap("LeaseList", r.GetMeta(), items), func(out io.Writer) error {
					return o.out.Table(out, []string{"NODE", "STATE", "CAP", "ENDS IN", "FAIL-SAFE", "EPOCH", "SEQ", "SPRINT"}, rows)
				})
			})
		},
	}
	w.flags(list)
	list.Flags().BoolVar(&stale, "stale", false, "ask the addressed server itself, without the leader")
	group.AddCommand(list)
	return group
}
