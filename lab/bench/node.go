package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// nodeOptions are the flags of `powerlab bench node`.
type nodeOptions struct {
	seed     uint64
	steps    int
	plot     string
	soak     bool
	lawsOnly bool
	bin      string
}

// stepsMost bounds a run: about a second for each law and 100 steps.
const stepsMost = 5000

// nodeReport is what `powerlab bench node -o json` prints.
type nodeReport struct {
	Kind  string `json:"kind"`
	API   string `json:"api"`
	Seed  uint64 `json:"seed"`
	Steps int    `json:"steps"`
	// Judge describes what the figures mean.
	Judge string `json:"judge"`
	// Laws, Headroom's first.
	Laws []lawFigures `json:"laws"`
	// Items are the cost of the agent and of a sample; empty with --laws-only.
	Items []Item `json:"items"`
	// Soak is the long run; nil without --soak.
	Soak *soak `json:"soak"`
}

// lawFigures are the figures of one law. Ratios are to the cap.
type lawFigures struct {
	Law  string `json:"law"`
	What string `json:"what"`
	// SettleS is until wall power stays within 2 % of the cap for 2 s; nil where
	// that share of the steps never did.
	SettleS Settle `json:"settle_s"`
	// Never counts the steps that never settled.
	Never int `json:"never_settled"`
	// Overshoot above the cap once the band had been entered; nil where no step entered it.
	Overshoot Overshoot `json:"overshoot"`
	// SteadyError is the mean from 4 s after the step: signed in the mean of all
	// steps, absolute at the 99th percentile.
	SteadyError SteadyError `json:"steady_error"`
}

// Settle is in seconds.
type Settle struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

// Overshoot is the highest 50 ms mean, and the longest time 1 % or more above the cap.
type Overshoot struct {
	Max      *float64 `json:"max"`
	LongestS *float64 `json:"longest_s"`
}

// SteadyError is a ratio to the cap.
type SteadyError struct {
	Mean *float64 `json:"mean"`
	P99  *float64 `json:"p99"`
}

func newNodeCommand() *cobra.Command {
	var o nodeOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Benchmark the node's control law against others, and the cost of powerd",
		Long: `Runs Headroom's control law and four others on the emulated plant in virtual time, all with the same
random cap steps and loads, and compares wall power averaged over 50 ms. Then it measures powerd's
CPU, memory and start time, and the cost of one sample compared with bare reads and with
prometheus/procfs.

A law that never settles is a result, not a failure. The exit code is 8 if a cost could not be measured.`,
		Example: "  powerlab bench node\n  powerlab bench node --laws-only --plot laws.svg\n  powerlab bench node --soak -o json > node.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.steps < 1 || o.steps > stepsMost {
				return cli.Usage("--steps %d: must be from 1 to %d", o.steps, stepsMost)
			}
			report, err := o.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := report.print(cmd.OutOrStdout(), &out); err != nil {
				return err
			}
			return (&Report{Items: report.Items}).verdict()
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "seed of steps and loads; the same seed gives the same results")
	f.IntVar(&o.steps, "steps", 200, "number of cap steps for each law")
	f.StringVar(&o.plot, "plot", "", "write a plot of the first steps under every law to this SVG file")
	f.BoolVar(&o.soak, "soak", false, "also run the law for 24 hours of virtual time and measure its memory")
	f.BoolVar(&o.lawsOnly, "laws-only", false, "only compare the laws; start no processes and measure no costs")
	f.StringVar(&o.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	out.Flags(cmd)
	return cmd
}

