// Claims: runs of MapReduce and Spark applications teach how they scale, as local ones do: what each held, under which caps,
// for the tasks that it did. Runs that failed, lost much work, or were not seen whole teach nothing. The next application
// of that name and user is committed with what is known; learning waits for nobody.
package yarn

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/scaling/runs"
	"headroom/scheduler/scaling"
)

// taught is what was learned: runs by name.
func (l *lab) taught() map[string][]runs.Run {
	l.Helper()
	var book struct {
		Names []struct {
			Name string
			Runs []runs.Run
		}
	}
	data, err := os.ReadFile(filepath.Join(l.dir, "scaling.json"))
	if err == nil {
		err = json.Unmarshal(data, &book)
	}
	if err != nil && !os.IsNotExist(err) {
		l.Fatal(err)
	}
	all := map[string][]runs.Run{}
	for _, n := range book.Names {
		all[n.Name] = n.Runs
	}
	return all
}

// learn starts an engine that learns.
func (l *lab) learn() {
	l.learner = scaling.Open(l.dir, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = l.learner.Run(ctx, func(string) {})
	}()
	l.start()
	end := l.end
	l.end = func() { end(); cancel(); <-over }
}

// await lets time go by until an application's end is committed.
func (l *lab) await(id string) {
	l.Helper()
	for range 600 {
		if l.log.job(id).GetState() == headroomv1.JobState_JOB_STATE_DONE {
			synctest.Wait()
			return
		}
		l.pass(time.Second)
	}
	l.Fatalf("%s has not ended", id)
}

const wordsOfAnn = "yarn/ann/words"

func TestMapReduceTeaches(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.learn()
		for _, node := range []string{"n01", "node2"} {
			l.engine.Cap(&headroomv1.CapDirective{Node: node, CapUw: 150e6, MaxUw: 200e6})
		}
		var id string
		for _, slots := range []int{2, 3, 4, 6, 8, 12} { // the more run, the slower each is
			a := l.plant.submit("root.q1", 8*slots, 1)
			l.plant.with(func() {
				a.slots, a.taskTime = slots, time.Duration(4000*(1+0.02*float64(slots*slots)))*time.Millisecond
			})
			id = l.plant.id(a)
			l.await(id)
		}
		got := l.taught()[wordsOfAnn]
		if len(got) != 6 || len(l.taught()) != 1 {
			t.Fatalf("learned %+v", l.taught())
		}
		for i, slots := range []int{2, 3, 4, 6, 8, 12} {
			r, each := got[i], 4*(1+0.02*float64(slots*slots))
			if math.Abs(r.Containers-float64(slots)) > 0.2 || r.Tasks != 8*slots || math.Abs(r.Power-0.75) > 1e-9 || math.Abs(r.Busy/float64(r.Tasks)-each) > 0.15*each {
				t.Errorf("%d slots of %.1f s each: %+v", slots, each, r)
			}
		}
		if l.log.job(id).GetScaling() != nil && !l.log.job(id).GetScaling().GetExploring() {
			t.Errorf("a curve before there are enough runs: %v", l.log.job(id).GetScaling())
		}
		a, other := l.plant.submit("root.q1", 8, 0), l.plant.submit("root.q1", 8, 0)
		l.plant.with(func() { other.user = "eve" })
		l.pass(8 * time.Second)
		s := l.log.job(l.plant.id(a)).GetScaling()
		if s.GetRuns() != 6 || len(s.GetPoints()) < 3 || l.engine.List(l.plant.id(a))[0].GetScaling() == nil {
			t.Errorf("committed with %v", s)
		}
		if l.log.job(l.plant.id(other)).GetScaling() != nil {
			t.Error("a user gets another's curve")
		}
	})
}

func TestWhatTeachesNothing(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		meanwhile func(l *lab, a *plantApp)
		tasks     int // that the run shows; 0 for none
	}{
		"all of it":              {func(*lab, *plantApp) {}, 32},
		"killed":                 {func(l *lab, a *plantApp) { l.plant.kill(a) }, 0},
		"a node lost":            {func(l *lab, _ *plantApp) { l.plant.loseNode("node2") }, 32},
		"much was lost":          {func(l *lab, a *plantApp) { l.again(a, 8) }, 0},
		"its master began again": {func(l *lab, a *plantApp) { l.plant.restartMaster(a, time.Second) }, 0},
		"nobody saw it": {func(l *lab, _ *plantApp) {
			l.plant.with(func() {
				l.plant.fault = func(_ string, w *httptest.ResponseRecorder) bool { w.Code = 999; return true }
			})
			l.pass(8 * time.Second)
			l.plant.with(func() { l.plant.fault = nil })
		}, 0},
		"thinned": {func(l *lab, a *plantApp) {
			l.stopJob(l.plant.id(a), 32, 24)
			l.leaveOut(a, 28, 29, 30, 31)
		}, 28},
		"another scheduler": {func(l *lab, _ *plantApp) { l.stop(); l.learn() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				l.learn()
				a := l.plant.submit("root.q1", 32, 0)
				l.pass(15 * time.Second)
				x.meanwhile(l, a)
				l.pass(2 * time.Minute)
				got := l.taught()[wordsOfAnn]
				if x.tasks == 0 && len(got) > 0 || x.tasks > 0 && (len(got) != 1 || got[0].Tasks != x.tasks || got[0].Power != 0) {
					t.Errorf("learned %+v, want %d tasks", got, x.tasks)
				}
			})
		})
	}
}

// again lets the running tasks lose their attempt, so many times.
func (l *lab) again(a *plantApp, times int) {
	for range times {
		l.plant.with(func() {
			for _, k := range a.maps {
				if k.state == "RUNNING" {
					k.started = time.Now()
				}
			}
		})
		l.pass(2 * time.Second)
	}
}

// leaveOut has the master drop tasks that have not begun.
func (l *lab) leaveOut(a *plantApp, tasks ...int) {
	l.Helper()
	var list []object
	for _, i := range tasks {
		list = append(list, object{"task": i, "bytes": 1})
	}
	body := testkit.Need(json.Marshal(object{"tasks": len(a.maps), "candidates": list}))(l)
	if code, answer := l.ask(http.MethodPost, "/v1/jobs/"+l.plant.job(a)+"/drop", string(body)); code != http.StatusOK {
		l.Fatalf("%d %s", code, answer)
	}
	l.plant.with(func() {
		for _, i := range tasks {
			a.drop[i] = true
		}
	})
}

func TestSparkTeaches(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.learn()
		a := l.plant.submitSpark(3, &plantSpark{})
		id := l.plant.id(a)
		l.pass(4 * time.Second)
		for i := range 30 {
			if code, _, _ := l.hook(id, 1, i+1, i); code != http.StatusOK {
				t.Fatalf("%d", code)
			}
			l.pass(time.Second)
		}
		l.plant.with(func() { a.end(time.Now(), "FINISHED", "SUCCEEDED", "") })
		l.pass(5 * time.Second)
		got := l.taught()[wordsOfAnn]
		if len(got) != 1 || got[0].Tasks < 27 || got[0].Tasks > 29 || got[0].Containers < 3 || got[0].Containers > 6 || fmt.Sprint(got[0].Power) != "0" {
			t.Errorf("learned %+v", l.taught())
		}
	})
}
