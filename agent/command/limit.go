package command

import (
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

func newLimitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit", Short: "Show, set, clear or restore the limits of this node",
		Example: "  powerd limit list\n  powerd limit set 120W --for 10m --reason \"fan test\"\n  powerd limit clear\n  powerd limit restore",
	}
	cmd.AddCommand(newLimitListCommand(), newLimitSetCommand(), newLimitClearCommand(), newRestoreCommand())
	return cmd
}

func newLimitListCommand() *cobra.Command {
	var p shown
	cmd := &cobra.Command{
		Use: "list", Short: "List the node's caps and the limit of every zone",
		Example: "  powerd limit list\n  powerd limit list -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.show(cmd, func(s *headroomv1.GetAgentStatusResponse) error {
				rows := limitRows(s)
				return p.print(cmd, cli.NewList("LimitList", rows), func(w io.Writer) error { return printLimits(w, &p.out, rows) })
			})
		},
	}
	return p.watched(cmd)
}

// limitRow is one cap or limit; null is unknown or not applicable.
type limitRow struct {
	Limit      string   `json:"limit"`
	Of         string   `json:"of"`
	RequestedW *float64 `json:"requested_w"`
	WrittenW   *float64 `json:"written_w"`
	EffectiveW *float64 `json:"effective_w"`
	RemainingS *float64 `json:"remaining_s"`
	State      string   `json:"state"`
}

// limitRows returns the node's caps at the wall, then the limits of its zones.
func limitRows(s *headroomv1.GetAgentStatusResponse) []limitRow {
	h := holdingOf(s)
	rows := []limitRow{{Limit: "fail-safe", Of: "node", RequestedW: status.Micro(&h.FailSafeUw), State: "stored"}}
	if l := s.GetLocal(); l.GetCapUw() > 0 {
		rows = append(rows, limitRow{Limit: "local", Of: "node", RequestedW: status.Micro(l.CapUw), RemainingS: new(float64(l.GetRemainingMs()) / 1e3), State: "held"})
	}
	if status.State(h) != status.Observing {
		row := limitRow{Limit: "cap", Of: "node", RequestedW: status.Micro(&h.CapUw), EffectiveW: status.Micro(h.EffectiveUw), State: status.State(h)}
		row.RemainingS = status.Milli(s.LeaseMs)
		rows = append(rows, row)
	}
	for _, z := range s.GetZones() {
		if z.EffectiveUw == nil && z.RequestedUw == nil {
			continue
		}
		rows = append(rows, limitRow{
			Limit: "long_term", Of: z.GetZone(), RequestedW: status.Micro(z.RequestedUw), WrittenW: status.Micro(z.WrittenUw), EffectiveW: status.Micro(z.EffectiveUw),
			State: z.GetState(),
		})
	}
	return rows
}

func printLimits(w io.Writer, out *cli.Output, rows []limitRow) error {
	lines := make([][]string, 0, len(rows))
	for _, r := range rows {
		lines = append(lines, []string{r.Limit, r.Of, screenW(r.RequestedW), screenW(r.WrittenW), screenW(r.EffectiveW), screenAge(r.RemainingS), r.State})
	}
	return out.Table(w, []string{"LIMIT", "OF", "REQUESTED", "WRITTEN", "EFFECTIVE", "ENDS IN", "STATE"}, lines)
}

func newLimitSetCommand() *cobra.Command {
	var p changes
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "set CAP", Short: "Set a lower cap on this node for a limited time",
		Long: "Set a lower cap on this node, in watts at the wall, for a limited time. The cap must be at least the\n" +
			"floor and at most the cap in force. It ends when its time is up, with powerd limit clear, or when\n" +
			"powerd stops.",
		Example: "  powerd limit set 120W --for 10m --reason \"fan test\"", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := units.ParsePower(args[0])
			if err != nil {
				return quantityError("CAP", err)
			}
			if err := needFor(lasts); err != nil {
				return err
			}
			dir, err := p.state()
			if err != nil {
				return err
			}
			return setLimit(cmd, dir, want, lasts, p.change(), &p.out)
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration, for example 10m (required)")
	return p.flags(cmd)
}

