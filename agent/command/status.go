package command

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/lease"
	"headroom/rapl"
	"headroom/units"
)

func newStatusCommand() *cobra.Command {
	var p shown
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the lease, caps, zones and health of this node",
		Example: "  powerd status\n  powerd status --watch\n  powerd status -o json --state-dir n01/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.show(cmd, func(s *headroomv1.GetAgentStatusResponse) error {
				return p.print(cmd, statusJSON(s), func(w io.Writer) error { return printStatus(w, &p.out, s) })
			})
		},
	}
	return p.watched(cmd)
}

// printStatus prints the status of the node.
func printStatus(w io.Writer, out *cli.Output, s *headroomv1.GetAgentStatusResponse) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  powerd %s  up %s  %s   health: %s\n", s.GetNode(), s.GetVersion(), age(s.GetUptimeMs()), s.GetDomain(), healthWord(s.GetHealth()))
	for _, line := range statusLines(s) {
		fmt.Fprintf(&b, "%-9s %s\n", line[0], line[1])
	}
	b.WriteByte('\n')
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if err := out.Table(w, []string{"ZONE", "POWER", "REQUESTED", "EFFECTIVE", "WINDOW", "FREQ", "TEMP", "STATE"}, statusRows(s)); err != nil {
		return err
	}
	return printHealth(w, s.GetHealth())
}

// statusLines returns the lines between the title and the zones, without those that do
// not apply to the node.
func statusLines(s *headroomv1.GetAgentStatusResponse) [][2]string {
	by := ""
	if s.GetLimitedBy() != "" {
		by = "   by: " + s.GetLimitedBy()
	}
	lines := [][2]string{
		{"lease", leaseLine(s)},
		{"power", fmt.Sprintf("%s%s   rung %s, %s", watts(s.PowerUw), ofCap(s), s.GetRung(), s.GetTree())},
	}
	if line := brakeLine(s.GetBrake()); line != "" {
		lines = append(lines, [2]string{"brake", line})
	}
	if line := sensorLine(s.GetSensors()); line != "" {
		lines = append(lines, [2]string{"sensors", line})
	}
	lines = append(lines,
		[2]string{"demand", watts(s.DemandUw)},
		[2]string{"limited", cli.Opt(s.LimitedRatio, cli.Percent) + " of the last minute" + by})
	if l := s.GetLocal(); l != nil {
		lines = append(lines, [2]string{"local", localLine(l)})
	}
	lines = append(lines, [2]string{"sprint", sprintLine(s.GetSprint())})
	for _, r := range s.GetLadder() {
		if r.GetText() != "" && r.GetState() != "used" {
			lines = append(lines, [2]string{"rung", fmt.Sprintf("%s %s: %s", r.GetRung(), r.GetState(), r.GetText())})
		}
	}
	if len(s.GetRivals()) > 0 {
		lines = append(lines, [2]string{"rivals", strings.Join(s.GetRivals(), ", ")})
	}
	if s.GetCutOff() {
		lines = append(lines, [2]string{"network", "no link to a coordinator is up"})
	}
	return append(lines, [2]string{"saved", savedLine(s)})
}

// statusRows returns the zones, and the power drawn beside them.
func statusRows(s *headroomv1.GetAgentStatusResponse) [][]string {
	rows := make([][]string, 0, len(s.GetZones())+1)
	for _, z := range s.GetZones() {
		window := cli.Opt(z.WindowUs, func(us int64) string { return fmt.Sprintf("%.2fs", float64(us)/1e6) })
		rows = append(rows, []string{
			z.GetZone(), watts(z.PowerUw), watts(z.RequestedUw), watts(z.EffectiveUw), window,
			cli.Opt(zoneFreq(s, z), megahertz), cli.Opt(zoneTemp(s, z), celsius), z.GetState(),
		})
	}
	if s.OtherUw != nil {
		rows = append(rows, []string{"other", watts(s.OtherUw), "", "", "", "", "", cmp.Or(s.GetOtherFrom(), "model")})
	}
	return rows
}

// packages returns the number of package zones: with one, the figures of the machine are
// those of the package.
func packages(s *headroomv1.GetAgentStatusResponse) int {
	n := 0
	for _, z := range s.GetZones() {
		if z.GetKind() == rapl.Package.String() && z.GetControlType() != rapl.ControlMMIO {
			n++
		}
	}
	return n
}

// zoneFreq returns the mean frequency of a package's cores, nil if it is unknown which
// policies belong to it.
func zoneFreq(s *headroomv1.GetAgentStatusResponse, z *headroomv1.ZoneStatus) *int64 {
	if z.GetKind() != rapl.Package.String() || packages(s) != 1 {
		return nil
	}
	var sum, n int64
	for _, p := range s.GetPolicies() {
		if p.FreqKhz != nil {
			sum, n = sum+p.GetFreqKhz(), n+1
		}
	}
	if n == 0 {
		return nil
	}
	return new(sum / n)
}

