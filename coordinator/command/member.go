package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/internal/pause"
	"headroom/internal/rpc"
)

func memberClient(peers rpc.Peers, addr string) headroomv1connect.MemberServiceClient {
	return headroomv1connect.NewMemberServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
}

// callMember sends a membership request to the leader.
func callMember[Req, Res any](
	ctx context.Context, o *operator, doing string, req *Req,
	method func(headroomv1connect.MemberServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	return callOn(ctx, o, doing, req, headroomv1connect.NewMemberServiceClient, method)
}

// groupChange has the flags of every command that changes the membership.
type groupChange struct {
	reason, request string
	dry, exited     bool
}

func (g *groupChange) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.reason, "reason", "", "reason, for the audit log")
	f.StringVar(&g.request, "request-id", "", "idempotency key; a request with the same key is executed once")
	f.BoolVar(&g.dry, "dry-run", false, "print what would change; change nothing")
	f.BoolVar(&g.exited, "exit-code", false, "with --dry-run: exit with 10 if there would be changes")
	f.Bool("yes", false, "skip the confirmation, for non-interactive use")
}

// message returns the change for the server, with a generated request id if none was given.
func (g *groupChange) message() *headroomv1.Change {
	g.request = cmp.Or(g.request, cli.RequestID())
	return &headroomv1.Change{Actor: cli.Actor(), Reason: g.reason, RequestId: g.request}
}

// named adds the request id to an error, so that the same request can be sent again.
func (g *groupChange) named(err error) error {
	if e, ok := errors.AsType[*cli.Error](err); ok && e.RequestID == "" {
		e.RequestID = g.request
		if e.Exit == cli.ExitUnknown {
			e.Hint += "; it was --request-id " + g.request
		}
	}
	return err
}

// ends returns the error of a dry run with --exit-code that found changes.
func (g *groupChange) ends(cmd *cobra.Command, already bool) error {
	if g.dry && g.exited && !already {
		return &cli.Error{Code: "changes", Exit: cli.ExitChanges, Message: "there would be changes", Hint: cli.CommandLine(cmd, "dry-run", "exit-code", "output") + " makes them", RequestID: g.request}
	}
	return nil
}

// memberChanges are the commands below "member" beside list.
func memberChanges(o *operator) []*cobra.Command {
	return []*cobra.Command{memberAdd(o), memberPromote(o), memberRemove(o), memberTransfer(o), memberHealth(o), memberRecover(o)}
}

func memberAdd(o *operator) *cobra.Command {
	var g groupChange
	addr := ""
	cmd := &cobra.Command{
		Use: "add SERVER --rpc HOST:PORT", Short: "Add a non-voting server", Args: cobra.ExactArgs(1),
		Long: "Add a non-voting server to the cluster. Start it first, with an empty state_dir and with a server of the cluster in join:; it waits\n" +
			"until it is added. Then it replicates the log; coordinator member promote gives it a vote once it is stable.\n" +
			"Adding a server that is already a member updates its addresses.",
		Example: "  coordinator member add c4 --rpc 10.0.0.14:7400 --reason \"replaces c2\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if addr == "" {
				e := cli.Usage("coordinator member add: --rpc is missing")
				e.Hint = "name the RPC address of the waiting server, e.g. --rpc 10.0.0.14:7400"
				return e
			}
			req := &headroomv1.AddMemberRequest{Id: args[0], RpcAddress: addr, DryRun: g.dry, Change: g.message()}
			r, err := callMember(cmd.Context(), o, "member add", req, headroomv1connect.MemberServiceClient.AddMember)
			if err != nil {
				return g.named(err)
			}
			text := "added      server %s (raft %s), non-voting; coordinator member promote %s gives it a vote\n"
			if g.dry {
				text = "nothing changed; server %s (raft %s) can be added; then promote %s\n"
			}
			m := r.GetMember()
			return g.answer(cmd, o, "MemberAdd", r.GetMeta(), m, r.GetAlready(), fmt.Sprintf(text, args[0], m.GetRaftAddress(), args[0]))
		},
	}
	g.flags(cmd)
	cmd.Flags().StringVar(&addr, "rpc", "", "RPC address of the new server, host:port")
	return cmd
}

