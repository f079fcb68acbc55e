package scaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/lab/papers"
)

// A real scaling run: real programs on a real Spark or Hadoop, each executor or container alone on an emulated node of this
// machine, whose share of a CPU is a quota that the kernel enforces. All quotas together fit the host, so that more executors
// have more CPU, and what is measured is the job.

const (
	// quotaMost is the most of a CPU that one executor or container has.
	quotaMost = 0.2
	// realMost is the most executors or containers.
	realMost = 64
)

// realOptions are the flags of `powerlab scale run`.
type realOptions struct {
	papers.Options

	engine  string
	apps    []string
	degrees []int
	held    []int
	sizes   []int
	repeats int
	out     cli.Output
}

func newReal() *cobra.Command {
	o := &realOptions{degrees: []int{1, 2, 4, 6, 8}, held: []int{6, 8}, sizes: []int{8, 16}, repeats: 5}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run programs at several degrees on Spark or Hadoop, and test the models' predictions",
		Long: `Runs real programs on a real engine at several scale-out degrees, fits the models to some of the degrees,
and compares their predictions with the others. Each executor or container is alone on an emulated node
that owns at most 0.2 of a CPU.

spark: Naive Bayes, random forest and SVM of MLlib, and PageRank of GraphX, with the model USBA. A size is
a number of partitions. (NWeight, the dissertation's fourth program, is not shipped with GraphX.)
yarn: WordCount, Sort, TeraSort and QMC (the example pi), with the model IPSO: as many maps as containers,
and one reducer.

It needs root, and takes hours: one run takes a minute or more. --out is updated after each run.`,
		Example: "  sudo bin/powerlab scale run --engine spark --out /tmp/scaling\n" +
			"  sudo bin/powerlab scale run --engine yarn --app wordcount --n 1,2,4 --held-out 4 --repeats 2 --out /tmp/scaling",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := o.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := report.Print(cmd.OutOrStdout(), &o.out); err != nil {
				return err
			}
			return report.Verdict()
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.engine, "engine", "", "engine: spark or yarn")
	f.StringSliceVar(&o.apps, "app", nil, "programs to run (default: all programs of the engine)")
	f.IntSliceVar(&o.degrees, "n", o.degrees, "degrees: numbers of executors or containers")
	f.IntSliceVar(&o.held, "held-out", o.held, "degrees to test the models on, left out of the fit")
	f.IntSliceVar(&o.sizes, "sizes", o.sizes, "spark: numbers of partitions")
	f.IntVar(&o.repeats, "repeats", o.repeats, "runs of each degree")
	f.StringVar(&o.Bin, "bin", "", "folder of the programs and jars (default: next to powerlab)")
	f.StringVar(&o.Out, "out", "", "folder for the measurements")
	o.out.Flags(cmd)
	return cmd
}

// program is one program that an engine runs.
type program struct {
	name string
	// tolerance is the largest relative error that the dissertation reports for its kind (Table 3.3).
	tolerance float64
	// rises says that the serial part grows with the degree, which IPSO's third factor is about; yarn only.
	rises bool
	// rows is how many rows a partition has, some seconds of a CPU's work; spark only.
	rows int
}

// programs are those of an engine.
func programs(engine string) []program {
	if engine == "spark" {
		return []program{
			{name: "bayes", tolerance: 0.15, rows: 400_000},
			{name: "forest", tolerance: 0.15, rows: 20_000},
			{name: "svm", tolerance: 0.15, rows: 60_000},
			{name: "rank", tolerance: 0.21, rows: 40_000},
		}
	}
	return []program{
		{name: "wordcount", tolerance: 0.15}, {name: "qmc", tolerance: 0.15}, {name: "sort", tolerance: 0.15, rises: true}, {name: "terasort", tolerance: 0.15, rises: true},
	}
}

