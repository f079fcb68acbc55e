package pythia

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/traces"
)

// Bounds of the flags.
const (
	seedsDefault = 5
	// jobsDefault is enough for jobs to pile up under nodrop until small ones no longer get a slot each.
	jobsDefault = 20_000
	jobsLeast   = 500
	jobsMost    = 200_000
)

// options are the flags of `powerlab paper pythia`.
type options struct {
	papers.Options

	jobs   int
	traces papers.Traces
}

// traceNames are the traces of a folder that the study runs on.
func traceNames() []string { return []string{"google", "yahoo1", "yahoo2", "facebook2010"} }

// NewCommand is `powerlab paper pythia`.
func NewCommand() *cobra.Command {
	o := options{Options: papers.Options{Seeds: seedsDefault}}
	cmd := &cobra.Command{
		Short: "Admission control of jobs with deadlines (PYTHIA)",
		Long: `Repeats PYTHIA's experiments: admission of jobs with deadlines to a cluster of three capacities, from far too small to
ample, under the paper's five deadline types and four policies, and under ours (adaptive), also while the capacity is
halved for a third of the time. The policies are those of "powerlab admit". Only the policy oracle knows what a job
takes before the job has ended.

The paper's traces are not public. Jobs are generated with the published moments of its first trace, on a tenth of its
slots. --traces names a folder of published traces, and repeats the study on each of them:

  hawk-format/GOOG_subtrace.tr, YH1_sub.tr, YH2_sub.tr    as published with Hawk, Eagle and Pigeon
  swim/FB-2010_samples_24_times_1hr_0.tsv                 of SWIM; tasks are derived from its bytes

Without it those targets are not_run. A seed draws jobs and deadlines; on a trace it draws the deadlines and the job
that the trace begins with. The same seeds give the same bytes.

--out writes targets.csv and targets.md, runs.csv (every run), summary.csv (means and bounds), policies.md (the table of
lab/docs/pythia.md), and for the generated jobs fig2.svg, fig4.svg and fig5.svg.

` + fmt.Sprintf("--mutants repeats the study of generated jobs, at most %d, with one deliberate mistake in a policy at a time.", mutantJobs),
		Example: "  powerlab paper pythia\n  powerlab paper pythia --seeds 2 --jobs 5000 -o json\n  powerlab paper pythia --traces traces --out pythia-out\n  powerlab paper pythia --mutants -o json",
	}
	f := cmd.Flags()
	f.IntVar(&o.jobs, "jobs", jobsDefault, "number of generated jobs per seed")
	o.traces.Flag(f)
	return papers.Study{
		Paper: "pythia", Check: o.check, Engines: map[string]papers.Engine{"": o.simulate}, Mutants: o.mutants, MutantSeeds: mutantSeeds,
	}.Command(cmd, &o.Options)
}

// check checks the flags of its own.
func (o *options) check() error {
	if o.jobs < jobsLeast || o.jobs > jobsMost {
		return cli.Usage("--jobs %d: must be from %d to %d", o.jobs, jobsLeast, jobsMost)
	}
	return o.traces.Check("pythia")
}

// simulate runs all experiments. Traces are read before anything runs, so that a mistake in one costs no time.
func (o *options) simulate(ctx context.Context, progress io.Writer) ([]papers.Target, error) {
	sources := []*source{generated(o.jobs)}
	var left []papers.Target
	for _, name := range traceNames() {
		why, err := o.traces.Read(name, func(f *traces.File) error {
			s, err := traced(name, f)
			sources = append(sources, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		if why != "" {
			left = append(left, notRun(name, why)...)
		}
	}
	var all []*figures
	var targets []papers.Target
	for _, s := range sources {
		cli.Notef(progress, "%s: %d seeds of %d runs", s.name, o.Seeds, len(keys()))
		trials, err := (&study{source: s, door: honest}).run(ctx, o.Seed, o.Seeds)
		if err != nil {
			return nil, err
		}
		f := &figures{source: s, trials: trials}
		all, targets = append(all, f), append(targets, f.targets()...)
	}
	if err := o.Keep(filesOf(all, o.Seed)); err != nil {
		return nil, err
	}
	return append(targets, left...), nil
}

// notRun are the targets on a trace that is not there.
func notRun(name, why string) []papers.Target {
	s := &source{name: name, traced: true}
	targets := (&figures{source: s}).targets()
	for i := range targets {
		t := &targets[i]
		targets[i] = papers.Left(t.ID, t.What, t.Unit, why)
		targets[i].Paper = t.Paper
	}
	return targets
}
