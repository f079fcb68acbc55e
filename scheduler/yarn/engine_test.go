// Claims: an application is a job of the coordinators from its beginning to its end,
// once, with the tasks that were really done; what Hadoop does not answer changes
// nothing and is said; ended is ended, whoever was away.
package yarn

import (
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/scheduler/profiles"
)

func TestApplicationIsFollowed(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.start()
		a := l.plant.submit("root.q1", 12, 1)
		id := l.plant.id(a)
		l.pass(2 * time.Second)
		if l.log.job(id) != nil || len(l.engine.List(id)) != 1 {
			l.Error("committed before its master was there, or not listed")
		}
		done := uint32(0)
		for range 14 {
			l.pass(time.Second)
			p := l.progress(id)
			if p == nil {
				continue
			}
			if p.GetDone() < done || p.GetTasks() != 12 || p.GetDone()+p.GetPending() > 12 {
				l.Errorf("after %d done: %v", done, p)
			}
			done = p.GetDone()
		}
		j := l.log.job(id)
		if j.GetEngine() != "yarn" || j.GetQueue() != "root.q1" || j.GetClass() != "q1" || j.GetFloor() != 0.5 || j.GetName() != "words" || j.GetProgress().GetTasks() != 12 {
			l.Errorf("committed %v", j)
		}
		p := l.progress(id)
		if p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_SHUFFLE && p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_REDUCE || p.GetWork() != 12 {
			l.Errorf("at the end of the maps: %v", p)
		}
		l.pass(8 * time.Second)
		j = l.log.job(id)
		if j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetProgress().GetDone() != 12 || j.GetProgress().GetTasks() != 12 {
			l.Errorf("ended %v", j)
		}
		if s := j.GetProgress().GetRuntimeS(); s < 15 || s > 18 { // 3 waves of maps and a reduce, 4 s each
			l.Errorf("runtime %v s", s)
		}
		if l.log.commits[id] != 1 || l.log.finishes[id] != 1 || l.progress(id) != nil {
			l.Errorf("committed %d times, ended %d times", l.log.commits[id], l.log.finishes[id])
		}
	})
}

func TestProgressOfAWave(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.start()
		a := l.plant.submit("root.q1", 12, 1)
		l.pass(9500 * time.Millisecond) // 3 s for the master, one wave of 4, half of the next
		p := l.progress(l.plant.id(a))
		if p.GetDone() != 4 || p.GetRunning() != 4 || p.GetPending() != 4 || p.GetContainers() != 6 || p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_MAP {
			l.Errorf("got %v", p)
		}
		if w := p.GetWork(); w < 5 || w > 7 {
			l.Errorf("work %v", w)
		}
		if on := p.GetRunningOn(); on["n01"] != 2 || on["node2"] != 2 {
			l.Errorf("running on %v", on)
		}
		if p.RatePerS == nil || p.GetRatePerS() <= 0 || p.Reduced == nil || p.RuntimeS == nil {
			l.Errorf("rate, reduced and runtime of %v", p)
		}
		_, r := l.engine.Report(nil)
		if r.GetEngine() != "yarn" || r.GetContainers() != 8 || r.GetOverhead() != 2 { // 2 nodes of 4 vcores and 8 times 512 MB; a master of 768 MB
			l.Errorf("report %v", r)
		}
	})
}

func TestOwnerMayDemandMore(t *testing.T) {
	t.Parallel()
	for demand, want := range map[string]float64{"0.75": 0.75, "80%": 0.8, "0.1": 0.5, "most": 1} {
		t.Run(demand, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				a := l.plant.submit("root.q1", 4, 0)
				a.conf[propertyFloor] = demand
				l.start()
				l.pass(6 * time.Second)
				if j := l.log.job(l.plant.id(a)); j.GetFloor() != want {
					l.Errorf("floor %v, want %v", j.GetFloor(), want)
				}
			})
		})
	}
}

