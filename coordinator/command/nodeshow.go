package command

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

// nodeShow prints everything about some nodes.
func nodeShow(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "show NODE...", Short: "Show everything about a node: state, cap, charge, lease, power, alarms", Args: cobra.MinimumNArgs(1),
		Long: "Show everything about a node on one screen: its state and since when, cap, charge, power, lease, last drift, certificate, and its\n" +
			"alarms with what to do. -o wide prints one row for each node.",
		Example: "  coordinator node show n03\n  coordinator node show n03 -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "node show", &headroomv1.ListNodesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListNodes)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				nodes, err := (&nodeSelection{}).of(r.GetNodes(), args)
				if err != nil {
					return err
				}
				a, err := call(cmd.Context(), o, "node show", &headroomv1.ListAlarmsRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListAlarms)
				if err != nil {
					return err
				}
				return o.print(cmd, &w, wrap("NodeList", r.GetMeta(), cli.Filled[nodeItem](nodes)), func(out io.Writer) error {
					if o.out.Format != "table" {
						return o.nodeTable(out, nodes, false)
					}
					return o.nodeAccounts(out, nodes, a.GetAlarms())
				})
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

// nodeAccounts prints an account of each node.
func (o *operator) nodeAccounts(w io.Writer, nodes []*headroomv1.Node, alarms []*headroomv1.Alarm) error {
	for i, n := range nodes {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		rows := append(accountRows(n), alarmRows(n.GetName(), alarms)...)
		if err := (&cli.Output{}).Table(w, nil, rows); err != nil {
			return err
		}
	}
	return nil
}

// accountRows are the rows of one node's account: what, value, details.
func accountRows(n *headroomv1.Node) [][]string {
	at := func(us int64) string { return cli.Clock(time.UnixMicro(us)) }
	state := n.GetState()
	if n.StateSinceUs != nil {
		state += " since " + at(n.GetStateSinceUs())
	}
	use := ""
	if n.PowerUw != nil && n.GetTargetUw() > 0 {
		use = cli.Percent(watts(n.GetPowerUw())/watts(n.GetTargetUw())) + " of its cap, "
	}
	rows := [][]string{
		{"node", n.GetName(), "domain " + n.GetDomain() + "; " + labelsText(n)},
		{"state", state, "last report " + cli.Opt(n.HeardMs, func(ms int64) string { return shownAge(ms) + " ago" })},
		{"cap", nodeCap(n), fmt.Sprintf("effective %s, fail-safe %s, min %s, max %s, rated %s", cli.Opt(n.EffectiveUw, shownWatts), shownWatts(n.GetFailSafeUw()),
			shownWatts(n.GetLeastUw()), shownWatts(n.GetMaxUw()), ratedText(n))},
		{"charge", shownWatts(n.GetChargeUw()), "what the budget counts for it; ceiling " + shownWatts(n.GetCeilingUw())},
		{"power", cli.Opt(n.PowerUw, shownWatts), use + "demand " + cli.Opt(n.DemandUw, shownWatts) + ", limited " + cli.Opt(n.LimitedRatio, cli.Percent)},
		{"lease", leaseText(n), fmt.Sprintf("epoch %d, seq %d", n.GetStamp().GetEpoch().GetTerm(), n.GetStamp().GetSeq())},
		{"last drift", cli.Opt(n.LastDriftUs, at), ""},
		{"certificate", certificateText(n), ""},
		{"powerd", n.GetVersion(), "rung " + known(n.GetRung()) + ", BMC " + known(n.GetSettings().GetBmc()) + ", machine id " + n.GetMachineId()},
	}
	if p := n.GetSprint(); p != nil {
		rows = append(rows, []string{"sprint", p.GetId(), "cap " + shownWatts(p.GetCapUw())})
	}
	if n.GetMovingFrom() != "" {
		rows = append(rows, []string{"moving", "from " + n.GetMovingFrom(), "charged in both domains until it has acknowledged"})
	}
	if n.GetOffBy() != "" {
		rows = append(rows, []string{"off", "by " + n.GetOffBy(), ""})
	}
	return rows
}

func leaseText(n *headroomv1.Node) string {
	if n.LeaseMs == nil {
		return "none"
	}
	return "ends in " + shownAge(n.GetLeaseMs())
}

// certificateText is when the node's certificate ends, as the leader saw it.
func certificateText(n *headroomv1.Node) string {
	if n.CertificateEndsUs == nil {
		return cli.Unknown
	}
	ends := time.UnixMicro(n.GetCertificateEndsUs())
	if left := time.Until(ends); left > 0 {
		return fmt.Sprintf("expires in %s, at %s", cli.Age(left), cli.Clock(ends))
	}
	return "EXPIRED at " + cli.Clock(ends)
}

func labelsText(n *headroomv1.Node) string {
	var parts []string
	for name, value := range n.GetSettings().GetLabels() {
		parts = append(parts, name+"="+value)
	}
	slices.Sort(parts)
	return "labels " + known(strings.Join(parts, ","))
}

// known is a text, or the sign of an unknown one.
func known(text string) string { return cmp.Or(text, cli.Unknown) }

// alarmRows are the rows of a node's alarms, each with what to do.
func alarmRows(node string, alarms []*headroomv1.Alarm) [][]string {
	var rows [][]string
	for _, a := range alarms {
		if a.GetSubject() == node {
			i := a.GetItem()
			rows = append(rows, []string{"alarm", severityWord(i) + " " + i.GetCode(), i.GetText()}, []string{"to do", " ", i.GetHint()})
		}
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"alarm", "none", "coordinator node explain " + node + " explains its cap"})
	}
	return rows
}
