package scheduler

// scheduler.yaml is understood or refused with a way out; the example is valid;
// the scheduler's folder belongs to one process at a time.

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/scheduler/jobfile"
)

// exampleClasses is the list of classes in the example.
func exampleClasses() string {
	from := strings.Index(ExampleConfig, "classes:   ")
	to := strings.Index(ExampleConfig, "  - name: low\n") + len("  - name: low")
	return ExampleConfig[from:to]
}

// A configuration that still has the allocation file written is told the way to move, whichever of its keys is met first.
func TestConfigMovesFromTheAllocationFile(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"shares: file", "allocation_file: /etc/hadoop/conf/fair-scheduler.xml", "refresh: [yarn, rmadmin, -refreshQueues]"} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		text := strings.Replace(ExampleConfig, "  shares: hook ", "  "+keys+"\n  #", 1)
		text = strings.Replace(text, "  resourcemanager: [] ", "  resourcemanager: [http://rm1:8088] ", 1)
		testkit.WriteFile(t, path, text)
		_, err := LoadConfig(path)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Hint, "LiveFairScheduler") || !strings.Contains(e.Hint, "shares: capacity") {
			t.Errorf("%s: %v, want the way to move", keys, err)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	classes := exampleClasses()
	for name, c := range map[string]struct{ from, to, want string }{
		"no listen":       {"listen: 127.0.0.1:7410", "", "listen is missing"},
		"odd listen":      {"listen: 127.0.0.1:7410", "listen: here", `"here" is not an address`},
		"no dir":          {"dir: /var/lib/headroom/scheduler", "", "dir is missing"},
		"no coordinators": {`coordinators: ["127.0.0.1:7400"]`, "", "coordinators is missing"},
		"odd coordinator": {`["127.0.0.1:7400"]`, "[nowhere]", `"nowhere" is not an address`},
		"no classes":      {classes, "", "classes is missing"},
		"repeated class":  {classes, "classes: [high, high]", `class "high" appears twice`},
		"odd class":       {classes, `classes: ["a b"]`, `class name "a b" is invalid`},
		"unknown level":   {"log_level: info", "log_level: loud", `log_level "loud" is unknown`},
		"unknown key":     {"log_level: info", "loglevel: info", `unknown key "loglevel"`},
		"discipline":      {"discipline: shared", "discipline: fifo", `discipline "fifo" is unknown`},
		"width":           {"width: 1", "width: 0", "width is 0; it must be from 1 to 1000"},
		"theta":           {"theta: 0%", "theta: 120%", `theta "120%" of class high must be from 0 to 1`},
		"speculation":     {"policy: ours ", "policy: fast ", `speculation.policy "fast" is unknown`},
		"samples":         {"xi: 15%", "xi: 150%", `speculation.xi "150%" must be from 0 to 1 (100%)`},
		"no name":         {"  - name: low", "  - theta: 10%", "a class has no name"},
		"empty name":      {classes, `classes: [high, ""]`, "a class has no name"},
		"timer":           {`sprint_after: ""`, "sprint_after: 65", `sprint_after of class high: "65": a duration needs a unit`},
		"past deadline":   {`deadline: ""`, "deadline: 0s", "deadline of class high is 0"},
		"auto alone":      {"theta: 0%", "theta: auto", "theta auto of class high without a profile"},
		"auto timer":      {`sprint_after: ""`, "sprint_after: auto", "sprint_after auto of class high without sprint.speed_up"},
		"slow sprint":     {"speed_up: 0 ", "speed_up: 0.5 ", "sprint.speed_up is 0.5; it must be from 1 to 100"},
		"unknown below":   {"theta: 0%", "ratio: 0%", `unknown key "ratio"`},
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		testkit.WriteFile(t, path, strings.Replace(ExampleConfig, c.from, c.to, 1))
		_, err := LoadConfig(path)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || e.Hint == "" || !strings.Contains(e.Message, c.want) || !strings.HasPrefix(e.Message, path) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// What is wrong with a class is told with its place in the file.
func TestClassErrorsHaveAPlace(t *testing.T) {
	t.Parallel()
	text := strings.Replace(ExampleConfig, "  - name: low", "  - {name: low, theta: 2}", 1)
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, text)
	line := strings.Count(text[:strings.Index(text, "theta: 2")], "\n") + 1
	_, err := LoadConfig(path)
	if want := fmt.Sprintf("%s:%d:24: theta", path, line); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is to be found needs something to be found for.
func TestAutoNeedsABound(t *testing.T) {
	t.Parallel()
	c := Config{Discipline: "da", Profiles: "/p", Classes: []Class{{Name: "low", Theta: auto, Profile: "words", MaxError: "10%"}}}
	if err := c.checkClasses(jobfile.NewSource("f", nil)); err == nil || !strings.Contains(err.Error(), "needs a class with a latency bound") {
		t.Errorf("without a bound: %v", err)
	}
	c.Classes[0].Latency.P95 = "100s"
	if err := c.checkClasses(jobfile.NewSource("f", nil)); err != nil {
		t.Error(err)
	}
}

// Classes are names, mappings, or both; what a mapping says becomes the class's operating point.
func TestClasses(t *testing.T) {
	t.Parallel()
	text := strings.Replace(ExampleConfig, exampleClasses(), `classes: [high, {name: mid, theta: 0.1, sprint_after: 0s}, {name: low, theta: 20%, deadline: 10m}]`, 1)
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, strings.Replace(text, "discipline: shared", "discipline: dias", 1))
	c := testkit.Need(LoadConfig(path))(t)
	want := buffers.Settings{Discipline: buffers.DIAS, Width: 1, Classes: []buffers.Class{
		{Name: "high"}, {Name: "mid", Theta: 0.1, Sprint: true}, {Name: "low", Theta: 0.2},
	}}
	if d := cmp.Diff(want, c.settings()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := c.deadlineFor(&jobfile.File{Class: "low"}); d != 10*time.Minute {
		t.Errorf("deadline of low is %v", d)
	}
	if d := c.deadlineFor(&jobfile.File{Class: "low", Deadline: "30s"}); d != 30*time.Second {
		t.Errorf("the job's own deadline gives %v", d)
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	first, release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := claim(dir); err == nil || !strings.Contains(err.Error(), "another scheduler") {
		t.Errorf("claimed twice: %v", err)
	}
	testkit.Check(t, release())
	second, release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release() //nolint:errcheck // the test is over
	if second.ID != first.ID || second.Run != first.Run+1 {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

// Drivers are other people's programs: they do not run as a scheduler that has a key.
func TestDriversAreNotTheScheduler(t *testing.T) {
	t.Parallel()
	const spark = "spark: {home: /opt/spark, master: \"spark://127.0.0.1:7077\", plugin: /opt/hook.jar, driver: %s}\n"
	for name, c := range map[string]struct {
		driver, dev string
		refused     bool
	}{
		"as the scheduler": {"[]", "false", true},
		"on some CPUs":     {"[taskset, -c, \"0\"]", "false", true},
		"apart":            {"[/usr/bin/scheduler, start-driver, /run/headroom-driver.sock]", "false", false},
		"for trying":       {"[]", "true", false},
	} {
		text := ExampleConfig[:strings.Index(ExampleConfig, "\n# A Spark cluster")] + "\n" + fmt.Sprintf(spark, c.driver)
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		testkit.WriteFile(t, path, strings.Replace(text, "dev: false", "dev: "+c.dev, 1))
		_, err := LoadConfig(path)
		if e, ok := errors.AsType[*cli.Error](err); ok != c.refused || ok && (e.Exit != cli.ExitUsage || !strings.Contains(e.Hint, "start-driver")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
