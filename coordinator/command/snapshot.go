package command

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/consensus"
	"headroom/coordinator"
	"headroom/coordinator/members"
	"headroom/coordinator/recovery"
	"headroom/coordinator/snapshot"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

func snapshotCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "snapshot", Short: "Save, inspect and restore snapshots",
		Example: "  coordinator snapshot save today.snap\n  coordinator snapshot inspect today.snap",
	}
	group.AddCommand(snapshotSave(o), snapshotInspect(o), snapshotRestore(o))
	return group
}

func snapshotSave(o *operator) *cobra.Command {
	var g groupChange
	stale, overwrite := false, false
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the committed state to a file", Args: cobra.ExactArgs(1),
		Long: "Save the whole committed state into a file: power tree, budgets, nodes with their charges, jobs, servers, tokens (as hashes), audit log.\n" +
			"The leader saves it, so that nothing acknowledged before is missing; with --stale the server that --addr names, of what it has.",
		Example: "  coordinator snapshot save /var/backups/headroom.snap\n  coordinator snapshot save c2.snap --addr 10.0.0.12:7400 --stale",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Lstat(args[0]); err == nil && !overwrite {
				return &cli.Error{
					Code: "exists", Exit: cli.ExitConflict, Message: args[0] + " exists", Hint: "choose another name, or add --overwrite",
				}
			}
			h, state, err := o.fetchSnapshot(cmd.Context(), stale)
			if err != nil {
				return err
			}
			if !g.dry {
				if err := snapshot.Write(args[0], h, state); err != nil {
					return err
				}
			}
			return o.saved(cmd, &g, args[0], h, stale)
		},
	}
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace a file that exists")
	cmd.Flags().BoolVar(&g.dry, "dry-run", false, "fetch and verify the snapshot; write nothing")
	return cmd
}

// fileItem is a snapshot file in JSON.
type fileItem struct {
	File string `json:"file"`
	snapshot.Header
	Written *bool         `json:"written,omitempty"`
	Domains []budgetOf    `json:"domains,omitempty"`
	Counts  *snapshotTell `json:"counts,omitempty"`
}

// budgetOf is a domain's budget in a snapshot.
type budgetOf struct {
	Domain  string  `json:"domain"`
	Parent  *string `json:"parent"`
	BudgetW float64 `json:"budget_w"`
}

// snapshotTell counts what a snapshot holds.
type snapshotTell struct {
	Nodes     int `json:"nodes"`
	Jobs      int `json:"jobs"`
	Servers   int `json:"servers"`
	Schedules int `json:"schedules"`
	Sprints   int `json:"sprints"`
	Tokens    int `json:"tokens"`
	Events    int `json:"events"`
}

// frame is the envelope of an answer that comes from a file.
func frame(h snapshot.Header, kind, consistency string, item any) envelope {
	return envelope{
		Kind: kind, API: "v1", Revision: h.Revision, AsOf: h.Saved.UTC().Format(time.RFC3339Nano), Consistency: consistency,
		Server: h.Server, Epoch: cli.Known(h.Term, true), Items: []any{item},
	}
}

