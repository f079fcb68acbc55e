// Claims: a configuration or a job that cannot work is refused with the key and the way
// out; the driver's command line has everything that the hook needs, and what a job
// brings along.
package spark

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/config"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	good := Defaults()
	if err := good.Check(); err != nil {
		t.Errorf("no Spark: %v", err)
	}
	good.Home, good.Master, good.Plugin = "/opt/spark", "spark://a:7077,b:7077", "/usr/share/java/headroom-spark.jar"
	good.Nodes = map[string]string{"10.0.0.11": "n01"}
	if err := good.Check(); err != nil {
		t.Errorf("good: %v", err)
	}
	for key, change := range map[string]func(*Config){
		"spark.master":             func(c *Config) { c.Master = "mesos://a:1" },
		"spark.hadoop_conf":        func(c *Config) { c.Master = "yarn" },
		"spark.deploy_mode":        func(c *Config) { c.DeployMode = "cluster" },
		"spark.deploy_mode \"both": func(c *Config) { c.DeployMode = "both" },
		"spark.cores":              func(c *Config) { c.Cores = -1 },
		"spark.executor_cores":     func(c *Config) { c.ExecutorCores = -1 },
		"spark.queue":              func(c *Config) { c.Queue = "two words" },
		"spark.web":                func(c *Config) { c.Web = []string{"a:8080"} },
		"spark.web is for":         func(c *Config) { c.Master, c.HadoopConf, c.Web = "yarn", "/etc/hadoop/conf", []string{"http://a:8080"} },
		"spark.home":               func(c *Config) { c.Home = "spark" },
		"spark.plugin":             func(c *Config) { c.Plugin = "" },
		"spark.hooks":              func(c *Config) { c.Hooks = "7411" },
		"spark.hooks:":             func(c *Config) { c.Hooks = "0.0.0.0:7411" },
		"spark.stages":             func(c *Config) { c.Stages = "some" },
		"spark.kill_after":         func(c *Config) { c.KillAfter = config.Duration(time.Hour) },
		"spark.driver":             func(c *Config) { c.Driver = []string{""} },
		"spark.nodes":              func(c *Config) { c.Nodes = map[string]string{"10.0.0.11": ""} },
	} {
		c := good
		change(&c)
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Message, key) || err.Hint == "" || err.Exit != 2 {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := good.CheckPlaces(); err == nil || !strings.Contains(err.Message, "/opt/spark/bin/spark-submit") {
		t.Errorf("a home that is not there: %v", err)
	}
	real := home(t, t.TempDir())
	if err := real.CheckPlaces(); err != nil {
		t.Error(err)
	}
	real.Plugin = filepath.Dir(real.Plugin)
	if err := real.CheckPlaces(); err == nil {
		t.Error("a folder is no jar")
	}
}

func TestSpecCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []Spec{
		{Application: "words.jar", Main: "demo.Words", Conf: map[string]string{"spark.executor.memory": "1g", "spark.headroom.stages": "all"}, Jars: []string{"a.jar"}},
		{Application: "words.py", Args: []string{"--class", "x"}},
	} {
		if p := good.Check(); p != nil {
			t.Errorf("%+v: %+v", good, p)
		}
	}
	for key, bad := range map[string]Spec{
		"application": {Application: "words"},
		"main":        {Application: "words.py", Main: "x"},
		"args":        {Application: "words.jar", Args: []string{"a\x00b"}},
		"jars":        {Application: "words.jar", Jars: []string{"a.jar,b.jar"}},
		"conf":        {Application: "words.jar", Conf: map[string]string{"spark.headroom.theta": "0.9"}},
	} {
		if p := bad.Check(); p == nil || p.Key != key || p.Hint == "" {
			t.Errorf("%s: %+v", key, p)
		}
	}
	for _, conf := range []map[string]string{{"master": "x"}, {"spark.cores.max": "9"}, {"spark.headroom.stages": "some"}, {"spark.a=b": "c"}} {
		if p := (Spec{Application: "a.jar", Conf: conf}).Check(); p == nil || p.Key != "conf" {
			t.Errorf("%v: %+v", conf, p)
		}
	}
	got := Spec{Application: "a.jar", Jars: []string{"b.jar", "/c.jar"}}.Absolute("/jobs")
	if got.Application != "/jobs/a.jar" || !slices.Equal(got.Jars, []string{"/jobs/b.jar", "/c.jar"}) {
		t.Errorf("%+v", got)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Home, cfg.Master, cfg.Plugin, cfg.Driver = "/opt/spark", "spark://a:7077", "/hook.jar", []string{"place", "n1", "--"}
	r := Run{Job: "words-1", Number: 3, Theta: 0.25, Seed: 1<<63 + 1, Slots: 4, Spec: Spec{
		Application: "/w.jar", Main: "demo.Words", Args: []string{"in put", "--conf"}, Jars: []string{"/more.jar"},
		Conf: map[string]string{"spark.plugins": "demo.Plugin", "spark.headroom.stages": "all"},
	}}
	argv := cfg.command(&execution{run: r, ui: 4711}, "http://127.0.0.1:1", "/etc/headroom/ca.crt")
	if want := []string{"place", "n1", "--", "/opt/spark/bin/spark-submit", "--master", "spark://a:7077"}; !slices.Equal(argv[:6], want) {
		t.Errorf("begins %q", argv[:6])
	}
	if want := []string{"/w.jar", "in put", "--conf"}; !slices.Equal(argv[len(argv)-3:], want) {
		t.Errorf("ends %q", argv[len(argv)-3:])
	}
	for _, want := range []string{
		"spark.plugins=headroom.spark.HeadroomPlugin,demo.Plugin", "spark.shuffle.manager=headroom.spark.HeadroomShuffleManager", "spark.cores.max=4",
		"spark.headroom.theta=0.25", "spark.headroom.seed=-9223372036854775807", "spark.headroom.stages=all", "spark.headroom.url=http://127.0.0.1:1", "spark.headroom.ca=/etc/headroom/ca.crt",
		"spark.headroom.job=words-1", "spark.headroom.run=3", "spark.ui.port=4711", "/hook.jar,/more.jar",
	} {
		if !slices.Contains(argv, want) {
			t.Errorf("%q is missing in %q", want, argv)
		}
	}
}

func TestCommandOnYARN(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Home, cfg.Master, cfg.Plugin, cfg.HadoopConf, cfg.DeployMode, cfg.Queue, cfg.ExecutorCores = "/opt/spark", "yarn", "/hook.jar", "/etc/hadoop/conf", deployCluster, "root.spark", 2
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	x := &execution{tag: tagPrefix + "abc", run: Run{Job: "words-1", Number: 1, Slots: 7, Folder: "/jobs/words-1/run-1", Spec: Spec{
		Application: "/w.jar", Conf: map[string]string{"spark.yarn.tags": "mine"},
	}}}
	argv := cfg.command(x, "https://10.0.0.1:1", "/etc/headroom/ca.crt")
	for _, want := range []string{
		"yarn", "cluster", "spark.yarn.queue=root.spark", "spark.yarn.tags=headroom-run-abc,mine", "spark.yarn.maxAppAttempts=1", "spark.executor.instances=3", "spark.executor.cores=2",
		"spark.headroom.token-file=headroom.token", "spark.headroom.ca=headroom-ca.crt",
		"spark.yarn.dist.files=file:///jobs/words-1/run-1/token#headroom.token,file:///etc/headroom/ca.crt#headroom-ca.crt",
	} {
		if !slices.Contains(argv, want) {
			t.Errorf("%q is missing in %q", want, argv)
		}
	}
	x.run.Spec.Conf = map[string]string{"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "9", "spark.executor.cores": "1"}
	argv = cfg.command(x, "https://10.0.0.1:1", "")
	for _, want := range []string{"spark.dynamicAllocation.maxExecutors=7", "spark.dynamicAllocation.minExecutors=7"} {
		if !slices.Contains(argv, want) {
			t.Errorf("%q is missing in %q", want, argv)
		}
	}
	for _, word := range argv {
		if strings.HasPrefix(word, "spark.executor.instances") || strings.HasPrefix(word, "spark.dynamicAllocation.initialExecutors") {
			t.Errorf("%q with dynamic allocation", word)
		}
	}
}
