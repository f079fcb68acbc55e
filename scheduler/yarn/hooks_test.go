// Claims: the hooks get what docs/hooks.md tells; no answer goes beyond what the
// coordinators have committed; a task that was told to run runs ever after, and a
// dropped one never; garbage is refused in words.
package yarn

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/scheduler/profiles"
)

// started is a lab with one committed job of n map tasks that runs.
func started(l *lab, n int) (a *plantApp, id, path string) {
	l.Helper()
	a = l.plant.submit("root.q1", n, 1)
	l.start()
	l.pass(6 * time.Second)
	id = l.plant.id(a)
	if l.log.job(id) == nil {
		l.Fatal("the job was not committed")
	}
	return a, id, "/v1/jobs/" + l.plant.job(a)
}

func (l *lab) want(method, path, body string, code int, answer string) {
	l.Helper()
	if gotCode, got := l.ask(method, path, body); gotCode != code || (answer != "" && got != answer) {
		l.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, gotCode, got, code, answer)
	}
}

func TestDropByMaster(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a, id, path := started(l, 40)
		drop := `{"tasks":40,"candidates":[{"task":31,"bytes":1048576},{"task":35,"bytes":100},{"task":39,"bytes":0}]}`
		l.want("GET", path+"/stop", "", 200, `{"stop":false,"dropped":[]}`)
		l.want("POST", path+"/drop", drop, 409, "")
		l.stopJob(id, 40, 38)
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":38,"dropped":[]}`)
		l.want("POST", path+"/drop", drop, 200, `{"dropped":[35,39]}`) // the highest, as many as the floor leaves
		l.want("POST", path+"/drop", drop, 200, `{"dropped":[35,39]}`) // and no more, however often
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":38,"dropped":[35,39]}`)
		l.plant.with(func() { a.drop = map[int]bool{35: true, 39: true} })
		l.pass(2 * time.Second)
		if p := l.progress(id); p.GetDropped() != 2 || p.GetDroppedBytes() != 100 {
			l.Errorf("progress %v", p)
		}
		l.pass(50 * time.Second)
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetProgress().GetDone() != 38 || j.GetProgress().GetTasks() != 40 {
			l.Errorf("ended as %v", j)
		}
		l.want("GET", path+"/stop", "", 404, "")
	})
}

func TestBeginAndSweep(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 20) // 4 of 20 run, soon 8 have begun
		begin := func(task int) string { return fmt.Sprintf(`{"task":%d,"attempt":0,"bytes":%d}`, task, 1000+task) }
		l.want("POST", path+"/begin", begin(0), 200, `{"run":true}`)
		l.want("POST", path+"/begin", begin(19), 200, `{"run":true}`) // its container is quicker than its master
		l.stopJob(id, 20, 14)
		l.pass(3 * time.Second)
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":14,"dropped":[13,14,15,16,17,18]}`)
		l.want("POST", path+"/begin", begin(18), 200, `{"run":false}`)
		l.want("POST", path+"/begin", begin(19), 200, `{"run":true}`)
		l.want("POST", path+"/begin", begin(4), 200, `{"run":true}`)
		if n := len(l.log.drops); n != 1 {
			l.Errorf("%d commands to drop tasks, want 1", n)
		}
		if p := l.progress(id); p.GetDropped() != 6 || p.GetDroppedBytes() != 1018 {
			l.Errorf("progress %v", p)
		}
		// The wrapper lets dropped tasks succeed on nothing: they do not count.
		l.pass(25 * time.Second)
		if j := l.log.job(id); j.GetProgress().GetDone() != 14 {
			l.Errorf("ended as %v", j)
		}
	})
}

// Without a wrapper only the master's own request drops anything.
func TestNoSweepWithoutWrapper(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.stopJob(id, 40, 20)
		l.pass(10 * time.Second)
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":20,"dropped":[]}`)
	})
}

