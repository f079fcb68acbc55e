package scheduler

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/admission"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/verdicts"
	"headroom/units"
)

const (
	// admissionOff disables admission.
	admissionOff = "off"
	// reservedFor is how long slots are reserved for an admitted job that is not in the coordinators' log. It is longer
	// than a submission takes, and longer than reading the log takes.
	reservedFor = time.Minute
	// lookEvery is how often the slots that can be promised are counted.
	lookEvery = stepEvery
	// deadlineSeen is the maximum delay after which a job ends by its deadline: the next step, which may be late
	// itself.
	deadlineSeen = 2 * stepEvery
)

// Admission is the admission section: how jobs with a deadline are admitted.
type Admission struct {
	// Policy is adaptive, pythia, reactive, nodrop or off.
	Policy string `yaml:"policy"`
}

func (a Admission) check() *cli.Error {
	if p, err := admission.ParsePolicy(a.Policy); a.Policy != admissionOff && (err != nil || a.Policy == "" || p == admission.Oracle) {
		return config.Bad("want one of adaptive, pythia, reactive, nodrop, off", "admission.policy %q is unknown", a.Policy)
	}
	return nil
}

// admitter decides about the admission of jobs with a deadline, per engine, and keeps their promises. It belongs to the
// loop. A controller opens once the slots of the engine are known; until then every job is admitted.
type admitter struct {
	policy      admission.Policy
	off         bool
	controllers map[string]*admission.Controller // by engine; "" is that of our workers
	promises    map[string]*promise              // by job
	lessons     map[string][]lesson              // of ended jobs, by engine, while its controller is not open
	// opens is when controllers may open after a restart: workers need time to reconnect.
	opens  time.Time
	looked time.Time
	// read is when the coordinators' log was last read: everything committed by then is known.
	read time.Time
	// earlier are the runs of ended jobs by name.
	earlier admission.Earlier
	// refused are waiting jobs that are to be ended.
	refused []dispatch.EndJob
	tally   *tally
}

// promise is the admission state of a job.
type promise struct {
	job       admission.Job
	engine    string
	rank      int
	submitted time.Time
	// answer is the latest decision that was sent.
	answer *headroomv1.Admission
	// asked is when a job was decided about that is not known to be committed; zero once it is.
	asked time.Time
	// later is whether no controller knows it yet: an earlier scheduler process promised it something.
	later bool
	// waits is whether it is queued for admission; waiting is its event then, nil while it is not known to be
	// committed.
	waits   bool
	waiting *addEvent
	// refused is whether it was refused while it waited; open whether it has no promise, or no longer one.
	refused, open bool
}

// lesson is the need of an ended job.
type lesson struct {
	job  admission.Job
	work time.Duration
}

func newAdmitter(policy string) *admitter {
	p, err := admission.ParsePolicy(policy)
	return &admitter{
		policy: p, off: policy == admissionOff || err != nil, controllers: make(map[string]*admission.Controller),
		promises: make(map[string]*promise), lessons: make(map[string][]lesson),
	}
}

// judgeEvent decides about the admission of a new job, and takes it in unless dry is set.
type judgeEvent struct {
	id     string
	record *record
	// queue accepts a job that has to wait.
	queue, dry bool
	reply      chan<- *headroomv1.Admission
}

func (e judgeEvent) apply(l *loop, now time.Time) { e.reply <- l.judge(now, e) }

func (l *loop) judge(now time.Time, e judgeEvent) *headroomv1.Admission {
	if p := l.admitter.promises[e.id]; p != nil {
		return p.answer // the same request is in progress
	}
	p := newPromise(e.id, e.record, slices.Index(l.cfg.names(), e.record.file.Class))
	p.job.Earlier = l.earlier(e.record)
	d, why := l.ask(now, p)
	p.asked = now
	switch {
	case why != "" && l.hopeless(now, p):
		if !e.dry {
			l.admitter.tally.decided(admission.Refused.String())
		}
		return p.answer
	case why != "":
		p.open, p.answer = true, openly(why)
	case e.dry || d.Verdict == admission.Refused || d.Verdict == admission.Queued && !e.queue:
		p.answer = verdicts.Answer(&d)
		if !e.dry {
			l.admitter.tally.decided("refused")
		}
		return p.answer
	}
	if e.dry {
		return p.answer
	}
	l.admitter.promises[e.id] = p
	if !p.open {
		l.enterController(now, p)
	}
	l.admitter.tally.decided(p.answer.GetDecision())
	return p.answer
}

