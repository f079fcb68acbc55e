package studies

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// mixedFigure is one figure of a variant: its mean over the seeds, with the bounds that it lies
// within in 95 of 100 sets of seeds.
type mixedFigure struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`

	each []float64
}

// mixedAnswer is what `powerlab arbitrate` found.
type mixedAnswer struct {
	Seed     uint64         `json:"seed"`
	Seeds    int            `json:"seeds"`
	Variants []mixedResult  `json:"variants"`
	Judged   []mixedVerdict `json:"judged"`
}

// mixedResult is one variant with its figures by name.
type mixedResult struct {
	Name    string                 `json:"name"`
	Says    string                 `json:"says"`
	Figures map[string]mixedFigure `json:"figures"`
}

// mixedVerdict holds the joined arbiter against the better of CAB alone and DIAS alone.
type mixedVerdict struct {
	Figure string `json:"figure"`
	// Better names which of the two is better in it.
	Better string `json:"better"`
	// Behind is by how much the joined one is worse than that, run by run; below 0: better.
	Behind mixedFigure `json:"behind"`
	// Met: it is at least as good, as far as the seeds tell.
	Met  bool   `json:"met"`
	Note string `json:"note"`
}

// mixedJudged is a figure that is judged: whether more is better, and why the joined arbiter
// may fall behind in it.
type mixedJudged struct {
	name string
	more bool
	why  string
}

func mixedJudgement() []mixedJudged {
	trade := "it gives up a task only when a goal needs it, fewer than the class's fixed ratio; both-theta begins with that ratio and is ahead here, at a lower quality"
	return []mixedJudged{
		{"urgent_mean_s", false, ""},
		{"urgent_p95_s", false, ""},
		{"urgent_missed", false, ""},
		{"tolerant_mean_s", false, trade},
		{"tolerant_p95_s", false, trade},
		{"tolerant_quality", true, "CAB alone gives up fewer tasks and ends its jobs far later: it stops a job only behind its uncapped finish time, and nothing there knows deadlines"},
		{"energy_j", false, "more tasks are computed than under a fixed ratio; both-theta is ahead here, at a lower quality"},
	}
}

// mixedShown are the figures that are shown and not judged: CAB alone never sprints.
func mixedShown() []string { return []string{"energy_per_task_j", "sprint_j", "sprints", "rises"} }

// seedsMost bounds the runs of one call.
const seedsMost = 1000

// NewArbitrateCommand is `powerlab arbitrate`.
func NewArbitrateCommand() *cobra.Command {
	var out cli.Output
	seeds, seed := 40, uint64(1)
	cmd := &cobra.Command{
		Use:   "arbitrate",
		Short: "Measure the arbiter on a mixed load against CAB alone and DIAS alone",
		Long: "Runs the same jobs under each way to decide, on a simulated server of 28 containers: urgent jobs with deadlines come once a minute,\n" +
			"tolerant Hadoop-like ones every 280 s, for an hour; from minute 20 to 35 the server's cap is cut from 250 W to 175 W. The decisions\n" +
			"are those of the coordinators' job loop. For each way: latencies by class, missed deadlines, quality (tasks computed of all), joules\n" +
			"of sprints and energy, with bounds for 95 of 100 sets of seeds. The arbiter is then held, seed by seed, against the better of CAB\n" +
			"alone and DIAS alone. Exit code 8: it falls behind in some figure; the note says why.",
		Example: "  powerlab arbitrate\n  powerlab arbitrate --seeds 100 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seeds < 2 || seeds > seedsMost {
				return cli.Usage("--seeds is %d; give 2 to %d: bounds need more than one", seeds, seedsMost)
			}
			a := measureMixed(seed, seeds)
			if err := a.print(cmd.OutOrStdout(), &out); err != nil {
				return err
			}
			return a.verdict()
		},
	}
	cmd.Flags().IntVar(&seeds, "seeds", seeds, "how many loads are drawn")
	cmd.Flags().Uint64Var(&seed, "seed", seed, "seed of the first load")
	out.Flags(cmd)
	return cmd
}

// measureMixed runs all variants on the same loads.
func measureMixed(seed uint64, seeds int) *mixedAnswer {
	a := &mixedAnswer{Seed: seed, Seeds: seeds}
	for _, v := range mixedVariants() {
		sums := map[string][]float64{}
		for i := range seeds {
			r := &mixedRun{mixedVariant: v, jobs: drawMixed(seed + uint64(i)), balance: mixedJoules.Joules()}
			r.run()
			for name, x := range r.figures() {
				sums[name] = append(sums[name], x)
			}
		}
		res := mixedResult{Name: v.name, Says: v.says, Figures: map[string]mixedFigure{}}
		for name, each := range sums {
			res.Figures[name] = figureOf(each)
		}
		a.Variants = append(a.Variants, res)
	}
	a.judge()
	return a
}

// figures are what came of a run.
func (r *mixedRun) figures() map[string]float64 {
	out := map[string]float64{"sprint_j": r.spent, "energy_j": r.energy, "sprints": float64(r.sprints), "rises": float64(r.rises)}
	tasks := 0
	for _, c := range mixedClasses() {
		var took []float64
		missed, done, all := 0, 0, 0
		for _, j := range r.jobs {
			if j.class.name != c.name {
				continue
			}
			latency := j.end - j.comes
			took = append(took, latency.Seconds())
			done, all = done+j.Done, all+len(j.Times)
			if c.deadline > 0 && latency > c.deadline {
				missed++
			}
		}
		if len(took) == 0 {
			continue // an hour without one of its jobs: nothing is known of the class
		}
		slices.Sort(took)
		tasks += done
		out[c.name+"_mean_s"], out[c.name+"_p95_s"] = meanOf(took), took[min(len(took)-1, int(math.Ceil(0.95*float64(len(took))))-1)]
		if c.deadline > 0 {
			out[c.name+"_missed"] = float64(missed) / float64(len(took))
		}
		if c.floor < 1 {
			out[c.name+"_quality"] = float64(done) / float64(all)
		}
	}
	if tasks > 0 {
		out["energy_per_task_j"] = r.energy / float64(tasks)
	}
	return out
}

func meanOf(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}

// figureOf is the mean of independent runs, with its bounds by Student's t for many runs.
func figureOf(each []float64) mixedFigure {
	mean, square := meanOf(each), 0.0
	for _, x := range each {
		square += (x - mean) * (x - mean)
	}
	half := 0.0
	if n := float64(len(each)); n > 1 {
		half = studentT(len(each)-1) * math.Sqrt(square/(n-1)/n)
	}
	return mixedFigure{mean, mean - half, mean + half, each}
}

// studentT is the 97.5 % quantile of Student's t, by its expansion around the normal one:
// within 1 % from 4 degrees of freedom on, too wide below.
func studentT(freedom int) float64 {
	const z = 1.959964
	n := float64(freedom)
	t := z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
	if freedom < 4 {
		return t + 10/(n*n)
	}
	return t
}

// judge holds the arbiter against the better of the other two, seed by seed.
func (a *mixedAnswer) judge() {
	by := map[string]mixedResult{}
	for _, v := range a.Variants {
		by[v.Name] = v
	}
	for _, g := range mixedJudgement() {
		sign := 1.0
		if g.more {
			sign = -1
		}
		better := "cab"
		if sign*by["dias"].Figures[g.name].Mean < sign*by["cab"].Figures[g.name].Mean {
			better = "dias"
		}
		joined, other := by["both"].Figures[g.name].each, by[better].Figures[g.name].each
		behind := make([]float64, min(len(joined), len(other)))
		for i := range behind {
			behind[i] = sign * (joined[i] - other[i])
		}
		v := mixedVerdict{Figure: g.name, Better: better, Behind: figureOf(behind)}
		v.Met = v.Behind.Low <= 0
		switch {
		case v.Behind.High < 0:
			v.Note = "ahead of both"
		case v.Met:
			v.Note = "no difference that the seeds show"
		default:
			v.Note = cmp.Or(g.why, "not explained")
		}
		a.Judged = append(a.Judged, v)
	}
}

// verdict is the error of an arbiter that falls behind somewhere.
func (a *mixedAnswer) verdict() error {
	var short []string
	for _, v := range a.Judged {
		if !v.Met {
			short = append(short, v.Figure)
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: fmt.Sprintf("the arbiter falls behind the better of CAB alone and DIAS alone in %d of %d figures: %s", len(short), len(a.Judged), strings.Join(short, ", ")),
		Hint: "the notes say why; docs/arbiter.md has the reasons",
	}
}

// print is the answer as JSON or as two tables.
func (a *mixedAnswer) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	head := []string{"FIGURE"}
	for _, v := range a.Variants {
		head = append(head, strings.ToUpper(v.Name))
	}
	var rows [][]string
	names := mixedShown()
	for i, g := range mixedJudgement() {
		names = slices.Insert(names, i, g.name)
	}
	for _, name := range names {
		row := []string{name}
		for _, v := range a.Variants {
			row = append(row, v.Figures[name].String())
		}
		rows = append(rows, row)
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	rows = nil
	for _, v := range a.Judged {
		met := "met"
		if !v.Met {
			met = "SHORT"
		}
		rows = append(rows, []string{v.Figure, v.Better, v.Behind.String(), met, v.Note})
	}
	if _, err := fmt.Fprintf(w, "\n%d loads from seed %d; both against the better of cab and dias (behind: how much worse, below 0 better):\n", a.Seeds, a.Seed); err != nil {
		return err
	}
	return out.Table(w, []string{"FIGURE", "BETTER", "BEHIND", "VERDICT", "NOTE"}, rows)
}

// String is the mean with half the width of its bounds.
func (f mixedFigure) String() string {
	digits := 0
	switch size := max(math.Abs(f.Mean), math.Abs(f.High-f.Low)); {
	case size < 10:
		digits = 3
	case size < 1000:
		digits = 1
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, f.Mean, digits, (f.High-f.Low)/2)
}
