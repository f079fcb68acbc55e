package yarn

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
)

const (
	// rateWindow is the period for the rate of a job.
	rateWindow = 5 * time.Second
	// floorWait is how long the engine tries to read a job's demand. Then the job is committed as one that must run all
	// tasks.
	floorWait = 15 * time.Second
	// stuckAfter is how long an application may wait for its master before it is reported: a fair scheduler has been
	// seen to forget one for ever.
	stuckAfter = time.Minute
	// retryRefused is the wait before a refused command is retried.
	retryRefused = time.Minute
)

// job is an application in the engine's state.
type job struct {
	app app
	// floor is the minimum fraction of map tasks that must be done; final with demandRead.
	floor      profiles.Bound
	demandRead bool
	// demand is its owner's demand; nil before it is read, or if it is unreadable.
	demand demand
	// terms are how it is served, settled when it is committed.
	terms terms
	// sprint is the sprint of its nodes by the coordinators; nil for none.
	sprint *headroomv1.Sprinting
	// spec is committed as its file, created once.
	spec []byte

	// committed is whether it is in the coordinators' log; closed whether its end is too.
	committed, closed bool
	// retry is when a refused command may be retried.
	retry time.Time

	// over is whether it has ended; state, outcome and runtime describe how.
	over    bool
	state   headroomv1.JobState
	outcome string
	runtime time.Duration
	// reported is the end recorded by the coordinators, if the engine did not see it.
	reported *headroomv1.JobProgress

	// all are its tasks as last seen, at seen, from the master of attempt.
	all     *tasks
	seen    time.Time
	attempt string
	// tasks is the number of map tasks, 0 while unknown.
	tasks int
	// doneBefore are the completed map tasks by the coordinators, until the master is read.
	doneBefore int
	// missed is since when the ResourceManager does not have it; zero while it does.
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
	// spark is the report of its driver, for a Spark application; nil for MapReduce.
	spark *sparkApp
	// admission is its admission decision; nil for none.
	admission *headroomv1.Admission
	// scaling is how its speed depends on its containers, by earlier runs; nil while unknown. meter measures this run, and
	// lost are its map tasks that have lost an attempt since the meter looked last.
	scaling *headroomv1.Scaling
	meter   scaling.Meter
	lost    int
	// greedy is whether its speculation policy has switched permanently; speculation is its last decision, in words.
	greedy      bool
	speculation string
	// stuck is whether it was logged that it waits for its master, silent that its master is unreachable.
	stuck, silent bool

	drops
}

type sample struct {
	at   time.Time
	done int
}

// drops is the state of what a job may drop.
type drops struct {
	// stop is in force: the job must finish at least `least` of its map tasks.
	stop  bool
	of    int
	least int
	// stopped is when the engine received it.
	stopped time.Time
	// theta is the drop ratio in force, 0 for none; seed orders the dropped tasks.
	theta float64
	seed  uint64
	// loosened is when more drops were last permitted.
	loosened time.Time
	// heard is when a hook of the job asked last.
	heard time.Time
	// dropped are recorded by the coordinators.
	dropped numbers
	// flight were sent to the coordinators, with an unknown result.
	flight numbers
	// began were told to run.
	began numbers
	// bytes are the lengths of inputs, by task, if a hook has reported them.
	bytes map[int]uint64
	// most is the most containers that it was seen to hold; 0 if it was not seen from its beginning.
	most int
	// taught is whether admission has its run.
	taught bool
	// wraps is whether its tasks ask before they start.
	wraps bool
	// swept is whether the tasks that had not started when more could be dropped were committed.
	swept bool
	// gate allows one command about drops at a time.
	gate chan struct{}
}

func newJob(a app, floor profiles.Bound) *job {
	return &job{app: a, floor: floor, master: 1, drops: drops{
		dropped: numbers{}, flight: numbers{}, began: numbers{}, bytes: map[int]uint64{}, gate: make(chan struct{}, 1),
	}}
}

// take applies a read of the job.
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
		return // a starting master lists none, or not all, yet
	}
	j.lost += j.restarted(d.tasks.maps)
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

// sample records how many tasks are done.
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

// count counts the map tasks in state, without dropped ones.
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

// done returns how many map tasks have really been done. An input wrapper lets a dropped task succeed without input:
// that does not count.
func (j *job) done() int {
	if j.all == nil {
		return j.doneBefore
	}
	return j.count(taskSucceeded)
}

// work returns the finished map work, in tasks; nil if unknown.
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
			return nil // its progress is invalid
		case t.state == taskRuns:
			sum += t.part
		}
	}
	return &sum
}

// reduced returns the finished reduce work, 0 to 1; nil if unknown, and without reduces.
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

// shuffled is the progress of a reduce task when its input is complete: MapReduce gives a third each to fetching,
// sorting and reducing.
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

// age returns the time since the first task started, by Hadoop's clock.
func (j *job) age() (time.Duration, bool) {
	switch {
	case j.over:
		return j.runtime, true
	case j.started.IsZero():
		return 0, false
	}
	return max(0, j.app.started.Add(j.app.elapsed).Sub(j.started)), true
}

