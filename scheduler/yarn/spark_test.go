// Claims: applications of Spark in the named queues are jobs: their containers and nodes are YARN's, their progress that of
// the hook in the driver, or of its REST interface where there is no hook, and unknown where there is neither; a hook
// registers by the application's id, gets the committed ratio, never beyond the floor, and as many executors as the share
// holds; what the owner asks for is read once; applications that our own engine started are left to it; an application that
// YARN starts again begins its reports anew.
package yarn

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/scheduler/profiles"
)

// plantSpark is the inside of an application of Spark. Its executors are the application's
// map tasks.
type plantSpark struct {
	tags string
	// ui: its REST interface answers through the proxy.
	ui bool
	// asks are properties spark.headroom.NAME.
	asks        map[string]string
	tasks, done int
	running     int
}

// submitSpark is a new application of Spark with so many executors.
func (p *plant) submitSpark(executors int, s *plantSpark) *plantApp {
	a := p.submit("root.q1", executors, 0)
	p.with(func() { a.spark, a.taskTime, a.slots = s, time.Hour, executors })
	return a
}

// driver answers as the REST interface of an application's driver, through the proxy.
func (p *plant) driver(w *httptest.ResponseRecorder, a *plantApp, path string) {
	if a == nil || a.spark == nil || !a.spark.ui {
		missing(w)
		return
	}
	id := p.id(a)
	switch path {
	case "applications":
		reply(w, []object{{"id": id, "name": "words"}})
	case "applications/" + id + "/environment":
		var list [][]string
		for name, value := range a.spark.asks {
			list = append(list, []string{"spark.headroom." + name, value})
		}
		reply(w, object{"sparkProperties": list})
	case "applications/" + id + "/stages":
		s := a.spark
		reply(w, []object{{"status": "ACTIVE", "stageId": 0, "attemptId": 0, "numTasks": s.tasks, "numActiveTasks": s.running, "numCompletedIndices": s.done}})
	case "applications/" + id + "/executors":
		reply(w, []object{{"id": "driver", "hostPort": "node1:1", "isActive": true}, {"id": "1", "hostPort": "node2:2", "isActive": true, "totalCores": 2, "activeTasks": a.spark.running}})
	default:
		missing(w)
	}
}

// sparkReport is what a hook sends.
const sparkReport = `{"job":%q,"run":1,"app":%[1]q,"attempt":%d,"sequence":%d,"ended":false,"asks":{"min-tasks":"70%%","nonsense":"x"},
 "stages":[{"id":0,"attempt":0,"name":"map","kind":"map","partitions":50,"kept":40,"shuffle":0,"done":%d,"running":4,"failed":0,"task_ms":4100,"begun":true,"ended":false}],
 "executors":3,"surplus":0,"tasks_done":%[4]d,"tasks_total":48,"running_on":{"node1":4},"cores_on":{"node1":4},
 "shuffles":[{"id":0,"total":50,"kept":40,"theta":0.2,"seed":42,"input":true}],"trouble":""}`

// hook sends a report and reads its answer.
func (l *lab) hook(id string, attempt, sequence, done int) (code int, theta float64, executors *int) {
	l.Helper()
	code, text := l.ask(http.MethodPost, "/v1/spark/progress", fmt.Sprintf(sparkReport, id, attempt, sequence, done))
	var a struct {
		Theta     float64
		Executors *int
	}
	if code == http.StatusOK {
		testkit.Check(l, json.Unmarshal([]byte(text), &a))
	}
	return code, a.Theta, a.Executors
}

// speak keeps a hook reporting for as long as this.
func (l *lab) speak(d time.Duration, id string, attempt, sequence, done int) (theta float64, executors *int) {
	l.Helper()
	for range int(d / time.Second) {
		var code int
		if code, theta, executors = l.hook(id, attempt, sequence, done); code != http.StatusOK {
			l.Fatalf("%d", code)
		}
		sequence++
		l.pass(time.Second)
	}
	return theta, executors
}

