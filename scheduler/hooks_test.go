package scheduler

// Claims: the hooks' ports in the clear are on loopback; one that cannot be served is named
// with its key and a way out.

import (
	"strings"
	"syscall"
	"testing"
)

func TestHooksInTheClearAreOnLoopback(t *testing.T) {
	t.Parallel()
	c := Config{Dev: true, Listen: "127.0.0.1:1", Coordinators: []string{"127.0.0.1:1"}}
	c.Yarn.ResourceManager, c.Yarn.Hooks = []string{"http://rm:8088"}, "127.0.0.1:2"
	c.Spark.Master, c.Spark.Hooks = "spark://a:7077", "127.0.0.1:3"
	if err := c.checkAccess(); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*Config){
		"yarn.hooks":            func(c *Config) { c.Yarn.Hooks = "10.0.0.1:2" },
		"spark.hooks":           func(c *Config) { c.Spark.Hooks = "10.0.0.1:3" },
		"yarn.hooks_token_file": func(c *Config) { c.Yarn.HooksTokenFile = "/etc/headroom/scheduler/hooks.token" },
		"yarn.hooks_key_file":   func(c *Config) { c.Yarn.HooksKeyFile = "/etc/headroom/scheduler/hooks.key" },
	} {
		other := c
		edit(&other)
		if err := other.checkAccess(); err == nil || !strings.Contains(err.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHooksPortElsewhere(t *testing.T) {
	t.Parallel()
	if e := hooksError("10.9.9.9:1", syscall.EADDRNOTAVAIL); !strings.Contains(e.Hint, "10.9.9.9:1 is not an address of this machine") {
		t.Errorf("hint %q", e.Hint)
	}
}
