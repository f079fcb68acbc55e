package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/lab/papers"
	"headroom/lab/runs"
	"headroom/lab/traces"
	"headroom/scheduler/distributor"
)

// The comparison of splits under caps: two groups of two emulated nodes each, one at full power and one capped.
const (
	cappedNodes = 4
	// cappedSlots is how many tasks a node runs at once.
	cappedSlots = 2
	// cappedPart is the cap of the second group's nodes, as a part of what they are rated.
	cappedPart = 0.5
	// cappedFan is how many tasks a job has, cappedTask the CPU time of each.
	cappedFan  = 12
	cappedTask = 0.1
	// cappedLoad is the load, of what both groups could do without caps, and without what workers and the start of tasks take.
	cappedLoad = 0.3
	// cappedJobs is how many jobs each run has, cappedFirst how many of them teach, and are not counted.
	cappedJobs, cappedFirst = 24, 4
	// cappedPatience bounds the start, and each run.
	cappedPatience = 4 * time.Minute
)

// split is a way to divide a job's tasks among groups.
type split struct {
	name    string
	learned bool
}

func splits() []split { return []split{{"learned", true}, {"even", false}} }

// cappedJobsOf are jobs of equal tasks that arrive by chance.
func cappedJobsOf(seed uint64, cpus float64) *load {
	random := rand.New(rand.NewPCG(seed, 11))
	every := cappedFan * cappedTask / (cappedLoad * emulator.HostShare * cpus)
	l, at := &load{percent: int(math.Round(100 * cappedLoad)), cutoff: cutoff}, 0.0
	for range cappedJobs {
		at += random.ExpFloat64() * every
		l.jobs = append(l.jobs, traces.Job{Arrival: at, Mean: cappedTask, Times: slices.Repeat([]float64{cappedTask}, cappedFan)})
	}
	return l
}

// Capped compares, on emulated nodes under different caps, the split by learned power with the even one: each of so many
// runs has the same jobs for both, one after the other, in alternating order.
func Capped(o *papers.Options) papers.Engine {
	return func(ctx context.Context, progress io.Writer) (all []papers.Target, err error) {
		if os.Geteuid() != 0 {
			return nil, cli.Failed("run it as root, or leave out --engine: the simulation needs no privileges", "--engine local needs root: it slows down real processes with cgroups")
		}
		r, err := papers.NewReal("pigeon", o, progress, "local", "build the programs with make build", "coordinator", "scheduler", "powerd", "powerlab")
		if err != nil {
			return nil, err
		}
		defer r.Remove()
		took := map[string][]float64{}
		err = compareSplits(ctx, r, func(run int, s split, mean float64) error {
			took[s.name] = append(took[s.name], mean)
			r.Note("run %d, %s split: jobs took %.3f s", run+1, s.name, mean)
			return o.Keep(papers.Files{"capped.csv": func(w io.Writer) error { return papers.WriteCSV(w, cappedRows(took)) }})
		})
		return []papers.Target{cappedTarget(took)}, err
	}
}

func cappedRows(took map[string][]float64) [][]string {
	rows := [][]string{{"run", "split", "mean_s"}}
	for _, s := range splits() {
		for i, x := range took[s.name] {
			rows = append(rows, []string{strconv.Itoa(i + 1), s.name, runs.Number(x)})
		}
	}
	return rows
}

// cappedTarget is met where the bounds of the gain, run by run, lie above 0.
func cappedTarget(took map[string][]float64) papers.Target {
	var gain []float64
	even := took["even"]
	for i, x := range took["learned"] {
		if i < len(even) {
			gain = append(gain, 100*(1-x/even[i]))
		}
	}
	if len(gain) < 2 {
		return papers.Target{ID: "capped/learned", What: cappedWhat, Unit: "%", Verdict: papers.NotRun, Note: "fewer than two whole runs of each: no bounds"}
	}
	got := papers.Of(gain)
	return papers.Judge("capped/learned", cappedWhat, "%", got, got.Low > 0, fmt.Sprintf("%d runs of both splits with the same jobs; met where the bounds lie above 0", len(gain)))
}

const cappedWhat = "mean completion time by the split by learned power, shorter than by the even one, one of two groups capped"

