// Claims: an application of an unmodified Spark on a real YARN is a job of its queue, seen with its class, containers, nodes and tasks; its share of the cluster holds its
// executors; a drop ratio reaches its driver; its hook speaks by a token that it makes of its user's; where it is silent, its REST interface gives the same
// through the ResourceManager's proxy. All of this for an application that a user submits in client mode, and beside it for one
// that the scheduler runs in cluster mode, whose token is in its container only, and which YARN ends by the scheduler's word.
package hadoop

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/config"
	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/spark"
	"headroom/scheduler/hookserver"
	engine "headroom/scheduler/spark"
	"headroom/scheduler/sparkapp"
	"headroom/scheduler/yarn"
)

// onYARN is Spark as a client of the lab's YARN.
type onYARN struct {
	*lab
	t       *testing.T
	release spark.Release
	hook    string // headroom-spark.jar
	apps    string // headroom-spark-apps.jar
	dir     string
	group   *cluster.Group
}

func newOnYARN(t *testing.T) *onYARN {
	t.Helper()
	l := shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), fetchMost)
	defer cancel()
	release, err := spark.Fetch(ctx, spark.Version, "", nil)
	if errors.Is(err, spark.ErrUnavailable) {
		testkit.NotRun(t, err.Error())
	}
	testkit.Check(t, err)
	y := &onYARN{lab: l, t: t, release: release, hook: filepath.Join(l.bin, "headroom-spark.jar"), apps: filepath.Join(l.bin, "headroom-spark-apps.jar"), dir: t.TempDir()}
	y.group = testkit.Need(cluster.NewGroup(filepath.Join(y.dir, "logs")))(t)
	t.Cleanup(func() { testkit.Check(t, y.group.Close()) })
	// What stands on every machine is not copied to it.
	conf := fmt.Sprintf("spark.yarn.jars local:%s/jars/*\nspark.yarn.stagingDir file://%s/staging\nspark.driver.memory 512m\nspark.executor.memory 512m\nspark.executor.cores 1\n"+
		"spark.driver.extraJavaOptions %[3]s\nspark.executor.extraJavaOptions %[3]s\nspark.yarn.am.extraJavaOptions %[3]s\n"+
		"spark.yarn.maxAppAttempts 1\nspark.yarn.scheduler.heartbeat.interval-ms 500\nspark.ui.showConsoleProgress false\n",
		release.Home, l.Dir(), y.jvm())
	testkit.WriteFile(t, filepath.Join(y.dir, "spark-defaults.conf"), conf)
	return y
}

// jvm are the options of every JVM: the cluster's host names, and a cheap start.
func (y *onYARN) jvm() string {
	return "-Djdk.net.hosts.file=" + filepath.Join(y.Dir(), "hosts") + " -Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}

// environment is what spark-submit has beside this process's environment.
func (y *onYARN) environment() []string {
	return []string{"SPARK_HOME=" + y.release.Home, "SPARK_CONF_DIR=" + y.dir, "SPARK_SUBMIT_OPTS=" + y.jvm(), "HADOOP_CONF_DIR=" + filepath.Join(y.Dir(), "conf")}
}

// rounds is the application that counts in rounds, and its arguments: until stop is there.
const rounds = "headroom.apps.spark.Rounds"

func roundsUntil(stop string) []string { return []string{stop, "8", "200"} }

// submit starts spark-submit as a user does.
func (y *onYARN) submit(mode, queue, stop string, conf map[string]string) *cluster.Program {
	y.t.Helper()
	argv := []string{filepath.Join(y.release.Home, "bin", "spark-submit"), "--master", "yarn", "--deploy-mode", mode, "--queue", queue, "--num-executors", "2"}
	argv = append(argv, "--jars", y.hook,
		"--conf", "spark.plugins=headroom.spark.HeadroomPlugin", "--conf", "spark.shuffle.manager=headroom.spark.HeadroomShuffleManager")
	for key, value := range conf {
		argv = append(argv, "--conf", key+"="+value)
	}
	argv = append(append(argv, "--class", rounds, y.apps), roundsUntil(stop)...)
	return testkit.Need(y.group.Start("submit", y.environment(), argv...))(y.t)
}

// remembered are coordinators that take every job, and what they received about each.
type remembered struct {
	agreeable
	mu   sync.Mutex
	jobs map[string]*headroomv1.Job
}

func (r *remembered) CommitJob(_ context.Context, c *headroomv1.CommitJobRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[c.GetJob().GetId()] = c.GetJob()
	return nil
}

// guarded accepts the tokens of jobs; the file holds the one of this user, of which the hook makes its application's.
func (y *onYARN) guarded() (guard *hookserver.Guard, file string) {
	y.t.Helper()
	key, file := filepath.Join(y.dir, "hooks.key"), filepath.Join(y.dir, "user.json")
	testkit.Check(y.t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])+"\n"), 0o600))
	keys := testkit.Need(hookserver.OpenKeys(key))(y.t)
	token := testkit.Need(keys.User(testkit.Need(user.Current())(y.t).Username, time.Now().Add(time.Hour)))(y.t)
	testkit.Check(y.t, os.WriteFile(file, fmt.Appendf(nil, "{%q: %q}\n", "headroom.user-token", token), 0o600))
	return &hookserver.Guard{Keys: keys}, file
}

