package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// serverPatience is how long one server of `status --all` may take to answer.
const serverPatience = 2 * time.Second

// serverView is one server's own view of itself and of the site.
type serverView struct {
	Server    string   `json:"server"`
	Address   string   `json:"rpc_address"`
	Leader    *string  `json:"leader"`
	Epoch     *uint64  `json:"epoch"`
	Revision  *uint64  `json:"revision"`
	BudgetW   *float64 `json:"budget_w"`
	ReservedW *float64 `json:"reserved_w"`
	Alarms    *int     `json:"alarms"`
	Version   *string  `json:"version"`
	Error     *string  `json:"error"`
}

// everyone reads each server's own state: it needs no leader, and shows where servers
// differ.
func (o *operator) everyone(cmd *cobra.Command, w *cli.Watch) error {
	members, meta, err := o.anyMembers(cmd.Context())
	if err != nil {
		return err
	}
	views := make([]serverView, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { views[i] = o.viewOf(cmd.Context(), m, meta.GetServer()) })
	}
	all.Wait()
	e := wrap("ServerViewList", meta, views)
	e.Consistency = "stale"
	if err := o.print(cmd, w, e, func(out io.Writer) error { return o.viewTable(out, views) }); err != nil {
		return err
	}
	if w.On {
		return nil // they may answer at the next refresh
	}
	return silentOf(views)
}

// anyMembers returns the servers as the first one that answers has them.
func (o *operator) anyMembers(ctx context.Context) ([]*headroomv1.Member, *headroomv1.Meta, error) {
	peers, addrs, err := o.reach()
	if err != nil {
		return nil, nil, err
	}
	for _, addr := range rpc.Answering(ctx, addrs, peers.Probe) {
		asked, cancel := context.WithTimeout(ctx, serverPatience)
		var r *connect.Response[headroomv1.GetStatusResponse]
		r, err = headroomv1connect.NewClusterServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...).
			GetStatus(asked, connect.NewRequest(&headroomv1.GetStatusRequest{Stale: true}))
		cancel()
		if err == nil {
			return r.Msg.GetServers(), r.Msg.GetMeta(), nil
		}
		err = o.explain(ctx, failure{err, "status", addr, true})
	}
	return nil, nil, err
}

// viewOf reads one server's view. On this machine's socket only the server there is asked; the
// others are as it sees them.
func (o *operator) viewOf(ctx context.Context, m *headroomv1.Member, here string) serverView {
	v := serverView{Server: m.GetId(), Address: m.GetRpcAddress(), Version: cli.Known(m.GetVersion(), m.GetVersion() != "")}
	switch socket := o.addr == "" && m.GetId() != here; {
	case v.Address == "":
		v.Error = new("its RPC address is unknown")
		return v
	case socket && m.GetRole() == roleAway:
		v.Error = new("unreachable from " + here)
		return v
	case socket:
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	r, err := headroomv1connect.NewClusterServiceClient(o.peers.HTTP(), o.peers.URL(v.Address), o.peers.Options()...).
		GetStatus(ctx, connect.NewRequest(&headroomv1.GetStatusRequest{Stale: true}))
	if err != nil {
		v.Error = new(rpc.Tried{Addr: v.Address, Err: err}.Why())
		return v
	}
	term, revision, alarms := r.Msg.GetMeta().GetEpoch().GetTerm(), r.Msg.GetMeta().GetRevision(), len(r.Msg.GetAlarms())
	budget, reserved := watts(r.Msg.GetSite().GetBudgetUw()), watts(r.Msg.GetSite().GetReservedUw())
	v.Leader, v.Epoch, v.Revision, v.Alarms = cli.Known(r.Msg.GetLeader(), r.Msg.GetLeader() != ""), &term, &revision, &alarms
	v.BudgetW, v.ReservedW = &budget, &reserved
	return v
}

func (o *operator) viewTable(w io.Writer, views []serverView) error {
	var rows [][]string
	number := func(n uint64) string { return fmt.Sprint(n) }
	power := func(w float64) string { return fmt.Sprintf("%.1f W", w) }
	for _, v := range views {
		rows = append(rows, []string{
			v.Server, v.Address, cli.Opt(v.Leader, func(s string) string { return s }), cli.Opt(v.Epoch, number), cli.Opt(v.Revision, number),
			cli.Opt(v.BudgetW, power), cli.Opt(v.ReservedW, power), cli.Opt(v.Alarms, func(n int) string { return fmt.Sprint(n) }),
			cli.Opt(v.Version, func(s string) string { return s }),
		})
	}
	err := o.out.Table(w, []string{"SERVER", "ADDRESS", "SEES LEADER", "EPOCH", "REVISION", "BUDGET", "RESERVED", "ALARMS", "VERSION"}, rows)
	for _, v := range views {
		if v.Error != nil && err == nil {
			_, err = fmt.Fprintf(w, "%s does not answer: %s\n", v.Server, *v.Error)
		}
	}
	return err
}

// silentOf returns an error if some server does not answer.
func silentOf(views []serverView) error {
	var silent []string
	for _, v := range views {
		if v.Error != nil {
			silent = append(silent, v.Server)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "silent", Exit: cli.ExitDegraded, Message: fmt.Sprintf("%d of %s not answering: %s", len(silent), cli.Count(len(views), "server"), strings.Join(silent, ", ")),
		Hint: "check the coordinator on each of them: journalctl -u headroom-coordinator",
	}
}
