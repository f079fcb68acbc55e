package specs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/jobs/scaling"
	"headroom/jobs/scaling/ipso"
	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
	"headroom/lab/hadoop"
	"headroom/lab/report"
	"headroom/lab/spark"
	"headroom/scheduler/jhist"
)

// How jobs scale out: each executor or container is alone on an emulated node that owns a quota of a CPU. The models are
// fitted to some degrees, and their predictions are compared with the others. On Spark a size is a number of
// partitions; on Hadoop a job has as many maps as containers, and one reducer.
const (
	// quotaMost is the most of a CPU that one executor or container has.
	quotaMost = 0.2
	// exTolerance is how far the slope of EX may be from that of a workload of fixed time, which is 1; flatSlope the
	// steepest IN of a job whose serial part does not grow.
	exTolerance, flatSlope = 0.1, 0.05
	// yarnMap is a map's memory, MiB, which is all that a node offers; the master's own node offers yarnMaster.
	yarnMap, yarnMaster = 256, 512
	// yarnBytes is what a map reads, yarnSamples how many points a map of QMC makes.
	yarnBytes, yarnSamples = 2 << 20, 10_000_000
)

func degrees() []int { return []int{1, 2, 4, 6, 8} }

// held reports whether a degree is predicted: the models are not fitted to it.
func held(units int) bool { return units >= 6 }

// scaled is a program with the largest relative error that the dissertation reports for its kind (Table 3.3).
type scaled struct {
	name      string
	tolerance float64
	// rises: the serial part grows with the degree, which IPSO's third factor is about; yarn only.
	rises bool
	// rows is how many rows a partition has; spark only.
	rows int
}

func sparkPrograms() []scaled {
	return []scaled{{"bayes", 0.15, false, 100_000}, {"forest", 0.15, false, 5_000}, {"svm", 0.15, false, 15_000}, {"rank", 0.21, false, 10_000}}
}

func yarnPrograms() []scaled {
	return []scaled{{"wordcount", 0.15, false, 0}, {"qmc", 0.15, false, 0}, {"sort", 0.15, true, 0}, {"terasort", 0.15, true, 0}}
}

// cell is one size on one degree; variant is its name for a program.
type cell struct{ size, units int }

func (c cell) variant(program string) string {
	return fmt.Sprintf("%s/%dx%d", program, c.size, c.units)
}

// sparkCells are one partition on one executor, and three sizes on every degree that each can use: fewer points do not
// determine the six parameters of USBA. yarnCells are as many maps as containers.
func sparkCells() []cell {
	all := []cell{{1, 1}}
	for _, size := range []int{4, 8, 16} {
		for _, n := range degrees() {
			if n <= size {
				all = append(all, cell{size, n})
			}
		}
	}
	return all
}

func yarnCells() (all []cell) {
	for _, n := range degrees() {
		all = append(all, cell{n, n})
	}
	return all
}

func scalings() []*experiment.Spec {
	onSpark := &experiment.Spec{
		Name: "scaling-spark", Says: "how MLlib's and GraphX's programs scale out on Spark, against USBA's predictions", Files: []string{harness.JarSparkApps}, Pairs: 5, Run: scaleSpark,
	}
	for _, p := range sparkPrograms() {
		predictions(onSpark, p, sparkCells(), scaling.USBA, sparkSpeedups)
	}
	onYARN := &experiment.Spec{Name: "scaling-yarn", Says: "how MapReduce programs scale out on Hadoop, against IPSO's predictions", Pairs: 5, Run: scaleYARN}
	for _, p := range yarnPrograms() {
		predictions(onYARN, p, yarnCells(), scaling.IPSO, yarnSpeedups)
		factors(onYARN, p)
	}
	return []*experiment.Spec{onSpark, onYARN}
}

// predictions adds a program's variants and the claims that the model predicts the degrees that it was not fitted to.
func predictions(s *experiment.Spec, p scaled, cells []cell, model string, speedups func(program string, pair experiment.Pair) []scaling.Point) {
	for _, c := range cells {
		s.Variants = append(s.Variants, c.variant(p.name))
		if !held(c.units) {
			continue
		}
		within := experiment.Mean(report.AtMost(p.tolerance))
		s.Claims = append(s.Claims, experiment.Claim{
			ID: fmt.Sprintf("R-%s/%d-%d", p.name, c.size, c.units), What: fmt.Sprintf("%s: relative error of the speed-up predicted for size %d on %d", p.name, c.size, c.units),
			Met: within, Order: within,
			Value: func(pair experiment.Pair) float64 {
				all, is := speedups(p.name, pair), math.NaN()
				for _, x := range all {
					if x.N == c.size && x.M == c.units {
						is = x.Speedup
					}
				}
				curve, err := scaling.Fit(model, slices.DeleteFunc(all, func(x scaling.Point) bool { return held(x.M) }))
				if err != nil {
					return math.NaN()
				}
				return math.Abs(curve.Speedup(c.size, c.units)/is - 1)
			},
		})
	}
}

