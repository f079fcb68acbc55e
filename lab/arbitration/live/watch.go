package live

import (
	"fmt"
	"maps"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/arbitration"
)

// watch is what was seen of a run so far: one look at the scheduler after the other. It reads no clock.
type watch struct {
	jobs      []arrival
	index     map[string]int // by job id
	submitted []time.Duration
	seen      []int     // tasks done
	work      []float64 // the same, with the parts done of running tasks where the engine tells
	served    []arbitration.Served
	sprinted  []bool
	ended     []bool
	done      int

	// busy is how many tasks keep a node's CPUs busy.
	busy int
	// each is the part of what they are rated that the nodes may hold now; paces are by that.
	each  float64
	paces map[float64]pace
	last  moment
}

// pace is how much was done in how much time under equal budgets, with all nodes in a sprint and with none.
type pace struct{ fast, base total }

type total struct {
	work float64 // tasks
	time time.Duration
}

// moment is what a look showed of the cluster.
type moment struct {
	at   time.Duration
	each float64
	work float64 // done since the run began, in tasks
	// full is true where every node had enough tasks: then it does as much as its cap lets it.
	full      bool
	sprinting int // nodes
	known     bool
}

func newWatch(jobs []arrival, busy int) *watch {
	n := len(jobs)
	return &watch{
		busy: busy, jobs: jobs, index: map[string]int{}, submitted: make([]time.Duration, n), seen: make([]int, n), work: make([]float64, n), served: make([]arbitration.Served, n),
		sprinted: make([]bool, n), ended: make([]bool, n), paces: map[float64]pace{},
	}
}

// submit notes that a job was handed in; at is the time since the run began.
func (w *watch) submit(i int, id string, at time.Duration) {
	w.index[id], w.submitted[i] = i, at
}

// look records the scheduler's state. A job that has not ended as it should is an error.
func (w *watch) look(at time.Duration, l *headroomv1.ListResponse) error {
	now := moment{at: at, each: w.each, known: true, work: w.last.work}
	fast, running := map[string]bool{}, map[string]int{}
	for _, run := range l.GetRuns() {
		if i, ok := w.index[run.GetId()]; ok && run.GetSprint() != nil {
			w.sprinted[i] = true
			for _, n := range run.GetSprint().GetNodes() {
				fast[n] = true
			}
		}
	}
	now.sprinting = len(fast)
	for _, j := range l.GetJobs() {
		i, ok := w.index[j.GetId()]
		if !ok || w.ended[i] {
			continue
		}
		p := j.GetProgress()
		for node, n := range p.GetRunningOn() {
			running[node] += int(n)
		}
		w.seen[i] = max(w.seen[i], int(p.GetDone()))
		more := max(0, max(p.GetWork(), float64(p.GetDone()))-w.work[i])
		w.work[i] += more
		now.work += more
		switch j.GetState() {
		case headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
			return fmt.Errorf("arbitrate: job %s: %s", j.GetId(), j.GetOutcome())
		case headroomv1.JobState_JOB_STATE_DONE:
			w.end(i, at, int(p.GetDropped()))
		default:
		}
	}
	now.full = len(running) == nodes
	for _, n := range running {
		now.full = now.full && n >= w.busy
	}
	w.count(now)
	w.last = now
	return nil
}

// end notes that a job is done, of whose tasks its engine says that so many were dropped. An engine may count tasks that are
// not of its input as done, and may not say what was dropped: the larger number counts.
func (w *watch) end(i int, at time.Duration, dropped int) {
	s := &w.served[i]
	s.Job, s.Took = w.jobs[i].Job, at-w.submitted[i]
	s.Dropped = min(s.Tasks, max(0, dropped, s.Tasks-w.seen[i]))
	s.Done = s.Tasks - s.Dropped
	w.ended[i] = true
	w.done++
}

// count adds the time since the look before to the paces, where the cluster was full all the while, under one budget, and
// either all of its nodes were in a sprint or none was.
func (w *watch) count(now moment) {
	was := w.last
	if !was.known || !was.full || !now.full || was.each != now.each || was.sprinting != now.sprinting {
		return
	}
	p, more := w.paces[now.each], total{now.work - was.work, now.at - was.at}
	switch now.sprinting {
	case nodes:
		p.fast.add(more)
	case 0:
		p.base.add(more)
	}
	w.paces[now.each] = p
}

func (t *total) add(more total) {
	t.work += more.work
	t.time += more.time
}

// What a speed-up is told from: the least time with and without sprints under equal budgets, and the least work in each of
// them, in tasks.
const (
	paceLeast = 5 * time.Second
	workLeast = 2
)

// speedUp returns how many times as many tasks were done in a second of sprint as without, under equal budgets; not
// known where there was too little of either. Budgets weigh by their time in sprints.
func (w *watch) speedUp() (times float64, known bool) {
	sum, weight := 0.0, 0.0
	for _, each := range slices.Sorted(maps.Keys(w.paces)) {
		p := w.paces[each]
		if min(p.fast.time, p.base.time) < paceLeast || min(p.fast.work, p.base.work) < workLeast {
			continue
		}
		s := p.fast.time.Seconds()
		sum, weight = sum+s*p.fast.rate()/p.base.rate(), weight+s
	}
	if weight == 0 {
		return 0, false
	}
	return sum / weight, true
}

func (t *total) rate() float64 { return t.work / t.time.Seconds() }