// check checks the flags and returns the programs to run.
func (o *realOptions) check() ([]program, error) {
	all := programs(o.engine)
	switch {
	case o.engine != "spark" && o.engine != "yarn":
		return nil, cli.Usage("--engine %q: must be spark or yarn", o.engine)
	case o.Out == "":
		return nil, cli.Usage("--out is needed: the folder for the measurements")
	case o.repeats < 1 || o.repeats > 100:
		return nil, cli.Usage("--repeats %d: must be from 1 to 100", o.repeats)
	}
	for _, list := range []struct {
		flag string
		is   []int
	}{{"n", o.degrees}, {"held-out", o.held}, {"sizes", o.sizes}} {
		for _, n := range list.is {
			if n < 1 || n > realMost {
				return nil, cli.Usage("--%s %d: must be from 1 to %d", list.flag, n, realMost)
			}
		}
	}
	if !slices.Contains(o.degrees, 1) {
		return nil, cli.Usage("--n must contain 1: speed-ups are relative to it")
	}
	for _, n := range o.held {
		if n == 1 || !slices.Contains(o.degrees, n) {
			return nil, cli.Usage("--held-out %d: must be one of --n, and not 1", n)
		}
	}
	chosen := all
	if len(o.apps) > 0 {
		chosen = nil
	}
	for _, name := range o.apps {
		i := slices.IndexFunc(all, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, cli.Usage("unknown --app %q: %s runs %s", name, o.engine, names(all))
		}
		chosen = append(chosen, all[i])
	}
	if os.Geteuid() != 0 {
		return nil, cli.Failed("run it as root; powerlab scale fit needs no privileges", "powerlab scale run needs root: it limits CPUs with cgroups")
	}
	return chosen, nil
}

func names(all []program) string {
	var list []string
	for _, p := range all {
		list = append(list, p.name)
	}
	return strings.Join(list, ", ")
}

// owners is by how many nodes the emulated nodes' part of the host is divided, so that none has more than quotaMost.
func owners(cpus, degree int) int {
	return max(degree, int(math.Ceil(emulator.HostShare*float64(cpus)/quotaMost)))
}

// engine runs programs at a degree.
type engine interface {
	// run runs a program and returns what its log says.
	run(ctx context.Context, p program, c cell) (run, error)
	Close() error
}

// realSite is the emulated nodes of a real run.
type realSite struct {
	*papers.Real

	group *cluster.Group
	nodes []*cluster.Program
}

// nodeGrace is how long an emulated node may take to end what runs on it and to remove its cgroup.
const nodeGrace = 10 * time.Second

// site starts one emulated node for each unit.
func (o *realOptions) site(progress io.Writer, jars ...string) (s *realSite, err error) {
	s = &realSite{}
	const hint = "build the programs with make build, and the jars with make hooks (needs Maven and a JDK)"
	if s.Real, err = papers.NewReal("scale", &o.Options, progress, o.engine, hint, append(jars, "powerlab")...); err != nil {
		return nil, err
	}
	most, cpus := slices.Max(o.degrees), runtime.NumCPU()
	of := owners(cpus, most)
	s.Note("%d emulated nodes, each with %.3f of a CPU, on %d CPUs", most, emulator.HostShare*float64(cpus)/float64(of), cpus)
	if s.group, err = cluster.NewGroup(s.Path("logs")); err != nil {
		s.Remove()
		return nil, err
	}
	for i := range most {
		name := fmt.Sprintf("n%d", i+1)
		p, err := s.group.Start(name, nil, s.Program("powerlab"), "node", name, "--dir", s.Path("nodes"), "--nodes", fmt.Sprint(of), "--throttle", "cgroup", "--weight", fmt.Sprint(papers.RealWeight), "--no-powerd", "--no-worker")
		if err != nil {
			return nil, s.fail(err)
		}
		s.nodes = append(s.nodes, p)
	}
	if err := cluster.AwaitNodes(s.Path("nodes"), s.names()...); err != nil {
		for _, p := range s.nodes {
			err = cmp.Or(p.Ended(), err) // why there is no node says more than that there is none
		}
		return nil, s.fail(err)
	}
	return s, nil
}

// on lets a program run on a node.
func (s *realSite) on(node string) func(argv []string) []string {
	return cluster.OnNode(s.Program("powerlab"), s.Path("nodes"), node)
}

// names are those of the nodes.
func (s *realSite) names() (all []string) {
	for _, p := range s.nodes {
		all = append(all, p.Name)
	}
	return all
}

