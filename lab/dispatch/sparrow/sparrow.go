package sparrow

// ProbesPerTask is how many workers are probed for each task: the paper's power of two choices.
const ProbesPerTask = 2

// Source gives random numbers, as math/rand/v2's Rand does.
type Source interface{ IntN(n int) int }

// Sampler draws distinct random workers.
type Sampler struct {
	random Source
	order  []int // a permutation of the workers, drawn anew bit by bit
	drawn  []int
}

// NewSampler returns a Sampler of the workers from first on, so many.
func NewSampler(random Source, first, workers int) *Sampler {
	s := &Sampler{random: random, order: make([]int, workers)}
	for i := range s.order {
		s.order[i] = first + i
	}
	return s
}

// Draw returns n workers, valid until the next call. They are distinct; where n is more than there are, each is there as often as the others,
// but for one more of some.
func (s *Sampler) Draw(n int) []int {
	s.drawn = s.drawn[:0]
	for n > 0 && len(s.order) > 0 {
		part := min(n, len(s.order))
		for i := range part {
			j := i + s.random.IntN(len(s.order)-i)
			s.order[i], s.order[j] = s.order[j], s.order[i]
		}
		s.drawn = append(s.drawn, s.order[:part]...)
		n -= part
	}
	return s.drawn
}

// Job names a job within its Jobs. It is never used again.
type Job uint64

// Jobs are the tasks of a scheduler's jobs for which no worker has asked yet.
type Jobs[T any] struct {
	jobs   []job[T]
	unused []uint32
}

type job[T any] struct {
	generation uint32
	next       int
	tasks      []T
}

const generationShift = 32

// Submit takes a copy of a job's tasks.
func (j *Jobs[T]) Submit(tasks []T) Job {
	var at uint32
	if n := len(j.unused); n > 0 {
		at, j.unused = j.unused[n-1], j.unused[:n-1]
	} else {
		at = uint32(len(j.jobs))
		j.jobs = append(j.jobs, job[T]{})
	}
	x := &j.jobs[at]
	x.generation++
	x.next, x.tasks = 0, append(x.tasks[:0], tasks...)
	if len(tasks) == 0 {
		j.unused = append(j.unused, at)
	}
	return Job(x.generation)<<generationShift | Job(at)
}

// Bind returns the next task of a job for a worker that asks; false if none is left.
func (j *Jobs[T]) Bind(id Job) (task T, ok bool) {
	if j.Left(id) == 0 {
		return task, false
	}
	x := &j.jobs[uint32(id)]
	task = x.tasks[x.next]
	if x.next++; x.next == len(x.tasks) {
		j.unused = append(j.unused, uint32(id))
	}
	return task, true
}

// Left returns how many tasks of a job no worker has asked for.
func (j *Jobs[T]) Left(id Job) int {
	at := uint32(id)
	if int64(at) >= int64(len(j.jobs)) || j.jobs[at].generation != uint32(id>>generationShift) {
		return 0
	}
	return len(j.jobs[at].tasks) - j.jobs[at].next
}

// Node is a worker with one slot and a queue of probes. P is what a probe says, such as whom to ask. Its zero value is idle and ready.
type Node[P any] struct {
	queue []P
	head  int
	busy  bool
}

// Probe queues a probe.
func (n *Node[P]) Probe(p P) { n.queue = append(n.queue, p) }

// Waiting returns how many probes wait.
func (n *Node[P]) Waiting() int { return len(n.queue) - n.head }

// Next returns the probe whose scheduler is to be asked for a task; false if none waits or the slot is in use. The slot is in use from
// then until Free.
func (n *Node[P]) Next() (p P, ok bool) {
	if n.busy || n.Waiting() == 0 {
		return p, false
	}
	p = n.queue[n.head]
	if n.head++; n.head == len(n.queue) {
		n.queue, n.head = n.queue[:0], 0
	} else if n.head > len(n.queue)/2 {
		n.queue = n.queue[:copy(n.queue, n.queue[n.head:])]
		n.head = 0
	}
	n.busy = true
	return p, true
}

// Free states that the task has ended or that there was none.
func (n *Node[P]) Free() { n.busy = false }
