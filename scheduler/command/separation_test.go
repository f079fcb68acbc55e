package command

import (
	"strings"
	"testing"

	"headroom/scheduler"
)

// A check of the configuration says which programs of other people share a user.
func TestCheckSaysWhoSharesAUser(t *testing.T) {
	t.Parallel()
	c := scheduler.Defaults()
	if got := strings.Join(separation(&c), "\n"); !strings.Contains(got, "--task-user") || strings.Contains(got, "Spark") {
		t.Errorf("without Spark: %s", got)
	}
	c.Spark.Master = "spark://10.0.0.20:7077"
	if got := strings.Join(separation(&c), "\n"); !strings.Contains(got, "Spark drivers run as the scheduler's user") {
		t.Errorf("drivers beside the scheduler: %s", got)
	}
	c.Spark.Driver = []string{"/usr/bin/scheduler", "start-driver", "/run/headroom-driver.sock"}
	if got := strings.Join(separation(&c), "\n"); strings.Contains(got, "Spark") {
		t.Errorf("drivers in units of their own: %s", got)
	}
}

// The default folder of a worker is one that nobody else can make first.
func TestWorkersOwnFolder(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"/var/lib/headroom/worker":        {"STATE_DIRECTORY": "/var/lib/headroom/worker", "HOME": "/h/ann"},
		"/x/headroom-worker":              {"XDG_STATE_HOME": "/x", "HOME": "/h/ann"},
		"/h/.local/state/headroom-worker": {"XDG_STATE_HOME": "relative", "HOME": "/h"},
		"":                                {"TMPDIR": "/tmp"},
	} {
		if got := workerDir(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}