// What was committed holds after a restart, and what may have been committed is
// never told to run.
func TestDropsSurvive(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.stopJob(id, 40, 37)
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[{"task":38,"bytes":1}]}`, 200, `{"dropped":[38]}`)
		l.log.set(func() { l.log.lost = true })
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[{"task":39,"bytes":1}]}`, 503, "")
		l.want("POST", path+"/begin", `{"task":39,"attempt":0,"bytes":1}`, 503, "") // it may be recorded
		l.want("POST", path+"/begin", `{"task":37,"attempt":0,"bytes":1}`, 200, `{"run":true}`)
		l.log.set(func() { l.log.lost = false })
		l.want("POST", path+"/begin", `{"task":39,"attempt":0,"bytes":1}`, 200, `{"run":false}`)
		l.pass(2 * time.Second) // tasks ask, so the engine drops what the floor leaves: not 37, which runs
		l.stop()
		l.start()
		l.pass(2 * time.Second)
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":37,"dropped":[36,38,39]}`)
		l.want("POST", path+"/begin", `{"task":38,"attempt":1,"bytes":1}`, 200, `{"run":false}`)
		// Begun tasks are taken from the master's list.
		l.stopJob(id, 40, 36)
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[{"task":0,"bytes":1}]}`, 200, `{"dropped":[36,38,39]}`)
	})
}

func TestDropsNotCommitted(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.stopJob(id, 40, 30)
		l.log.set(func() { l.log.away = true })
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[{"task":39,"bytes":1}]}`, 503, "")
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":30,"dropped":[]}`)
		// The coordinators have taken the stop back: what was sent is refused, and the task runs.
		l.log.set(func() { l.log.away, l.log.jobs[id].Stop = false, nil })
		l.pass(15 * time.Second)
		l.want("POST", path+"/begin", `{"task":39,"attempt":0,"bytes":1}`, 200, `{"run":true}`)
	})
}