func (s *realSite) fail(err error) error { return errors.Join(err, s.end()) }

// end ends the nodes, which remove their cgroups, and keeps the logs of what has run.
func (s *realSite) end() error {
	for _, p := range s.nodes {
		p.Stop(nodeGrace)
	}
	err := s.group.Close()
	for name, logs := range map[string]string{"nodes": s.Path("logs"), "engine": s.Path("engine", "logs")} {
		if _, missing := os.Stat(logs); missing == nil {
			err = errors.Join(err, s.KeepLogs(name, logs))
		}
	}
	s.Remove()
	return err
}

// measured is one run as runs.csv has it.
type measured struct {
	run

	program string
	repeat  int
}

// run makes all runs, in rounds, so that what the machine does beside is spread over the degrees.
func (o *realOptions) run(ctx context.Context, progress io.Writer) (report *papers.Report, err error) {
	chosen, err := o.check()
	if err != nil {
		return nil, err
	}
	e, err := o.start(ctx, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var all []measured
	for repeat := range o.repeats {
		for _, p := range chosen {
			for _, c := range o.cells() {
				r, err := patiently(ctx, e, p, c)
				if err != nil {
					return nil, fmt.Errorf("scale: %s, size %d on %d, run %d: %w", p.name, c.size, c.units, repeat+1, err)
				}
				r.Tasks, r.Units = c.size, c.units
				all = append(all, measured{r, p.name, repeat})
				cli.Notef(progress, "%s, size %d on %d, run %d of %d: %.1f s in stages, %.1f s for the launch", p.name, c.size, c.units, repeat+1, o.repeats, r.Stages, r.Launch)
				if err := o.Keep(papers.Files{"runs.csv": func(w io.Writer) error { return papers.WriteCSV(w, rows(all)) }}); err != nil {
					return nil, err // what is cut short later is not lost
				}
			}
		}
	}
	report = &papers.Report{Paper: "scaling"}
	for _, p := range chosen {
		report.Targets = append(report.Targets, o.judge(p, all)...)
	}
	return report, o.Keep(papers.Files{"report.json": func(w io.Writer) error { return o.out.JSON(w, report) }})
}

// realPatience bounds one run: the slowest starts executors on a fifth of a CPU and has all partitions on one of them.
const realPatience = 30 * time.Minute

// patiently makes one run.
func patiently(ctx context.Context, e engine, p program, c cell) (run, error) {
	ctx, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	return e.run(ctx, p, c)
}

func (o *realOptions) start(ctx context.Context, progress io.Writer) (engine, error) {
	if err := o.Keep(nil); err != nil {
		return nil, err // the folder cannot be made: better known before the runs than after
	}
	if o.engine == "spark" {
		return o.startSpark(ctx, progress)
	}
	return o.startYARN(ctx, progress)
}

// cell is one size on one degree.
type cell struct{ size, units int }

// cells are what is run of each program: on Spark every size on every degree that it can use, and one partition on one executor;
// on YARN as many maps as containers.
func (o *realOptions) cells() (all []cell) {
	if o.engine == "yarn" {
		for _, n := range o.degrees {
			all = append(all, cell{n, n})
		}
		return all
	}
	all = append(all, cell{1, 1})
	for _, size := range o.sizes {
		for _, n := range o.degrees {
			if n <= size && size > 1 {
				all = append(all, cell{size, n})
			}
		}
	}
	return all
}

// rows are the runs as runs.csv has them.
func rows(all []measured) [][]string {
	out := [][]string{{"program", "run", "size", "units", "tau0_s", "tau_k_s", "t_p_s", "t_max_s", "w_s_s", "rest_s"}}
	for i := range all {
		r := &all[i]
		row := []string{r.program, fmt.Sprint(r.repeat + 1), fmt.Sprint(r.Tasks), fmt.Sprint(r.Units)}
		for _, x := range []float64{r.Launch, r.Stages, r.Parallel, r.Slowest, r.Serial, r.Rest} {
			row = append(row, fmt.Sprintf("%.3f", x))
		}
		out = append(out, row)
	}
	return out
}
