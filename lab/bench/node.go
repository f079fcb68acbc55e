package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// nodeReport is the output of `powerlab bench node -o json`.
type nodeReport struct {
	Kind  string `json:"kind"`
	API   string `json:"api"`
	Seed  uint64 `json:"seed"`
	Steps int    `json:"steps"`
	// Judge describes what the figures mean.
	Judge string       `json:"judge"`
	Laws  []lawFigures `json:"laws"`
}

// lawFigures are the figures of one law. Ratios are to the cap.
type lawFigures struct {
	Law  string `json:"law"`
	What string `json:"what"`
	// SettleS is until wall power stays within 2 % of the cap for 2 s; nil where
	// that share of the steps never did.
	SettleS quantiles `json:"settle_s"`
	// Never counts the steps that never settled.
	Never int `json:"never_settled"`
	// Overshoot is the highest 50 ms mean above the cap after the band was first entered, and the
	// longest time 1 % or more above the cap; nil where no step entered the band.
	Overshoot struct {
		Max      *float64 `json:"max"`
		LongestS *float64 `json:"longest_s"`
	} `json:"overshoot"`
	// SteadyError is the mean from 4 s after the step: signed in the mean of all
	// steps, absolute at the 99th percentile.
	SteadyError struct {
		Mean *float64 `json:"mean"`
		P99  *float64 `json:"p99"`
	} `json:"steady_error"`
}

const nodeJudge = "wall power of the plant as 50 ms means against the cap, or the load's power without a cap where that is less; " +
	"settled: within 2 % of the cap for 2 s; overshoot: from the first mean within the band; steady: from 4 s to 12 s after the step"

func newNodeCommand() *cobra.Command {
	var out cli.Output
	var seed uint64
	var steps int
	var plot string
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Compare the node's control law with others",
		Long: `Runs Headroom's control law and four others on the emulated plant in virtual time, all with the same
random cap steps and loads, and compares wall power averaged over 50 ms.

A law that never settles is a result, not a failure.`,
		Example: "  powerlab bench node\n  powerlab bench node --steps 50 --plot laws.svg -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if steps < 1 || steps > 5000 {
				return cli.Usage("--steps %d: must be from 1 to 5000", steps)
			}
			report := nodeReport{Kind: "BenchNode", API: "v1", Seed: seed, Steps: steps, Judge: nodeJudge}
			var curves []curve
			for _, l := range nodeLaws() {
				all, first, err := l.try(cmd.Context(), stage(seed, steps, false))
				if err != nil {
					return err
				}
				cli.Notef(cmd.ErrOrStderr(), "%s: done", l.name)
				report.Laws, curves = append(report.Laws, l.figures(all)), append(curves, first)
			}
			if plot != "" {
				if err := drawCurves(plot, curves); err != nil {
					return err
				}
			}
			return report.print(cmd.OutOrStdout(), &out)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 1, "seed of steps and loads; the same seed gives the same results")
	f.IntVar(&steps, "steps", 200, "number of cap steps for each law")
	f.StringVar(&plot, "plot", "", "write a plot of the first steps under every law to this SVG file")
	out.Flags(cmd)
	return cmd
}

// try runs every scene under the law. It returns the curve of the first scene too.
func (l newLaw) try(ctx context.Context, scenes []scene) (all []verdict, first curve, err error) {
	first.law = l.name
	for i, s := range scenes {
		if err := ctx.Err(); err != nil {
			return nil, first, err
		}
		b, err := newBed(s)
		if err != nil {
			return nil, first, err
		}
		var c *curve
		if i == 0 {
			c = &first
		}
		all = append(all, b.play(l.make(b), s, c)...)
	}
	return all, first, nil
}

// play runs one scene, and extends the curve if there is one.
func (b *bed) play(law nodeLaw, s scene, c *curve) (all []verdict) {
	const warmUp = 20 * time.Second
	changed := true
	turn := func() { law.turn(b, changed); changed = false }
	b.begin(loadFull)
	for b.now < warmUp {
		b.step(turn)
	}
	for _, step := range s.steps {
		b.begin(step.load)
		for end := b.now + step.wait; b.now < end; { // any phase of the loop
			b.tick(turn)
		}
		b.cap, changed = step.cap, true
		var points []point
		for end := b.now + stepWatched; b.now < end; {
			points = append(points, b.step(turn))
		}
		if c != nil {
			c.points, c.caps = append(c.points, points...), append(c.caps, slices.Repeat([]float64{step.cap.Watts()}, len(points))...)
		}
		all = append(all, judge(points, step.cap.Watts()))
	}
	return all
}