// An accuracy becomes a floor by the job's profile, by the worst run; the strictest of
// all that is asked wins, and the job's description says which and why. What cannot be
// answered demands all tasks, with the reason.
func TestAccuracyBecomesAFloor(t *testing.T) {
	t.Parallel()
	const name = "words" // the job's, which names its profile
	for about, c := range map[string]struct {
		queue   string
		conf    map[string]string
		want    float64
		because []string
	}{
		"nothing": {"root.q1", nil, 0.5, []string{"queue root.q1 guarantees 50 %"}},
		"by the job's name": {"root.q1", map[string]string{propertyQuality: "90%"}, 0.75, []string{
			"headroom.quality=90% needs 75 % of the tasks by profile \"" + name + "\"", "beside queue root.q1 guarantees 50 %",
		}},
		"by name":              {"root.q1", map[string]string{propertyQuality: "0.9", propertyProfile: "tolerant"}, 0.6, []string{`by profile "tolerant"`}},
		"below the guarantee":  {"root.q1", map[string]string{propertyQuality: "10%", propertyProfile: "tolerant"}, 0.5, []string{"queue root.q1 guarantees 50 %", "beside headroom.quality=10%"}},
		"a queue of all":       {"root.q2", map[string]string{propertyQuality: "90%"}, 1, []string{"queue root.q2 guarantees 100 %"}},
		"more tasks asked":     {"root.q1", map[string]string{propertyQuality: "90%", propertyFloor: "80%"}, 0.8, []string{"headroom.min-tasks=80% (beside"}},
		"fewer tasks asked":    {"root.q1", map[string]string{propertyQuality: "90%", propertyFloor: "60%"}, 0.75, []string{"headroom.quality=90% needs"}},
		"no such profile":      {"root.q1", map[string]string{propertyQuality: "90%", propertyProfile: "none"}, 1, []string{"all tasks, because", `there is no "none.json" in`}},
		"a broken profile":     {"root.q1", map[string]string{propertyQuality: "90%", propertyProfile: "broken"}, 1, []string{"all tasks, because", "broken.json"}},
		"beyond any":           {"root.q1", map[string]string{propertyQuality: "99%", propertyProfile: "never"}, 1, []string{"never reaches 99 %", "reached 97 %"}},
		"percent forgotten":    {"root.q1", map[string]string{propertyQuality: "90"}, 1, []string{`"90" is not an accuracy; write 90% or 0.9`}},
		"a letter":             {"root.q1", map[string]string{propertyQuality: "9O%"}, 1, []string{`"9O%" is not an accuracy`}},
		"empty":                {"root.q1", map[string]string{propertyQuality: ""}, 1, []string{`"" is not an accuracy`}},
		"a profile only":       {"root.q1", map[string]string{propertyProfile: "tolerant"}, 1, []string{"headroom.quality is not set; add -Dheadroom.quality=90%"}},
		"tasks in a wrong way": {"root.q1", map[string]string{propertyFloor: "most"}, 1, []string{"headroom.min-tasks=most: running all tasks, because the value is invalid"}},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				name:       `{"name":"words","engine":"local","points":[{"fraction":0.5,"accuracy":0.9,"low":0.85,"high":0.95,"runs":3},{"fraction":0.75,"accuracy":0.95,"low":0.9,"high":1,"runs":3}]}`,
				"tolerant": `{"name":"words","engine":"local","points":[{"fraction":0.6,"accuracy":0.95,"low":0.9,"high":1,"runs":3}]}`,
				"never":    `{"name":"words","engine":"local","points":[{"fraction":1,"accuracy":0.98,"low":0.97,"high":0.99,"runs":3}]}`,
				"broken":   `{"name":"words","engine":"local","points":[]}`,
			} {
				testkit.WriteFile(t, filepath.Join(dir, file+".json"), text)
			}
			inLab(t, func(l *lab) {
				l.profiles = profiles.Open(dir, slog.New(slog.DiscardHandler))
				a := l.plant.submit(c.queue, 4, 0)
				maps.Copy(a.conf, c.conf)
				l.start()
				l.pass(6 * time.Second)
				j := l.log.job(l.plant.id(a))
				var about struct {
					Floor string `json:"floor_reason"`
				}
				if err := json.Unmarshal(j.GetSpec(), &about); err != nil || math.Abs(j.GetFloor()-c.want) > 1e-9 {
					l.Errorf("floor %v, want %v; %v", j.GetFloor(), c.want, err)
				}
				for _, words := range c.because {
					if !strings.Contains(about.Floor, words) {
						l.Errorf("said %q, want %q", about.Floor, words)
					}
				}
			})
		})
	}
}