// newPromise returns the admission state of a new job.
func newPromise(id string, r *record, rank int) *promise {
	return &promise{
		job:    admission.Job{ID: id, User: r.file.Submitter, Tasks: r.most(), Deadline: r.deadline},
		engine: r.file.Engine(), rank: rank, submitted: r.submitted,
	}
}

// most returns how many slots the job can use for its promise: its own bound, and at most the tasks of its floor.
// Nothing is promised for further tasks.
func (r *record) most() int { return mostSlots(r.file, len(r.inputs.Names), r.floor.Fraction) }

func mostSlots(f *jobfile.File, tasks int, floor float64) int {
	tasks = units.Ratio(floor).Least(tasks)
	if f.Spark != nil || tasks < 1 { // the number of tasks of an application is known late
		return f.Slots
	}
	return min(f.Slots, tasks)
}

// ask returns what would be decided about a job, or why every job is admitted.
func (l *loop) ask(now time.Time, p *promise) (d admission.Decision, why string) {
	l.passDeadlines(now)
	slots, others, why := l.room(now, p.engine, p.rank)
	if why != "" {
		return d, why
	}
	g, err := l.controller(now, p.engine, slots)
	if err == nil {
		d, err = g.Ask(now, p.job, slots, others)
	}
	if err != nil {
		l.logger.Warn("admission of job failed", slog.String("job", p.job.ID), slog.Any("error", err))
		return d, "admission failed: " + err.Error()
	}
	return d, ""
}

// hopeless refuses a job that would be admitted without a promise, if even all slots would not be enough for its deadline.
func (l *loop) hopeless(now time.Time, p *promise) bool {
	if policy := l.admitter.policy; policy == admission.NoDrop || policy == admission.Reactive {
		return false
	}
	d, hopeless := admission.Hopeless(now, p.job, p.job.Tasks)
	if hopeless {
		p.answer = verdicts.Answer(&d)
	}
	return hopeless
}

// enterController adds a job to its controller.
func (l *loop) enterController(now time.Time, p *promise) {
	g := l.admitter.controllers[p.engine]
	err := l.countSlots(now, p.engine, p.rank)
	var out []admission.Decision
	if err == nil {
		p.job.Waited = max(0, now.Sub(p.submitted))
		out, err = g.Submit(now, p.job)
	}
	if err != nil {
		l.logger.Warn("admission of job failed", slog.String("job", p.job.ID), slog.Any("error", err))
		p.open, p.waits, p.answer = true, false, openly("admission failed: "+err.Error())
		l.enterCore(now, p)
		return
	}
	l.applyAll(now, out)
}

// countSlots updates the number of slots in the open controller of an engine, if it is known.
func (l *loop) countSlots(now time.Time, engine string, rank int) error {
	g := l.admitter.controllers[engine]
	slots, others, why := l.room(now, engine, rank)
	was, had := g.Capacity()
	if why != "" {
		return nil
	}
	if slots != was {
		out, err := g.SetCapacity(now, slots)
		if err != nil {
			return fmt.Errorf("scheduler: slots of engine %q: %w", engine, err)
		}
		l.applyAll(now, out)
	}
	if others != had {
		out, err := g.SetOthers(now, others)
		if err != nil {
			return fmt.Errorf("scheduler: slots of engine %q: %w", engine, err)
		}
		l.applyAll(now, out)
	}
	return nil
}

