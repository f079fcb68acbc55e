package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

const (
	// brakePatience is how long one server may take to set the brake before the next
	// one is asked: it answers within a quarter of a second unless it hangs. Two that
	// both set it do no harm.
	brakePatience = 700 * time.Millisecond
	// brakeLonger is the same when every server was asked once.
	brakeLonger = 3 * time.Second
	// showPatience is how long a leader is looked for before brake show tells what
	// one server knows.
	showPatience = time.Second
)

func brakeCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "brake", Short: "Set and lift the emergency brake, which lowers every node to its fail-safe cap",
		Example: "  coordinator brake set --reason \"smoke in row 3\"\n  coordinator brake lift",
	}
	group.AddCommand(brakeSet(o), brakeLift(o), brakeSkip(o), brakeShow(o), brakeKey(o))
	return group
}

func brakeClient(peers rpc.Peers, addr string) headroomv1connect.BrakeServiceClient {
	return headroomv1connect.NewBrakeServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
}

// brakeCall sends one request to the server that leads.
func brakeCall[Req, Res any](
	ctx context.Context, o *operator, doing string, patience time.Duration, req *Req,
	method func(headroomv1connect.BrakeServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	return callWithin(ctx, o, doing, patience, req, headroomv1connect.NewBrakeServiceClient, method)
}

// anyServer asks one server after the other until one answers, whoever leads. A
// hint of who leads is followed as well.
func anyServer[Req, Res any](
	ctx context.Context, o *operator, cmd *cobra.Command, doing string, req *Req,
	method func(headroomv1connect.BrakeServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, string, error) {
	peers, addrs, err := o.reach()
	if err != nil {
		return nil, "", err
	}
	var at string
	hangs := true
	for _, patience := range cmp.Or(o.brakeWaits, [2]time.Duration{brakePatience, brakeLonger}) {
		if !hangs {
			break // each has said no: asking again changes nothing
		}
		hangs = false
		for i := 0; i < len(addrs) && ctx.Err() == nil; i++ {
			at = addrs[i]
			var res *connect.Response[Res]
			short, cancel := context.WithTimeout(ctx, patience)
			res, err = method(brakeClient(peers, at), short, connect.NewRequest(req))
			cancel()
			if err == nil {
				return res.Msg, at, nil
			}
			hangs = hangs || errors.Is(err, context.DeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded
			if hint, ok := rpc.LeaderOf(err); ok && hint != "" && !slices.Contains(addrs, hint) {
				addrs = append(addrs, hint)
			}
			if i+1 < len(addrs) {
				cli.Notef(cmd.ErrOrStderr(), "note: %s: %s; asking the next server", at, rpc.AsCLI(err, doing, at).Message)
			}
		}
	}
	return nil, at, o.explain(ctx, failure{err: err, doing: doing, at: at})
}

// brakeSetItem is `coordinator brake set`; what was not awaited is null.
type brakeSetItem struct {
	Generation uint64   `json:"generation"`
	Members    uint32   `json:"members"`
	Heard      *uint32  `json:"heard"`
	Silent     []string `json:"silent"`
	InLog      *bool    `json:"in_log"`
	NotStored  *string  `json:"not_stored"`
	Already    bool     `json:"already"`
	DryRun     bool     `json:"dry_run"`
	RequestID  string   `json:"request_id"`
}

func brakeSet(o *operator) *cobra.Command {
	req := &headroomv1.SetBrakeRequest{Change: &headroomv1.Change{}}
	wait := 2 * time.Second
	cmd := &cobra.Command{
		Use: "set", Short: "Lower every reachable node to its fail-safe cap now, with or without a leader", Args: cobra.NoArgs,
		Long: "Lower every reachable node to its fail-safe cap. The first server of --addr that answers signs a brake with a new generation\n" +
			"and sends it to every gossip member at once. It needs neither a leader nor a quorum, and no confirmation. Nodes that received\n" +
			"it accept no lease until the log has lifted the brake. Exit code 8: set, but not every member has answered.",
		Example: "  coordinator brake set --reason \"smoke in row 3\"\n  coordinator brake set --addr 10.0.0.12:7400 --wait 0s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Change.Actor = cli.Actor()
			if req.GetChange().GetRequestId() == "" {
				req.Change.RequestId = cli.RequestID()
			}
			res, at, err := anyServer(cmd.Context(), o, cmd, "brake set", req, headroomv1connect.BrakeServiceClient.SetBrake)
			if err != nil {
				return (&changing{request: req.GetChange().GetRequestId()}).named(err)
			}
			item := brakeSetItem{
				Generation: res.GetGeneration(), Members: res.GetMembers(), Silent: []string{}, NotStored: cli.Known(res.GetNotStored(), res.GetNotStored() != ""),
				Already: res.GetAlready(), DryRun: req.GetDryRun(), RequestID: req.GetChange().GetRequestId(),
			}
			if wait > 0 && !req.GetDryRun() {
				o.awaitBrake(cmd, at, wait, &item)
			}
			return o.printBrakeSet(cmd, res.GetServer(), item)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Change.Reason, "reason", "", "reason, shown to users and in the audit log")
	f.StringVar(&req.Change.RequestId, "request-id", "", "idempotency key; a request with the same key is executed once")
	f.BoolVar(&req.DryRun, "dry-run", false, "print what would be set; set nothing")
	f.DurationVar(&wait, "wait", wait, "time to wait for the members and the log; 0s does not wait")
	return cmd
}

// awaitBrake adds the members that have received a brake. A failure here does not mean that the brake failed.
func (o *operator) awaitBrake(cmd *cobra.Command, at string, wait time.Duration, item *brakeSetItem) {
	ctx, cancel := context.WithTimeout(cmd.Context(), wait+brakeLonger)
	defer cancel()
	peers, _, err := o.reach()
	if err != nil {
		return
	}
	r, err := brakeClient(peers, at).AwaitBrake(ctx, connect.NewRequest(&headroomv1.AwaitBrakeRequest{Generation: item.Generation, WaitMs: wait.Milliseconds()}))
	if err != nil {
		cli.Notef(cmd.ErrOrStderr(), "note: %s cannot report which members received it: %v", at, err)
		return
	}
	item.Generation, item.Silent = r.Msg.GetGeneration(), append(item.Silent, r.Msg.GetSilent()...)
	heard, inLog := r.Msg.GetHeard(), r.Msg.GetInLog()
	item.Heard, item.InLog = &heard, &inLog
}

func (o *operator) printBrakeSet(cmd *cobra.Command, server string, i brakeSetItem) error {
	var err error
	if o.out.IsJSON() {
		meta := &headroomv1.Meta{Server: server, AsOfUs: time.Now().UnixMicro(), Consistency: "stale"}
		err = o.out.JSON(cmd.OutOrStdout(), wrap("BrakeSet", meta, []brakeSetItem{i}))
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), brakeSetText(cmd, server, i))
	}
	silent := len(i.Silent)
	switch {
	case err != nil:
		return err
	case silent > 0:
		return &cli.Error{
			Code: "not-confirmed", Exit: cli.ExitDegraded, RequestID: i.RequestID,
			Message: fmt.Sprintf("brake %d is set, but %s did not answer: %s", i.Generation, cli.Count(silent, "member"), cli.NodeSet(i.Silent)),
			Hint:    "an unreachable node falls to its fail-safe cap when its lease expires; coordinator brake show lists who has stored the brake",
		}
	case i.NotStored != nil:
		return &cli.Error{
			Code: "not-stored", Exit: cli.ExitDegraded, RequestID: i.RequestID,
			Message: fmt.Sprintf("brake %d is set, but %s could not store it: %s", i.Generation, server, *i.NotStored),
			Hint:    "make room in its state_dir; the other members have it",
		}
	}
	return nil
}

func brakeSetText(cmd *cobra.Command, server string, i brakeSetItem) string {
	if i.DryRun {
		return fmt.Sprintf("would be: brake %d set by %s, sent to %s\nnothing changed; %s makes it so\n", i.Generation, server, cli.Count(int(i.Members), "member"),
			cli.CommandLine(cmd, "dry-run", "output"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "brake %d set by %s: every node that receives it lowers itself to its fail-safe cap\n", i.Generation, server)
	if i.Heard != nil {
		fmt.Fprintf(&b, "received   by %d of %d members\n", *i.Heard, int(*i.Heard)+len(i.Silent))
	} else {
		fmt.Fprintf(&b, "sent to    %s\n", cli.Count(int(i.Members), "member"))
	}
	switch {
	case i.InLog != nil && *i.InLog:
		b.WriteString("log        committed: nodes without gossip get it with their leases\n")
	case i.InLog != nil:
		b.WriteString("log        not committed yet: the next leader commits it before it grants any lease\n")
	}
	fmt.Fprintf(&b, "lift with  coordinator brake lift --generation %d\n", i.Generation)
	return b.String()
}

func brakeLift(o *operator) *cobra.Command {
	c := &changing{o: o}
	req := &headroomv1.LiftBrakeRequest{}
	cmd := &cobra.Command{
		Use: "lift", Short: "Lift the brake", Args: cobra.NoArgs,
		Long: "Lift the brake. This needs a leader: nodes accept only a lift that is committed in the log. Without --generation it shows the\n" +
			"brake in force and asks; with it, another generation in force is a conflict (exit code 5).",
		Example: "  coordinator brake lift\n  coordinator brake lift --generation 5 --yes --reason \"the fire is out\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			what := fmt.Sprintf("brake %d", req.GetGeneration())
			if !cmd.Flags().Changed("generation") {
				r, err := brakeCall(cmd.Context(), o, "brake lift", o.patience, &headroomv1.GetBrakeRequest{}, headroomv1connect.BrakeServiceClient.GetBrake)
				if err != nil {
					return err
				}
				req.Generation = r.GetLog().GetGeneration()
				what = recordWords(r.GetLog())
			}
			if err := ask(cmd, "lift "+what+", so that nodes are raised again"); err != nil {
				return err
			}
			req.Change, req.DryRun = c.message(cmd), c.dryRun
			out, err := brakeCall(cmd.Context(), o, "brake lift", o.patience, req, headroomv1connect.BrakeServiceClient.LiftBrake)
			if err != nil {
				return c.named(err)
			}
			return c.print(cmd, out)
		},
	}
	c.flags(cmd)
	cmd.Flags().Uint64Var(&req.Generation, "generation", 0, "generation to lift (default: the one in force)")
	return cmd
}

func brakeSkip(o *operator) *cobra.Command {
	c := &changing{o: o}
	cmd := &cobra.Command{
		Use: "skip GENERATION", Short: "Skip a brake generation that no key of this cluster has signed", Args: cobra.ExactArgs(1),
		Long: "Skip a brake generation that no key of this cluster has signed, so that the node that obeys it can be granted leases again. The\n" +
			"alarm brake-unproven names the node and the generation. The next brake gets a higher generation. A brake that was set is lifted,\n" +
			"never skipped. Nodes ignore a brake at or below the skipped generation: check first that all servers are reachable.",
		Example: "  coordinator brake skip 12 --reason \"n07 came from another cluster\" --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			generation, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || generation == 0 {
				return cli.Usage("GENERATION %q is no number above 0", args[0])
			}
			if err := ask(cmd, fmt.Sprintf("skip brake generations up to %d", generation)); err != nil {
				return err
			}
			req := &headroomv1.SkipBrakeRequest{Generation: generation, Change: c.message(cmd), DryRun: c.dryRun}
			out, err := brakeCall(cmd.Context(), o, "brake skip", o.patience, req, headroomv1connect.BrakeServiceClient.SkipBrake)
			if err != nil {
				return c.named(err)
			}
			return c.print(cmd, out)
		},
	}
	c.flags(cmd)
	return cmd
}

