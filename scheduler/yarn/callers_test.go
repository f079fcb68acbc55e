// Claims: a hook speaks for the job whose token it shows, of the user whose token made it,
// while that job runs; the plug-in's token reads shares and nothing else; the cluster's
// token is accepted where it is configured and nowhere else.
package yarn

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/testkit"
	"headroom/scheduler/hookserver"
)

// shown is the status of a hook's request that shows a token.
func (l *lab) shown(token, method, path, body string) int {
	l.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	newHooks(l.engine).handler().ServeHTTP(w, r)
	return w.Code
}

func TestJobSpeaksForItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "key"), strings.Repeat("k", 40))
	testkit.WriteFile(t, filepath.Join(dir, "token"), strings.Repeat("t", 40))
	inLab(t, func(l *lab) {
		keys := testkit.Need(hookserver.OpenKeys(filepath.Join(dir, "key")))(t)
		cluster := testkit.Need(hookserver.OpenToken(filepath.Join(dir, "token")))(t)
		l.start()
		l.engine.Require(&hookserver.Guard{Keys: keys})
		a, b := l.plant.submit("root.q1", 4, 0), l.plant.submit("root.q2", 4, 0)
		l.pass(6 * time.Second)
		ends := time.Now().Add(time.Hour)
		ann, bob := testkit.Need(keys.User("ann", ends))(t), testkit.Need(keys.User("bob", ends))(t)
		own := testkit.Need(hookserver.JobToken(ann, l.plant.id(a)))(t)
		bobs := testkit.Need(hookserver.JobToken(bob, l.plant.id(a)))(t)
		stop := func(x *plantApp) string { return "/v1/jobs/" + l.plant.job(x) + "/stop" }
		expect := func(about, token, method, path, body string, want int) {
			t.Helper()
			if got := l.shown(token, method, path, body); got != want {
				t.Errorf("%s: %d, want %d", about, got, want)
			}
		}
		expect("its own job", own, http.MethodGet, stop(a), "", http.StatusOK)
		expect("its own task", own, http.MethodPost, "/v1/jobs/"+l.plant.job(a)+"/begin", `{"task":0,"attempt":0,"bytes":1}`, http.StatusOK)
		expect("another job", own, http.MethodGet, stop(b), "", http.StatusUnauthorized)
		expect("another job's tasks", own, http.MethodPost, "/v1/jobs/"+l.plant.job(b)+"/drop", `{"tasks":4,"candidates":[]}`, http.StatusUnauthorized)
		expect("another user", bobs, http.MethodGet, stop(a), "", http.StatusForbidden)
		expect("another user's task", bobs, http.MethodPost, "/v1/jobs/"+l.plant.job(a)+"/begin", `{"task":0,"attempt":0,"bytes":1}`, http.StatusForbidden)
		expect("a job's token for shares", own, http.MethodGet, "/v1/shares", "", http.StatusUnauthorized)
		expect("the plug-in's for shares", keys.Shares(ends), http.MethodGet, "/v1/shares", "", http.StatusOK)
		expect("the plug-in's for a job", keys.Shares(ends), http.MethodGet, stop(a), "", http.StatusUnauthorized)
		expect("a user's own token", ann, http.MethodGet, stop(a), "", http.StatusUnauthorized)
		expect("the cluster's token", strings.Repeat("t", 40), http.MethodGet, stop(a), "", http.StatusUnauthorized)
		expect("nothing", "", http.MethodGet, "/v1/shares", "", http.StatusUnauthorized)
		old := testkit.Need(hookserver.JobToken(testkit.Need(keys.User("ann", time.Now()))(t), l.plant.id(a)))(t)
		expect("an old token", old, http.MethodGet, stop(a), "", http.StatusUnauthorized)

		l.engine.Require(&hookserver.Guard{Token: cluster, Keys: keys})
		expect("the cluster's token where it is accepted", strings.Repeat("t", 40), http.MethodGet, stop(a), "", http.StatusOK)
		expect("a job's beside the cluster's", own, http.MethodGet, stop(a), "", http.StatusOK)
		expect("another job beside the cluster's", own, http.MethodGet, stop(b), "", http.StatusUnauthorized)

		l.plant.kill(a)
		l.pass(2 * time.Second)
		expect("after the job's end", own, http.MethodGet, stop(a), "", http.StatusNotFound)
	})
}