func TestSparkWithItsHook(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submitSpark(3, &plantSpark{})
		id := l.plant.id(a)
		if code, _, _ := l.early(id); code != http.StatusOK {
			t.Errorf("a hook that is quicker than the first look: %d", code)
		}
		l.speak(10*time.Second, id, 1, 1, 12)
		j := l.log.job(id)
		if j.GetFloor() != 0.7 || j.GetQueue() != "root.q1" || j.GetEngine() != Name {
			t.Errorf("committed %v", j)
		}
		p := l.progress(id)
		if p.GetTasks() != 58 || p.GetDone() != 12 || p.GetRunning() != 4 || p.GetDropped() != 10 || p.GetPending() != 32 || !p.GetAhead() || p.Theta == nil || p.RuntimeS == nil {
			t.Errorf("%v", p)
		}
		// A master of two units, and three executors of 2 cores and 1 GB, which are two each.
		if p.GetContainers() != 8 || p.GetRunningOn()["n01"] != 2 || p.GetRunningOn()["node2"] != 1 {
			t.Errorf("%v", p)
		}

		testkit.Check(t, l.engine.Share(&headroomv1.ShareDirective{Engine: Name, Jobs: []*headroomv1.JobShare{{Id: id, Containers: 7}}}))
		testkit.Check(t, l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.3, Seed: 9}))
		if err := l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.4, Seed: 9}); !errors.Is(err, errRequest) {
			t.Errorf("beyond the floor: %v", err)
		}
		theta, executors := l.speak(2*time.Second, id, 1, 20, 13)
		if theta != 0.3 || executors == nil || *executors != 2 {
			t.Errorf("theta %v, executors %v of a share of 7 with a master of 2", theta, executors)
		}
		testkit.Check(t, l.engine.Share(&headroomv1.ShareDirective{Engine: Name, Jobs: []*headroomv1.JobShare{{Id: id}}}))
		if _, executors = l.speak(time.Second, id, 1, 30, 13); executors == nil || *executors != 1 {
			t.Errorf("a share of nothing: %v", executors)
		}
		if _, d, _ := l.hook(id, 1, 3, 40); d != 0.3 || l.progress(id).GetDone() != 13 {
			t.Error("an older report changed something")
		}
		l.speak(time.Second, id, 2, 1, 2)
		if p := l.progress(id); p.GetDone() != 2 {
			t.Errorf("a driver that YARN started again: %v", p)
		}
		l.plant.with(func() { a.end(time.Now(), "FINISHED", "SUCCEEDED", "") })
		l.pass(3 * time.Second)
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetProgress().GetDone() != 2 || j.GetProgress().GetTasks() != 12 {
			t.Errorf("ended %v", j)
		}
		if code, _, _ := l.hook(id, 2, 9, 2); code != http.StatusNotFound {
			t.Errorf("a report after the end: %d", code)
		}
	})
}

// early is a report before the engine has looked.
func (l *lab) early(id string) (code int, theta float64, executors *int) {
	l.Helper()
	l.start()
	return l.hook(id, 0, 1, 0)
}

func TestSparkByREST(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		s := &plantSpark{ui: true, asks: map[string]string{"min-tasks": "90%"}, tasks: 40, done: 10, running: 2}
		a := l.plant.submitSpark(2, s)
		id := l.plant.id(a)
		l.start()
		l.pass(10 * time.Second)
		if j := l.log.job(id); j.GetFloor() != 0.9 {
			t.Errorf("committed %v", j)
		}
		p := l.progress(id)
		if p.GetTasks() != 40 || p.GetDone() != 10 || p.GetRunning() != 2 || p.GetPending() != 28 || p.Theta != nil {
			t.Errorf("%v", p)
		}
		if said := l.engine.List(id)[0].GetOutcome(); said != "progress by Spark's REST" {
			t.Errorf("%q", said)
		}
		if err := l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.05, Seed: 9}); !errors.Is(err, errExact) {
			t.Errorf("nobody would drop: %v", err)
		}
		l.plant.with(func() { s.ui = false })
		l.pass(sparkSilence + 2*time.Second)
		if p := l.progress(id); p.RatePerS != nil || p.GetDone() != 10 {
			t.Errorf("%v", p)
		}
		if said := l.engine.List(id)[0].GetOutcome(); !strings.Contains(said, "progress unknown") {
			t.Errorf("%q", said)
		}
	})
}

