package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Bounds of a run: what has not been measured by then is reported as unknown.
const (
	fullMost  = 4*time.Minute - 5*time.Second
	quickMost = 38 * time.Second
)

// Options say what is measured and how thoroughly.
type Options struct {
	// Only lists the benchmarks to run; empty runs all.
	Only []string
	// Quick runs fewer repetitions on smaller clusters.
	Quick bool
	// Bin is the folder of the programs; benchmarks that need them are left out
	// where they are not there.
	Bin string
	// Progress receives progress notes; nil for none.
	Progress io.Writer
}

// benchmark is one entry of the suite.
type benchmark struct {
	name, what string
	programs   []string // of Bin that it starts
	run        func(ctx context.Context, r *run) ([]Item, error)
}

// suite is everything there is to measure, the short ones first.
func suite() []benchmark {
	return []benchmark{
		{"cap-step", "how fast and how cleanly a new cap is met, on the emulated plant in virtual time", nil, capStep},
		{"plan", "time to divide a budget, and to decide a tick, for up to 10,000 nodes", nil, plan},
		{"arbiter", "time to decide about 1,000 jobs on 10,000 containers: sprints, containers, drop ratios and holds", nil, arbitrate},
		{"dispatch", "time per task through a master of workers whose tasks take no time, and of its decisions", nil, dispatchTasks},
		{"simulate", "time to simulate a million tasks on 10,000 workers, and the memory for it", nil, simulateTasks},
		{"queue", "time to solve a priority queue of DIAS's size, 62 phases a class", nil, queueModel},
		{"sample", "cost of one sample of the power zones against bare reads of the same files", nil, sample},
		{"agent", "CPU and memory of powerd on an idle emulated node", []string{"coordinator", "powerd", "powerlab"}, agentCost},
		{"start", "time from the start of powerd, killed with -9 before, to a safe cap that reads back", []string{"powerd", "powerlab"}, agentStart},
		{"process", "time per process that a worker starts for the tasks of a master", []string{"scheduler"}, processes},
		{"failover", "time from the kill of the leader to the first lease of the next", []string{"coordinator"}, failover},
		{"cut", "time from a committed cut of the budget to every node's read-back", []string{"coordinator"}, cut},
	}
}

// run is one benchmark being run.
type run struct {
	Options
	dir string // scratch folder
}

// pick is the thorough number, or the quick one.
func pick[T any](r *run, full, quick T) T {
	if r.Quick {
		return quick
	}
	return full
}

// end stops what a part has started, and reports what is still running.
func (r *run) end(stop func() error) {
	if err := stop(); err != nil {
		r.note("%v", err)
	}
}

// note prints the progress of the run.
func (r *run) note(format string, args ...any) {
	if r.Progress != nil {
		cli.Notef(r.Progress, format, args...)
	}
}

// NewCommand is `powerlab bench`.
func NewCommand() *cobra.Command {
	var o Options
	var out cli.Output
	list := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Benchmark Headroom on this machine",
		Long: `Measures Headroom on this machine. Each result is shown next to its goal, to a peer that does the
same work in the same run, and to the machine's noise. Some benchmarks start coordinators and a node
as processes on loopback, and stop them afterwards.

A missed goal is reported but is not a failure. The exit code is 8 if a benchmark could not be measured.`,
		Example: "  powerlab bench\n  powerlab bench --quick --only cap-step,plan\n  powerlab bench -o json > bench.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return printList(cmd.OutOrStdout(), &out)
			}
			o.Progress = cmd.ErrOrStderr()
			if err := o.complete(); err != nil {
				return err
			}
			report, err := Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := report.print(cmd.OutOrStdout(), &out); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Only, "only", nil, "run only these benchmarks, comma-separated (see --list)")
	f.BoolVar(&list, "list", false, "list the benchmarks and exit")
	f.BoolVar(&o.Quick, "quick", false, "fewer repetitions and smaller clusters; takes at most 40 s")
	f.StringVar(&o.Bin, "bin", "", "folder of the programs (default: next to powerlab)")
	out.Flags(cmd)
	cmd.AddCommand(newNodeCommand(), newClusterCommand())
	return cmd
}

func printList(w io.Writer, out *cli.Output) error {
	var rows [][]string
	for _, b := range suite() {
		rows = append(rows, []string{b.name, b.what})
	}
	if out.IsJSON() {
		items := make([]map[string]string, 0, len(rows))
		for _, r := range rows {
			items = append(items, map[string]string{"name": r[0], "what": r[1]})
		}
		return out.JSON(w, map[string]any{"kind": "BenchList", "api": "v1", "items": items})
	}
	return out.Table(w, []string{"NAME", "WHAT"}, rows)
}

// complete fills in what depends on this process.
func (o *Options) complete() error {
	if o.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("bench: find the programs: %w", err)
		}
		o.Bin = filepath.Dir(self)
	}
	var err error
	if o.Bin, err = filepath.Abs(o.Bin); err != nil {
		return fmt.Errorf("bench: find the programs: %w", err)
	}
	return nil
}

// chosen are the benchmarks that the options name.
func (o *Options) chosen() ([]benchmark, error) {
	all := suite()
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.name
	}
	for _, name := range o.Only {
		if !slices.Contains(names, name) {
			err := cli.Usage("unknown benchmark --only %q: must be one of %s", name, strings.Join(names, ", "))
			if near := cli.Nearest(name, names); near != "" {
				err.Hint = "did you mean " + near + "?"
			}
			return nil, err
		}
	}
	if len(o.Only) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(b benchmark) bool { return !slices.Contains(o.Only, b.name) }), nil
}

// Run measures. A benchmark that fails or finds no time gives items without a
// value, with the reason; an error is a bad choice or an interrupt.
func Run(ctx context.Context, o Options) (*Report, error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headroom-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: scratch folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	most := fullMost
	if o.Quick {
		most = quickMost
	}
	timed, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	report := &Report{Kind: "Bench", API: "v1", Machine: thisMachine(), Items: []Item{}}
	var c calibration
	for _, b := range chosen {
		c.run()
		r := &run{Options: o, dir: filepath.Join(dir, b.name)}
		report.Items = append(report.Items, b.measure(timed, r)...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	c.run()
	report.Noise, report.Machine.LoadEnd = c.noise(), loadAverage()
	return report, nil
}

// measure runs one benchmark; what went wrong becomes an item without a value.
func (b benchmark) measure(ctx context.Context, r *run) []Item {
	began := time.Now()
	unknown := newItem(b.name, b.what, "")
	for _, p := range b.programs {
		if _, err := os.Stat(filepath.Join(r.Bin, p)); err != nil {
			return []Item{unknown.say("not run: program %s not found in %s; build it with make build", p, r.Bin)}
		}
	}
	r.note("%s: %s", b.name, b.what)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return []Item{unknown.say("not run: %v", err)}
	}
	items, err := b.run(ctx, r)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		items = append(items, unknown.say("not finished: time limit of the run reached"))
	case err != nil:
		items = append(items, unknown.say("not measured: %v", err))
	}
	r.note("%s: %.1f s", b.name, time.Since(began).Seconds())
	return items
}

// verdict is the error of a run in which something could not be measured.
func (r *Report) verdict() error {
	var missing []string
	for _, i := range r.Items {
		if i.Value == nil {
			missing = append(missing, i.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "not-measured", Exit: cli.ExitDegraded, Message: "not measured: " + strings.Join(missing, ", "),
		Hint: "see the notes for the reasons; repeat single benchmarks with --only",
	}
}
