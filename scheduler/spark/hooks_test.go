// Claims: a hook gets the drop ratio of its own run and of no other; what it tells becomes
// the run's progress, whatever order reports come in; a ratio only rises, within the
// floor; nothing that a stranger sends is more than refused.
package spark

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/sparkapp"
)

// reportText is what a hook sends, by the example of docs/hooks.md.
const reportText = `{"job":%q,"run":%d,"app":"app-1","sequence":%d,"ended":false,
 "stages":[{"id":0,"attempt":0,"name":"map","kind":"map","partitions":50,"kept":40,"shuffle":0,"done":%d,"running":4,"failed":0,"task_ms":4100,"begun":true,"ended":false},
           {"id":1,"attempt":0,"name":"collect","kind":"result","partitions":8,"kept":8,"shuffle":-1,"done":0,"running":0,"failed":0,"task_ms":0,"begun":false,"ended":false}],
 "executors":3,"tasks_done":%[4]d,"tasks_total":48,"running_on":{"10.0.0.11":3,"other":1},
 "shuffles":[{"id":0,"total":50,"kept":40,"theta":0.2,"seed":42,"input":true}],"trouble":""}`

// post sends a report and returns the answer's status and body.
func (l *lab) post(token, body string) (int, map[string]any) {
	l.Helper()
	req := testkit.Need(http.NewRequestWithContext(l.Context(), http.MethodPost, l.engine.URL()+"/v1/spark/progress", strings.NewReader(body)))(l)
	req.Header.Set("Authorization", "Bearer "+token)
	tr := &http.Transport{DisableKeepAlives: true}
	resp := testkit.Need((&http.Client{Transport: tr}).Do(req))(l)
	defer func() { _ = resp.Body.Close() }()
	var a map[string]any
	testkit.Check(l, json.NewDecoder(resp.Body).Decode(&a))
	return resp.StatusCode, a
}

func (l *lab) token(r Run) string {
	l.Helper()
	var o order
	testkit.Check(l, readJSON(filepath.Join(r.Folder, runFile), &o))
	return o.Token
}

// progress is the next news of a run.
func (l *lab) progress() sparkapp.Progress {
	l.Helper()
	select {
	case ev := <-l.engine.Events():
		if ev.Kind != KindProgress {
			l.Fatalf("%+v", ev)
		}
		return ev.Progress
	case <-time.After(patience):
		l.Fatal("no progress is told")
		return sparkapp.Progress{}
	}
}

