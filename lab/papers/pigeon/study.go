package pigeon

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"

	"headroom/internal/cli"
	"headroom/lab/dispatch"
	"headroom/lab/papers"
	"headroom/lab/quantiles"
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
	setup
}

// scene is an experiment: jobs, and what dispatches them, each on the same jobs.
type scene struct {
	name string
	// draw gives the jobs of a seed.
	draw func(seed uint64) []traces.Job
	// cutoff is the longest mean time of a short job, s; jobs are judged by it, whatever a policy takes them for.
	cutoff float64
	// warm is the part of the jobs that come first and are not judged: the cluster starts empty.
	warm float64
	runs []run
}

// percentileCount is how many percentiles the paper judges by.
const percentileCount = 3

// percentiles are those that the paper judges by.
func percentiles() [percentileCount]float64 { return [percentileCount]float64{0.5, 0.9, 0.99} }

func percentileNames() [percentileCount]string { return [percentileCount]string{"p50", "p90", "p99"} }

// class is what the jobs of a class took.
type class struct {
	jobs uint64
	// took are the percentiles of completion times, s, and slow those over the same percentiles of the longest tasks; NaN without jobs.
	took, slow [3]float64
}

// measured is the result of a run.
type measured struct {
	short, long class
	// zero is the part of the jobs that end as if they were alone, and wait the mean time that jobs take beyond that, s.
	zero, wait float64
	// reached is the load that the jobs offer: their work over the time they arrive in, over all workers.
	reached float64
}

// key names a run of a scene.
type key struct{ scene, run string }

// trial has all runs of one seed.
type trial map[key]measured

// meter collects the completions of a run.
type meter struct {
	took, alone [2]quantiles.Sketch
	zeros, all  int
	wait        float64
}

// messages is how many of them a task needs, one after the other: to a master, to a worker, and back.
const messages = 3

// slack is what rounding leaves of the time of a job that waits for nothing, s.
const slack = 1e-6

// add counts a job that took so long and whose longest task took alone, s.
func (m *meter) add(short bool, took, alone, hop float64) {
	c := 1
	if short {
		c = 0
	}
	m.took[c].Add(took)
	m.alone[c].Add(alone)
	m.all++
	over := took - alone - messages*hop
	m.wait += max(0, over)
	if over < slack {
		m.zeros++
	}
}

func (m *meter) class(i int) class {
	c := class{jobs: m.took[i].Count()}
	for k, q := range percentiles() {
		took, ok := m.took[i].Quantile(q)
		alone, _ := m.alone[i].Quantile(q)
		if c.took[k], c.slow[k] = took, took/alone; !ok {
			c.took[k], c.slow[k] = math.NaN(), math.NaN()
		}
	}
	return c
}

// measure runs the jobs of a scene by one policy.
func (s *scene) measure(ctx context.Context, r run, jobs []traces.Job, seed uint64) (measured, error) {
	m := meter{}
	first := int(s.warm * float64(len(jobs)))
	err := r.dispatch(ctx, jobs, seed, func(job int, took float64) {
		if job >= first {
			m.add(jobs[job].Mean <= s.cutoff, took, slices.Max(jobs[job].Times), r.Hop)
		}
	})
	if err != nil {
		return measured{}, fmt.Errorf("%s, %s: %w", s.name, r.name, err)
	}
	work := 0.0
	for i := range jobs {
		work += jobs[i].Work()
	}
	out := measured{short: m.class(0), long: m.class(1), reached: work / (jobs[len(jobs)-1].Arrival * float64(r.Workers))}
	out.zero, out.wait = float64(m.zeros)/float64(m.all), m.wait/float64(m.all)
	return out, nil
}

// runAll runs all scenes on all seeds, on all cores.
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

func modelGroups() []int       { return []int{50, 75, 100, 150, 200} }
func modelLoads() []float64    { return []float64{0.8, 0.9} }
func percent(x float64) string { return strconv.Itoa(int(math.Round(100 * x))) }

func modelName(size int, load float64) string { return fmt.Sprintf("model-%d-%s", size, percent(load)) }

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
				draw: func(seed uint64) []traces.Job {
					return equal(seed, count, modelFanout, modelTask, load*modelWorkers)
				},
				runs: []run{{pigeonName, setup{Policy: dispatch.Pigeon, Workers: modelWorkers, Groups: modelWorkers / size, Cutoff: math.MaxFloat64, Hop: hop, Distributors: 1}}},
			})
		}
	}
	return all
}

// groupSize is the paper's choice.
const groupSize = 100

// grouped is Pigeon in groups of a size, with a part of the workers reserved, at least one.
func (p published) grouped(name string, size, w int) run {
	reserved := max(1, int(math.Round(p.pigeon*float64(size))))
	return run{name, setup{
		Policy: dispatch.Pigeon, Workers: p.size() / size * size, Groups: p.size() / size, Reserved: reserved, W: w, Cutoff: p.cutoff, Hop: hop, Distributors: 1,
	}}
}

// probing is Eagle or Sparrow on the same workers.
func (p published) probing(policy dispatch.Policy) run {
	return run{string(policy), setup{
		Policy: policy, Workers: p.size(), Groups: 1, Reserved: int(math.Round(p.eagle * float64(p.size()))), Cutoff: p.cutoff, Hop: hop, Distributors: 1,
	}}
}

// weights are the W that the study tries beside the strict one, 0.
func weights() []int { return []int{5, 10, 20} }

const strict = 0

func weighted(w int) string {
	if w == strict {
		return "pigeon-strict"
	}
	return "pigeon-w" + strconv.Itoa(w)
}

// sizes are some of the groups of Fig. 4.5, beside all workers in one.
func sizes() []int { return []int{25, 50, groupSize} }

// sized is Pigeon at W = 20 in groups of a size.
func sized(size int) string {
	if size == groupSize {
		return weighted(20)
	}
	return "pigeon-of-" + strconv.Itoa(size)
}

// generatedScenes are the scenes of the generated traces.
func generatedScenes(tasks int) (all []scene) {
	for _, p := range allPublished() {
		s := scene{name: p.name, cutoff: p.cutoff, draw: func(seed uint64) []traces.Job { return p.generate(seed, tasks) }}
		for _, w := range append(weights(), strict) {
			s.runs = append(s.runs, p.grouped(weighted(w), groupSize, w))
		}
		s.runs = append(s.runs, p.probing(dispatch.Eagle))
		if p.name == cloudera().name {
			for _, size := range append(sizes(), p.size()) {
				if size != groupSize {
					s.runs = append(s.runs, p.grouped(sized(size), size, 20))
				}
			}
		}
		all = append(all, s)
	}
	return all
}