// passDeadlines removes jobs whose deadlines have passed from the controllers. Their need is learned at their ends.
func (l *loop) passDeadlines(now time.Time) {
	for id, p := range l.admitter.promises {
		g := l.admitter.controllers[p.engine]
		if p.open || p.later || p.waits || g == nil || now.Before(p.submitted.Add(p.job.Deadline)) {
			continue
		}
		p.open, p.answer = true, said(p.answer, "its deadline has passed")
		if out, err := g.Withdraw(now, id); err == nil { // it may have been stopped
			l.applyAll(now, out)
		}
	}
}

// room returns the slots of an engine, and how many of them are held by jobs without a promise. For promises to jobs of
// a class, slots of lower classes do not count. If it is unknown, why states the reason.
func (l *loop) room(now time.Time, engine string, rank int) (slots, others int, why string) {
	switch {
	case l.queue.Discipline != buffers.Shared:
		return 0, 0, fmt.Sprintf("discipline %s runs jobs one after the other; no slots are promised", l.queue.Discipline)
	case now.Before(l.admitter.opens):
		return 0, 0, "the scheduler has just started; not all slots are known"
	case engine == jobfile.Pigeon:
		return 0, 0, "masters dispatch its tasks; no slots are promised"
	case engine != "":
		cores, trouble := l.engines.spark.Capacity()
		if trouble != "" || cores == 0 {
			return 0, 0, "the cores of the engine are unknown: " + trouble
		}
		slots = cores
	default:
		if slots = l.core.Capacity(); slots == 0 {
			return 0, 0, "no worker is connected, so the number of slots is unknown"
		}
	}
	for _, p := range l.admitter.promises {
		if p.engine == engine && !p.open {
			rank = max(rank, p.rank)
		}
	}
	for _, j := range l.core.Jobs(now) {
		if p := l.admitter.promises[j.ID]; j.State == dispatch.Running && j.Engine == engine && j.Rank <= rank && (p == nil || p.open) {
			others += j.Held + max(j.Progress.Cores, j.Progress.Executors)
		}
	}
	return slots, min(others, slots), ""
}

// controller returns the controller of an engine. A new one learns from ended jobs and takes over earlier promises.
func (l *loop) controller(now time.Time, engine string, slots int) (*admission.Controller, error) {
	if g := l.admitter.controllers[engine]; g != nil {
		return g, nil
	}
	g, err := admission.New(l.admitter.policy, slots)
	if err != nil {
		return nil, fmt.Errorf("scheduler: admission of engine %q: %w", engine, err)
	}
	for _, x := range l.admitter.lessons[engine] {
		if err := g.Learn(x.job, x.work); err != nil {
			l.logger.Debug("nothing learned from an ended job", slog.String("job", x.job.ID), slog.Any("error", err))
		}
	}
	l.admitter.controllers[engine] = g
	delete(l.admitter.lessons, engine)
	var before []*promise
	for _, p := range l.admitter.promises {
		if p.later && p.engine == engine {
			before = append(before, p)
		}
	}
	slices.SortFunc(before, func(a, b *promise) int {
		if a.waits != b.waits { // running jobs first, so that their slots are not promised to others
			if b.waits {
				return -1
			}
			return 1
		}
		return cmp.Or(a.submitted.Compare(b.submitted), cmp.Compare(a.job.ID, b.job.ID))
	})
	for _, p := range before {
		l.takeOver(now, p)
	}
	return g, nil
}

// takeOver adds a job of an earlier scheduler process to the open controller of its engine.
func (l *loop) takeOver(now time.Time, p *promise) {
	p.later = false
	if p.waits {
		l.enterController(now, p)
		return
	}
	p.job.Waited = max(0, now.Sub(p.submitted))
	out, err := l.admitter.controllers[p.engine].Resume(now, p.job, int(max(p.answer.GetSlots(), p.answer.GetNeed())))
	if err != nil {
		l.logger.Warn("promise of job lost", slog.String("job", p.job.ID), slog.Any("error", err))
		p.open = true
		return
	}
	l.applyAll(now, slices.DeleteFunc(out, func(d admission.Decision) bool { return d.ID == p.job.ID && d.Verdict == admission.Admitted }))
}

