// Claims: the command line answers as documented: output, two-line errors, exit codes.
package command

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"headroom/internal/cli"
)

func TestMain(m *testing.M) {
	if os.Getenv(childCommand) != "" {
		os.Exit(cli.Run(context.Background(), New(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			// powerd on the path is this test binary, which then plays it.
			bin := e.WorkDir + "/.bin"
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv(childCommand, "1")
			return os.Symlink(self, bin+"/powerd")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// childCommand tells a test binary to be the powerd command line.
const childCommand = "HEADROOM_TEST_POWERD_COMMAND"

// exits CODE CMD...: the command ends with exactly that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Exec returns it as it is
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
