package yarn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/speculation"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
	"headroom/units"
)

// Name is the name of this engine in jobs, directives and reports.
const Name = "yarn"

// Names reports whether the id is that of a YARN application.
func Names(id string) bool { return appForm.MatchString(id) }

// actor is the name of this engine in the coordinators' audit log.
const actor = "scheduler/yarn"

const (
	// queuesEvery is how often the names of the queues are read: they are changed by hand.
	queuesEvery = 10 * time.Second
	// staleAfter is the age of the last read from which it is reported.
	staleAfter = 5 * time.Second
	// lostAfter is how long a job must be missing at the ResourceManager until it is lost.
	lostAfter = 30 * time.Second
	// endedKept bounds the ended jobs that are kept for listings.
	endedKept = 1000
)

// book is the state of the engine; the engine's decisions are its methods. They do no I/O and take the time as an
// argument. Callers hold the engine's lock.
type book struct {
	cfg    Config
	logger *slog.Logger
	jobs   map[string]*job
	// sparks is the state inside Spark's applications; some may not be jobs yet.
	sparks map[string]*sparkApp

	// restored is whether the jobs of the coordinators' log are known.
	restored bool
	// newest is the submission of the newest known job.
	newest time.Time
	// gap is whether reads were missed since the book was restored, so that applications may have started and ended
	// unseen.
	gap bool

	// looked is when the ResourceManager answered last; zero for never.
	looked time.Time
	// failed is when it stopped answering, with the cause; zero while it answers.
	failed time.Time
	why    string

	containers int
	// size is the total of the running nodes.
	size Container
	// classes are those of scheduler.yaml, highest first; timers are the current sprint timers of those that have one.
	classes []Class
	timers  map[string]time.Duration
	// policy decides on copies of the tasks of Spark's applications.
	policy speculation.Policy
	// shares are the containers of each job by the last directive, order the jobs in the order in which they are
	// served. They may include unknown jobs, because a directive may arrive before the log is read.
	shares   map[string]int
	admitter *admitter
	// learner learns how the jobs scale; nil for nothing.
	learner *scaling.Learner
	// speeds are the speeds of nodes under their caps, by name.
	speeds map[string]speed
	order  []string
	// overhead is how many containers' room each job takes for its master: the largest one last seen.
	overhead   int
	queues     map[string]bool
	queuesRead time.Time
	// misfit is why shares cannot be set, in words.
	misfit string
}

func newBook(cfg Config, logger *slog.Logger) *book {
	return &book{cfg: cfg, logger: logger, jobs: map[string]*job{}, sparks: map[string]*sparkApp{}, speeds: map[string]speed{}, admitter: newAdmitter(logger), gap: true, overhead: 1}
}

// wish returns what the next read should fetch.
func (b *book) wish(now time.Time) wish {
	w := wish{demandRead: map[string]bool{}, spark: b.sparkWishes(now), queues: b.queues == nil || now.Sub(b.queuesRead) >= queuesEvery}
	if b.restored && b.gap {
		w.since = b.newest
	}
	for id, j := range b.jobs {
		if !j.over {
			w.known = append(w.known, id)
			w.demandRead[id] = j.demandRead
		}
	}
	slices.Sort(w.known)
	return w
}

// see applies a read of the cluster.
func (b *book) see(now time.Time, w wish, s *sight) {
	if !b.failed.IsZero() {
		b.logger.Info("yarn: ResourceManager reachable again", slog.Duration("after", now.Sub(b.failed)))
	}
	b.looked, b.failed, b.why = now, time.Time{}, ""
	if b.restored && (!w.since.IsZero() || b.newest.IsZero()) {
		b.gap = false
	}
	if s.queues != nil {
		b.queues, b.queuesRead = s.queues, now
	}
	b.containers, b.size = 0, Container{}
	for _, n := range s.nodes {
		if n.state == "RUNNING" {
			b.size.MemoryMB, b.size.VCores = b.size.MemoryMB+n.memoryMB, b.size.VCores+n.vcores
			b.containers += min(n.memoryMB/b.cfg.Container.MemoryMB, n.vcores/b.cfg.Container.VCores)
		}
	}
	for _, a := range s.apps {
		b.seeApp(now, a, s.details[a.id])
	}
	for _, id := range s.unknown {
		b.miss(now, b.jobs[id])
	}
	b.admitter.look(now, b)
	b.forget()
	b.forgetSparks(now)
}