// applyAll applies decisions of a controller.
func (l *loop) applyAll(now time.Time, out []admission.Decision) {
	for _, d := range out {
		p := l.admitter.promises[d.ID]
		if p == nil {
			continue
		}
		l.logger.Info("admission", slog.String("job", d.ID), slog.String("decision", d.Verdict.String()), slog.String("reason", d.Reason()))
		switch d.Verdict {
		case admission.Admitted:
			p.waits, p.answer = false, verdicts.Answer(&d)
			l.enterCore(now, p)
		case admission.Queued:
			p.waits, p.answer = true, verdicts.Answer(&d)
			if p.waiting != nil {
				l.keepWaiting(p)
			}
		case admission.Refused:
			p.refused, p.answer = true, verdicts.Answer(&d)
			if p.waiting != nil {
				l.refuse(p)
			}
		case admission.Resized, admission.Stopped:
			p.open = d.Verdict == admission.Stopped
			p.answer = said(p.answer, d.Reason())
		}
	}
}

// enterCore starts a committed job that has waited.
func (l *loop) enterCore(now time.Time, p *promise) {
	if p.waiting == nil {
		return
	}
	e := *p.waiting
	p.waiting = nil
	e.apply(l, now)
	l.admitter.tally.decided("admitted")
}

// holds reports whether a committed job stays out of the dispatcher: it waits for its promise, or was refused
// meanwhile.
func (l *loop) holds(now time.Time, e addEvent) bool {
	p := l.admitter.promises[e.plan.ID]
	if p == nil {
		if p = l.restored(e); p == nil {
			return false
		}
		if l.admitter.controllers[p.engine] != nil {
			p.waiting = &e
			l.takeOver(now, p)
		}
	}
	p.asked = time.Time{}
	committed := e.record.admission.GetDecision()
	if e.record.admission == nil || !p.waits {
		e.record.admission = p.answer
	}
	switch {
	case p.refused:
		if l.records[e.plan.ID] == nil {
			p.waiting = &e
			l.refuse(p)
		}
		return true
	case p.waits:
		p.waiting = &e
		l.keepWaiting(p)
		return true
	}
	p.waiting = nil
	if committed == admission.Queued.String() && p.answer.GetDecision() == admission.Admitted.String() {
		l.readmit(p, e)
	}
	return l.core.Knows(e.plan.ID)
}

// readmit commits that a queued job is admitted.
func (l *loop) readmit(p *promise, e addEvent) {
	select {
	case l.commits.admitted <- p.told(e):
	default:
		l.logger.Warn("admission of job not committed: queue to the coordinators is full", slog.String("job", p.job.ID))
	}
}

// told returns a committed job with the latest decision about it.
func (p *promise) told(e addEvent) *headroomv1.Job {
	return jobToProto(jobAndSpec{
		JobView: dispatch.JobView{Plan: e.plan, Rank: max(0, p.rank)}, spec: e.record.spec, floor: e.record.floor.Fraction,
		deadline: e.record.deadline, admission: p.answer,
	})
}

// restored returns the admission state of a job from the log; nil for none.
func (l *loop) restored(e addEvent) *promise {
	a := e.record.admission
	if a == nil || l.admitter.off {
		return nil
	}
	p := newPromise(e.plan.ID, e.record, slices.Index(l.cfg.names(), e.plan.Class))
	p.answer, p.later, p.job.Earlier = a, true, l.earlier(e.record)
	p.waits = a.GetDecision() == admission.Queued.String() && e.past.Started.IsZero()
	l.admitter.promises[e.plan.ID] = p
	return p
}

