package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"headroom/jobs/dispatch"
	"headroom/units"
)

// giveUp drops map tasks permanently. They are recorded first.
func (x *run) giveUp(ctx context.Context, indexes []int, why string) error {
	if len(indexes) == 0 {
		return nil
	}
	if err := x.Drop(ctx, indexes, why); err != nil {
		return err
	}
	for _, i := range indexes {
		x.settle(i, dropped)
	}
	return nil
}

// dropOrder returns the map tasks in the order in which they are dropped.
func (x *run) dropOrder() []int {
	return slices.DeleteFunc(dispatch.DropOrder(x.Tasks, x.Draws()), func(i int) bool { return x.tasks[i] != pending })
}

// dropTo drops tasks before any was sent, until the drop ratio is reached.
func (x *run) dropTo(ctx context.Context, theta float64) error {
	most := x.Droppable(theta) - x.dropped
	if theta <= 0 || most <= 0 {
		return nil
	}
	order := x.dropOrder()
	return x.giveUp(ctx, order[:min(most, len(order))], ratioReason(theta))
}

// deflate drops tasks that were not sent.
func (x *run) deflate(ctx context.Context, theta float64) error {
	most, order := x.Droppable(theta)-x.dropped, x.dropOrder()
	for _, f := range x.flights {
		if most <= 0 || f.indexes == nil {
			continue
		}
		places := make(map[int]int, len(f.indexes))
		for place, index := range f.indexes {
			places[index] = place
		}
		var wanted []int
		for _, index := range order {
			if place, ok := places[index]; ok {
				wanted = append(wanted, place)
			}
		}
		taken, err := f.Withdraw(ctx, wanted, most)
		if err != nil {
			return nil //nolint:nilerr // the scheduler ends
		}
		most -= len(taken)
		for i, place := range taken {
			taken[i] = f.indexes[place]
		}
		if err := x.giveUp(ctx, taken, ratioReason(theta)); err != nil {
			return err
		}
	}
	return nil
}

func ratioReason(theta float64) string { return "drop ratio of " + units.Percent(theta) }

// fail counts a failure of a task; Tasks stands for the reduce task.
func (x *run) fail(task int, cause string) {
	x.failures[task]++
	x.causes[task] = cause
	if x.failures[task] >= x.MaxAttempts {
		x.spent = append(x.spent, task)
	}
}

// exhaust drops the tasks that have failed max_attempts times, if the floor permits it; otherwise the run ends.
func (x *run) exhaust(ctx context.Context) (v verdict, over bool) {
	for _, task := range x.spent {
		name := fmt.Sprintf("map task %d", task)
		if task == x.Tasks {
			name = "reduce task 0"
		}
		why := fmt.Sprintf("%s failed %d times, last: %s", name, x.failures[task], x.causes[task])
		if task == x.Tasks || !x.Spares(x.dropped) {
			return verdict{false, why}, true
		}
		if err := x.giveUp(ctx, []int{task}, why); err != nil {
			return unrecorded(err), true
		}
		x.engine.logger.Warn("task given up", slog.String("job", x.ID), slog.Int("task", task), slog.String("why", why))
	}
	x.spent = nil
	return v, false
}

// report sends the progress.
func (x *run) report(ctx context.Context) {
	handed := 0
	for _, f := range x.flights {
		handed += f.Handed()
	}
	x.engine.tell(ctx, Event{Job: x.ID, Number: x.Number, Progress: dispatch.EngineProgress{
		Known: true, Tasks: x.Tasks, Done: x.done, Dropped: x.dropped, Running: min(handed, x.Tasks-x.done-x.dropped+1),
	}})
}
