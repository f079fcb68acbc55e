package yarn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/admission"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/verdicts"
	"headroom/units"
)

const (
	// waitsUnasked is how long a queued application is kept after its hook stopped asking: it asks every second.
	waitsUnasked = 30 * time.Second
	// beginsWithin is how long an admitted application may take to appear at the ResourceManager.
	beginsWithin = time.Minute
	// applicantsMost bounds the applications with an admission decision.
	applicantsMost = 10_000
)

// applicant is an application whose hook asked for admission.
type applicant struct {
	job admission.Job
	// due is its deadline; passed is whether it has left the controller.
	due     time.Time
	passed  bool
	verdict admission.Verdict
	answer  *headroomv1.Admission
	// asked is when its hook asked last.
	asked time.Time
	// work is the work of its containers until counted.
	work    time.Duration
	counted time.Time
	over    bool
}

// admitter admits applications by what the cluster's containers can do under the nodes' caps. Its methods do no I/O;
// callers hold the engine's lock.
type admitter struct {
	control    *admission.Controller
	applicants map[string]*applicant
	// earlier are the runs of ended applications by name.
	earlier admission.Earlier
	logger  *slog.Logger
}

func newAdmitter(logger *slog.Logger) *admitter {
	control, _ := admission.New(admission.Adaptive, 0) // the policy is valid, and so is capacity 0
	return &admitter{control: control, applicants: map[string]*applicant{}, logger: logger}
}

// Admit implements hookserver.Admitter.
func (e *Engine) Admit(_ context.Context, a hookserver.Application) (*headroomv1.Admission, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.book
	if !b.restored || b.looked.IsZero() || !b.failed.IsZero() {
		return nil, errStarting
	}
	return b.admitter.admit(time.Now(), a, b.capacity())
}

// deadline returns a job's deadline, also before it is committed.
func (b *book) deadline(j *job) time.Duration {
	if q := b.cfg.queue(j.app.queue); q != nil && j.spec == nil && j.demandRead {
		t := q.terms(j.demand, b.classes)
		return t.deadline
	}
	return j.terms.deadline
}

// capacity returns the nodes' containers under their caps, in containers at full speed.
func (b *book) capacity() int { return int(float64(b.containers)*b.meanSpeed() + 1e-9) }

func (d *admitter) admit(now time.Time, a hookserver.Application, capacity int) (*headroomv1.Admission, error) {
	d.passDeadlines(now)
	d.resize(now, capacity)
	if v := d.applicants[a.ID]; v != nil {
		v.asked = now
		d.tick(now)
		return v.answer, nil
	}
	if len(d.applicants) >= applicantsMost {
		return nil, fmt.Errorf("too many applications with an admission decision: %d", applicantsMost)
	}
	tasks := a.Needed()
	if tasks == 0 {
		tasks = max(1, capacity) // unknown: it may use all containers
	}
	v := d.add(now, admission.Job{ID: a.ID, User: a.User, Tasks: tasks, Deadline: a.Deadline, Earlier: d.runsOf(&a)})
	decisions, err := d.control.Submit(now, v.job)
	if err != nil {
		delete(d.applicants, a.ID)
		return nil, fmt.Errorf("%w: %w", hookserver.ErrApplication, err)
	}
	d.take(decisions)
	if x, err := admission.Of(decisions, a.ID); err == nil && x.Verdict == admission.Queued && !a.Waits {
		d.withdraw(now, a.ID)
		v.verdict = admission.Refused
		v.answer.Decision, v.answer.UntilUs = v.verdict.String(), nil
		v.answer.Reason = fmt.Sprintf("needs %d containers, %d are free; the tag headroom-queue lets it wait", x.Need, x.Free)
	}
	d.logger.Info("yarn: admission decided", slog.String("job", a.ID), slog.String("user", a.User), slog.String("queue", a.Queue),
		slog.Duration("deadline", a.Deadline), slog.String("decision", v.answer.GetDecision()), slog.String("reason", v.answer.GetReason()))
	return v.answer, nil
}

// runsOf returns the earlier runs of an application; none unless it said how many tasks it has.
func (d *admitter) runsOf(a *hookserver.Application) []admission.Run {
	if a.Tasks == 0 {
		return nil
	}
	return d.earlier.Of(admission.Known{User: a.User, Name: a.Name}, admission.Input{Size: int64(a.Tasks), Part: float64(a.Needed()) / float64(a.Tasks)})
}

