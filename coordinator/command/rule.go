package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

// kind is what a command does to the power that may be drawn, or to the cluster.
type kind string

const (
	lowers    kind = "lowers"
	raises    kind = "raises"
	removes   kind = "removes"
	restores  kind = "restores"
	transfers kind = "transfers"
	neutral   kind = "neutral"
)

// asking is when a command asks for confirmation.
type asking int

const (
	never asking = iota
	always
	// whenRaising asks where the plan of the change frees watts or raises a budget or a cap,
	// and for the flags of the rule.
	whenRaising
)

// rule is what a command that changes something does, and when it asks.
type rule struct {
	kind kind
	asks asking
	// flags that make a command ask that asks whenRaising.
	flags []string
	// why is the reason in the command's help.
	why string
}

// rules are the commands that change something, by their path below the program.
func rules() map[string]rule {
	return map[string]rule{
		"budget set":             {raises, whenRaising, nil, "a raise asks, a cut does not; a raise above the highest budget that the domain ever had takes --confirm"},
		"budget rollback":        {restores, whenRaising, nil, "a raise asks, a cut does not"},
		"budget schedule add":    {raises, whenRaising, nil, "a budget above the present one asks; one above the highest that the domain ever had takes --confirm"},
		"budget schedule remove": {removes, always, nil, "the cuts of the schedule no longer happen"},
		"domain set": {
			raises, whenRaising,
			[]string{"budget", "rating", "margin", "rated-max", "lost-charge"},
			"a change asks that frees watts, or that sets a budget, a rating or a rule of charging",
		},
		"domain remove": {removes, always, nil, "the domain's limit no longer applies"},
		"node set": {
			raises, whenRaising,
			[]string{"fail-safe", "rated", "clear", "domain"},
			"a change asks that frees watts, raises --max, or sets --fail-safe, --rated or --domain",
		},
		"node drain":       {lowers, never, nil, "it only lowers the node"},
		"node resume":      {raises, always, nil, "the node may draw more"},
		"node release":     {raises, always, nil, "the node may draw its rated power"},
		"node remove":      {removes, always, nil, "other nodes may get its watts"},
		"policy set":       {transfers, always, nil, "watts or containers move between nodes or jobs"},
		"lease set":        {neutral, never, nil, "no cap changes; only how long an unreachable node keeps its cap"},
		"sprint grant":     {raises, always, nil, "nodes exceed their caps for a while"},
		"sprint cancel":    {lowers, never, nil, "it only lowers the nodes of the sprint"},
		"sprint budget":    {raises, always, nil, "sprints may draw this energy above the caps"},
		"brake set":        {lowers, never, nil, "it only lowers nodes"},
		"brake lift":       {raises, always, nil, "nodes may draw more"},
		"brake skip":       {raises, always, nil, "a node may draw more that obeys an unknown brake"},
		"alarm ack":        {neutral, never, nil, "the alarm stays active; only the acknowledgement is recorded"},
		"member add":       {neutral, never, nil, "the new server does not vote"},
		"member promote":   {neutral, never, nil, "only a server that is stable gets a vote"},
		"member remove":    {removes, always, nil, "the cluster tolerates fewer failures"},
		"member transfer":  {transfers, always, nil, "leadership moves to another server"},
		"member recover":   {restores, always, nil, "what other servers have committed may be lost"},
		"snapshot restore": {restores, always, nil, "the cluster restarts from the snapshot"},
		"token create":     {neutral, never, nil, "no cap changes; token revoke takes the access back"},
		"token revoke":     {removes, always, nil, "users of the token lose access"},
		"tls revoke":       {removes, always, nil, "the denial is permanent"},
	}
}

// commandPath is the command's path below the program.
func commandPath(cmd *cobra.Command) string {
	_, below, _ := strings.Cut(cmd.CommandPath(), " ")
	return below
}

