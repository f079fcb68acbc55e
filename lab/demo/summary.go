package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// summary is summary.json (docs/demo.md). Times are seconds; an unknown value is null.
type summary struct {
	Engine     string          `json:"engine,omitempty"`
	OverBudget overBudget      `json:"over_budget_s"`
	Settle     settle          `json:"settle_s"`
	*recovery                  // nil with an engine
	Breaker    *breakerSummary `json:"breaker"`
	Nodes      int             `json:"nodes"`
	Steps      []stepSummary   `json:"steps,omitempty"` // with an engine
	Jobs       []jobSummary    `json:"jobs"`
	Events     []eventSummary  `json:"events"`

	settled int // nodes that read back a lower cap
}

// recovery is how long the cluster took after what was killed.
type recovery struct {
	Failover *float64 `json:"failover_s"`
	Readopt  *float64 `json:"readopt_s"`
}

type overBudget struct {
	Reserved float64 `json:"reserved"`
	Held     float64 `json:"held"`
	Measured float64 `json:"measured"`
}

type settle struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

// settleOf are the quantiles of sorted times.
func settleOf(times []float64) settle {
	if len(times) == 0 {
		return settle{}
	}
	return settle{rounded(new(stat.Quantile(0.50, stat.Empirical, times, nil))), rounded(new(stat.Quantile(0.99, stat.Empirical, times, nil)))}
}

// jobSummary is one job. EnergyJ is its share of the energy at the wall of the
// nodes that ran its tasks.
type jobSummary struct {
	Name     string   `json:"name"`
	Class    string   `json:"class"`
	State    string   `json:"state"`
	Tasks    uint32   `json:"tasks"`
	Done     uint32   `json:"done"`
	RuntimeS *float64 `json:"runtime_s"`
	EnergyJ  float64  `json:"energy_j"`
	*engineJob
}

type eventSummary struct {
	AtS  float64 `json:"t_s"`
	What string  `json:"what"`
}

// askMost bounds the queries about jobs that have ended.
const askMost = 20 * time.Second

// summary puts the figures of the run together.
func (d *show) summary(ctx context.Context) summary {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	b := d.tracker
	b.mu.Lock()
	defer b.mu.Unlock()
	above := judge(b.samples, b.cuts)
	out := summary{
		OverBudget: overBudget{seconds(above.reserved), seconds(above.held), seconds(above.measured)},
		Settle:     settleOf(d.settle), Nodes: d.opts.nodes, Breaker: breakerOf(b.samples), Jobs: []jobSummary{}, Events: []eventSummary{}, settled: len(d.settle),
	}
	if d.opts.engine == engineLocal {
		out.recovery = &recovery{rounded(d.failover), rounded(d.readopt)}
	} else {
		out.Engine, out.Steps = d.opts.engine, stepsOf(d.steps, d.end, b.samples, d.looks.looks)
	}
	for _, j := range b.jobs {
		p := j.GetProgress()
		one := jobSummary{
			Name: j.GetName(), Class: j.GetClass(), State: stateWord(j.GetState()), Tasks: p.GetTasks(), Done: p.GetDone(),
			RuntimeS: rounded(p.RuntimeS), EnergyJ: *rounded(new(b.energy[j.GetId()])),
		}
		if out.Engine != "" {
			one.engineJob = d.engineJobOf(ctx, j)
		}
		out.Jobs = append(out.Jobs, one)
	}
	for _, e := range b.events {
		out.Events = append(out.Events, eventSummary{seconds(e.at), e.what})
	}
	return out
}

// String is the breaker's line of the verdict.
func (s *breakerSummary) String() string {
	switch {
	case s == nil:
		return "-"
	case s.Tripped:
		return "tripped"
	}
	return fmt.Sprintf("did not trip, hottest at %.0f %%", 100*s.Hottest)
}

// seconds is rounded to milliseconds, the resolution of the samples.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

