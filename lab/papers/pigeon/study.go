// Package pigeon is `powerlab paper pigeon`: the experiments of Pigeon (Li's dissertation, chapter
// 4; Wang, Li et al., SoCC 2019), a scheduler that splits the tasks of a job over groups of
// workers, each with a master and a queue per priority. Only messages and tasks are simulated: the
// policies are those of jobs/dispatch, driven by package dispatch of the lab. All get the same jobs.
package pigeon

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/dispatch"
	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
	"headroom/lab/traces"
)

// The runs that have the name of their policy.
const (
	pigeonName = string(dispatch.Pigeon)
	eagle      = string(dispatch.Eagle)
	sparrow    = string(dispatch.Sparrow)
)

// hop is the time of a message between two nodes, s.
const hop = dispatch.HopUsual

// run is one way to dispatch the jobs of a scene.
type run struct {
	name string
	dispatch.Setup
}

// scene is an experiment: jobs, and what dispatches them, each on the same jobs.
type scene struct {
	name   string
	draw   func(seed uint64) []traces.Job
	cutoff float64 // the longest mean time of a short job, s; jobs are judged by it, whatever a policy takes them for
	warm   float64 // the part of the jobs that come first and are not judged: the cluster starts empty
	runs   []run
}

// The classes of jobs.
const short, long = 0, 1

// percentileNames are those of the percentiles that the paper judges by.
func percentileNames() [3]string { return [3]string{"p50", "p90", "p99"} }

type measured struct {
	// took are the percentiles of the completion times of a class, s, and slow those over the same percentiles of the longest
	// tasks; NaN without jobs.
	took, slow [2][3]float64
	// zero is the part of the jobs that end as if they were alone, and wait the mean time that jobs take beyond that, s.
	zero, wait float64
}

type key struct{ scene, run string }

type trial map[key]measured

const (
	messages = 3    // that a task needs, one after the other: to a master, to a worker, and back
	slack    = 1e-6 // s, what rounding leaves of the time of a job that waits for nothing
)

// play dispatches jobs, and calls seen with each that ends and how long it took, s. Jobs are numbered from 0 in the order of the list.
func play(ctx context.Context, s dispatch.Setup, jobs []traces.Job, seed uint64, seen func(job int, took float64)) error {
	s.Seed = seed
	s.Ended = func(e dispatch.Ended) { seen(e.Index, e.Completion) }
	_, err := dispatch.Run(ctx, s, traces.All(jobs))
	return err
}

func (s *scene) measure(ctx context.Context, r run, jobs []traces.Job, seed uint64) (m measured, err error) {
	var took, alone [2][]float64
	first := int(s.warm * float64(len(jobs)))
	err = play(ctx, r.Setup, jobs, seed, func(job int, x float64) {
		if job < first {
			return
		}
		class, longest := short, slices.Max(jobs[job].Times)
		if jobs[job].Mean > s.cutoff {
			class = long
		}
		took[class], alone[class] = append(took[class], x), append(alone[class], longest)
		over := x - longest - messages*r.Hop
		m.wait += max(0, over)
		if over < slack {
			m.zero++
		}
	})
	if err != nil {
		return m, fmt.Errorf("%s, %s: %w", s.name, r.name, err)
	}
	n := float64(len(took[short]) + len(took[long]))
	m.zero, m.wait = m.zero/n, m.wait/n
	for class := range took {
		m.took[class] = percentiles(took[class])
		than := percentiles(alone[class])
		for i := range than {
			m.slow[class][i] = m.took[class][i] / than[i]
		}
	}
	return m, nil
}

// percentiles are those of values, interpolated between ranks. All but the least and the most are rounded to 0.1 %.
func percentiles(values []float64) (out [3]float64) {
	slices.Sort(values)
	const growth = 1.001 / 0.999
	fold := 1 / math.Log(growth)
	last := len(values) - 1
	ranked := func(i int) float64 {
		if i == 0 || i == last {
			return values[i]
		}
		x := 2 * math.Exp(math.Ceil(math.Log(values[i])*fold)/fold) / (1 + growth)
		return min(max(x, values[0]), values[last])
	}
	for i, q := range []float64{0.5, 0.9, 0.99} {
		if last < 0 {
			out[i] = math.NaN()
			continue
		}
		whole, part := math.Modf(q * float64(last))
		if out[i] = ranked(int(whole)); part > 0 {
			out[i] += part * (ranked(int(whole)+1) - out[i])
		}
	}
	return out
}

