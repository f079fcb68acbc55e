package yarn

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/config"
	"headroom/jobs/admission"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/sparkapp"
)

// Spark applications in the named queues are jobs like those of MapReduce, with two differences. Their tasks are
// reported by the hook in the driver, which registers by the application's id, or by the driver's REST interface
// through YARN's proxy. And the hook takes a drop ratio and a number of executors.

const (
	// sparkSilence is the time without a report from its driver after which the state of an application is old.
	sparkSilence = 10 * time.Second
	// sparkHooked is the time without a report from the hook after which the REST interface is used.
	sparkHooked = 5 * time.Second
	// sparkHooksMax bounds the applications whose hooks are kept, known or not yet.
	sparkHooksMax = 1000
)

// sparkApp is the state inside a Spark application.
type sparkApp struct {
	// progress is the newest; known is whether there is any.
	progress sparkapp.Progress
	known    bool
	// heard is when its hook reported last, looked when its REST interface answered.
	heard, looked time.Time
	// sequence numbers the reports of the attempt.
	sequence uint64
	attempt  int
	// asks is its owner's demand; nil until its hook or its REST interface has reported it.
	asks demand
	// theta is the drop ratio in force, with its seed.
	theta float64
	seed  uint64
	// asked is whether admission has decided about its deadline; refused is why it is not promised, in words.
	asked   bool
	refused string
	// executor is the size of an executor's container, executors how many run.
	executor  Container
	executors int
}

// sparkLook is one read inside a Spark application.
type sparkLook struct {
	executor  Container
	executors int
	// progress and asks come from its REST interface; nil if that was not read, or has none.
	progress *sparkapp.Progress
	asks     demand
}

// sparkWish is what the book requests about a Spark application.
type sparkWish struct {
	// hooked is whether its hook reports, so that REST is not read.
	hooked bool
	known  sparkapp.Progress
	asks   demand
}

// sparkFor returns the state of an application, which may not be a job yet.
func (b *book) sparkFor(id string) *sparkApp {
	s := b.sparks[id]
	if s == nil {
		s = &sparkApp{}
		b.sparks[id] = s
	}
	return s
}

// sparkWishes returns what the next read should fetch of Spark applications.
func (b *book) sparkWishes(now time.Time) map[string]sparkWish {
	wishes := make(map[string]sparkWish, len(b.sparks))
	for id, s := range b.sparks {
		wishes[id] = sparkWish{hooked: now.Sub(s.heard) < sparkHooked, known: s.progress, asks: s.asks}
	}
	return wishes
}

// forgetSparks removes the state of applications that have ended or disappeared.
func (b *book) forgetSparks(now time.Time) {
	for id, s := range b.sparks {
		if j := b.jobs[id]; j == nil && now.Sub(s.heard) > sparkSilence || j != nil && j.closed {
			delete(b.sparks, id)
		}
	}
}

// insideSpark reads the containers of a Spark application and, if its hook is silent, its driver.
func (c *client) insideSpark(ctx context.Context, a app, w sparkWish, demandRead bool) (d detail) {
	var h held
	h, d.err = c.containers(ctx, a)
	d.on, d.master, d.spark = h.on, h.master, &sparkLook{executor: h.largest, executors: h.running}
	if w.asks != nil {
		d.demand, d.demandRead = w.asks, true
	}
	if w.hooked {
		return d
	}
	ask := func(ctx context.Context, path string) ([]byte, error) { return c.driver(ctx, a.id, path) }
	if !demandRead && !d.demandRead {
		id, err := sparkapp.Identify(ctx, ask)
		if err != nil {
			d.err = err
			return d
		}
		d.demand, d.demandRead = demandOf(id.Properties, "spark."), true
		d.spark.asks = d.demand
	}
	// The nodes of its executors are known by their containers.
	p, err := sparkapp.Look(ctx, ask, a.id, w.known, func(host string) string { return host })
	if err != nil {
		d.err = err
		return d
	}
	d.spark.progress = &p
	return d
}

// demandOf returns the demands among properties, with a prefix before MapReduce's own names.
func demandOf(properties map[string]string, prefix string) demand {
	d := demand{}
	for key, value := range properties {
		if name, ok := strings.CutPrefix(key, prefix); ok && demandNames(name) {
			d[name] = strings.TrimSpace(value)
		}
	}
	return d
}