func TestHooksRefuse(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.stopJob(id, 40, 30)
		for body, want := range map[string]string{
			"":                  "docs/hooks.md",
			"hello":             "docs/hooks.md",
			`{"tasks":40}`:      "tasks and candidates are required",
			`{"candidates":[]}`: "tasks and candidates are required",
			`{"tasks":40,"candidates":[{"task":40,"bytes":1}]}`:       "a task from 0 to 39",
			`{"tasks":40,"candidates":[{"task":-1,"bytes":1}]}`:       "a task from 0 to 39",
			`{"tasks":40,"candidates":[{"task":1}]}`:                  "needs bytes",
			`{"tasks":40,"candidates":[{"task":1,"bytes":-5}]}`:       "docs/hooks.md",
			`{"tasks":41,"candidates":[{"task":40,"bytes":5}]}`:       "has 40 map tasks, not 41",
			`{"tasks":40,"candidates":[]} {"tasks":40}`:               "more than one document",
			`{"tasks":40,"pad":"` + strings.Repeat("x", 1<<20) + `"}`: "too large",
		} {
			code, answer := l.ask("POST", path+"/drop", body)
			if code != http.StatusBadRequest || !strings.Contains(answer, want) {
				l.Errorf("drop %.60s: %d %s, want %s", body, code, answer, want)
			}
		}
		for _, body := range []string{``, `[]`, `{"task":1,"attempt":0}`, `{"task":1,"bytes":0}`, `{"attempt":0,"bytes":0}`, `{"task":-1,"attempt":0,"bytes":0}`, `{"task":40,"attempt":0,"bytes":0}`} {
			l.want("POST", path+"/begin", body, 400, "")
		}
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[],"later":1}`, 200, `{"dropped":[]}`)
		for _, job := range []string{"job_1_0001", "job_x", "application_1700000000000_0001", "..", "job_1700000000000_0001%2F.."} {
			if code, _ := l.ask("GET", "/v1/jobs/"+job+"/stop", ""); code != http.StatusNotFound && code != http.StatusMovedPermanently && code != http.StatusTemporaryRedirect {
				l.Errorf("job %s: %d", job, code)
			}
		}
		l.want("POST", path+"/stop", "{}", 405, "")
		l.want("GET", "/v1/other", "", 404, "")
	})
}

func TestStopDirectiveRefused(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, _ := started(l, 40)
		for want, d := range map[string]*headroomv1.StopDirective{
			"not a running job": {Id: "application_1_0001", Tasks: 40, MinTasks: 20},
			"but it has 40":     {Id: id, Tasks: 41, MinTasks: 20},
			"at 0 of 40":        {Id: id, Tasks: 40},
			"at 41 of 40":       {Id: id, Tasks: 40, MinTasks: 41},
		} {
			if err := l.engine.Stop(d); err == nil || !strings.Contains(err.Error(), want) {
				l.Errorf("got %v, want %s", err, want)
			}
		}
	})
}

// However hooks ask: dropped tasks are never told to run, begun ones are never
// dropped, and the floor holds.
func TestDropLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(1, 30).Draw(t, "tasks")
		least := rapid.IntRange(1, of).Draw(t, "least")
		j := newJob(app{id: "application_1_0001"}, profiles.Bound{Fraction: 1})
		j.tasks = of
		j.decide(time.Unix(0, 0), of, least)
		recorded := numbers{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "begins") {
				if i := rapid.IntRange(0, of-1).Draw(t, "task"); !j.dropped[i] {
					j.began[i] = true
				}
				continue
			}
			var list []candidate
			for range rapid.IntRange(0, of).Draw(t, "candidates") {
				list = append(list, candidate{task: rapid.IntRange(-1, of).Draw(t, "candidate")})
			}
			recorded.add(fromRanges(j.choose(list).ranges()))
			j.recorded(recorded)
			if len(j.dropped) > of-least {
				t.Fatalf("%d dropped of %d, at least %d must be done", len(j.dropped), of, least)
			}
			for i := range j.dropped {
				if j.began[i] || i < 0 || i >= of {
					t.Fatalf("task %d began and is dropped", i)
				}
			}
		}
	})
}

func TestSharesServed(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, _ := started(l, 40)
		if !strings.Contains(l.trouble(), "plug-in does not read") {
			l.Errorf("trouble %q", l.trouble())
		}
		shares := func() (a sharesAnswer) {
			_, text := l.ask("GET", "/v1/shares", "")
			testkit.Check(l, json.Unmarshal([]byte(text), &a))
			return a
		}
		before := shares()
		if before.ValidS != 10 || before.Queues == nil || len(before.Queues) != 0 {
			l.Errorf("without a directive: %+v", before)
		}
		l.pass(time.Second)
		if l.trouble() != "" {
			l.Errorf("trouble %q", l.trouble())
		}
		testkit.Check(l, l.engine.Share(&headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}}}))
		after := shares()
		if want := (queueShare{"root.q1", 5 * 512, 5, "drain", nil}); len(after.Queues) != 1 || !after.Queues[0].equal(want) || after.Revision <= before.Revision {
			l.Errorf("got %+v, want %+v", after, want)
		}
		// A further application needs its master and one task until it has a share.
		l.plant.submit("root.q1", 4, 0)
		l.pass(2 * time.Second)
		if got := shares(); got.Queues[0].VCores != 8 {
			l.Errorf("with a new application: %+v", got)
		}
		l.pass(70 * time.Second) // both have ended: the operator's own holds
		if got := shares(); len(got.Queues) != 0 {
			l.Errorf("after the end: %+v", got)
		}
	})
}

// Directives may come before the log is read.
func TestDirectivesComeFirst(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.log.set(func() { l.log.jobs[id].Stop = &headroomv1.EarlyStop{Tasks: 40, MinTasks: 30} })
		l.stop()
		l.engine.book = newBook(l.cfg, l.engine.logger)
		l.engine.book.queues = map[string]bool{"root.q1": true}
		if err := l.engine.Share(&headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}}}); err != nil {
			l.Error(err)
		}
		if err := l.engine.Stop(&headroomv1.StopDirective{Id: id, Tasks: 40, MinTasks: 30}); err != nil {
			l.Error(err)
		}
		l.engine.Restore(l.log.list())
		if got := l.engine.book.maxima()["root.q1"]; got != 5 {
			l.Errorf("its queue may hold %d containers, want 5", got)
		}
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":30,"dropped":[]}`)
	})
}

func TestSharesRefused(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, _ := started(l, 40)
		l.plant.with(func() { l.plant.queues = []string{"root.q2"} })
		l.pass(queuesEvery + time.Second)
		err := l.engine.Share(&headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}, {Id: "application_1_0001", Containers: 2}}})
		if err == nil || !strings.Contains(err.Error(), "queue root.q1: no such queue") || !strings.Contains(err.Error(), "application_1_0001") {
			l.Errorf("got %v", err)
		}
	})
	inLab(t, func(l *lab) {
		l.cfg.Shares = sharesNone
		_, id, _ := started(l, 40)
		err := l.engine.Share(&headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}}})
		if err == nil || !strings.Contains(l.trouble(), "yarn.shares is none") {
			l.Errorf("got %v, trouble %q", err, l.trouble())
		}
	})
}
