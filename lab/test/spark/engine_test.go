// Claims, with the engine in this process and a real Spark: it reads from the Master's page how many cores there are; two
// jobs at once hold as many executors as their shares allow, moved from one to the other while both run; with dynamic allocation
// a share bounds what Spark requests, and gives it back; a ratio that rises reaches a driver that runs, from its next
// action on; nodes are known as soon as executors are; where no hook is heard the driver's REST interface reports the progress.
package spark

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/config"
	"headroom/internal/testkit"
	"headroom/jobs/speculation"
	"headroom/lab/spark"
	engine "headroom/scheduler/spark"
	"headroom/scheduler/sparkapp"
)

// rounds is an engine of its own, and what it has reported of its runs.
type rounds struct {
	*engine.Engine
	t    *testing.T
	stop func()

	mu    sync.Mutex
	last  map[string]sparkapp.Progress
	ended map[string]engine.Ended
}

// newRounds starts an engine for a cluster; dir is its folder.
func newRounds(t *testing.T, l *lab, c *spark.Cluster, dir string) *rounds {
	t.Helper()
	cfg := engine.Defaults()
	cfg.Home, cfg.Master, cfg.Plugin, cfg.Web, cfg.Nodes = c.Release().Home, c.Master(), l.hook, []string{c.Web()}, c.Hosts()
	cfg.Driver, cfg.KillAfter = []string{"/usr/bin/env", "SPARK_CONF_DIR=" + c.ConfDir()}, config.Duration(5*time.Second)
	e := testkit.Need(engine.New(cfg, dir, []string{filepath.Join(l.bin, "scheduler"), "drive"}, nil, slog.New(slog.NewTextHandler(testLog{t}, nil))))(t)
	e.Speculate(speculation.Ours)
	r := &rounds{Engine: e, t: t, last: map[string]sparkapp.Progress{}, ended: map[string]engine.Ended{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { r.listen(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

// testLog writes to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (r *rounds) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-r.Events():
			r.mu.Lock()
			r.last[ev.Job] = ev.Progress
			if ev.Kind == engine.KindEnded {
				r.ended[ev.Job] = ev.Ended
			}
			r.mu.Unlock()
		}
	}
}

// run is a job that counts in rounds until the file is there.
func (r *rounds) run(dir, job, file string, conf map[string]string) engine.Run {
	r.t.Helper()
	all := map[string]string{"spark.executor.cores": "1", "spark.ui.enabled": "true"}
	maps.Copy(all, conf)
	script := testkit.Need(filepath.Abs(filepath.Join("testdata", "rounds.py")))(r.t)
	return engine.Run{
		Job: job, Number: 1, Slots: 2, Seed: 7, Floor: 0.3, Folder: filepath.Join(dir, job),
		Spec: engine.Spec{Application: script, Args: []string{file, "8", "0.2"}, Conf: all},
	}
}

// await waits until a job's progress is as expected.
func (r *rounds) await(ctx context.Context, what, job string, is func(sparkapp.Progress) bool) sparkapp.Progress {
	r.t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		p, over := r.last[job], r.ended[job]
		r.mu.Unlock()
		switch {
		case is(p):
			r.t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
			return p
		case over.Outcome != "":
			r.t.Fatalf("%s: it ended: %+v", what, over)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("%s: %+v", what, p)
		}
	}
}

// ends kills jobs and waits for their ends.
func (r *rounds) ends(ctx context.Context, jobs ...string) {
	r.t.Helper()
	for _, job := range jobs {
		r.Kill(job, 1)
	}
	for _, job := range jobs {
		testkit.Eventually(r.t, patience, job+" ends", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.ended[job].Outcome != "" || ctx.Err() != nil
		})
	}
}