// answer prints the result of a change.
func (g *groupChange) answer(cmd *cobra.Command, o *operator, kind string, meta *headroomv1.Meta, m *headroomv1.MemberHealth, already bool, text string) error {
	item := struct {
		serverItem
		Already   bool   `json:"already"`
		DryRun    bool   `json:"dry_run"`
		RequestID string `json:"request_id"`
	}{newServerItem(m), already, g.dry, g.request}
	var err error
	switch {
	case o.out.IsJSON():
		err = o.out.JSON(cmd.OutOrStdout(), wrap(kind, meta, []any{item}))
	case already:
		_, err = io.WriteString(cmd.OutOrStdout(), "status: no change needed\n")
	case g.dry:
		_, err = io.WriteString(cmd.OutOrStdout(), text)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%scommitted  revision %d, epoch %d, request %s\n", text, meta.GetRevision(), meta.GetEpoch().GetTerm(), g.request)
	}
	return errors.Join(err, g.ends(cmd, already))
}

// promoteRetry is the interval at which a promotion is retried until the server is stable.
const promoteRetry = 500 * time.Millisecond

func memberPromote(o *operator) *cobra.Command {
	var g groupChange
	wait := time.Duration(0)
	cmd := &cobra.Command{
		Use: "promote SERVER", Short: "Give a server a vote, once it has been healthy and up to date for ten seconds", Args: cobra.ExactArgs(1),
		Example: "  coordinator member promote c4 --wait 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &headroomv1.PromoteMemberRequest{Id: args[0], DryRun: g.dry, Change: g.message()}
			r, err := callMember(cmd.Context(), o, "member promote", req, headroomv1connect.MemberServiceClient.PromoteMember)
			for until := time.Now().Add(wait); notStable(err) && time.Now().Before(until) && pause.For(cmd.Context(), promoteRetry); {
				r, err = callMember(cmd.Context(), o, "member promote", req, headroomv1connect.MemberServiceClient.PromoteMember)
			}
			if err != nil {
				return g.named(err)
			}
			text := fmt.Sprintf("promoted   server %s is a voter\n", args[0])
			if g.dry {
				text = fmt.Sprintf("nothing changed; server %s is stable and can be promoted\n", args[0])
			}
			return g.answer(cmd, o, "MemberPromote", r.GetMeta(), r.GetMember(), r.GetAlready(), text)
		},
	}
	g.flags(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "time to wait until the server is stable")
	return cmd
}

func notStable(err error) bool {
	e, ok := errors.AsType[*cli.Error](err)
	return ok && e.Code == "not-stable"
}

func memberRemove(o *operator) *cobra.Command {
	var g groupChange
	cmd := &cobra.Command{
		Use: "remove SERVER", Short: "Remove a server; a leader transfers leadership first", Args: cobra.ExactArgs(1),
		Example: "  coordinator member remove c2 --reason \"its disk is dying\" --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ask(cmd, "remove server "+args[0]+" from the cluster"); err != nil {
				return err
			}
			req := &headroomv1.RemoveMemberRequest{Id: args[0], DryRun: g.dry, Change: g.message()}
			r, err := callMember(cmd.Context(), o, "member remove", req, headroomv1connect.MemberServiceClient.RemoveMember)
			if err != nil {
				return g.named(err)
			}
			text := fmt.Sprintf("removed    server %s; stop it, and empty its state_dir before adding it again\n", args[0])
			if g.dry {
				text = fmt.Sprintf("nothing changed; server %s can be removed, the others have a healthy majority\n", args[0])
			}
			return g.answer(cmd, o, "MemberRemove", r.GetMeta(), r.GetMember(), r.GetAlready(), text)
		},
	}
	g.flags(cmd)
	return cmd
}

func memberTransfer(o *operator) *cobra.Command {
	var g groupChange
	cmd := &cobra.Command{
		Use: "transfer [SERVER]", Short: "Transfer leadership to SERVER, or to the most up-to-date follower", Args: cobra.MaximumNArgs(1),
		Example: "  coordinator member transfer c3 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ask(cmd, "transfer leadership to "+cmp.Or(first(args), "another server")); err != nil {
				return err
			}
			req := &headroomv1.TransferLeadRequest{Id: first(args), DryRun: g.dry, Change: g.message()}
			r, err := callMember(cmd.Context(), o, "member transfer", req, headroomv1connect.MemberServiceClient.TransferLead)
			if err != nil {
				return g.named(err)
			}
			return g.transferred(cmd, o, r)
		},
	}
	g.flags(cmd)
	return cmd
}