// teach keeps the run of an application that has ended well, once.
func (d *admitter) teach(j *job) {
	if !j.over || j.taught {
		return
	}
	j.taught = true
	if j.state != headroomv1.JobState_JOB_STATE_DONE || j.most == 0 || j.tasks == 0 {
		return
	}
	d.earlier.Add(admission.Known{User: cmp.Or(j.app.user, userOf(j.spec)), Name: j.app.name},
		admission.Input{Size: int64(j.tasks), Part: float64(min(j.tasks, j.finallyDone())) / float64(j.tasks)}, admission.Run{Slots: j.most, Runtime: j.runtime})
}

// add adds an application whose hook asks.
func (d *admitter) add(now time.Time, job admission.Job) *applicant {
	v := &applicant{job: job, due: now.Add(job.Deadline), asked: now, counted: now}
	d.applicants[job.ID] = v
	return v
}

// passDeadlines removes applications whose deadlines have passed from the controller. Their need is learned at their
// ends.
func (d *admitter) passDeadlines(now time.Time) {
	for id, v := range d.applicants {
		if v.verdict == admission.Admitted && !v.over && !v.passed && !now.Before(v.due) {
			v.passed = true
			d.withdraw(now, id)
		}
	}
}

// take applies decisions of the controller.
func (d *admitter) take(decisions []admission.Decision) {
	for i := range decisions {
		x := &decisions[i]
		v := d.applicants[x.ID]
		if v == nil {
			continue
		}
		switch x.Verdict {
		case admission.Admitted, admission.Queued, admission.Refused:
			v.verdict, v.answer = x.Verdict, verdicts.Answer(x)
		default:
			// The coordinators divide the containers, and no application is ended here.
		}
	}
}

// resize updates the capacity.
func (d *admitter) resize(now time.Time, capacity int) {
	if decisions, err := d.control.SetCapacity(now, min(capacity, admission.CapacityMost)); err == nil {
		d.take(decisions)
	}
}

func (d *admitter) tick(now time.Time) { d.take(d.control.Tick(now)) }

// withdraw removes an application that has not ended by itself.
func (d *admitter) withdraw(now time.Time, id string) {
	if decisions, err := d.control.Withdraw(now, id); err == nil { // it may have left by itself
		d.take(decisions)
	}
}

// look applies the state of the applications.
func (d *admitter) look(now time.Time, b *book) {
	d.passDeadlines(now)
	d.resize(now, b.capacity())
	for _, j := range b.sorted() {
		j.hold()
		d.teach(j)
		d.meet(now, j, b.deadline(j))
		if v := d.applicants[j.app.id]; v != nil {
			d.follow(now, v, j)
		}
	}
	for id, v := range d.applicants {
		if v.gone(now, b.jobs[id] != nil) {
			d.withdraw(now, id)
			delete(d.applicants, id)
		}
	}
	d.tick(now)
}

// gone reports whether an application will not start, or is no longer needed.
func (v *applicant) gone(now time.Time, listed bool) bool {
	switch {
	case v.verdict == admission.Queued:
		return now.Sub(v.asked) >= waitsUnasked
	case listed:
		return false
	}
	return now.Sub(v.asked) >= beginsWithin
}

// meet counts a running job with its own deadline that was not asked about, or was forgotten in a restart of the
// scheduler, so that its containers are not promised to others.
func (d *admitter) meet(now time.Time, j *job, deadline time.Duration) {
	id, left := j.app.id, deadline-now.Sub(j.app.started)
	if j.over || d.applicants[id] != nil || j.demand[propertyDeadline] == "" && j.admission == nil || j.tasks == 0 || left <= 0 || len(d.applicants) >= applicantsMost {
		return
	}
	v := d.add(now, admission.Job{ID: id, User: j.app.user, Tasks: max(1, units.Ratio(j.floor.Fraction).Least(j.tasks)), Deadline: left})
	decisions, err := d.control.Submit(now, v.job)
	if err == nil {
		d.take(decisions)
	}
	if err != nil || v.verdict == admission.Queued {
		d.withdraw(now, id) // it runs without a promise
		v.verdict, v.answer = admission.Refused, nil
	}
}

// follow counts the work of an application's containers, and applies its end.
func (d *admitter) follow(now time.Time, v *applicant, j *job) {
	if v.over {
		return
	}
	v.asked = now // it is listed
	containers := 0
	for _, n := range j.on {
		containers += n
	}
	if !j.over {
		v.work += time.Duration(containers) * now.Sub(v.counted)
		v.counted = now
		if j.admission == nil {
			j.admission = v.answer
		}
		return
	}
	v.over = true
	if j.state != headroomv1.JobState_JOB_STATE_DONE {
		d.withdraw(now, j.app.id)
		return
	}
	decisions, err := verdicts.Ended(d.control, now, v.job, min(v.work, admission.TimeMost))
	if err != nil {
		d.logger.Debug("yarn: nothing learned from an ended application", slog.String("job", j.app.id), slog.Any("error", err))
	}
	d.take(decisions)
}
