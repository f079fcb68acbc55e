package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// stepSummary is a time in which the budget did not change.
type stepSummary struct {
	FromS   float64 `json:"t_s"`
	BudgetW float64 `json:"budget_w"`
	// MeasuredW is the mean of what the nodes drew.
	MeasuredW *float64 `json:"measured_w"`
	// Queues are by class, highest first.
	Queues []queueSummary `json:"queues"`
	// Dropped are the tasks that were given up in it, Moved the containers by which shares moved.
	Dropped int `json:"dropped"`
	Moved   int `json:"moved"`
}

// queueSummary is a queue in a step.
type queueSummary struct {
	Name string `json:"name"`
	// Used is the mean of the containers in use, Share the bound at the step's end; null: none.
	Used  *float64 `json:"used"`
	Share *int     `json:"share"`
}

// engineJob is what a run with an engine adds to a job.
type engineJob struct {
	ID    string  `json:"id"`
	Queue string  `json:"queue"`
	Floor float64 `json:"floor"`
	// Dropped are the tasks given up as committed, DroppedByCounters as the job's own counters
	// have them; null where they have none.
	Dropped           int  `json:"dropped"`
	DroppedByCounters *int `json:"dropped_by_counters"`
	// Moves counts the decisions about it that the present leader has, by kind.
	Moves map[string]int `json:"moves"`
}

// engineJobOf is what the coordinators and the job's own counters have about a job that has ended.
func (d *show) engineJobOf(ctx context.Context, j *headroomv1.Job) *engineJob {
	out := &engineJob{ID: j.GetId(), Queue: j.GetQueue(), Floor: j.GetFloor(), Dropped: droppedTasks(j), Moves: map[string]int{}}
	if j.GetState() == headroomv1.JobState_JOB_STATE_DONE {
		out.DroppedByCounters = d.lab.Engine.Dropped(ctx, j.GetId())
	}
	moves, _ := d.lab.Moves(ctx, j.GetId()) // none if they are not known
	for _, m := range moves {
		out.Moves[strings.ToLower(strings.TrimPrefix(m.GetKind().String(), "MOVE_KIND_"))]++
	}
	return out
}

// stepsOf divides what was seen until the end by the steps of the budget.
func stepsOf(steps []stepSeen, end time.Duration, samples []sample, looks []look) []stepSummary {
	out := []stepSummary{}
	for i, s := range steps {
		until := end
		if i+1 < len(steps) {
			until = steps[i+1].from
		}
		inside := func(at time.Duration) bool { return at >= s.from && at < until }
		one := stepSummary{FromS: seconds(s.from), BudgetW: s.budget.Watts(), Queues: []queueSummary{}}
		var watts []float64
		for _, x := range samples {
			if inside(x.at) && x.measured != nil {
				watts = append(watts, x.measured.Watts())
			}
		}
		one.MeasuredW = mean(watts)
		one.look(looks, inside)
		out = append(out, one)
	}
	return out
}

// look takes in the looks of the step. What has moved or was given up since the last look
// before it is the step's.
func (s *stepSummary) look(looks []look, inside func(time.Duration) bool) {
	var used [][]float64
	var before *look
	dropped := 0 // by the look before
	for i := range looks {
		l := &looks[i]
		if inside(l.at) {
			s.Dropped += max(0, l.dropped-dropped)
			for q := range l.queues {
				if q == len(s.Queues) {
					s.Queues, used = append(s.Queues, queueSummary{Name: l.queues[q].Name}), append(used, nil)
				}
				s.Queues[q].Share = l.queues[q].Share
				used[q] = append(used[q], float64(l.queues[q].Used))
			}
			if before != nil && l.queues != nil {
				s.Moved += movedBy(before.queues, l.queues)
			}
		}
		if dropped = l.dropped; l.queues != nil {
			before = l
		}
	}
	for q := range used {
		s.Queues[q].Used = mean(used[q])
	}
}

// mean has one decimal; nil of none.
func mean(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	return new(math.Round(10*stat.Mean(values, nil)) / 10)
}

// missing are what a run should show and this one did not, in words: no promise, and
// dependent on how busy the machine is. Shares move only where queues have some.
func (out summary) missing() []string {
	if out.Engine == "" {
		return nil
	}
	all := []string{eventSprint, eventDrops}
	if slices.ContainsFunc(out.Steps, func(step stepSummary) bool {
		return slices.ContainsFunc(step.Queues, func(q queueSummary) bool { return q.Share != nil })
	}) {
		all = append(all, eventShares)
	}
	return slices.DeleteFunc(all, out.saw)
}

// printSteps prints the table of steps, and what each job gave up.
func (out summary) printSteps(line func(format string, args ...any)) {
	shown := func(v *float64, unit string) string {
		return cli.Opt(v, func(v float64) string { return fmt.Sprintf("%.1f%s", v, unit) })
	}
	queues := ""
	if len(out.Steps) > 0 {
		queues = cells(out.Steps[0].Queues, func(q queueSummary) string { return strings.ToUpper(q.Name) + " USED/SHARE" })
	}
	line("%7s  %9s  %9s%s  %7s  %5s", "FROM", "BUDGET", "MEASURED", queues, "DROPPED", "MOVED")
	for _, step := range out.Steps {
		queues := cells(step.Queues, func(q queueSummary) string { return shown(q.Used, "") + "/" + count(q.Share) })
		line("%5.0f s  %7.1f W  %9s%s  %7d  %5d", step.FromS, step.BudgetW, shown(step.MeasuredW, " W"), queues, step.Dropped, step.Moved)
	}
	line("")
	for _, j := range out.Jobs {
		line("%-34s %-5s %-9s %3d of %-3d tasks done, %d dropped (its own counters: %s), moves %s",
			j.ID, j.Class, j.State, j.Done, j.Tasks, j.Dropped, count(j.DroppedByCounters), movesInWords(j.Moves))
	}
}

// cells are the columns of the queues in a line of the table.
func cells(queues []queueSummary, text func(queueSummary) string) string {
	var b strings.Builder
	for _, q := range queues {
		fmt.Fprintf(&b, "  %18s", text(q))
	}
	return b.String()
}

func movesInWords(moves map[string]int) string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(moves)) {
		words = append(words, fmt.Sprintf("%s %d", kind, moves[kind]))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}
