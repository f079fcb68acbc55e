package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/units"
)

func domainCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "domain", Short: "Show and change the power tree",
		Example: "  coordinator domain list\n  coordinator domain set rack/r1 --rating 5kW --margin 10%",
	}
	group.AddCommand(domainList(o), domainSet(o), domainRemove(o), domainReport(o))
	return group
}

func domainList(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	fetch := func(cmd *cobra.Command, name string) error {
		return w.Run(cmd, func() error {
			r, err := call(cmd.Context(), o, "domain list", &headroomv1.ListDomainsRequest{Domain: name, Stale: stale}, headroomv1connect.ClusterServiceClient.ListDomains)
			if err != nil {
				return err
			}
			staleNote(cmd, r.GetMeta())
			return o.print(cmd, &w, wrap("DomainList", r.GetMeta(), domainItems(r.GetDomains())), func(out io.Writer) error {
				return o.treeTable(out, r.GetDomains())
			})
		})
	}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"show"}, Short: "List the domains with budget, rating and measured power", Args: cobra.MaximumNArgs(1),
		Example: "  coordinator domain list\n  coordinator domain show rack/r1 -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return fetch(cmd, first(args)) },
	}
	w.Flags(list)
	list.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return list
}

func (o *operator) treeTable(w io.Writer, domains []*headroomv1.Domain) error {
	var rows [][]string
	for _, d := range domains {
		rating, boot := cli.Unknown, cli.Unknown
		if d.GetRatingUw() > 0 {
			rating = fmt.Sprintf("%s -%.0f %%", shownWatts(d.GetRatingUw()), 100*d.GetMargin())
		}
		if d.GetBootNodes() > 0 {
			boot = fmt.Sprintf("%s (%d)", shownWatts(d.GetBootReserveUw()), d.GetBootNodes())
		}
		row := []string{
			d.GetName(), shownWatts(d.GetBudgetUw()), rating, shownWatts(d.GetReservedUw()), shownWatts(d.GetUnmanagedUw()), boot,
			shownWatts(d.GetHeadroomUw()), powerText(d), fmt.Sprint(d.GetNodes()), d.GetParent(),
		}
		if o.out.IsWide() {
			back := cli.Unknown
			if d.BackUw != nil {
				back = fmt.Sprintf("%s at %s", shownWatts(d.GetBackUw()), cli.Clock(time.UnixMicro(d.GetBackAtUs())))
			}
			row = append(row, d.GetMeasuredBy(), d.GetLostCharge(), back)
		}
		rows = append(rows, row)
	}
	head := []string{"DOMAIN", "BUDGET", "RATING", "RESERVED", "UNMANAGED", "BOOT", "HEADROOM", "POWER", "NODES", "PARENT"}
	if o.out.IsWide() {
		head = append(head, "MEASURED BY", "LOST-CHARGE", "BACK TO")
	}
	return o.out.Table(w, head, rows)
}

func domainSet(o *operator) *cobra.Command {
	c := &changing{o: o}
	x := &headroomv1.SetDomain{}
	var budget, unmanaged, rating, ratedMax powerFlag
	var margin percentFlag
	var boot uint32
	var lost string
	cmd := &cobra.Command{
		Use: "set DOMAIN", Short: "Add a domain, or change its settings", Args: cobra.ExactArgs(1),
		Example: "  coordinator domain set pdu/p1 --parent rack/r1 --budget 2kW\n  coordinator domain set rack/r1 --unmanaged 120W --boot-nodes 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			x.Name, x.UnmanagedUw, x.RatingUw, x.RatedMaxUw, x.Margin = args[0], unmanaged.uw, rating.uw, ratedMax.uw, margin.ratio
			if budget.uw != nil {
				x.BudgetUw = *budget.uw
			}
			if cmd.Flags().Changed("boot-nodes") {
				x.BootNodes = &boot
			}
			if cmd.Flags().Changed("lost-charge") {
				x.LostCharge = &lost
			}
			return c.send(cmd, "domain set", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetDomain{SetDomain: x}})
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&x.Parent, "parent", "", "parent of a new domain")
	f.Var(&budget, "budget", "budget of a new domain; use coordinator budget set for an existing one")
	f.Var(&unmanaged, "unmanaged", "power of machines without powerd")
	f.Var(&rating, "rating", "rating of the breaker or feeder")
	f.Var(&ratedMax, "rated-max", "highest rating that a node may declare; a higher one waits for coordinator node set NODE --rated; 0W: as the parent domain")
	f.Var(&margin, "margin", "fraction of the rating that no budget may use, e.g. 20%")
	f.Uint32Var(&boot, "boot-nodes", 0, "number of nodes that may reboot at once; the power that they need is kept free")
	f.StringVar(&lost, "lost-charge", "", "charge of a lost node: keep (its last charge), or fail-safe after its lease has expired")
	return cmd
}

func domainRemove(o *operator) *cobra.Command {
	return changeOf(o, "domain remove", "DOMAIN", "Remove an empty domain", "pdu/p1 --yes", func(domain string) *headroomv1.ChangeRequest {
		return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RemoveDomain{RemoveDomain: domain}}
	})
}

func domainReport(o *operator) *cobra.Command {
	var meter string
	var age time.Duration
	cmd := &cobra.Command{
		Use: "report DOMAIN POWER", Short: "Report a meter reading of a domain", Args: cobra.ExactArgs(2),
		Long: "Report a reading of a domain's meter, for example of a PDU. It replaces the sum of the nodes for 90 s; a reading above the reserved\n" +
			"power raises an alarm. The program that reads the meter calls this every few seconds.",
		Example: "  coordinator domain report rack/r1 2310W --meter pdu-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := parsePower("report", args[1])
			if err != nil {
				return err
			}
			req := &headroomv1.ReportMeterRequest{Domain: args[0], PowerUw: int64(p), Meter: meter, AgeMs: age.Milliseconds()}
			r, err := call(cmd.Context(), o, "domain report", req, headroomv1connect.ClusterServiceClient.ReportMeter)
			if err != nil {
				return err
			}
			item := meterItem{Domain: args[0], PowerW: p.Watts(), ReservedW: watts(r.GetReservedUw()), Meter: meter}
			if o.out.IsJSON() {
				err = o.out.JSON(cmd.OutOrStdout(), wrap("MeterReport", r.GetMeta(), []meterItem{item}))
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  %s by %s, reserved %s\n", args[0], cli.Watts(p), meter, shownWatts(r.GetReservedUw()))
			}
			if err == nil && p > units.Power(r.GetReservedUw()) {
				err = &cli.Error{
					Code: "measured-above-reserved", Exit: cli.ExitDegraded,
					Message: fmt.Sprintf("%s draws %s, charged are only %s", args[0], cli.Watts(p), shownWatts(r.GetReservedUw())),
					Hint:    "a node draws more than its cap, or more is unmanaged than is set: coordinator node list, coordinator domain set --unmanaged",
				}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&meter, "meter", "meter", "name of the meter")
	cmd.Flags().DurationVar(&age, "age", 0, "age of the reading")
	return cmd
}

type meterItem struct {
	Domain    string  `json:"domain"`
	PowerW    float64 `json:"power_w"`
	ReservedW float64 `json:"reserved_w"`
	Meter     string  `json:"meter"`
}
