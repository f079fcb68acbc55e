// Claims: the scheduler's manual pages say what the program does now; every command
// has an example, every key of its configuration is documented.
package scheduler

import (
	"testing"

	"headroom/internal/manual"
)

func TestManual(t *testing.T) {
	t.Parallel()
	for _, name := range generatedDocs().Stale("../docs") {
		t.Errorf("docs/%s is stale: go generate ./scheduler", name)
	}
	if err := manual.CheckCommands(NewCommand()); err != nil {
		t.Error(err)
	}
	if err := configFile().Check(); err != nil {
		t.Error(err)
	}
}
