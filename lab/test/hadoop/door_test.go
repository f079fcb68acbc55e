// Claim: the fair scheduler's plug-in sends a query about an application whose tags name a deadline; one whose deadline the
// cluster cannot keep is refused, with the numbers in its diagnostics; without an answer, it is admitted. The engine
// that decides is the scheduler's own, by what the ResourceManager reports; only the coordinators are not there.
package hadoop

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/yarn"
)

// hooks is where the ResourceManager's plug-in of the shared cluster sends its queries: a scheduler that is not there, until a test
// puts one behind it.
type hooks struct {
	server *httptest.Server

	mu     sync.Mutex
	behind http.Handler
}

func newHooks() *hooks {
	h := &hooks{}
	h.server = httptest.NewServer(h)
	return h
}

// put puts a scheduler behind the address; nil takes it away.
func (h *hooks) put(behind http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.behind = behind
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	behind := h.behind
	h.mu.Unlock()
	if behind == nil {
		http.Error(w, "there is no scheduler", http.StatusServiceUnavailable)
		return
	}
	behind.ServeHTTP(w, r)
}

// tagged is a job of maps that sleep for a second, with tags.
func (l *lab) tagged(maps int, tags string) hadoop.Job {
	j := l.Sleep("q1", maps, time.Second)
	j.Properties = map[string]string{"mapreduce.job.tags": tags}
	return j
}

// served returns where an engine serves its hooks, which the ResourceManager's plug-in queries until the test ends.
func (l *lab) served(t *testing.T) net.Listener {
	t.Helper()
	listener := testkit.Need(rpc.Listen("127.0.0.1:0"))(t)
	l.hooks.put(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listener.Addr().String()}))
	t.Cleanup(func() { l.hooks.put(nil) })
	return listener
}

// decides submits a job whose deadline can be kept, and when the engine has learned what that one needed, a job whose deadline
// cannot. The engine does not decide before it has read the cluster.
func (l *lab) decides(t *testing.T, e *yarn.Engine) {
	t.Helper()
	ctx := within(t)
	testkit.Eventually(t, patience, "the engine knows the cluster", func() bool {
		_, err := e.Admit(ctx, hookserver.Application{ID: "application_1_0001", User: "nobody", Queue: "root.q1", Tasks: 1, Deadline: time.Hour})
		return err == nil
	})
	r := testkit.Need(l.Run(ctx, l.tagged(2, "headroom-deadline:30m,headroom-tasks:2")))(t)
	if !r.Succeeded() {
		t.Fatalf("the first job: %+v; want it admitted", r)
	}
	known := e.List(r.Application)
	if len(known) != 1 || known[0].GetAdmission().GetDecision() != "admitted" || known[0].GetDeadlineS() != 1800 {
		t.Errorf("the engine knows of it: %v", known)
	}
	testkit.Eventually(t, patience, "the engine has seen its end", func() bool {
		jobs := e.List(r.Application)
		return len(jobs) == 1 && jobs[0].GetState() == headroomv1.JobState_JOB_STATE_DONE
	})
	r = testkit.Need(l.Run(ctx, l.tagged(1, "headroom-deadline:5s,headroom-tasks:100000")))(t)
	numbers := regexp.MustCompile(`needs [0-9]+ slots and can use 8; the shortest feasible deadline is [0-9]`)
	if r.State != "FAILED" || r.History != nil || !numbers.MatchString(r.Diagnostics) {
		t.Errorf("100000 tasks in 5 s: %s, %q; want it refused with the numbers", r.State, r.Diagnostics)
	}
	t.Logf("diagnostics: %s", strings.TrimSpace(r.Diagnostics))
}

func TestDeadlinesAtTheDoor(t *testing.T) {
	c, ctx := shared(t), within(t)
	e, _ := c.engine(t, engineWith{shares: "none", coords: agreeable{}, hooks: c.served(t)})
	c.decides(t, e)
	c.hooks.put(nil)
	j := testkit.Need(c.Submit(ctx, c.tagged(1, "headroom-deadline:5s,headroom-tasks:100000")))(t)
	if err := j.AwaitContainers(ctx, 1); err != nil {
		t.Errorf("without a scheduler it is admitted: %v", err)
	}
	testkit.Check(t, j.Kill(ctx))
	testkit.Need(j.Wait(ctx))(t)
}