// Without hook and interface a job is known, runs whole, and nothing is made up about it.
func TestSparkThatSaysNothing(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		id := l.plant.id(l.plant.submitSpark(2, &plantSpark{}))
		l.start()
		l.pass(floorWait + 8*time.Second)
		j := l.log.job(id)
		if j.GetFloor() != 1 {
			t.Fatalf("committed %v", j)
		}
		if p := l.progress(id); p.GetTasks() != 0 || p.RatePerS != nil || p.Theta != nil || p.GetContainers() != 6 || len(p.GetRunningOn()) != 2 {
			t.Errorf("%v", p)
		}
	})
}

func TestOwnApplicationsAreLeftAlone(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.plant.submitSpark(2, &plantSpark{tags: "mine,headroom-run-abc"})
		l.start()
		l.pass(10 * time.Second)
		if all := l.engine.List(""); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

// sparks is of how many applications of Spark the engine knows anything.
func (l *lab) sparks() int {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	return len(l.engine.book.sparks)
}

func TestStrangersOfSparkAreRefused(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		mapReduce := l.plant.id(l.plant.submit("root.q1", 4, 0))
		l.start()
		l.pass(6 * time.Second)
		for name, c := range map[string]struct {
			body string
			code int
		}{
			"MapReduce": {fmt.Sprintf(sparkReport, mapReduce, 1, 1, 1), http.StatusNotFound},
			"no id":     {fmt.Sprintf(sparkReport, "../x", 1, 1, 1), http.StatusNotFound},
			"no JSON":   {"executors=3", http.StatusBadRequest},
		} {
			if code, said := l.ask(http.MethodPost, "/v1/spark/progress", c.body); code != c.code {
				t.Errorf("%s: %d %s", name, code, said)
			}
		}
		for i := range sparkHooksMax + 10 {
			l.ask(http.MethodPost, "/v1/spark/progress", fmt.Sprintf(sparkReport, fmt.Sprintf("application_9_%04d", i), 1, 1, 1))
		}
		if n := l.sparks(); n > sparkHooksMax {
			t.Errorf("%d are remembered", n)
		}
		l.pass(sparkSilence + 2*time.Second)
		if n := l.sparks(); n > 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestApplicationsOfTheEngineSpark(t *testing.T) {
	t.Parallel()
	var told []string
	rm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPut:
			told = append(told, r.URL.Path)
			w.WriteHeader(http.StatusAccepted)
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			_, _ = fmt.Fprint(w, `{"nodes":{"node":[{"id":"a:1","state":"RUNNING","totalResource":{"memory":4096,"vCores":8}},{"id":"b:1","state":"LOST","totalResource":{"memory":4096,"vCores":8}}]}}`)
		default:
			_, _ = fmt.Fprint(w, `{"apps":{"app":[{"id":"application_1_0001","state":"RUNNING","queue":"q","startedTime":5,"applicationTags":"other","allocatedVCores":3},
				{"id":"application_1_0002","state":"FINISHED","finalStatus":"FAILED","diagnostics":"no luck","queue":"q","startedTime":6,"applicationTags":"headroom-run-x","allocatedVCores":-1}]}}`)
		}
	}))
	t.Cleanup(rm.Close)
	c := testConfig()
	c.ResourceManager = []string{rm.URL}
	apps := NewApplications(c, slog.New(slog.DiscardHandler))
	t.Cleanup(apps.client.close)
	app, found, err := apps.Find(t.Context(), "headroom-run-x")
	if err != nil || !found || app.ID != "application_1_0002" || !app.Over || app.OK || app.Words != "FINISHED: no luck" {
		t.Errorf("%+v, %v, %v", app, found, err)
	}
	if _, found, err := apps.Find(t.Context(), "headroom-run-y"); found || err != nil {
		t.Errorf("another's: %v, %v", found, err)
	}
	if all, others, err := apps.Cores(t.Context(), "headroom-run-"); all != 8 || others != 3 || err != nil {
		t.Errorf("%d, %d, %v", all, others, err)
	}
	if err := apps.Kill(t.Context(), "application_1_0002"); err != nil || len(told) != 1 || told[0] != "/ws/v1/cluster/apps/application_1_0002/state" {
		t.Errorf("%v, %q", err, told)
	}
	if err := apps.Kill(t.Context(), "../../x"); err == nil {
		t.Error("what is no id is no part of an address")
	}
}

