package command

import (
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

func newLeaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lease", Short: "Show, renew or release the lease of this node",
		Example: "  powerd lease show\n  powerd lease renew\n  powerd lease release --yes --reason \"out of service\"",
	}
	cmd.AddCommand(newLeaseShowCommand(), newLeaseRenewCommand(), newLeaseReleaseCommand())
	return cmd
}

// leaseDetail is `powerd lease show`.
type leaseDetail struct {
	Kind       string     `json:"kind"`
	API        string     `json:"api"`
	AsOf       string     `json:"as_of"`
	Node       string     `json:"node"`
	State      string     `json:"state"`
	CapW       *float64   `json:"cap_w"`
	EffectiveW *float64   `json:"effective_w"`
	FailSafeW  float64    `json:"fail_safe_w"`
	Lease      *leaseJSON `json:"lease"`
	Brake      *brakeJSON `json:"brake"`
}

func newLeaseShowCommand() *cobra.Command {
	var p shown
	cmd := &cobra.Command{
		Use: "show", Short: "Show the lease: cap, epoch, sequence and remaining time",
		Example: "  powerd lease show\n  powerd lease show --watch", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.show(cmd, func(s *headroomv1.GetAgentStatusResponse) error {
				full := statusJSON(s)
				d := leaseDetail{"Lease", "v1", full.AsOf, full.Node, full.State, full.CapW, full.EffectiveW, full.FailSafeW, full.Lease, full.Brake}
				return p.print(cmd, d, func(w io.Writer) error { return printLease(w, d, brakeLine(s.GetBrake())) })
			})
		},
	}
	return p.watched(cmd)
}

func printLease(w io.Writer, d leaseDetail, braked string) error {
	lines := [][2]string{{"node", d.Node}, {"state", d.State}, {"cap", screenW(d.CapW)}, {"effective", screenW(d.EffectiveW)}, {"fail-safe", screenW(&d.FailSafeW)}}
	if l := d.Lease; l != nil {
		lines = append(lines, [2]string{"ends in", screenAge(l.RemainingS)}, [2]string{"from", l.Leader},
			[2]string{"epoch", fmt.Sprintf("%d.%d", l.Incarnation, l.Epoch)}, [2]string{"sequence", fmt.Sprint(l.Seq)})
	}
	if braked != "" {
		lines = append(lines, [2]string{"brake", braked})
	}
	return printPairs(w, lines)
}

// renewJSON is `powerd lease renew`.
type renewJSON struct {
	Kind       string   `json:"kind"`
	API        string   `json:"api"`
	Leader     *string  `json:"leader"`
	RemainingS *float64 `json:"remaining_s"`
}

func newLeaseRenewCommand() *cobra.Command {
	var p place
	var out cli.Output
	cmd := &cobra.Command{
		Use: "renew", Short: "Send a heartbeat now and show the renewed lease",
		Long:    "Send a heartbeat now and show the renewed lease. powerd sends one every second without being asked.\nThe exit code is 8 if no lease was granted.",
		Example: "  powerd lease renew\n  powerd lease renew -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			res, err := agent.Client(dir).RenewLease(cmd.Context(), connect.NewRequest(&headroomv1.RenewLeaseRequest{}))
			if err != nil {
				return socketError(err, "lease renew", dir, "")
			}
			return printRenewed(cmd.OutOrStdout(), &out, res.Msg)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	return cmd
}

func printRenewed(w io.Writer, out *cli.Output, m *headroomv1.RenewLeaseResponse) error {
	var err error
	switch {
	case out.IsJSON():
		err = out.JSON(w, renewJSON{"Renewed", "v1", text(m.GetLeader()), status.Milli(m.LeaseMs)})
	case m.LeaseMs != nil:
		_, err = fmt.Fprintf(w, "renewed  ends in %s, from %s\n", age(m.GetLeaseMs()), m.GetLeader())
	}
	if err != nil || m.LeaseMs != nil {
		return err
	}
	return &cli.Error{
		Code: "no-lease", Exit: cli.ExitDegraded, Message: "heartbeat sent, no lease granted: the node holds its fail-safe cap or observes",
		Hint: "powerd status shows the reason; coordinator node explain NODE shows the coordinator's view",
	}
}

func newLeaseReleaseCommand() *cobra.Command {
	var p changes
	cmd := &cobra.Command{
		Use: "release", Short: "Release the lease, then restore the original limits",
		Long: "Ask the coordinator to charge this node its rated power, then restore the original limits. If that does\n" +
			"not fit the budget, the release is refused with exit code 6 and nothing changes. Same as powerd limit\n" +
			"restore without --force. Asks for confirmation; use --yes in a script.",
		Example: "  powerd lease release --yes --reason \"out of service\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return restore(cmd, &p, agent.RestoreOptions{Change: p.change()})
		},
	}
	return p.confirmed(cmd)
}

func newSprintCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sprint", Short: "Show the sprint of this node", Example: "  powerd sprint status\n  powerd sprint status --watch"}
	cmd.AddCommand(newSprintStatusCommand())
	return cmd
}

// sprintDetail is `powerd sprint status`; sprint is null while there is none.
type sprintDetail struct {
	Kind   string      `json:"kind"`
	API    string      `json:"api"`
	AsOf   string      `json:"as_of"`
	Node   string      `json:"node"`
	Sprint *sprintJSON `json:"sprint"`
	Count  *uint64     `json:"sprints"`
}

func newSprintStatusCommand() *cobra.Command {
	var p shown
	cmd := &cobra.Command{
		Use: "status", Short: "Show the active sprint: caps, remaining time, energy used",
		Long: "Show the active sprint: caps, remaining time, and energy used of its escrow. A sprint ends when its time\n" +
			"is up, its energy is used, the lease expires, or the processor gets too hot. Its end never raises a cap.",
		Example: "  powerd sprint status\n  powerd sprint status -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.show(cmd, func(s *headroomv1.GetAgentStatusResponse) error {
				d := sprintDetail{Kind: "Sprint", API: "v1", AsOf: cli.Now(), Node: s.GetNode(), Sprint: statusJSON(s).Sprint}
				if c := s.GetCounters(); c != nil {
					d.Count = &c.Sprints
				}
				return p.print(cmd, d, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s  sprint %s\n", s.GetNode(), sprintLine(s.GetSprint()))
					return err
				})
			})
		},
	}
	return p.watched(cmd)
}
