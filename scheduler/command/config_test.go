package command

// The example of scheduler.yaml is valid, and its schema is what editors need.

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// The schema for editors takes a class by its name alone too.
func TestSchemaOfClasses(t *testing.T) {
	t.Parallel()
	classes := configFile().Schema().Properties["classes"]
	if any := classes.Items.AnyOf; len(any) != 2 || any[0].Type != "string" || any[1].Properties["theta"] == nil {
		t.Errorf("items of classes: %+v", classes.Items)
	}
}

func TestConfigExample(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if exit := cli.Run(context.Background(), New(), []string{"config", "example"}, &out, &out); exit != 0 {
		t.Fatal(out.String())
	}
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, out.Bytes())
	out.Reset()
	if exit := cli.Run(context.Background(), New(), []string{"config", "check", "--syntax-only", "--config", path}, &out, &out); exit != 0 {
		t.Error(out.String())
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	commands := New().Commands()
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or no description", c.CommandPath())
		}
	}
}