// keepWaiting lists a job among those that wait outside the dispatcher.
func (l *loop) keepWaiting(p *promise) {
	j := p.told(*p.waiting)
	j.Outcome = "waiting for admission: " + p.answer.GetReason()
	l.waiting[p.job.ID] = j
}

// refuse ends a queued job that cannot be admitted.
func (l *loop) refuse(p *promise) {
	id, outcome := p.job.ID, OutcomeRefused+p.answer.GetReason()
	delete(l.waiting, id)
	delete(l.admitter.promises, id)
	p.waiting.record.admission = p.answer
	l.records[id] = p.waiting.record
	l.core.AddEnded(p.waiting.plan, dispatch.Failed, outcome, 0, 0, 0)
	l.admitter.refused = append(l.admitter.refused, dispatch.EndJob{Job: id, State: dispatch.Failed, Outcome: outcome, Tasks: p.waiting.plan.Tasks})
	l.admitter.tally.decided("refused")
}

// attend runs what is due by the clock, and updates the number of slots.
func (l *loop) attend(now time.Time) {
	d := l.admitter
	if d.off || len(d.promises) == 0 || now.Sub(d.looked) < lookEvery {
		return
	}
	d.looked = now
	l.passDeadlines(now)
	for id, p := range d.promises {
		switch {
		case !p.asked.IsZero() && d.read.Sub(p.asked) > reservedFor:
			l.withdraw(now, id)
		case p.later:
			if slots, _, why := l.room(now, p.engine, p.rank); why == "" {
				if _, err := l.controller(now, p.engine, slots); err != nil {
					l.logger.Warn("admission not started", slog.Any("error", err))
				}
			} else if p.waits && p.waiting != nil && !now.Before(p.submitted.Add(p.job.Deadline)) {
				p.refused, p.answer = true, said(p.answer, "its deadline has passed: "+why)
				l.refuse(p)
			}
		}
	}
	for engine, g := range d.controllers {
		if err := l.countSlots(now, engine, 0); err != nil {
			l.logger.Warn("admission: number of slots unknown", slog.Any("error", err))
		}
		if at, due := g.NextTick(); due && !now.Before(at) {
			l.applyAll(now, g.Tick(now))
		}
	}
}

// withdraw removes a job that does not run, or no longer runs, without learning from it.
func (l *loop) withdraw(now time.Time, id string) {
	p := l.admitter.promises[id]
	if p == nil {
		return
	}
	delete(l.admitter.promises, id)
	g := l.admitter.controllers[p.engine]
	if p.open || p.later || g == nil {
		return
	}
	if out, err := g.Withdraw(now, id); err == nil { // it may have been stopped
		l.applyAll(now, out)
	}
}

// withdrawEvent reports that an admitted job was certainly not committed.
type withdrawEvent struct{ id string }

func (e withdrawEvent) apply(l *loop, now time.Time) { l.withdraw(now, e.id) }

// leaveAdmission records the end of a job that ran, and what it wasted.
func (l *loop) leaveAdmission(now time.Time, r *record, a dispatch.EndJob) {
	work := a.Work
	if a.Work == 0 && r.file.Spark != nil {
		work = a.Runtime * time.Duration(r.file.Slots) // the work of its executors is unknown: use the maximum
	}
	r.wasted = l.admitter.tally.ended(a, work, r.late(now, a))
	if p, ok := pastOf(r.file, a.State, a.Tasks, a.Done, a.Runtime, r.went(now, a)); ok {
		l.admitter.earlier.Add(p.known, p.in, p.run)
	}
	l.passDeadlines(now)
	p := l.admitter.promises[a.Job]
	if p == nil || a.State != dispatch.Done {
		l.withdraw(now, a.Job)
		return
	}
	delete(l.admitter.promises, a.Job)
	work = min(r.promisedWork(work, a), admission.TimeMost)
	g := l.admitter.controllers[p.engine]
	if g == nil {
		l.learn(p.engine, lesson{p.job, work})
		return
	}
	out, err := verdicts.Ended(g, now, p.job, work)
	if err != nil {
		l.logger.Debug("nothing learned from an ended job", slog.String("job", a.Job), slog.Any("error", err))
	}
	l.applyAll(now, out)
}