// column is one value of every verdict, times a factor.
func column(all []verdict, factor float64, of func(verdict) float64) (out []float64) {
	for _, v := range all {
		out = append(out, factor*of(v))
	}
	return out
}

func settles(v verdict) float64 { return v.settle }
func overs(v verdict) float64   { return v.over }
func longests(v verdict) float64 {
	return v.longest
}
func steadies(v verdict) float64 { return v.steady }

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// figures summarizes the steps of one law.
func (l newLaw) figures(all []verdict) lawFigures {
	f := lawFigures{Law: l.name, What: l.what, SettleS: quantilesOf(column(all, 1, settles))}
	for _, v := range all {
		if math.IsInf(v.settle, 1) {
			f.Never++
		}
	}
	f.SteadyError.Mean = finite(mean(column(all, 1, steadies)))
	f.SteadyError.P99 = finite(quantile(column(all, 1, func(v verdict) float64 { return math.Abs(v.steady) }), 0.99))
	if entered := slices.DeleteFunc(slices.Clone(all), func(v verdict) bool { return !v.entered }); len(entered) > 0 {
		f.Overshoot.Max, f.Overshoot.LongestS = finite(quantile(column(entered, 1, overs), 1)), finite(quantile(column(entered, 1, longests), 1))
	}
	return f
}

// print writes the table.
func (r *nodeReport) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	percent := func(v *float64) string {
		return cli.Opt(v, func(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) })
	}
	var rows [][]string
	for _, l := range r.Laws {
		rows = append(rows, []string{
			l.Law, shown(l.SettleS.P50, "s"), shown(l.SettleS.P99, "s"), fmt.Sprintf("%d of %d", l.Never, r.Steps),
			percent(l.Overshoot.Max), shown(l.Overshoot.LongestS, "s"), percent(l.SteadyError.Mean), percent(l.SteadyError.P99), l.What,
		})
	}
	if err := out.Table(w, []string{"LAW", "SETTLE P50", "SETTLE P99", "NEVER", "OVERSHOOT", "LONGEST", "STEADY MEAN", "STEADY P99", "WHAT"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\njudged: %s\n", r.Judge)
	return err
}

// benchSeed is the seed of the steps in `powerlab bench`.
const benchSeed = 1

// capStep measures steps of the cap on one busy socket. The peer gets the gain that serves it best.
func capStep(ctx context.Context, r *run) error {
	scenes := stage(benchSeed, pick(r, 400, 40), true)
	ours, _, err := headroomLaw().try(ctx, scenes)
	if err != nil {
		return err
	}
	var peer []verdict
	best := 0.0
	gains := []float64{0.3, 0.5, 0.7, 0.9, 1.1}
	for _, g := range gains {
		all, _, err := fastIntegral(g).try(ctx, scenes)
		if err != nil {
			return err
		}
		if best == 0 || quantile(column(all, 1, settles), 0.99) < quantile(column(peer, 1, settles), 0.99) {
			peer, best = all, g
		}
	}
	r.put("cap-step", column(ours, 1, settles), column(peer, 1, settles), "%d random steps, virtual time; peer: plain integrator, best of %d gains (%.1f)", len(ours), len(gains), best)
	r.put("cap-step-over", column(ours, 100, overs), column(peer, 100, overs), "50 ms means")
	r.put("cap-step-over-time", column(ours, 1, longests), column(peer, 1, longests), "50 ms means")
	steady, theirs := column(ours, 100, steadies), column(peer, 100, steadies)
	r.put("cap-step-mean", one(mean(steady)), one(mean(theirs)), "single steps from %.2f to %.2f %%; peer from %.2f to %.2f %%", slices.Min(steady), slices.Max(steady), slices.Min(theirs), slices.Max(theirs))
	return nil
}

// wallStep measures steps of the cap under all loads, with a BMC. The peer is the integral from its readings.
func wallStep(ctx context.Context, r *run) error {
	scenes := stage(benchSeed, pick(r, 200, 20), false)
	var settled [2][]float64
	for i, l := range []newLaw{headroomLaw(), nodeLaws()[3]} {
		all, _, err := l.try(ctx, scenes)
		if err != nil {
			return err
		}
		settled[i] = column(all, 1, settles)
	}
	never := len(slices.DeleteFunc(slices.Clone(settled[1]), func(s float64) bool { return !math.IsInf(s, 1) }))
	r.put("wall-step", settled[0], settled[1], "%d random steps, virtual time; peer: plain integral from wall power to RAPL, p50 %.2f s, %d steps never settled", len(settled[0]), quantile(settled[1], 0.5), never)
	return nil
}

// writeFile writes a file for people to read.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
