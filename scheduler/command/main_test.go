package command

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"headroom/internal/cli"
	"headroom/internal/config"
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
	if len(os.Args) > 2 && os.Args[1] == "app" {
		if err := words(os.Args[2:], os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			return cli.ExitFailed
		}
		return cli.ExitOK
	}
	return cli.Run(context.Background(), New(), os.Args[1:], os.Stdout, os.Stderr)
}