// takeSpark applies a read inside a Spark application.
func (b *book) takeSpark(now time.Time, j *job, look *sparkLook) {
	s := b.sparkFor(j.app.id)
	j.spark = s
	if look == nil {
		return
	}
	s.executors = look.executors
	if look.executor != (Container{}) {
		s.executor = look.executor
	}
	if look.asks != nil && s.asks == nil {
		s.asks = look.asks
	}
	if look.progress != nil && now.Sub(s.heard) >= sparkHooked {
		s.progress, s.looked, s.known = *look.progress, now, true
	}
	j.started = cmpTime(j.started, cmpTime(j.app.launched, j.app.started))
	j.firstSeen = cmpTime(j.firstSeen, now)
	if s.fresh(now) {
		j.seen = now
	}
	if s.known {
		j.sample(now, s.progress.Done)
	}
}

// sampleOf returns a sample of a job for the coordinators.
func (b *book) sampleOf(now time.Time, j *job) *headroomv1.JobProgress {
	p := j.progress(b.cfg, b.fresh(now, j))
	if j.spark != nil {
		b.fillSpark(now, j, p)
	}
	b.serve(now, j, p)
	return p
}

// fillSpark completes a sample with the report of the driver.
func (b *book) fillSpark(now time.Time, j *job, p *headroomv1.JobProgress) {
	s := j.spark
	t := s.progress
	p.Tasks, p.Done, p.Dropped = uint32(t.Tasks), uint32(t.Done), uint32(t.Dropped)
	p.Ahead, p.Work, p.Reduced = true, nil, nil
	p.Phase = headroomv1.JobPhase_JOB_PHASE_UNSPECIFIED
	p.Error = j.demand.errorBound()
	if j.over {
		p.Tasks = p.GetDone() + p.GetDropped() // tasks that were planned and not needed do not count
		return
	}
	p.Copies = uint32(t.Copies)
	p.Running, p.Pending, p.Containers = uint32(t.Running), uint32(t.Pending()), uint32(b.heldSpark(j, s))
	if p.GetContainers() > 0 && t.Running+t.Pending() == 0 && t.Done == 0 {
		p.Phase = headroomv1.JobPhase_JOB_PHASE_WAITING
	} else {
		p.Phase = headroomv1.JobPhase_JOB_PHASE_MAP
	}
	if !s.fresh(now) {
		p.RatePerS = nil
	}
}

// hooked reports whether the hook of an application reports.
func (s *sparkApp) hooked(now time.Time) bool { return now.Sub(s.heard) < sparkSilence }

// fresh reports whether its driver has reported recently.
func (s *sparkApp) fresh(now time.Time) bool {
	return s.hooked(now) || now.Sub(s.looked) < sparkSilence
}

// heldSpark returns the containers that it holds, in the unit of shares.
func (b *book) heldSpark(j *job, s *sparkApp) int {
	if j.app.containers == 0 {
		return 0
	}
	return j.master + s.executors*b.cfg.Container.times(s.executor)
}

// words returns the source of an application's progress, and problems reported by its hook.
func (s *sparkApp) words(now time.Time) string {
	switch {
	case s == nil || !s.fresh(now):
		return "progress unknown: its driver has no hook, and its REST interface is unreachable through YARN's proxy"
	case !s.hooked(now):
		return string(sparkapp.ByREST)
	case s.progress.Trouble == "" && s.progress.Exact != "":
		return clip(s.progress.Remark())
	case s.progress.Trouble != "":
		return "problem in its driver: " + clip(s.progress.Remark())
	}
	return ""
}

// tasks returns the tasks of an ended application, without those that were planned and not needed.
func (s *sparkApp) tasks() int { return s.progress.Done + s.progress.Dropped }

// sparkReady reports whether everything that the coordinators need is known of a Spark application: it runs, and its
// owner's demand was read, or is unreadable.
func (j *job) sparkReady(now time.Time) bool {
	return j.over || (!j.firstSeen.IsZero() && (j.demandRead || now.Sub(j.firstSeen) >= floorWait))
}

// deflate puts a larger drop ratio in force. The seed of the first holds.
func (s *sparkApp) deflate(theta float64, seed uint64) {
	if s.theta == 0 {
		s.seed = seed
	}
	s.theta = theta
}

// restoreSpark applies the committed drop ratio of an application.
func (b *book) restoreSpark(m *headroomv1.Job) {
	d := m.GetDeflation()
	if d == nil || stateEnded(m.GetState()) {
		return
	}
	if s := b.sparkFor(m.GetId()); d.GetTheta() > s.theta {
		s.theta, s.seed = d.GetTheta(), d.GetSeed()
	}
}

