package live

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"headroom/internal/cli"
	"headroom/lab/chart"
	"headroom/lab/papers"
)

// Tolerances: how far a measured quantile may lie from the simulation's mean, as the paper has it.
const (
	shortWithin, longWithin = 0.15, 0.05
	// deviations is how many standard deviations of the simulation's seeds a 99th percentile may lie away.
	deviations = 3
)

// Report is the result of all replays.
type Report struct {
	Replays []Replay `json:"replays"`
}

// Replay is one trace on one real system.
type Replay struct {
	Policy string `json:"policy"`
	Load   int    `json:"load_percent"`
	Jobs   int    `json:"jobs"`
	Tasks  int    `json:"tasks"`
	// Ended is the number of jobs that ended before the replay was over.
	Ended int `json:"ended"`
	// LateMax is by how much a job was submitted later than the trace says, at most.
	LateMax float64 `json:"late_max_s"`
	// Scale is the factor of all times of the trace.
	Scale float64 `json:"scale"`
	// LoadAverage are the machine's load averages over a minute, before and after.
	LoadAverage [2]*float64 `json:"load_average"`
	Cells       []Compared  `json:"cells"`
}

// Compared is a quantile as it was measured and as the simulation has it.
type Compared struct {
	Class    string  `json:"class"`
	Quantile float64 `json:"quantile"`
	// Measured and Simulated are in s; absent where they are not known. SD is the standard deviation over the Seeds.
	Measured  *float64 `json:"measured_s"`
	Simulated *float64 `json:"simulated_s"`
	SD        *float64 `json:"simulated_sd_s"`
	Seeds     int      `json:"seeds"`
	// Off is by which part of the simulated value the measured one is longer.
	Off *float64 `json:"off"`
	// Within is its tolerance.
	Within  string         `json:"within"`
	Verdict papers.Verdict `json:"verdict"`
}

// compare judges what was measured. Without a whole replay nothing is judged.
func compare(measured figures, simulated map[cell]spread, whole bool) (all []Compared) {
	for _, c := range cells() {
		k := Compared{Class: c.class(), Quantile: c.quantile, Within: c.within(), Verdict: papers.NotRun}
		x, got := measured[c]
		s, expected := simulated[c]
		if got {
			k.Measured = &x
		}
		if expected {
			k.Simulated, k.SD, k.Seeds = &s.mean, &s.sd, s.seeds
		}
		if got && expected {
			k.Off = cli.Known(x/s.mean-1, s.mean > 0)
			if whole {
				k.Verdict = c.judge(x, s)
			}
		}
		all = append(all, k)
	}
	return all
}

// judge compares a measured quantile with the simulation's.
func (c cell) judge(x float64, s spread) papers.Verdict {
	most := c.part() * s.mean
	if c.tail() {
		most = deviations * s.sd
	}
	if math.Abs(x-s.mean) <= most {
		return papers.Met
	}
	return papers.Short
}

// tail reports whether the quantile is judged by the spread of the seeds.
func (c cell) tail() bool { return c.quantile > 0.95 }

// part is which part of the simulated value the measured one may be off.
func (c cell) part() float64 {
	if c.long {
		return longWithin
	}
	return shortWithin
}

func (c cell) within() string {
	if c.tail() {
		return fmt.Sprintf("%d sd", deviations)
	}
	return fmt.Sprintf("%.0f %%", 100*c.part())
}

func (c cell) class() string {
	if c.long {
		return "long"
	}
	return "short"
}

// Targets are the report's quantiles in the form of all studies of papers. The paper has no number of its own for them but
// how far experiment and simulation may differ.
func (r *Report) Targets() (all []papers.Target) {
	for i := range r.Replays {
		p := &r.Replays[i]
		for _, c := range p.Cells {
			all = append(all, papers.Target{
				ID:   fmt.Sprintf("real/%s/%d/%s-p%.0f", p.Policy, p.Load, c.Class, 100*c.Quantile),
				What: fmt.Sprintf("%s at %d %% load: completion of %s jobs, p%.0f, on real programs", p.Policy, p.Load, c.Class, 100*c.Quantile),
				Unit: "s", Got: c.Measured, Verdict: c.Verdict, Note: p.note(&c),
			})
		}
	}
	return all
}

