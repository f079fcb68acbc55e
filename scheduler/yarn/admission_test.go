// Claims: an application with a deadline that the cluster cannot keep is refused with the numbers and the nearest
// deadline that it could; one that may wait is admitted when others have ended; asked again, the answer is the same; caps
// count; an application that passes its deadline teaches what it needed; who does not come again is forgotten; nothing is decided about a cluster that does not answer; nonsense is refused.
package yarn

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/arbiter"
	"headroom/scheduler/hookserver"
)

// admits is the answer about an application that asks for so many tasks.
func (l *lab) admits(id string, tasks int, deadline time.Duration, wait bool) (a struct {
	Decision string  `json:"decision"`
	Slots    int     `json:"slots"`
	Reason   string  `json:"reason"`
	NearestS float64 `json:"nearest_s"`
},
) {
	l.Helper()
	body := fmt.Sprintf(`{"application":%q,"user":"ann","queue":"root.q1","tasks":%d,"deadline_s":%v,"wait":%v}`, id, tasks, deadline.Seconds(), wait)
	code, got := l.ask("POST", "/v1/admit", body)
	if err := json.Unmarshal([]byte(got), &a); code != 200 || err != nil {
		l.Fatalf("%d %s, %v", code, got, err)
	}
	return a
}

// taught is a lab whose door has seen a job of 16 maps of 4 s, 4 at a time, which had 40 s.
func taught(l *lab) {
	l.Helper()
	a := l.plant.submit("root.q1", 16, 1)
	l.start()
	l.pass(time.Second)
	if got := l.admits(l.plant.id(a), 16, 40*time.Second, false); got.Decision != "admitted" || !strings.Contains(got.Reason, "no job has finished yet") {
		l.Fatalf("the first is admitted: %+v", got)
	}
	l.pass(60 * time.Second)
	if j := l.log.job(l.plant.id(a)); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetAdmission().GetDecision() != "admitted" {
		l.Fatalf("the first has not ended well: %v", j)
	}
}

func TestDoorRefusesWithNumbers(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		capacity := l.engine.book.capacity()
		first := l.admits("application_1_0001", 1000, 100*time.Second, false)
		if first.Decision != "refused" || first.NearestS <= 100 || !strings.Contains(first.Reason, fmt.Sprintf("can use %d", capacity)) {
			l.Errorf("a job of 1000 tasks on %d containers: %+v", capacity, first)
		}
		if again := l.admits("application_1_0001", 1000, 100*time.Second, false); again != first {
			l.Errorf("asked again: %+v, not %+v", again, first)
		}
	})
}

func TestDoorHolds(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		capacity := l.engine.book.capacity()
		tasks := 8 * capacity // about a ninth of what it asks for is what a job needs
		if got := l.admits("application_1_0001", tasks, time.Hour, false); got.Decision != "admitted" || got.Slots != capacity {
			l.Fatalf("who needs all containers: %+v", got)
		}
		if got := l.admits("application_1_0100", tasks, 10*time.Minute, false); got.Decision != "refused" || !strings.Contains(got.Reason, "headroom-queue") {
			l.Errorf("who cannot wait: %+v", got)
		}
		if got := l.admits("application_1_0101", tasks, 10*time.Minute, true); got.Decision != "queued" {
			l.Errorf("who waits: %+v", got)
		}
		for range 7 { // nobody of the others ever comes: they are forgotten
			l.pass(10 * time.Second)
			l.admits("application_1_0101", tasks, 10*time.Minute, true)
		}
		if got := l.admits("application_1_0101", tasks, 10*time.Minute, true); got.Decision != "admitted" {
			l.Errorf("when others have gone: %+v", got)
		}
		l.pass(2 * beginsWithin)
		if n := len(l.engine.book.admitter.applicants); n != 1 { // the one that ended
			l.Errorf("%d applications are remembered", n)
		}
	})
}

