package emulator_test

import (
	"context"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"headroom/internal/cli"
	"headroom/lab/emulator"
)

// asPowerlab makes the test binary behave as powerlab: a node must be a process
// of its own, for it adopts orphans and ends all its children.
const asPowerlab = "EMULATOR_TEST_AS_POWERLAB"

func TestMain(m *testing.M) {
	if os.Getenv(asPowerlab) != "" {
		root := &cobra.Command{Use: "powerlab"}
		root.AddCommand(emulator.NewNodeCommand())
		os.Exit(cli.Run(context.Background(), root, os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