func (b *book) seeApp(now time.Time, a app, d detail) {
	j := b.jobs[a.id]
	switch {
	case j == nil:
		j = newJob(a, b.cfg.queue(a.queue).bound())
		b.jobs[a.id] = j
		b.logger.Info("yarn: application found", slog.String("job", a.id), slog.String("queue", a.queue), slog.String("name", a.name))
	case j.over:
		return
	}
	j.app, j.missed = a, time.Time{}
	if a.started.After(b.newest) && !b.gap { // before that, ended applications in between must be listed
		b.newest = a.started
	}
	if a.state == "RUNNING" {
		j.take(now, b.cfg.Container, d)
		if a.spark {
			b.takeSpark(now, j, d.spark)
		}
		b.measure(now, j)
		b.overhead = max(1, b.largestMaster())
	}
	if !a.ended() {
		b.notice(now, j, d.err)
		return
	}
	j.end()
	b.learnEnd(j)
	b.logger.Info("yarn: application ended", slog.String("job", a.id), slog.String("state", stateWord(j.state)), slog.String("outcome", j.outcome),
		slog.Int("tasks", j.finalTasks()), slog.Int("done", j.finallyDone()), slog.Int("dropped", len(j.dropped)))
}

// largestMaster returns the room of the largest application master.
func (b *book) largestMaster() (most int) {
	for _, j := range b.jobs {
		if !j.over && !j.seen.IsZero() {
			most = max(most, j.master)
		}
	}
	return most
}

// miss records that a job is missing at the ResourceManager. One that was just started may not have read all of them
// yet, and an end cannot be undone.
func (b *book) miss(now time.Time, j *job) {
	if j == nil || j.over {
		return
	}
	j.missed = cmpTime(j.missed, now)
	if now.Sub(j.missed) < lostAfter {
		return
	}
	j.lose()
	b.logger.Warn("yarn: job lost", slog.String("job", j.app.id), slog.String("why", j.outcome))
}

// notice logs once that an application is stuck.
func (b *book) notice(now time.Time, j *job, err error) {
	stuck := b.waits(j) != ""
	if stuck && !j.stuck {
		b.logger.Warn("yarn: application is stuck", slog.String("job", j.app.id), slog.String("what", b.waits(j)))
	}
	j.stuck = stuck
	if j.app.state == "RUNNING" {
		j.ran = cmpTime(j.ran, now)
	}
	silent := err != nil && !j.ran.IsZero() && now.Sub(j.ran) >= staleAfter && now.Sub(j.seen) >= staleAfter
	if silent && !j.silent {
		b.logger.Warn("yarn: application master unreachable", slog.String("job", j.app.id), slog.Any("error", err))
	}
	j.silent = silent
}

// waits states that an application is stuck without a master, "" if it is not.
func (b *book) waits(j *job) string {
	if j.over || j.app.state == "RUNNING" || j.app.elapsed < stuckAfter {
		return ""
	}
	return fmt.Sprintf("%s for %v: no container for its application master; check the queue's maximum, or kill and resubmit the application",
		j.app.state, j.app.elapsed.Round(time.Second))
}

// fail records that the ResourceManager could not be reached. The last state stays.
func (b *book) fail(now time.Time, err error) {
	b.why = clip(err.Error())
	if !b.failed.IsZero() {
		return
	}
	b.failed, b.gap = now, true
	b.logger.Warn("yarn: ResourceManager unreachable; keeping the last known state", slog.Any("error", err),
		slog.String("hint", "check that it is running and that yarn.resourcemanager is right; retrying every "+b.cfg.Poll.Std().String()))
}

// forget removes the oldest ended jobs above endedKept.
func (b *book) forget() {
	var ended []*job
	for _, j := range b.jobs {
		if j.over && j.closed {
			ended = append(ended, j)
		}
	}
	slices.SortFunc(ended, byAge)
	for _, j := range ended[:max(0, len(ended)-endedKept)] {
		delete(b.jobs, j.app.id)
	}
}

func byAge(a, c *job) int {
	return cmp.Or(a.app.started.Compare(c.app.started), strings.Compare(a.app.id, c.app.id))
}

// sorted returns the jobs in the order of their submission.
func (b *book) sorted() []*job { return slices.SortedFunc(maps.Values(b.jobs), byAge) }

// restore applies the jobs of the coordinators' log.
func (b *book) restore(now time.Time, jobs []*headroomv1.Job) {
	for _, m := range jobs {
		if m.GetEngine() == Name && appForm.MatchString(m.GetId()) {
			b.restoreJob(now, m)
		}
	}
	b.restored = true
}