func (g *groupChange) transferred(cmd *cobra.Command, o *operator, r *headroomv1.TransferLeadResponse) error {
	item := map[string]any{"from": r.GetFrom(), "to": r.GetTo(), "already": r.GetAlready(), "dry_run": g.dry, "request_id": g.request}
	var err error
	switch {
	case o.out.IsJSON():
		err = o.out.JSON(cmd.OutOrStdout(), wrap("MemberTransfer", r.GetMeta(), []any{item}))
	case r.GetAlready():
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "status: %s is already the leader; nothing changed\n", r.GetTo())
	case g.dry:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing changed; %s would transfer leadership to %s\n", r.GetFrom(), r.GetTo())
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "transferred  leadership from %s to %s\n", r.GetFrom(), r.GetTo())
	}
	return errors.Join(err, g.ends(cmd, r.GetAlready()))
}

func memberHealth(o *operator) *cobra.Command {
	var w cli.Watch
	cmd := &cobra.Command{
		Use: "health", Short: "Show the health of every server", Args: cobra.NoArgs,
		Long: "Show the health of every server: contact, lag, disk, clock and version. Exits with 1 if a server is not healthy, with 8 if one has\n" +
			"not been stable for ten seconds: it has just been restarted, or the leader has just been elected.",
		Example: "  coordinator member health\n  coordinator member health -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				r, err := callMember(cmd.Context(), o, "member health", &headroomv1.GetMemberHealthRequest{}, headroomv1connect.MemberServiceClient.GetMemberHealth)
				if err != nil {
					return err
				}
				items := each.List(r.GetMembers(), newServerItem)
				e := wrap("MemberHealth", r.GetMeta(), items)
				if err := o.print(cmd, &w, e, func(out io.Writer) error { return o.healthTable(out, r) }); err != nil || w.On {
					return err
				}
				return unhealthy(r)
			})
		},
	}
	w.Flags(cmd)
	return cmd
}

// unhealthy returns an error if some server is not healthy.
func unhealthy(r *headroomv1.GetMemberHealthResponse) error {
	var ill []string
	for _, m := range r.GetMembers() {
		if !m.GetHealthy() {
			ill = append(ill, m.GetId())
		}
	}
	if len(ill) == 0 {
		return unsettled(r)
	}
	return &cli.Error{
		Code: "unhealthy", Exit: cli.ExitFailed, Message: fmt.Sprintf("%d of %d servers not healthy: %s", len(ill), len(r.GetMembers()), strings.Join(ill, ", ")),
		Hint: "the lines above have the reasons and what to do",
	}
}

// unsettled returns an error if some server has not been healthy for long enough to rely on it.
func unsettled(r *headroomv1.GetMemberHealthResponse) error {
	var young []string
	for _, m := range r.GetMembers() {
		if m.StableMs != nil && len(r.GetMembers()) > 1 && m.GetStableMs() < consensus.StableFor.Milliseconds() {
			young = append(young, fmt.Sprintf("%s for %s", m.GetId(), shownAge(m.GetStableMs())))
		}
	}
	if len(young) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "not-stable", Exit: cli.ExitDegraded, Message: fmt.Sprintf("healthy, but not yet stable for %v: %s", consensus.StableFor, strings.Join(young, ", ")),
		Hint: "wait a few seconds and check again",
	}
}