// sparkSpeedups are relative to one partition on one executor, by (3.8).
func sparkSpeedups(program string, pair experiment.Pair) (all []scaling.Point) {
	base := pair[cell{1, 1}.variant(program)]
	for _, c := range sparkCells() {
		f := pair[c.variant(program)]
		all = append(all, scaling.Point{N: c.size, M: c.units, Speedup: (base["launch_s"] + float64(c.size)*base["stages_s"]) / (f["launch_s"] + f["stages_s"])})
	}
	return all
}

// yarnWorkloads are the parts of a program's runs that IPSO has. The overhead of scaling out is what the rest of the time
// exceeds that of the smallest degree.
func yarnWorkloads(program string, pair experiment.Pair) (all []ipso.Workloads) {
	first := pair[yarnCells()[0].variant(program)]
	for _, c := range yarnCells() {
		f := pair[c.variant(program)]
		all = append(all, ipso.Workloads{N: c.units, Parallel: f["parallel_s"], Slowest: f["slowest_s"], Serial: f["serial_s"], Overhead: max(0, f["rest_s"]-first["rest_s"])})
	}
	return all
}

// yarnSpeedups are by (2.7).
func yarnSpeedups(program string, pair experiment.Pair) (all []scaling.Point) {
	for _, w := range yarnWorkloads(program, pair) {
		all = append(all, scaling.Point{N: w.N, M: w.N, Speedup: w.Speedup()})
	}
	return all
}

// factors adds the claims about IPSO's factors of a job whose maps each have the same work: EX(n) is about n, and IN(n) is
// about 1 where the reducer's work does not depend on the degree, and rises where it has all that the maps read.
func factors(s *experiment.Spec, p scaled) {
	slope := func(id, what string, of func(f *ipso.Factors) float64) experiment.Claim {
		return claim("R-"+p.name+"/"+id, p.name+": slope of "+id+" by n, the "+what, "", report.Above(0), func(pair experiment.Pair) float64 {
			f, err := ipso.FitFactors(yarnWorkloads(p.name, pair))
			if err != nil {
				return math.NaN()
			}
			return of(f)
		})
	}
	ex := slope("EX", "parallel work grows with the degree", func(f *ipso.Factors) float64 { return f.EX.Slope.Value })
	ex.Met, ex.Order = experiment.Mean(report.Around(1, exTolerance)), ex.Met
	in := slope("IN", "serial work grows", func(f *ipso.Factors) float64 { return f.IN.Above.Slope.Value })
	if flat := experiment.Mean(report.AtMost(flatSlope)); !p.rises {
		in.What = p.name + ": slope of IN by n, the serial work does not grow"
		in.Met, in.Order = flat, flat
	}
	s.Claims = append(s.Claims, ex, in)
}