// zoneTemp returns the highest temperature of a package, nil without one.
func zoneTemp(s *headroomv1.GetAgentStatusResponse, z *headroomv1.ZoneStatus) *int64 {
	if z.GetKind() != rapl.Package.String() {
		return nil
	}
	var hottest *int64
	for _, t := range s.GetSensors() {
		// coretemp and the kernel's thermal zones number packages as RAPL does.
		named := strings.HasSuffix(t.GetName(), "Package id "+status.Socket(z.GetZone())) || t.GetName() == z.GetZone()
		if t.TempMc != nil && (named || packages(s) == 1) && (hottest == nil || t.GetTempMc() > *hottest) {
			hottest = t.TempMc
		}
	}
	return hottest
}

// sensorLine summarizes the sources of power: those that are ok by name, the others with
// their state.
func sensorLine(sensors []*headroomv1.SensorStatus) string {
	var well, rest []string
	for _, s := range sensors {
		switch {
		case s.GetState() == "absent", s.PowerUw == nil && s.TempMc != nil:
		case s.GetState() == status.OK && s.Disagreement == nil:
			if !slices.Contains(well, s.GetSource()) {
				well = append(well, s.GetSource())
			}
		case s.GetState() == status.OK:
			rest = append(rest, fmt.Sprintf("%s %s%s (%+.1f %%)", s.GetSource(), watts(s.PowerUw), agoText(s.AgeMs), 100*s.GetDisagreement()))
		default:
			rest = append(rest, s.GetSource()+" "+s.GetState())
		}
	}
	if len(well) > 0 {
		rest = append([]string{strings.Join(well, " + ")}, slices.Compact(rest)...)
	}
	return strings.Join(rest, "; ")
}

// agoText returns the age of a reading in words, "" if it is unknown.
func agoText(ms *int64) string {
	if ms == nil {
		return ""
	}
	return " " + age(*ms) + " ago"
}

func sprintLine(p *headroomv1.SprintStatus) string {
	if p == nil {
		return "none active"
	}
	left := cli.Opt(p.SpentUj, func(uj int64) string { return units.Energy(uj).String() + " of " })
	if p.SpentUj == nil {
		left = "unknown of "
	}
	return fmt.Sprintf("%s: %s instead of %s, ends in %s, %s%s used", p.GetId(), cli.Watts(units.Power(p.GetCapUw())),
		cli.Watts(units.Power(p.GetBaseUw())), age(p.GetRemainingMs()), left, units.Energy(p.GetEscrowUj()))
}

func localLine(l *headroomv1.LocalLimit) string {
	var parts []string
	if l.CapUw != nil {
		parts = append(parts, "cap "+watts(l.CapUw))
	}
	if l.CeilingKhz != nil {
		parts = append(parts, "ceiling "+megahertz(l.GetCeilingKhz()))
	}
	line := fmt.Sprintf("%s, %s left", strings.Join(parts, ", "), age(l.GetRemainingMs()))
	if who := l.GetChange().GetActor(); who != "" {
		line += ", set by " + who
	}
	if why := l.GetChange().GetReason(); why != "" {
		line += fmt.Sprintf(" (%q)", why)
	}
	return line
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
		if worst == "" || i.GetSeverity() == status.Fail {
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
		st := h.GetApplied()
		epoch := lease.Epoch{Incarnation: st.GetEpoch().GetIncarnation(), Term: st.GetEpoch().GetTerm()}
		return fmt.Sprintf("%s   ends in %s   from %s epoch %v seq %d   fail-safe %s",
			granted, cli.Opt(s.LeaseMs, age), cmp.Or(s.GetLeader(), cli.Unknown), epoch, st.GetSeq(), failSafe)
	case headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE:
		return fmt.Sprintf("none, holding fail-safe cap %s", granted)
	case headroomv1.LeaseState_LEASE_STATE_OBSERVING, headroomv1.LeaseState_LEASE_STATE_UNSPECIFIED:
	}
	return fmt.Sprintf("none, observing only, charged rated power %s", granted)
}

func ofCap(s *headroomv1.GetAgentStatusResponse) string {
	h := s.GetHolding()
	if s.PowerUw == nil || h.GetCapUw() <= 0 || status.State(h) == status.Observing {
		return ""
	}
	return fmt.Sprintf("   %.0f %% of cap", 100*float64(s.GetPowerUw())/float64(h.GetCapUw()))
}

func savedLine(s *headroomv1.GetAgentStatusResponse) string {
	if s.GetSaved() == 0 {
		return "nothing, no control has been written"
	}
	return fmt.Sprintf("%s, %s (restored when the node is released)", plural(int(s.GetSaved()), "control", "controls"), cli.Clock(time.UnixMicro(s.GetSavedUs())))
}