func runAll(ctx context.Context, scenes []scene, seed uint64, seeds int, progress io.Writer) ([]trial, error) {
	trials := make([]trial, seeds)
	for i := range trials {
		trials[i] = trial{}
	}
	var lock sync.Mutex
	n := len(scenes) * seeds
	err := papers.Each(n, func(i int) error {
		s, k := &scenes[i%len(scenes)], i/len(scenes)
		at := seed + uint64(k)
		jobs := s.draw(at)
		for _, r := range s.runs {
			got, err := s.measure(ctx, r, jobs, at)
			if err != nil {
				return err
			}
			lock.Lock()
			trials[k][key{s.name, r.name}] = got
			lock.Unlock()
		}
		return nil
	}, func(done int) { cli.Notef(progress, "%d of %d experiments done", done, n) })
	return trials, err
}

// modelWorkers and the others are the set-up of section 4.3. modelJobs at the load of 90 % take 44 times as long as a task, of which
// modelWarm is not judged; at 80 %, where queues are shorter and forget sooner, a third of the jobs is enough.
const (
	modelWorkers = 30_000
	modelFanout  = 100
	modelTask    = 0.1 // s
	modelJobs    = 12_000
	modelWarm    = 0.3
)

func modelGroups() []int    { return []int{50, 75, 100, 150, 200} }
func modelLoads() []float64 { return []float64{0.8, 0.9} }

func modelName(size int, load float64) string { return fmt.Sprintf("model-%d-%.0f", size, 100*load) }

// models are the scenes of the analysis: one class of jobs, none of whose tasks share a group.
func models(jobs int) (all []scene) {
	for _, size := range modelGroups() {
		for _, load := range modelLoads() {
			count := jobs
			if load < 0.9 {
				count = jobs / 3
			}
			all = append(all, scene{
				name: modelName(size, load), cutoff: math.Inf(1), warm: modelWarm,
				draw: func(seed uint64) []traces.Job { return equal(seed, count, modelFanout, modelTask, load*modelWorkers) },
				runs: []run{{pigeonName, setup(dispatch.Pigeon, modelWorkers, modelWorkers/size, 0, math.MaxFloat64)}},
			})
		}
	}
	return all
}

const (
	groupSize = 100 // the paper's choice
	strict    = 0   // the W of strict priority
)

func weighted(w int) string {
	if w == strict {
		return "pigeon-strict"
	}
	return "pigeon-w" + strconv.Itoa(w)
}

// generatedScenes are the scenes of the generated traces: Pigeon in groups with some W, and Eagle on as many workers.
func generatedScenes(tasks int) (all []scene) {
	for _, p := range allPublished() {
		s := scene{name: p.name, cutoff: p.cutoff, draw: func(seed uint64) []traces.Job { return p.generate(seed, tasks) }}
		for _, w := range []int{5, 10, 20, strict} {
			r := run{weighted(w), setup(dispatch.Pigeon, p.size()/groupSize*groupSize, p.size()/groupSize, part(p.pigeon, groupSize), p.cutoff)}
			r.W = w
			s.runs = append(s.runs, r)
		}
		s.runs = append(s.runs, run{eagle, setup(dispatch.Eagle, p.size(), 1, part(p.eagle, p.size()), p.cutoff)})
		all = append(all, s)
	}
	return all
}

// setup is how a policy dispatches on some workers by one distributor.
func setup(p dispatch.Policy, workers, groups, reserved int, cutoff float64) dispatch.Setup {
	return dispatch.Setup{Policy: p, Workers: workers, Groups: groups, Reserved: reserved, Cutoff: cutoff, Hop: hop, Distributors: 1}
}

// part is a part of some workers, at least one.
func part(x float64, workers int) int { return max(1, int(math.Round(x*float64(workers)))) }

// traced is an experiment on a published trace: its name, and that of the trace in package traces.
type traced struct {
	name, file      string
	workers, groups int
	pigeon, eagle   float64 // the parts of the workers that are reserved
	cutoff          float64
}

func googleLoads() []int { return []int{50, 60, 70, 80, 90} }
func yahooLoads() []int  { return []int{50, 70, 90} }

func googleName(load int) string { return "pigeon-google" + strconv.Itoa(load) }
func yahooName(load int) string  { return "pigeon-yahoo" + strconv.Itoa(load) }

