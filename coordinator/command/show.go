package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/units"
)

// watts converts a power of a message for JSON.
func watts(uw int64) float64 { return units.Power(uw).Watts() }

// optWatts converts an optional power of a message for JSON: null while unknown.
func optWatts(uw *int64) *float64 {
	if uw == nil {
		return nil
	}
	return new(watts(*uw))
}

// shownWatts formats a power of a message for a table.
func shownWatts(uw int64) string { return cli.Watts(units.Power(uw)) }

func statusCommand(o *operator) *cobra.Command {
	var w cli.Watch
	stale, all := false, false
	cmd := &cobra.Command{
		Use: "status", Short: "Show budget, power, nodes, servers and alarms of the site", Args: cobra.NoArgs,
		Example: "  coordinator status\n  coordinator status --watch\n  coordinator status --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				if all {
					return o.everyone(cmd, &w)
				}
				r, err := call(cmd.Context(), o, "status", &headroomv1.GetStatusRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.GetStatus)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				e := wrap("Status", r.GetMeta(), []statusItem{newStatusItem(r)})
				return o.print(cmd, &w, e, func(out io.Writer) error { return o.statusTable(out, r) })
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	cmd.Flags().BoolVar(&all, "all", false, "read every server's own state and show where they differ; exits with 8 if one does not answer")
	return cmd
}

type statusItem struct {
	Site       string            `json:"site" of:"site.name"`
	BudgetW    float64           `json:"budget_w" of:"site.budget_uw"`
	ReservedW  float64           `json:"reserved_w" of:"site.reserved_uw"`
	UnmanagedW float64           `json:"unmanaged_w" of:"site.unmanaged_uw"`
	HeadroomW  float64           `json:"headroom_w" of:"site.headroom_uw"`
	PowerW     *float64          `json:"power_w" of:"site.measured_uw"`
	KnownW     *float64          `json:"power_known_w" of:"site.power_known_uw"`
	Unknown    *uint32           `json:"power_unknown_nodes" of:"site.power_unknown_nodes"`
	Awaited    uint32            `json:"power_awaited_nodes" of:"site.power_awaited_nodes"`
	Nodes      map[string]uint32 `json:"nodes" of:"-"`
	Leader     *string           `json:"leader"`
	Servers    []memberItem      `json:"servers"`
	Alarms     []alarmItem       `json:"alarms"`
	Unrated    []string          `json:"unrated_domains"`
}

type alarmItem struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Hint     string `json:"hint"`
}

func newStatusItem(r *headroomv1.GetStatusResponse) statusItem {
	item := statusItem{Nodes: map[string]uint32{"ok": r.GetNodesOk(), "lost": r.GetNodesLost(), "other": r.GetNodesOther(), "unknown": r.GetNodesUnknown()}}
	cli.Fill(&item, r)
	return item
}

// powerText is a domain's measured power; while nodes are unknown the known sum, a lower bound.
func powerText(d *headroomv1.Domain) string {
	unknown := d.GetPowerUnknownNodes()
	switch {
	case d.MeasuredUw != nil:
		return shownWatts(d.GetMeasuredUw())
	case d.PowerKnownUw != nil:
		return shownWatts(d.GetPowerKnownUw()) + " + " + unknownText(unknown, d.GetPowerAwaitedNodes())
	case unknown > 0:
		return unknownText(unknown, d.GetPowerAwaitedNodes())
	}
	return cli.Unknown
}

// unknownText is how many nodes' power is unknown, without those whose first reading is awaited.
func unknownText(unknown, awaited uint32) string {
	awaiting := fmt.Sprintf("awaiting %s", cli.Count(int(awaited), "reading"))
	switch awaited {
	case 0:
		return cli.Count(int(unknown), "node") + " unknown"
	case unknown:
		return awaiting
	}
	return fmt.Sprintf("%s unknown, %s", cli.Count(int(unknown-awaited), "node"), awaiting)
}