// note describes how a quantile was judged.
func (p *Replay) note(c *Compared) string {
	switch {
	case p.Ended < p.Jobs:
		return fmt.Sprintf("broken off: %d of %d jobs ended", p.Ended, p.Jobs)
	case c.Simulated == nil:
		return "no job of this class in the trace"
	}
	return fmt.Sprintf("simulated %.3f s with a standard deviation of %.3f s over %d seeds; off by %s, %s allowed", *c.Simulated, *c.SD, c.Seeds, c.off(), c.Within)
}

func (c *Compared) off() string {
	return cli.Opt(c.Off, func(x float64) string { return fmt.Sprintf("%+.1f %%", 100*x) })
}

func (r *Report) rows() (rows [][]string) {
	for i := range r.Replays {
		p := &r.Replays[i]
		for _, c := range p.Cells {
			simulated := cli.Opt(c.Simulated, seen)
			if c.SD != nil {
				simulated += " ± " + seen(*c.SD)
			}
			rows = append(rows, []string{
				p.Policy, strconv.Itoa(p.Load) + " %", c.Class, fmt.Sprintf("p%.0f", 100*c.Quantile), cli.Opt(c.Measured, seen), simulated, c.off(), c.Within, string(c.Verdict),
			})
		}
	}
	return rows
}

func seen(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) + " s" }

// files are the report's own.
func (r *Report) files() papers.Files {
	f := papers.Files{
		"real.json": func(w io.Writer) error { return new(cli.Output).JSON(w, r) },
		"real.md": func(w io.Writer) error {
			head := []string{"policy", "load", "jobs", "quantile", "measured", "simulated", "off", "within", "verdict"}
			return papers.WriteMarkdown(w, append([][]string{head}, r.rows()...))
		},
	}
	if len(r.Replays) > 0 {
		f["real.svg"] = r.draw
	}
	return f
}

// draw draws measured beside simulated quantiles, a row of panels for each policy, in the manner of Fig. 4.11: in seconds,
// since not every policy may have been run.
func (r *Report) draw(w io.Writer) error {
	var panels [][]*chart.Plot
	for _, policy := range Policies() {
		if !slices.ContainsFunc(r.Replays, func(p Replay) bool { return p.Policy == policy }) {
			continue
		}
		var row []*chart.Plot
		for _, long := range []bool{false, true} {
			p, err := r.panel(policy, cell{long: long}.class())
			if err != nil {
				return err
			}
			row = append(row, p)
		}
		panels = append(panels, row)
	}
	return chart.SavePanels(panels, w)
}

func (r *Report) panel(policy, class string) (*chart.Plot, error) {
	var names []string
	var measured, simulated []float64
	for i := range r.Replays {
		p := &r.Replays[i]
		for _, c := range p.Cells {
			if p.Policy != policy || c.Class != class || c.Measured == nil || c.Simulated == nil {
				continue
			}
			names = append(names, fmt.Sprintf("%d/%.0f", p.Load, 100*c.Quantile))
			measured, simulated = append(measured, *c.Measured), append(simulated, *c.Simulated)
		}
	}
	p := chart.New(policy+", "+class+" jobs", "load in % / quantile in %", "completion time in s")
	if len(names) == 0 {
		return p, nil
	}
	for i, values := range [][]float64{measured, simulated} {
		if err := p.Bars([]string{"measured", "simulated"}[i], values, i, 2); err != nil {
			return nil, err
		}
	}
	p.NominalX(names...)
	p.Y.Min, p.Y.Max = 0, 1.3*max(slices.Max(measured), slices.Max(simulated)) // room for the names
	return p, nil
}

// jobsHead are the columns of the file of jobs.
func jobsHead() []string {
	return []string{"job", "arrival_s", "tasks", "class", "longest_task_s", "late_s", "took_s"}
}

// jobRow is a job's row in it.
func jobRow(l *load, s served) []string {
	j := &l.jobs[s.job]
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }
	return []string{
		strconv.Itoa(s.job + 1), number(j.Arrival), strconv.Itoa(len(j.Times)), cell{long: l.long(s.job)}.class(), number(slices.Max(j.Times)),
		number(s.late.Seconds()), number(s.took.Seconds()),
	}
}
