// Claims: the answers of a real Hadoop 3.4.2 (testdata/rest) are understood; what
// is no such answer is refused in words, whatever it holds; no answer makes a
// reader panic.
package yarn

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"headroom/internal/testkit"
	"headroom/scheduler/profiles"
)

func golden(tb testing.TB, name string) []byte {
	tb.Helper()
	return testkit.Need(os.ReadFile(filepath.Join("testdata", "rest", name)))(tb)
}

func TestRealApplications(t *testing.T) {
	t.Parallel()
	const id = "application_1700000000000_0001"
	for name, want := range map[string][]app{
		"apps-none.json": nil,
		"apps-accepted.json": {{
			id: id, name: "Sleep job", user: "ann", queue: "root.a", state: "ACCEPTED", final: "UNDEFINED",
			started: time.UnixMilli(1795303421773), elapsed: 273 * time.Millisecond,
		}},
		"apps-running.json": {{
			id: id, name: "Sleep job", user: "ann", queue: "root.a", state: "RUNNING", final: "UNDEFINED",
			started: time.UnixMilli(1795303421773), launched: time.UnixMilli(1795303422419), containers: 8,
			attempt: "appattempt_1700000000000_0001_000001", master: "container_1700000000000_0001_01_000001",
		}},
	} {
		got, err := readApps(golden(t, name))
		if err != nil {
			t.Fatal(name, err)
		}
		if len(got) == 1 && name == "apps-running.json" {
			got[0].elapsed = 0
		}
		if len(got) != len(want) || (len(got) == 1 && got[0] != want[0]) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	ended, err := readApps(golden(t, "apps-ended.json"))
	if err != nil || len(ended) != 2 {
		t.Fatal(ended, err)
	}
	if a := ended[0]; a.state != "FINISHED" || a.final != "SUCCEEDED" || a.containers != 0 || a.finished.IsZero() || !a.ended() {
		t.Errorf("got %+v", a)
	}
	if a := ended[1]; a.state != "KILLED" || a.final != "KILLED" || !strings.Contains(a.diagnostics, "was killed by user") {
		t.Errorf("got %+v", a)
	}
	if a, err := readApp(golden(t, "app-finished.json")); err != nil || a.id != id || a.state != "FINISHED" {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestRealCluster(t *testing.T) {
	t.Parallel()
	nodes, err := readNodes(golden(t, "nodes.json"))
	if want := []node{{"node2:45454", "RUNNING", 4096, 4}, {"node1:45454", "RUNNING", 4096, 4}}; err != nil || !cmp.Equal(nodes, want, cmp.AllowUnexported(node{})) {
		t.Errorf("got %+v, %v", nodes, err)
	}
	queues, err := readQueues(golden(t, "scheduler.json"))
	if want := map[string]bool{"root": true, "root.a": true, "root.b": true}; err != nil || !cmp.Equal(queues, want) {
		t.Errorf("got %v, %v", queues, err)
	}
}

func TestRealJob(t *testing.T) {
	t.Parallel()
	all, err := readTasks(golden(t, "tasks.json"))
	if err != nil || len(all.maps) != 12 || len(all.reduces) != 1 {
		t.Fatal(all, err)
	}
	j := newJob(app{id: "application_1700000000000_0001"}, profiles.Bound{Fraction: 1})
	j.take(time.Now(), Container{256, 1}, detail{tasks: &all})
	if j.done() != 7 || j.count(taskRuns) != 5 || *j.work() != 7 || *j.reduced() != 0 || j.started.UnixMilli() != 1795303426364 {
		t.Errorf("%d done, %d running, work %v, started %d", j.done(), j.count(taskRuns), *j.work(), j.started.UnixMilli())
	}
	h, err := readContainers(golden(t, "containers.json"), "container_1700000000000_0001_01_000001")
	if want := map[string]int{"node1:45454": 3, "node2:45454": 4}; err != nil || !cmp.Equal(h.on, want) || h.master != (Container{512, 1}) || (Container{256, 1}).times(h.master) != 2 {
		t.Errorf("got %v, %v, %v", h.on, h.master, err)
	}
	// A list of one is no list.
	h, err = readContainers(golden(t, "container-single.json"), "container_1700000000000_0001_01_000001")
	if err != nil || len(h.on) != 0 || h.master != (Container{512, 1}) {
		t.Errorf("got %v, %v, %v", h.on, h.master, err)
	}
	d, err := readDemand(golden(t, "conf.json"))
	if got := d.bounds("words", nil); err != nil || len(got) != 1 || got[0].Fraction != 0.75 {
		t.Errorf("demands %v, %v: %v", d, err, got)
	}
}

func TestAnswersRefused(t *testing.T) {
	t.Parallel()
	apps := func(b []byte) error { _, err := readApps(b); return err }
	one := func(b []byte) error { _, err := readApp(b); return err }
	nodes := func(b []byte) error { _, err := readNodes(b); return err }
	queues := func(b []byte) error { _, err := readQueues(b); return err }
	jobs := func(b []byte) error { _, err := readTasks(b); return err }
	containers := func(b []byte) error { _, err := readContainers(b, ""); return err }
	conf := func(b []byte) error { _, err := readDemand(b); return err }
	for name, c := range map[string]struct {
		read       func([]byte) error
		text, want string
	}{
		"nothing":        {apps, "", "empty"},
		"half":           {apps, `{"apps":{"app":[{"id":"appl`, "truncated"},
		"two":            {apps, `{"apps":null} {"apps":null}`, "more than one JSON document"},
		"a page":         {apps, "<html>", "invalid character"},
		"other":          {apps, `{"nodes":null}`, "no list of applications"},
		"odd id":         {apps, `{"apps":{"app":[{"id":"../x","applicationType":"MAPREDUCE"}]}}`, `"../x" is not the id`},
		"odd state":      {apps, `{"apps":{"app":[{"id":"application_1_0001","state":"ASLEEP","applicationType":"MAPREDUCE"}]}}`, `in state "ASLEEP"`},
		"no queue":       {apps, `{"apps":{"app":[{"id":"application_1_0001","state":"RUNNING","applicationType":"MAPREDUCE"}]}}`, "in no queue"},
		"no time":        {apps, `{"apps":{"app":[{"id":"application_1_0001","state":"RUNNING","queue":"a","startedTime":-5,"applicationType":"MAPREDUCE"}]}}`, "submitted at -5"},
		"wrong type":     {apps, `{"apps":{"app":[{"id":7}]}}`, "cannot unmarshal"},
		"no application": {one, `{}`, "no application"},
		"no node":        {nodes, `{"apps":null}`, "no list of nodes"},
		"odd node":       {nodes, `{"nodes":{"node":[{"id":"n1:1"}]}}`, "without id or state"},
		"negative node":  {nodes, `{"nodes":{"node":[{"id":"n1:1","state":"RUNNING","totalResource":{"memory":-4,"vCores":1}}]}}`, "-4 MB"},
		"no scheduler":   {queues, `{"scheduler":null}`, "no scheduler"},
		"no queues":      {queues, `{"scheduler":{"schedulerInfo":{"type":"fifoScheduler"}}}`, `"fifoScheduler" without queues`},
		"no tasks":       {jobs, `{"job":{}}`, "no list of tasks"},
		"odd task":       {jobs, `{"tasks":{"task":[{"id":"task_1_0001_x_000000","type":"MAP"}]}}`, "is not a task"},
		"odd type":       {jobs, `{"tasks":{"task":[{"id":"task_1_0001_m_000000","type":"SETUP","state":"RUNNING"}]}}`, `of type "SETUP"`},
		"odd task state": {jobs, `{"tasks":{"task":[{"id":"task_1_0001_m_000000","type":"MAP","state":"HAPPY"}]}}`, `state "HAPPY"`},
		"number beyond":  {jobs, `{"tasks":{"task":[{"id":"task_1_0001_m_000007","type":"MAP","state":"RUNNING"}]}}`, "m_000007 of 1"},
		"twice":          {jobs, `{"tasks":{"task":[{"id":"task_1_0001_m_000001","type":"MAP","state":"NEW"},{"id":"task_1_0001_m_000001","type":"MAP","state":"NEW"}]}}`, "none has number 0"},
		"odd container":  {containers, `{"container":[{"containerId":"c1","nodeId":"n1:1"}]}`, "is not a container"},
		"no conf":        {conf, `{"conf":{}}`, "no configuration"},
	} {
		if err := c.read([]byte(c.text)); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// Older and newer releases say the same in other forms.
func TestOtherForms(t *testing.T) {
	t.Parallel()
	if apps, err := readApps([]byte(`{"apps":null}`)); err != nil || len(apps) != 0 {
		t.Errorf("got %v, %v", apps, err)
	}
	apps, err := readApps([]byte(`{"apps":{"app":{"id":"application_1_0001","state":"RUNNING","queue":"a","startedTime":5,"applicationType":"MAPREDUCE","later":{"x":1},"amContainerLogs":"http://n/container_e17_1_0001_02_000001/ann"}}}`))
	if err != nil || len(apps) != 1 || apps[0].queue != "root.a" || apps[0].attempt != "appattempt_1_0001_000002" || apps[0].master != "container_e17_1_0001_02_000001" {
		t.Errorf("got %+v, %v", apps, err)
	}
	if apps, err = readApps([]byte(`{"apps":{"app":[{"id":"application_1_0002","state":"ODD","applicationType":"TEZ"}]}}`)); err != nil || len(apps) != 0 {
		t.Errorf("an application of another kind: %+v, %v", apps, err)
	}
	nodes, err := readNodes([]byte(`{"nodes":{"node":{"id":"n1:1","state":"RUNNING","usedMemoryMB":1,"availMemoryMB":3,"usedVirtualCores":2,"availableVirtualCores":5}}}`))
	if want := (node{"n1:1", "RUNNING", 4, 7}); err != nil || len(nodes) != 1 || nodes[0] != want {
		t.Errorf("got %+v, %v", nodes, err)
	}
	queues, err := readQueues([]byte(`{"scheduler":{"schedulerInfo":{"type":"capacityScheduler","queueName":"root","queues":{"queue":[{"queueName":"a","queuePath":"root.a"}]}}}}`))
	if want := map[string]bool{"root": true, "root.a": true}; err != nil || !cmp.Equal(queues, want) {
		t.Errorf("got %v, %v", queues, err)
	}
}

func FuzzAnswers(f *testing.F) {
	entries := testkit.Need(os.ReadDir(filepath.Join("testdata", "rest")))(f)
	for _, e := range entries {
		f.Add(golden(f, e.Name()))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if apps, err := readApps(body); err == nil {
			for _, a := range apps {
				if !appForm.MatchString(a.id) || a.queue == "" || a.containers < 0 || a.elapsed < 0 {
					t.Errorf("took %+v", a)
				}
			}
		}
		if all, err := readTasks(body); err == nil {
			j := newJob(app{id: "application_1_0001"}, profiles.Bound{Fraction: 1})
			j.take(time.Unix(0, 0), Container{256, 1}, detail{tasks: &all})
			if p := j.progress(testConfig(), true); p.GetDone()+p.GetPending() > p.GetTasks() || p.GetWork() > float64(p.GetTasks()) || p.GetWork() < 0 || p.GetReduced() > 1 {
				t.Errorf("progress %v", p)
			}
		}
		_, _ = readApp(body)
		_, _ = readNodes(body)
		_, _ = readQueues(body)
		_, _ = readContainers(body, "")
		if d, err := readDemand(body); err == nil {
			for _, b := range d.bounds("words", nil) {
				if !(b.Fraction > 0 && b.Fraction <= 1) || b.Why == "" {
					t.Errorf("bound %v", b)
				}
			}
		}
		_ = words(body)
	})
}

// Over a network, as a real client meets it.
func TestClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, kind string
		code       int
		want       error
		text       string
	}{
		"whole":     {"apps-none.json", "application/json;charset=utf-8", 200, nil, ""},
		"page":      {"proxy-unknown.html", "text/html;charset=utf-8", 200, errAnswer, `"text/html;charset=utf-8" instead of JSON: Application`},
		"moved":     {"proxy-moved.html", "text/html", 302, errStandby, ""},
		"unknown":   {"app-unknown.json", "application/json", 404, errNotThere, ""},
		"exception": {"bad-request.json", "application/json", 400, errAnswer, "status 400: java.lang.Exception: Invalid application-state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				_, _ = w.Write(golden(t, c.file))
			}))
			defer s.Close()
			k := newClient(Config{ResourceManager: []string{s.URL + "/"}}, slog.New(slog.DiscardHandler))
			defer k.close()
			body, err := k.cluster(t.Context(), "apps")
			if !errors.Is(err, c.want) || (err != nil && !strings.Contains(err.Error(), c.text)) || (err == nil && len(body) == 0) {
				t.Errorf("got %q, %v", body, err)
			}
			_, err = k.master(t.Context(), "application_1_0001", "/tasks")
			if c.want != nil && err == nil || errors.Is(err, errStandby) {
				t.Errorf("of the master: %v", err)
			}
		})
	}
}

// Another web server among the addresses is said to be one, and the next one is asked.
func TestAnotherWebServer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	right := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(golden(t, "apps-running.json"))
	}))
	defer right.Close()
	c := newClient(Config{ResourceManager: []string{other.URL}}, slog.New(slog.DiscardHandler))
	defer c.close()
	if _, err := c.list(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "check that it is the web address of a ResourceManager") {
		t.Errorf("alone: %v", err)
	}
	both := newClient(Config{ResourceManager: []string{other.URL, right.URL}}, slog.New(slog.DiscardHandler))
	defer both.close()
	if apps, err := both.list(t.Context(), ""); err != nil || len(apps) == 0 {
		t.Errorf("before the right one: %v, %v", apps, err)
	}
}

func TestClientCutOff(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"apps":`))
	}))
	defer s.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	k := newClient(Config{ResourceManager: []string{gone.URL, s.URL}}, slog.New(slog.DiscardHandler))
	defer k.close()
	_, err := k.cluster(t.Context(), "apps")
	if err == nil || !strings.Contains(err.Error(), "truncated after 8 bytes") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}
