package live

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"headroom/internal/cli"
	"headroom/lab/papers"
)

// Policies returns the available policies, in the order of Fig. 4.11.
func Policies() []string { return []string{"pigeon", "sparrow", "eagle"} }

// Loads returns the loads of the existing traces, in %.
func Loads() []int { return []int{50, 60, 70, 80, 90} }

// Options say what is replayed.
type Options struct {
	Policies []string
	// Loads are in %.
	Loads []int
	// Traces are the published ones, Out is the folder for results, Bin that of the programs.
	Traces   *papers.Traces
	Out, Bin string
	// Jobs bounds the jobs of each trace; 0 for all.
	Jobs int
	// Scale is the factor of all times, above 0 and at most 1.
	Scale float64
	// Seed is the first of the seeds of the simulation, and what Sparrow's and Eagle's probes are drawn by.
	Seed uint64
}

// simulatedSeeds is how many seeds of the simulation a replay is compared with.
const simulatedSeeds = 20

// Flags adds the flags of a replay that no other study has.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Policies, "policy", []string{"pigeon"}, "with --real: policies: "+strings.Join(Policies(), ", "))
	f.IntSliceVar(&o.Loads, "load", []int{50, 70, 90}, "with --real: loads of the traces, in %")
	f.IntVar(&o.Jobs, "jobs", 0, "with --real: number of jobs of each trace; 0 for all")
	f.Float64Var(&o.Scale, "scale", 1, "with --real: factor for all times of the trace")
}

// Engine replays traces as options say when it is run, in the form of all studies.
func Engine(o *Options) papers.Engine {
	return func(ctx context.Context, progress io.Writer) ([]papers.Target, error) {
		report, err := Run(ctx, o, progress)
		return report.Targets(), err
	}
}

// Check refuses options that cannot be.
func (o *Options) Check() error {
	for _, p := range o.Policies {
		if !slices.Contains(Policies(), p) {
			return cli.Usage("unknown --policy %q: must be one of %s", p, strings.Join(Policies(), ", "))
		}
	}
	for _, l := range o.Loads {
		if !slices.Contains(Loads(), l) {
			return cli.Usage("--load %d: there is no trace with this load, only with %v", l, Loads())
		}
	}
	switch {
	case len(o.Policies) == 0 || len(o.Loads) == 0:
		return cli.Usage("--policy and --load: at least one policy and one load are needed")
	case o.Out == "":
		return cli.Usage("--real needs --out: a replay takes minutes, and its results are kept there")
	case !(o.Scale > 0 && o.Scale <= 1):
		return cli.Usage("--scale %v: must be above 0 and at most 1", o.Scale)
	case o.Jobs < 0:
		return cli.Usage("--jobs %d: must be at least 0 (0 means all)", o.Jobs)
	}
	return nil
}

// Run replays each trace on each policy's system, one after the other, and judges it against the simulation. Results are
// written after each; where it is broken off, the report has what there is, and the error says why.
func Run(ctx context.Context, o *Options, progress io.Writer) (*Report, error) {
	report := &Report{}
	if err := o.Check(); err != nil {
		return report, err
	}
	if o.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return report, fmt.Errorf("live: own program: %w", err)
		}
		o.Bin = filepath.Dir(self)
	}
	if _, err := os.Stat(filepath.Join(o.Bin, "scheduler")); err != nil {
		return report, cli.Failed("build the programs with make build, or set their folder with --bin", "--real needs the scheduler in %s: %w", o.Bin, err)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return report, cli.Failed("use another folder with --out", "--out: %w", err)
	}
	loads := make([]*load, len(o.Loads))
	for i, percent := range o.Loads { // before anything runs
		var err error
		if loads[i], err = readLoad(o.Traces, percent, o.Jobs, o.Scale); err != nil {
			return report, err
		}
	}
	for _, l := range loads {
		for _, policy := range o.Policies {
			r, err := o.once(ctx, policy, l, progress)
			report.Replays = append(report.Replays, *r)
			if err := errors.Join(err, report.files().Write(o.Out)); err != nil {
				return report, fmt.Errorf("%s at %d %%: %w", policy, l.percent, err)
			}
		}
	}
	return report, nil
}

// once replays one trace on one system and judges it.
func (o *Options) once(ctx context.Context, policy string, l *load, progress io.Writer) (*Replay, error) {
	r := &Replay{Policy: policy, Load: l.percent, Jobs: len(l.jobs), Tasks: l.tasks(), Scale: o.Scale}
	simulated, err := simulate(ctx, policy, figure(), l, o.Seed, simulatedSeeds)
	if err != nil {
		return r, err
	}
	cli.Notef(progress, "%s: %v; it takes at least %v", policy, l, l.takes().Round(time.Second))
	dir, err := os.MkdirTemp("", "headroom-dispatch-")
	if err != nil {
		return r, fmt.Errorf("live: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := start(ctx, policy, dir, o.Bin, o.Seed)
	if err != nil {
		return r, err
	}
	r.LoadAverage[0] = loadAverage()
	took, err := o.replay(ctx, l, s, r, progress)
	r.LoadAverage[1] = loadAverage()
	r.Cells = compare(figuresOf(l, took), simulated, r.Ended == r.Jobs)
	return r, errors.Join(err, s.close())
}

// replay replays the load, writes each job that ends to the file of jobs, and prints its progress.
func (o *Options) replay(ctx context.Context, l *load, s system, r *Replay, progress io.Writer) ([]float64, error) {
	took := make([]float64, len(l.jobs))
	for i := range took {
		took[i] = math.NaN()
	}
	file, err := os.Create(filepath.Join(o.Out, fmt.Sprintf("jobs-%s-%d.csv", r.Policy, r.Load)))
	if err != nil {
		return took, err
	}
	rows := csv.NewWriter(file)
	err = rows.Write(jobsHead())
	began, told := time.Now(), time.Now()
	if err == nil {
		r.Ended, err = replay(ctx, l, s, func(j served) error {
			took[j.job] = j.took.Seconds()
			r.LateMax = max(r.LateMax, j.late.Seconds())
			if time.Since(told) > tellEvery {
				told = time.Now()
				cli.Notef(progress, "%s at %d %%: after %v, %.0f %% of the jobs are done", r.Policy, r.Load, time.Since(began).Round(time.Second), 100*float64(doneOf(took))/float64(len(took)))
			}
			return errors.Join(rows.Write(jobRow(l, j)), flushed(rows))
		})
	}
	return took, errors.Join(err, file.Close())
}

// tellEvery is how often is said how far a replay is.
const tellEvery = 30 * time.Second

func flushed(w *csv.Writer) error {
	w.Flush()
	return w.Error()
}

func doneOf(took []float64) (n int) {
	for _, t := range took {
		if !math.IsNaN(t) {
			n++
		}
	}
	return n
}

// loadAverage is how much the machine has had to do in the last minute; nil where it does not tell.
func loadAverage() *float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil
	}
	var x float64
	if _, err := fmt.Sscan(string(text), &x); err != nil {
		return nil
	}
	return &x
}
