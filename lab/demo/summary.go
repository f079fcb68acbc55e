package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// summary is summary.json (docs/demo.md). Times are seconds; an unknown value is null.
type summary struct {
	OverBudget overBudget      `json:"over_budget_s"`
	Settle     settle          `json:"settle_s"`
	Failover   *float64        `json:"failover_s"`
	Readopt    *float64        `json:"readopt_s"`
	Breaker    *breakerSummary `json:"breaker"`
	Nodes      int             `json:"nodes"`
	Jobs       []jobSummary    `json:"jobs"`
	Events     []eventSummary  `json:"events"`
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
	return settle{rounded(new(quantile(times, 0.50))), rounded(new(quantile(times, 0.99)))}
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
}

type eventSummary struct {
	AtS  float64 `json:"t_s"`
	What string  `json:"what"`
}

// summarise puts the figures of a run together.
func summarise(b *tracker, s *story, nodes int) summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := summary{
		OverBudget: b.over(), Settle: settleOf(s.settle), Failover: rounded(s.failover), Readopt: rounded(s.readopt), Nodes: nodes,
		Breaker: breakerOf(b.samples), Jobs: []jobSummary{}, Events: b.happened(),
	}
	for _, j := range b.jobs {
		out.Jobs = append(out.Jobs, b.summaryOf(j))
	}
	return out
}

// over is the time that each sum was above the budget. The tracker is locked, here and below.
func (b *tracker) over() overBudget {
	v := judge(b.samples, b.cuts)
	return overBudget{seconds(v.reserved), seconds(v.held), seconds(v.measured)}
}

func (b *tracker) happened() []eventSummary {
	out := []eventSummary{}
	for _, e := range b.events {
		out = append(out, eventSummary{seconds(e.at), e.what})
	}
	return out
}

func (b *tracker) summaryOf(j *headroomv1.Job) jobSummary {
	p := j.GetProgress()
	return jobSummary{
		Name: j.GetName(), Class: j.GetClass(), State: stateWord(j.GetState()), Tasks: p.GetTasks(), Done: p.GetDone(),
		RuntimeS: rounded(p.RuntimeS), EnergyJ: *rounded(new(b.energy[j.GetId()])),
	}
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

// brokenSums are the guarantees about power that a run broke, in words.
func brokenSums(above overBudget, breaker *breakerSummary) (words []string) {
	for _, x := range []struct {
		what  string
		s     float64
		limit string
	}{{"reserved", above.Reserved, ""}, {"held", above.Held, ""}, {"measured", above.Measured, fmt.Sprintf(" by more than %.0f %%", 100*measuredTolerance)}} {
		if x.s > 0 {
			words = append(words, fmt.Sprintf("%s was above the budget for %.3f s%s", x.what, x.s, x.limit))
		}
	}
	if breaker != nil && breaker.Tripped {
		words = append(words, "a breaker rated for the budget would have tripped")
	}
	return words
}

// broken are the guarantees that the run broke, in words.
func (out summary) broken() []string {
	words := brokenSums(out.OverBudget, out.Breaker)
	for _, what := range eventNames() {
		if !slices.ContainsFunc(out.Events, func(e eventSummary) bool { return e.What == what }) {
			words = append(words, fmt.Sprintf("event %q did not happen", what))
		}
	}
	for _, j := range out.Jobs {
		if j.State != "done" && j.State != "cancelled" {
			words = append(words, fmt.Sprintf("job %s is %s with %d of %d tasks done", j.Name, j.State, j.Done, j.Tasks))
		}
	}
	if len(out.Jobs) == 0 {
		words = append(words, "no jobs ran")
	}
	return words
}

// eventNames are the events that every run has, in their order.
func eventNames() []string {
	return []string{eventCut, eventKilled, eventLeader, eventDown, eventBack, eventRaised}
}

// writeJSON writes summary.json.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("demo: summary.json: %w", err)
	}
	return nil
}

// print is the verdict for people.
func (out summary) print(w io.Writer, s *story, dir string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	shown := func(v *float64) string {
		return cli.Opt(v, func(v float64) string { return fmt.Sprintf("%.2f s", v) })
	}
	line("")
	line("over budget   reserved %.3f s, held %.3f s, measured %.3f s (tolerance %.0f %%)",
		out.OverBudget.Reserved, out.OverBudget.Held, out.OverBudget.Measured, 100*measuredTolerance)
	line("cut           %d nodes read back their lower cap, p50 %s, p99 %s after the commit",
		len(s.settle), shown(out.Settle.P50), shown(out.Settle.P99))
	line("failover      %s from the leader's kill to the first lease from the next leader", shown(out.Failover))
	line("powerd        %s from its start to a verified cap", shown(out.Readopt))
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
	if !s.both && slices.ContainsFunc(out.Events, func(e eventSummary) bool { return e.What == eventRaised }) {
		line("note          tasks of only one class were running when the budget was raised")
	}
	line("files         %s/power.csv, power.svg, summary.json; logs in %s/logs and %s/nodes/*", dir, dir, dir)
}