// applyRules adds to every command below cmd that changes something what its rule says:
// --yes where it asks, and a line in its help.
func applyRules(cmd *cobra.Command, all map[string]rule) {
	for _, sub := range cmd.Commands() {
		applyRules(sub, all)
	}
	r, ok := all[commandPath(cmd)]
	if !ok {
		return
	}
	text := "Never asks for confirmation: " + r.why + "."
	if r.asks != never {
		text = "Asks for confirmation on a terminal, and requires --yes without one: " + r.why + "."
		if cmd.Flags().Lookup("yes") == nil {
			cmd.Flags().Bool("yes", false, "do not ask for confirmation")
		}
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += "\n\n" + text
}

// needs reports whether a planned change takes a confirmation.
func (r rule) needs(cmd *cobra.Command, plan *headroomv1.ChangeResponse) bool {
	if plan.GetAlready() || r.asks == never {
		return false
	}
	return r.asks == always || freed(plan) > 0 || slices.ContainsFunc(r.flags, cmd.Flags().Changed)
}

// freed is the largest rise of a domain's headroom in a planned change, microwatts.
func freed(plan *headroomv1.ChangeResponse) int64 {
	most := int64(0)
	for i, after := range plan.GetAfter() {
		most = max(most, after.GetHeadroomUw()-plan.GetBefore()[i].GetHeadroomUw())
	}
	return most
}

// question is a planned change with its numbers.
func question(doing string, plan *headroomv1.ChangeResponse) string {
	var text strings.Builder
	text.WriteString(doing + ": " + plan.GetWhat())
	for i, after := range plan.GetAfter() {
		before := plan.GetBefore()[i]
		if gain := after.GetHeadroomUw() - before.GetHeadroomUw(); gain > 0 {
			fmt.Fprintf(&text, "; frees %s in %s (unmanaged %s -> %s, reserved %s -> %s)", shownWatts(gain), after.GetName(), shownWatts(before.GetUnmanagedUw()),
				shownWatts(after.GetUnmanagedUw()), shownWatts(before.GetReservedUw()), shownWatts(after.GetReservedUw()))
		}
	}
	return text.String()
}

// isSet reports whether a flag of a command is given and true.
func isSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Value.String() == "true"
}

// ask asks for confirmation on a terminal, and refuses without one unless --yes is given.
func ask(cmd *cobra.Command, what string) error {
	if isSet(cmd, "yes") || isSet(cmd, "dry-run") {
		return nil
	}
	return cli.Confirm(cmd, what)
}

// repeated is --confirm: the budget again, for a raise above every budget before.
type repeated struct{ powerFlag }

func (x *repeated) flag(f *pflag.FlagSet) {
	f.Var(&x.powerFlag, "confirm", "repeat the budget, to confirm a raise above the highest that the domain ever had")
}

// raise asks before a domain's budget becomes `to` microwatts: for the value itself where
// the domain never had as much, which --yes alone does not confirm.
func (x *repeated) raise(cmd *cobra.Command, d *headroomv1.Domain, to int64) error {
	what := fmt.Sprintf("raise %s from %s to %s", d.GetName(), shownWatts(d.GetBudgetUw()), shownWatts(to))
	switch {
	case isSet(cmd, "dry-run"):
		return nil
	case x.uw != nil && *x.uw != to:
		return cli.Usage("--confirm %s differs from the budget %s", x.String(), exactWatts(to))
	case x.uw != nil || to <= d.GetBudgetUw():
		return nil
	case d.GetHighestUw() == 0 || to <= d.GetHighestUw():
		if err := ask(cmd, what); err != nil {
			return err
		}
		x.uw = &to
		return nil
	}
	what += fmt.Sprintf(", above the highest budget that it ever had, %s", shownWatts(d.GetHighestUw()))
	if !cli.IsTerminal(cmd.InOrStdin()) {
		return &cli.Error{
			Code: "unconfirmed", Exit: cli.ExitUsage, Message: "confirmation required: " + what,
			Hint: fmt.Sprintf("use --confirm %s for non-interactive use; --yes does not confirm it", exactWatts(to)),
		}
	}
	if err := x.Set(cli.Answer(cmd, what+"\ntype the new budget to confirm: ")); err != nil || *x.uw != to {
		x.uw = nil
		return cli.NotConfirmed("type " + exactWatts(to) + ", or use --confirm " + exactWatts(to))
	}
	return nil
}

// uw64 is the repeated budget in microwatts; 0 when it is not given.
func (x *repeated) uw64() int64 {
	if x.uw == nil {
		return 0
	}
	return *x.uw
}

// exactWatts is a power as a command line takes it.
func exactWatts(uw int64) string { return units.Power(uw).Exact() }
