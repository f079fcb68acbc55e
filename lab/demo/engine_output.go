package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/lab/chart"
)

// engineSummary is summary.json of a run with an engine. Times are seconds; a figure that is
// not known is null.
type engineSummary struct {
	Engine     string          `json:"engine"`
	OverBudget overBudget      `json:"over_budget_s"`
	Settle     settle          `json:"settle_s"`
	Breaker    *breakerSummary `json:"breaker"`
	Nodes      int             `json:"nodes"`
	Steps      []stepSummary   `json:"steps"`
	Jobs       []engineJob     `json:"jobs"`
	Events     []eventSummary  `json:"events"`
}

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

// engineJob is one job.
type engineJob struct {
	jobSummary

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

// summary puts the figures of the run together.
func (d *engineShow) summary() engineSummary {
	d.tracker.mu.Lock()
	defer d.tracker.mu.Unlock()
	out := engineSummary{
		Engine: d.name, OverBudget: d.tracker.over(), Settle: settleOf(d.settle),
		Breaker: breakerOf(d.tracker.samples), Nodes: len(d.lab.nodes),
		Steps: stepsOf(d.steps, d.end, d.tracker.samples, d.looks.all()), Jobs: []engineJob{}, Events: d.tracker.happened(),
	}
	for _, j := range d.tracker.jobs {
		out.Jobs = append(out.Jobs, d.job(j))
	}
	return out
}

func (d *engineShow) job(j *headroomv1.Job) engineJob {
	out := engineJob{
		jobSummary: d.tracker.summaryOf(j),
		ID:         j.GetId(), Queue: j.GetQueue(), Floor: j.GetFloor(), Dropped: droppedTasks(j), Moves: map[string]int{},
	}
	if n, ok := d.dropped[j.GetId()]; ok {
		out.DroppedByCounters = &n
	}
	for _, m := range d.moves[j.GetId()] {
		out.Moves[kindWord(m.GetKind())]++
	}
	return out
}

// kindWord is the kind of a move in one word.
func kindWord(k headroomv1.MoveKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "MOVE_KIND_"))
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
		var watts mean
		for _, x := range samples {
			if inside(x.at) && x.measured != nil {
				watts.add(x.measured.Watts())
			}
		}
		one.MeasuredW = watts.value()
		one.look(looks, inside)
		out = append(out, one)
	}
	return out
}