// quantityError returns the usage error of an argument that is not a quantity.
func quantityError(what string, err error) error {
	e := cli.Usage("%s: %w", what, err)
	if problem, hint, ok := cli.Quantity(err); ok {
		e.Message, e.Hint = what+": "+problem, hint
	}
	return e
}

// needFor refuses a local change without an end, which could be forgotten on the node.
func needFor(d time.Duration) error {
	if d > 0 {
		return nil
	}
	e := cli.Usage("--for is required: a local limit must end")
	e.Hint = "add a duration, for example --for 10m"
	return e
}

func setLimit(cmd *cobra.Command, dir string, want units.Power, lasts time.Duration, change *headroomv1.Change, out *cli.Output) error {
	s, err := fetchStatus(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if h := s.GetHolding(); status.State(h) != status.Observing && want > units.Power(h.GetCapUw()) && s.GetLocal() == nil {
		return &cli.Error{
			Code: "above-cap", Exit: cli.ExitRefused, RequestID: change.GetRequestId(),
			Message: fmt.Sprintf("limit set %v: above the cap in force, %v; a local limit can only lower it", want, units.Power(h.GetCapUw())),
			Hint:    "use a lower cap, or raise the budget with coordinator budget set",
		}
	}
	req := &headroomv1.SetLocalLimitRequest{CapUw: int64(want), DurationMs: lasts.Milliseconds(), Change: change}
	res, err := agent.Client(dir).SetLocalLimit(cmd.Context(), connect.NewRequest(req))
	if err != nil {
		return socketError(err, "limit set", dir, change.GetRequestId())
	}
	if out.IsJSON() {
		return out.JSON(cmd.OutOrStdout(), setJSON{
			Kind: "LimitSet", API: "v1", CapW: status.Micro(&res.Msg.CapUw), ForS: lasts.Seconds(), RequestID: change.GetRequestId(),
		})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "set  cap %s in force, for %s, request %s\n",
		cli.Watts(units.Power(res.Msg.GetCapUw())), cli.Age(lasts), change.GetRequestId())
	return err
}

// setJSON is the outcome of a local change.
type setJSON struct {
	Kind        string    `json:"kind"`
	API         string    `json:"api"`
	CapW        *float64  `json:"cap_w"`
	EffectiveHz []float64 `json:"effective_hz,omitempty"`
	ForS        float64   `json:"for_s"`
	RequestID   string    `json:"request_id"`
}

func newLimitClearCommand() *cobra.Command {
	var p changes
	cmd := &cobra.Command{
		Use: "clear", Short: "Clear the local limit; the node returns to the cap of its lease",
		Long:    "Clear the local limit; the node returns to the cap of its lease. This raises the node's cap, so it asks\nfor confirmation; use --yes in a script.",
		Example: "  powerd limit clear --yes --reason \"test finished\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			if err := p.sure(cmd, "clear the local limit and return to the cap of the lease"); err != nil {
				return err
			}
			change := p.change()
			res, err := agent.Client(dir).ClearLocalLimit(cmd.Context(), connect.NewRequest(&headroomv1.ClearLocalLimitRequest{Change: change}))
			if err != nil {
				return socketError(err, "limit clear", dir, change.GetRequestId())
			}
			return printCleared(cmd.OutOrStdout(), &p.out, "local limit", res.Msg.GetWasSet(), change.GetRequestId())
		},
	}
	return p.confirmed(cmd)
}

// clearedJSON reports whether there was anything to clear; a script may clear twice.
type clearedJSON struct {
	Kind      string `json:"kind"`
	API       string `json:"api"`
	WasSet    bool   `json:"was_set"`
	RequestID string `json:"request_id"`
}

func printCleared(w io.Writer, out *cli.Output, what string, was bool, id string) error {
	if out.IsJSON() {
		return out.JSON(w, clearedJSON{"Cleared", "v1", was, id})
	}
	if !was {
		_, err := fmt.Fprintf(w, "nothing to clear: no %s is set\n", what)
		return err
	}
	_, err := fmt.Fprintf(w, "cleared  %s, request %s\n", what, id)
	return err
}
