package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"time"
	_ "time/tzdata" // schedules keep their time zones on a server without /usr/share/zoneinfo

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
)

// clockRetry is how often a raise is tried again that too few clocks agreed to.
const clockRetry = 10 * time.Second

// clockwork carries out budgets by the clock. It is the desk's.
type clockwork struct {
	// read asks every server for its wall clock; it runs beside the desk.
	read    func(ctx context.Context) (servers map[string]int64, voters int)
	asking  bool
	next    time.Duration // no raise is tried before, leader's monotonic time
	trouble string        // why a raise waits, in words
}

// followClock carries out what is due. A lower goes at once by this server's own
// clock: the safe direction needs nobody's word, and it passes the raises that wait
// (ledger.Due). A raise waits for the clocks of the others, which are asked beside
// the desk.
func (d *desk) followClock(ctx context.Context) {
	wall, lower := d.wall(), false
	var next ledger.Coming
	d.machine.view(func(s *ledger.State) {
		if due := ledger.Due(s, wall); len(due) > 0 {
			next, lower = due[0], !due[0].Quorum
		}
	})
	switch {
	case next.Domain == "":
		d.clock.trouble = ""
		d.dateAnew(ctx, wall)
	case lower:
		d.byClock(ctx, next, nil, 0)
	case !d.clock.asking && d.now() >= d.clock.next:
		d.clock.asking = true
		go d.askClocks(ctx, next)
	}
}

// dateAnew lets schedules count from now that a wrong clock dated ahead: a cut that falls
// due while no server leads would else be lost.
func (d *desk) dateAnew(ctx context.Context, wall time.Time) {
	var misdated []ledger.Schedule
	d.machine.view(func(s *ledger.State) { misdated = ledger.Misdated(s, wall) })
	for _, x := range misdated {
		set := &ledger.SetSchedule{Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, Budget: x.Budget}
		_, err := d.propose(ctx, ledger.Command{Actor: "clock", Reason: "was dated ahead by a wrong clock", Schedule: set})
		if err != nil {
			d.logger.Warn("schedule dated ahead by a wrong clock", slog.String("schedule", x.Name), slog.Any("error", err))
			return // tried again at the next tick
		}
		d.logger.Info("schedule counts from now; a wrong clock had dated it ahead", slog.String("schedule", x.Name))
	}
}

// askClocks reads the clocks and hands them to the desk.
func (d *desk) askClocks(ctx context.Context, c ledger.Coming) {
	clocks, voters := d.clock.read(ctx)
	_ = d.post(ctx, func() { // a desk that has closed leaves it to the next leader
		d.clock.asking = false
		d.byClock(ctx, c, clocks, voters)
	})
}

// byClock proposes one budget that is due.
func (d *desk) byClock(ctx context.Context, x ledger.Coming, clocks map[string]int64, voters int) {
	c := ledger.Command{Actor: "clock", Reason: "until " + x.At.UTC().Format(time.RFC3339)}
	if x.Schedule != "" {
		c.Actor, c.Reason = "schedule:"+x.Schedule, "schedule"
	}
	set := &ledger.SetBudget{
		Domain: x.Domain, Budget: x.Budget,
		Clock: &ledger.Clock{Schedule: x.Schedule, Due: x.At.UnixMicro(), Servers: clocks, Voters: voters},
	}
	c.Budget = set
	d.machine.view(func(s *ledger.State) {
		if plan, err := ledger.PlanBudget(s, d.table, d.now(), x.Domain, x.Budget); err == nil && !x.Beneath {
			set.Targets = plan.Lowers()
		}
	})
	out := &headroomv1.SetBudgetResponse{Meta: &headroomv1.Meta{}}
	err := d.commitBudget(ctx, c, out)
	if err == nil {
		if clocks != nil { // a lower says nothing of the clocks
			d.clock.trouble, d.clock.next = "", 0
		}
		d.logger.Info("budget changed by the clock", slog.String("domain", x.Domain), slog.Float64("budget_w", x.Budget.Watts()), slog.String("schedule", x.Schedule))
		return
	}
	d.logger.Warn("budget not changed by the clock", slog.String("domain", x.Domain), slog.Any("error", err))
	if clocks == nil {
		return // tried again at the next tick
	}
	d.clock.next = d.now() + clockRetry
	d.clock.trouble = fmt.Sprintf("%s should go to %v since %s: %s", x.Domain, x.Budget, x.At.UTC().Format(time.RFC3339), plain(err))
}
