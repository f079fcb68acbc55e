package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/units"
)

func newLimitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit", Short: "Put saved limits back, or hold this node below its lease for a while",
		Example: "  powerd limit list\n  powerd limit set 120W --for 10m --reason \"fan test\"\n  powerd limit clear\n  powerd limit restore",
	}
	cmd.AddCommand(newLimitListCommand(), newLimitSetCommand(), newLimitClearCommand(), newRestoreCommand())
	return cmd
}

func newLimitListCommand() *cobra.Command {
	var p place
	var pr printer
	cmd := &cobra.Command{
		Use: "list", Short: "List what holds this node: lease, local limit, and every zone's limit as requested, written and effective",
		Example: "  powerd limit list\n  powerd limit list -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			return pr.watch.run(cmd, func() error {
				s, err := fetchStatus(cmd.Context(), dir)
				if err != nil {
					return err
				}
				rows := limitRows(s)
				return pr.print(cmd, list("LimitList", rows), func(w io.Writer) error { return printLimits(w, &pr.out, rows) })
			})
		},
	}
	p.flags(cmd)
	pr.out.Flags(cmd)
	pr.watch.flags(cmd)
	return cmd
}

// limitRow is one thing that bounds the node; null is unknown or not applicable.
type limitRow struct {
	Limit      string   `json:"limit"`
	Of         string   `json:"of"`
	RequestedW *float64 `json:"requested_w"`
	WrittenW   *float64 `json:"written_w"`
	EffectiveW *float64 `json:"effective_w"`
	RemainingS *float64 `json:"remaining_s"`
	State      string   `json:"state"`
}

// limitRows are the node's caps at the wall, then the limits of its zones.
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
		ends := cli.Opt(r.RemainingS, func(s float64) string { return cli.Age(time.Duration(s * float64(time.Second))) })
		lines = append(lines, []string{r.Limit, r.Of, screenW(r.RequestedW), screenW(r.WrittenW), screenW(r.EffectiveW), ends, r.State})
	}
	return out.Table(w, []string{"LIMIT", "OF", "REQUESTED", "WRITTEN", "EFFECTIVE", "ENDS IN", "STATE"}, lines)
}

// changing are the flags of commands that change something on this node.
type changing struct {
	reason    string
	requestID string
}

func (c *changing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the audit log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key; one is made when absent")
}

func (c *changing) change() *headroomv1.Change {
	return &headroomv1.Change{Actor: actor(), Reason: c.reason, RequestId: cmp.Or(c.requestID, cli.RequestID())}
}

// asked makes an error of the agent's socket one that an operator understands.
func asked(err error, doing, dir, requestID string) error {
	e := rpc.AsCLI(err, doing, agent.SocketPath(dir))
	e.RequestID = requestID
	switch {
	case e.Code == "unreachable":
		e.Message, e.Hint = "no powerd answers on "+agent.SocketPath(dir), "start it with powerd run, or name another one with --state-dir"
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		e.Message, e.Hint = doing+": the powerd that runs here does not know this", "it is another version than this command: powerd status, powerd version"
	}
	return e
}

func newLimitSetCommand() *cobra.Command {
	var p place
	var out cli.Output
	var c changing
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "set CAP", Short: "Hold this node at a lower cap for a time",
		Long: "Hold this node at a lower cap for a time, at the wall. It is never above the cap in force and never\n" +
			"below the floor; it ends by itself, with powerd limit clear, and when powerd stops.",
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
			return setLimit(cmd, dir, want, lasts, c.change(), &out)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	c.flags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, for example 10m; required")
	return cmd
}

// quantityError is a usage error of an argument with its proposal.
func quantityError(what string, err error) error {
	e := cli.Usage("%s: %w", what, err)
	if problem, hint, ok := cli.Quantity(err); ok {
		e.Message, e.Hint = what+": "+problem, hint
	}
	return e
}

