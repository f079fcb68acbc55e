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

// summary is summary.json. Times are seconds; a figure that is not known is null.
type summary struct {
	OverBudget overBudget `json:"over_budget_s"`
	// Settle is, over the nodes that the cut lowered, from its commit to the read-back.
	Settle settle `json:"settle_s"`
	// Failover is from the kill of the leader to the first lease seen from the next one.
	Failover *float64 `json:"failover_s"`
	// Readopt is from the start of the next powerd to its first verified cap.
	Readopt *float64 `json:"readopt_s"`
	// Breaker is null when nothing was measured.
	Breaker *breakerSummary `json:"breaker"`
	Nodes   int             `json:"nodes"`
	Jobs    []jobSummary    `json:"jobs"`
	Events  []eventSummary  `json:"events"`
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

// jobSummary is one job. EnergyJ is its share of the energy at the wall of the
// nodes that ran its tasks: at every look a node's energy is shared between the
// jobs by the number of their tasks that ran there.
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
	v := judge(b.samples, b.cuts)
	out := summary{
		OverBudget: overBudget{seconds(v.reserved), seconds(v.held), seconds(v.measured)},
		Failover:   rounded(s.failover), Readopt: rounded(s.readopt), Nodes: nodes,
		Breaker: breakerOf(b.samples),
		Jobs:    []jobSummary{}, Events: []eventSummary{},
	}
	if len(s.settle) > 0 {
		p50, p99 := quantile(s.settle, 0.50), quantile(s.settle, 0.99)
		out.Settle = settle{rounded(&p50), rounded(&p99)}
	}
	for _, j := range b.jobs {
		p := j.GetProgress()
		out.Jobs = append(out.Jobs, jobSummary{
			Name: j.GetName(), Class: j.GetClass(), State: stateWord(j.GetState()), Tasks: p.GetTasks(), Done: p.GetDone(),
			RuntimeS: rounded(p.RuntimeS), EnergyJ: *rounded(cli.Known(b.energy[j.GetId()], true)),
		})
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

// seconds has milliseconds: more would be more than was looked for.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

func rounded(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return cli.Known(math.Round(*v*1000)/1000, true)
}

// stateWord is a job's state in one word.
func stateWord(s headroomv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// brokenSums are the promises about power that a run broke, in words.
func brokenSums(above overBudget, breaker *breakerSummary) []string {
	var words []string
	over := func(what string, s float64, limit string) {
		if s > 0 {
			words = append(words, fmt.Sprintf("%s was above the budget for %.3f s%s", what, s, limit))
		}
	}
	over("reserved", above.Reserved, "")
	over("held", above.Held, "")
	over("measured", above.Measured, fmt.Sprintf(" by more than %.0f %%", 100*measuredTolerance))
	if breaker != nil && breaker.Tripped {
		words = append(words, "a breaker rated for the budget would have tripped")
	}
	return words
}

// broken are the promises that the run broke, in words; none is the aim.
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

// write is summary.json.
func (out summary) write(path string) error {
	data, err := json.MarshalIndent(out, "", "  ")
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
		line("jobs %-8s %s", class, out.classLine(class))
	}
	if !s.both && slices.ContainsFunc(out.Events, func(e eventSummary) bool { return e.What == eventRaised }) {
		line("note          tasks of only one class were running when the budget was raised")
	}
	line("files         %s/power.csv, power.svg, summary.json; logs in %s/logs and %s/nodes/*", dir, dir, dir)
}

func (out summary) classLine(class string) string {
	jobs, done, tasks, tasksDone, energy := 0, 0, uint32(0), uint32(0), 0.0
	for _, j := range out.Jobs {
		if j.Class != class {
			continue
		}
		jobs, tasks, tasksDone, energy = jobs+1, tasks+j.Tasks, tasksDone+j.Done, energy+j.EnergyJ
		if j.State == "done" {
			done++
		}
	}
	return fmt.Sprintf("%d of %d done, %d of %d tasks, %.2f kJ", done, jobs, tasksDone, tasks, energy/1000)
}