// One user's jobs that are slow to send what they have begun keep no other user's out, and not the ResourceManager; who has no token
// is refused before the body is read.
func TestSlowBodiesOfOneUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "key"), strings.Repeat("k", 40))
	inLab(t, func(l *lab) {
		keys := testkit.Need(hookserver.OpenKeys(filepath.Join(dir, "key")))(t)
		l.start()
		l.engine.Require(&hookserver.Guard{Keys: keys})
		a, b := l.plant.submit("root.q1", 4, 0), l.plant.submit("root.q2", 4, 0)
		l.plant.with(func() { b.user = "bob" })
		l.pass(6 * time.Second)
		ends := time.Now().Add(time.Hour)
		token := func(user string, x *plantApp) string {
			return testkit.Need(hookserver.JobToken(testkit.Need(keys.User(user, ends))(t), l.plant.id(x)))(t)
		}
		h := newHooks(l.engine).handler()
		ask := func(token, method, path string, body io.Reader) int {
			w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, body)
			r.Header.Set("Authorization", "Bearer "+token)
			h.ServeHTTP(w, r)
			return w.Code
		}
		stuck, release := io.Pipe()
		var slow sync.WaitGroup
		foreign := token("ann", &plantApp{number: 99})
		for i := range 2 * hooksMax {
			slow.Go(func() {
				switch i % 3 {
				case 0:
					ask(token("ann", a), http.MethodPost, "/v1/spark/progress", stuck)
				case 1:
					ask(token("ann", a), http.MethodPost, "/v1/jobs/"+l.plant.job(a)+"/begin", stuck)
				default:
					ask(foreign, http.MethodPost, "/v1/spark/progress", stuck)
				}
			})
		}
		synctest.Wait()
		for name, got := range map[string]int{
			"bob":                 ask(token("bob", b), http.MethodGet, "/v1/jobs/"+l.plant.job(b)+"/stop", http.NoBody),
			"the ResourceManager": ask(keys.Shares(ends), http.MethodGet, "/v1/shares", http.NoBody),
		} {
			if got != http.StatusOK {
				t.Errorf("%s: %d", name, got)
			}
		}
		for _, nothing := range []string{"", "guess", keys.Shares(ends)} {
			if got := ask(nothing, http.MethodPost, "/v1/spark/progress", stuck); got != http.StatusUnauthorized {
				t.Errorf("with token %.20q: %d", nothing, got)
			}
		}
		testkit.Check(t, release.Close())
		slow.Wait()
	})
}

// After a restart of the scheduler a job's user is read again before its hooks are answered.
func TestUserIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "key"), strings.Repeat("k", 40))
	inLab(t, func(l *lab) {
		keys := testkit.Need(hookserver.OpenKeys(filepath.Join(dir, "key")))(t)
		l.start()
		a := l.plant.submit("root.q1", 40, 0)
		l.pass(6 * time.Second)
		if l.log.job(l.plant.id(a)) == nil {
			t.Fatal("the job is not committed")
		}
		own := testkit.Need(hookserver.JobToken(testkit.Need(keys.User("ann", time.Now().Add(time.Hour)))(t), l.plant.id(a)))(t)
		l.stop()
		l.plant.with(func() {
			l.plant.fault = func(_ string, w *httptest.ResponseRecorder) bool { w.Body.Reset(); return true }
		})
		l.start()
		l.engine.Require(&hookserver.Guard{Keys: keys})
		path := "/v1/jobs/" + l.plant.job(a) + "/stop"
		if got := l.shown(own, http.MethodGet, path, ""); got != http.StatusServiceUnavailable {
			t.Errorf("before the user is known: %d", got)
		}
		l.plant.with(func() { l.plant.fault = nil })
		l.pass(2 * time.Second)
		if got := l.shown(own, http.MethodGet, path, ""); got != http.StatusOK {
			t.Errorf("after a look: %d", got)
		}
	})
}