// A deadline that the fastest earlier run of the same user's application could not have met is refused, also after a restart.
func TestDoorKnowsEarlierRuns(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l) // "words" of ann
		for _, n := range l.plant.live() {
			l.engine.Cap(&headroomv1.CapDirective{Node: n, CapUw: 50, MaxUw: 100})
		}
		l.pass(time.Second)
		ask := func(id, user, name string) string {
			_, got := l.ask("POST", "/v1/admit", fmt.Sprintf(`{"application":%q,"user":%q,"queue":"root.q1","name":%q,"tasks":16,"deadline_s":15}`, id, user, name))
			return got
		}
		if got := ask("application_1_0101", "ann", "words"); !strings.Contains(got, "the fastest of its 1 earlier runs would take ") {
			l.Errorf("%s", got)
		}
		for id, x := range map[string][2]string{"application_1_0102": {"bob", "words"}, "application_1_0103": {"ann", "letters"}} {
			if got := ask(id, x[0], x[1]); strings.Contains(got, "earlier runs") {
				l.Errorf("%s of %s: %s", x[1], x[0], got)
			}
		}
		l.engine.mu.Lock()
		defer l.engine.mu.Unlock()
		j := l.log.job("application_946684800000_0001")
		next := newBook(l.engine.book.cfg, slog.New(slog.DiscardHandler))
		next.restore(time.Now(), []*headroomv1.Job{j})
		next.admitter.look(time.Now(), next)
		if n := len(next.admitter.runsOf(&hookserver.Application{User: "ann", Name: "words", Tasks: 16})); n != 1 {
			l.Errorf("%d runs are known after a restart; the log has %v", n, j.GetEnd())
		}
	})
}

// An application that passes its deadline runs on, and what it has taken at its end is what is learned.
func TestDoorLearnsFromTheLate(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 40, 1) // 40 s of 4 containers
		l.start()
		l.pass(time.Second)
		id := l.plant.id(a)
		if got := l.admits(id, 40, 20*time.Second, false); got.Decision != "admitted" {
			l.Fatalf("the first is admitted: %+v", got)
		}
		l.pass(25 * time.Second)
		l.engine.mu.Lock()
		v := l.engine.book.admitter.applicants[id]
		if slots, runs := l.engine.book.admitter.control.Promised(id); !v.passed || runs {
			l.Errorf("past its deadline %d containers are promised to it: %+v", slots, v)
		}
		at := v.work
		l.engine.mu.Unlock()
		l.pass(40 * time.Second)
		l.engine.mu.Lock()
		defer l.engine.mu.Unlock()
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || v.work <= at {
			l.Fatalf("it has ended with %v of work, past %v at its deadline: %v", v.work, at, j)
		}
		d := testkit.Need(l.engine.book.admitter.control.Ask(time.Now(), v.job, 8, 0))(l)
		if d.Samples != 1 || d.Work < v.work {
			l.Errorf("it had %v of work; foreseen for one like it are %v, of %d samples", v.work, d.Work, d.Samples)
		}
	})
}

// An application whose share was resized before it passes its deadline teaches once too, at its end: the controller does
// not stop it first, and learn from what it had until then.
func TestDoorLearnsOnceFromTheResized(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 40, 1) // 40 s of 4 containers
		l.start()
		l.pass(time.Second)
		id := l.plant.id(a)
		if got := l.admits(id, 40, 20*time.Second, false); got.Decision != "admitted" {
			l.Fatalf("the first is admitted: %+v", got)
		}
		for _, n := range l.plant.live() {
			l.engine.Cap(&headroomv1.CapDirective{Node: n, CapUw: 50, MaxUw: 100})
		}
		l.pass(65 * time.Second)
		l.engine.mu.Lock()
		defer l.engine.mu.Unlock()
		v := l.engine.book.admitter.applicants[id]
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || !v.passed {
			l.Fatalf("it has not ended, or not passed its deadline: %v, %+v", j, v)
		}
		if d := testkit.Need(l.engine.book.admitter.control.Ask(time.Now(), v.job, 8, 0))(l); d.Samples != 1 {
			l.Errorf("it has taught %d times", d.Samples)
		}
	})
}

