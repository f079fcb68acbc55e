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
