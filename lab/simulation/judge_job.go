package simulation

//headroom:judge

import (
	"math"

	"headroom/ledger"
)

// jobJudge is promise P9 written a second time, task by task and from the entries
// alone: no job ever has more tasks dropped than its floor leaves, and a task that was
// dropped, or answered to a scheduler as dropped, stays so. Tasks that a drop ratio
// leaves out count as dropped; a ratio never falls, and its seed stays.
type jobJudge struct {
	jobs map[string]*jobBook
}

// jobBook is what the entries record about one job.
type jobBook struct {
	floor   float64 // as the job was accepted with
	tasks   uint32  // as in its first early stop
	dropped map[uint32]bool
	// theta and seed are those of the newest entry about them; deflated is true if there is one.
	theta    float64
	seed     uint64
	deflated bool
}

// restored begins again from a recovered state: what was committed after its snapshot
// is not known any more.
func (k *jobJudge) restored(s *ledger.State) {
	k.jobs = map[string]*jobBook{}
	for id, j := range s.Jobs {
		b := &jobBook{floor: j.Floor, dropped: map[uint32]bool{}}
		if j.Stop != nil {
			b.tasks = j.Stop.Tasks
		}
		b.drop(j.Dropped)
		if d := j.Deflation; d != nil {
			b.theta, b.seed, b.deflated = d.Theta, d.Seed, true
		}
		k.jobs[id] = b
	}
}

func (b *jobBook) drop(ranges []ledger.TaskRange) {
	for _, r := range ranges {
		for task := r.First; task <= r.Last; task++ {
			b.dropped[task] = true
		}
	}
}

// applied takes an entry into the books, and holds the log against them.
func (k *jobJudge) applied(j *judge, c ledger.Command) {
	switch {
	case c.Job != nil && k.jobs[c.Job.ID] == nil:
		k.jobs[c.Job.ID] = &jobBook{floor: c.Job.Floor, dropped: map[uint32]bool{}}
		j.w.hit("job_accepted")
	case c.StopJob != nil && k.jobs[c.StopJob.ID].tasks == 0:
		k.jobs[c.StopJob.ID].tasks = c.StopJob.Tasks
		j.w.hit("job_stopped")
	case c.StopJob != nil:
		j.w.hit("job_stop_raised")
	case c.DropTasks != nil:
		k.jobs[c.DropTasks.ID].drop(c.DropTasks.Ranges)
		j.w.hit("tasks_dropped")
	case c.DeflateJob != nil:
		k.deflated(j, c.DeflateJob)
	case c.Finish != nil:
		j.w.hit("job_ended")
	case c.Lead == nil:
		return // nothing else is about jobs
	}
	for _, id := range sortedKeys(k.jobs) {
		k.look(j, id)
	}
}

// look holds one job of the log against its book.
func (k *jobJudge) look(j *judge, id string) {
	b, now := k.jobs[id], map[uint32]bool{}
	job, known := j.state.Jobs[id]
	if !known {
		j.broken("P9", "%s is missing in the log", id)
		return
	}
	for _, r := range job.Dropped {
		for task := r.First; task <= r.Last; task++ {
			now[task] = true
		}
	}
	out, tasks := k.ratio(j, id), b.tasks
	if namesDrops(id) && b.deflated { // what its ratio leaves out is what is recorded
		out, tasks = 0, jobTasks(id)
	}
	if left := float64(tasks) - float64(len(now)+out); len(now) > 0 && left < b.floor*float64(tasks)-1e-9 {
		j.broken("P9", "%s has dropped %d of its %d tasks; its floor is %v of them", id, len(now)+out, tasks, b.floor)
	}
	for task := range b.dropped {
		if !now[task] {
			j.broken("P9", "%s has a dropped task that is no longer dropped", id)
			return
		}
	}
	if len(now) != len(b.dropped) {
		j.broken("P9", "%s has dropped %d tasks; by the entries it is %d", id, len(now), len(b.dropped))
	}
}

// deflated takes a drop ratio into the books.
func (k *jobJudge) deflated(j *judge, x *ledger.DeflateJob) {
	b := k.jobs[x.ID]
	if b.deflated && (x.Theta < b.theta || x.Seed != b.seed) {
		j.broken("P9", "%s had a drop ratio of %v with seed %d, and then of %v with seed %d", x.ID, b.theta, b.seed, x.Theta, x.Seed)
	}
	if b.deflated && x.Theta > b.theta {
		j.w.hit("job_deflation_raised")
	}
	b.theta, b.seed, b.deflated = x.Theta, x.Seed, true
	j.w.hit("job_deflated")
}

// ratio holds the drop ratio of one job of the log against its book. out is how many of
// its tasks the ratio leaves out.
func (k *jobJudge) ratio(j *judge, id string) (out int) {
	b, now := k.jobs[id], j.state.Jobs[id].Deflation
	if b.deflated != (now != nil) || now != nil && (now.Theta != b.theta || now.Seed != b.seed) {
		j.broken("P9", "%s has the drop ratio %+v; by the entries it is %v with seed %d", id, now, b.theta, b.seed)
	}
	tasks := jobTasks(id)
	left := int(math.Ceil(float64(tasks)*(1-b.theta) - 1e-6))
	if float64(left) < b.floor*float64(tasks)-1e-6 {
		j.broken("P9", "%s runs %d of its %d tasks with its drop ratio of %v; its floor is %v of them", id, left, tasks, b.theta, b.floor)
	}
	return int(tasks) - left
}

// told learns that a scheduler was answered that tasks are dropped.
func (k *jobJudge) told(j *judge, x *ledger.DropTasks) {
	b := k.jobs[x.ID]
	for _, r := range x.Ranges {
		for task := r.First; task <= r.Last; task++ {
			if b == nil || !b.dropped[task] {
				j.broken("P9", "task %d of %s was reported as dropped, but is not dropped in the log", task, x.ID)
				return
			}
		}
	}
}