// needFor refuses a change without an end: what is set on one node must not be
// forgotten there.
func needFor(d time.Duration) error {
	if d > 0 {
		return nil
	}
	e := cli.Usage("--for is missing: what is set on a node itself must end")
	e.Hint = "add --for with a time, for example --for 10m"
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
			Message: fmt.Sprintf("%v is above the cap in force, %v: a local limit only ever lowers", want, units.Power(h.GetCapUw())),
			Hint:    "raise the budget instead: coordinator budget set; or name a lower cap",
		}
	}
	req := &headroomv1.SetLocalLimitRequest{CapUw: int64(want), DurationMs: lasts.Milliseconds(), Change: change}
	res, err := agent.Client(dir).SetLocalLimit(cmd.Context(), connect.NewRequest(req))
	if err != nil {
		return asked(err, "limit set", dir, change.GetRequestId())
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

// setJSON is what a local change came to.
type setJSON struct {
	Kind        string    `json:"kind"`
	API         string    `json:"api"`
	CapW        *float64  `json:"cap_w"`
	EffectiveHz []float64 `json:"effective_hz,omitempty"`
	ForS        float64   `json:"for_s"`
	RequestID   string    `json:"request_id"`
}

func newLimitClearCommand() *cobra.Command {
	var p place
	var out cli.Output
	var c changing
	cmd := &cobra.Command{
		Use: "clear", Short: "End the local limit: the node goes back to the cap of its lease",
		Example: "  powerd limit clear --reason \"test is over\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			change := c.change()
			res, err := agent.Client(dir).ClearLocalLimit(cmd.Context(), connect.NewRequest(&headroomv1.ClearLocalLimitRequest{Change: change}))
			if err != nil {
				return asked(err, "limit clear", dir, change.GetRequestId())
			}
			return printCleared(cmd.OutOrStdout(), &out, "local limit", res.Msg.GetWasSet(), change.GetRequestId())
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	c.flags(cmd)
	return cmd
}

// clearedJSON tells whether there was anything to clear: a script may clear twice.
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

func newFreqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "freq", Short: "Show and bound the frequencies of the processors",
		Example: "  powerd freq list\n  powerd freq set 2400MHz --for 10m\n  powerd freq clear",
	}
	cmd.AddCommand(newFreqListCommand(), newFreqSetCommand(), newFreqClearCommand())
	return cmd
}

func newFreqListCommand() *cobra.Command {
	var p place
	var pr printer
	cmd := &cobra.Command{
		Use: "list", Short: "List the cpufreq policies: driver, governor, ceiling as requested, written and effective",
		Long: "List the cpufreq policies. A running powerd is asked; without one the machine itself is read.\n" +
			"A machine without cpufreq has none: the list is empty and a note says why.",
		Example: "  powerd freq list\n  powerd freq list --root n01/root -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := p.find(cmd.Context())
			if err != nil {
				return err
			}
			return pr.watch.run(cmd, func() error {
				if s.status != nil {
					s.status = answering(cmd.Context(), s.stateDir)
				}
				rows, err := freqRows(s, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				return pr.print(cmd, list("PolicyList", rows), func(w io.Writer) error { return printFreqs(w, &pr.out, rows) })
			})
		},
	}
	p.flags(cmd)
	pr.out.Flags(cmd)
	pr.watch.flags(cmd)
	return cmd
}

