package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

func budgetCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "budget", Short: "Show and set power budgets", Example: "  coordinator budget show\n  coordinator budget set 2800W"}
	group.AddCommand(budgetShow(o), budgetSet(o), budgetPlan(o), budgetHistory(o), budgetRollback(o), scheduleCommand(o))
	return group
}

func budgetShow(o *operator) *cobra.Command {
	var w cli.Watch
	stale := false
	cmd := &cobra.Command{
		Use: "show [DOMAIN]", Short: "Show budget, reserved power, headroom and measured power", Args: cobra.MaximumNArgs(1),
		Example: "  coordinator budget show rack/r1 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd, func() error {
				req := &headroomv1.ListDomainsRequest{Domain: first(args), Stale: stale}
				r, err := call(cmd.Context(), o, "budget show", req, headroomv1connect.ClusterServiceClient.ListDomains)
				if err != nil {
					return err
				}
				staleNote(cmd, r.GetMeta())
				return o.print(cmd, &w, wrap("BudgetList", r.GetMeta(), domainItems(r.GetDomains())), func(out io.Writer) error { return o.domainTable(out, r.GetDomains()) })
			})
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "read the addressed server's own state, without a leader")
	return cmd
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

type domainItem struct {
	Domain     string   `json:"domain" of:"name"`
	Parent     *string  `json:"parent"`
	BudgetW    float64  `json:"budget_w"`
	ReservedW  float64  `json:"reserved_w"`
	UnmanagedW float64  `json:"unmanaged_w"`
	HeadroomW  float64  `json:"headroom_w"`
	FloorW     float64  `json:"floor_w"`
	MeasuredW  *float64 `json:"measured_w"`
	MeasuredBy *string  `json:"measured_by"`

	PowerKnownW       *float64 `json:"power_known_w"`
	PowerUnknownNodes *uint32  `json:"power_unknown_nodes"`
	PowerAwaitedNodes uint32   `json:"power_awaited_nodes"`

	Nodes        uint32   `json:"nodes"`
	RatingW      *float64 `json:"rating_w"`
	Margin       float64  `json:"margin"`
	BootNodes    uint32   `json:"boot_nodes"`
	BootReserveW float64  `json:"boot_reserve_w"`
	RatedMaxW    *float64 `json:"rated_max_w"`
	LostCharge   *string  `json:"lost_charge"`
	BackW        *float64 `json:"back_w"`
	BackAt       *string  `json:"back_at"`
	HighestW     *float64 `json:"highest_w"`
}

func newDomainItem(d *headroomv1.Domain) (item domainItem) {
	cli.Fill(&item, d)
	return item
}

func (o *operator) domainTable(w io.Writer, domains []*headroomv1.Domain) error {
	rows := each.Of(domains, func(d *headroomv1.Domain) []string {
		return []string{
			d.GetName(), shownWatts(d.GetBudgetUw()), shownWatts(d.GetReservedUw()), shownWatts(d.GetUnmanagedUw()), shownWatts(d.GetHeadroomUw()),
			powerText(d), shownWatts(d.GetFloorUw()), fmt.Sprint(d.GetNodes()), d.GetParent(),
		}
	})
	return o.out.Table(w, []string{"DOMAIN", "BUDGET", "RESERVED", "UNMANAGED", "HEADROOM", "POWER", "FLOOR", "NODES", "PARENT"}, rows)
}

// budgetChange is one `budget set` or `budget plan`.
type budgetChange struct {
	changing
	domain   string
	to       units.Power
	until    untilFlag
	force    bool
	exitCode bool
	confirm  repeated
	wait     time.Duration
}

func (b *budgetChange) args(args []string) error {
	p, err := parsePower("budget", args[0])
	if err != nil {
		return err
	}
	if p <= 0 {
		e := cli.Usage("budget %s: a domain's budget must be above 0 W", args[0])
		e.Hint = "the least that works is the FLOOR of coordinator budget show"
		return e
	}
	b.to, b.domain = p, first(args[1:])
	return nil
}