// serverItem is one server in JSON.
type serverItem struct {
	ID           string      `json:"id"`
	RPCAddress   string      `json:"rpc_address"`
	RaftAddress  string      `json:"raft_address"`
	Role         string      `json:"role"`
	Voter        bool        `json:"voter"`
	ToVote       bool        `json:"to_vote"`
	Leaving      bool        `json:"leaving"`
	Healthy      bool        `json:"healthy"`
	Lag          *uint64     `json:"lag"`
	LastContactS *float64    `json:"last_contact_s"`
	StableS      *float64    `json:"stable_s"`
	Version      *string     `json:"version"`
	Rules        *uint32     `json:"rules_newest"`
	ClockOffsetS *float64    `json:"clock_offset_s"`
	DiskFree     *uint64     `json:"disk_free_bytes"`
	SlowestS     *float64    `json:"slowest_write_s"`
	Health       []alarmItem `json:"health"`
	// GossipKeys are fingerprints, that of the key it sends with first; null while unknown.
	GossipKeys []string `json:"gossip_keys"`
}

func newServerItem(m *headroomv1.MemberHealth) serverItem {
	f, known := m.GetFacts(), m.GetFacts() != nil
	item := serverItem{
		ID: m.GetId(), RPCAddress: m.GetRpcAddress(), RaftAddress: m.GetRaftAddress(), Role: m.GetRole(), Voter: m.GetVoter(),
		ToVote: m.GetToVote(), Leaving: m.GetLeaving(), Healthy: m.GetHealthy(), Lag: m.Lag, LastContactS: seconds(m.LastContactMs),
		StableS: seconds(m.StableMs), Version: cli.Known(f.GetVersion(), known), Rules: cli.Known(f.GetRulesNewest(), known), Health: []alarmItem{},
		SlowestS: cli.Known(float64(f.GetSlowestWriteUs())/1e6, known), GossipKeys: f.GetGossipKeys(),
	}
	if known {
		item.DiskFree = f.DiskFreeBytes
	}
	if m.ClockOffsetUs != nil {
		item.ClockOffsetS = new(float64(m.GetClockOffsetUs()) / 1e6)
	}
	for _, h := range m.GetHealth() {
		item.Health = append(item.Health, alarmItem{h.GetCode(), h.GetSeverity(), h.GetText(), h.GetHint()})
	}
	return item
}

func (o *operator) healthTable(w io.Writer, r *headroomv1.GetMemberHealthResponse) error {
	var rows [][]string
	for _, m := range r.GetMembers() {
		x := newServerItem(m)
		state, voter := "ok", "no"
		if !x.Healthy {
			state = "FAIL"
		} else if len(x.Health) > 0 {
			state = "warn"
		}
		if x.Voter {
			voter = "yes"
		}
		row := []string{
			x.ID, state, x.Role, voter, cli.Opt(x.Lag, func(n uint64) string { return fmt.Sprint(n) }), cli.Opt(m.LastContactMs, shownAge),
			cli.Opt(m.StableMs, shownAge), cli.Opt(x.DiskFree, func(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }),
			cli.Opt(x.ClockOffsetS, func(s float64) string { return fmt.Sprintf("%+.3fs", s) }), cli.Opt(x.Version, func(v string) string { return v }),
		}
		if o.out.IsWide() {
			row = append(row, strings.Join(x.GossipKeys, " "))
		}
		rows = append(rows, row)
	}
	head := []string{"SERVER", "STATE", "ROLE", "VOTER", "LAG", "LAST CONTACT", "STABLE", "DISK FREE", "CLOCK", "VERSION"}
	if o.out.IsWide() {
		head = append(head, "GOSSIP KEYS")
	}
	if err := o.out.Table(w, head, rows); err != nil {
		return err
	}
	if o.out.Format == "csv" || o.out.Format == "name" {
		return nil
	}
	text := fmt.Sprintf("tolerates %d more failures; rules %d in force\n", max(0, r.GetTolerates()), r.GetRules())
	if r.GetTolerates() == 1 {
		text = fmt.Sprintf("tolerates 1 more failure; rules %d in force\n", r.GetRules())
	}
	for _, m := range r.GetMembers() {
		for _, h := range m.GetHealth() {
			text += fmt.Sprintf("%s %s %s: %s\n     hint: %s\n", severityWord(h), h.GetCode(), m.GetId(), h.GetText(), h.GetHint())
		}
	}
	for _, h := range r.GetHealth() {
		text += fmt.Sprintf("%s %s: %s\n     hint: %s\n", severityWord(h), h.GetCode(), h.GetText(), h.GetHint())
	}
	_, err := io.WriteString(w, text)
	return err
}
