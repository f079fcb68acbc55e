package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

func sprintCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "sprint", Short: "Let nodes exceed their caps for a while, within an energy budget",
		Example: "  coordinator sprint list\n  coordinator sprint grant n01 n02 --for 30s --reason \"deadline\"",
	}
	group.AddCommand(sprintList(o), sprintGrant(o), sprintCancel(o), sprintBudget(o))
	return group
}

type sprintItem struct {
	ID        string           `json:"id"`
	Job       *string          `json:"job"`
	Class     *string          `json:"class"`
	Domain    string           `json:"domain"`
	State     string           `json:"state"`
	Ended     *string          `json:"ended"`
	DurationS float64          `json:"duration_s"`
	AgeS      float64          `json:"age_s"`
	EscrowJ   float64          `json:"escrow_j"`
	SpentJ    float64          `json:"spent_j"`
	RefundedJ *float64         `json:"refunded_j"`
	Nodes     []sprintNodeItem `json:"nodes"`
}

type sprintNodeItem struct {
	Node    string   `json:"node"`
	State   string   `json:"state"`
	EscrowJ float64  `json:"escrow_j"`
	SpentJ  *float64 `json:"spent_j"`
}

type potItem struct {
	Domain    string  `json:"domain"`
	Class     *string `json:"class"`
	Share     float64 `json:"share"`
	BalanceJ  float64 `json:"balance_j"`
	EscrowedJ float64 `json:"escrowed_j"`
	CapacityJ float64 `json:"capacity_j"`
	RefillW   float64 `json:"refill_w"`
}

type sprintAnswer struct {
	envelope
	Budgets []potItem `json:"budgets"`
}

func joules(uj int64) float64 { return units.Energy(uj).Joules() }

func shownJoules(uj int64) string { return units.Energy(uj).String() }

func sprintList(o *operator) *cobra.Command {
	var w cli.Watch
	var order cli.Order
	req := &headroomv1.ListSprintsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List sprints, oldest first, and sprint budgets", Args: cobra.NoArgs, Example: "  coordinator sprint list --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Run(cmd, func() error {
				r, err := call(cmd.Context(), o, "sprint list", req, headroomv1connect.ClusterServiceClient.ListSprints)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				r.Sprints = cli.Ordered(&order, r.GetSprints())
				if o.out.IsJSON() {
					return o.out.JSON(cmd.OutOrStdout(), sprintAnswer{wrap("SprintList", r.GetMeta(), cli.Filled[sprintItem](r.GetSprints())), potItems(r.GetDomains())})
				}
				return o.sprintText(cmd.OutOrStdout(), r)
			})
		},
	}
	w.Flags(cmd)
	order.Flag(cmd)
	cmd.Flags().BoolVar(&req.All, "all", false, "include closed sprints")
	cmd.Flags().BoolVar(&req.Stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

func potItems(domains []*headroomv1.Domain) []potItem {
	out := []potItem{}
	for _, d := range domains {
		b := d.GetSprint()
		for _, p := range b.GetPots() {
			out = append(out, potItem{
				d.GetName(), cli.Known(p.GetClass(), p.GetClass() != ""), p.GetShare(), joules(p.GetBalanceUj()), joules(p.GetEscrowedUj()),
				joules(b.GetCapacityUj()) * p.GetShare(), watts(b.GetRefillUw()) * p.GetShare(),
			})
		}
	}
	return out
}

func (o *operator) sprintText(w io.Writer, r *headroomv1.ListSprintsResponse) error {
	var rows [][]string
	for _, p := range r.GetSprints() {
		nodes := each.Of(p.GetNodes(), (*headroomv1.SprintNode).GetNode)
		rows = append(rows, []string{
			p.GetId(), p.GetState(), p.GetDomain(), p.GetClass(), cli.Age(time.Duration(p.GetAgeMs()) * time.Millisecond), shownJoules(p.GetEscrowUj()),
			shownJoules(p.GetSpentUj()), cli.Opt(p.RefundedUj, shownJoules), cli.NodeSet(nodes), p.GetJob(),
		})
	}
	if err := o.out.Table(w, []string{"SPRINT", "STATE", "DOMAIN", "CLASS", "AGE", "ESCROW", "SPENT", "REFUNDED", "NODES", "JOB"}, rows); err != nil {
		return err
	}
	for _, p := range potItems(r.GetDomains()) {
		of := p.Domain
		if p.Class != nil {
			of += ", class " + *p.Class
		}
		if _, err := fmt.Fprintf(w, "budget: %s has %v of %v, %v put aside, refilled by %s\n", of, units.FromJoules(p.BalanceJ), units.FromJoules(p.CapacityJ),
			units.FromJoules(p.EscrowedJ), cli.Watts(units.FromWatts(p.RefillW))); err != nil {
			return err
		}
	}
	return nil
}

func sprintGrant(o *operator) *cobra.Command {
	c := &changing{o: o}
	x := &headroomv1.GrantSprint{}
	var lasts time.Duration
	var to powerFlag
	cmd := &cobra.Command{
		Use: "grant NODE...", Short: "Grant a sprint", Args: cobra.MinimumNArgs(1),
		Long: "Grant a sprint. The energy between each node's cap and the sprint's cap is reserved for the whole time.\n" +
			"Unused energy is refunded once every node is back at its base cap. A new sprint budget is empty: wait until it refills.",
		Example: "  coordinator sprint grant n01 n02 --for 30s --reason \"deadline\"\n  coordinator sprint grant 'n[01-04]' --cap 240W --for 10s --class gold",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				names, err := cli.ParseNodeSet(nodeName(a))
				if err != nil {
					return err
				}
				x.Nodes = append(x.Nodes, names...)
			}
			if lasts <= 0 {
				return cli.Usage("--for is missing: how long the sprint may last, e.g. --for 30s")
			}
			x.DurationMs = lasts.Milliseconds()
			if to.uw != nil {
				x.CapUw = *to.uw
			}
			var err error
			if x.Domain, err = o.rootOr(cmd, "sprint grant", x.GetDomain()); err != nil {
				return c.named(err)
			}
			r := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_GrantSprint{GrantSprint: x}}
			m := c.message(cmd)
			if x.Id == "" {
				x.Id = m.GetRequestId()
			}
			return c.send(cmd, "sprint grant", r)
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&lasts, "for", 0, "duration of the sprint, e.g. 30s")
	f.Var(&to, "cap", "cap of each node during the sprint (default: its rating)")
	f.StringVar(&x.Domain, "domain", "", "domain whose energy is used (default: the site)")
	f.StringVar(&x.Class, "class", "", "class whose share of the energy is used")
	f.StringVar(&x.Job, "job", "", "job that the sprint is for")
	f.StringVar(&x.Id, "id", "", "id of the sprint (default: the request id)")
	return cmd
}

