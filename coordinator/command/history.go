package command

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

type historyItem struct {
	Revision   uint64   `json:"revision"`
	At         string   `json:"at"`
	Actor      string   `json:"actor"`
	Domain     string   `json:"domain"`
	FromW      float64  `json:"from_w"`
	ToW        float64  `json:"to_w"`
	Reason     string   `json:"reason"`
	Until      *string  `json:"until" of:"until_us"`
	Lowered    *uint32  `json:"lowered"`
	Confirmed  *uint32  `json:"confirmed"`
	ConfirmedS *float64 `json:"confirmed_s"`
}

// stamped is a moment of a message for JSON.
func stamped(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

func budgetHistory(o *operator) *cobra.Command {
	req := &headroomv1.ListChangesRequest{}
	var w cli.Watch
	var since sinceFlag
	var order cli.Order
	cmd := &cobra.Command{
		Use: "history [DOMAIN]", Short: "List budget changes, oldest first", Args: cobra.MaximumNArgs(1),
		Example: "  coordinator budget history --limit 2\n  coordinator budget history --since 24h --reverse",
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Domain = first(args)
			r, err := call(cmd.Context(), o, "budget history", req, headroomv1connect.ClusterServiceClient.ListChanges)
			if err != nil {
				return err
			}
			staleNote(cmd, r.GetMeta())
			changes := after(&since, r.GetChanges())
			slices.Reverse(changes) // the servers answer with the newest first
			changes = cli.Ordered(&order, changes)
			rows := each.List(changes, func(c *headroomv1.BudgetChange) []string {
				return []string{
					strconv.FormatUint(c.GetRevision(), 10), cli.Clock(time.UnixMicro(c.GetAtUs())), c.GetActor(), c.GetDomain(), shownWatts(c.GetFromUw()),
					shownWatts(c.GetToUw()), c.GetReason(), confirmedText(c),
				}
			})
			return o.print(cmd, &w, wrap("BudgetHistory", r.GetMeta(), cli.Filled[historyItem](changes)), func(out io.Writer) error {
				return o.out.TableOf(out, cli.Table{Head: []string{"REV", "WHEN", "WHO", "DOMAIN", "FROM", "TO", "REASON", "CONFIRMED"}, Rows: rows, Noun: "budget change"})
			})
		},
	}
	since.flag(cmd, "changes")
	order.Flag(cmd)
	cmd.Flags().Uint32Var(&req.Limit, "limit", 0, "only the newest N; 0 is all that are kept")
	cmd.Flags().BoolVar(&req.Stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

func confirmedText(c *headroomv1.BudgetChange) string {
	switch {
	case c.Lowered == nil:
		return cli.Unknown
	case c.ConfirmedMs == nil:
		return fmt.Sprintf("%d/%d", c.GetConfirmed(), c.GetLowered())
	}
	return fmt.Sprintf("%.1fs, %d/%d", c.GetConfirmedMs()/1000, c.GetConfirmed(), c.GetLowered())
}

// budgetRollback sets a budget to what it was at a revision: it is a `budget set`
// with the amount from the history.
func budgetRollback(o *operator) *cobra.Command {
	b := &budgetChange{changing: changing{o: o}}
	var revision uint64
	cmd := &cobra.Command{
		Use: "rollback REVISION [DOMAIN]", Short: "Set a budget back to its value at a revision", Args: cobra.RangeArgs(1, 2),
		Example: "  coordinator budget rollback 4120 --reason \"maintenance is over\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if revision, err = strconv.ParseUint(args[0], 10, 64); err != nil {
				return cli.Usage("%q is no revision; coordinator budget history lists them", args[0])
			}
			req := &headroomv1.RollbackRequest{Revision: revision, Domain: first(args[1:]), Force: b.force, DryRun: true, Change: b.message(cmd)}
			plan, err := call(cmd.Context(), o, "budget rollback", req, headroomv1connect.ClusterServiceClient.Rollback)
			if err != nil {
				return b.named(err)
			}
			b.domain, b.to = plan.GetBefore().GetName(), units.Power(plan.GetAfter().GetBudgetUw())
			return b.run(cmd)
		},
	}
	b.setFlags(cmd)
	return cmd
}

func scheduleCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "schedule", Short: "Set budgets on a schedule", Example: "  coordinator budget schedule add \"0 18 * * 1-5\" 2600W --name evening",
	}
	group.AddCommand(scheduleList(o), scheduleAdd(o), scheduleRemove(o))
	return group
}

type scheduleItem struct {
	Name    string  `json:"name"`
	Domain  string  `json:"domain"`
	Cron    string  `json:"cron"`
	Zone    string  `json:"zone"`
	BudgetW float64 `json:"budget_w"`
	Next    *string `json:"next"`
	ShortW  float64 `json:"short_w"`
}

