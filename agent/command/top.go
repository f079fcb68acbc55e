package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

func newTopCommand() *cobra.Command {
	p := shown{watch: cli.Watch{On: true}}
	cmd := &cobra.Command{
		Use: "top", Short: "Show this node full-screen until Ctrl-C",
		Long: "Show power and cap, zones, sensors, processors and health, refreshed until Ctrl-C. In a pipe it prints\n" +
			"one screen after the other.",
		Example: "  powerd top\n  powerd top --interval 500ms", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.show(cmd, func(s *headroomv1.GetAgentStatusResponse) error { return printTop(cmd.OutOrStdout(), s) })
		},
	}
	p.place.flags(cmd)
	p.watch.Pace(cmd, "time between two updates, at least 250ms")
	return cmd
}

// printTop is the status screen with a bar of power against the cap on top, and
// sources and processors below.
func printTop(w io.Writer, s *headroomv1.GetAgentStatusResponse) error {
	var out cli.Output
	if _, err := fmt.Fprintf(w, "%s\n", powerBar(s)); err != nil {
		return err
	}
	if err := printStatus(w, &out, s); err != nil {
		return err
	}
	if len(s.GetSensors()) > 0 {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := printSensors(w, &out, cli.Filled[sensorJSON](s.GetSensors())); err != nil {
			return err
		}
	}
	if len(s.GetPolicies()) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return printFreqs(w, &out, cli.Filled[policyJSON](s.GetPolicies()))
}

// barWidth fits, with its figures, into 80 columns.
const barWidth = 40

// powerBar shows the measured power as a part of the cap.
func powerBar(s *headroomv1.GetAgentStatusResponse) string {
	limit := s.GetHolding().GetCapUw()
	if s.PowerUw == nil || limit <= 0 {
		return fmt.Sprintf("power [%s] %s", strings.Repeat(" ", barWidth), cli.Unknown)
	}
	of := watts(&limit)
	if status.State(s.GetHolding()) == status.Observing {
		of += " rated, no cap"
	}
	full := int(min(barWidth, max(0, s.GetPowerUw()*barWidth/limit)))
	return fmt.Sprintf("power [%s%s] %s of %s", strings.Repeat("|", full), strings.Repeat(".", barWidth-full), watts(s.PowerUw), of)
}