// managed is the engine that runs drivers, and what it has reported of its run.
type managed struct {
	*engine.Engine
	stop func()

	mu    sync.Mutex
	last  sparkapp.Progress
	ended engine.Ended
}

// manages starts an engine that runs drivers in cluster mode.
func (y *onYARN) manages() *managed {
	y.t.Helper()
	cfg, of := engine.Defaults(), yarn.Defaults()
	of.ResourceManager = []string{y.RM()}
	cfg.Home, cfg.Master, cfg.DeployMode, cfg.Queue, cfg.Plugin = y.release.Home, "yarn", "cluster", "root.q2", y.hook
	cfg.HadoopConf, cfg.KillAfter = filepath.Join(y.Dir(), "conf"), config.Duration(5*time.Second)
	cfg.Driver = append([]string{"/usr/bin/env"}, y.environment()...)
	logger := slog.New(slog.NewTextHandler(y.t.Output(), nil))
	dir := y.t.TempDir()
	e := testkit.Need(engine.New(cfg, dir, []string{filepath.Join(y.bin, "scheduler"), "drive"}, yarn.NewApplications(of, logger), logger))(y.t)
	m := &managed{Engine: e}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { testkit.Check(y.t, e.Run(ctx)) })
	running.Go(func() { m.listen(ctx) })
	m.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	y.t.Cleanup(m.stop)
	return m
}

func (m *managed) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-m.Events():
			m.mu.Lock()
			m.last = ev.Progress
			if ev.Kind == engine.KindEnded {
				m.ended = ev.Ended
			}
			m.mu.Unlock()
		}
	}
}

func (m *managed) now() (sparkapp.Progress, engine.Ended) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.ended
}

