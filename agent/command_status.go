package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/units"
)

func newStatusCommand() *cobra.Command {
	var p place
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show lease, caps, zones and health of this node",
		Example: "  powerd status\n  powerd status -o json --state-dir n01/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			s, err := fetchStatus(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), statusJSON(s))
			}
			return printStatus(cmd.OutOrStdout(), &out, s)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	return cmd
}

// agentClient talks to the agent of a state directory.
func agentClient(dir string) headroomv1connect.AgentServiceClient {
	return headroomv1connect.NewAgentServiceClient(rpc.NewUnixClient(dir+"/"+socketFile), rpc.UnixURL, rpc.ClientOptions()...)
}

func fetchStatus(ctx context.Context, dir string) (*headroomv1.GetAgentStatusResponse, error) {
	res, err := callAgent(ctx, func(ctx context.Context) (*connect.Response[headroomv1.GetAgentStatusResponse], error) {
		return agentClient(dir).GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	})
	if err != nil {
		e := rpc.AsCLI(err, "status", dir+"/"+socketFile)
		if e.Code == "unreachable" {
			e.Message = "no powerd answers on " + dir + "/" + socketFile
			e.Hint = "start it with powerd run, or name another one with --state-dir"
		}
		return nil, e
	}
	return res.Msg, nil
}

// printStatus is the one screen of ux.md.
func printStatus(w io.Writer, out *cli.Output, s *headroomv1.GetAgentStatusResponse) error {
	var b strings.Builder
	up := cli.Age(time.Duration(s.GetUptimeMs()) * time.Millisecond)
	fmt.Fprintf(&b, "%s  powerd %s  up %s  %s   health: %s\n", s.GetNode(), s.GetVersion(), up, s.GetDomain(), healthWord(s.GetHealth()))
	fmt.Fprintf(&b, "lease     %s\n", leaseLine(s))
	fmt.Fprintf(&b, "power     %s%s   rung %s, %s\n", watts(s.PowerUw), ofCap(s), s.GetRung(), s.GetTree())
	fmt.Fprintf(&b, "demand    %s\n", watts(s.DemandUw))
	fmt.Fprintf(&b, "limited   %s of last minute\n", cli.Opt(s.LimitedRatio, cli.Percent))
	fmt.Fprintf(&b, "saved     %s\n\n", savedLine(s))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	rows := make([][]string, 0, len(s.GetZones()))
	for _, z := range s.GetZones() {
		window := cli.Opt(z.WindowUs, func(us int64) string { return fmt.Sprintf("%.2fs", float64(us)/1e6) })
		rows = append(rows, []string{z.GetZone(), watts(z.PowerUw), watts(z.RequestedUw), watts(z.EffectiveUw), window, z.GetState()})
	}
	if err := out.Table(w, []string{"ZONE", "POWER", "REQUESTED", "EFFECTIVE", "WINDOW", "STATE"}, rows); err != nil {
		return err
	}
	return printHealth(w, s.GetHealth())
}

func printHealth(w io.Writer, items []*headroomv1.HealthItem) error {
	for i, item := range items {
		gap := ""
		if i == 0 {
			gap = "\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s %s  %s\n     hint: %s\n", gap, item.GetSeverity(), item.GetCode(), item.GetText(), item.GetHint()); err != nil {
			return err
		}
	}
	return nil
}

func healthWord(items []*headroomv1.HealthItem) string {
	worst := ""
	for _, i := range items {
		if worst == "" || i.GetSeverity() == fail {
			worst = i.GetSeverity()
		}
	}
	if worst == "" {
		return "ok"
	}
	return fmt.Sprintf("%s (%d)", worst, len(items))
}

func leaseLine(s *headroomv1.GetAgentStatusResponse) string {
	h := s.GetHolding()
	failSafe := cli.Watts(units.Power(h.GetFailSafeUw()))
	granted := cli.Watts(units.Power(h.GetCapUw()))
	switch h.GetState() {
	case headroomv1.LeaseState_LEASE_STATE_HELD:
		ends := cli.Opt(s.LeaseMs, func(ms int64) string { return cli.Age(time.Duration(ms) * time.Millisecond) })
		st := h.GetApplied()
		return fmt.Sprintf("%s   ends in %s   from %s epoch %v seq %d   fail-safe %s",
			granted, ends, cmp.Or(s.GetLeader(), cli.Unknown), epochOf(st.GetEpoch()), st.GetSeq(), failSafe)
	case headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE:
		return fmt.Sprintf("none: holds its fail-safe cap %s", granted)
	case headroomv1.LeaseState_LEASE_STATE_OBSERVING, headroomv1.LeaseState_LEASE_STATE_UNSPECIFIED:
	}
	return fmt.Sprintf("none: observe only, charged its rated %s", granted)
}

func ofCap(s *headroomv1.GetAgentStatusResponse) string {
	h := s.GetHolding()
	if s.PowerUw == nil || h.GetCapUw() <= 0 || h.GetState() == headroomv1.LeaseState_LEASE_STATE_OBSERVING {
		return ""
	}
	return fmt.Sprintf("   %.0f %% of cap", 100*float64(s.GetPowerUw())/float64(h.GetCapUw()))
}

