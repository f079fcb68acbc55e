package leader

import (
	"time"

	"headroom/ledger"
)

// clockRetry is how often a raise is tried again that too few clocks agreed to.
const clockRetry = 10 * time.Second

// clock carries out budgets by the clock.
type clock struct {
	asking  *ledger.Coming // whose clocks are being read
	queued  bool           // a change by the clock waits or is in flight
	next    time.Duration  // no raise is tried before
	waits   ledger.Coming  // the raise that waits, and why
	trouble error
}

// byClock is one change by the clock.
type byClock struct {
	coming  ledger.Coming
	servers map[string]int64 // wall clocks, microseconds; nil for a lower
	voters  int
}

// ClockTrouble is the raise by the clock that waits, and why; nil where none does.
func (l *Leader) ClockTrouble() (ledger.Coming, error) { return l.clock.waits, l.clock.trouble }

// followClock carries out what is due. A lower goes at once by this server's own clock:
// the safe direction needs nobody's word, and it passes the raises that wait (ledger.Due).
// A raise waits for the clocks of the others.
func (l *Leader) followClock(s *ledger.State, now Moment, out *[]Output) {
	due := ledger.Due(s, now.Wall)
	switch {
	case l.clock.queued:
	case len(due) == 0:
		l.clock.trouble = nil
		l.dateAnew(s, now)
	case !due[0].Quorum:
		l.changeByClock(byClock{coming: due[0]})
	case l.clock.asking == nil && now.Mono >= l.clock.next:
		l.clock.asking = &due[0]
		*out = append(*out, AskClocks{})
	}
}

// dateAnew lets schedules count from now that a wrong clock dated ahead: a cut that falls
// due while no server leads would else be lost.
func (l *Leader) dateAnew(s *ledger.State, now Moment) {
	for _, x := range ledger.Misdated(s, now.Wall) {
		l.queue = append(l.queue, &Request{
			Command: ledger.Command{
				Actor: "clock", Reason: "was dated ahead by a wrong clock",
				Schedule: &ledger.SetSchedule{Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, Budget: x.Budget, Force: s.Rules >= ledger.RulesOfFloors},
			},
			Quiet: true, dating: x.Name,
		})
	}
}

// Clocks takes in the wall clocks of the servers that AskClocks asked for, in microseconds
// as of now, and how many vote.
func (l *Leader) Clocks(s *ledger.State, now Moment, servers map[string]int64, voters int) []Output {
	x := l.clock.asking
	if x == nil {
		return nil
	}
	l.clock.asking = nil
	if servers == nil {
		servers = map[string]int64{}
	}
	l.changeByClock(byClock{*x, servers, voters})
	return l.next(s, now)
}

// changeByClock puts a change by the clock before all requests.
func (l *Leader) changeByClock(x byClock) {
	c := ledger.Command{Actor: "clock", Reason: "until " + x.coming.At.UTC().Format(time.RFC3339)}
	if x.coming.Schedule != "" {
		c.Actor, c.Reason = "schedule:"+x.coming.Schedule, "schedule"
	}
	l.clock.queued = true
	l.queue = append([]*Request{{Command: c, Build: x.build, clock: &x}}, l.queue...)
}

// build plans the change on the state of now.
func (x *byClock) build(v View, c *ledger.Command) error {
	c.Budget = &ledger.SetBudget{
		Domain: x.coming.Domain, Budget: x.coming.Budget,
		Clock: &ledger.Clock{Schedule: x.coming.Schedule, Due: x.coming.At.UnixMicro(), Servers: x.servers, Voters: x.voters},
	}
	if plan, err := ledger.PlanBudget(v.State, v.l.table, v.Now.Mono, x.coming.Domain, x.coming.Budget); err == nil && !x.coming.Beneath {
		c.Budget.Targets = plan.Lowers()
	}
	return nil
}

// clockDone notes what came of a change by the clock.
func (l *Leader) clockDone(now Moment, r *Request, err error) {
	x := r.clock
	l.clock.queued = false
	switch {
	case x.servers == nil: // a lower says nothing of the clocks; it is tried again at the next tick
	case err == nil:
		l.clock.trouble, l.clock.next = nil, 0
	default:
		l.clock.next = now.Mono + clockRetry
		l.clock.waits, l.clock.trouble = x.coming, err
	}
}

// ByClock is the change by the clock that a request stands for, and false for any other.
func (r *Request) ByClock() (ledger.Coming, bool) {
	if r.clock == nil {
		return ledger.Coming{}, false
	}
	return r.clock.coming, true
}

// Dated is the schedule that a request dates anew; empty for any other.
func (r *Request) Dated() string { return r.dating }
