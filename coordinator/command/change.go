package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

// changing are the flags that every command which changes something has.
type changing struct {
	o       *operator
	reason  string
	request string
	check   uint64
	dryRun  bool
}

func (c *changing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.reason, "reason", "", "reason, for the audit log")
	f.StringVar(&c.request, "request-id", "", "idempotency key; a request with the same key is executed once")
	f.Uint64Var(&c.check, "check-revision", 0, "refuse if budgets or nodes changed after this revision")
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would change; change nothing")
}

// message is who asks, why and under which key.
func (c *changing) message(cmd *cobra.Command) *headroomv1.Change {
	if c.request == "" {
		c.request = cli.RequestID()
	}
	m := &headroomv1.Change{Actor: cli.Actor(), Reason: c.reason, RequestId: c.request}
	if cmd.Flags().Changed("check-revision") {
		m.CheckRevision = &c.check
	}
	return m
}

// named adds the request id to an error, so that the same request can be sent again.
func (c *changing) named(err error) error {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		e.RequestID = c.request
	}
	return err
}

// changeOf is a command that names one thing, and changes it in one way.
func changeOf(o *operator, path, arg, short, example string, build func(arg string) *headroomv1.ChangeRequest) *cobra.Command {
	c := &changing{o: o}
	cmd := &cobra.Command{
		Use: path[strings.LastIndexByte(path, ' ')+1:] + " " + arg, Short: short, Args: cobra.ExactArgs(1), Example: "  coordinator " + path + " " + example,
		RunE: func(cmd *cobra.Command, args []string) error { return c.send(cmd, path, build(args[0])) },
	}
	c.flags(cmd)
	return cmd
}

// send carries out one change and prints what it did.
func (c *changing) send(cmd *cobra.Command, doing string, r *headroomv1.ChangeRequest) error {
	if err := c.planned(cmd, doing, r); err != nil {
		return err
	}
	r.Change, r.DryRun = c.message(cmd), c.dryRun
	out, err := call(cmd.Context(), c.o, doing, r, headroomv1connect.ClusterServiceClient.Change)
	if err != nil {
		return c.named(err)
	}
	if err := c.print(cmd, out); err != nil || len(out.GetShortfall()) == 0 {
		return err
	}
	return shortfall(strings.Join(out.GetShortfall(), ", "))
}

// shortfall returns the error of a plan that leaves watts missing.
func shortfall(message string) error {
	return &cli.Error{Code: "shortfall", Exit: cli.ExitRefused, Message: message, Hint: "coordinator budget show shows each domain; coordinator node remove NODE --powered-off frees the charge of a node that is off"}
}

// whole returns the command that carries out a plan: all that was given, on the plan's revision.
func whole(cmd *cobra.Command, planned *headroomv1.Meta) string {
	line := cli.CommandLine(cmd, "dry-run", "exit-code", "check-revision", "output")
	if tail, ok := strings.CutPrefix(line, "coordinator budget plan "); ok {
		line = "coordinator budget set " + tail
	}
	return fmt.Sprintf("%s --check-revision %d", line, planned.GetRevision())
}

func makesItSo(cmd *cobra.Command, planned *headroomv1.Meta) string {
	return whole(cmd, planned) + " makes it so"
}

// planned asks for confirmation of a change that its rule asks for, with the numbers of
// the plan.
func (c *changing) planned(cmd *cobra.Command, doing string, r *headroomv1.ChangeRequest) error {
	rule := rules()[commandPath(cmd)]
	if rule.asks == never || c.dryRun || isSet(cmd, "yes") {
		return nil
	}
	r.Change, r.DryRun = c.message(cmd), true
	plan, err := call(cmd.Context(), c.o, doing, r, headroomv1connect.ClusterServiceClient.Change)
	switch {
	case err != nil:
		return c.named(err)
	case !rule.needs(cmd, plan):
		return nil
	}
	return c.named(ask(cmd, question(doing, plan)))
}