// late reports whether a job has missed its deadline. One that may end with fewer tasks is ended by its deadline: it is
// on time if its floor was done by then, so that its map tasks were over when the deadline was noticed.
func (r *record) late(now time.Time, a dispatch.EndJob) bool {
	due := r.submitted.Add(r.deadline)
	if _, bounded := r.file.ErrorBound(); !bounded && r.floor.Fraction < 1 && r.file.Spark == nil {
		due = due.Add(deadlineSeen)
		if over := a.Course.MapsOver; !over.IsZero() { // otherwise they end with the job, or this core has not seen their end
			now = over
		}
	}
	return r.deadline > 0 && now.After(due)
}

// promisedWork returns the work of the tasks of a job's floor, if it has done more of them.
func (r *record) promisedWork(work time.Duration, a dispatch.EndJob) time.Duration {
	needed := units.Ratio(r.floor.Fraction).Least(a.Tasks)
	if r.file.Spark != nil || needed >= a.Done {
		return work
	}
	return time.Duration(float64(work) * float64(needed) / float64(a.Done))
}

// learn takes over an ended job of the coordinators' log. The log does not have its need, but the maximum that it can
// have had.
func (l *loop) learn(engine string, x lesson) {
	if known := l.admitter.lessons[engine]; l.admitter.controllers[engine] == nil && !l.admitter.off {
		l.admitter.lessons[engine] = append(known[max(0, len(known)-dispatch.EndedMax+1):], x)
	}
}

// promised returns how many slots are promised to a job now.
func (l *loop) promised(id string) int {
	p := l.admitter.promises[id]
	if p == nil || p.open {
		return 0
	}
	if g := l.admitter.controllers[p.engine]; g != nil && !p.later {
		slots, _ := g.Promised(id)
		return slots
	}
	return int(p.answer.GetSlots())
}

// said returns an answer with another reason.
func said(a *headroomv1.Admission, reason string) *headroomv1.Admission {
	out := proto.CloneOf(a)
	out.Reason = reason
	return out
}

// openly admits a job without a promise.
func openly(why string) *headroomv1.Admission {
	return &headroomv1.Admission{Decision: admission.Admitted.String(), Reason: "nothing is promised: " + why}
}

// tally holds counters for metrics; the loop writes it.
type tally struct {
	mu        sync.Mutex
	decisions map[string]int
	wasted    map[string]time.Duration
}

// Reasons of wasted work, as labels of metrics.
const (
	wastedMissed = "missed"
	wastedKilled = "killed"
	wastedCopy   = "copy"
	wastedFailed = "failed"
)

func newTally() *tally {
	t := &tally{decisions: make(map[string]int), wasted: make(map[string]time.Duration)}
	for _, v := range []admission.Verdict{admission.Admitted, admission.Queued, admission.Refused} {
		t.decisions[v.String()] = 0
	}
	for _, why := range []string{wastedMissed, wastedKilled, wastedCopy, wastedFailed} {
		t.wasted[why] = 0
	}
	return t
}

func (t *tally) decided(decision string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decisions[decision]++
}

// ended counts what an ended job wasted, and returns it: attempts that did not count, and all of its work if it has no
// result or was late.
func (t *tally) ended(a dispatch.EndJob, work time.Duration, late bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wasted[wastedCopy] += a.Wasted.Copies
	t.wasted[wastedFailed] += a.Wasted.Failed
	t.wasted[wastedKilled] += a.Wasted.Killed
	all := a.Wasted.Total()
	switch {
	case a.State == dispatch.Cancelled:
		t.wasted[wastedKilled] += work
	case a.State == dispatch.Failed:
		t.wasted[wastedFailed] += work
	case late:
		t.wasted[wastedMissed] += work
	default:
		return all
	}
	return all + work
}