// Nothing may be dropped before the log has the floor; an error bound holds at once, a deadline when it nears.
func TestSparkPromiseIsTheCommittedOne(t *testing.T) {
	t.Parallel()
	now := time.Now()
	j := &job{app: app{started: now.Add(-10 * time.Minute)}, floor: profiles.Bound{Fraction: 0.75}, terms: terms{deadline: 10 * time.Minute}}
	if _, kept := j.promiseSpark(&sparkApp{}); kept {
		t.Error("it is not committed")
	}
	j.committed = true
	for name, c := range map[string]struct {
		asks     demand
		deadline time.Duration
		end      float64
	}{
		"its deadline has passed": {nil, 10 * time.Minute, 0.25},
		"it has time":             {nil, time.Hour, 0},
		"it has an error bound":   {demand{ownerPrefix + "error": "25%"}, time.Hour, 0.25},
		"it has neither":          {nil, 0, 0},
	} {
		j.terms.deadline = c.deadline
		if p, kept := j.promiseSpark(&sparkApp{asks: c.asks}); !kept || p.End(now) != c.end {
			t.Errorf("%s: %v, want %v", name, p.End(now), c.end)
		}
	}
}

// asking sends the report of a driver that has done so much of its tasks, and returns why its deadline is refused.
func (l *lab) asking(id, deadline string, sequence, tasks int) string {
	l.Helper()
	code, text := l.ask(http.MethodPost, "/v1/spark/progress", fmt.Sprintf(`{"job":%q,"run":1,"app":%[1]q,"sequence":%d,"ended":false,"stages":[],"shuffles":[],
 "executors":0,"tasks_done":0,"tasks_total":%d,"asks":{"deadline":%q,"error":"5%%"}}`, id, sequence, tasks, deadline))
	var a struct{ Refused string }
	if err := json.Unmarshal([]byte(text), &a); code != http.StatusOK || err != nil {
		l.Fatalf("%d %s", code, text)
	}
	return a.Refused
}

func TestSparkIsToldWhyItsDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		n := 1 // others are promised all containers
		for n < 90 && l.admits(fmt.Sprintf("application_1_%04d", n), 0, 30*time.Second, false).Decision == "admitted" {
			n++
		}
		if n == 1 || n == 90 {
			t.Fatalf("application %d is the first that is refused", n)
		}
		for name, c := range map[string]struct {
			id, deadline string
			tasks        int
			refused      bool
		}{
			"no room":             {"application_1_0100", "30s", 0, true},
			"no deadline":         {"application_1_0101", "", 0, false},
			"one that makes none": {"application_1_0102", "soon", 0, false},
			"one that has begun":  {"application_1_0103", "30s", 4, false},
			"beyond ten years":    {"application_1_0104", "100000h", 0, false},
		} {
			why := l.asking(c.id, c.deadline, 1, c.tasks)
			if (why != "") != c.refused || c.refused && !strings.Contains(why, "containers") {
				t.Errorf("%s: %q", name, why)
			}
			if again := l.asking(c.id, c.deadline, 2, 8); again != why {
				t.Errorf("%s: %q, and later %q", name, why, again)
			}
		}
	})
}

func TestSparkTellsItsErrorBound(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"5%": "0.05", "0": "0", "0%": "0", "0.0": "0", "": "none", "much": "none"} {
		got := "none"
		if x := (demand{propertyError: asked}).errorBound(); x != nil {
			got = fmt.Sprint(*x)
		}
		if got != want {
			t.Errorf("error %q: %s, want %s", asked, got, want)
		}
	}
	inLab(t, func(l *lab) {
		id := l.plant.id(l.plant.submitSpark(3, &plantSpark{}))
		l.start()
		for n := range 10 {
			l.asking(id, "", n+1, 0)
			l.pass(time.Second)
		}
		if p := l.progress(id); p.Error == nil || p.GetError() != 0.05 {
			t.Errorf("%v", p)
		}
	})
}
