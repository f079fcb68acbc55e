package arbitration

import (
	"strings"

	"headroom/ledger"
)

const (
	// uncappedStep is how much an uncapped finish time must move to be committed anew,
	// as a part of it: it is estimated at each look, and the log is no place for noise.
	uncappedStep = 0.02
)

// Commands are the commits that the decisions need, those about finish times, early stops,
// sprints and drop ratios in this order.
func (d *Decided) Commands(seen Seen) []ledger.Command {
	return append(commandsFor(seen, *d), moveCommands(d)...)
}

// commandsFor are the commits that the decisions need, uncapped finish times first: an
// early stop rests on one.
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

// moveCommands are the commits that moves need: ends first, whose joules come back.
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

// reasonMost is how long a reason in the log may be, bytes; what is shown says all.
const reasonMost = 1000

func shortened(reason string) string {
	if len(reason) <= reasonMost {
		return reason
	}
	return strings.ToValidUTF8(reason[:reasonMost], "") + "..."
}
