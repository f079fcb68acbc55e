// Claims: the scheduler's manual pages say what the program does now; every command
// has an example, every key of its configuration is documented.
package command

import (
	"testing"

	"headroom/internal/manual"
)

func TestManual(t *testing.T) {
	t.Parallel()
	for _, name := range generatedDocs().Stale("../../docs") {
		t.Errorf("docs/%s is stale: go generate ./scheduler/command", name)
	}
	if err := manual.CheckCommands(New()); err != nil {
		t.Error(err)
	}
	if err := configFile().Check(); err != nil {
		t.Error(err)
	}
}