func TestSparkOnYARN(t *testing.T) {
	y, ctx := newOnYARN(t), within(t)
	await := func(what string, done func() bool) {
		t.Helper()
		began := time.Now()
		for !done() {
			if !pause.For(ctx, 100*time.Millisecond) {
				y.say()
				t.Fatalf("not: %s", what)
			}
		}
		t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
	}
	hooks := testkit.Need((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))(t)
	coords := &remembered{jobs: map[string]*headroomv1.Job{}}
	guard, token := y.guarded()
	users, end := y.engine(t, engineWith{"hook", coords, hooks, guard})
	drivers := y.manages()
	stop := filepath.Join(y.dir, "stop")
	run := engine.Run{
		Job: "managed", Number: 1, Slots: 2, Seed: 7, Floor: 0.3, Folder: filepath.Join(y.dir, "run"),
		Spec: engine.Spec{Application: y.apps, Main: rounds, Args: roundsUntil(stop)},
	}
	testkit.Check(t, drivers.Start(run))
	client := y.submit("client", "root.q1", stop, map[string]string{
		"spark.driver.host": "127.0.0.1", "spark.headroom.url": "http://" + hooks.Addr().String(), "spark.headroom.token-file": token,
		"spark.headroom.min-tasks": "30%", "spark.headroom.class": "high",
	})
	seen := func() *headroomv1.Job {
		all := users.List("")
		if len(all) != 1 || all[0].GetProgress() == nil {
			return &headroomv1.Job{Progress: &headroomv1.JobProgress{}}
		}
		return all[0]
	}
	await("the user's application runs on both executors", func() bool {
		p := seen().GetProgress()
		return p.GetDone() > 0 && p.GetRunning() == 2 && p.GetRunningOn()["n1"]+p.GetRunningOn()["n2"] == 2
	})
	j := seen()
	id := j.GetId()
	coords.mu.Lock()
	committed := coords.jobs[id]
	coords.mu.Unlock()
	if committed.GetQueue() != "root.q1" || committed.GetFloor() != 0.3 || committed.GetClass() != "high" {
		t.Errorf("committed %v", committed)
	}
	// Its master and each executor are four units of 256 MB.
	if p := j.GetProgress(); p.GetContainers() != 12 || p.GetTasks() != 10 {
		t.Errorf("it runs: %v", p)
	}

	await("the driver in its container tells how far it is", func() bool {
		p, _ := drivers.now()
		return p.Known && p.From == sparkapp.ByHook && p.Executors == 2 && p.Done > 0 && len(p.RunningOn) > 0
	})
	testkit.Check(t, users.Share(&headroomv1.ShareDirective{Engine: yarn.Name, Jobs: []*headroomv1.JobShare{{Id: id, Containers: 8}}}))
	testkit.Check(t, users.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.5, Seed: 9}))
	testkit.Check(t, drivers.Share([]engine.Share{{Job: "managed", Cores: 1}}))
	testkit.Check(t, drivers.Deflate("managed", 0.5, 3))
	await("the user's has dropped tasks, and fewer containers", func() bool {
		now := seen().GetProgress()
		return now.GetDropped() > 0 && now.GetContainers() == 8 && now.GetRunning() <= 1
	})
	await("the other too", func() bool {
		now, _ := drivers.now()
		return len(now.Shuffles) > 0 && now.Shuffles[len(now.Shuffles)-1].Theta == 0.5 && now.Executors == 1
	})

	// The next scheduler serves its hooks elsewhere, and the drivers go on reporting to the first.
	end()
	drivers.stop()
	users, _ = y.engine(t, engineWith{shares: "none", coords: coords})
	drivers = y.manages()
	if running, err := drivers.Adopt(run); err != nil || !running {
		t.Fatalf("running %v, %v", running, err)
	}
	before := seen().GetProgress().GetDone()
	await("the user's is known by REST", func() bool { return seen().GetProgress().GetDone() > before })
	await("the other too", func() bool {
		now, _ := drivers.now()
		return now.Known && now.From == sparkapp.ByREST && now.Done > 0 && now.Executors == 1
	})
	drivers.Kill("managed", 1)
	testkit.Check(t, os.WriteFile(stop, nil, 0o644))
	await("YARN has ended the run", func() bool {
		_, ended := drivers.now()
		return ended.Outcome != ""
	})
	if _, ended := drivers.now(); !ended.Killed {
		t.Errorf("%+v", ended)
	}
	testkit.Check(t, client.Wait(t.Context()))
}

// say shows the ends of the logs.
func (y *onYARN) say() {
	for _, pattern := range []string{filepath.Join(y.dir, "logs", "*"), filepath.Join(y.dir, "run", "std*"), filepath.Join(y.Dir(), "n?", "log", "*", "*", "std*")} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			y.t.Logf("%s: %v\n%s", path, err, text[max(0, len(text)-3000):])
		}
	}
}