func rounded(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return new(math.Round(*v*1000) / 1000)
}

// stateWord is a job's state in one word.
func stateWord(s headroomv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// broken are the guarantees that the run broke, in words.
func (out summary) broken() (words []string) {
	add := func(broken bool, format string, args ...any) {
		if broken {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	above := out.OverBudget
	add(above.Reserved > 0, "reserved was above the budget for %.3f s", above.Reserved)
	add(above.Held > 0, "held was above the budget for %.3f s", above.Held)
	add(above.Measured > 0, "measured was above the budget for %.3f s by more than %.0f %%", above.Measured, 100*measuredTolerance)
	add(out.Breaker != nil && out.Breaker.Tripped, "a breaker rated for the budget would have tripped")
	events := eventNames()
	if out.Engine != "" {
		events = []string{eventLowered, eventRaised}
	}
	for _, what := range events {
		add(!out.saw(what), "event %q did not happen", what)
	}
	for _, j := range out.Jobs {
		name, e := j.Name, j.engineJob
		if e != nil {
			name = e.ID
		}
		add(j.State != "done" && j.State != "cancelled", "job %s is %s with %d of %d tasks done", name, j.State, j.Done, j.Tasks)
		if e == nil {
			continue
		}
		if by := e.DroppedByCounters; by != nil {
			add(*by != e.Dropped, "job %s dropped %d tasks by its own counters, but %d are committed", name, *by, e.Dropped)
		}
		least := math.Ceil(e.Floor*float64(j.Tasks) - 1e-9)
		add(j.State == "done" && float64(j.Tasks)-float64(e.Dropped) < least, "job %s dropped %d of %d tasks; its floor is %.0f of them", name, e.Dropped, j.Tasks, least)
	}
	add(len(out.Jobs) == 0, "no jobs ran")
	return words
}

// saw reports whether an event happened.
func (out summary) saw(what string) bool {
	return slices.ContainsFunc(out.Events, func(e eventSummary) bool { return e.What == what })
}

// eventNames are the events that every run has, in their order.
func eventNames() []string {
	return []string{eventCut, eventKilled, eventLeader, eventDown, eventBack, eventRaised}
}

// print is the verdict for people.
func (out summary) print(w io.Writer, dir string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	shown := func(v *float64) string {
		return cli.Opt(v, func(v float64) string { return fmt.Sprintf("%.2f s", v) })
	}
	line("")
	if out.Engine != "" {
		out.printSteps(line)
	}
	line("over budget   reserved %.3f s, held %.3f s, measured %.3f s (tolerance %.0f %%)",
		out.OverBudget.Reserved, out.OverBudget.Held, out.OverBudget.Measured, 100*measuredTolerance)
	line("cut           %d times a node read back its lower cap, p50 %s, p99 %s after the commit",
		out.settled, shown(out.Settle.P50), shown(out.Settle.P99))
	if out.recovery != nil {
		line("failover      %s from the leader's kill to the first lease from the next leader", shown(out.Failover))
		line("powerd        %s from its start to a verified cap", shown(out.Readopt))
	}
	line("breaker       %s", out.Breaker)
	for _, class := range []string{classHigh, classLow} {
		c, energy := counts{}, 0.0
		for _, j := range out.Jobs {
			if j.Class != class {
				continue
			}
			if c.jobs++; j.State == "done" {
				c.ended++
			}
			c.tasks, c.done, energy = c.tasks+j.Tasks, c.done+j.Done, energy+j.EnergyJ
		}
		line("jobs %-8s %d of %d done, %d of %d tasks, %.2f kJ", class, c.ended, c.jobs, c.done, c.tasks, energy/1000)
	}
	if missing := out.missing(); len(missing) > 0 {
		line("not seen      %s; on a busy machine use a longer --for", strings.Join(missing, ", "))
	}
	line("files         %s/power.csv, power.svg, summary.json; logs in %s/logs and %s/nodes/*", dir, dir, dir)
}
