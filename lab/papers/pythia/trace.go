package pythia

import (
	"math"
	"math/rand/v2"
	"slices"

	"headroom/lab/admit"
	"headroom/lab/traces"
)

// How jobs of SWIM, of which only bytes are known, become tasks: HDFS blocks, each read by a map task at the rate of one disk
// shared by the tasks of a node, and the start of a container.
const (
	swimBlock = 128 << 20
	swimRate  = 20e6 // bytes a second
	swimStart = 2    // s
)

// Which parts of the peak demand of a trace are the capacities: those of the paper's tightest, the one after it, and its
// largest, over TR1's peak.
func parts() [3]float64 { return [3]float64{2250. / tr1Peak, 4500. / tr1Peak, 15_000. / tr1Peak} }

// traced reads a trace. A seed begins it at another job and wraps around, so that all seeds have the same jobs in
// the same order, and another history behind each.
func traced(name string, f *traces.File) (*source, error) {
	var jobs []admit.Job
	var d demand
	if f.Swim {
		for v, err := range traces.Volumes(f, f.Name()) {
			if err != nil {
				return nil, err
			}
			tasks := v.Tasks(swimBlock)
			work := v.Work(tasks, swimRate, swimStart)
			jobs = append(jobs, admit.Job{Tasks: tasks, Arrival: v.Arrival, Deadline: work / float64(tasks), Work: work})
			d.add(v.Arrival, tasks, work/float64(tasks))
		}
	} else {
		for j, err := range traces.Tasks(f, f.Name()) {
			if err != nil {
				return nil, err
			}
			tasks, work := len(j.Times), max(j.Work(), leastWork)
			jobs = append(jobs, admit.Job{Tasks: tasks, Arrival: j.Arrival, Deadline: work / float64(tasks), Work: work})
			for _, t := range j.Times {
				d.add(j.Arrival, 1, t)
			}
		}
	}
	s := &source{name: name, traced: true, draw: func(seed uint64) []admit.Job { return rotate(jobs, seed) }}
	peak := float64(d.peak())
	for i, part := range parts() {
		s.capacities[i] = max(1, int(math.Round(part*peak)))
	}
	return s, nil
}

// leastWork stands for the work of jobs whose tasks take no time in the trace, s.
const leastWork = 1e-3

// rotate begins a trace at another job; the gap at the seam is the mean one.
func rotate(jobs []admit.Job, seed uint64) []admit.Job {
	n := len(jobs)
	by := rand.New(rand.NewPCG(seed, jobStream)).IntN(n)
	first, span := jobs[by].Arrival, jobs[n-1].Arrival-jobs[0].Arrival
	out := slices.Concat(jobs[by:], jobs[:by])
	for i := range out {
		out[i].Arrival -= first
		if i >= n-by {
			out[i].Arrival += span + span/float64(n)
		}
	}
	return out
}

// demand counts tasks that would run at once if each ran when its job arrives.
type demand struct{ changes []step }

type step struct {
	at float64
	by int
}

func (d *demand) add(at float64, tasks int, length float64) {
	d.changes = append(d.changes, step{at, tasks}, step{at + length, -tasks})
}

// peak is the most at once; what ends at a time has left what begins then.
func (d *demand) peak() (most int) {
	slices.SortFunc(d.changes, func(a, b step) int {
		if a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return a.by - b.by
	})
	now := 0
	for _, s := range d.changes {
		now += s.by
		most = max(most, now)
	}
	return most
}
