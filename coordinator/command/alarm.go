package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

func alarmCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "alarm", Short: "Show and acknowledge warnings", Example: "  coordinator alarm list\n  coordinator alarm ack node-lost/n16"}
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
		Use: "list", Short: "List the active warnings, the worst first", Args: cobra.NoArgs, Example: "  coordinator alarm list -o json",
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
					rows = append(rows, []string{a.GetKey(), i.GetSeverity(), since, a.GetAckedBy(), i.GetText(), i.GetHint()})
				}
				return o.print(cmd, &w, wrap("AlarmList", r.GetMeta(), cli.Filled[alarmListItem](r.GetAlarms())), func(out io.Writer) error {
					return o.out.Table(out, []string{"ALARM", "SEVERITY", "SINCE", "ACKED BY", "TEXT", "HINT"}, rows)
				})
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read from the addressed server without asking the leader")
	return cmd
}

func alarmAck(o *operator) *cobra.Command {
	c := &changing{o: o}
	cmd := &cobra.Command{
		Use: "ack ALARM", Short: "Acknowledge an alarm", Args: cobra.ExactArgs(1), Example: "  coordinator alarm ack node-lost/n16 --reason \"ticket 12\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.send(cmd, "alarm ack", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_AckAlarm{AckAlarm: args[0]}})
		},
	}
	c.flags(cmd)
	return cmd
}

// checkCommand is for monitoring: it says in one line and by its exit code how the cluster is.
func checkCommand(o *operator) *cobra.Command {
	nagios := false
	cmd := &cobra.Command{
		Use: "check", Short: "Check the cluster for a monitoring system", Args: cobra.NoArgs, Example: "  coordinator check --nagios",
		Long: "check ends with 0 when all is well, 8 when there are warnings, 1 when something failed, 3 when no leader answers;\n" +
			"with --nagios with 0, 1, 2 and 3.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "check", &headroomv1.ListAlarmsRequest{}, headroomv1connect.ClusterServiceClient.ListAlarms)
			if err != nil {
				return o.checkEnd(err, nagios, nagiosUnknown)
			}
			failed, warned := 0, 0
			for _, a := range r.GetAlarms() {
				if a.GetItem().GetSeverity() == "fail" {
					failed++
				} else {
					warned++
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-5s %s: %s\n", a.GetItem().GetSeverity(), a.GetKey(), a.GetItem().GetText()); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%d failed, %d warnings, leader %s\n", failed, warned, r.GetMeta().GetServer()); err != nil {
				return err
			}
			e := &cli.Error{Code: "alarms", Message: fmt.Sprintf("%d failed, %d warnings", failed, warned), Hint: "coordinator alarm list shows each with its way out"}
			switch {
			case failed > 0:
				e.Exit = cli.ExitFailed
				return o.checkEnd(e, nagios, nagiosCritical)
			case warned > 0:
				e.Exit = cli.ExitDegraded
				return o.checkEnd(e, nagios, nagiosWarning)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&nagios, "nagios", false, "exit codes as Nagios has them: 0 ok, 1 warning, 2 critical, 3 unknown")
	return cmd
}

// Exit codes of Nagios plug-ins.
const (
	nagiosWarning  = 1
	nagiosCritical = 2
	nagiosUnknown  = 3
)

// checkEnd gives an error the exit code that was asked for.
func (o *operator) checkEnd(err error, nagios bool, code int) error {
	if !nagios {
		return err
	}
	return &cli.Error{Code: "check", Exit: code, Message: err.Error(), Hint: "coordinator alarm list shows each with its way out", Err: err}
}