// nodesText are the numbers of nodes by state.
func nodesText(r *headroomv1.GetStatusResponse) string {
	var parts []string
	silent := "unknown"
	if r.GetSite().PowerUnknownNodes != nil {
		silent = "awaited" // a leader that has just begun
	}
	for _, x := range []struct {
		n     uint32
		state string
	}{{r.GetNodesOk(), "ok"}, {r.GetNodesLost(), "lost"}, {r.GetNodesUnknown(), silent}, {r.GetNodesOther(), "other"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.state))
		}
	}
	if len(parts) == 0 {
		return "0 ok"
	}
	return strings.Join(parts, ", ")
}

// statusTable writes the status; its alarms take what room a terminal has left.
func (o *operator) statusTable(w io.Writer, r *headroomv1.GetStatusResponse) error {
	others := &sized{}
	others.cols, others.rows = cli.Screen(w)
	if err := errors.Join(o.statusHead(others, r), unratedLine(others, r.GetUnratedDomains()), o.statusHead(w, r)); err != nil {
		return err
	}
	return errors.Join(alarmLines(w, r.GetAlarms(), strings.Count(others.String(), "\n")), unratedLine(w, r.GetUnratedDomains()))
}

// statusHead writes the numbers of the site, and its servers.
func (o *operator) statusHead(w io.Writer, r *headroomv1.GetStatusResponse) error {
	s := r.GetSite()
	err := o.out.Table(w, []string{"SITE", "BUDGET", "RESERVED", "UNMANAGED", "HEADROOM", "POWER", "NODES", "LEADER", "EPOCH", "REVISION"}, [][]string{{
		strings.TrimPrefix(s.GetName(), "site/"), shownWatts(s.GetBudgetUw()), shownWatts(s.GetReservedUw()), shownWatts(s.GetUnmanagedUw()),
		shownWatts(s.GetHeadroomUw()), powerText(s), nodesText(r), r.GetLeader(),
		fmt.Sprint(r.GetMeta().GetEpoch().GetTerm()), fmt.Sprint(r.GetMeta().GetRevision()),
	}})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, cli.Hanging(w, "servers: ", serversLine(r.GetServers())))
	return err
}

// unratedLine warns of domains without a rating, and shows how to set the first one's.
func unratedLine(w io.Writer, domains []string) error {
	if len(domains) == 0 {
		return nil
	}
	_, err := io.WriteString(w, cli.Hanging(w, "warn:    ", fmt.Sprintf("no rating: %s; %s; set it: coordinator domain set %s --rating POWER",
		strings.Join(domains, ", "), coordinator.UnratedText, domains[0])))
	return err
}

// roleAway is the role of a server that does not answer.
const roleAway = "unreachable"

func serversLine(members []*headroomv1.Member) string {
	var parts []string
	up, voters := 0, 0
	for _, m := range members {
		parts = append(parts, m.GetId()+" "+m.GetRole())
		if m.GetVoter() {
			voters++
			if m.GetRole() != roleAway {
				up++
			}
		}
	}
	tolerates := up - (voters/2 + 1)
	switch {
	case tolerates < 0:
		return strings.Join(parts, ", ") + "   (no majority)"
	case tolerates == 1:
		return strings.Join(parts, ", ") + "   (tolerates 1 failure)"
	}
	return fmt.Sprintf("%s   (tolerates %d failures)", strings.Join(parts, ", "), tolerates)
}

// nodeSelection selects the nodes of a list.
type nodeSelection struct {
	domain string
	labels []string
}

func (x *nodeSelection) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.domain, "domain", "", "only nodes of this domain")
	cmd.Flags().StringSliceVarP(&x.labels, "labels", "l", nil, "only nodes with these labels, NAME=VALUE")
}