// run measures everything that the options ask for.
func (o *nodeOptions) run(ctx context.Context, progress io.Writer) (*nodeReport, error) {
	report := &nodeReport{
		Kind: "BenchNode", API: "v1", Seed: o.seed, Steps: o.steps, Items: []Item{},
		Judge: "wall power of the plant as 50 ms means against the cap, or what the load draws with no cap where that is less; " +
			"settled: within 2 % of the cap for 2 s; overshoot: from the first mean within the band on; steady: from 4 s to 12 s after the step",
	}
	scenes := stage(o.seed, o.steps)
	var curves []curve
	for _, law := range nodeLaws() {
		began := time.Now()
		figures, first, err := tryLaw(ctx, law, scenes)
		if err != nil {
			return nil, err
		}
		cli.Notef(progress, "%s: %d steps in %.1f s", law.name, o.steps, time.Since(began).Seconds())
		report.Laws, curves = append(report.Laws, figures), append(curves, first)
	}
	if o.plot != "" {
		picture, err := drawCurves(curves)
		if err == nil {
			err = os.WriteFile(o.plot, picture, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("bench: plot: %w", err)
		}
	}
	if !o.lawsOnly {
		items, err := o.costs(ctx, progress)
		if err != nil {
			return nil, err
		}
		report.Items = items
	}
	if o.soak {
		soak, err := runSoak(ctx, o.seed, 24*time.Hour)
		if err != nil {
			return nil, err
		}
		report.Soak = soak
	}
	return report, nil
}

// curve is what one law made of the first scene.
type curve struct {
	law    string
	points []float64 // judged means of wall power, W
	caps   []float64 // beside each
}

// tryLaw runs every scene under one law.
func tryLaw(ctx context.Context, law newLaw, scenes []scene) (lawFigures, curve, error) {
	first := curve{law: law.name}
	var all []verdictOf
	for i, s := range scenes {
		if err := ctx.Err(); err != nil {
			return lawFigures{}, first, err
		}
		b, err := newBed(s)
		if err != nil {
			return lawFigures{}, first, err
		}
		var c *curve
		if i == 0 {
			c = &first
		}
		all = append(all, b.play(law.make(b), s, c)...)
	}
	return law.figures(all), first, nil
}

// warmUp is how long a law runs before the first step.
const warmUp = 20 * time.Second

// play runs one scene, and draws the curve where one is wanted.
func (b *bed) play(law nodeLaw, s scene, c *curve) []verdictOf {
	changed := true
	follow := func(d time.Duration, watch func(wall, free float64)) {
		for end := b.now + d; b.now < end; {
			wall, free := b.step(func() { law.turn(b, changed); changed = false })
			if watch != nil {
				watch(wall, free)
			}
		}
	}
	b.begin(loadFull)
	follow(warmUp, nil)
	var all []verdictOf
	for _, step := range s.steps {
		b.begin(step.load)
		for end := b.now + step.wait; b.now < end; { // any phase of the loop
			law.turn(b, false)
			for i, p := range b.plants {
				busy := b.busy(i)
				p.Step(plantStep, busy)
				b.twins[i].Step(plantStep, busy)
			}
			b.now += plantStep
		}
		b.cap, changed = step.cap, true
		var points []point
		follow(stepWatched, func(wall, free float64) {
			points = append(points, point{wall, free})
			if c != nil {
				c.points, c.caps = append(c.points, wall), append(c.caps, step.cap.Watts())
			}
		})
		all = append(all, judge(points, step.cap.Watts()))
	}
	return all
}

// figures sums up the steps of one law.
func (l newLaw) figures(all []verdictOf) lawFigures {
	f := lawFigures{Law: l.name, What: l.what}
	var settle, over, longest, off []float64
	sum := 0.0
	for _, v := range all {
		settle, off, sum = append(settle, v.settle), append(off, math.Abs(v.steady)), sum+v.steady
		if math.IsInf(v.settle, 1) {
			f.Never++
		}
		if v.entered {
			over, longest = append(over, v.over), append(longest, v.longest)
		}
	}
	f.SettleS = Settle{finite(quantile(settle, 0.5)), finite(quantile(settle, 0.99))}
	f.SteadyError = SteadyError{finite(sum / float64(len(all))), finite(quantile(off, 0.99))}
	if len(over) > 0 {
		f.Overshoot = Overshoot{finite(slices.Max(over)), finite(slices.Max(longest))}
	}
	return f
}

// costs measures what powerd costs, with the short forms of the other benchmarks.
func (o *nodeOptions) costs(ctx context.Context, progress io.Writer) ([]Item, error) {
	opts := Options{Quick: true, Bin: o.bin, Progress: progress}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headroom-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: scratch folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	timed, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var items []Item
	for _, b := range append(suite(), benchmark{name: "sample-procfs", what: "one reading of every energy counter", run: sampleProcfs}) {
		if slices.Contains([]string{"agent", "start", "sample", "sample-procfs"}, b.name) {
			items = append(items, b.measure(timed, &run{Options: opts, dir: filepath.Join(dir, b.name)})...)
		}
	}
	return items, ctx.Err()
}

// print writes the tables.
func (r *nodeReport) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	head := []string{"LAW", "SETTLE P50", "SETTLE P99", "NEVER", "OVERSHOOT", "LONGEST", "STEADY MEAN", "STEADY P99", "WHAT"}
	var rows [][]string
	for _, l := range r.Laws {
		rows = append(rows, []string{
			l.Law, shown(l.SettleS.P50, "s"), shown(l.SettleS.P99, "s"), fmt.Sprintf("%d of %d", l.Never, r.Steps),
			percent(l.Overshoot.Max), shown(l.Overshoot.LongestS, "s"), percent(l.SteadyError.Mean), percent(l.SteadyError.P99), l.What,
		})
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	if out.Format == "csv" || out.Format == "name" {
		return nil
	}
	if len(r.Items) > 0 {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := (&Report{Items: r.Items, Machine: thisMachine()}).table(w, out); err != nil {
			return err
		}
	}
	if r.Soak != nil {
		if _, err := fmt.Fprintf(w, "\nsoak: %v\n", r.Soak); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\njudged: %s\n", r.Judge)
	return err
}

// percent is a ratio as a percentage.
func percent(v *float64) string {
	return cli.Opt(v, func(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) })
}