// recordWords is a brake in a sentence.
func recordWords(r *headroomv1.BrakeRecord) string {
	if r.GetGeneration() == 0 {
		return "no brake"
	}
	out := fmt.Sprintf("brake %d", r.GetGeneration())
	if r.GetActor() != "" {
		out += " set by " + r.GetActor()
	}
	if r.GetAtUs() != 0 {
		out += " at " + cli.Clock(time.UnixMicro(r.GetAtUs()))
	}
	if r.GetReason() != "" {
		out += " (" + r.GetReason() + ")"
	}
	return out
}

// brakeItem is `coordinator brake show`.
type brakeItem struct {
	Set    bool         `json:"set"`
	Log    *brakeRecord `json:"log"`
	Lifted uint64       `json:"lifted"`
	Gossip *brakeRecord `json:"gossip"`
	CanSet bool         `json:"can_set"`
	Nodes  *uint32      `json:"nodes"`
	Behind []string     `json:"behind"`
}

type brakeRecord struct {
	Generation uint64  `json:"generation"`
	Actor      *string `json:"actor"`
	Reason     *string `json:"reason"`
	At         *string `json:"at"`
}

func newBrakeRecord(r *headroomv1.BrakeRecord) *brakeRecord {
	if r.GetGeneration() == 0 {
		return nil
	}
	b := &brakeRecord{}
	cli.Fill(b, r)
	return b
}