// scale runs a variant of one of the programs on emulated nodes, one for each unit, without powerd.
func scale(r *experiment.Run, programs []scaled, run func(p scaled, on cell, names []string) (experiment.Figures, error)) (f experiment.Figures, err error) {
	name, of, _ := strings.Cut(r.Variant, "/")
	var on cell
	if _, err := fmt.Sscanf(of, "%dx%d", &on.size, &on.units); err != nil {
		return nil, fmt.Errorf("scaling: variant %s: %w", r.Variant, err)
	}
	p := programs[slices.IndexFunc(programs, func(p scaled) bool { return p.name == name })]
	count := max(on.units, int(math.Ceil(emulator.HostShare*float64(runtime.NumCPU())/quotaMost)))
	g, err := cluster.NewGroup(r.Path("logs"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	var names []string
	for i := range on.units {
		name := "n" + strconv.Itoa(i+1)
		node, err := g.Start(name, nil, r.Program("powerlab"), "node", name, "--dir", r.Path("nodes"), "--nodes", strconv.Itoa(count), "--throttle", "cgroup", "--weight", "50", "--no-powerd", "--no-worker")
		if err != nil {
			return nil, err
		}
		defer node.Stop(10 * time.Second) // it removes its cgroup
		names = append(names, name)
	}
	if err := cluster.AwaitNodes(r.Path("nodes"), names...); err != nil {
		return nil, err
	}
	return run(p, on, names)
}

func scaleSpark(ctx context.Context, r *experiment.Run) (experiment.Figures, error) {
	return scale(r, sparkPrograms(), func(p scaled, on cell, names []string) (f experiment.Figures, err error) {
		var nodes []spark.Node
		for _, name := range names {
			nodes = append(nodes, spark.Node{Name: name, Cores: 1, Wrap: cluster.OnNode(r.Program("powerlab"), r.Path("nodes"), name)})
		}
		c, err := harness.StartSpark(ctx, r, spark.Config{Nodes: nodes})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		size := strconv.Itoa(on.size)
		got, err := c.Run(ctx, spark.Job{
			Name: p.name, Application: r.Program(harness.JarSparkApps), Main: "headroom.apps.spark.Scale", Args: []string{p.name, size, strconv.Itoa(p.rows)},
			Conf: map[string]string{
				"spark.cores.max": strconv.Itoa(on.units), "spark.executor.cores": "1", "spark.default.parallelism": size,
				"spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s", "spark.locality.wait": "0s",
			},
		})
		if err != nil {
			return nil, err
		}
		return stages(got.Began, got.Log.Tasks)
	})
}

// stages are the times until the first task begins, and of all stages together, by their tasks.
func stages(began time.Time, tasks []spark.TaskRecord) (experiment.Figures, error) {
	if len(tasks) == 0 {
		return nil, errors.New("scaling: the event log has no tasks")
	}
	first, last := map[int]time.Time{}, map[int]time.Time{}
	for _, t := range tasks {
		if at, known := first[t.Stage]; !known || t.Begun.Before(at) {
			first[t.Stage] = t.Begun
		}
		last[t.Stage] = later(last[t.Stage], t.Ended)
	}
	begin := slices.MinFunc(slices.Collect(maps.Values(first)), time.Time.Compare)
	f := experiment.Figures{"launch_s": begin.Sub(began).Seconds()}
	for stage, at := range first {
		f["stages_s"] += last[stage].Sub(at).Seconds()
	}
	return f, nil
}

func scaleYARN(ctx context.Context, r *experiment.Run) (experiment.Figures, error) {
	return scale(r, yarnPrograms(), func(p scaled, on cell, names []string) (f experiment.Figures, err error) {
		_, textErr := hadoop.Text{Files: on.size, Bytes: yarnBytes, Topical: 0.5, Seed: r.Seed}.Write(r.Path("text"))
		if err := errors.Join(textErr, writeTera(r.Path("tera"), on.size)); err != nil {
			return nil, err
		}
		nodes := []hadoop.Node{{Name: "master", MemoryMB: yarnMaster, VCores: 1}}
		for _, name := range names {
			nodes = append(nodes, hadoop.Node{Name: name, MemoryMB: yarnMap, VCores: 1, Wrap: cluster.OnNode(r.Program("powerlab"), r.Path("nodes"), name)})
		}
		c, err := harness.StartHadoop(ctx, r, hadoop.Config{Nodes: nodes})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		got, err := c.Run(ctx, scaledJob(p.name, on.size, r))
		if err == nil && (!got.Succeeded() || got.History == nil) {
			err = fmt.Errorf("scaling: %s: %s %s", got.Application, got.FinalStatus, got.Diagnostics)
		}
		if err != nil {
			return nil, err
		}
		return workloads(got.History, on.units)
	})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// workloads are the parts of a MapReduce job: its maps, from their last end on its reducer, and the rest.
func workloads(h *jhist.History, units int) (experiment.Figures, error) {
	maps, reduces := h.Of("MAP", "SUCCEEDED"), h.Of("REDUCE", "SUCCEEDED")
	if len(maps) == 0 || h.Submitted.IsZero() || h.Ended.IsZero() {
		return nil, errors.New("scaling: the job's history is incomplete")
	}
	f, longest, end := experiment.Figures{"serial_s": 0}, 0.0, maps[0].Finished
	for _, a := range maps {
		took := a.Finished.Sub(a.Started).Seconds()
		f["parallel_s"] += took
		longest = max(longest, took)
		end = later(end, a.Finished)
	}
	for _, a := range reduces {
		f["serial_s"] = max(f["serial_s"], a.Finished.Sub(later(a.Started, end)).Seconds())
	}
	f["slowest_s"] = max(longest, f["parallel_s"]/float64(units))
	f["rest_s"] = max(0, h.Ended.Sub(h.Submitted).Seconds()-f["slowest_s"]-f["serial_s"])
	return f, nil
}

// scaledJob is a program over n files, a map each. The reducer starts after the last map, so that it takes no map's container.
func scaledJob(program string, n int, r *experiment.Run) hadoop.Job {
	out := r.Path("out")
	j := hadoop.Job{
		Program: program, Queue: "q1", Args: []string{r.Path("text"), out},
		Properties: map[string]string{"mapreduce.job.reduces": "1", "mapreduce.job.reduce.slowstart.completedmaps": "1.0"},
	}
	switch program {
	case "qmc":
		j.Program, j.Args = "pi", []string{strconv.Itoa(n), strconv.Itoa(yarnSamples)}
	case "sort":
		const io, lib = "org.apache.hadoop.io.Text", "org.apache.hadoop.mapreduce.lib."
		j.Args = append([]string{"-r", "1", "-inFormat", lib + "input.KeyValueTextInputFormat", "-outFormat", lib + "output.TextOutputFormat", "-outKey", io, "-outValue", io}, j.Args...)
	case "terasort":
		j.Args[0] = r.Path("tera")
	}
	return j
}

// writeTera writes n files of TeraSort's records, a map each.
func writeTera(dir string, n int) error {
	const row, key = 100, 10
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file := range n {
		random := rand.NewChaCha8([32]byte{byte(file)})
		var b bytes.Buffer
		record := make([]byte, row)
		for range yarnBytes / row {
			_, _ = random.Read(record[:key]) // it never fails
			b.Write(record)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part-%05d", file)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
