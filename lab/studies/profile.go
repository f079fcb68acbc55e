package studies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/quality"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

// Bounds of `powerlab profile`.
const (
	maxSeeds  = 1000
	maxRatios = 100
	maxSlots  = 1000

	yarnMapsMost = 1000
)

// profiling are the flags of `powerlab profile`.
type profiling struct {
	ratios   []float64
	seeds    int
	compare  string
	top      int
	scale    bool
	choice   string
	slots    int
	file     string
	svg      string
	output   cli.Output
	jobFile  string
	progress io.Writer

	engine string
	// Of the engine yarn alone.
	input, bin string
	maps       int
}

// NewProfileCommand is `powerlab profile`.
func NewProfileCommand() *cobra.Command {
	var p profiling
	cmd := &cobra.Command{
		Use:   "profile JOBFILE|APPLICATION",
		Short: "Measure a job's result when it runs only part of its map tasks",
		Long: `Measures how accurate a job's result is when only part of its map tasks run. It runs the map tasks of a
scheduler's job file as processes of this machine, runs the reduce task over parts of their outputs, and
compares each result with the exact one. The job's own output folder is not touched.

A result is lines of a key, a tab and a number. If the job has no reduce task, its map outputs are added up.
Comparisons:
  relative  1 - sum |exact - partial| / sum |exact|: the part of the result's magnitude that is right
  topk      the fraction of the greatest keys (--top, otherwise all) that are found
  value     the mean over the keys of 1 - |exact - partial| / |exact|: for few numbers of equal importance

--choice random leaves out different tasks with each seed. --choice first keeps the first tasks, as a job
that is stopped early does. The profile has the mean, the worst and the best run for each part. If fewer
tasks seem better than more, by chance, those points are pooled with a warning.

--engine yarn runs a MapReduce application instead (` + strings.Join(applicationNames(), ", ") + `) on a real
Hadoop of one node, over generated data or the files of --input, with one map per file. Headroom's input
wrapper drops the other maps.`,
		Example: "  powerlab profile words.yaml --out words.json --svg words.svg\n" +
			"  powerlab profile top.yaml --ratios 0.25,0.5,0.75 --seeds 10 --compare topk --top 100 -o json\n" +
			"  powerlab profile words.yaml --scale --choice first\n" +
			"  powerlab profile topn --engine yarn --compare topk --seeds 2",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.jobFile, p.progress = args[0], cmd.ErrOrStderr()
			return p.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Float64SliceVar(&p.ratios, "ratios", []float64{0.1, 0.25, 0.5, 0.75, 0.9}, "fractions of the map tasks to run, above 0 and at most 1")
	f.IntVar(&p.seeds, "seeds", 5, "number of task choices for each ratio")
	f.StringVar(&p.compare, "compare", string(quality.Relative), "comparison of results: relative, topk or value")
	f.IntVar(&p.top, "top", 0, "number of greatest keys that topk compares; 0 for all keys of the exact result")
	f.BoolVar(&p.scale, "scale", false, "scale up a partial result for the tasks left out, as is right for sums")
	f.StringVar(&p.choice, "choice", chooseRandom, "choice of the tasks that run: random or first")
	f.IntVar(&p.slots, "slots", 0, "map tasks at the same time; 0 for the job's slots, at most one per CPU")
	f.StringVar(&p.file, "out", "", "write the profile as JSON to this file")
	f.StringVar(&p.svg, "svg", "", "write a plot of the profile to this SVG file")
	f.StringVar(&p.engine, "engine", engineLocal, "engine that runs the job: local (a job file) or yarn (an application)")
	f.StringVar(&p.input, "input", "", "with --engine yarn: folder of the application's input (default: generated)")
	f.IntVar(&p.maps, "maps", yarnMaps, "with --engine yarn: map tasks over generated data")
	f.StringVar(&p.bin, "bin", "", "with --engine yarn: folder of the hooks' jars (default: next to powerlab)")
	p.output.Flags(cmd)
	return cmd
}

func (p *profiling) run(ctx context.Context, stdout io.Writer) error {
	comparison, err := p.check()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headroom-profile-")
	if err != nil {
		return cli.Failed("check that TMPDIR is writable and has free space", "profile: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	m := measurement{
		comparison: comparison, top: p.top, scale: p.scale, ratios: p.ratios, seeds: p.seeds, choice: p.choice, note: p.note,
	}
	name, end, err := p.start(ctx, dir, &m)
	if err != nil {
		return err
	}
	profile, err := p.measure(ctx, name, &m)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	if err := p.write(profile); err != nil {
		return err
	}
	return p.print(stdout, profile)
}

// start makes what runs the tasks, for m, and the function that ends it.
func (p *profiling) start(ctx context.Context, dir string, m *measurement) (name string, end func() error, err error) {
	if p.engine == engineYARN {
		runs, err := newYARNRuns(ctx, p.jobFile, p.input, p.bin, dir, p.maps, p.note)
		if err != nil {
			return "", nil, err
		}
		m.runner, m.tasks = runs, runs.tasks()
		return p.jobFile, runs.close, nil
	}
	job, err := p.job()
	if err != nil {
		return "", nil, err
	}
	local, err := newProcesses(job, dir, p.slots, p.note)
	if err != nil {
		return "", nil, err
	}
	m.runner, m.tasks = local, local.tasks()
	return job.Name, func() error { return nil }, nil
}

// measure makes the profile.
func (p *profiling) measure(ctx context.Context, name string, m *measurement) (*quality.Profile, error) {
	points, err := m.points(ctx)
	if err != nil {
		return nil, err
	}
	profile, warnings, err := quality.New(quality.Profile{
		Name: name, Engine: p.engine, Comparison: m.comparison, Scaled: p.scale, Tasks: m.tasks, Points: points,
	})
	if err != nil {
		return nil, cli.Failed("", "profile %s: %w", name, err)
	}
	for _, w := range warnings {
		p.note("warning: %s", w)
	}
	return &profile, nil
}

func (p *profiling) note(format string, args ...any) { cli.Notef(p.progress, format, args...) }

// check refuses what makes no sense before anything runs.
func (p *profiling) check() (quality.Comparison, error) {
	comparison, err := quality.ParseComparison(p.compare)
	switch {
	case err != nil:
		return "", cli.Usage("unknown --compare %q: must be one of %v", p.compare, quality.Comparisons())
	case len(p.ratios) == 0 || len(p.ratios) > maxRatios:
		return "", cli.Usage("--ratios has %d values: must be from 1 to %d", len(p.ratios), maxRatios)
	case p.seeds < 1 || p.seeds > maxSeeds:
		return "", cli.Usage("--seeds %d: must be from 1 to %d", p.seeds, maxSeeds)
	case p.top < 0 || p.top > 0 && comparison != quality.TopK:
		return "", cli.Usage("--top %d with --compare %s: must be at least 0, and is only for topk", p.top, comparison)
	case p.slots < 0 || p.slots > maxSlots:
		return "", cli.Usage("--slots %d: must be from 0 to %d", p.slots, maxSlots)
	case p.engine != engineLocal && p.engine != engineYARN:
		return "", cli.Usage("unknown --engine %q: must be one of %s, %s", p.engine, engineLocal, engineYARN)
	case p.maps < 2 || p.maps > yarnMapsMost:
		return "", cli.Usage("--maps %d: must be from 2 to %d", p.maps, yarnMapsMost)
	case p.choice != chooseRandom && p.choice != chooseFirst:
		return "", cli.Usage("unknown --choice %q: must be %s or %s", p.choice, chooseRandom, chooseFirst)
	}
	for _, r := range p.ratios {
		if !(r > 0 && r <= 1) {
			return "", cli.Usage("--ratios %v: must be above 0 and at most 1", r)
		}
	}
	for _, x := range [][2]string{{"--out", p.file}, {"--svg", p.svg}} {
		folder := filepath.Dir(x[1])
		if info, err := os.Stat(folder); x[1] != "" && (err != nil || !info.IsDir()) {
			return "", cli.Usage("%s %s: folder %s does not exist", x[0], x[1], folder)
		}
	}
	return comparison, nil
}

// job reads the job file as the scheduler does.
func (p *profiling) job() (*jobfile.File, error) {
	name, err := filepath.Abs(p.jobFile)
	if err != nil {
		return nil, cli.Usage("%s: %w", p.jobFile, err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, cli.Usage("job file: %w", err)
	}
	job, err := jobfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	if p.slots == 0 {
		p.slots = min(job.Slots, runtime.NumCPU())
	}
	return job, nil
}

// write puts the profile and its picture under their names, each whole or not at all.
func (p *profiling) write(profile *quality.Profile) error {
	data, err := profile.Encode()
	if err != nil {
		return cli.Failed("", "profile: %w", err)
	}
	picture, err := drawProfile(profile)
	if err != nil {
		return cli.Failed("", "profile: %w", err)
	}
	for _, x := range []struct {
		file string
		data []byte
	}{{p.file, data}, {p.svg, picture}} {
		if x.file == "" {
			continue
		}
		if err := renameio.WriteFile(x.file, x.data, 0o644); err != nil {
			return cli.Failed("check that the folder is writable and has free space", "profile: write %s: %w", x.file, err)
		}
		p.note("wrote %s", x.file)
	}
	return nil
}

// print is the profile as JSON or as a table, with what some accuracies need.
func (p *profiling) print(w io.Writer, profile *quality.Profile) error {
	if p.output.IsJSON() {
		return p.output.JSON(w, profile)
	}
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	var rows [][]string
	for _, x := range profile.Points {
		rows = append(rows, []string{
			strconv.FormatFloat(x.Fraction, 'f', 4, 64), strconv.Itoa(units.Ratio(x.Fraction).Kept(profile.Tasks)),
			percent(x.Accuracy), percent(x.Low), percent(x.High), strconv.Itoa(x.Runs),
		})
	}
	if err := p.output.Table(w, []string{"FRACTION", "TASKS", "ACCURACY", "WORST", "BEST", "RUNS"}, rows); err != nil {
		return err
	}
	var needs []string
	for _, accuracy := range []float64{0.8, 0.85, 0.9, 0.95} {
		if f, ok := profile.Fraction(accuracy); ok {
			needs = append(needs, fmt.Sprintf("%.0f %% needs %.3f", 100*accuracy, f))
		}
	}
	p.note("tasks needed for an accuracy in the worst run: %s", strings.Join(needs, ", "))
	return nil
}

// sortedRatios are the parts to try, each once, in rising order.
func sortedRatios(ratios []float64) []float64 {
	out := slices.Clone(ratios)
	slices.Sort(out)
	return slices.Compact(out)
}