// look takes in the looks of the step. What has moved or was given up since the last look
// before it is the step's.
func (s *stepSummary) look(looks []look, inside func(time.Duration) bool) {
	var used []mean
	var before *look
	dropped := 0 // by the look before
	for i := range looks {
		l := &looks[i]
		if inside(l.at) {
			s.Dropped += max(0, l.dropped-dropped)
			for q := range l.queues {
				if q == len(s.Queues) {
					s.Queues, used = append(s.Queues, queueSummary{Name: l.queues[q].name}), append(used, mean{})
				}
				s.Queues[q].Share = l.queues[q].share
				used[q].add(float64(l.queues[q].used))
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
		s.Queues[q].Used = used[q].value()
	}
}

// mean is that of numbers that come one by one.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum, m.n = m.sum+v, m.n+1 }

// value has one decimal; nil of none.
func (m *mean) value() *float64 {
	if m.n == 0 {
		return nil
	}
	v := math.Round(10*m.sum/float64(m.n)) / 10
	return &v
}

// broken are the promises that the run broke, in words; none is the aim.
func (s engineSummary) broken() []string {
	words := brokenSums(s.OverBudget, s.Breaker)
	for _, what := range []string{eventLowered, eventRaised} {
		if !slices.ContainsFunc(s.Events, func(e eventSummary) bool { return e.What == what }) {
			words = append(words, fmt.Sprintf("event %q did not happen", what))
		}
	}
	for _, j := range s.Jobs {
		if j.State != "done" && j.State != "cancelled" {
			words = append(words, fmt.Sprintf("job %s is %s with %d of %d tasks done", j.ID, j.State, j.Done, j.Tasks))
		}
		if j.DroppedByCounters != nil && *j.DroppedByCounters != j.Dropped {
			words = append(words, fmt.Sprintf("job %s dropped %d tasks by its own counters, but %d are committed", j.ID, *j.DroppedByCounters, j.Dropped))
		}
		if least := math.Ceil(j.Floor*float64(j.Tasks) - 1e-9); j.State == "done" && float64(j.Tasks)-float64(j.Dropped) < least {
			words = append(words, fmt.Sprintf("job %s dropped %d of %d tasks; its floor is %.0f of them", j.ID, j.Dropped, j.Tasks, least))
		}
	}
	if len(s.Jobs) == 0 {
		words = append(words, "no jobs ran")
	}
	return words
}

// missing are what a run should show and this one did not, in words: no promise, and
// dependent on how busy the machine is. Shares move only where queues have some.
func (s engineSummary) missing() []string {
	all := []string{eventSprint, eventDrops}
	if slices.ContainsFunc(s.Steps, func(step stepSummary) bool {
		return slices.ContainsFunc(step.Queues, func(q queueSummary) bool { return q.Share != nil })
	}) {
		all = append(all, eventShares)
	}
	var words []string
	for _, what := range all {
		if !slices.ContainsFunc(s.Events, func(e eventSummary) bool { return e.What == what }) {
			words = append(words, what)
		}
	}
	return words
}

// print is the table of steps and the verdict for people.
func (s engineSummary) print(w io.Writer, dir string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	shown := func(v *float64, unit string) string {
		return cli.Opt(v, func(v float64) string { return fmt.Sprintf("%.1f%s", v, unit) })
	}
	line("")
	head, queues := fmt.Sprintf("%7s  %9s  %9s", "FROM", "BUDGET", "MEASURED"), ""
	if len(s.Steps) > 0 {
		queues = cells(s.Steps[0].Queues, func(q queueSummary) string { return strings.ToUpper(q.Name) + " USED/SHARE" })
	}
	line("%s%s  %7s  %5s", head, queues, "DROPPED", "MOVED")
	for _, step := range s.Steps {
		queues := cells(step.Queues, func(q queueSummary) string { return shown(q.Used, "") + "/" + count(q.Share) })
		line("%5.0f s  %7.1f W  %9s%s  %7d  %5d", step.FromS, step.BudgetW, shown(step.MeasuredW, " W"), queues, step.Dropped, step.Moved)
	}
	line("")
	for _, j := range s.Jobs {
		line("%-34s %-5s %-9s %3d of %-3d tasks done, %d dropped (its own counters: %s), moves %s",
			j.ID, j.Class, j.State, j.Done, j.Tasks, j.Dropped, count(j.DroppedByCounters), movesInWords(j.Moves))
	}
	line("over budget   reserved %.3f s, held %.3f s, measured %.3f s (tolerance %.0f %%)",
		s.OverBudget.Reserved, s.OverBudget.Held, s.OverBudget.Measured, 100*measuredTolerance)
	line("cuts          lowered nodes read back their lower caps p50 %s, p99 %s after the commit", shown(s.Settle.P50, " s"), shown(s.Settle.P99, " s"))
	line("breaker       %s", s.Breaker)
	if missing := s.missing(); len(missing) > 0 {
		line("not seen      %s; on a busy machine use a longer --for", strings.Join(missing, ", "))
	}
	line("files         %s/power.csv, power.svg, summary.json; logs in %s/logs and %s/nodes/*", dir, dir, dir)
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
	for _, kind := range []string{"sprint", "reallocate", "deflate", "cap"} {
		if n := moves[kind]; n > 0 {
			words = append(words, fmt.Sprintf("%s %d", kind, n))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// verdict writes the results and reports whether a promise was broken; err is why the story did
// not come to its end, if it did not.
func (d *engineShow) verdict(err error) error {
	sum := d.summary()
	if written := d.write(sum); written != nil {
		return written
	}
	sum.print(d.out, d.opts.out)
	return d.conclude(sum.broken(), err)
}

// write writes summary.json and power.svg.
func (d *engineShow) write(sum engineSummary) error {
	data, err := json.MarshalIndent(sum, "", "  ")
	if err == nil {
		err = os.WriteFile(d.lab.path("summary.json"), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("demo: summary.json: %w", err)
	}
	d.tracker.mu.Lock()
	p := picture{samples: d.tracker.samples, events: slices.Clone(d.tracker.events), nodes: d.lab.nodes}
	d.tracker.mu.Unlock()
	drawn, err := enginePicture{power: p, looks: d.looks.all()}.draw()
	if err == nil {
		err = os.WriteFile(d.lab.path("power.svg"), drawn, 0o644)
	}
	if err != nil {
		return fmt.Errorf("demo: power.svg: %w", err)
	}
	return nil
}

// enginePicture draws power.svg of a run with an engine: the power, the containers of each
// queue with their shares, and the tasks that were dropped, below each other.
type enginePicture struct {
	power picture
	looks []look
}

func (c enginePicture) draw() ([]byte, error) {
	// Shares move and tasks are dropped often: their lines show it.
	c.power.events = slices.DeleteFunc(c.power.events, func(e event) bool { return e.what == eventShares || e.what == eventDrops })
	power, err := c.power.plot("Budget, and what a real cluster does about it")
	if err != nil {
		return nil, err
	}
	queues, err := c.queues()
	if err != nil {
		return nil, err
	}
	drops := chart.New("", "time (s)", "tasks dropped")
	drops.Y.Min, drops.Y.Max = 0, 1
	var points []plotter.XY
	for _, l := range c.looks {
		points = append(points, plotter.XY{X: l.at.Seconds(), Y: float64(l.dropped)})
		drops.Y.Max = max(drops.Y.Max, 1.05*float64(l.dropped))
	}
	if err := drops.Line(chart.Series{Name: "dropped by all jobs", Points: points, Colour: chart.Red, Steps: true}); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = chart.SaveStrips([]*chart.Plot{power, queues, drops}, &b)
	return b.Bytes(), err
}

// queues are the containers of each queue and, dashed, its share.
func (c enginePicture) queues() (*chart.Plot, error) {
	p := chart.New("", "time (s)", "containers")
	p.Y.Min, p.Y.Max = 0, 1
	names := []string{}
	for _, l := range c.looks {
		for _, q := range l.queues[min(len(names), len(l.queues)):] {
			names = append(names, q.name)
		}
	}
	for i, name := range names {
		var used, share []plotter.XY
		for _, l := range c.looks {
			u := plotter.XY{X: l.at.Seconds(), Y: math.NaN()}
			s := u
			if i < len(l.queues) {
				u.Y = float64(l.queues[i].used)
				if n := l.queues[i].share; n != nil {
					s.Y = float64(*n)
				}
				p.Y.Max = max(p.Y.Max, 1.05*u.Y)
				if !math.IsNaN(s.Y) {
					p.Y.Max = max(p.Y.Max, 1.05*s.Y)
				}
			}
			used, share = append(used, u), append(share, s)
		}
		colour := chart.LineColours()[i%len(chart.LineColours())]
		if err := p.Line(chart.Series{Name: name + ", in use", Points: used, Colour: colour, Steps: true, Width: 1.8}); err != nil {
			return nil, err
		}
		if err := p.Line(chart.Series{Name: name + ", share", Points: share, Colour: colour, Steps: true, Dashes: []float64{3, 3}}); err != nil {
			return nil, err
		}
	}
	return p, nil
}