type changeItem struct {
	What      string       `json:"what"`
	Before    []domainItem `json:"before"`
	After     []domainItem `json:"after"`
	Moves     []moveItem   `json:"moves"`
	Shortfall []string     `json:"shortfall"`
	Already   bool         `json:"already"`
	DryRun    bool         `json:"dry_run"`
	RequestID string       `json:"request_id"`
}

func (c *changing) print(cmd *cobra.Command, r *headroomv1.ChangeResponse) error {
	if c.o.out.IsJSON() {
		item := changeItem{
			What: r.GetWhat(), Before: domainItems(r.GetBefore()), After: domainItems(r.GetAfter()), Moves: cli.Filled[moveItem](r.GetMoves()),
			Shortfall: append([]string{}, r.GetShortfall()...), Already: r.GetAlready(), DryRun: c.dryRun, RequestID: c.request,
		}
		return c.o.out.JSON(cmd.OutOrStdout(), wrap("Change", r.GetMeta(), []changeItem{item}))
	}
	return c.text(cmd, r)
}

func (c *changing) text(cmd *cobra.Command, r *headroomv1.ChangeResponse) error {
	var b strings.Builder
	switch {
	case r.GetAlready():
		b.WriteString("status: no change needed\n")
	case c.dryRun:
		fmt.Fprintf(&b, "would be: %s\n", r.GetWhat())
	default:
		fmt.Fprintln(&b, r.GetWhat())
	}
	for i, after := range r.GetAfter() {
		before := r.GetBefore()[i]
		fmt.Fprintf(&b, "%s  reserved %s -> %s, headroom %s -> %s\n", after.GetName(), shownWatts(before.GetReservedUw()), shownWatts(after.GetReservedUw()),
			shownWatts(before.GetHeadroomUw()), shownWatts(after.GetHeadroomUw()))
	}
	if moves := movesText(cmd.OutOrStdout(), r.GetMoves(), nil); len(moves) > 0 {
		fmt.Fprintf(&b, "caps  %s\n", strings.Join(moves, "; "))
	}
	switch {
	case c.dryRun && r.GetAlready():
		b.WriteString("nothing changed\n")
	case c.dryRun && len(r.GetShortfall()) > 0:
		fmt.Fprintf(&b, "nothing changed; after %s, %s\n", whole(cmd, r.GetMeta()), strings.Join(r.GetShortfall(), ", "))
	case c.dryRun:
		fmt.Fprintf(&b, "nothing changed; %s\n", makesItSo(cmd, r.GetMeta()))
	case !r.GetAlready():
		fmt.Fprintf(&b, "committed  revision %d, epoch %d, request %s\n", r.GetMeta().GetRevision(), r.GetMeta().GetEpoch().GetTerm(), c.request)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

func domainItems(list []*headroomv1.Domain) []domainItem {
	return each.List(list, newDomainItem)
}

// nodeName is a node's name without the kind in front of it, as people copy it from other output.
func nodeName(name string) string { return strings.TrimPrefix(name, "node/") }

// powerFlag is a power that may be left out.
type powerFlag struct{ uw *int64 }

// String is the power as it was given.
func (p *powerFlag) String() string {
	if p.uw == nil {
		return ""
	}
	return units.Power(*p.uw).Exact()
}

// Type is the word for the value in help texts.
func (p *powerFlag) Type() string { return "power" }

// Set reads a power with its unit.
func (p *powerFlag) Set(s string) error {
	v, err := units.ParsePower(s)
	if err != nil {
		return err
	}
	p.uw = new(int64(v))
	return nil
}

// parsePower reads an argument that is a power.
func parsePower(what, text string) (units.Power, error) {
	p, err := units.ParsePower(text)
	if err == nil {
		return p, nil
	}
	e := cli.Usage("%s %s", what, err)
	e.Hint = "a power is a number with its unit, e.g. 2800W or 2.8kW"
	if pe, ok := errors.AsType[*units.ParseError](err); ok && pe.Suggestion != "" {
		e.Hint = "did you mean " + pe.Suggestion + "?"
	}
	return 0, e
}