// of returns the selected nodes. names may hold folded sets; none selects all.
func (x *nodeSelection) of(nodes []*headroomv1.Node, names []string) ([]*headroomv1.Node, error) {
	var wanted []string
	for _, n := range names {
		set, err := cli.ParseNodeSet(nodeName(n))
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, set...)
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(nodes, func(n *headroomv1.Node) bool { return n.GetName() == name }) {
			e := cli.Usage("node %q: unknown node", name)
			e.Code, e.Hint = "unknown-node", "coordinator node list lists the nodes"
			return nil, e
		}
	}
	var out []*headroomv1.Node
	for _, n := range nodes {
		if (len(names) == 0 || slices.Contains(wanted, n.GetName())) && (x.domain == "" || x.domain == n.GetDomain()) && x.labelled(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

func (x *nodeSelection) labelled(n *headroomv1.Node) bool {
	for _, l := range x.labels {
		name, value, _ := strings.Cut(l, "=")
		if got, ok := n.GetSettings().GetLabels()[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func nodeCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "node", Short: "Show and change nodes", Example: "  coordinator node list\n  coordinator node set n03 --weight 2"}
	group.AddCommand(
		nodeList(o, "list [NODE...]", "List the nodes with cap, power and state", false, cobra.ArbitraryArgs, "  coordinator node list --domain rack/r1"),
		nodeShow(o),
		nodeList(o, "watch [NODE...]", "List the nodes, refreshed", true, cobra.ArbitraryArgs, "  coordinator node watch --interval 2s"),
	)
	group.AddCommand(nodeChanges(o)...)
	return group
}

func nodeList(o *operator, use, short string, watch bool, args cobra.PositionalArgs, example string) *cobra.Command {
	var w cli.Watch
	var x nodeSelection
	stale, perNode := false, strings.HasPrefix(use, "show")
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.On = w.On || watch
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "node list", &headroomv1.ListNodesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListNodes)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				nodes, err := x.of(r.GetNodes(), args)
				if err != nil {
					return err
				}
				return o.print(cmd, &w, wrap("NodeList", r.GetMeta(), cli.Filled[nodeItem](nodes)), func(out io.Writer) error { return o.nodeTable(out, nodes, !perNode) })
			})
		},
	}
	w.Flags(cmd)
	x.flags(cmd)
	cmd.Flags().BoolVar(&perNode, "per-node", perNode, "one line per node; otherwise nodes with equal state, cap and domain are folded into one line of means")
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

type leaseItem struct {
	Epoch      uint64   `json:"epoch" of:"stamp.epoch.term"`
	Seq        uint64   `json:"seq" of:"stamp.seq"`
	RemainingS *float64 `json:"remaining_s" of:"lease_ms"`
}

type nodeItem struct {
	Name         string      `json:"name"`
	State        string      `json:"state"`
	CapW         *float64    `json:"cap_w" of:"target_uw"`
	RequestedW   *float64    `json:"requested_w" of:"target_uw"`
	EffectiveW   *float64    `json:"effective_w"`
	PowerW       *float64    `json:"power_w"`
	DemandW      *float64    `json:"demand_w"`
	CeilingW     float64     `json:"ceiling_w"`
	ChargeW      float64     `json:"charge_w"`
	FailSafeW    float64     `json:"fail_safe_w"`
	FloorW       float64     `json:"floor_w"`
	MaxW         float64     `json:"max_w"`
	RatedW       float64     `json:"rated_w"`
	DeclaredW    *float64    `json:"declared_rated_w"`
	DrawnW       *float64    `json:"drawn_w"`
	Weight       float64     `json:"weight"`
	Lease        leaseItem   `json:"lease" of:"."`
	LimitedRatio *float64    `json:"limited_ratio"`
	HeardS       *float64    `json:"heard_s"`
	Domain       string      `json:"domain"`
	Rung         *string     `json:"rung"`
	Version      *string     `json:"version"`
	MachineID    string      `json:"machine_id"`
	Health       []alarmItem `json:"health"`

	MinW       float64           `json:"min_w" of:"least_uw"`
	Labels     map[string]string `json:"labels" of:"settings.labels"`
	BMC        *string           `json:"bmc" of:"settings.bmc"`
	MovingFrom *string           `json:"moving_from"`
	OffBy      *string           `json:"off_by"`

	StateSince      *string `json:"state_since" of:"state_since_us"`
	LastDrift       *string `json:"last_drift" of:"last_drift_us"`
	CertificateEnds *string `json:"certificate_ends" of:"certificate_ends_us"`

	Sprint *nodeSprintItem `json:"sprint"`
}

