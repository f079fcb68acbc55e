package scheduler

// scheduler.yaml is understood or refused with a way out; the example is valid;
// the scheduler's folder belongs to one process at a time.

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
)

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"no listen":       {"listen: 127.0.0.1:7410", "", "listen is missing"},
		"odd listen":      {"listen: 127.0.0.1:7410", "listen: here", `"here" is not an address`},
		"no dir":          {"dir: /var/lib/headroom/scheduler", "", "dir is missing"},
		"no coordinators": {`coordinators: ["127.0.0.1:7400"]`, "", "coordinators is missing"},
		"odd coordinator": {`["127.0.0.1:7400"]`, "[nowhere]", `"nowhere" is not an address`},
		"no classes":      {"classes: [high, low]", "", "classes is missing"},
		"repeated class":  {"classes: [high, low]", "classes: [high, high]", `class "high" appears twice`},
		"odd class":       {"classes: [high, low]", `classes: ["a b"]`, `class "a b" is not a name`},
		"unknown level":   {"log_level: info", "log_level: loud", `log_level "loud" is unknown`},
		"unknown key":     {"log_level: info", "loglevel: info", `unknown key "loglevel"`},
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(ExampleConfig, c.from, c.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadConfig(path)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || e.Hint == "" || !strings.Contains(e.Message, c.want) || !strings.HasPrefix(e.Message, path) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestConfigExample(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if exit := cli.Run(context.Background(), NewCommand(), []string{"config", "example"}, &out, &out); exit != 0 {
		t.Fatal(out.String())
	}
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if exit := cli.Run(context.Background(), NewCommand(), []string{"config", "check", "--config", path}, &out, &out); exit != 0 {
		t.Error(out.String())
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
	if err := release(); err != nil {
		t.Fatal(err)
	}
	second, release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release() //nolint:errcheck // the test is over
	if second.ID != first.ID || second.Run != first.Run+1 {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	commands := NewCommand().Commands()
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or no description", c.CommandPath())
		}
	}
}
