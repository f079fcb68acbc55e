// Claims: what is generated is fresh; every command has an example and says what
// it does; every key of the configuration is documented where it is shown.
package command

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"headroom/internal/manual"
)

func TestGeneratedDocsAreFresh(t *testing.T) {
	t.Parallel()
	for _, name := range generatedDocs().Stale(filepath.Join("..", "..", "docs")) {
		t.Errorf("docs/%s is stale: go generate ./agent/command", name)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	if err := manual.CheckCommands(New()); err != nil {
		t.Error(err)
	}
}

// Every command that answers can answer in JSON, but for the two that write a file
// of another form and the screen.
func TestEveryAnswerHasJSON(t *testing.T) {
	t.Parallel()
	without := []string{"powerd run", "powerd top", "powerd debug bundle", "powerd config schema", "powerd config example"}
	manual.EachCommand(New(), func(c *cobra.Command) {
		has := c.LocalFlags().Lookup("output") != nil || c.InheritedFlags().Lookup("output") != nil
		if has == slices.Contains(without, c.CommandPath()) {
			t.Errorf("%s: -o json is there: %v", c.CommandPath(), has)
		}
	})
}

// The schema knows every key of the example, and no quantity without its unit passes.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	if err := configFile().Check(); err != nil {
		t.Error(err)
	}
}