func (b *book) restoreJob(now time.Time, m *headroomv1.Job) {
	submitted := time.UnixMicro(m.GetSubmittedUs())
	if submitted.After(b.newest) {
		b.newest = submitted
	}
	j := b.jobs[m.GetId()]
	if j == nil {
		// ACCEPTED until it is read.
		j = newJob(app{id: m.GetId(), name: m.GetName(), queue: m.GetQueue(), state: "ACCEPTED", started: submitted}, profiles.Bound{Fraction: 1})
		j.tasks, j.doneBefore = tasksOf(m.GetSpec()), int(m.GetProgress().GetDone())
		b.jobs[m.GetId()] = j
	}
	ended := stateEnded(m.GetState())
	if !j.committed {
		j.committed, j.spec = true, m.GetSpec()
		j.floor, j.demandRead = profiles.Bound{Fraction: cmp.Or(m.GetFloor(), 1)}, true
		j.terms = termsOf(m)
		j.admission, j.scaling = m.GetAdmission(), m.GetScaling()
	}
	b.restoreSpark(m)
	j.dropped.add(fromRanges(m.GetDropped()))
	if s := m.GetStop(); s != nil && !ended {
		j.decide(now, int(s.GetTasks()), int(s.GetMinTasks()))
	}
	if d := m.GetDeflation(); d != nil && !ended {
		j.deflate(now, d.GetTheta(), d.GetSeed())
	}
	switch {
	case ended && !j.over:
		j.over, j.closed, j.state, j.outcome = true, true, m.GetState(), m.GetOutcome()
		j.tasks = max(j.tasks, int(m.GetProgress().GetTasks()))
		j.runtime = time.Duration(m.GetProgress().GetRuntimeS() * float64(time.Second))
		j.reported, j.most = m.GetProgress(), int(m.GetEnd().GetSlots())
	case ended:
		j.closed = true
	}
}

// userOf returns the user of a committed job; empty if unknown.
func userOf(spec []byte) string {
	var d description
	if json.Unmarshal(spec, &d) != nil {
		return ""
	}
	return d.User
}

// tasksOf returns the number of map tasks of a committed job; 0 if unknown.
func tasksOf(spec []byte) int {
	var d description
	if json.Unmarshal(spec, &d) != nil || d.Maps < 0 || d.Maps > tasksMax {
		return 0
	}
	return d.Maps
}