func (o *operator) saved(cmd *cobra.Command, g *groupChange, file string, h snapshot.Header, stale bool) error {
	consistency := "linearizable"
	if stale {
		consistency = "stale"
		cli.Notef(cmd.ErrOrStderr(), "note: read from %s without asking the leader; it may be behind", h.Server)
	}
	if o.out.IsJSON() {
		return o.out.JSON(cmd.OutOrStdout(), frame(h, "SnapshotSave", consistency, fileItem{File: file, Header: h, Written: new(!g.dry)}))
	}
	text := fmt.Sprintf("saved      %s: %s at revision %d, incarnation %d, %d bytes, by %s\n", file, h.Cluster, h.Revision, h.Incarnation, h.Bytes, h.Server)
	if g.dry {
		text = fmt.Sprintf("nothing written; %s at revision %d, incarnation %d, %d bytes, would be saved by %s\n", h.Cluster, h.Revision, h.Incarnation, h.Bytes, h.Server)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

func snapshotInspect(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Verify a snapshot file and show its contents", Args: cobra.ExactArgs(1),
		Example: "  coordinator snapshot inspect /var/backups/headroom.snap",
		RunE: func(cmd *cobra.Command, args []string) error {
			h, st, err := snapshot.Load(args[0])
			if err != nil {
				return err
			}
			if o.out.IsJSON() {
				return o.out.JSON(cmd.OutOrStdout(), frame(h, "SnapshotInspect", "file", newFileItem(args[0], h, st)))
			}
			return o.inspected(cmd.OutOrStdout(), h, st)
		},
	}
}

func newFileItem(file string, h snapshot.Header, st *ledger.State) fileItem {
	item := fileItem{File: file, Header: h, Domains: []budgetOf{}, Counts: &snapshotTell{
		Nodes: len(st.Nodes), Jobs: len(st.Jobs), Servers: len(st.Servers), Schedules: len(st.Schedules), Sprints: len(st.Sprints),
		Tokens: len(st.Tokens), Events: len(st.Events),
	}}
	for _, d := range st.Tree().Domains() {
		item.Domains = append(item.Domains, budgetOf{Domain: d.Name, Parent: cli.Known(d.Parent, d.Parent != ""), BudgetW: d.Budget.Watts()})
	}
	return item
}

func (o *operator) inspected(w io.Writer, h snapshot.Header, st *ledger.State) error {
	if err := o.out.Table(w, []string{"CLUSTER", "SAVED", "BY", "VERSION", "RULES", "INCARNATION", "TERM", "REVISION", "INDEX", "BYTES"}, [][]string{{
		h.Cluster, cli.Clock(h.Saved), h.Server, h.Version, fmt.Sprint(h.Rules), fmt.Sprint(h.Incarnation), fmt.Sprint(h.Term), fmt.Sprint(h.Revision),
		fmt.Sprint(h.Index), fmt.Sprint(h.Bytes),
	}}); err != nil || o.out.Format == "csv" || o.out.Format == "name" {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "sha256:  %s (checked)\nholds:   %d nodes, %d jobs, %d servers, %d schedules, %d tokens, %d events\n",
		h.SHA256, len(st.Nodes), len(st.Jobs), len(st.Servers), len(st.Schedules), len(st.Tokens), len(st.Events))
	var flags []string
	for _, d := range st.Tree().Domains() {
		fmt.Fprintf(&text, "budget:  %s %v\n", d.Name, d.Budget)
		flags = append(flags, "--budget "+d.Name+"=...")
	}
	text.WriteString("restore: needs each budget named: " + strings.Join(flags, " ") + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// recoveryFlags are those of the two commands that begin an incarnation.
type recoveryFlags struct {
	groupChange
	config  string
	budgets []string
	servers []string
	keep    []string
	longest time.Duration
}

func (f *recoveryFlags) flags(cmd *cobra.Command) {
	f.groupChange.flags(cmd)
	cmd.Flags().StringVar(&f.config, "config", "/etc/headroom/coordinator.yaml", "configuration file of the stopped server")
	cmd.Flags().StringArrayVar(&f.budgets, "budget", nil, "DOMAIN=POWER, once for every domain: its budget from now on")
	cmd.Flags().StringArrayVar(&f.keep, "keep-token", nil, "name or id of a token to keep, once for each; all others are dropped, because they may have been revoked since")
	cmd.Flags().DurationVar(&f.longest, "longest-lease", 0, "longest lease of nodes that are not in the saved state (default: the maximum, 2m)")
	cmd.Flags().StringArrayVar(&f.servers, "server", nil, "ID=RPC,RAFT, once for every server of the new cluster, including this one")
}

// recovery reads the flags. servers are those of the group to be where none are named.
func (f *recoveryFlags) recovery(verb string, servers func(coordinator.Config) []coordinator.ServerConfig) (recovery.Recovery, error) {
	cfg, err := coordinator.LoadConfig(f.config)
	if err != nil {
		return recovery.Recovery{}, err
	}
	f.request = cmp.Or(f.request, cli.RequestID())
	b := recovery.Recovery{
		Server: cfg.Stopped(), Verb: verb, Budgets: map[string]units.Power{}, KeepTokens: f.keep, LongestLease: f.longest, Actor: cli.Actor(), Reason: f.reason, RequestID: f.request,
		Now: time.Now(), DryRun: f.dry,
	}
	for _, x := range servers(cfg) {
		b.Servers = append(b.Servers, members.Server(x))
	}
	for _, text := range f.budgets {
		domain, watts, ok := strings.Cut(text, "=")
		if !ok || domain == "" {
			return recovery.Recovery{}, flagError("--budget "+text, "write DOMAIN=POWER, e.g. --budget site/lab=2800W")
		}
		if b.Budgets[domain], err = units.ParsePower(watts); err != nil {
			problem, hint, _ := cli.Quantity(err)
			return recovery.Recovery{}, flagError("--budget "+domain+": "+problem, cmp.Or(hint, "a power is a number with its unit, e.g. 2800W or 2.8kW"))
		}
	}
	if len(f.servers) > 0 {
		b.Servers = nil
	}
	for _, text := range f.servers {
		id, addrs, _ := strings.Cut(text, "=")
		at, raft, ok := strings.Cut(addrs, ",")
		if !ok || id == "" || at == "" || raft == "" {
			return recovery.Recovery{}, flagError("--server "+text, "write ID=RPC,RAFT, e.g. --server c1=10.0.0.11:7400,10.0.0.11:7401")
		}
		b.Servers = append(b.Servers, members.Server{ID: id, RPC: at, Raft: raft})
	}
	self, _ := cfg.Self()
	return b, checkServers(members.Server(self), b.Servers)
}

func flagError(message, hint string) error {
	e := cli.Usage("%s", message)
	e.Hint = hint
	return e
}

// checkServers demands that this server is one of the group to be, as it is configured.
func checkServers(self members.Server, servers []members.Server) error {
	found, used := false, map[string]bool{}
	for _, x := range servers {
		if used[x.ID] {
			return flagError("--server "+x.ID+" is given twice", "name each server once")
		}
		used[x.ID] = true
		if x.ID == self.ID {
			found = x == self
		}
	}
	if !found {
		return flagError(fmt.Sprintf("this server is not among them as its configuration has it: %s=%s,%s", self.ID, self.RPC, self.Raft),
			"name it so, or leave --server out")
	}
	return nil
}

func snapshotRestore(o *operator) *cobra.Command {
	var f recoveryFlags
	cmd := &cobra.Command{
		Use: "restore FILE --budget DOMAIN=POWER", Short: "Restore a snapshot as a new cluster (server must be stopped)", Args: cobra.ExactArgs(1),
		Long: "Restore a snapshot as a new cluster (server must be stopped). Do it on ONE server; start the others with an empty state_dir and\n" +
			"join:, and they copy its state. Changes after the snapshot are lost, so a new incarnation begins: every node is charged its rated\n" +
			"watts until it reports its cap, nothing is raised before, and the budget of every domain must be given. Tokens are dropped except\n" +
			"those of --keep-token; revoked certificates stay revoked. The old state is kept beside the new one. See the runbook lost-quorum.md\n" +
			"in /usr/share/doc/headroom/runbooks.",
		Example: "  coordinator snapshot restore today.snap --budget site/lab=2800W --budget rack/r1=2400W --reason \"lost the cluster\" --yes\n" +
			"  coordinator snapshot restore today.snap --budget site/lab=2800W --budget rack/r1=2400W --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.recovery("restore", func(c coordinator.Config) []coordinator.ServerConfig { return c.Servers })
			if err != nil {
				return err
			}
			h, st, err := snapshot.Load(args[0])
			if err != nil {
				return f.named(err)
			}
			if err := ask(cmd, fmt.Sprintf("restore %s from revision %d in %s as a new cluster", h.Cluster, h.Revision, b.Server.StateDir)); err != nil {
				return err
			}
			r, err := b.Restore(h, st)
			if err != nil {
				return f.named(err)
			}
			return f.begun(cmd, o, b, r)
		},
	}
	f.flags(cmd)
	return cmd
}

func memberRecover(o *operator) *cobra.Command {
	var f recoveryFlags
	cmd := &cobra.Command{
		Use: "recover --budget DOMAIN=POWER", Short: "Recover a cluster that lost its majority from this stopped server's log", Args: cobra.NoArgs,
		Long: "Recover the cluster from the log of this stopped server, if the majority of the servers is lost for good. Do it on ONE server, the\n" +
			"survivor whose log ends last (--dry-run shows where it ends); start the others with an empty state_dir and join:. Make sure that no\n" +
			"other server of the old cluster can return: see the runbook lost-quorum.md in /usr/share/doc/headroom/runbooks. A new incarnation\n" +
			"begins: every node is charged its rated watts until it reports its cap, and the budget of every domain must be given.",
		Example: "  coordinator member recover --budget site/lab=2800W --budget rack/r1=2400W --dry-run\n" +
			"  coordinator member recover --budget site/lab=2800W --budget rack/r1=2400W --reason \"c2 and c3 burned\" --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			alone := func(c coordinator.Config) []coordinator.ServerConfig {
				self, _ := c.Self()
				return []coordinator.ServerConfig{self}
			}
			b, err := f.recovery("recover", alone)
			if err != nil {
				return err
			}
			end, err := b.Server.End()
			if err != nil {
				return f.named(err)
			}
			question := fmt.Sprintf("recover the cluster from the log of %s alone, which ends at term %d, index %d", b.Server.ID, end.Term, end.Index)
			if end.Lacks() {
				question += fmt.Sprintf(" (it has acknowledged changes up to term %d, index %d: the last are lost)", end.Acknowledged.EntryTerm, end.Acknowledged.Entry)
			}
			if err := ask(cmd, question); err != nil {
				return err
			}
			r, err := b.Recover()
			if err != nil {
				return f.named(err)
			}
			r.End = &end
			return f.begun(cmd, o, b, r)
		},
	}
	f.flags(cmd)
	return cmd
}