func scheduleList(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "list", Short: "List the schedules and their next runs", Args: cobra.NoArgs, Example: "  coordinator budget schedule list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "budget schedule list", &headroomv1.ListSchedulesRequest{Stale: stale}, headroomv1connect.ClusterServiceClient.ListSchedules)
			if err != nil {
				return err
			}
			staleNote(cmd, r.GetMeta())
			items, rows := []scheduleItem{}, [][]string{}
			for _, s := range r.GetSchedules() {
				zone := s.GetZone()
				if zone == "" {
					zone = "UTC"
				}
				items = append(items, scheduleItem{s.GetName(), s.GetDomain(), s.GetCron(), zone, watts(s.GetBudgetUw()), cli.Known(stamped(s.GetNextUs()), s.NextUs != nil), watts(s.GetShortUw())})
				rows = append(rows, []string{
					s.GetName(), s.GetDomain(), s.GetCron(), zone, shownWatts(s.GetBudgetUw()),
					cli.Opt(s.NextUs, func(us int64) string { return clockIn(zone, time.UnixMicro(us)) }),
					cli.Opt(s.NextUs, func(us int64) string { return cli.Clock(time.UnixMicro(us)) }), shortText(s.GetShortUw()),
				})
			}
			return o.print(cmd, &w, wrap("ScheduleList", r.GetMeta(), items), func(out io.Writer) error {
				return o.out.TableOf(out, cli.Table{Head: []string{"NAME", "DOMAIN", "CRON", "ZONE", "BUDGET", "NEXT", "NEXT (LOCAL)", "BELOW FLOOR"}, Rows: rows, Noun: "schedule"})
			})
		},
	}
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

// shortText is how far a budget is below its floor.
func shortText(uw int64) string {
	if uw == 0 {
		return cli.Unknown
	}
	return shownWatts(uw)
}

// clockIn is a time on a screen in a schedule's zone; in UTC where this machine does
// not have the zone.
func clockIn(zone string, at time.Time) string {
	in, err := time.LoadLocation(zone)
	if err != nil {
		in = time.UTC
	}
	return at.In(in).Format(time.DateTime + " MST")
}

func scheduleAdd(o *operator) *cobra.Command {
	c := &changing{o: o}
	x := &headroomv1.Schedule{}
	var again repeated
	cmd := &cobra.Command{
		Use: "add CRON POWER [DOMAIN]", Short: "Set a budget on a cron schedule", Args: cobra.RangeArgs(2, 3),
		Long: "add sets a budget again and again. CRON is five fields as in crontab(5): minute, hour, day, month, weekday.\n" +
			"A raise by the clock needs a quorum of servers whose clocks agree within a minute; otherwise it waits, and an alarm says so.\n" +
			"A budget below the floor of the domain needs --force. If the floor rises later, the cut is still made at its time: every node\n" +
			"is lowered to its lowest cap, and an alarm names the missing watts; coordinator budget schedule list shows them before.",
		Example: "  coordinator budget schedule add \"0 18 * * 1-5\" 2600W --name evening --zone Europe/Berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := parsePower("budget", args[1])
			if err != nil {
				return err
			}
			x.Cron, x.BudgetUw, x.Domain = args[0], int64(p), first(args[2:])
			if x.Name == "" {
				return cli.Usage("a schedule needs a name: --name evening")
			}
			if x.Domain, err = o.rootOr(cmd, "budget schedule add", x.GetDomain()); err != nil {
				return c.named(err)
			}
			if err := again.scheduled(cmd, o, x); err != nil {
				return c.named(err)
			}
			return c.send(cmd, "budget schedule add", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSchedule{SetSchedule: x}})
		},
	}
	c.flags(cmd)
	again.flag(cmd.Flags())
	cmd.Flags().BoolVar(&x.Force, "force", false, "accept a budget below the floor; every node is lowered to its lowest cap")
	cmd.Flags().StringVar(&x.Name, "name", "", "name of the schedule; replaces one with the same name")
	cmd.Flags().StringVar(&x.Zone, "zone", "", "time zone of CRON, e.g. Europe/Berlin (default UTC)")
	return cmd
}

// scheduled asks before a schedule that raises its domain above its present budget.
func (x *repeated) scheduled(cmd *cobra.Command, o *operator, s *headroomv1.Schedule) error {
	r, err := call(cmd.Context(), o, "budget schedule add", &headroomv1.ListDomainsRequest{Domain: s.GetDomain()}, headroomv1connect.ClusterServiceClient.ListDomains)
	if err != nil || len(r.GetDomains()) == 0 {
		return err
	}
	if err := x.raise(cmd, r.GetDomains()[0], s.GetBudgetUw()); err != nil {
		return err
	}
	s.ConfirmUw = x.uw64()
	return nil
}

func scheduleRemove(o *operator) *cobra.Command {
	return changeOf(o, "budget schedule remove", "NAME", "Remove a schedule; the budget stays as it is", "evening", func(name string) *headroomv1.ChangeRequest {
		return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RemoveSchedule{RemoveSchedule: name}}
	})
}
