// Claims: a job of YARN is in the coordinators' log and in the users' listings like
// any other; directives reach its engine and are acknowledged with what hindered
// them; what the engine keeps to itself is not touched by the scheduler's own jobs.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/scheduler"
)

// hadoop answers with what a real Hadoop answered while a job ran.
func hadoop(t *testing.T) string {
	t.Helper()
	answers := map[string]string{
		"apps": "apps-running.json", "nodes": "nodes.json", "scheduler": "scheduler.json", "tasks": "tasks.json", "conf": "conf.json", "containers": "containers.json",
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join("..", "yarn", "testdata", "rest", answers[filepath.Base(r.URL.Path)]))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// yarnCluster is a scheduler with YARN, and the address of its hooks.
func yarnCluster(t *testing.T) (c *cluster, hooks string) {
	t.Helper()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() //nolint:errcheck // only to find a free port
	c = newCluster(t, 1)
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	c.write("scheduler.yaml", string(data)+fmt.Sprintf(`yarn:
  resourcemanager: [%s]
  queues: [{name: root.a, guarantee: 60%%, class: high, deadline: 10m, sprint_after: 0s}]
  container: {memory_mb: 256, vcores: 1}
  hooks: %s
  poll: 200ms
`, hadoop(t), l.Addr()))
	return c, l.Addr().String()
}

const hadoopsJob = "application_1700000000000_0001"

func TestYarnJob(t *testing.T) {
	t.Parallel()
	c, hooks := yarnCluster(t)
	c.serveHere()
	testkit.Eventually(t, patience, "the application committed", func() bool { return c.coords.job(hadoopsJob) != nil })
	if j := c.coords.job(hadoopsJob); j.GetEngine() != "yarn" || j.GetFloor() != 0.75 || j.GetQueue() != "root.a" || j.GetClass() != "high" || j.GetRank() != 0 || j.GetDeadlineS() != 600 {
		t.Errorf("committed %v", j)
	}
	testkit.Eventually(t, patience, "its progress at the coordinators", func() bool {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		p, e := c.coords.progress[hadoopsJob], c.coords.engines["yarn"]
		return p.GetDone() == 7 && p.GetTasks() == 12 && p.GetRunningOn()["node2"] == 4 && e.GetContainers() == 8 && p.GetSprintDue()
	})
	out, errs, exit := c.run("show", hadoopsJob)
	if exit != cli.ExitOK || !strings.Contains(out, "7 of 12 done") || !strings.Contains(out, "node1 (3), node2 (4)") || !strings.Contains(out, "yarn, queue root.a") || !strings.Contains(out, "75 %") {
		t.Errorf("show: %d %s%s", exit, out, errs)
	}
	if out, _, exit := c.run("list"); exit != cli.ExitOK || !strings.Contains(out, hadoopsJob) {
		t.Errorf("list: %d %s", exit, out)
	}
	_, errs, exit = c.run("cancel", hadoopsJob)
	if exit != cli.ExitRefused || !strings.Contains(errs, "runs on YARN") || !strings.Contains(errs, "yarn application -kill "+hadoopsJob) {
		t.Errorf("cancel: %d %s", exit, errs)
	}
	acks := func(seq uint64, d *headroomv1.Directive) string {
		d.Epoch, d.Seq = &headroomv1.Epoch{Incarnation: 1, Term: 1}, seq
		testkit.Eventually(t, patience, "a stream to the scheduler", func() bool { return c.coords.direct(d) })
		var ack *headroomv1.DirectiveAck
		testkit.Eventually(t, patience, "an acknowledgement", func() bool {
			c.coords.mu.Lock()
			defer c.coords.mu.Unlock()
			for _, a := range c.coords.acks {
				if a.GetSeq() == seq {
					ack = a
				}
			}
			return ack != nil
		})
		return ack.GetError()
	}
	share := &headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: hadoopsJob, Containers: 6}}}
	if err := acks(1, &headroomv1.Directive{Action: &headroomv1.Directive_Share{Share: share}}); err != "" {
		t.Errorf("share: %s", err)
	}
	if got := get(t, "http://"+hooks+"/v1/shares"); !strings.Contains(got, `{"queue":"root.a","max_mb":1536,"max_vcores":6,"lower":"drain"}`) {
		t.Errorf("shares served: %s", got)
	}
	if err := acks(2, &headroomv1.Directive{Action: &headroomv1.Directive_Stop{Stop: &headroomv1.StopDirective{Id: hadoopsJob, Tasks: 12, MinTasks: 9}}}); err != "" {
		t.Errorf("stop: %s", err)
	}
	if got := get(t, "http://"+hooks+"/v1/jobs/job_1700000000000_0001/stop"); got != `{"stop":true,"min_tasks":9,"dropped":[]}`+"\n" {
		t.Errorf("stop served: %s", got)
	}
	deflate := func(seq uint64, theta float64) string {
		return acks(seq, &headroomv1.Directive{Action: &headroomv1.Directive_Deflate{Deflate: &headroomv1.DeflateDirective{Id: hadoopsJob, Theta: theta, Seed: 3}}})
	}
	if err := deflate(3, 0.4); !strings.Contains(err, "40 % would leave less than its floor of 75 %") {
		t.Errorf("a ratio beyond the floor: %q", err)
	}
	if err := deflate(4, 0.25); err != "" {
		t.Errorf("deflate: %s", err)
	}
	sprint := &headroomv1.SprintDirective{Id: hadoopsJob, Sprint: "job/x/1", Nodes: []string{"node1", "node2"}, CapUw: 200e6}
	if err := acks(5, &headroomv1.Directive{Action: &headroomv1.Directive_Sprint{Sprint: sprint}}); err != "" {
		t.Errorf("sprint: %s", err)
	}
	out, _, _ = c.run("show", hadoopsJob)
	for _, words := range []string{"25 %: at least 9 of 12 map tasks run; 0 dropped", "escrow job/x/1, 200.0 W on node1, node2", "high"} {
		if !strings.Contains(out, words) {
			t.Errorf("show does not say %q:\n%s", words, out)
		}
	}
	other := &headroomv1.ShareDirective{Engine: "spark"}
	if err := acks(6, &headroomv1.Directive{Action: &headroomv1.Directive_Share{Share: other}}); !strings.Contains(err, `engine "spark"`) {
		t.Errorf("another engine: %q", err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	r := testkit.Need(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp := testkit.Need(client.Do(r))(t)
	defer resp.Body.Close() //nolint:errcheck // only read
	data := testkit.Need(io.ReadAll(resp.Body))(t)
	return string(data)
}

// A scheduler without YARN lists a job of YARN and says why it does nothing for it.
func TestJobOfAnEngineThatIsNotHere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.coords.jobs[hadoopsJob] = &headroomv1.Job{Id: hadoopsJob, Name: "words", Class: "a", Engine: "yarn", Queue: "root.a", Spec: []byte("{}"), SubmittedUs: 1}
	c.coords.order = append(c.coords.order, hadoopsJob)
	c.serveHere()
	testkit.Eventually(t, patience, "the job listed", func() bool {
		out, _, exit := c.run("show", hadoopsJob, "-o", "json")
		var answer struct{ Items []jsonJob }
		return exit == cli.ExitOK && json.Unmarshal([]byte(out), &answer) == nil && strings.Contains(answer.Items[0].Outcome, "engine not configured")
	})
	d := &headroomv1.Directive{
		Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 1}, Seq: 1, Action: &headroomv1.Directive_Stop{Stop: &headroomv1.StopDirective{Id: hadoopsJob}},
	}
	testkit.Eventually(t, patience, "a stream to the scheduler", func() bool { return c.coords.direct(d) })
	testkit.Eventually(t, patience, "an acknowledgement", func() bool {
		c.coords.mu.Lock()
		defer c.coords.mu.Unlock()
		return len(c.coords.acks) == 1 && strings.Contains(c.coords.acks[0].GetError(), "engine not configured")
	})
}

