package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

func alarmCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "alarm", Short: "List and acknowledge alarms", Example: "  coordinator alarm list\n  coordinator alarm ack node-lost/n16"}
	group.AddCommand(alarmList(o), alarmAck(o))
	return group
}

type alarmListItem struct {
	Key      string  `json:"key"`
	Code     string  `json:"code" of:"item.code"`
	Severity string  `json:"severity" of:"item.severity"`
	Subject  string  `json:"subject"`
	Since    *string `json:"since" of:"since_us"`
	AckedBy  *string `json:"acked_by"`
	Text     string  `json:"text" of:"item.text"`
	Hint     string  `json:"hint" of:"item.hint"`
}

func alarmList(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "list", Short: "List the active alarms, the worst first and causes above consequences", Args: cobra.NoArgs, Example: "  coordinator alarm list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "alarm list", &headroomv1.ListAlarmsRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListAlarms)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				rows := [][]string{}
				for _, a := range r.GetAlarms() {
					i := a.GetItem()
					since := cli.Unknown
					if a.GetSinceUs() != 0 {
						since = cli.Clock(time.UnixMicro(a.GetSinceUs()))
					}
					rows = append(rows, []string{a.GetKey(), severityWord(i), since, a.GetAckedBy(), i.GetText(), i.GetHint()})
				}
				return o.print(cmd, &w, wrap("AlarmList", r.GetMeta(), cli.Filled[alarmListItem](r.GetAlarms())), func(out io.Writer) error {
					return o.out.Table(out, []string{"ALARM", "SEVERITY", "SINCE", "ACKED BY", "TEXT", "HINT"}, rows)
				})
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

func alarmAck(o *operator) *cobra.Command {
	return changeOf(o, "alarm ack", "ALARM", "Acknowledge an alarm", `node-lost/n16 --reason "ticket 12"`, func(alarm string) *headroomv1.ChangeRequest {
		return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_AckAlarm{AckAlarm: alarm}}
	})
}

// checkCommand is for monitoring.
func checkCommand(o *operator) *cobra.Command {
	nagios := false
	cmd := &cobra.Command{
		Use: "check", Short: "Report the health of the cluster to monitoring", Args: cobra.NoArgs, Example: "  coordinator check --nagios",
		Long: "check prints the active alarms. It exits with 0 without alarms, 8 with warnings, 1 with failures, 3 without a leader.\n" +
			"With --nagios it is a Nagios plug-in: a status line first, and exit code 0, 1, 2 or 3; without a leader it is CRITICAL.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "check", &headroomv1.ListAlarmsRequest{}, headroomv1connect.ClusterServiceClient.ListAlarms)
			if err != nil && nagios {
				return nagiosFailed(cmd.OutOrStdout(), err)
			} else if err != nil {
				return err
			}
			return newCheck(r).report(cmd.OutOrStdout(), nagios)
		},
	}
	cmd.Flags().BoolVar(&nagios, "nagios", false, "print a Nagios status line, and exit with 0 ok, 1 warning, 2 critical or 3 unknown")
	return cmd
}

// Exit codes of Nagios plug-ins.
const (
	nagiosWarning  = 1
	nagiosCritical = 2
	nagiosUnknown  = 3
)

// nagiosFailed prints the status line of a check that failed. A cluster that cannot be
// reached or has no leader is critical; whatever else fails is a fault of the check.
func nagiosFailed(w io.Writer, err error) error {
	word, code := "UNKNOWN", nagiosUnknown
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable {
		word, code = "CRITICAL", nagiosCritical
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", word, strings.TrimPrefix(err.Error(), "check: ")); err != nil {
		return err
	}
	return &cli.Error{Code: "check", Exit: code, Message: err.Error(), Hint: "coordinator status --all shows the servers", Err: err}
}

// severityWord is an alarm's severity on a screen.
func severityWord(i *headroomv1.HealthItem) string {
	if i.GetSeverity() == "fail" {
		return "FAIL"
	}
	return i.GetSeverity()
}

// check is the result of a check.
type check struct {
	lines          []string
	failed, warned int
	leader         string
}

func newCheck(r *headroomv1.ListAlarmsResponse) *check {
	c := &check{leader: r.GetMeta().GetServer()}
	for _, a := range r.GetAlarms() {
		c.count(a.GetItem())
		c.lines = append(c.lines, fmt.Sprintf("%-5s %s: %s", severityWord(a.GetItem()), a.GetKey(), a.GetItem().GetText()))
	}
	return c
}

func (c *check) count(i *headroomv1.HealthItem) {
	if i.GetSeverity() == "fail" {
		c.failed++
	} else {
		c.warned++
	}
}

func (c *check) String() string {
	return fmt.Sprintf("%d failed, %s", c.failed, cli.Count(c.warned, "warning"))
}

// report prints the result, and returns an error with the exit code of its worst alarm.
func (c *check) report(w io.Writer, nagios bool) error {
	word, exit, critical := "OK", cli.ExitOK, 0
	switch {
	case c.failed > 0:
		word, exit, critical = "CRITICAL", cli.ExitFailed, nagiosCritical
	case c.warned > 0:
		word, exit, critical = "WARNING", cli.ExitDegraded, nagiosWarning
	}
	summary := fmt.Sprintf("%s, leader %s", c.String(), c.leader)
	text := strings.Join(append(c.lines, summary), "\n")
	if nagios {
		exit = critical
		text = strings.Join(append([]string{word + ": " + summary}, c.lines...), "\n")
	}
	if _, err := fmt.Fprintln(w, text); err != nil || exit == cli.ExitOK {
		return err
	}
	return &cli.Error{Code: "alarms", Exit: exit, Message: c.String(), Hint: "coordinator alarm list shows each alarm with what to do"}
}
