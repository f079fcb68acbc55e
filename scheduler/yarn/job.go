package yarn

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/scheduler/profiles"
)

const (
	// rateWindow is the time over which the rate of a job is taken.
	rateWindow = 5 * time.Second
	// floorWait is how long the engine tries to read what a job's owner demands.
	// Then the job is committed as one that must run whole.
	floorWait = 15 * time.Second
	// stuckAfter is how long an application may wait for its master before it is
	// said: a fair scheduler has been seen to forget one for ever.
	stuckAfter = time.Minute
	// retryRefused is the time until a command is tried again that the coordinators refused.
	retryRefused = time.Minute
)

// job is an application as the engine knows it.
type job struct {
	app app
	// floor is the least fraction of map tasks that must be done; final with demandRead.
	floor      profiles.Bound
	demandRead bool
	// demand is what its owner demands; nil before it is read, and where it cannot be.
	demand demand
	// terms are how it is served, settled when it is committed.
	terms terms
	// sprint is the sprint of its nodes as the coordinators said last; nil for none.
	sprint *headroomv1.Sprinting
	// spec is what is committed as its file, made once.
	spec []byte

	// committed: it is in the coordinators' log. closed: its end is, too.
	committed, closed bool
	// retry is when the coordinators may be asked again after a refusal.
	retry time.Time

	// over: it has ended, as state, outcome and runtime tell.
	over    bool
	state   headroomv1.JobState
	outcome string
	runtime time.Duration
	// reported is how the coordinators recorded its end, where the engine did not see it.
	reported *headroomv1.JobProgress

	// all are its tasks as last seen, at seen, from the master of attempt.
	all     *tasks
	seen    time.Time
	attempt string
	// tasks is the number of map tasks, 0 while unknown.
	tasks int
	// doneBefore are the map tasks done as the coordinators heard of them, until the
	// master is seen.
	doneBefore int
	// missed is since when the ResourceManager does not know it; zero while it does.
	missed time.Time
	// ran is when it was first seen to have a master.
	ran time.Time
	// firstSeen is when the master answered for the first time.
	firstSeen time.Time
	// started is when its first task started, by Hadoop's clock; zero before that.
	started time.Time
	// on counts running containers by NodeManager, the master's not counted.
	on map[string]int
	// master is how many containers' room its application master takes.
	master int
	// samples of tasks done, within the rate's window.
	samples []sample
	// spark is what its driver tells, of an application of Spark; nil of MapReduce.
	spark *sparkApp
	// admission is what was decided at the door; nil where nobody asked.
	admission *headroomv1.Admission
	// greedy: its policy of speculation has switched for good; speculation is what it decided last, in words.
	greedy      bool
	speculation string
	// warned: it was said that it waits for its master, or that its master is silent.
	stuck, silent bool

	drops
}

type sample struct {
	at   time.Time
	done int
}

// drops is what is known of what a job may give up.
type drops struct {
	// stop is in force: of its map tasks, least must be done at the least.
	stop  bool
	of    int
	least int
	// stopped is when the engine heard of it.
	stopped time.Time
	// theta is the drop ratio in force, 0 for none; seed orders what it gives up.
	theta float64
	seed  uint64
	// loosened is when the engine heard last that more may be dropped than before.
	loosened time.Time
	// heard is when a hook of the job asked last.
	heard time.Time
	// dropped are recorded by the coordinators.
	dropped numbers
	// flight were sent to the coordinators, and what became of them is not known.
	flight numbers
	// began are told to run, ever after.
	began numbers
	// bytes are the lengths of inputs, by task, where a hook has told.
	bytes map[int]uint64
	// wraps: its tasks ask before they begin.
	wraps bool
	// swept: the tasks that had not begun when more could be dropped were committed.
	swept bool
	// gate lets one command about drops out at a time.
	gate chan struct{}
}

func newJob(a app, floor profiles.Bound) *job {
	return &job{app: a, floor: floor, master: 1, drops: drops{
		dropped: numbers{}, flight: numbers{}, began: numbers{}, bytes: map[int]uint64{}, gate: make(chan struct{}, 1),
	}}
}

