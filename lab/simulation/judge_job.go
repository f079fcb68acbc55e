package simulation

//headroom:judge

import (
	"maps"
	"math"
	"slices"

	"headroom/ledger"
)

// jobBook is promise P9 written a second time, task by task: what the entries alone record about one job. No job ever has more tasks dropped
// than its floor leaves, and a task that was dropped, or answered to a scheduler as dropped, stays so. Tasks that a drop ratio leaves out
// count as dropped; a ratio never falls, and its seed stays.
type jobBook struct {
	floor   float64 // as the job was accepted with
	tasks   uint32  // as in its first early stop
	dropped map[uint32]bool
	ratio   *ledger.DeflateJob // of the newest entry about it, nil for none
}

// beginJobs takes over the jobs of the state.
func (j *judge) beginJobs() {
	j.jobs = map[string]*jobBook{}
	for id, job := range j.state.Jobs {
		b := &jobBook{floor: job.Floor, dropped: tasksOf(job.Dropped)}
		if d := job.Deflation; d != nil {
			b.ratio = &ledger.DeflateJob{Theta: d.Theta, Seed: d.Seed}
		}
		if job.Stop != nil {
			b.tasks = job.Stop.Tasks
		}
		j.jobs[id] = b
	}
}

func tasksOf(ranges []ledger.TaskRange) map[uint32]bool {
	tasks := map[uint32]bool{}
	for _, r := range ranges {
		for task := r.First; task <= r.Last; task++ {
			tasks[task] = true
		}
	}
	return tasks
}

// job takes an entry into the books, and holds the log against them.
func (j *judge) job(c ledger.Command) {
	switch {
	case c.Job != nil && j.jobs[c.Job.ID] == nil:
		j.jobs[c.Job.ID] = &jobBook{floor: c.Job.Floor, dropped: map[uint32]bool{}}
		j.w.hit("job_accepted")
	case c.StopJob != nil && j.jobs[c.StopJob.ID].tasks == 0:
		j.jobs[c.StopJob.ID].tasks = c.StopJob.Tasks
		j.w.hit("job_stopped")
	case c.StopJob != nil:
		j.w.hit("job_stop_raised")
	case c.DropTasks != nil:
		maps.Copy(j.jobs[c.DropTasks.ID].dropped, tasksOf(c.DropTasks.Ranges))
		j.w.hit("tasks_dropped")
	case c.DeflateJob != nil:
		j.deflated(c.DeflateJob)
	case c.Finish != nil:
		j.w.hit("job_ended")
	case c.Lead == nil:
		return // nothing else is about jobs
	}
	for _, id := range sortedKeys(j.jobs) {
		j.lookAt(id)
	}
}

// lookAt holds one job of the log against its book.
func (j *judge) lookAt(id string) {
	b := j.jobs[id]
	job, known := j.state.Jobs[id]
	if !known {
		j.broken("P9", "%s is missing in the log", id)
		return
	}
	now := tasksOf(job.Dropped)
	out, tasks := j.leftOut(id), b.tasks
	if namesDrops(id) && b.ratio != nil { // what its ratio leaves out is what is recorded
		out, tasks = 0, jobTasks(id)
	}
	if left := float64(tasks) - float64(len(now)+out); len(now) > 0 && left < b.floor*float64(tasks)-1e-9 {
		j.broken("P9", "%s has dropped %d of its %d tasks; its floor is %v of them", id, len(now)+out, tasks, b.floor)
	}
	if !maps.Equal(now, b.dropped) {
		j.broken("P9", "%s has dropped %d tasks; by the entries it is %d, or others", id, len(now), len(b.dropped))
	}
}

// deflated takes a drop ratio into the books.
func (j *judge) deflated(x *ledger.DeflateJob) {
	b := j.jobs[x.ID]
	if was := b.ratio; was != nil {
		if x.Theta < was.Theta || x.Seed != was.Seed {
			j.broken("P9", "%s had a drop ratio of %v with seed %d, and then of %v with seed %d", x.ID, was.Theta, was.Seed, x.Theta, x.Seed)
		}
		if x.Theta > was.Theta {
			j.w.hit("job_deflation_raised")
		}
	}
	b.ratio = x
	j.w.hit("job_deflated")
}

// leftOut holds the drop ratio of one job of the log against its book, and is how many of its tasks the ratio leaves out.
func (j *judge) leftOut(id string) int {
	b, now, theta := j.jobs[id], j.state.Jobs[id].Deflation, 0.0
	if b.ratio != nil {
		theta = b.ratio.Theta
	}
	if (b.ratio != nil) != (now != nil) || now != nil && (now.Theta != theta || now.Seed != b.ratio.Seed) {
		j.broken("P9", "%s has the drop ratio %+v; by the entries it is %+v", id, now, b.ratio)
	}
	tasks := jobTasks(id)
	left := int(math.Ceil(float64(tasks)*(1-theta) - 1e-6))
	if float64(left) < b.floor*float64(tasks)-1e-6 {
		j.broken("P9", "%s runs %d of its %d tasks with its drop ratio of %v; its floor is %v of them", id, left, tasks, theta, b.floor)
	}
	return int(tasks) - left
}

// dropsTold judges that the tasks are dropped which a scheduler was answered to be.
func (j *judge) dropsTold(x *ledger.DropTasks) {
	for _, task := range slices.Sorted(maps.Keys(tasksOf(x.Ranges))) {
		if b := j.jobs[x.ID]; b == nil || !b.dropped[task] {
			j.broken("P9", "task %d of %s was reported as dropped, but is not dropped in the log", task, x.ID)
		}
	}
}