// compareSplits starts the site, and runs all splits so often.
func compareSplits(ctx context.Context, r *papers.Real, ran func(run int, s split, mean float64) error) (err error) {
	if r.Site, err = cluster.NewSite(cluster.Config{Dir: r.Path("site"), Bin: r.Folder, Coordinators: 1, Nodes: cappedNodes, Racks: 2, Weight: papers.RealWeight}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.KeepLogs("site", r.Site.Path("logs")), r.Site.Close()) }()
	if err := holdCaps(ctx, r); err != nil {
		return err
	}
	loops, err := loopsFor(ctx, cappedTask)
	if err != nil {
		return err
	}
	for run := range r.Seeds {
		l := cappedJobsOf(r.Seed+uint64(run), float64(runtime.NumCPU()))
		for _, s := range runs.Turn(splits(), run) {
			mean, err := runSplit(ctx, r, s, run, l, loops)
			if err != nil {
				return fmt.Errorf("run %d, %s split: %w", run+1, s.name, err)
			}
			if err := ran(run, s, mean); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdCaps starts the nodes, and has those of the second group capped.
func holdCaps(ctx context.Context, r *papers.Real) error {
	ctx, cancel := context.WithTimeout(ctx, cappedPatience)
	defer cancel()
	if err := r.Site.Start(); err != nil {
		return err
	}
	power, parts := runs.Power{Real: r, Reason: "two groups under different caps"}, cappedParts()
	return errors.Join(
		cluster.AwaitNodes(r.Site.NodeDir(), r.Site.Nodes()...),
		r.Await(ctx, "the nodes hold no lease", func(ctx context.Context) bool {
			return power.Held(ctx, slices.Repeat([]float64{1}, cappedNodes)...)
		}),
		power.Hold(ctx, 1, 1, parts...),
		r.Await(ctx, "the nodes do not hold their caps", func(ctx context.Context) bool { return power.Held(ctx, parts...) }),
	)
}

// cappedParts are the caps of the nodes, those of the first group first.
func cappedParts() []float64 {
	return append(slices.Repeat([]float64{1}, cappedNodes/2), slices.Repeat([]float64{cappedPart}, cappedNodes/2)...)
}

// burn is a program that counts.
func burn(loops int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", loops)}
}

// loopsFor finds how far burn has to count to take so much CPU time, by the best of five.
func loopsFor(ctx context.Context, seconds float64) (int, error) {
	const tried = 200_000
	best := math.Inf(1)
	for range 5 {
		argv := burn(tried)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("live: time a task: %w", err)
		}
		best = min(best, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	}
	return int(math.Ceil(tried * seconds / max(best, 0.001))), nil
}

// runSplit runs the jobs once by a split and returns the mean time of those that count.
func runSplit(ctx context.Context, r *papers.Real, s split, run int, l *load, loops int) (mean float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, cappedPatience)
	defer cancel()
	name := fmt.Sprintf("%d-%s", run+1, s.name)
	p, err := newPlant(r.Path(name), r.Folder, shape{groups: 2, each: cappedNodes / 2, distributors: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.group.Close()) }()
	groups, err := startGroups(p, r)
	if err != nil {
		return 0, err
	}
	spread := pigeon.Even
	if s.learned {
		spread = pigeon.Balanced
	}
	system, err := newPigeon(ctx, groups, 1, spread, func(job string, index int, _ float64) *headroomv1.Task {
		t := p.task(job, index, 0)
		t.Argv = burn(loops)
		return t
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, system.close()) }()
	if err := system.ready(ctx, cappedSlots*cappedNodes/2); err != nil {
		return 0, err
	}
	sum, counted := 0.0, 0
	_, err = replay(ctx, l, system, func(j served) error {
		if j.job >= cappedFirst {
			sum += j.took.Seconds()
			counted++
		}
		return nil
	})
	return sum / float64(max(1, counted)), err
}

// startGroups starts two masters, and a worker on each node: the first half of the nodes are the first group.
func startGroups(p *plant, r *papers.Real) (all []distributor.Group, err error) {
	ports, err := cluster.FreePorts(2)
	if err != nil {
		return nil, err
	}
	for i, addr := range ports {
		name := r.Site.Racks()[i]
		all = append(all, distributor.Group{Name: name, Masters: ports[i : i+1]})
		more := []string{}
		for _, c := range r.Site.Addresses() {
			more = append(more, "--coordinators", c)
		}
		if err := p.masterProcess(name, addr, 0, more...); err != nil {
			return nil, err
		}
	}
	for i, node := range r.Site.Nodes() {
		on := cluster.OnNode(r.Program("powerlab"), r.Site.NodeDir(), node)
		argv := on(p.workerCommand(node, ports[2*i/cappedNodes], cappedSlots))
		if _, err := p.group.Start("worker-"+node, nil, argv...); err != nil {
			return nil, err
		}
	}
	return all, nil
}