// When the owner's demand cannot be read, all tasks are demanded.
func TestDemandNotReadable(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 40, 0)
		l.plant.fault = func(path string, w *httptest.ResponseRecorder) bool {
			if strings.HasSuffix(path, "/conf") {
				w.Code = http.StatusInternalServerError
			}
			return true
		}
		l.start()
		l.pass(10 * time.Second)
		if l.log.job(l.plant.id(a)) != nil {
			l.Error("committed without knowing what its owner demands")
		}
		l.pass(floorWait)
		if j := l.log.job(l.plant.id(a)); j.GetFloor() != 1 {
			l.Errorf("committed as %v", j)
		}
	})
}

func TestOtherQueuesAreLeftAlone(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q3", 4, 0)
		l.start()
		l.pass(20 * time.Second)
		if l.log.job(l.plant.id(a)) != nil || len(l.engine.List("")) != 0 {
			l.Errorf("taken for a job: %v", l.engine.List(""))
		}
	})
}

// Ends are found although nobody looked when they came; so are applications that
// came and went.
func TestEndsWhileAway(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		before := l.plant.submit("root.q2", 4, 0)
		l.pass(20 * time.Second) // ended before there was a Headroom: its history is Hadoop's
		first := l.plant.submit("root.q1", 12, 1)
		l.start()
		l.pass(8 * time.Second)
		l.stop()
		second := l.plant.submit("root.q1", 4, 0)
		killed := l.plant.submit("root.q2", 40, 0)
		l.pass(5 * time.Second)
		l.plant.kill(killed)
		l.pass(60 * time.Second)
		live := l.plant.submit("root.q1", 40, 0)
		l.start()
		l.pass(5 * time.Second)
		for a, want := range map[*plantApp]headroomv1.JobState{
			first: headroomv1.JobState_JOB_STATE_DONE, second: headroomv1.JobState_JOB_STATE_DONE, killed: headroomv1.JobState_JOB_STATE_CANCELLED,
			live: headroomv1.JobState_JOB_STATE_QUEUED,
		} {
			j := l.log.job(l.plant.id(a))
			if j.GetState() != want || l.log.commits[l.plant.id(a)] != 1 {
				l.Errorf("%s is %v, want %v", l.plant.id(a), j, want)
			}
		}
		if j := l.log.job(l.plant.id(first)); j.GetProgress().GetDone() != 12 || j.GetProgress().GetTasks() != 12 {
			l.Errorf("the first ended with %v", j.GetProgress())
		}
		if j := l.log.job(l.plant.id(second)); j.GetProgress().GetDone() != 0 || !strings.Contains(j.GetOutcome(), "before its tasks were seen") {
			l.Errorf("the second, whose tasks nobody saw, ended with %v", j)
		}
		if l.log.job(l.plant.id(before)) != nil {
			l.Error("an application from before Headroom became a job")
		}
	})
}

func TestKilledCountsWhatWasDone(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.start()
		a := l.plant.submit("root.q1", 12, 1)
		l.pass(9 * time.Second)
		l.plant.kill(a)
		l.pass(3 * time.Second)
		j := l.log.job(l.plant.id(a))
		if j.GetState() != headroomv1.JobState_JOB_STATE_CANCELLED || j.GetProgress().GetDone() != 4 || !strings.Contains(j.GetOutcome(), "killed by user ann") {
			l.Errorf("ended as %v", j)
		}
	})
}