// progress returns a sample for the coordinators. fresh false omits what would count as news, because the last read is
// old.
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
		p.RuntimeS = new(d.Seconds())
	}
	if fresh && !j.over {
		p.Work, p.RatePerS = j.work(), j.rate()
	}
	return p
}

// running sets the running tasks to those with a container. A master reports a preempted task as running although it
// waits for its next container.
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

// held returns the containers that it holds, in the unit of shares.
func (j *job) held() int {
	if j.app.containers == 0 {
		return 0
	}
	return j.app.containers - 1 + j.master
}

// rate returns the map tasks done per second over the last 5 s; nil before the samples cover a second.
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

// end applies the end of the application, as reported by the ResourceManager.
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

// lose records that the ResourceManager no longer has the application.
func (j *job) lose() {
	j.over, j.state = true, headroomv1.JobState_JOB_STATE_FAILED
	j.outcome = "no longer known to the ResourceManager"
	if !j.started.IsZero() && j.app.elapsed > 0 {
		j.runtime = max(0, j.app.started.Add(j.app.elapsed).Sub(j.started))
	}
}

// finallyDone returns how many map tasks were done at the end. A successful job has done all but the dropped and the
// failed; for others the last read counts.
func (j *job) finallyDone() int {
	if j.spark != nil {
		return j.spark.progress.Done
	}
	if j.state == headroomv1.JobState_JOB_STATE_DONE {
		return max(0, j.tasks-len(j.dropped)-j.count(taskEnded))
	}
	return j.done()
}

// finalTasks returns how many tasks it had at the end.
func (j *job) finalTasks() int {
	if j.spark != nil {
		return j.spark.tasks()
	}
	return j.tasks
}

// readyToCommit reports whether everything that the coordinators need is known.
func (j *job) readyToCommit(now time.Time) bool {
	if j.spark != nil {
		return j.sparkReady(now)
	}
	return j.over || (j.tasks > 0 && (j.demandRead || now.Sub(j.firstSeen) >= floorWait))
}

// commit returns the command that commits it at the coordinators.
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
			Admission: j.admission, Scaling: j.scaling,
		},
		Change: &headroomv1.Change{Actor: actor, Reason: "submitted to " + j.app.queue + " by " + j.app.user, RequestId: "commit-" + j.app.id},
	}, nil
}

// description is committed as the job's file.
type description struct {
	Application string `json:"application"`
	Name        string `json:"name"`
	User        string `json:"user"`
	Queue       string `json:"queue"`
	Maps        int    `json:"map_tasks"`
	Reduces     int    `json:"reduce_tasks"`
	// Floor is the reason of its floor, in words.
	Floor    string `json:"floor_reason,omitempty"`
	MemoryMB int    `json:"container_memory_mb"`
	VCores   int    `json:"container_vcores"`
	// SprintAfterS is its sprint timer, seconds from its first task; nil for none.
	SprintAfterS *float64 `json:"sprint_after_s,omitempty"`
	// Deflate is whether a drop ratio may drop its map tasks.
	Deflate bool `json:"deflate,omitempty"`
	// Error is the fraction of its map tasks that its result may miss.
	Error float64 `json:"error,omitempty"`
	// Notes are settings of its owner that were ignored, in words.
	Notes []string `json:"notes,omitempty"`
}

// secondsOf returns a time in seconds; nil for none.
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

// finish returns the command that commits its end at the coordinators.
func (j *job) finish() *headroomv1.FinishJobRequest {
	return &headroomv1.FinishJobRequest{
		Id: j.app.id, State: j.state, Outcome: j.outcome, Tasks: uint32(j.finalTasks()), Done: uint32(j.finallyDone()), RuntimeS: j.runtime.Seconds(),
		End: j.went(), Change: &headroomv1.Change{Actor: actor, Reason: j.outcome, RequestId: "finish-" + j.app.id},
	}
}

// hold notes how many containers it holds. One that was seen late, when it had done some of its tasks, has held an
// unknown number.
func (j *job) hold() {
	if held := j.held(); held > 0 && (j.most > 0 || j.done() == 0) {
		j.most = max(j.most, held)
	}
}

// went returns when the application began and ended, by the ResourceManager's clock; nil if that never said.
func (j *job) went() *headroomv1.JobEnd {
	over := j.app.finished
	if over.IsZero() {
		over = j.app.started.Add(j.app.elapsed)
	}
	if j.app.started.IsZero() || over.UnixMicro() <= 0 {
		return nil
	}
	e := &headroomv1.JobEnd{EndedUs: over.UnixMicro(), Slots: uint32(j.most)}
	if j.runtime > 0 {
		e.BeganUs = over.Add(-j.runtime).UnixMicro()
	}
	return e
}

// leaf returns the last part of a queue's name.
func leaf(queue string) string { return queue[strings.LastIndexByte(queue, '.')+1:] }