// Where the hooks cannot be served, the key and the way out are named.
func TestHooksPortTaken(t *testing.T) {
	t.Parallel()
	exit, errs, hooks := 0, "", ""
	for range 5 { // another test may take the scheduler's own port, which was free a moment ago
		c, at := yarnCluster(t)
		l := testkit.Need(net.Listen("tcp", at))(t)
		var said strings.Builder
		exit = cli.Run(t.Context(), New(), []string{"run", "--config", filepath.Join(c.dir, "scheduler.yaml")}, io.Discard, &said)
		_ = l.Close()
		if errs, hooks = said.String(), at; !strings.Contains(errs, "cannot listen on "+c.address) {
			break
		}
	}
	if exit != cli.ExitFailed || !strings.Contains(errs, "yarn.hooks: cannot listen on "+hooks) || !strings.Contains(errs, "choose another port for yarn.hooks") {
		t.Errorf("exit %d: %s", exit, errs)
	}
}

// How jobs of a queue are served is checked where it stands.
func TestQueueTermsRefused(t *testing.T) {
	t.Parallel()
	for from, c := range map[string]struct{ to, place, words, hint string }{
		"class: \"\"  ":        {"class: gold  ", ":14: ", `class "gold" of queue root.q1 is unknown`, "one of high, low"},
		"sprint_after: \"\"  ": {"sprint_after: 60  ", ":21: ", `sprint_after of queue root.q1: "60": a duration needs a unit`, "did you mean 60s?"},
		"deadline: 0s  ":       {"deadline: soon  ", ":17: ", `"soon": not a duration`, "write it as"},
		"deflate: true":        {"deflate: often", ":16: ", `"often" is not true or false`, "correct the line"},
		"overrides: false":     {"override: false", ":7: ", `unknown key "override"`, "did you mean overrides?"},
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		_, yarn, _ := strings.Cut(scheduler.ExampleConfig, "\nyarn:\n")
		before, _, _ := strings.Cut(scheduler.ExampleConfig, yarn)
		text := before + strings.Replace(strings.NewReplacer("resourcemanager: []", "resourcemanager: ['http://rm1:8088']", `hooks: ""`, "hooks: 127.0.0.1:7411", `hooks_token_file: ""`, "hooks_token_file: /t").Replace(yarn), "      "+from, "      "+c.to, 1)
		testkit.WriteFile(t, path, text)
		_, err := scheduler.LoadConfig(path)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || !strings.HasPrefix(e.Message, path+":") || !strings.Contains(e.Message, c.place) || !strings.Contains(e.Message, c.words) || !strings.Contains(e.Hint, c.hint) || e.Exit != cli.ExitUsage {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestYarnConfigRefused(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"guarantee: 100%":     `guarantee`,
		"resourcemanager: []": "resourcemanager",
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		text := strings.Replace(scheduler.ExampleConfig, from, strings.SplitN(from, ":", 2)[0]+": [rm1]", 1)
		testkit.WriteFile(t, path, text)
		_, err := scheduler.LoadConfig(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":") || (want == "resourcemanager" && !strings.Contains(err.Error(), `"rm1" is not the address`)) {
			t.Errorf("%s: %v", from, err)
		}
	}
}