// spoil are the ways in which a ResourceManager does not answer.
func spoil() map[string]func(w *httptest.ResponseRecorder) {
	return map[string]func(w *httptest.ResponseRecorder){
		"away": func(w *httptest.ResponseRecorder) { w.Code = 999 },
		"half": func(w *httptest.ResponseRecorder) { w.Body.Truncate(w.Body.Len() / 2) },
		"none": func(w *httptest.ResponseRecorder) { w.Body.Reset() },
		"page": func(w *httptest.ResponseRecorder) {
			w.Header().Set("Content-Type", "text/html;charset=utf-8")
			w.Body.Reset()
			w.Body.WriteString("<html><body><h1>Service Unavailable</h1></body></html>")
		},
		"error": func(w *httptest.ResponseRecorder) {
			w.Code = http.StatusInternalServerError
			w.Body.Reset()
			w.Body.WriteString(`{"RemoteException":{"exception":"X","message":"no idea","javaClassName":"X"}}`)
		},
		"other":   func(w *httptest.ResponseRecorder) { w.Body.Reset(); w.Body.WriteString(`{"hello":"world"}`) },
		"standby": func(w *httptest.ResponseRecorder) { w.Code = http.StatusTemporaryRedirect },
	}
}

func TestResourceManagerAway(t *testing.T) {
	t.Parallel()
	for name, fault := range spoil() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				a := l.plant.submit("root.q1", 12, 1)
				id := l.plant.id(a)
				l.start()
				l.pass(9 * time.Second)
				l.engine.hookShares(time.Now(), 0)
				l.plant.with(func() {
					l.plant.fault = func(_ string, w *httptest.ResponseRecorder) bool { fault(w); return true }
				})
				l.pass(9 * time.Second)
				p := l.progress(id)
				if p.GetDone() != 4 || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING || p.Work != nil || p.RatePerS != nil {
					l.Errorf("the last state became %v", p)
				}
				if !strings.Contains(l.trouble(), "has not answered for") || !strings.Contains(l.engine.List(id)[0].GetOutcome(), "old: ResourceManager unreachable") {
					l.Errorf("trouble %q, outcome %q", l.trouble(), l.engine.List(id)[0].GetOutcome())
				}
				if n := strings.Count(l.said.String(), "unreachable; keeping the last known state"); n != 1 {
					l.Errorf("said %d times", n)
				}
				if code, answer := l.ask("GET", "/v1/jobs/"+l.plant.job(a)+"/stop", ""); code != 200 {
					l.Errorf("a hook was told %d %s", code, answer)
				}
				l.plant.with(func() { l.plant.fault = nil })
				l.pass(20 * time.Second)
				if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetProgress().GetDone() != 12 || l.log.finishes[id] != 1 {
					l.Errorf("in the end %v", j)
				}
			})
		})
	}
}

func TestStandbyAndActive(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.cfg.ResourceManager = []string{"http://rm1:8088", "http://rm2:8088"}
		l.plant.standby["rm1:8088"] = true
		a := l.plant.submit("root.q1", 12, 1)
		l.start()
		l.pass(6 * time.Second)
		l.plant.with(func() { l.plant.standby = map[string]bool{"rm2:8088": true} })
		l.pass(20 * time.Second)
		if j := l.log.job(l.plant.id(a)); j.GetState() != headroomv1.JobState_JOB_STATE_DONE {
			l.Errorf("got %v", j)
		}
	})
}

// A ResourceManager that has lost its memory knows the job no more.
func TestApplicationForgotten(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		a.taskTime = time.Minute
		id := l.plant.id(a)
		l.start()
		l.pass(9 * time.Second)
		apps := l.plant.apps
		l.plant.with(func() { l.plant.apps = nil })
		l.pass(lostAfter - 5*time.Second)
		if j := l.log.job(id); stateEnded(j.GetState()) {
			l.Errorf("ended at once: %v", j)
		}
		l.plant.with(func() { l.plant.apps = apps }) // it was only starting
		l.pass(2 * time.Second)
		l.plant.with(func() { l.plant.apps = nil })
		l.pass(lostAfter + 3*time.Second)
		j := l.log.job(id)
		if j.GetState() != headroomv1.JobState_JOB_STATE_FAILED || !strings.Contains(j.GetOutcome(), "no longer known") || j.GetProgress().GetTasks() != 12 {
			l.Errorf("got %v", j)
		}
	})
}