func budgetSet(o *operator) *cobra.Command {
	b := &budgetChange{changing: changing{o: o}}
	cmd := &cobra.Command{
		Use: "set POWER [DOMAIN]", Short: "Set the budget of a domain, or of the whole site", Args: cobra.RangeArgs(1, 2),
		Example: "  coordinator budget set 2800W --reason \"feeder B maintenance\" --until 18:00\n  coordinator budget set 1.2kW rack/r1 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.args(args); err != nil {
				return err
			}
			return b.run(cmd)
		},
	}
	b.setFlags(cmd)
	cmd.Flags().Var(&b.until, "until", "when the present budget is restored: 18:00, 2026-11-21T18:00:00Z, or a duration like 2h")
	return cmd
}

func (b *budgetChange) setFlags(cmd *cobra.Command) {
	b.flags(cmd)
	f := cmd.Flags()
	b.confirm.flag(f)
	f.BoolVar(&b.force, "force", false, "accept a budget below the floor; every node is lowered to its fail-safe cap")
	f.BoolVar(&b.exitCode, "exit-code", false, "with --dry-run: exit with 10 if there would be changes")
	f.DurationVar(&b.wait, "wait", 10*time.Second, "time to wait until the nodes have confirmed their new caps; 0s returns after the commit")
}

// untilFlag is a moment to come.
type untilFlag struct {
	at  time.Time
	now func() time.Time
}

// String is the moment as it was understood.
func (u *untilFlag) String() string {
	if u.at.IsZero() {
		return ""
	}
	return u.at.Format(time.RFC3339)
}

// Type is the word for the value in help texts.
func (u *untilFlag) Type() string { return "time" }

// Set reads a time of day (the next one, local time), a full time, or a span from now.
func (u *untilFlag) Set(s string) error {
	now := time.Now()
	if u.now != nil {
		now = u.now()
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		u.at = now.Add(d)
		return nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		u.at = t
		return nil
	}
	for _, form := range []string{time.DateTime, "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			u.at = t
			return nil
		}
	}
	t, err := time.ParseInLocation("15:04", s, now.Location())
	if err != nil {
		return fmt.Errorf("%q is no time: 18:00, 2026-11-21T18:00:00Z or a span like 2h", s)
	}
	u.at = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
	if !u.at.After(now) {
		u.at = u.at.AddDate(0, 0, 1)
	}
	return nil
}

func budgetPlan(o *operator) *cobra.Command {
	b := &budgetChange{changing: changing{o: o, dryRun: true}}
	cmd := &cobra.Command{
		Use: "plan POWER [DOMAIN]", Short: "Plan a budget: show what would change on each node", Args: cobra.RangeArgs(1, 2),
		Example: "  coordinator budget plan 2800W",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.args(args); err != nil {
				return err
			}
			return b.run(cmd)
		},
	}
	cmd.Flags().BoolVar(&b.force, "force", false, "allow a budget below the floor")
	cmd.Flags().BoolVar(&b.exitCode, "exit-code", false, "exit with 10 if there would be changes")
	return cmd
}

func (b *budgetChange) run(cmd *cobra.Command) error {
	var err error
	if b.domain, err = b.o.rootOr(cmd, "budget set", b.domain); err != nil {
		return b.named(err)
	}
	plan, err := b.ask(cmd, true)
	if err != nil {
		return b.named(err)
	}
	if b.dryRun {
		return b.planned(cmd, plan)
	}
	if err := b.confirm.raise(cmd, plan.GetBefore(), int64(b.to)); err != nil {
		return b.named(err)
	}
	done, err := b.ask(cmd, false)
	if err != nil {
		return b.named(err)
	}
	confirmed, waited := b.await(cmd, done)
	if err := b.print(cmd, done, confirmed); err != nil {
		return err
	}
	return b.verdict(done, confirmed, waited)
}

// rootOr returns the named domain, or the root: the API takes no empty name.
func (o *operator) rootOr(cmd *cobra.Command, doing, domain string) (string, error) {
	if domain != "" {
		return domain, nil
	}
	r, err := call(cmd.Context(), o, doing, &headroomv1.ListDomainsRequest{}, headroomv1connect.ClusterServiceClient.ListDomains)
	for _, d := range r.GetDomains() {
		if d.GetParent() == "" {
			return d.GetName(), err
		}
	}
	return "", err
}