func sprintCancel(o *operator) *cobra.Command {
	return changeOf(o, "sprint cancel", "ID", "End a sprint", "01KABM6Q3V", func(id string) *headroomv1.ChangeRequest {
		return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_EndSprint{EndSprint: id}}
	})
}

func sprintBudget(o *operator) *cobra.Command {
	c := &changing{o: o}
	x := &headroomv1.SetSprintBudget{}
	var refill powerFlag
	var shares []string
	cmd := &cobra.Command{
		Use: "budget ENERGY [DOMAIN]", Short: "Set the sprint budget of a domain; 0J removes it", Args: cobra.RangeArgs(1, 2),
		Example: "  coordinator sprint budget 6kJ rack/r1 --refill 20W\n  coordinator sprint budget 6kJ --refill 20W --share gold=0.7 --share silver=0.3",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := units.ParseEnergy(args[0])
			if err != nil {
				u := cli.Usage("energy %s", err)
				u.Hint = "an energy is a number with its unit, e.g. 6kJ"
				if pe, ok := errors.AsType[*units.ParseError](err); ok && pe.Suggestion != "" {
					u.Hint = "did you mean " + pe.Suggestion + "?"
				}
				return u
			}
			x.CapacityUj, x.Domain, x.Shares = int64(e), first(args[1:]), map[string]float64{}
			if refill.uw != nil {
				x.RefillUw = *refill.uw
			}
			for _, s := range shares {
				class, part, ok := strings.Cut(s, "=")
				v, err := strconv.ParseFloat(part, 64)
				if !ok || err != nil {
					return cli.Usage("--share %q; a share is CLASS=PART, e.g. gold=0.7", s)
				}
				x.Shares[class] = v
			}
			if x.Domain, err = o.rootOr(cmd, "sprint budget", x.GetDomain()); err != nil {
				return c.named(err)
			}
			return c.send(cmd, "sprint budget", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{SetSprintBudget: x}})
		},
	}
	c.flags(cmd)
	cmd.Flags().Var(&refill, "refill", "refill rate; 20W adds 20 J a second")
	cmd.Flags().StringArrayVar(&shares, "share", nil, "a class's part of it, CLASS=PART; without any all classes draw from one pot")
	return cmd
}
