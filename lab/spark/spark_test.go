// Claims: the releases are those that the hooks are built for; what cannot be a cluster
// or a job is refused before anything starts; Spark's own words are understood.
package spark

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/scheduler"
)

func TestVersionsAreTheHooks(t *testing.T) {
	t.Parallel()
	text := testkit.Need(os.ReadFile(filepath.Join("..", "..", "hooks", "versions.properties")))(t)
	for key, version := range map[string]string{"spark.version": Version, "spark4.version": Version4, "spark.newest.version": Newest} {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + `=(.*)$`).FindSubmatch(text)
		if m == nil || string(m[1]) != version {
			t.Errorf("%s is %q, here %s", key, m, version)
		}
	}
}

// fakeRelease is a folder as pip leaves it, of one empty program.
func fakeRelease(t *testing.T, dir string) {
	t.Helper()
	bin := filepath.Join(dir, "lib", "python3.11", "site-packages", "pyspark", "bin")
	testkit.Check(t, os.MkdirAll(bin, 0o755))
	testkit.Check(t, os.WriteFile(filepath.Join(bin, "spark-submit"), nil, 0o755))
}

func TestFetchTakesWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Fetch(t.Context(), Version, dir, nil); !errors.Is(err, errConfig) {
		t.Errorf("an empty folder: %v", err)
	}
	fakeRelease(t, dir)
	r, err := Fetch(t.Context(), Version, dir, func(string) { t.Error("it fetches") })
	if err != nil || r.Version != Version || r.Home != filepath.Join(dir, "lib", "python3.11", "site-packages", "pyspark") || r.Python != filepath.Join(dir, "bin", "python3") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFetchWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Fetch(t.Context(), Version, filepath.Join(t.TempDir(), "spark"), nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestBadFolderIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := Start(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "a:b"), Release: Release{Version: Version, Home: "/spark"}, Nodes: Nodes(1)}); !errors.Is(err, errConfig) {
		t.Errorf("a colon: %v", err)
	}
}

func TestSubmitWithoutHookDropsNothing(t *testing.T) {
	t.Parallel()
	c := &Cluster{config: Config{Release: Release{Home: "/spark"}}, master: "spark://m:1"}
	if _, err := c.Submit(Job{Name: "words", Application: "a.jar", Drop: Drop{Theta: 0.2}}); !errors.Is(err, errConfig) {
		t.Errorf("%v", err)
	}
	argv := c.submit(Job{Application: "a.jar", Main: "A", Args: []string{"x"}}, "words-1")
	if want := []string{"/spark/bin/spark-submit", "--master", "spark://m:1", "--class", "A", "--conf", "spark.app.name=words-1", "a.jar", "x"}; !slices.Equal(argv, want) {
		t.Errorf("%q", argv)
	}
}

func TestReadEventLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	text := `{"Event":"SparkListenerApplicationStart","App Name":"words-1","App ID":"app-7","Timestamp":1}
{"Event":"SparkListenerJobStart","Job ID":0,"Submission Time":1000}
{"Event":"SparkListenerTaskEnd","Stage ID":4,"Task End Reason":{"Reason":"Success"},"Task Info":{"Launch Time":1200,"Finish Time":2900},"Task Metrics":{"Executor Run Time":1500,"Input Metrics":{"Bytes Read":70}}}
{"Event":"SparkListenerTaskEnd","Stage ID":0,"Task End Reason":{"Reason":"ExecutorLostFailure"}}
{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":0,"Stage Attempt ID":1,"Stage Name":"map","Number of Tasks":32}}
{"Event":"SparkListenerJobEnd","Job ID":0,"Completion Time":3500}
{"Event":"SparkListenerTaskEnd","Stage`
	testkit.WriteFile(t, path, text)
	log, name, err := readEventLog(path)
	want := EventLog{Stages: []StageRecord{{0, 1, 32, "map"}}, InputBytes: 70, Attempts: 2, Succeeded: 1, TaskSeconds: 1.5, Jobs: 2500 * time.Millisecond, Tasks: []TaskRecord{{Stage: 4, Begun: time.UnixMilli(1200), Ended: time.UnixMilli(2900)}}}
	if err != nil || name != "words-1" || !slices.Equal(log.Stages, want.Stages) || log.InputBytes != 70 || log.Attempts != 2 || log.Succeeded != 1 ||
		log.TaskSeconds != want.TaskSeconds || log.Jobs != want.Jobs || !slices.Equal(log.Tasks, want.Tasks) {
		t.Errorf("%+v %q, %v", log, name, err)
	}
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	out := "noise\nRESULT {\"app\":\"words\",\"theta\":0.2,\"kept\":40,\"total\":50,\"seconds\":2.5,\"words\":[{\"word\":\"da\",\"count\":10.5,\"count_low\":9,\"count_high\":12},{\"word\":\"du\",\"count\":1}]}\n"
	a, err := ReadAnswer(out)
	if err != nil || a.Theta != 0.2 || a.Kept != 40 || a.Total != 50 || a.Seconds != 2.5 || a.Counts()["da"] != 10.5 || *a.Words[0].Low != 9 || a.Words[1].High != nil {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := ReadAnswer("nothing"); !errors.Is(err, errJob) {
		t.Errorf("%v", err)
	}
}

// The scheduler takes the section of a cluster.
func TestSectionIsTaken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, "dev: true\nlisten: \"127.0.0.1:0\"\ndir: /tmp/s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\n"+
		Section{
			Home: "/opt/spark", Master: "spark://127.1.2.254:7077", Web: "http://127.1.2.254:8080", Plugin: "/opt/hook.jar", ConfDir: "/tmp/con f", Cores: 1,
			Hosts: map[string]string{"127.1.2.2": "n2", "127.1.2.1": "n1"},
		}.String())
	c := testkit.Need(scheduler.LoadConfig(path))(t).Spark
	if !c.On() || c.Nodes["127.1.2.1"] != "n1" || len(c.Nodes) != 2 || !slices.Contains(c.Driver, "SPARK_CONF_DIR=/tmp/con f") || c.ExecutorCores != 1 || !slices.Equal(c.Web, []string{"http://127.1.2.254:8080"}) {
		t.Errorf("%+v", c)
	}
}