// ask asks the leader to plan the change, or to make it.
func (b *budgetChange) ask(cmd *cobra.Command, dry bool) (*headroomv1.SetBudgetResponse, error) {
	req := &headroomv1.SetBudgetRequest{Domain: b.domain, BudgetUw: int64(b.to), Force: b.force, DryRun: dry, ConfirmUw: b.confirm.uw64(), Change: b.message(cmd)}
	if !b.until.at.IsZero() {
		req.UntilUs = b.until.at.UnixMicro()
	}
	return call(cmd.Context(), b.o, "budget set", req, headroomv1connect.ClusterServiceClient.SetBudget)
}

func (b *budgetChange) planned(cmd *cobra.Command, r *headroomv1.SetBudgetResponse) error {
	if err := b.print(cmd, r, nil); err != nil {
		return err
	}
	if short := -r.GetAfter().GetHeadroomUw(); short > 0 {
		return shortfall(fmt.Sprintf("%s would be %s over its budget", r.GetAfter().GetName(), shownWatts(short)))
	}
	if b.exitCode && (r.GetBefore().GetBudgetUw() != int64(b.to) || len(r.GetMoves()) > 0) {
		return &cli.Error{Code: "changes", Exit: cli.ExitChanges, Message: "there would be changes", Hint: makesItSo(cmd, r.GetMeta())}
	}
	return nil
}

// await waits for the read-backs, and tells whether they could be followed at all.
func (b *budgetChange) await(cmd *cobra.Command, done *headroomv1.SetBudgetResponse) ([]*headroomv1.Confirmation, bool) {
	if b.wait <= 0 || done.GetAlready() {
		return nil, true
	}
	req := &headroomv1.AwaitBudgetRequest{Revision: done.GetMeta().GetRevision(), WaitMs: b.wait.Milliseconds()}
	r, err := call(cmd.Context(), b.o, "budget set", req, headroomv1connect.ClusterServiceClient.AwaitBudget)
	if err != nil {
		cli.Notef(cmd.ErrOrStderr(), "note: committed, but not followed to the nodes: %v\n", err)
		return nil, false
	}
	return r.GetConfirmations(), true
}

// verdict is the error of a change that was made but not confirmed everywhere.
func (b *budgetChange) verdict(done *headroomv1.SetBudgetResponse, confirmed []*headroomv1.Confirmation, followed bool) error {
	var open []string
	for _, c := range confirmed {
		if c.AfterMs == nil {
			open = append(open, c.GetNode())
		}
	}
	e := &cli.Error{Code: "degraded", Exit: cli.ExitDegraded, RequestID: b.request, Hint: "coordinator node list shows what every node holds; coordinator status shows the alarms"}
	switch {
	case len(open) > 0:
		e.Message = fmt.Sprintf("committed, but %s did not read back the new cap within %v", cli.NodeSet(open), b.wait)
	case !followed:
		e.Message = "committed, but the leader changed before the nodes had confirmed"
	case done.GetAfter().GetHeadroomUw() < 0:
		e.Message = fmt.Sprintf("committed, but %s is %s short", done.GetAfter().GetName(), shownWatts(-done.GetAfter().GetHeadroomUw()))
	default:
		return nil
	}
	return e
}

type moveItem struct {
	Node  string  `json:"node"`
	FromW float64 `json:"from_w"`
	ToW   float64 `json:"to_w"`
}

type confirmItem struct {
	Node   string   `json:"node"`
	AfterS *float64 `json:"after_s"`
}

type budgetItem struct {
	Domain    string        `json:"domain"`
	FromW     float64       `json:"from_w"`
	ToW       float64       `json:"to_w"`
	Before    domainItem    `json:"before"`
	After     domainItem    `json:"after"`
	Moves     []moveItem    `json:"moves"`
	Confirmed []confirmItem `json:"confirmed"`
	Shortfall []string      `json:"shortfall"`
	Already   bool          `json:"already"`
	DryRun    bool          `json:"dry_run"`
	RequestID string        `json:"request_id"`
}