type nodeSprintItem struct {
	ID        string  `json:"id"`
	CapW      float64 `json:"cap_w"`
	DurationS float64 `json:"duration_s"`
	EscrowJ   float64 `json:"escrow_j"`
}

func seconds(ms *int64) *float64 {
	if ms == nil {
		return nil
	}
	return new(float64(*ms) / 1000)
}

func shownAge(ms int64) string { return cli.Age(time.Duration(ms) * time.Millisecond) }

func (o *operator) nodeTable(w io.Writer, nodes []*headroomv1.Node, fold bool) error {
	head := []string{"NODE", "STATE", "CAP", "POWER", "USE", "FAIL-SAFE", "LEASE", "LIMITED", "DOMAIN"}
	if o.out.IsWide() {
		head = append(head, "EFFECTIVE", "CEILING", "CHARGE", "DEMAND", "HEARD", "RUNG", "SEQ", "RATED")
	}
	var rows [][]string
	for _, n := range nodes {
		use := cli.Unknown
		if n.PowerUw != nil && n.GetTargetUw() > 0 {
			use = cli.Percent(watts(n.GetPowerUw()) / watts(n.GetTargetUw()))
		}
		row := []string{
			n.GetName(), n.GetState(), nodeCap(n), cli.Opt(n.PowerUw, shownWatts), use, shownWatts(n.GetFailSafeUw()),
			cli.Opt(n.LeaseMs, shownAge), cli.Opt(n.LimitedRatio, cli.Percent), n.GetDomain(),
		}
		if o.out.IsWide() {
			row = append(row, cli.Opt(n.EffectiveUw, shownWatts), shownWatts(n.GetCeilingUw()), shownWatts(n.GetChargeUw()),
				cli.Opt(n.DemandUw, shownWatts), cli.Opt(n.HeardMs, shownAge), n.GetRung(), fmt.Sprint(n.GetStamp().GetSeq()), ratedText(n))
		}
		rows = append(rows, row)
	}
	table := cli.Table{Head: head, Rows: rows, Noun: "node"}
	if fold && !o.out.IsWide() {
		table.Fold = []string{"STATE", "CAP", "FAIL-SAFE", "DOMAIN"}
	}
	return o.out.TableOf(w, table)
}

// nodeCap is a node's cap in a table, unknown for a node without one: it observes, or
// has not been admitted.
func nodeCap(n *headroomv1.Node) string {
	return cli.Opt(n.TargetUw, shownWatts)
}

// ratedText is the accepted rating, and the declared one if it differs.
func ratedText(n *headroomv1.Node) string {
	if n.DeclaredRatedUw == nil {
		return shownWatts(n.GetRatedUw())
	}
	return fmt.Sprintf("%s (declares %s)", shownWatts(n.GetRatedUw()), shownWatts(n.GetDeclaredRatedUw()))
}

func memberCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "member", Short: "Show and change the servers of the cluster", Example: "  coordinator member list\n  coordinator member health"}
	var w cli.Watch
	list := &cobra.Command{
		Use: "list", Short: "List the servers with role, commit index and lag", Args: cobra.NoArgs, Example: "  coordinator member list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "member list", &headroomv1.ListMembersRequest{}, headroomv1connect.ClusterServiceClient.ListMembers)
				if err != nil {
					return err
				}
				return o.print(cmd, &w, wrap("MemberList", r.GetMeta(), cli.Filled[memberItem](r.GetMembers())), func(out io.Writer) error {
					return o.memberTable(out, r.GetMembers())
				})
			})
		},
	}
	w.Flags(list)
	group.AddCommand(list)
	group.AddCommand(memberChanges(o)...)
	return group
}