// begun prints what has begun, or would.
func (f *recoveryFlags) begun(cmd *cobra.Command, o *operator, b recovery.Recovery, r recovery.Result) error {
	if o.out.IsJSON() {
		return errors.Join(o.out.JSON(cmd.OutOrStdout(), recoveryEnvelope(b, r)), f.ends(cmd, r.Already))
	}
	var text string
	switch {
	case r.Already:
		text = fmt.Sprintf("status: already so, in incarnation %d; nothing changed\n", r.Incarnation)
	case b.DryRun:
		text = fmt.Sprintf("nothing changed; incarnation %d of %d nodes would begin in %s\n", r.Incarnation, r.Nodes, b.Server.StateDir)
		if r.End != nil {
			text += fmt.Sprintf("log        of %s ends at term %d, index %d: recover on the survivor with the highest term, and then index\n", b.Server.ID, r.End.Term, r.End.Index)
		}
		if r.End != nil && r.End.Lacks() {
			text += fmt.Sprintf("missing    %s has acknowledged changes up to term %d, index %d: those after index %d are lost\n",
				b.Server.ID, r.End.Acknowledged.EntryTerm, r.End.Acknowledged.Entry, r.End.Index)
		}
	default:
		text = fmt.Sprintf("begun      incarnation %d of %d nodes in %s, revision %d, request %s\n", r.Incarnation, r.Nodes, b.Server.StateDir, r.Revision, b.RequestID)
		if r.Aside != "" {
			text += "kept       the old state in " + r.Aside + "\n"
		}
		text += "next       " + next(b) + "\n"
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return errors.Join(err, f.ends(cmd, r.Already))
}

// next is what the operator does now.
func next(b recovery.Recovery) string {
	var others []string
	var self members.Server
	for _, x := range b.Servers {
		if x.ID == b.Server.ID {
			self = x
			continue
		}
		others = append(others, x.ID)
	}
	if len(others) == 0 {
		return "start this server; coordinator member add takes others in"
	}
	return fmt.Sprintf("start this server, then %s with an empty state_dir, only itself in servers: and join: [%q]", strings.Join(others, " and "), self.RPC)
}

func recoveryEnvelope(b recovery.Recovery, r recovery.Result) envelope {
	item := map[string]any{
		"incarnation": r.Incarnation, "revision": r.Revision, "nodes": r.Nodes, "state_dir": b.Server.StateDir, "kept": cli.Known(r.Aside, r.Aside != ""),
		"already": r.Already, "dry_run": b.DryRun, "request_id": b.RequestID,
	}
	budgets := []budgetOf{}
	for _, d := range r.Domains {
		budgets = append(budgets, budgetOf{Domain: d.Name, Parent: cli.Known(d.Parent, d.Parent != ""), BudgetW: d.Budget.Watts()})
	}
	item["domains"] = budgets
	if r.End != nil {
		item["log_term"], item["log_index"] = r.End.Term, r.End.Index
		item["acknowledged_term"], item["acknowledged_index"] = r.End.Acknowledged.EntryTerm, r.End.Acknowledged.Entry
	}
	kind := "SnapshotRestore"
	if b.Verb == "recover" {
		kind = "MemberRecover"
	}
	return envelope{
		Kind: kind, API: "v1", Revision: r.Revision, AsOf: b.Now.UTC().Format(time.RFC3339Nano), Consistency: "offline", Server: b.Server.ID,
		Items: []any{item},
	}
}

// fetchSnapshot gets the state from a server: the one that leads, or with stale
// the first that answers.
func (o *operator) fetchSnapshot(ctx context.Context, stale bool) (snapshot.Header, []byte, error) {
	var h snapshot.Header
	var state []byte
	peers, addrs, err := o.reach()
	if err != nil {
		return h, nil, err
	}
	search := rpc.Search{Addrs: addrs, Patience: o.patience, Refused: rpc.RefusedWait, Waiting: o.waiting("snapshot save", o.patience), Probe: peers.Probe}
	addr, err := search.ToLeader(ctx, func(addr string) error {
		return rpc.Opened(func() (err error) {
			h, state, err = receiveSnapshot(ctx, memberClient(peers, addr), stale)
			return err
		})
	})
	if err != nil {
		return h, nil, o.explain(ctx, failure{err, "snapshot save", addr, true})
	}
	if sum := sha256.Sum256(state); len(state) != h.Bytes || hex.EncodeToString(sum[:]) != h.SHA256 {
		return h, nil, &cli.Error{
			Code: "bad-snapshot", Exit: cli.ExitFailed, Hint: "try again; nothing was written",
			Message: fmt.Sprintf("snapshot save: %s sent %d of %d bytes, or others than it saved", addr, len(state), h.Bytes),
		}
	}
	return h, state, nil
}

func receiveSnapshot(ctx context.Context, from headroomv1connect.MemberServiceClient, stale bool) (h snapshot.Header, state []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	in, err := from.SaveSnapshot(ctx, connect.NewRequest(&headroomv1.SaveSnapshotRequest{Stale: stale}))
	if err != nil {
		return h, nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var all bytes.Buffer
	for in.Receive() {
		if head := in.Msg().GetHeader(); head != nil {
			if err := json.Unmarshal(head, &h); err != nil {
				return h, nil, fmt.Errorf("coordinator: snapshot header: %w", err)
			}
		}
		if all.Len() > consensus.MaxSnapshot {
			return h, nil, consensus.ErrTooLarge
		}
		_, _ = all.Write(in.Msg().GetPiece()) // memory takes it
	}
	return h, all.Bytes(), in.Err()
}