func (b *budgetChange) print(cmd *cobra.Command, r *headroomv1.SetBudgetResponse, confirmed []*headroomv1.Confirmation) error {
	if !b.o.out.IsJSON() {
		return b.text(cmd, r, confirmed)
	}
	item := budgetItem{
		Domain: r.GetBefore().GetName(), FromW: watts(r.GetBefore().GetBudgetUw()), ToW: b.to.Watts(), Before: newDomainItem(r.GetBefore()),
		After: newDomainItem(r.GetAfter()), Moves: cli.Filled[moveItem](r.GetMoves()), Confirmed: cli.Filled[confirmItem](confirmed), Shortfall: append([]string{}, r.GetShortfall()...),
		Already: r.GetAlready(), DryRun: b.dryRun, RequestID: b.request,
	}
	return b.o.out.JSON(cmd.OutOrStdout(), wrap("BudgetChange", r.GetMeta(), []budgetItem{item}))
}

func (b *budgetChange) text(cmd *cobra.Command, r *headroomv1.SetBudgetResponse, confirmed []*headroomv1.Confirmation) error {
	w, before, after := cmd.OutOrStdout(), r.GetBefore(), r.GetAfter()
	if _, err := fmt.Fprintf(w, "%s at revision %d\n", before.GetName(), r.GetMeta().GetRevision()); err != nil {
		return err
	}
	change := func(from, to int64) string {
		if from == to {
			return ""
		}
		return cli.SignedWatts(units.Power(to - from))
	}
	table := cli.Output{}
	if err := table.Table(w, []string{"", "now", "new", "change", ""}, [][]string{
		{"budget", shownWatts(before.GetBudgetUw()), cli.Watts(b.to), change(before.GetBudgetUw(), int64(b.to)), ""},
		{"unmanaged", shownWatts(before.GetUnmanagedUw()), shownWatts(after.GetUnmanagedUw()), "", ""},
		{"reserved", shownWatts(before.GetReservedUw()), shownWatts(after.GetReservedUw()), change(before.GetReservedUw(), after.GetReservedUw()), strings.Join(movesText(w, r.GetMoves(), r.GetShortfall()), "; ")},
		{"headroom", shownWatts(before.GetHeadroomUw()), shownWatts(after.GetHeadroomUw()), "", ""},
	}); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.closing(cmd, r, confirmed))
	return err
}

// closing are the last lines: what was committed, and what has been confirmed by read-back.
func (b *budgetChange) closing(cmd *cobra.Command, r *headroomv1.SetBudgetResponse, confirmed []*headroomv1.Confirmation) string {
	switch short := -r.GetAfter().GetHeadroomUw(); {
	case b.dryRun && short > 0:
		return fmt.Sprintf("nothing changed; %s would leave %s missing\n", whole(cmd, r.GetMeta()), shownWatts(short))
	case b.dryRun:
		return fmt.Sprintf("nothing changed; %s\n", makesItSo(cmd, r.GetMeta()))
	case r.GetAlready():
		return "status: no change needed\n"
	}
	text := fmt.Sprintf("committed  revision %d, epoch %d, request %s", r.GetMeta().GetRevision(), r.GetMeta().GetEpoch().GetTerm(), b.request)
	if !b.until.at.IsZero() {
		text += fmt.Sprintf(", back to %s at %s", shownWatts(r.GetBefore().GetBudgetUw()), cli.Clock(b.until.at))
	}
	text += "\n"
	if len(confirmed) == 0 {
		return text
	}
	done, slowest := 0, 0.0
	for _, c := range confirmed {
		if c.AfterMs != nil {
			done++
			slowest = max(slowest, c.GetAfterMs())
		}
	}
	return text + fmt.Sprintf("confirmed  %d of %d lowered nodes read back their new caps after %.2fs\n", done, len(confirmed), slowest/1000)
}
