// Package profiling is `scheduler profile`: it measures how accurate a job's result is when only part
// of its map tasks run.
//
// The one idea: a larger part of the tasks has all tasks of a smaller one, and each map task runs once,
// so that a profile costs little more than one run of the job. The profile is the file that the
// scheduler reads from its folder of profiles.
//
// Guarantees: the job's own output folder is not touched. Files are replaced whole, or left as they were.
package profiling

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/jobs/quality"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

// Bounds of the flags.
const (
	maxSeeds  = 1000
	maxRatios = 100
	maxSlots  = 1000
)

// profiling are the flags of `scheduler profile`.
type profiling struct {
	measurement
	compare string
	slots   int
	file    string
	output  cli.Output
	jobFile string
}

// NewCommand is `scheduler profile`.
func NewCommand() *cobra.Command {
	var p profiling
	cmd := &cobra.Command{
		Use:   "profile JOBFILE",
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
tasks seem better than more, by chance, those points are pooled with a warning.`,
		Example: "  scheduler profile words.yaml --out words.json\n" +
			"  scheduler profile top.yaml --ratios 0.25,0.5,0.75 --seeds 10 --compare topk --top 100 -o json\n" +
			"  scheduler profile words.yaml --scale --choice first",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.jobFile, p.note = args[0], func(format string, args ...any) { cli.Notef(cmd.ErrOrStderr(), format, args...) }
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
	p.output.Flags(cmd)
	return cmd
}

func (p *profiling) run(ctx context.Context, stdout io.Writer) error {
	if err := p.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headroom-profile-")
	if err != nil {
		return cli.Failed("check that TMPDIR is writable and has free space", "profile: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	job, err := p.job()
	if err != nil {
		return err
	}
	runs, err := newProcesses(job, dir, p.slots, p.note)
	if err != nil {
		return err
	}
	p.runner, p.tasks = runs, runs.job.Tasks()
	points, err := p.points(ctx)
	if err != nil {
		return err
	}
	profile, warnings, err := quality.New(quality.Profile{
		Name: job.Name, Engine: "local", Comparison: p.comparison, Scaled: p.scale, Tasks: p.tasks, Points: points,
	})
	if err != nil {
		return cli.Failed("", "profile %s: %w", job.Name, err)
	}
	for _, w := range warnings {
		p.note("warning: %s", w)
	}
	if err := p.write(&profile); err != nil {
		return err
	}
	return p.print(stdout, &profile)
}

// check refuses what makes no sense before anything runs.
func (p *profiling) check() (err error) {
	p.comparison, err = quality.ParseComparison(p.compare)
	switch {
	case err != nil:
		return cli.Usage("unknown --compare %q: must be one of %v", p.compare, quality.Comparisons())
	case len(p.ratios) == 0 || len(p.ratios) > maxRatios:
		return cli.Usage("--ratios has %d values: must be from 1 to %d", len(p.ratios), maxRatios)
	case p.seeds < 1 || p.seeds > maxSeeds:
		return cli.Usage("--seeds %d: must be from 1 to %d", p.seeds, maxSeeds)
	case p.top < 0 || p.top > 0 && p.comparison != quality.TopK:
		return cli.Usage("--top %d with --compare %s: must be at least 0, and is only for topk", p.top, p.comparison)
	case p.slots < 0 || p.slots > maxSlots:
		return cli.Usage("--slots %d: must be from 0 to %d", p.slots, maxSlots)
	case p.choice != chooseRandom && p.choice != chooseFirst:
		return cli.Usage("unknown --choice %q: must be %s or %s", p.choice, chooseRandom, chooseFirst)
	}
	for _, r := range p.ratios {
		if !(r > 0 && r <= 1) {
			return cli.Usage("--ratios %v: must be above 0 and at most 1", r)
		}
	}
	folder := filepath.Dir(p.file)
	if info, err := os.Stat(folder); p.file != "" && (err != nil || !info.IsDir()) {
		return cli.Usage("--out %s: folder %s does not exist", p.file, folder)
	}
	return nil
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

// write writes the file of --out, whole or not at all.
func (p *profiling) write(profile *quality.Profile) error {
	if p.file == "" {
		return nil
	}
	data, err := profile.Encode()
	if err != nil {
		return cli.Failed("", "profile: %w", err)
	}
	if err := renameio.WriteFile(p.file, data, 0o644); err != nil {
		return cli.Failed("check that the folder is writable and has free space", "profile: write %s: %w", p.file, err)
	}
	p.note("wrote %s", p.file)
	return nil
}

// print writes the profile as JSON or as a table, with the parts that some accuracies need.
func (p *profiling) print(w io.Writer, profile *quality.Profile) error {
	if p.output.IsJSON() {
		return p.output.JSON(w, profile)
	}
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	rows := each.Of(profile.Points, func(x quality.Point) []string {
		return []string{
			strconv.FormatFloat(x.Fraction, 'f', 4, 64), strconv.Itoa(units.Ratio(x.Fraction).Kept(profile.Tasks)),
			percent(x.Accuracy), percent(x.Low), percent(x.High), strconv.Itoa(x.Runs),
		}
	})
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
