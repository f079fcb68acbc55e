// Claims: cores become executors for the hooks, at once where there are to be more, after a while where there are to be
// fewer; what is named and does not run here is told, and hinders nobody; how large the cluster is is what its master
// says, less what others hold, and unknown where it does not say it.
package spark

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

	"headroom/internal/testkit"
	"headroom/scheduler/sparkapp"
)

// still is an engine that does not run.
func still(t *testing.T, change func(*Config)) *Engine {
	t.Helper()
	cfg := home(t, t.TempDir())
	if change != nil {
		change(&cfg)
	}
	e := testkit.Need(New(cfg, t.TempDir(), supervisor(), &fakeYARN{}, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { testkit.Check(t, e.hooks.Close()) })
	return e
}

func (e *Engine) with(job string, slots int, cores string) *execution {
	x := &execution{run: Run{Job: job, Number: 1, Slots: slots}, token: "t"}
	if cores != "" {
		x.run.Spec.Conf = map[string]string{coresKey: cores}
	}
	e.runs[job] = x
	return x
}

func TestSharesBecomeExecutors(t *testing.T) {
	t.Parallel()
	e := still(t, nil)
	a, b, c := e.with("a", 8, "2"), e.with("b", 3, "1"), e.with("c", 8, "")
	if err := e.Share([]Share{{"a", 5}, {"b", 9}, {"c", 6}}); err != nil {
		t.Error(err)
	}
	if a.aim.executors != 2 || b.aim.executors != 3 || c.aim.executors != 0 {
		t.Errorf("a %+v, b %+v (3 slots), c %+v (its executors' cores are not known yet)", a.aim, b.aim, c.aim)
	}
	report := `{"job":"c","run":1,"sequence":1,"ended":false,"stages":[],"shuffles":[],"executors":2,"tasks_done":0,"tasks_total":0,"cores_on":{"h":6}}`
	r := testkit.Need(e.report(time.Now(), "t", testkit.Need(sparkapp.ParseReport(strings.NewReader(report)))(t)))(t)
	if r.Executors == nil || *r.Executors != 2 {
		t.Errorf("c with executors of 3 cores: %+v", r)
	}
	// A leader that has not heard yet that a job is over.
	if err := e.Share([]Share{{"gone", 4}, {"a", 8}}); !errors.Is(err, errShare) || !errors.Is(err, errNotRunning) || a.aim.executors != 4 || b.aim.executors != 0 {
		t.Errorf("%v, a %+v, b %+v", err, a.aim, b.aim)
	}
	// A new leader that decides nothing yet.
	if err := e.Share(nil); err != nil || a.aim != (aim{}) {
		t.Errorf("%v, %+v", err, a.aim)
	}
}

func TestFewerExecutorsOnlyAfterAWhile(t *testing.T) {
	t.Parallel()
	var a aim
	at := time.Now()
	for i, step := range []struct {
		after time.Duration
		to    int
		want  int
	}{
		{0, 4, 4},
		{0, 2, 4},
		{lowerAfter - time.Millisecond, 2, 4},
		{lowerAfter, 3, 3}, // the last of the lower ones
		{lowerAfter, 1, 3},
		{lowerAfter + time.Second, 3, 3}, // back: nothing was dropped
		{2 * lowerAfter, 1, 3},
		{3*lowerAfter - time.Millisecond, 1, 3},
		{3 * lowerAfter, 1, 1},
		{3 * lowerAfter, 9, 9},
	} {
		a.to(at.Add(step.after), step.to)
		if a.executors != step.want {
			t.Errorf("step %d: %+v, want %d", i, a, step.want)
		}
	}
}

// page is what a Master of Spark 3.5.9 answers at /json/.
const page = `{"url":"spark://m:7077","status":%q,"aliveworkers":2,"cores":9,"workers":[{"id":"w1","host":"10.0.0.11","cores":4,"coresused":2,"state":"ALIVE"},
 {"id":"w2","host":"10.0.0.12","cores":4,"state":"ALIVE"},{"id":"w3","host":"10.0.0.13","cores":8,"state":"DEAD"}],
 "activeapps":[{"id":"app-1","name":"ours","cores":2},{"id":"app-2","name":"renamed","cores":1},{"id":"app-3","name":"another","cores":3}]}`

func TestCapacity(t *testing.T) {
	t.Parallel()
	answer := make(chan string, 4)
	master := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/json/" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, <-answer)
	}))
	t.Cleanup(master.Close)
	e := still(t, func(c *Config) { c.Web = []string{"http://127.0.0.1:1", master.URL} })
	e.with("ours", 1, "")
	e.with("words", 1, "").app = "app-2"
	if n, why := e.Capacity(); n != 0 || !strings.Contains(why, "not been read") {
		t.Errorf("%d, %q", n, why)
	}
	for name, c := range map[string]struct {
		text  string
		cores int
	}{
		"alive":   {fmt.Sprintf(page, "ALIVE"), 5},
		"standby": {fmt.Sprintf(page, "STANDBY"), -1},
		"no page": {`{}`, -1},
		"minus":   {strings.Replace(fmt.Sprintf(page, "ALIVE"), `"cores":4,"coresused"`, `"cores":-4,"coresused"`, 1), -1},
		"no JSON": {"<html>", -1},
	} {
		answer <- c.text
		if n, err := e.ask(t.Context()); (c.cores >= 0) != (err == nil) || err == nil && n != c.cores {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	e.measured(5, nil)
	if n, why := e.Capacity(); n != 5 || why != "" {
		t.Errorf("%d, %q", n, why)
	}
	e.measured(0, errMaster)
	e.capacity.at = time.Now().Add(-capacityLife - time.Second)
	if n, why := e.Capacity(); n != 0 || !strings.Contains(why, errMaster.Error()) || !strings.Contains(why, "spark.cores") {
		t.Errorf("%d, %q", n, why)
	}
	e.cfg.Cores = 12
	if n, why := e.Capacity(); n != 12 || why != "" {
		t.Errorf("%d, %q", n, why)
	}
	if got := (Config{Master: "spark://a:7077,b:7077"}).webs(); len(got) != 2 || got[1] != "http://b:8080" {
		t.Errorf("%q", got)
	}
}

// fakeDriver answers as the REST interface of a driver.
func fakeDriver(t *testing.T, job, run string) *httptest.Server {
	t.Helper()
	answers := map[string]string{
		"/applications": `[{"id":"app-9"}]`, "/applications/app-9/environment": fmt.Sprintf(`{"sparkProperties":[["spark.headroom.job",%q],["spark.headroom.run",%q]]}`, job, run),
		"/applications/app-9/stages":    `[{"status":"ACTIVE","stageId":0,"attemptId":0,"numTasks":9,"numActiveTasks":2,"numCompletedIndices":4}]`,
		"/applications/app-9/executors": `[{"id":"driver","hostPort":"m:1","isActive":true},{"id":"0","hostPort":"10.0.0.11:2","isActive":true,"totalCores":2,"activeTasks":2}]`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[strings.TrimPrefix(r.URL.Path, "/api/v1")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, a)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestASilentHooksDriverIsAsked(t *testing.T) {
	t.Parallel()
	e := still(t, func(c *Config) { c.Nodes = map[string]string{"10.0.0.11": "n01"} })
	x := e.with("words", 4, "")
	now := time.Now()
	x.ui, x.began, x.heard = number(portOf(fakeDriver(t, "words", "1"))), now.Add(-time.Hour), now.Add(-probeAfter-time.Second)
	x.progress = sparkapp.Progress{Known: true, Theta: 0.2, Dropped: 3}
	if all := e.silent(now); len(all) != 1 {
		t.Fatalf("%d are silent", len(all))
	}
	e.probed(t.Context(), x)
	if p := x.progress; !p.Known || p.From != sparkapp.ByREST || p.Tasks != 12 || p.Done != 4 || p.Running != 2 || p.Dropped != 3 || p.RunningOn["n01"] != 2 || p.Theta != 0.2 || x.app != "app-9" {
		t.Errorf("%+v", p)
	}
	e.quiet(x, now.Add(silence))
	if !x.progress.Known {
		t.Error("unknown although one of both tells")
	}
	e.quiet(x, time.Now().Add(silence))
	if x.progress.Known {
		t.Error("known although both are silent")
	}
	// A hook that speaks again is believed.
	report := `{"job":"words","run":1,"sequence":1,"ended":false,"stages":[],"shuffles":[],"executors":1,"tasks_done":0,"tasks_total":7,"cores_on":{"h":6}}`
	_ = testkit.Need(e.report(time.Now(), "t", testkit.Need(sparkapp.ParseReport(strings.NewReader(report)))(t)))(t)
	if p := x.progress; p.From != sparkapp.ByHook || p.Tasks != 7 {
		t.Errorf("%+v", p)
	}
}

func TestAStrangersDriverTellsNothing(t *testing.T) {
	t.Parallel()
	e := still(t, nil)
	x := e.with("words", 4, "")
	x.ui, x.began = number(portOf(fakeDriver(t, "other", "1"))), time.Now().Add(-time.Hour)
	e.probed(t.Context(), x)
	if x.progress.Known || x.app != "" || len(e.pending) > 0 {
		t.Errorf("%+v", x.progress)
	}
	ask := testkit.Need(e.driver(t.Context(), x))(t)
	if _, err := e.identify(t.Context(), ask, x); !errors.Is(err, errStranger) {
		t.Error(err)
	}
}

func portOf(s *httptest.Server) string { return s.URL[strings.LastIndexByte(s.URL, ':')+1:] }

// The order keeps what the next scheduler needs to ask and to end the driver.
func TestOrderKeepsPlaces(t *testing.T) {
	t.Parallel()
	data := testkit.Need(json.Marshal(order{UI: 4711, Tag: "t", Managed: true}))(t)
	if text := string(data); !strings.Contains(text, `"ui_port":4711`) || !strings.Contains(text, `"tag":"t","managed":true`) {
		t.Error(text)
	}
}