func brakeShow(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "show", Short: "Show the state of the brake", Args: cobra.NoArgs,
		Long: "Show the brake as the leader knows it; without a leader within a second, as one server knows it, which may be stale.\n" +
			"Gossip may have a brake that is not in the log yet: then the leader commits it before it grants any lease.",
		Example: "  coordinator brake show\n  coordinator brake show --stale --addr 10.0.0.12:7400 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				r, err := o.getBrake(cmd, stale)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				item := brakeItem{
					Set: max(r.GetLog().GetGeneration(), r.GetGossip().GetGeneration()) > r.GetLifted(), Log: newBrakeRecord(r.GetLog()), Lifted: r.GetLifted(),
					Gossip: newBrakeRecord(r.GetGossip()), CanSet: r.GetCanSet(), Nodes: r.Nodes, Behind: append([]string{}, r.GetBehind()...),
				}
				return o.print(cmd, &w, wrap("Brake", r.GetMeta(), []brakeItem{item}), func(out io.Writer) error {
					_, err := io.WriteString(out, brakeText(r, item))
					return err
				})
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

// getBrake reads from the leader, or from any server without one.
func (o *operator) getBrake(cmd *cobra.Command, stale bool) (*headroomv1.GetBrakeResponse, error) {
	if !stale {
		r, err := brakeCall(cmd.Context(), o, "brake show", min(o.patience, showPatience), &headroomv1.GetBrakeRequest{}, headroomv1connect.BrakeServiceClient.GetBrake)
		if err == nil || cmd.Context().Err() != nil {
			return r, err
		}
	}
	r, _, err := anyServer(cmd.Context(), o, cmd, "brake show", &headroomv1.GetBrakeRequest{Stale: true}, headroomv1connect.BrakeServiceClient.GetBrake)
	return r, err
}

