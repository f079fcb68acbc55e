package dias

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/lab/report"
	"headroom/lab/spark"
)

// Job times for Figs. 4 and 5 for real: word popularity on an unmodified Spark with two
// slots, over two inputs whose sizes differ as the paper's do, one job after the other.

// The shape of the recorded runs. Ten partitions on two slots are waves of 5, 5, 4, 3, 2, 1
// and 1 at the ratios of Figs. 4 and 5.
const (
	timesSlots, timesPartitions, timesReduces = 2, 10, 4
	// timesLow is the low class's input; the high class's is smaller by the paper's 1117 MB to 473 MB.
	timesLow = 36 << 20
	// profiledRuns is how many runs of a class the model is fitted to at each of the two ratios
	// of the paper's profiling, judgedRuns how many it is judged on at each of all ratios.
	profiledRuns, judgedRuns = 3, 2
	timesMost                = 2 * time.Minute // of one job
	waitSpark                = time.Minute
)

// profiledRatios are those of the runs that the model is fitted to, in percent (section 4.3).
func profiledRatios() []int { return []int{0, 90} }

// sparkTimes is the engine spark-times: it records the runs and judges the model on them.
func (o *options) sparkTimes(ctx context.Context, progress io.Writer) ([]report.Target, error) {
	real, err := newReal(o, progress, "spark-times", "headroom-spark.jar", "headroom-spark-apps.jar")
	if err != nil {
		return nil, err
	}
	r := &realRun{Real: real}
	defer r.Remove()
	release, err := r.Spark(ctx)
	if err != nil {
		return nil, err
	}
	made, err := r.times(ctx, release)
	if err != nil {
		return nil, err
	}
	if err := o.Keep(report.Files{"spark.json": made.write}); err != nil {
		return nil, err
	}
	return made.judge(ctx, o.Seed, o.Seeds, o.jobs)
}

// times runs all jobs on a Spark of their own.
func (r *realRun) times(ctx context.Context, release spark.Release) (made *record, err error) {
	made = &record{
		Made:  fmt.Sprintf("powerlab paper dias --engine spark-times: word popularity over made-up posts, on %d CPUs of one machine that does other work too", runtime.NumCPU()),
		Spark: release.Version, Slots: timesSlots, Partitions: timesPartitions, Reduces: timesReduces, Bytes: map[string]int64{},
	}
	for class, size := range map[string]int64{"low": timesLow, "high": timesLow * 473 / 1117} {
		made.Bytes[class] = size
		if _, err := (spark.Posts{Bytes: size, Topical: 0.3, Seed: r.Seed}).Write(r.Path(class + ".xml")); err != nil {
			return nil, err
		}
	}
	nodes := spark.Nodes(1)
	nodes[0].Cores = timesSlots
	starting, cancel := context.WithTimeout(ctx, waitSpark)
	defer cancel()
	c, err := spark.Start(starting, spark.Config{Dir: r.Path("spark"), Release: release, Nodes: nodes, Plugin: r.Program("headroom-spark.jar")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	warm := recordedRun{Class: "low", Use: judged, Seed: r.Seed} // what is read the first time comes from the disk
	if err := r.time(ctx, c, &warm); err != nil {
		return nil, fmt.Errorf("dias: the first job: %w", err)
	}
	for _, x := range planned(r.Seed) {
		if err := r.time(ctx, c, &x); err != nil {
			return nil, fmt.Errorf("dias: %s at %d %%: %w", x.Class, x.Percent, err)
		}
		made.Runs = append(made.Runs, x)
	}
	return made, nil
}

// planned are the runs in the order in which they are made: by chance, so that what else
// the machine does strikes all of them alike.
func planned(seed uint64) (all []recordedRun) {
	const repeats uint64 = max(profiledRuns, judgedRuns)
	for repeat := range repeats {
		for _, class := range classNames() {
			for _, percent := range profiledRatios() {
				if repeat < profiledRuns {
					all = append(all, recordedRun{Class: class, Use: calibrate, Percent: percent, Seed: seed + repeat})
				}
			}
			for _, percent := range recordedRatios() {
				if repeat < judgedRuns {
					all = append(all, recordedRun{Class: class, Use: judged, Percent: percent, Seed: seed + profiledRuns + repeat})
				}
			}
		}
	}
	rand.New(rand.NewPCG(seed, 98)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// time runs one job and takes its times from Spark's event log.
func (r *realRun) time(ctx context.Context, c *spark.Cluster, x *recordedRun) error {
	ctx, cancel := context.WithTimeout(ctx, timesMost)
	defer cancel()
	x.Load = loadNow()
	drop := spark.Drop{Theta: float64(x.Percent) / 100, Seed: x.Seed}
	answer, result, err := c.Ask(ctx, spark.WordPopularity(r.Program("headroom-spark-apps.jar"), r.Path(x.Class+".xml"), timesPartitions, sparkTop, drop))
	if err != nil {
		return err
	}
	x.Kept, x.Job = answer.Kept, round(result.Elapsed.Seconds())
	maps, reduces := stagesOf(result.Log.Tasks)
	if len(maps) == 0 || len(reduces) == 0 {
		return fmt.Errorf("%w: the event log has %d map and %d reduce tasks", errRecord, len(maps), len(reduces))
	}
	for _, t := range maps {
		x.Tasks = append(x.Tasks, round(t.Ended.Sub(t.Begun).Seconds()))
	}
	x.Setup, x.Maps = round(begin(maps).Sub(result.Began).Seconds()), round(end(maps).Sub(begin(maps)).Seconds())
	x.Shuffle, x.Reduce = round(begin(reduces).Sub(end(maps)).Seconds()), round(end(reduces).Sub(begin(reduces)).Seconds())
	r.Note("%s, %s: %d %% dropped, %d map tasks, %.1f s (setup %.1f, maps %.1f, reduces %.1f)", x.Class, x.Use, x.Percent, x.Kept, x.Job, x.Setup, x.Maps, x.Reduce)
	return nil
}

// stagesOf are the tasks of the first stage, and of all others.
func stagesOf(tasks []spark.TaskRecord) (maps, reduces []spark.TaskRecord) {
	first := func(t spark.TaskRecord) bool { return t.Stage == 0 }
	return slices.DeleteFunc(slices.Clone(tasks), func(t spark.TaskRecord) bool { return !first(t) }), slices.DeleteFunc(slices.Clone(tasks), first)
}

func begin(tasks []spark.TaskRecord) time.Time {
	return slices.MinFunc(tasks, func(a, b spark.TaskRecord) int { return a.Begun.Compare(b.Begun) }).Begun
}

func end(tasks []spark.TaskRecord) time.Time {
	return slices.MaxFunc(tasks, func(a, b spark.TaskRecord) int { return a.Ended.Compare(b.Ended) }).Ended
}

// round leaves milliseconds, which is what Spark's clock has.
func round(s float64) float64 { return float64(int(s*1000+0.5)) / 1000 }

// loadNow is the machine's load average over the last minute, 0 where it is not told.
func loadNow() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