func TestHooksAreAnswered(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), func(c *Config) { c.Nodes = map[string]string{"10.0.0.11": "n01"} })
	r := runOf(l.dir, "words", 1, "wait", filepath.Join(l.dir, "go"))
	r.Floor, r.Slots, r.Spec.Conf = 0.5, 8, map[string]string{coresKey: "1"}
	l.start(r)
	token := l.token(r)
	code, a := l.post(token, fmt.Sprintf(reportText, "words", 1, 2, 12))
	if code != http.StatusOK || a["theta"] != 0.25 || a["seed"] != 7.0 || a["cancel"] != false || a["executors"] != nil {
		t.Errorf("%d %v", code, a)
	}
	p := l.progress()
	if !p.Known || p.Tasks != 58 || p.Done != 12 || p.Running != 4 || p.Dropped != 10 || p.Executors != 3 || p.RunningOn["n01"] != 3 || p.RunningOn["other"] != 1 {
		t.Errorf("%+v", p)
	}
	if s := p.Stages[0]; s.Kept != 40 || s.Partitions != 50 || s.Seconds != 4.1 || !s.Begun {
		t.Errorf("%+v", s)
	}
	// An older report is answered and changes nothing.
	if code, _ := l.post(token, fmt.Sprintf(reportText, "words", 1, 1, 3)); code != http.StatusOK {
		t.Errorf("an older report: %d", code)
	}
	for _, err := range []error{l.engine.Share([]Share{{"words", 5}}), l.engine.Deflate("words", 0.4, 9), l.engine.Deflate("words", 0.1, 3)} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := l.engine.Deflate("words", 0.6, 9); !errors.Is(err, errFloor) {
		t.Errorf("beyond the floor: %v", err)
	}
	if err := l.engine.Deflate("absent", 0.4, 9); !errors.Is(err, errNotRunning) {
		t.Errorf("no such job: %v", err)
	}
	if code, a = l.post(token, fmt.Sprintf(reportText, "words", 1, 3, 40)); code != http.StatusOK || a["theta"] != 0.4 || a["seed"] != 9.0 || a["executors"] != 5.0 {
		t.Errorf("%d %v", code, a)
	}
	if p := l.progress(); p.Done != 40 || p.Theta != 0.4 {
		t.Errorf("%+v", p)
	}
	l.release()
	if ev := l.ended(); ev.Progress.Done != 40 || ev.Progress.Running != 0 {
		t.Errorf("%+v", ev)
	}
	if code, _ := l.post(token, fmt.Sprintf(reportText, "words", 1, 4, 40)); code != http.StatusNotFound {
		t.Errorf("a report after the end: %d", code)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	one, two := runOf(l.dir, "one", 4, "wait", filepath.Join(l.dir, "go")), runOf(l.dir, "two", 1, "wait", filepath.Join(l.dir, "go"))
	l.start(one)
	l.start(two)
	good := fmt.Sprintf(reportText, "one", 4, 1, 1)
	for name, c := range map[string]struct {
		token, body string
		code        int
	}{
		"no token":           {"", good, http.StatusForbidden},
		"another's token":    {l.token(two), good, http.StatusForbidden},
		"unknown job":        {l.token(one), fmt.Sprintf(reportText, "three", 1, 1, 1), http.StatusNotFound},
		"an earlier run":     {l.token(one), fmt.Sprintf(reportText, "one", 3, 1, 1), http.StatusConflict},
		"no JSON":            {l.token(one), "executors=3", http.StatusBadRequest},
		"missing":            {l.token(one), `{"job":"one","run":4}`, http.StatusBadRequest},
		"more done than are": {l.token(one), strings.Replace(good, `"tasks_total":48`, `"tasks_total":0`, 1), http.StatusBadRequest},
		"more kept than are": {l.token(one), strings.Replace(good, `"kept":40`, `"kept":51`, 1), http.StatusBadRequest},
		"too long":           {l.token(one), good[:len(good)-1] + `,"more":"` + strings.Repeat("x", hookserver.BodyMax) + `"}`, http.StatusBadRequest},
		"two documents":      {l.token(one), good + good, http.StatusBadRequest},
	} {
		if code, a := l.post(c.token, c.body); code != c.code || a["error"] == "" || a["theta"] != nil {
			t.Errorf("%s: %d %v", name, code, a)
		}
	}
	l.release()
	for range 2 {
		if ev := l.ended(); ev.Progress.Known {
			t.Errorf("a stranger's report was taken over: %+v", ev)
		}
	}
}

func TestStagesMayEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	l.stop()
	submitted := time.Now()
	for name, c := range map[string]struct {
		run   Run
		after time.Duration
		end   any
	}{
		"no deadline":                {Run{Floor: 0.5}, time.Hour, nil},
		"before the deadline":        {Run{Floor: 0.75, Deadline: 10 * time.Minute}, 9*time.Minute - 1, nil},
		"at nine tenths of it":       {Run{Floor: 0.75, Deadline: 10 * time.Minute}, 9 * time.Minute, 0.25},
		"after it":                   {Run{Floor: 0.75, Deadline: 10 * time.Minute}, time.Hour, 0.25},
		"all is its floor":           {Run{Floor: 1, Deadline: 10 * time.Minute}, time.Hour, nil},
		"an error bound":             {Run{Floor: 0.75, Bounded: true}, 0, 0.25},
		"the longest deadline":       {Run{Floor: 0.75, Deadline: math.MaxInt64}, 0, nil},
		"a clock that has gone back": {Run{Floor: 0.75, Deadline: time.Minute}, -time.Hour, nil},
	} {
		r := c.run
		r.Job, r.Number, r.Submitted = "words", 1, submitted
		l.engine.runs["words"] = &execution{run: r, token: "t"}
		rep := testkit.Need(sparkapp.ParseReport(strings.NewReader(fmt.Sprintf(reportText, "words", 1, 1, 3))))(t)
		a := testkit.Need(l.engine.report(submitted.Add(c.after), "t", rep))(t)
		var got map[string]any
		testkit.Check(t, json.Unmarshal(testkit.Need(json.Marshal(a))(t), &got))
		if got["end"] != c.end {
			t.Errorf("%s: %v, want %v", name, got["end"], c.end)
		}
	}
}