func savedLine(s *headroomv1.GetAgentStatusResponse) string {
	if s.GetSaved() == 0 {
		return "nothing: no control has been written"
	}
	return fmt.Sprintf("%d controls, %s (go back when the node is released)", s.GetSaved(), cli.Clock(time.UnixMicro(s.GetSavedUs())))
}

// agentJSON is `powerd status -o json`: base units, null for unknown.
type agentJSON struct {
	Kind         string       `json:"kind"`
	API          string       `json:"api"`
	AsOf         string       `json:"as_of"`
	Node         string       `json:"node"`
	Version      string       `json:"version"`
	Domain       string       `json:"domain"`
	UptimeS      float64      `json:"uptime_s"`
	Tree         string       `json:"tree"`
	Rung         string       `json:"rung"`
	Enforce      bool         `json:"enforce"`
	State        string       `json:"state"`
	CapW         *float64     `json:"cap_w"`
	EffectiveW   *float64     `json:"effective_w"`
	FailSafeW    float64      `json:"fail_safe_w"`
	PowerW       *float64     `json:"power_w"`
	DemandW      *float64     `json:"demand_w"`
	LimitedRatio *float64     `json:"limited_ratio"`
	Lease        *leaseJSON   `json:"lease"`
	Saved        uint32       `json:"saved"`
	SavedAt      *string      `json:"saved_at"`
	Zones        []zoneJSON   `json:"zones"`
	Health       []healthJSON `json:"health"`
}

type leaseJSON struct {
	Leader      string   `json:"leader"`
	Incarnation uint64   `json:"incarnation"`
	Epoch       uint64   `json:"epoch"`
	Seq         uint64   `json:"seq"`
	RemainingS  *float64 `json:"remaining_s"`
}

type zoneJSON struct {
	Zone       string   `json:"zone"`
	Kind       string   `json:"kind"`
	PowerW     *float64 `json:"power_w"`
	RequestedW *float64 `json:"requested_w"`
	WrittenW   *float64 `json:"written_w"`
	EffectiveW *float64 `json:"effective_w"`
	WindowS    *float64 `json:"window_s"`
	State      string   `json:"state"`
}

type healthJSON struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Hint     string `json:"hint"`
}

func statusJSON(s *headroomv1.GetAgentStatusResponse) agentJSON {
	h := s.GetHolding()
	j := agentJSON{
		Kind: "AgentStatus", API: "v1", AsOf: time.Now().UTC().Format(time.RFC3339Nano),
		Node: s.GetNode(), Version: s.GetVersion(), Domain: s.GetDomain(), UptimeS: float64(s.GetUptimeMs()) / 1000,
		Tree: s.GetTree(), Rung: s.GetRung(), Enforce: s.GetEnforce(),
		State: "observing", EffectiveW: micro(h.EffectiveUw), FailSafeW: float64(h.GetFailSafeUw()) / 1e6,
		PowerW: micro(s.PowerUw), DemandW: micro(s.DemandUw), LimitedRatio: s.LimitedRatio,
		Saved: s.GetSaved(), Zones: []zoneJSON{}, Health: []healthJSON{},
	}
	if s.GetSaved() > 0 {
		at := time.UnixMicro(s.GetSavedUs()).UTC().Format(time.RFC3339Nano)
		j.SavedAt = &at
	}
	switch h.GetState() {
	case headroomv1.LeaseState_LEASE_STATE_HELD:
		e := h.GetApplied().GetEpoch()
		j.State = "held"
		j.Lease = &leaseJSON{Leader: s.GetLeader(), Incarnation: e.GetIncarnation(), Epoch: e.GetTerm(), Seq: h.GetApplied().GetSeq(), RemainingS: milli(s.LeaseMs)}
	case headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE:
		j.State = "fail-safe"
	case headroomv1.LeaseState_LEASE_STATE_OBSERVING, headroomv1.LeaseState_LEASE_STATE_UNSPECIFIED:
	}
	if j.State != "observing" {
		j.CapW = micro(&h.CapUw)
	}
	for _, z := range s.GetZones() {
		j.Zones = append(j.Zones, zoneJSON{
			Zone: z.GetZone(), Kind: z.GetKind(), PowerW: micro(z.PowerUw), RequestedW: micro(z.RequestedUw), WrittenW: micro(z.WrittenUw),
			EffectiveW: micro(z.EffectiveUw), WindowS: micro(z.WindowUs), State: z.GetState(),
		})
	}
	for _, i := range s.GetHealth() {
		j.Health = append(j.Health, healthJSON{i.GetCode(), i.GetSeverity(), i.GetText(), i.GetHint()})
	}
	return j
}

// micro is a millionth part in base units, null when unknown.
func micro(v *int64) *float64 { return scaled(v, 1e6) }

func milli(v *int64) *float64 { return scaled(v, 1e3) }

func scaled(v *int64, by float64) *float64 {
	if v == nil {
		return nil
	}
	f := float64(*v) / by
	return &f
}