// ec2Workers is how many workers the traces of section 4.5 run on, in three groups. Those made of Yahoo's jobs are meant for 330: only
// there do they offer the loads of their names.
const ec2Workers = 120

// tracedScenes are all of them. The clusters of the long traces have half as many workers as tasks would run at most at once if each
// ran when its job arrives. For the first of Yahoo's that is the size for which there are numbers.
func tracedScenes() (all []traced) {
	for _, load := range googleLoads() {
		all = append(all, traced{googleName(load), googleName(load), ec2Workers, 3, 0.1, 0.1, 1})
	}
	for _, load := range yahooLoads() {
		all = append(all, traced{yahooName(load), yahooName(load), 330, 3, 0.1, 0.1, 1})
	}
	y, g := allPublished()[0], allPublished()[2]
	return append(all,
		traced{"hawk-yahoo1", "yahoo1", 3600, 36, y.pigeon, y.eagle, y.cutoff},
		traced{"hawk-yahoo2", "yahoo2", 6000, 60, y.pigeon, y.eagle, y.cutoff},
		traced{"hawk-google", "google", 8000, 80, g.pigeon, g.eagle, g.cutoff},
	)
}

func (x traced) scene(jobs []traces.Job) scene {
	s := scene{name: x.name, cutoff: x.cutoff, draw: func(uint64) []traces.Job { return jobs }, runs: []run{
		{pigeonName, setup(dispatch.Pigeon, x.workers, x.groups, part(x.pigeon, x.workers/x.groups), x.cutoff)},
		{eagle, setup(dispatch.Eagle, x.workers, 1, part(x.eagle, x.workers), x.cutoff)},
		{sparrow, setup(dispatch.Sparrow, x.workers, 1, 0, x.cutoff)},
	}}
	for i := range s.runs {
		s.runs[i].Distributors = dispatch.DistributorsUsual
	}
	return s
}

// size is how many jobs the model has at its highest load, and how many tasks a generated trace.
type size struct{ jobs, tasks int }

// NewCommand is `powerlab paper pigeon`. Its size keeps the time short: Yahoo's trace has near a million tasks.
func NewCommand() *cobra.Command { return newCommand(size{modelJobs, 300_000}) }

func newCommand(n size) *cobra.Command {
	return papers.Study{
		Paper: "pigeon", Seeds: 3, Traces: true,
		Short: "Dispatch of many small tasks over groups of workers (Pigeon)",
		Long: `Repeats Pigeon's experiments (Li's dissertation, chapter 4): the worked example, the closed forms (4.1) to (4.6), the
simulation against them on 30,000 workers, and jobs of three traces under Pigeon, Eagle and Sparrow.

The paper's traces are only partly public. Jobs are generated with their published moments; Cloudera and Google are
scaled down, workers and tasks per job alike. --traces names a folder of published traces, and adds what is measured on
them:

  pigeon/NGO_trace50 to NGO_trace90                       Fig. 4.11, on 120 workers
  pigeon/NYH_trace50, NYH_trace70, NYH_trace90            on 330 workers, where they have the loads of their names
  hawk-format/YH1_sub.tr, YH2_sub.tr, GOOG_subtrace.tr    as published with Hawk, Eagle and Pigeon

Without it those targets are not_run. A seed draws the jobs and the policies' random choices; on a trace only the latter.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) {
			f, err := n.run(ctx, o)
			if err != nil {
				return nil, err
			}
			return &papers.Result{Targets: f.targets()}, nil
		},
		Left: specs.Left("pigeon", "sparrow", "eagle", "pigeon-power"),
	}.Command()
}

// run runs all experiments without any mistake. Traces are read before anything runs, so that a mistake in one costs no time.
func (n size) run(ctx context.Context, o *papers.Options) (*figures, error) {
	f := &figures{scenes: append(models(n.jobs), generatedScenes(n.tasks)...), forms: honestForms(), why: map[string]string{}}
	for _, x := range tracedScenes() {
		jobs, missing, err := o.Traces.Tasks(x.file, 0)
		if err != nil {
			return nil, err
		}
		if missing != "" {
			f.why[x.name] = missing
			continue
		}
		f.scenes = append(f.scenes, x.scene(jobs))
	}
	var err error
	if f.exact, err = honestExamples().targets(ctx); err != nil {
		return nil, err
	}
	f.trials, err = runAll(ctx, f.scenes, o.Seed, o.Seeds, o.Progress)
	return f, err
}