type memberItem struct {
	ID           string   `json:"id"`
	RaftAddress  string   `json:"raft_address"`
	RPCAddress   string   `json:"rpc_address"`
	Role         string   `json:"role"`
	Voter        bool     `json:"voter"`
	Commit       *uint64  `json:"commit"`
	LastContactS *float64 `json:"last_contact_s"`
	Version      *string  `json:"version"`
}

func (o *operator) memberTable(w io.Writer, members []*headroomv1.Member) error {
	newest := uint64(0)
	for _, m := range members {
		newest = max(newest, m.GetCommit())
	}
	var rows [][]string
	for _, m := range members {
		voter, lag := "no", cli.Unknown
		if m.GetVoter() {
			voter = "yes"
		}
		if m.Commit != nil {
			lag = fmt.Sprint(newest - m.GetCommit())
		}
		rows = append(rows, []string{
			m.GetId(), m.GetRpcAddress(), m.GetRole(), voter, cli.Opt(m.Commit, func(c uint64) string { return fmt.Sprint(c) }), lag,
			cli.Opt(m.LastContactMs, func(ms int64) string { return fmt.Sprintf("%.2fs", float64(ms)/1000) }), m.GetVersion(),
		})
	}
	return o.out.Table(w, []string{"SERVER", "ADDRESS", "ROLE", "VOTER", "COMMIT", "LAG", "LAST CONTACT", "VERSION"}, rows)
}

func eventCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "event", Short: "Show the audit log", Example: "  coordinator event list --limit 10"}
	var w cli.Watch
	var since sinceFlag
	var order cli.Order
	var limit uint32
	stale := false
	list := &cobra.Command{
		Use: "list", Aliases: []string{"watch"}, Short: "List committed changes, oldest first: what, who and why", Args: cobra.NoArgs,
		Example: "  coordinator event list --since 2h\n  coordinator event list --since 120 --reverse\n  coordinator event watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.On = w.On || cmd.CalledAs() == "watch"
			return w.Run(cmd, func() error {
				req := &headroomv1.ListEventsRequest{SinceRevision: since.revision, Limit: limit, Stale: stale}
				r, err := call(cmd.Context(), o, "event list", req, headroomv1connect.ClusterServiceClient.ListEvents)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				events := cli.Ordered(&order, after(&since, r.GetEvents()))
				return o.print(cmd, &w, wrap("EventList", r.GetMeta(), cli.Filled[eventItem](events)), func(out io.Writer) error {
					return o.eventTable(out, events)
				})
			})
		},
	}
	w.Flags(list)
	since.flag(list, "events")
	order.Flag(list)
	list.Flags().Uint32Var(&limit, "limit", 0, "only the newest N; 0 is all that are kept")
	list.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	group.AddCommand(list)
	return group
}

type eventItem struct {
	Revision  uint64 `json:"revision"`
	At        string `json:"at"`
	Actor     string `json:"actor"`
	What      string `json:"what"`
	Reason    string `json:"reason"`
	RequestID string `json:"request_id"`
}

func (o *operator) eventTable(w io.Writer, events []*headroomv1.Event) error {
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{fmt.Sprint(e.GetRevision()), cli.Clock(time.UnixMicro(e.GetAtUs())), e.GetActor(), e.GetWhat(), e.GetReason()})
	}
	return o.out.TableOf(w, cli.Table{Head: []string{"REV", "WHEN", "WHO", "WHAT", "REASON"}, Rows: rows, Noun: "event"})
}
