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
		"spark.master":     func(c *Config) { c.Master = "yarn" },
		"spark.home":       func(c *Config) { c.Home = "spark" },
		"spark.plugin":     func(c *Config) { c.Plugin = "" },
		"spark.hooks":      func(c *Config) { c.Hooks = "7411" },
		"spark.hooks:":     func(c *Config) { c.Hooks = "0.0.0.0:7411" },
		"spark.stages":     func(c *Config) { c.Stages = "some" },
		"spark.kill_after": func(c *Config) { c.KillAfter = config.Duration(time.Hour) },
		"spark.driver":     func(c *Config) { c.Driver = []string{""} },
		"spark.nodes":      func(c *Config) { c.Nodes = map[string]string{"10.0.0.11": ""} },
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
	argv := cfg.command(r, "http://127.0.0.1:1", "/etc/headroom/ca.crt")
	if want := []string{"place", "n1", "--", "/opt/spark/bin/spark-submit", "--master", "spark://a:7077"}; !slices.Equal(argv[:6], want) {
		t.Errorf("begins %q", argv[:6])
	}
	if want := []string{"/w.jar", "in put", "--conf"}; !slices.Equal(argv[len(argv)-3:], want) {
		t.Errorf("ends %q", argv[len(argv)-3:])
	}
	for _, want := range []string{
		"spark.plugins=headroom.spark.HeadroomPlugin,demo.Plugin", "spark.shuffle.manager=headroom.spark.HeadroomShuffleManager", "spark.cores.max=4",
		"spark.headroom.theta=0.25", "spark.headroom.seed=-9223372036854775807", "spark.headroom.stages=all", "spark.headroom.url=http://127.0.0.1:1", "spark.headroom.ca=/etc/headroom/ca.crt",
		"spark.headroom.job=words-1", "spark.headroom.run=3", "/hook.jar,/more.jar",
	} {
		if !slices.Contains(argv, want) {
			t.Errorf("%q is missing in %q", want, argv)
		}
	}
}