// reportSpark applies a report of the hook of an application, and returns the settings in force.
func (b *book) reportSpark(now time.Time, r sparkapp.Report) (sparkapp.Reply, error) {
	if !b.restored {
		return sparkapp.Reply{}, errStarting
	}
	j := b.jobs[r.Job]
	switch {
	case !appForm.MatchString(r.Job), j != nil && (j.over || !j.app.spark):
		return sparkapp.Reply{}, fmt.Errorf("%.100q: %w", r.Job, errJob)
	}
	if b.sparks[r.Job] == nil && len(b.sparks) >= sparkHooksMax {
		return sparkapp.Reply{}, fmt.Errorf("more than %d applications of Spark: %w", sparkHooksMax, errJob)
	}
	s := b.sparkFor(r.Job)
	if r.Attempt > s.attempt { // YARN has restarted its driver
		s.attempt, s.sequence = r.Attempt, 0
	}
	if r.Attempt == s.attempt && r.Sequence > s.sequence { // a delayed older report changes nothing
		if sparkapp.Stopped(r.Trouble) {
			r.Trouble = s.progress.Trouble
		}
		s.sequence, s.heard, s.known = r.Sequence, now, true
		s.progress = r.Progress(s.theta, func(host string) string { return host })
		s.asks = demand{}
		for name, value := range r.Asks {
			if demandNames(ownerPrefix + name) {
				s.asks[ownerPrefix+name] = strings.TrimSpace(value)
			}
		}
	}
	b.askAdmission(now, r, j, s)
	a := sparkapp.Reply{Theta: s.theta, Seed: int64(s.seed), Refused: s.refused}
	if n := b.executorsOf(j, s); n > 0 {
		a.Executors = &n
	}
	if p, kept := j.promiseSpark(s); kept {
		a.End, a.Copies = p.End(now), r.Copies(b.policy, p, now)
	}
	return a, nil
}

// askAdmission asks once whether the deadline of an application that has not started can be promised. One that has
// started is not refused: it is counted as a job.
func (b *book) askAdmission(now time.Time, r sparkapp.Report, j *job, s *sparkApp) {
	if s.asked || r.Total > 0 || b.looked.IsZero() || !b.failed.IsZero() {
		return
	}
	left, err := config.ParseDuration(s.asks[propertyDeadline])
	if err != nil || left > hookserver.DeadlineMost {
		return
	}
	a := hookserver.Application{ID: r.Job}
	if j != nil {
		a.User, a.Queue = j.app.user, j.app.queue
		left -= now.Sub(j.app.started)
	}
	if a.Deadline = left; left <= 0 {
		return
	}
	verdict, err := b.admitter.admit(now, a, b.capacity())
	if err != nil {
		b.logger.Warn("yarn: Spark application without an admission decision", slog.String("job", r.Job), slog.Any("error", err))
		return
	}
	s.asked = true
	if verdict.GetDecision() == admission.Refused.String() {
		s.refused = verdict.GetReason()
	}
}

// promiseSpark returns what an application has to keep; false until the coordinators' log has its floor.
func (j *job) promiseSpark(s *sparkApp) (sparkapp.Promise, bool) {
	if j == nil || !j.committed {
		return sparkapp.Promise{}, false
	}
	return sparkapp.Promise{Floor: j.floor.Fraction, Bounded: s.asks[ownerPrefix+"error"] != "", Submitted: j.app.started, Deadline: j.terms.deadline}, true
}

// ownerPrefix begins the properties that a job's owner sets.
const ownerPrefix = "headroom."

// executorsOf returns how many executors an application's share is; 0 without a share, or if their size is unknown:
// then Spark decides.
func (b *book) executorsOf(j *job, s *sparkApp) int {
	if j == nil || s.executor == (Container{}) {
		return 0
	}
	share, ok := b.shares[j.app.id]
	if !ok {
		return 0
	}
	return min(max(1, (share-j.master)/b.cfg.Container.times(s.executor)), sparkapp.ExecutorsMax)
}

// sparkProgress answers the hooks in drivers that Headroom did not start.
func (h *hooks) sparkProgress(w http.ResponseWriter, r *http.Request) {
	rep, err := sparkapp.ParseReport(r.Body)
	if err != nil {
		hookserver.Refuse(w, http.StatusBadRequest, err)
		return
	}
	e := h.engine
	who, err := e.guard.Job(r, rep.Job)
	if err != nil {
		hookserver.Refuse(w, http.StatusUnauthorized, err)
		return
	}
	if !who.All { // the application's user is known after the first read
		if err := e.admit(rep.Job, who); err != nil {
			hookserver.Refuse(w, status(err), err)
			return
		}
	}
	e.mu.Lock()
	a, err := e.book.reportSpark(time.Now(), rep)
	e.mu.Unlock()
	if err != nil {
		hookserver.Refuse(w, status(err), err)
		return
	}
	hookserver.Answer(w, a)
}