func stateEnded(s headroomv1.JobState) bool {
	switch s {
	case headroomv1.JobState_JOB_STATE_DONE, headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

func stateWord(s headroomv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// command is one request to the coordinators: a job, or its end.
type command struct {
	id     string
	commit *headroomv1.CommitJobRequest
	finish *headroomv1.FinishJobRequest
}

// next returns the next request to send; ok is false when there is none.
func (b *book) next(now time.Time) (c command, ok bool) {
	if !b.restored {
		return c, false
	}
	for _, j := range b.sorted() {
		if now.Before(j.retry) {
			continue
		}
		switch {
		case !j.committed && j.readyToCommit(now):
			if !j.demandRead && !j.over {
				j.floor = profiles.Strictest(profiles.Bound{Fraction: 1, Why: "running all tasks, because the job's quality settings are unreadable"}, j.floor)
				j.demandRead = true
				b.logger.Warn("yarn: job's quality settings unreadable, running all tasks", slog.String("job", j.app.id))
			}
			b.agree(j)
			commit, err := j.commit(b.cfg)
			if err != nil {
				b.refused(now, j.app.id, err)
				continue
			}
			return command{id: j.app.id, commit: commit}, true
		case j.committed && j.over && !j.closed && len(j.flight) == 0:
			return command{id: j.app.id, finish: j.finish()}, true
		}
	}
	return c, false
}

// agree settles how a job is served, before it is committed.
func (b *book) agree(j *job) {
	q := b.cfg.queue(j.app.queue)
	if q == nil || j.spec != nil { // its queue is no longer ours, or it is settled
		return
	}
	j.terms = q.terms(j.demand, b.classes)
	if name := j.curveName(); !j.over {
		j.scaling = b.learner.Advise(name, j.terms.due() == nil)
	}
	if len(j.terms.notes) > 0 {
		b.logger.Warn("yarn: some settings of a job were not applied", slog.String("job", j.app.id), slog.Any("why", j.terms.notes))
	}
}

// told records that a request was carried out.
func (b *book) told(c command) {
	j := b.jobs[c.id]
	switch {
	case j == nil:
	case c.commit != nil:
		j.committed = true
	default:
		j.closed = true
	}
}

// refused records that the coordinators refused a request: it is retried later.
func (b *book) refused(now time.Time, id string, err error) {
	if j := b.jobs[id]; j != nil {
		b.logger.Warn("yarn: coordinators refused a job", slog.String("job", id), slog.Any("error", err))
		j.retry = now.Add(retryRefused)
	}
}

// fresh reports whether the last read of the job is recent.
func (b *book) fresh(now time.Time, j *job) bool {
	return b.failed.IsZero() && now.Sub(j.seen) < staleAfter
}

// progress returns the progress of all committed unfinished jobs.
func (b *book) progress(now time.Time) []*headroomv1.JobProgress {
	var all []*headroomv1.JobProgress
	for _, j := range b.sorted() {
		if j.committed && !j.over && !b.looked.IsZero() {
			all = append(all, b.sampleOf(now, j))
		}
	}
	return all
}

// serve fills in how a running job is served: its drop ratio, if allowed, and its sprint timer.
func (b *book) serve(now time.Time, j *job, p *headroomv1.JobProgress) {
	if j.over || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
		return
	}
	p.Whole = j.whole(now)
	if theta := j.ratio(); theta > 0 || j.exact(now) == "" {
		p.Theta = new(theta)
	}
	after, timed := b.timers[j.terms.class]
	if j.terms.sprintAfter != nil {
		after, timed = *j.terms.sprintAfter, true
	}
	if age, began := j.age(); timed && began {
		p.SprintAfterS, p.SprintDue = new(after.Seconds()), age >= after
	}
}

// timing updates the sprint timers of the classes.
func (b *book) timing(points []*headroomv1.ClassPoint) {
	b.timers = map[string]time.Duration{}
	for _, k := range points {
		if k.SprintAfterS != nil {
			b.timers[k.GetName()] = time.Duration(k.GetSprintAfterS() * float64(time.Second))
		}
	}
}

// sprint records that a job sprints, or no longer sprints.
func (b *book) sprint(now time.Time, d *headroomv1.SprintDirective) {
	j := b.jobs[d.GetId()]
	switch {
	case j == nil:
	case d.GetSprint() == "":
		j.sprint = nil
	default:
		since := now.UnixMicro()
		if j.sprint.GetId() == d.GetSprint() {
			since = j.sprint.GetSinceUs()
		}
		j.sprint = &headroomv1.Sprinting{Id: d.GetSprint(), Nodes: d.GetNodes(), CapUw: d.GetCapUw(), SinceUs: since, DurationMs: d.GetDurationMs()}
	}
}

// details returns what listings show in addition to the jobs.
func (b *book) details(now time.Time, id string) (all []*headroomv1.RunDetail) {
	for _, j := range b.sorted() {
		if j.over || j.app.state != "RUNNING" || !j.named(id) {
			continue
		}
		d := &headroomv1.RunDetail{Id: j.app.id, ThetaWhy: j.exact(now), Seed: j.seed, Sprint: j.sprint, Speculation: j.speculation}
		switch {
		case j.spark != nil && j.spark.theta > 0:
			d.ThetaWhy = fmt.Sprintf("%s of its tasks in later stages are dropped", units.Percent(j.spark.theta))
		case j.theta > 0:
			of, least, _ := j.bound()
			d.ThetaWhy = fmt.Sprintf("at least %d of %d map tasks run; %d dropped", least, of, len(j.dropped))
		case d.ThetaWhy == "":
			d.ThetaWhy = "the coordinators may raise it"
		}
		if !j.started.IsZero() {
			d.BeganUs = j.started.UnixMicro()
		}
		all = append(all, d)
	}
	return all
}

// named reports whether listings of id show the job; "" shows all.
func (j *job) named(id string) bool { return id == "" || id == j.app.id || id == jobOf(j.app.id) }

// report returns what can be divided.
func (b *book) report(now time.Time) *headroomv1.EngineReport {
	return &headroomv1.EngineReport{Engine: Name, Containers: uint32(b.containers), Overhead: uint32(b.overhead), Trouble: b.trouble(now)}
}

// trouble returns why shares cannot be set, in words; empty if they can.
func (b *book) trouble(now time.Time) string {
	switch {
	case b.looked.IsZero() && b.failed.IsZero():
		return "the ResourceManager has not been read yet"
	case b.looked.IsZero():
		return "the ResourceManager has not answered yet: " + b.why
	case !b.failed.IsZero():
		return fmt.Sprintf("the ResourceManager has not answered for %v; the state is that old: %s", now.Sub(b.looked).Round(time.Second), b.why)
	case b.cfg.Shares == sharesNone:
		return "yarn.shares is none: queues are not changed"
	}
	return b.misfit
}

// list returns all jobs for listings.
func (b *book) list(now time.Time, id string) []*headroomv1.Job {
	var all []*headroomv1.Job
	for _, j := range b.sorted() {
		if j.named(id) {
			all = append(all, b.message(now, j))
		}
	}
	return all
}

func (b *book) message(now time.Time, j *job) *headroomv1.Job {
	p := b.sampleOf(now, j)
	switch {
	case j.over && j.reported != nil:
		p = j.reported
	case j.over:
		p.Done = uint32(j.finallyDone())
	}
	m := &headroomv1.Job{
		Id: j.app.id, Name: j.app.name, Class: j.terms.class, Rank: uint32(j.terms.rank), DeadlineS: secondsOf(j.terms.due()), State: p.GetState(),
		Spec: j.spec, SubmittedUs: j.app.started.UnixMicro(), Progress: p, Outcome: j.outcome, Engine: Name, Queue: j.app.queue,
		Floor: j.floor.Fraction, Dropped: j.dropped.ranges(), Admission: j.admission, Scaling: j.scaling,
	}
	if theta := j.ratio(); theta > 0 {
		m.Deflation = &headroomv1.Deflation{Theta: theta, Seed: j.ratioSeed()}
	}
	if j.stop {
		m.Stop = &headroomv1.EarlyStop{Tasks: uint32(j.of), MinTasks: uint32(j.least), AtUs: j.stopped.UnixMicro()}
	}
	switch {
	case j.over:
	case !b.failed.IsZero():
		m.Outcome = fmt.Sprintf("state is %v old: ResourceManager unreachable", now.Sub(b.looked).Round(time.Second))
	case b.waits(j) != "":
		m.Outcome = b.waits(j)
	case !j.committed && j.app.state == "RUNNING":
		m.Outcome = "not committed yet"
	case j.spark != nil && j.app.state == "RUNNING":
		m.Outcome = j.spark.words(now)
	}
	return m
}

// share applies a directive: what each job may hold. It is applied as far as possible; the error states the rest.
func (b *book) share(d *headroomv1.ShareDirective) error {
	if b.cfg.Shares == sharesNone {
		return fmt.Errorf("yarn: yarn.shares is none: %w", errShares)
	}
	b.shares, b.order = map[string]int{}, nil
	var wrong []string
	for _, s := range d.GetJobs() {
		b.order = append(b.order, s.GetId())
		b.shares[s.GetId()] = int(min(s.GetContainers(), sharesMax))
		if b.restored && b.jobs[s.GetId()] == nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", s.GetId(), errJob))
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(b.maxima())) {
		if b.queues != nil && !b.queues[queue] {
			wrong = append(wrong, fmt.Sprintf("queue %s: %v in the ResourceManager", queue, errQueue))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("yarn: %s: %w", clip(strings.Join(wrong, "; ")), errShares)
	}
	return nil
}

// sharesMax bounds a share: a cluster of nodesMax nodes holds fewer containers.
const sharesMax = 10_000_000

// maxima returns the containers that each queue may hold: the shares of its active jobs, at least their application
// masters, and what further applications need to start. Queues without a job with a share keep the operator's own
// maximum.
func (b *book) maxima() map[string]int {
	sums := map[string]int{}
	for _, j := range b.jobs {
		if share, ok := b.shares[j.app.id]; ok && !j.over {
			sums[j.app.queue] += max(share, b.room(j))
		}
	}
	for _, j := range b.jobs {
		_, shared := b.shares[j.app.id]
		if _, ok := sums[j.app.queue]; ok && !j.over && !shared {
			sums[j.app.queue] += b.overhead + 1 // its master and one task, to start
		}
	}
	return sums
}

// served returns the jobs of a queue in the order in which they are served, with what each may hold; nil for a single
// job, which the queue's maximum limits.
func (b *book) served(queue string) (jobs []jobShare) {
	for _, id := range b.order {
		if j := b.jobs[id]; j != nil && !j.over && j.app.queue == queue {
			n := max(b.shares[id], b.room(j))
			jobs = append(jobs, jobShare{id, n * b.cfg.Container.MemoryMB, n * b.cfg.Container.VCores})
		}
	}
	if len(jobs) < 2 {
		return nil
	}
	return jobs
}

// room returns how many containers' room a job's application master takes: a job with a share of 0 waits, and so does
// its master.
func (b *book) room(j *job) int {
	if j.seen.IsZero() {
		return b.overhead
	}
	return j.master
}