func TestSilenceIsUnknown(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	l.stop()
	now := time.Now()
	x := &execution{run: Run{Job: "words", Number: 1}, token: "t"}
	l.engine.runs["words"] = x
	rep := testkit.Need(sparkapp.ParseReport(strings.NewReader(fmt.Sprintf(reportText, "words", 1, 1, 3))))(t)
	if _, err := l.engine.report(now, "t", rep); err != nil {
		t.Fatal(err)
	}
	l.engine.quiet(x, now.Add(silence-time.Millisecond))
	if !x.progress.Known {
		t.Error("unknown too early")
	}
	l.engine.quiet(x, now.Add(silence))
	if x.progress.Known || x.progress.Done != 3 {
		t.Errorf("%+v", x.progress)
	}
	if n := len(l.engine.pending); n != 1 || l.engine.pending[0].Progress.Known {
		t.Errorf("%d events wait: %+v", n, l.engine.pending)
	}
}

// A hook that acts upon an application that has just stopped is in no trouble; what was wrong before stays said.
func TestAStoppedApplicationIsNoTrouble(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	l.stop()
	var said bytes.Buffer
	l.engine.logger = slog.New(slog.NewTextHandler(&said, nil))
	x := &execution{run: Run{Job: "words", Number: 1}, token: "t"}
	l.engine.runs["words"] = x
	const ended = "a report to http://127.0.0.1:1 failed: Cannot call methods on a stopped SparkContext.\\nThis stopped SparkContext was created at:"
	for i, k := range []struct{ trouble, want string }{{ended, ""}, {"not thinned: a barrier stage", "not thinned: a barrier stage"}, {ended, "not thinned: a barrier stage"}} {
		text := strings.Replace(fmt.Sprintf(reportText, "words", 1, i+1, 3), `"trouble":""`, `"trouble":"`+k.trouble+`"`, 1)
		rep := testkit.Need(sparkapp.ParseReport(strings.NewReader(text)))(t)
		if _, err := l.engine.report(time.Now(), "t", rep); err != nil {
			t.Fatal(err)
		}
		if x.progress.Trouble != k.want {
			t.Errorf("after %q its trouble is %q, want %q", k.trouble, x.progress.Trouble, k.want)
		}
	}
	if text := said.String(); strings.Contains(text, "stopped") || strings.Count(text, "Spark driver reported a problem") != 1 {
		t.Errorf("logged:\n%s", text)
	}
}

// The port may be open for a moment in a copy that a process has which is being started.
func TestHooksPortIsWaitedFor(t *testing.T) {
	t.Parallel()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatal(l)
	}
	held := testkit.Need(tcp.File())(t)
	testkit.Check(t, l.Close())
	if _, err := rpc.Listen(l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("the copy does not hold the port: %v", err)
	}
	time.AfterFunc(4*portPause, func() { testkit.Check(t, held.Close()) })
	again := testkit.Need(listenAgain(l.Addr().String()))(t)
	testkit.Check(t, again.Close())
}

func TestHooksPortIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := newLab(t, dir, nil)
	url := first.engine.URL()
	first.stop()
	if again := newLab(t, dir, nil); again.engine.URL() != url {
		t.Errorf("%s, drivers ask %s", again.engine.URL(), url)
	}
}