func TestMasterRestarts(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		id := l.plant.id(a)
		l.start()
		l.pass(9 * time.Second)
		l.plant.restartMaster(a, 7*time.Second)
		l.pass(6500 * time.Millisecond)
		p := l.progress(id)
		if p.GetPhase() != headroomv1.JobPhase_JOB_PHASE_WAITING || p.GetDone() != 4 || p.Work != nil {
			l.Errorf("without a master: %v", p)
		}
		l.pass(20 * time.Second)
		if j := l.log.job(id); j.GetProgress().GetDone() != 12 || j.GetState() != headroomv1.JobState_JOB_STATE_DONE {
			l.Errorf("in the end %v", j)
		}
	})
}

func TestPreemptedTaskWaits(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		a.taskTime = time.Minute
		l.start()
		l.pass(6 * time.Second)
		l.plant.preempt(a, 2)
		l.pass(time.Second)
		if p := l.progress(l.plant.id(a)); p.GetRunning() != 3 || p.GetPending() != 9 {
			l.Errorf("got %v", p)
		}
	})
}

func TestNodeManagerKilled(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		l.start()
		l.pass(9 * time.Second)
		l.plant.loseNode("node2")
		l.pass(2 * time.Second)
		_, r := l.engine.Report(nil)
		p := l.progress(l.plant.id(a))
		if r.GetContainers() != 4 || p.GetRunningOn()["node2"] != 0 || p.GetRunningOn()["n01"] == 0 {
			l.Errorf("report %v, progress %v", r, p)
		}
	})
}

func TestStuckIsSaid(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		a.stuck = true
		l.start()
		l.pass(stuckAfter + 5*time.Second)
		id := l.plant.id(a)
		if o := l.engine.List(id)[0].GetOutcome(); !strings.Contains(o, "ACCEPTED for 1m") || !strings.Contains(o, "no container for its application master") {
			l.Errorf("outcome %q", o)
		}
		if n := strings.Count(l.said.String(), "application is stuck"); n != 1 {
			l.Errorf("said %d times", n)
		}
		l.plant.with(func() { a.stuck = false; a.masterAt = time.Now() })
		l.pass(25 * time.Second)
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE {
			l.Errorf("in the end %v", j)
		}
	})
}

// A running task's progress that is invalid spoils its own number only.
func TestProgressThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, part := range []float64{-3, 250} {
		inLab(t, func(l *lab) {
			a := l.plant.submit("root.q1", 12, 1)
			a.part = &part
			l.start()
			l.pass(9 * time.Second)
			if p := l.progress(l.plant.id(a)); p.Work != nil || p.GetDone() != 4 || p.GetRunning() != 4 {
				l.Errorf("progress %v gives %v", part, p)
			}
		})
	}
}

// A job that the coordinators cannot take now is taken later; nothing is lost and
// nothing happens twice.
func TestCoordinatorsAway(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.log.away = true
		a := l.plant.submit("root.q1", 12, 1)
		id := l.plant.id(a)
		l.start()
		l.pass(40 * time.Second)
		if len(l.log.commits) != 0 {
			l.Error("committed by nobody")
		}
		l.log.set(func() { l.log.away, l.log.lost = false, true }) // carried out, and the answer is lost
		l.pass(12 * time.Second)
		l.log.set(func() { l.log.lost = false })
		l.pass(25 * time.Second)
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || l.log.commits[id] != 1 || l.log.finishes[id] != 1 || j.GetProgress().GetDone() != 12 {
			l.Errorf("got %v, %d commits, %d ends", j, l.log.commits[id], l.log.finishes[id])
		}
	})
}

// Before the log is read nothing is committed and no hook is answered.
func TestNothingBeforeTheLogIsRead(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q1", 12, 1)
		l.start()
		l.engine.mu.Lock()
		l.engine.book.restored = false
		l.engine.mu.Unlock()
		l.pass(10 * time.Second)
		if len(l.log.commits) != 0 {
			l.Error("committed")
		}
		if code, _ := l.ask("GET", "/v1/jobs/"+l.plant.job(a)+"/stop", ""); code != http.StatusServiceUnavailable {
			l.Errorf("status %d", code)
		}
	})
}
