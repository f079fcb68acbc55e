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
	"headroom/budget"
	"headroom/internal/cli"
	"headroom/ledger"
)

func policyCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "policy", Short: "Show and set the policies that divide watts and containers", Example: "  coordinator policy list\n  coordinator policy set progress",
	}
	group.AddCommand(policyList(o), policySet(o), explainCommand(o, "policy explain"))
	return group
}

type policyItem struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	InForce bool   `json:"in_force"`
	Divides string `json:"divides"`
}

func policyList(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"show"}, Short: "List the policies", Args: cobra.NoArgs, Example: "  coordinator policy list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "policy list", &headroomv1.ListPoliciesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListPolicies)
			if err != nil {
				return err
			}
			staleNote(cmd, r.GetMeta())
			items, rows := []policyItem{}, [][]string{}
			for _, p := range r.GetPolicies() {
				items = append(items, policyItem{p.GetName(), p.GetWhat(), p.GetInForce(), divides(p)})
				rows = append(rows, []string{p.GetName(), yesNo(p.GetInForce()), p.GetWhat(), divides(p)})
			}
			return o.print(cmd, &w, wrap("PolicyList", r.GetMeta(), items), func(out io.Writer) error {
				return o.out.Table(out, []string{"POLICY", "IN FORCE", "WHAT IT DOES", "DIVIDES"}, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

// What policies divide.
const (
	dividesWatts      = "watts"
	dividesContainers = "containers"
)

// divides is what a policy divides; a server of before knows watts alone.
func divides(p *headroomv1.Policy) string { return cmp.Or(p.GetDivides(), dividesWatts) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func policySet(o *operator) *cobra.Command {
	c := &changing{o: o}
	of := ""
	cmd := &cobra.Command{
		Use: "set POLICY", Short: "Set the policy that divides watts or containers", Args: cobra.ExactArgs(1),
		Long: "Choose the policy that divides the watts among the nodes, or the containers of an engine among its jobs.\n" +
			"A name that only one of the two has needs no --for; one that both have means watts without it.",
		Example: "  coordinator policy set progress --reason \"deadline tonight\"\n  coordinator policy set equal --for containers",
		RunE: func(cmd *cobra.Command, args []string) error {
			divided, err := policyFor(cmd, args[0], of)
			if err != nil {
				return err
			}
			r := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetPolicy{SetPolicy: args[0]}}
			if divided == dividesContainers {
				r.What = &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: args[0]}
			}
			return c.send(cmd, "policy set", r)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&of, "for", "", "what the policy divides: watts or containers")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{dividesWatts, dividesContainers}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

// policyFor is what a policy of that name is to divide.
func policyFor(cmd *cobra.Command, name, of string) (string, error) {
	_, err := budget.ParsePolicy(name)
	watts, both := err == nil, err == nil && slices.Contains(ledger.ContainerPolicies(), name)
	switch {
	case of != "" && of != dividesWatts && of != dividesContainers:
		return "", cli.Usage("--for %q: it is watts or containers", of)
	case of != "":
		return of, nil
	case both:
		cli.Notef(cmd.ErrOrStderr(), "%s divides watts and containers: setting it for watts; --for containers sets the other\n", name)
		return dividesWatts, nil
	case watts || !slices.Contains(ledger.ContainerPolicies(), name):
		return dividesWatts, nil // the server names those that it knows
	}
	return dividesContainers, nil
}

type explainItem struct {
	Node        string             `json:"node"`
	CapW        *float64           `json:"cap_w"`
	MinW        float64            `json:"min_w"`
	MaxW        float64            `json:"max_w"`
	Weight      float64            `json:"weight"`
	DemandW     *float64           `json:"demand_w"`
	PlannedW    *float64           `json:"planned_w"`
	Policy      string             `json:"policy"`
	BoundBy     string             `json:"bound_by"`
	BoundDomain *string            `json:"bound_domain"`
	Why         string             `json:"why"`
	SpareW      map[string]float64 `json:"spare_w"`
	LastMoves   []eventItem        `json:"last_moves"`
	Changes     []eventItem        `json:"changes"`
}

// explainCommand is `node explain`, and its alias `policy explain`.
func explainCommand(o *operator, doing string) *cobra.Command {
	return &cobra.Command{
		Use: "explain NODE", Short: "Explain a node's cap", Args: cobra.ExactArgs(1), Example: "  coordinator " + doing + " n03",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &headroomv1.ExplainNodeRequest{Node: nodeName(args[0])}
			r, err := call(cmd.Context(), o, doing, req, headroomv1connect.ClusterServiceClient.ExplainNode)
			if err != nil {
				return err
			}
			n := r.GetNode()
			item := explainItem{
				Node: n.GetName(), CapW: optWatts(n.TargetUw), MinW: watts(n.GetLeastUw()), MaxW: watts(n.GetMaxUw()), Weight: n.GetWeight(),
				DemandW: optWatts(n.DemandUw), PlannedW: optWatts(r.PlannedUw), Policy: r.GetPolicy(), BoundBy: r.GetBoundBy(),
				BoundDomain: cli.Known(r.GetBoundDomain(), r.GetBoundDomain() != ""), Why: r.GetWhy(), SpareW: map[string]float64{}, LastMoves: cli.Filled[eventItem](r.GetLast()),
				Changes: cli.Filled[eventItem](r.GetChanges()),
			}
			for _, s := range r.GetSpare() {
				item.SpareW[s.GetDomain()] = watts(s.GetSpareUw())
			}
			if o.out.IsJSON() {
				return o.out.JSON(cmd.OutOrStdout(), wrap("Explanation", r.GetMeta(), []explainItem{item}))
			}
			return explainText(cmd.OutOrStdout(), r)
		},
	}
}

func explainText(w io.Writer, r *headroomv1.ExplainNodeResponse) error {
	n := r.GetNode()
	var b strings.Builder
	fmt.Fprintf(&b, "%s  cap %s  (min %.1f, max %.1f, weight %.1f)   policy %s\n", n.GetName(), nodeCap(n), watts(n.GetLeastUw()), watts(n.GetMaxUw()),
		n.GetWeight(), r.GetPolicy())
	fmt.Fprintf(&b, "  demand      %s\n", cli.Opt(n.DemandUw, shownWatts))
	fmt.Fprintf(&b, "  planned     %s\n", cli.Opt(r.PlannedUw, shownWatts))
	var spare []string
	for _, s := range r.GetSpare() {
		spare = append(spare, fmt.Sprintf("%s has %s spare", s.GetDomain(), shownWatts(s.GetSpareUw())))
	}
	fmt.Fprintf(&b, "  bound by    %s (%s)\n", r.GetWhy(), strings.Join(spare, ", "))
	for i, m := range r.GetLast() {
		label := ""
		if i == 0 {
			label = "last moves"
		}
		fmt.Fprintf(&b, "  %-10s  %s at revision %d, %s: %s\n", label, m.GetWhat(), m.GetRevision(), cli.Clock(time.UnixMicro(m.GetAtUs())), m.GetReason())
	}
	for i, e := range r.GetChanges() {
		label := ""
		if i == 0 {
			label = "changes"
		}
		fmt.Fprintf(&b, "  %-10s  %s by %s at revision %d, %s", label, e.GetWhat(), e.GetActor(), e.GetRevision(), cli.Clock(time.UnixMicro(e.GetAtUs())))
		if e.GetReason() != "" {
			fmt.Fprintf(&b, ": %s", e.GetReason())
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