// take takes over a look at the job's inside.
func (j *job) take(now time.Time, unit Container, d detail) {
	j.on = d.on
	if d.master != (Container{}) {
		j.master = unit.times(d.master)
	}
	if d.demandRead {
		j.floor, j.demandRead = profiles.Strictest(append([]profiles.Bound{j.floor}, d.bounds...)...), true
		j.demand = d.demand
	}
	if d.tasks == nil || len(d.tasks.maps) < j.tasks {
		return // a master that is starting lists none, or not all, yet
	}
	j.all, j.seen, j.attempt, j.tasks = d.tasks, now, j.app.attempt, len(d.tasks.maps)
	j.firstSeen = cmpTime(j.firstSeen, now)
	for _, list := range [][]task{d.tasks.maps, d.tasks.reduces} {
		for _, t := range list {
			if !t.started.IsZero() && (j.started.IsZero() || t.started.Before(j.started)) {
				j.started = t.started
			}
		}
	}
	j.sample(now, j.done())
}

// sample notes how many tasks are done.
func (j *job) sample(now time.Time, done int) {
	j.samples = append(j.samples, sample{now, done})
	for len(j.samples) > 1 && now.Sub(j.samples[1].at) >= rateWindow {
		j.samples = j.samples[1:]
	}
}

func cmpTime(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// count counts the map tasks that are in state, dropped ones left out.
func (j *job) count(state taskState) (n int) {
	if j.all == nil {
		return 0
	}
	for i, t := range j.all.maps {
		if t.state == state && !j.dropped[i] {
			n++
		}
	}
	return n
}

// done is how many map tasks have really been done. An input wrapper lets a
// dropped task succeed on nothing: that is none.
func (j *job) done() int {
	if j.all == nil {
		return j.doneBefore
	}
	return j.count(taskSucceeded)
}

// work is the map work done, in tasks; absent while unknown.
func (j *job) work() *float64 {
	if j.all == nil {
		return nil
	}
	sum := 0.0
	for i, t := range j.all.maps {
		switch {
		case j.dropped[i]:
		case t.state == taskSucceeded:
			sum++
		case t.state == taskRuns && t.part < 0:
			return nil // its progress makes no sense
		case t.state == taskRuns:
			sum += t.part
		}
	}
	return &sum
}

// reduced is the reduce work done, 0 to 1; absent while unknown, and without reduces.
func (j *job) reduced() *float64 {
	if j.all == nil || len(j.all.reduces) == 0 {
		return nil
	}
	sum := 0.0
	for _, t := range j.all.reduces {
		if t.part < 0 {
			return nil
		}
		sum += t.part
	}
	sum /= float64(len(j.all.reduces))
	return &sum
}

// shuffled is where a reduce task's progress stands when its input is all there:
// MapReduce gives a third each to fetching, sorting and reducing.
const shuffled = 1.0 / 3

func (j *job) phase() headroomv1.JobPhase {
	if j.all == nil || j.started.IsZero() || j.attempt != j.app.attempt {
		return headroomv1.JobPhase_JOB_PHASE_WAITING
	}
	reduced := j.reduced()
	switch {
	case j.count(taskWaits)+j.count(taskRuns) > 0 || len(j.all.reduces) == 0:
		return headroomv1.JobPhase_JOB_PHASE_MAP
	case reduced == nil || *reduced <= shuffled:
		return headroomv1.JobPhase_JOB_PHASE_SHUFFLE
	default:
		return headroomv1.JobPhase_JOB_PHASE_REDUCE
	}
}

// age is the time since the first task started, by Hadoop's clock.
func (j *job) age() (time.Duration, bool) {
	switch {
	case j.over:
		return j.runtime, true
	case j.started.IsZero():
		return 0, false
	}
	return max(0, j.app.started.Add(j.app.elapsed).Sub(j.started)), true
}

// progress is a sample for the coordinators. fresh false leaves out what would be
// taken for news: the last look is old.
func (j *job) progress(cfg Config, fresh bool) *headroomv1.JobProgress {
	p := &headroomv1.JobProgress{
		Id: j.app.id, State: headroomv1.JobState_JOB_STATE_QUEUED, Tasks: uint32(j.tasks), Done: uint32(j.done()), Running: uint32(j.count(taskRuns)),
		Dropped: uint32(len(j.dropped)), Pending: uint32(j.count(taskWaits)), Containers: uint32(j.held()),
		RunningOn: map[string]uint32{}, Phase: j.phase(), Reduced: j.reduced(),
	}
	switch {
	case j.over:
		p.State, p.Phase = j.state, headroomv1.JobPhase_JOB_PHASE_UNSPECIFIED
		p.Running, p.Pending, p.Containers = 0, 0, 0
	case j.app.state == "RUNNING":
		p.State = headroomv1.JobState_JOB_STATE_RUNNING
	}
	if !j.over {
		j.running(p)
	}
	for address, n := range j.on {
		if !j.over {
			p.RunningOn[cfg.node(address)] += uint32(n)
		}
	}
	for i := range j.dropped {
		p.DroppedBytes += j.bytes[i]
	}
	if j.terms.error > 0 {
		p.Error = new(j.terms.error)
	}
	if d, ok := j.age(); ok {
		s := d.Seconds()
		p.RuntimeS = &s
	}
	if fresh && !j.over {
		p.Work, p.RatePerS = j.work(), j.rate()
	}
	return p
}

// running makes the running tasks those that have a container. Its master calls a
// preempted task running although it waits for its next attempt's container.
func (j *job) running(p *headroomv1.JobProgress) {
	if j.all == nil {
		return
	}
	for _, t := range j.all.reduces {
		if t.state == taskRuns {
			p.Running++
		}
	}
	containers := uint32(0)
	for _, n := range j.on {
		containers += uint32(n)
	}
	if waiting := min(p.GetRunning()-min(p.GetRunning(), containers), uint32(j.count(taskRuns))); j.on != nil {
		p.Running -= waiting
		p.Pending += waiting
	}
}

// held is the containers that it holds, in the unit that shares are counted in.
func (j *job) held() int {
	if j.app.containers == 0 {
		return 0
	}
	return j.app.containers - 1 + j.master
}

// rate is the map tasks done per second over the last 5 s; absent before the
// samples reach over one.
func (j *job) rate() *float64 {
	if len(j.samples) < 2 {
		return nil
	}
	first, last := j.samples[0], j.samples[len(j.samples)-1]
	span := last.at.Sub(first.at)
	if span < time.Second {
		return nil
	}
	rate := max(0, float64(last.done-first.done)/span.Seconds()) // a restarted master may have lost some
	return &rate
}

// end takes over that the application has ended, as the ResourceManager tells.
func (j *job) end() {
	j.over = true
	switch {
	case j.app.final == "SUCCEEDED" && j.app.state == "FINISHED":
		j.state = headroomv1.JobState_JOB_STATE_DONE
	case j.app.state == "KILLED" || j.app.final == "KILLED":
		j.state, j.outcome = headroomv1.JobState_JOB_STATE_CANCELLED, "killed: "
	default:
		j.state, j.outcome = headroomv1.JobState_JOB_STATE_FAILED, "failed: "
	}
	j.outcome = strings.TrimSuffix(j.outcome+j.app.diagnostics, ": ")
	if start := cmpTime(j.started, j.app.launched); !start.IsZero() && !j.app.finished.IsZero() {
		j.runtime = max(0, j.app.finished.Sub(start))
	}
	if j.tasks == 0 && !j.app.spark {
		j.outcome = strings.TrimPrefix(j.outcome+"; ended before its tasks were seen", "; ")
	}
}

// lose takes over that the ResourceManager does not know the application any more.
func (j *job) lose() {
	j.over, j.state = true, headroomv1.JobState_JOB_STATE_FAILED
	j.outcome = "no longer known to the ResourceManager"
	if !j.started.IsZero() && j.app.elapsed > 0 {
		j.runtime = max(0, j.app.started.Add(j.app.elapsed).Sub(j.started))
	}
}

// finallyDone is how many map tasks were done in the end. A job that succeeded
// has done all but the dropped and the failed; of others the last look counts.
func (j *job) finallyDone() int {
	if j.spark != nil {
		return j.spark.progress.Done
	}
	if j.state == headroomv1.JobState_JOB_STATE_DONE {
		return max(0, j.tasks-len(j.dropped)-j.count(taskEnded))
	}
	return j.done()
}

// finalTasks is how many tasks it had in the end.
func (j *job) finalTasks() int {
	if j.spark != nil {
		return j.spark.tasks()
	}
	return j.tasks
}

// readyToCommit tells whether all is known that the coordinators must know.
func (j *job) readyToCommit(now time.Time) bool {
	if j.spark != nil {
		return j.sparkReady(now)
	}
	return j.over || (j.tasks > 0 && (j.demandRead || now.Sub(j.firstSeen) >= floorWait))
}

// commit is the command that makes it known to the coordinators.
func (j *job) commit(cfg Config) (*headroomv1.CommitJobRequest, error) {
	if j.spec == nil {
		spec, err := json.Marshal(description{
			Application: j.app.id, Name: j.app.name, User: j.app.user, Queue: j.app.queue, Maps: j.tasks, Reduces: j.reduces(),
			Floor: j.floor.Why, MemoryMB: cfg.Container.MemoryMB, VCores: cfg.Container.VCores,
			SprintAfterS: secondsOf(j.terms.sprintAfter), Deflate: j.terms.deflate, Error: j.terms.error, Notes: j.terms.notes,
		})
		if err != nil {
			return nil, fmt.Errorf("yarn: describe %s: %w", j.app.id, err)
		}
		j.spec = spec
	}
	return &headroomv1.CommitJobRequest{
		Job: &headroomv1.Job{
			Id: j.app.id, Name: j.app.name, Class: j.terms.class, Rank: uint32(j.terms.rank), DeadlineS: secondsOf(j.terms.due()),
			State: headroomv1.JobState_JOB_STATE_QUEUED, Spec: j.spec,
			SubmittedUs: j.app.started.UnixMicro(), Engine: Name, Queue: j.app.queue, Floor: j.floor.Fraction, Progress: j.progress(cfg, true),
			Admission: j.admission,
		},
		Change: &headroomv1.Change{Actor: actor, Reason: "submitted to " + j.app.queue + " by " + j.app.user, RequestId: "commit-" + j.app.id},
	}, nil
}

// description is what is committed as the job's file.
type description struct {
	Application string `json:"application"`
	Name        string `json:"name"`
	User        string `json:"user"`
	Queue       string `json:"queue"`
	Maps        int    `json:"map_tasks"`
	Reduces     int    `json:"reduce_tasks"`
	// Floor is why its floor is what it is, in words.
	Floor    string `json:"floor_reason,omitempty"`
	MemoryMB int    `json:"container_memory_mb"`
	VCores   int    `json:"container_vcores"`
	// SprintAfterS is its sprint timer, seconds from its first task; nil for none.
	SprintAfterS *float64 `json:"sprint_after_s,omitempty"`
	// Deflate says that a drop ratio may give up its map tasks.
	Deflate bool `json:"deflate,omitempty"`
	// Error is the part of its map tasks that its result may lack.
	Error float64 `json:"error,omitempty"`
	// Notes say what was not taken as its owner asked, in words.
	Notes []string `json:"notes,omitempty"`
}

// secondsOf is a time in seconds; nil for none.
func secondsOf(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}

func (j *job) reduces() int {
	if j.all == nil {
		return 0
	}
	return len(j.all.reduces)
}

// finish is the command that makes its end known to the coordinators.
func (j *job) finish() *headroomv1.FinishJobRequest {
	return &headroomv1.FinishJobRequest{
		Id: j.app.id, State: j.state, Outcome: j.outcome, Tasks: uint32(j.finalTasks()), Done: uint32(j.finallyDone()), RuntimeS: j.runtime.Seconds(),
		Change: &headroomv1.Change{Actor: actor, Reason: j.outcome, RequestId: "finish-" + j.app.id},
	}
}

// leaf is the last part of a queue's name.
func leaf(queue string) string { return queue[strings.LastIndexByte(queue, '.')+1:] }
