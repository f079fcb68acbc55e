// Claims, with a plant in YARN's place: a driver in a container has the end that YARN tells, whatever becomes of
// spark-submit; a kill ends the application, also one that comes up late; a scheduler that was killed finds it; while YARN
// says nothing nothing is concluded; the run's token is in a file of its own until the run is over.
package spark

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// fakeYARN is YARN as the engine sees it.
type fakeYARN struct {
	mu   sync.Mutex
	app  *Application
	away bool
	// ignores: it acknowledges kills and does not do them.
	ignores bool
	tag     string
	kills   int
}

var errAway = errors.New("no route to the ResourceManager")

func (y *fakeYARN) Find(_ context.Context, tag string) (Application, bool, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.tag = tag
	switch {
	case y.away:
		return Application{}, false, errAway
	case y.app == nil:
		return Application{}, false, nil
	}
	return *y.app, true, nil
}

func (y *fakeYARN) Kill(context.Context, string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.kills++
	if y.app != nil && !y.ignores {
		y.app.Over, y.app.Words = true, "KILLED"
	}
	return nil
}

func (y *fakeYARN) Cores(context.Context, string) (all, others int, err error) { return 16, 6, nil }

func (y *fakeYARN) Driver(context.Context, string, string) ([]byte, error) { return nil, errAway }

func (y *fakeYARN) set(change func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	change()
}

func (y *fakeYARN) asked() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.kills
}

// onYARN is a lab whose drivers run in containers.
func onYARN(t *testing.T, dir string, y *fakeYARN) *lab {
	t.Helper()
	cfg := home(t, dir)
	cfg.Master, cfg.DeployMode, cfg.HadoopConf = "yarn", deployCluster, dir
	testkit.WriteFile(t, filepath.Join(dir, "yarn-site.xml"), "<configuration/>")
	e := testkit.Need(New(cfg, dir, supervisor(), y, slog.New(slog.DiscardHandler)))(t)
	return runLab(t, dir, e)
}

func TestAnApplicationsEndIsYARNs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exit  string
		app   *Application
		ended Ended
	}{
		"it succeeds":                {"fine", &Application{ID: "application_1_0001", Over: true, OK: true, Words: "FINISHED"}, Ended{OK: true}},
		"spark-submit lost its link": {"exit", &Application{ID: "application_1_0001", Over: true, OK: true, Words: "FINISHED"}, Ended{OK: true, Outcome: "FINISHED"}},
		"it fails":                   {"exit", &Application{ID: "application_1_0001", Over: true, Words: "FAILED: no luck"}, Ended{Outcome: "application_1_0001: FAILED: no luck"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := onYARN(t, t.TempDir(), &fakeYARN{app: c.app})
			r := runOf(l.dir, "words", 1, c.exit, "3")
			l.start(r)
			ev := l.ended()
			if ev.Ended.OK != c.ended.OK || c.ended.Outcome != "" && ev.Ended.Outcome != c.ended.Outcome {
				t.Errorf("%+v", ev.Ended)
			}
			if _, err := os.Stat(filepath.Join(r.Folder, tokenFile)); err == nil {
				t.Error("its token is left")
			}
		})
	}
}

func TestNothingWasSubmitted(t *testing.T) {
	t.Parallel()
	y := &fakeYARN{away: true}
	l := onYARN(t, t.TempDir(), y)
	l.start(runOf(l.dir, "words", 1, "exit", "3"))
	l.until("YARN is not asked", func() bool { y.mu.Lock(); defer y.mu.Unlock(); return y.tag != "" })
	select {
	case ev := <-l.engine.Events():
		t.Errorf("ended while YARN said nothing: %+v", ev)
	case <-time.After(2 * followEvery):
	}
	y.set(func() { y.away = false })
	if ev := l.ended(); ev.Ended.OK || !strings.Contains(ev.Ended.Outcome, "exit status 3") {
		t.Errorf("%+v", ev.Ended)
	}
	if !strings.HasPrefix(y.tag, tagPrefix) || y.tag != strings.ToLower(y.tag) {
		t.Errorf("its tag is %q", y.tag)
	}
}

func TestAKillEndsTheApplication(t *testing.T) {
	t.Parallel()
	y := &fakeYARN{}
	l := onYARN(t, t.TempDir(), y)
	r := runOf(l.dir, "words", 1, "wait", filepath.Join(l.dir, "go"))
	l.start(r)
	l.ready(r)
	if token := testkit.Need(os.ReadFile(filepath.Join(r.Folder, tokenFile)))(t); strings.TrimSpace(string(token)) != l.token(r) {
		t.Error("its token is not in its file")
	}
	l.engine.Kill("words", 1) // nothing is submitted yet: spark-submit is ended
	l.until("spark-submit runs on", func() bool {
		_, err := os.Stat(filepath.Join(r.Folder, exitFile))
		return err == nil
	})
	y.set(func() { y.app = &Application{ID: "application_1_0001", Words: "ACCEPTED"} }) // and yet it comes up
	if ev := l.ended(); !ev.Ended.Killed || y.asked() == 0 {
		t.Errorf("%+v, %d kills", ev.Ended, y.asked())
	}
}

// YARN that acknowledges and does not do it is asked again until it does.
func TestAKillIsRepeated(t *testing.T) {
	t.Parallel()
	y := &fakeYARN{app: &Application{ID: "application_1_0001", Words: "RUNNING"}, ignores: true}
	l := onYARN(t, t.TempDir(), y)
	r := runOf(l.dir, "words", 1, "wait", filepath.Join(l.dir, "go"))
	l.start(r)
	l.ready(r)
	l.engine.Kill("words", 1)
	l.until("YARN is asked once only", func() bool { return y.asked() >= 2 })
	y.set(func() { y.ignores = false })
	l.until("YARN is not asked again", func() bool { y.mu.Lock(); defer y.mu.Unlock(); return y.app.Over })
	l.release() // spark-submit sees the end
	if ev := l.ended(); !ev.Ended.OK && !ev.Ended.Killed {
		t.Errorf("%+v", ev.Ended)
	}
}

func TestTheNextSchedulerFollowsTheApplication(t *testing.T) {
	t.Parallel()
	y := &fakeYARN{app: &Application{ID: "application_1_0001", Words: "RUNNING"}}
	dir := t.TempDir()
	first := onYARN(t, dir, y)
	r := runOf(dir, "words", 1, "signal")
	first.start(r)
	first.until("spark-submit lives", func() bool { _, err := os.Stat(filepath.Join(r.Folder, exitFile)); return err == nil })
	first.stop()
	second := onYARN(t, dir, y)
	if running, err := second.engine.Adopt(r); err != nil || !running {
		t.Fatalf("running %v, %v", running, err)
	}
	y.set(func() { y.app.Over, y.app.OK, y.app.Words = true, true, "FINISHED" })
	if ev := second.ended(); !ev.Ended.OK {
		t.Errorf("%+v", ev.Ended)
	}
}

func TestCoresOfYARN(t *testing.T) {
	t.Parallel()
	e := still(t, func(c *Config) {
		c.Master, c.HadoopConf = "yarn", c.Home
		testkit.WriteFile(t, filepath.Join(c.Home, "yarn-site.xml"), "<configuration/>")
	})
	if n, err := e.ask(t.Context()); err != nil || n != 10 {
		t.Errorf("%d, %v", n, err)
	}
}