func brakeText(r *headroomv1.GetBrakeResponse, i brakeItem) string {
	var b strings.Builder
	state := "not set"
	if i.Set {
		state = "SET: every node to its fail-safe cap"
	}
	fmt.Fprintf(&b, "brake    %s\nlog      %s", state, recordWords(r.GetLog()))
	if i.Lifted > 0 {
		fmt.Fprintf(&b, ", lifted up to %d", i.Lifted)
	}
	fmt.Fprintf(&b, "\ngossip   %s, as received by %s", recordWords(r.GetGossip()), r.GetMeta().GetServer())
	if !i.CanSet {
		fmt.Fprintf(&b, "; %s has no private key to set a brake", r.GetMeta().GetServer())
	}
	b.WriteByte('\n')
	if i.Nodes != nil && i.Set {
		fmt.Fprintf(&b, "nodes    %d of %d reachable nodes have it", int(*i.Nodes)-len(i.Behind), *i.Nodes)
		if len(i.Behind) > 0 {
			fmt.Fprintf(&b, "; held by their leases: %s", cli.NodeSet(i.Behind))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// brakeKeyItem is `coordinator brake key create`.
type brakeKeyItem struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// brakeKey is the group of key commands. "brake key" with no further word creates a pair as
// "brake key create" does: it was the only form.
func brakeKey(o *operator) *cobra.Command {
	create := brakeKeyCreate(o, "create")
	group := brakeKeyCreate(o, "key")
	group.Short = "Create and show the keys that sign and verify the brake"
	group.Long = "key without a further word creates a pair, as key create does."
	group.Example = "  coordinator brake key create\n  coordinator brake key show /etc/headroom/brake.pub"
	group.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	group.AddCommand(create, brakeKeyShow(o))
	return group
}

func brakeKeyCreate(o *operator, use string) *cobra.Command {
	private, public := "brake.key", "brake.pub"
	cmd := &cobra.Command{
		Use: use, Short: "Create the key pair that signs and verifies the brake", Args: cobra.NoArgs,
		Long: use + " makes a pair on this machine and contacts no server. It does not overwrite a file. To change keys, add the new public\n" +
			"key to every member's file and restart them, then change the servers' private key, then remove the old public key.",
		Example: "  coordinator brake key create\n  coordinator brake key create --private /etc/headroom/coordinator/brake.key --public /etc/headroom/brake.pub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := brake.WriteKey(private, public); err != nil {
				return err
			}
			if o.out.IsJSON() {
				return o.out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "BrakeKey", "api": "v1", "items": []brakeKeyItem{{private, public}}})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  for servers only: brake.private_key_file; anyone with this file can lower the whole cluster\n"+
				"%s  for every server and node: brake.public_key_file\n", private, public)
			return err
		},
	}
	cmd.Flags().StringVar(&private, "private", private, "file for the private key, readable only by its owner")
	cmd.Flags().StringVar(&public, "public", public, "file for the public key")
	return cmd
}

// brakeFingerprint is one key of a file in JSON.
type brakeFingerprint struct {
	Fingerprint string `json:"fingerprint"`
	// Signs reports whether the file holds the private key.
	Signs bool `json:"signs"`
}

func brakeKeyShow(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show the fingerprints of the keys in a file", Args: cobra.ExactArgs(1),
		Long:    "show reads a file of public keys, or a private key. A pair has one fingerprint. It never prints a key.",
		Example: "  coordinator brake key show brake.pub",
		RunE: func(cmd *cobra.Command, args []string) error {
			prints, signs, err := brake.FileFingerprints(args[0])
			if err != nil {
				return err
			}
			use := "verifies"
			if signs {
				use = "signs"
			}
			items, rows := []brakeFingerprint{}, [][]string{}
			for _, f := range prints {
				items, rows = append(items, brakeFingerprint{f, signs}), append(rows, []string{f, use})
			}
			if o.out.IsJSON() {
				return o.out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "BrakeKeyList", "api": "v1", "items": items})
			}
			return o.out.Table(cmd.OutOrStdout(), []string{"KEY", "USE"}, rows)
		},
	}
}
