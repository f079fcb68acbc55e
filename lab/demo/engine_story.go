package demo

import (
	"context"
	"fmt"
	"math"
	"time"

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
	return d.story.runOut(ctx)
}

// step sets the budget.
func (d *engineShow) step(ctx context.Context, a act) error {
	from, to := d.steps[len(d.steps)-1].budget, units.FromWatts(math.Round(d.lab.full().Watts()*a.budget))
	if to < from {
		err := d.story.lower(ctx, from, to, eventLowered, "step of the demo")
		d.steps, d.settle = append(d.steps, stepSeen{d.tracker.lastCut(), to}), d.story.settle
		return err
	}
	res, err := d.story.client.setBudget(ctx, to, "step of the demo")
	if err != nil {
		return err
	}
	d.tracker.commit(res.GetMeta().GetRevision(), to)
	d.steps = append(d.steps, stepSeen{d.tracker.now(), to})
	d.tracker.note(d.tracker.now(), eventRaised, fmt.Sprintf("%v -> %v, revision %d", from, to, res.GetMeta().GetRevision()))
	return nil
}
