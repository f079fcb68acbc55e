package arbitration

import (
	"strings"

	"headroom/ledger"
)

const (
	// uncappedStep is how much an uncapped finish time must change to be committed again,
	// as a fraction of it: it is estimated at each check, and noise must not fill the log.
	uncappedStep = 0.02
)

// Commands returns the commands that the decisions need: finish times, early stops,
// sprints and drop ratios, in this order.
func (d *Decided) Commands(seen Seen) []ledger.Command {
	return append(commandsFor(seen, *d), moveCommands(d)...)
}

// commandsFor returns the commands that the decisions need, uncapped finish times first: an
// early stop depends on one.
func commandsFor(seen Seen, decided Decided) []ledger.Command {
	var out []ledger.Command
	inForce := map[string]ledger.EarlyStop{}
	for _, x := range seen.Jobs {
		if x.Job.Stop != nil {
			inForce[x.Job.ID] = *x.Job.Stop
		}
		at, known := decided.Uncapped[x.Job.ID]
		if moved := at - x.Job.Uncapped; known && at > 0 && (x.Job.Uncapped == 0 || moved.Abs().Seconds() > uncappedStep*x.Job.Uncapped.Seconds()) {
			out = append(out, ledger.Command{SetUncapped: &ledger.SetUncapped{ID: x.Job.ID, Uncapped: at}})
		}
	}
	for _, x := range decided.Stops {
		if old := inForce[x.ID]; old.Tasks == x.Tasks && old.MinTasks == x.MinTasks {
			continue
		}
		out = append(out, ledger.Command{StopJob: &x.StopJob, Reason: x.Reason})
	}
	return out
}

// moveCommands returns the commands that moves need: ends of sprints first, because they refund energy.
func moveCommands(decided *Decided) (out []ledger.Command) {
	for _, x := range decided.Ends {
		out = append(out, ledger.Command{EndSprint: &x, Reason: x.Why})
	}
	for _, x := range decided.Sprints {
		out = append(out, ledger.Command{Sprint: &x.GrantSprint, Reason: shortened(x.Reason)})
	}
	for _, x := range decided.Deflates {
		out = append(out, ledger.Command{DeflateJob: &x.DeflateJob, Reason: shortened(x.Reason)})
	}
	return out
}

// reasonMost bounds a reason in the log, in bytes; the reason that is shown is complete.
const reasonMost = 1000

func shortened(reason string) string {
	if len(reason) <= reasonMost {
		return reason
	}
	return strings.ToValidUTF8(reason[:reasonMost], "") + "..."
}
