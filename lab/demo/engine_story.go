package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/internal/pause"
	"headroom/units"
)

// Words of a story on a real cluster; those of steps and of what is seen are part of
// summary.json's contract.
const (
	eventLowered = "budget lowered"
	eventSprint  = "sprint"
	eventShares  = "shares moved"
	eventDrops   = "tasks dropped"
	eventJob     = "job submitted"
	eventRevived = "program started again"
)

// act is one thing that the story on a real cluster does: at is its moment as a part of the
// run. It sets the budget to a part of the full one, or submits a job of a class.
type act struct {
	at     float64
	budget float64
	class  string
}

// firstJobs are the classes of the jobs that are there at t = 0.
func firstJobs() []string { return []string{classLow, classLow} }

// acts are the story: jobs of the low class fill the cluster, the budget steps down twice,
// jobs of the high class come in between, and the budget is raised again. The first step
// takes watts of sprints alone, the second one of the nodes, and leaves nothing for sprints.
func acts() []act {
	return []act{
		{at: 0.12, class: classHigh},
		{at: 0.22, budget: 0.8},
		{at: 0.30, class: classLow},
		{at: 0.42, budget: cutTo},
		{at: 0.50, class: classHigh},
		{at: 0.64, budget: 1},
	}
}

// stepSeen is a time in which the budget did not change.
type stepSeen struct {
	from   time.Duration
	budget units.Power
}

// tell plays the whole story. It returns early only when ctx ends or an act cannot be done.
func (d *engineShow) tell(ctx context.Context, submit func(class string)) error {
	d.steps = append(d.steps, stepSeen{0, d.lab.full()})
	for _, a := range acts() {
		d.story.waitUntil(ctx, time.Duration(float64(d.story.run)*a.at))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.class != "" {
			d.tracker.note(d.tracker.now(), eventJob, "class "+a.class)
			submit(a.class)
			continue
		}
		if err := d.step(ctx, a); err != nil {
			return err
		}
	}
	for d.tracker.now() < d.story.run && ctx.Err() == nil {
		jobs := d.tracker.jobList()
		if d.tracker.now() > d.steps[len(d.steps)-1].from+lastAct && loadOf(jobs, classHigh).jobs+loadOf(jobs, classLow).jobs == 0 {
			break
		}
		pause.For(ctx, againAfter)
	}
	return ctx.Err()
}

// step sets the budget.
func (d *engineShow) step(ctx context.Context, a act) error {
	from, to := d.steps[len(d.steps)-1].budget, units.FromWatts(math.Round(d.lab.full().Watts()*a.budget))
	res, err := d.story.client.setBudget(ctx, to, "step of the demo")
	if err != nil {
		return err
	}
	d.tracker.commit(res.GetMeta().GetRevision(), to)
	at, what := d.tracker.now(), eventRaised
	if to < from {
		at, what = d.tracker.lastCut(), eventLowered
	}
	d.steps = append(d.steps, stepSeen{at, to})
	d.tracker.note(at, what, fmt.Sprintf("%v -> %v, revision %d", from, to, res.GetMeta().GetRevision()))
	if to > from {
		return nil
	}
	return d.confirm(ctx, res.GetMeta().GetRevision())
}

// confirm waits until every lowered node has read back its new cap.
func (d *engineShow) confirm(ctx context.Context, revision uint64) error {
	confirmations, err := d.story.client.awaitBudget(ctx, revision, confirmMost)
	if err != nil {
		return ctx.Err() // what the nodes hold is judged anyway
	}
	confirmed := 0
	for _, c := range confirmations {
		if c.AfterMs != nil {
			confirmed++
			d.settle = append(d.settle, c.GetAfterMs()/1000)
		}
	}
	slices.Sort(d.settle)
	if confirmed < len(confirmations) {
		return fmt.Errorf("%w: %d of %d lowered nodes did not confirm the cut within %v", errBroken, len(confirmations)-confirmed, len(confirmations), confirmMost)
	}
	return nil
}