func TestExecutorsFollowShares(t *testing.T) {
	l, ctx := shared(t), within(t)
	dir := t.TempDir()
	r := newRounds(t, l, l.Cluster, dir)
	testkit.Eventually(t, patience, "the Master says how many cores there are", func() bool {
		n, _ := r.Capacity()
		return n == len(nodeNames)
	})
	file := filepath.Join(dir, "stop")
	first, second := r.run(dir, "first", file, nil), r.run(dir, "second", file, nil)
	testkit.Check(t, r.Start(first))
	r.await(ctx, "the first has both nodes", "first", func(p sparkapp.Progress) bool {
		return p.Cores == 2 && p.RunningOn["n1"] > 0 && p.RunningOn["n2"] > 0
	})
	testkit.Check(t, r.Start(second))
	r.await(ctx, "the second waits for executors", "second", func(p sparkapp.Progress) bool { return p.Known && p.Executors == 0 && len(p.RunningOn) == 0 })
	if n, why := r.Capacity(); n != 2 {
		t.Errorf("%d cores, %s: what our jobs hold is not others'", n, why)
	}
	testkit.Check(t, r.Share([]engine.Share{{Job: "second", Cores: 1}, {Job: "first", Cores: 1}}))
	r.await(ctx, "the second has its share", "second", func(p sparkapp.Progress) bool { return p.Executors == 1 && p.Done > 0 })
	r.await(ctx, "the first keeps its share", "first", func(p sparkapp.Progress) bool { return p.Executors == 1 && p.Surplus == 0 })

	testkit.Check(t, r.Deflate("first", 0.5, 3))
	p := r.await(ctx, "the ratio has reached the first", "first", func(p sparkapp.Progress) bool {
		return len(p.Shuffles) > 0 && p.Shuffles[len(p.Shuffles)-1].Theta == 0.5
	})
	if s := p.Shuffles[len(p.Shuffles)-1]; s.Kept != kept(s.Total, 0.5) || p.Shuffles[0].Kept != p.Shuffles[0].Total {
		t.Errorf("the last round kept %d of %d, the first %d of %d", s.Kept, s.Total, p.Shuffles[0].Kept, p.Shuffles[0].Total)
	}

	// The next scheduler serves its hooks elsewhere, and the drivers go on reporting to the first.
	r.stop()
	next := newRounds(t, l, l.Cluster, t.TempDir())
	for _, run := range []engine.Run{first, second} {
		if running, err := next.Adopt(run); err != nil || !running {
			t.Fatalf("%s: running %v, %v", run.Job, running, err)
		}
	}
	p = next.await(ctx, "the first is known by REST", "first", func(p sparkapp.Progress) bool { return p.Known })
	if p.From != sparkapp.ByREST || p.Executors != 1 || p.Cores != 1 || len(p.RunningOn) != 1 || p.Tasks == 0 {
		t.Errorf("%+v", p)
	}
	next.await(ctx, "its rounds go on", "first", func(now sparkapp.Progress) bool { return now.Done > p.Done })
	next.ends(ctx, "first", "second")
	bounded(ctx, t, next)
}

// bounded runs a job with dynamic allocation, and bounds it.
func bounded(ctx context.Context, t *testing.T, r *rounds) {
	t.Helper()
	dir := t.TempDir()
	run := r.run(dir, "dynamic", filepath.Join(dir, "stop"), map[string]string{
		"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true", "spark.decommission.enabled": "true",
	})
	testkit.Check(t, r.Start(run))
	r.await(ctx, "dynamic allocation takes all", "dynamic", func(p sparkapp.Progress) bool { return p.Executors == 2 })
	testkit.Check(t, r.Share([]engine.Share{{Job: "dynamic", Cores: 1}}))
	toShare := func(p sparkapp.Progress) bool { return p.Executors == 1 }
	p := r.await(ctx, "it goes down to its share", "dynamic", toShare)
	r.await(ctx, "its rounds go on", "dynamic", func(now sparkapp.Progress) bool { return now.Done >= p.Done+20 })
	r.await(ctx, "what Spark has asked for anew is taken back", "dynamic", toShare)
	testkit.Check(t, r.Share([]engine.Share{{Job: "dynamic", Cores: 2}}))
	r.await(ctx, "and up again", "dynamic", func(p sparkapp.Progress) bool { return p.Executors == 2 })
	r.ends(ctx, "dynamic")
}