// A scheduler that starts again counts what runs with a deadline of its own, whoever has asked about it before.
func TestDoorCountsWhatRunsAfterARestart(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 40, 1)
		l.plant.with(func() { a.conf[propertyDeadline] = "10m" })
		l.start()
		l.pass(12 * time.Second)
		l.stop()
		l.start()
		l.pass(3 * time.Second)
		id := l.plant.id(a)
		l.engine.mu.Lock()
		slots, runs := l.engine.book.admitter.control.Promised(id)
		l.engine.mu.Unlock()
		if !runs || slots == 0 {
			l.Errorf("nothing is promised to it after a restart: %d", slots)
		}
		if jobs := l.engine.List(id); len(jobs) != 1 || jobs[0].GetAdmission().GetDecision() != "admitted" {
			l.Errorf("its admission is not known any more: %v", jobs)
		}
	})
}

// An application with an error bound ends by itself: what waits is dropped once enough is done, by the coordinators'
// decision about what the engine tells. A scheduler that starts again still knows the bound.
func TestErrorBoundEndsJob(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 40, 1)
		l.plant.with(func() { a.conf[propertyError] = "30%" })
		l.start()
		l.pass(12 * time.Second)
		l.stop()
		l.start()
		id, path := l.plant.id(a), "/v1/jobs/"+l.plant.job(a)
		var m arbiter.Movers
		for round := 0; round < 40 && l.progress(id) != nil; round++ {
			l.pass(time.Second)
			l.ask("GET", path+"/stop", "") // its master lives
			p := l.progress(id)
			if p == nil {
				break
			}
			if p.GetError() != 0.3 {
				l.Fatalf("its error bound is not told: %v", p)
			}
			out := m.Step(time.Duration(round)*time.Second, arbiter.Look{Joint: true, Jobs: []arbiter.Contender{{
				ID: id, Engine: Name, Tasks: int(p.GetTasks()), Dropped: int(p.GetDropped()), Running: int(p.GetRunning()), Pending: int(p.GetPending()),
				Floor: l.log.job(id).GetFloor(), ErrorBound: p.GetError(), Theta: p.GetTheta(), MayDeflate: p.Theta != nil, Seed: 7, Run: 1,
			}}})
			for _, x := range out.Deflates {
				testkit.Check(l, l.deflateJob(id, x.Theta))
				dropped := l.drop(path, named(40, 0, 40))
				l.plant.with(func() { a.drop = dropped })
			}
		}
		j := l.log.job(id)
		if done := j.GetProgress().GetDone(); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || done < 28 || done > 32 || len(l.log.dropped[id]) != 40-int(done) {
			l.Errorf("%d of 40 maps are dropped: %v", len(l.log.dropped[id]), j)
		}
		for i, m := range a.maps {
			if l.log.dropped[id][i] == (m.state == "SUCCEEDED") {
				l.Errorf("map %d is %s, and dropped %v", i, m.state, l.log.dropped[id][i])
			}
		}
	})
}

func TestDoorKnowsCaps(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		before := l.engine.book.capacity()
		for _, n := range l.plant.live() {
			l.engine.Cap(&headroomv1.CapDirective{Node: n, CapUw: 50, MaxUw: 100})
		}
		if after := l.engine.book.capacity(); after != before/2 {
			l.Errorf("%d containers under half of the power are worth %d", before, after)
		}
	})
}

func TestDoorRefusesNonsense(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.plant.submit("root.q1", 4, 1)
		l.start()
		l.pass(time.Second)
		for body, want := range map[string]string{
			`{`: "JSON",
			`{"application":"","user":"a","queue":"q","deadline_s":1}`:             "required",
			`{"application":"x","user":"a","queue":"q"}`:                           "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":-1}`:           "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":1e300}`:        "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":1,"error":2}`:  "error",
			`{"application":"x","user":"a","queue":"q","deadline_s":1,"tasks":-1}`: "tasks",
		} {
			if code, got := l.ask("POST", "/v1/admit", body); code != 400 || !strings.Contains(got, want) {
				l.Errorf("%s: %d %s, want 400 and %q", body, code, got, want)
			}
		}
	})
}
