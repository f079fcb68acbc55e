package command

import (
	"context"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/lab/apps"
)

// programEnv makes the test binary be the scheduler, or the program of a task.
const programEnv = "HEADROOM_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" || len(os.Args) == 2 && os.Args[1] == "look-up" { // a scheduler in this process starts it
		os.Exit(program())
	}
	if err := os.Setenv(config.ClientEnv, ""); err != nil { // not that of who runs the tests
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func program() int {
	root := New()
	if len(os.Args) > 1 && os.Args[1] == "app" {
		root = &cobra.Command{Use: "powerlab"}
		root.AddCommand(apps.NewCommand())
	}
	return cli.Run(context.Background(), root, os.Args[1:], os.Stdout, os.Stderr)
}