// freqRows are the agent's policies, or the machine's own.
func freqRows(s site, notes io.Writer) (rows []policyJSON, err error) {
	if len(s.status.GetPolicies()) > 0 {
		return jsonPolicies(s.status), nil
	}
	root, err := agent.OpenRoot(s.root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	set, err := dvfs.Open(root)
	if errors.Is(err, dvfs.ErrNoPolicy) {
		cli.Notef(notes, "note: no policies: %v; it is a virtual machine, or its kernel has no cpufreq driver", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range set.Policies() {
		rows = append(rows, ownPolicy(p))
	}
	return rows, set.Close()
}

func ownPolicy(p *dvfs.Policy) policyJSON {
	row := policyJSON{Policy: p.Name, Driver: p.Driver, MinHz: new(p.Min.Hertz()), MaxHz: new(p.Max.Hertz()), State: "unknown"}
	if g, err := p.Governor(); err == nil {
		row.Governor = text(g)
	}
	if f, err := p.Frequency(); err == nil {
		row.FreqHz = new(f.Hertz())
	}
	if f, err := p.CeilingNow(); err == nil {
		row.EffectiveHz, row.State = new(f.Hertz()), status.OK
	}
	return row
}

func printFreqs(w io.Writer, out *cli.Output, rows []policyJSON) error {
	lines := make([][]string, 0, len(rows))
	for _, r := range rows {
		lines = append(lines, []string{
			r.Policy, r.Driver, cli.Opt(r.Governor, same), cli.Opt(r.EPP, same), screenMHz(r.FreqHz), screenMHz(r.RequestedHz), screenMHz(r.EffectiveHz),
			screenMHz(r.MinHz), screenMHz(r.MaxHz), r.State,
		})
	}
	return out.Table(w, []string{"POLICY", "DRIVER", "GOVERNOR", "EPP", "FREQ", "REQUESTED", "EFFECTIVE", "MIN", "MAX", "STATE"}, lines)
}

func same(s string) string { return s }

func screenMHz(hz *float64) string {
	return cli.Opt(hz, func(v float64) string { return units.Freq(v / 1e3).String() })
}

func newFreqSetCommand() *cobra.Command {
	var p place
	var out cli.Output
	var c changing
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "set FREQ", Short: "Bound the frequency of every processor for a time",
		Long: "Bound the frequency of every processor for a time. It only ever lowers, ends by itself, with powerd\n" +
			"freq clear, and when powerd stops.",
		Example: "  powerd freq set 2400MHz --for 10m --reason \"heat\"", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := units.ParseFreq(args[0])
			if err != nil {
				return quantityError("FREQ", err)
			}
			if want <= 0 {
				return cli.Usage("FREQ: a ceiling of 0 is none; powerd freq clear ends one")
			}
			if err := needFor(lasts); err != nil {
				return err
			}
			dir, err := p.state()
			if err != nil {
				return err
			}
			change := c.change()
			got, err := setCeiling(cmd.Context(), dir, want, lasts, change)
			if err != nil {
				return err
			}
			return printCeiling(cmd.OutOrStdout(), &out, got, lasts, change.GetRequestId())
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	c.flags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, for example 10m; required")
	return cmd
}

func setCeiling(ctx context.Context, dir string, want units.Freq, lasts time.Duration, change *headroomv1.Change) ([]int64, error) {
	req := &headroomv1.SetLocalCeilingRequest{CeilingKhz: int64(want), DurationMs: lasts.Milliseconds(), Change: change}
	res, err := agent.Client(dir).SetLocalCeiling(ctx, connect.NewRequest(req))
	if err != nil {
		doing := "freq set"
		if want == 0 {
			doing = "freq clear"
		}
		return nil, asked(err, doing, dir, change.GetRequestId())
	}
	return res.Msg.GetEffectiveKhz(), nil
}

func printCeiling(w io.Writer, out *cli.Output, got []int64, lasts time.Duration, id string) error {
	if out.IsJSON() {
		j := setJSON{Kind: "CeilingSet", API: "v1", ForS: lasts.Seconds(), RequestID: id}
		for _, khz := range got {
			j.EffectiveHz = append(j.EffectiveHz, float64(khz)*1e3)
		}
		return out.JSON(w, j)
	}
	low, high := int64(0), int64(0)
	for i, khz := range got {
		if i == 0 {
			low = khz
		}
		low, high = min(low, khz), max(high, khz)
	}
	_, err := fmt.Fprintf(w, "set  %d policies read back %s to %s, for %s, request %s\n", len(got), megahertz(low), megahertz(high), cli.Age(lasts), id)
	return err
}

func newFreqClearCommand() *cobra.Command {
	var p place
	var out cli.Output
	var c changing
	cmd := &cobra.Command{
		Use: "clear", Short: "End the local bound of the frequency", Example: "  powerd freq clear", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			s, err := fetchStatus(cmd.Context(), dir)
			if err != nil {
				return err
			}
			change := c.change()
			if _, err := setCeiling(cmd.Context(), dir, 0, 0, change); err != nil {
				return err
			}
			was := s.GetLocal().GetCeilingKhz() > 0
			return printCleared(cmd.OutOrStdout(), &out, "local ceiling", was, change.GetRequestId())
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	c.flags(cmd)
	return cmd
}
