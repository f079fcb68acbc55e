// Claims: what the section cannot mean is refused with a way out; without a
// ResourceManager it means nothing.
package yarn

import (
	"strings"
	"testing"

	"headroom/internal/cli"
)

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"no address":         {func(c *Config) { c.ResourceManager = []string{"rm1:8088"} }, `"rm1:8088" is not the address of a web server`},
		"a path":             {func(c *Config) { c.ResourceManager = []string{"http://rm1:8088/cluster"} }, "is not the address of a web server"},
		"many managers":      {func(c *Config) { c.ResourceManager = make([]string, 9) }, "lists 9; the maximum is 8"},
		"no queues":          {func(c *Config) { c.Queues = nil }, "yarn.queues is missing"},
		"odd queue":          {func(c *Config) { c.Queues[0].Name = "q1" }, `"q1" is not a valid name of a queue`},
		"queue twice":        {func(c *Config) { c.Queues[1].Name = "root.q1" }, "lists root.q1 twice"},
		"queue in queue":     {func(c *Config) { c.Queues[1].Name = "root.q1.a" }, "lists root.q1.a and its parent root.q1"},
		"no memory":          {func(c *Config) { c.Container.MemoryMB = 0 }, "yarn.container is 0 MB"},
		"no vcores":          {func(c *Config) { c.Container.VCores = -1 }, "-1 vcores"},
		"odd node":           {func(c *Config) { c.Nodes = map[string]string{"node1": "n01"} }, `"node1": "n01"`},
		"odd shares":         {func(c *Config) { c.Shares = "all" }, `yarn.shares "all" is unknown`},
		"odd lower":          {func(c *Config) { c.Lower = "kill" }, `yarn.lower "kill" is unknown`},
		"hook without":       {func(c *Config) { c.Hooks = "" }, "yarn.hooks is missing"},
		"odd hooks":          {func(c *Config) { c.Hooks = "here" }, `yarn.hooks: "here" is not an address`},
		"odd port":           {func(c *Config) { c.Hooks = ":99999" }, `yarn.hooks: ":99999" is not an address`},
		"no port":            {func(c *Config) { c.Hooks = "10.0.0.20:" }, "is not an address"},
		"the old way":        {func(c *Config) { c.Shares = "file" }, "the allocation file is no longer written"},
		"capacity preempts":  {func(c *Config) { c.Shares, c.Lower = sharesCapacity, lowerPreempt }, "only drains"},
		"a deadline of ages": {func(c *Config) { c.Queues[0].Deadline = 1 << 62 }, "the deadline of root.q1 is"},
		"poll too often":     {func(c *Config) { c.Poll = 1 }, "yarn.poll is 1ns"},
		"poll too seldom":    {func(c *Config) { c.Poll = 1 << 50 }, "must be from"},
	} {
		cfg := testConfig()
		c.change(&cfg)
		if err := cfg.Check(); err == nil || err.Exit != cli.ExitUsage || err.Hint == "" || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		cfg.ResourceManager = nil
		if err := cfg.Check(); err != nil {
			t.Errorf("%s, without YARN: %v", name, err)
		}
	}
	if err := testConfig().Check(); err != nil {
		t.Error(err)
	}
}
