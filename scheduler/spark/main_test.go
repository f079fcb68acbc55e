package spark

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headroom/internal/config"
	"headroom/internal/testkit"
)

// roleEnv makes the test binary another program: a supervisor, or a scheduler that
// starts a run and then waits to be killed.
const (
	roleEnv        = "HEADROOM_TEST_ROLE"
	roleSupervisor = "supervisor"
	roleParent     = "parent"
	roleClient     = "client" // of a driver's unit
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleSupervisor:
		if err := Drive(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
	case roleParent:
		parent(os.Args[1])
	case roleClient:
		code, err := StartDriver(context.Background(), os.Args[1], os.Args[2:], os.Environ())
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(code)
	default:
		goleak.VerifyTestMain(m)
	}
}

// fakeSubmit is a spark-submit that does what the application's first argument says.
const fakeSubmit = `#!/bin/sh
while [ "$1" != --end ]; do shift; done
shift
what=$1
shift
case $what in
exit) echo "out"; echo "INFO some noise" >&2; echo 'Exception in thread "main" java.lang.IllegalStateException: no luck' >&2; echo "	at demo.Main" >&2; exit "$1" ;;
fine) exit 0 ;;
flood) to=$(readlink /proc/$$/fd/1 /proc/$$/fd/2); echo "$to" >"$1"; head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2; echo the result; echo the cause >&2 ;;
wait) echo ready; while ! [ -e "$1" ]; do sleep 0.05; done ;;
ignore) trap '' TERM HUP; echo ready; while :; do sleep 0.05; done ;;
family) setsid sh -c 'trap "" TERM HUP; echo $$ >"$1"; while :; do sleep 0.05; done' member "$1" & while ! [ -s "$1" ]; do sleep 0.05; done; echo ready; wait ;;
signal) kill -9 $$ ;;
esac
`

// home is a Spark distribution of one script.
func home(tb testing.TB, dir string) Config {
	tb.Helper()
	return testkit.Need(makeHome(dir))(tb)
}

func makeHome(dir string) (Config, error) {
	cfg := Defaults()
	cfg.Home, cfg.Master, cfg.Plugin, cfg.KillAfter = filepath.Join(dir, "spark"), "spark://127.0.0.1:7077", filepath.Join(dir, "plugin.jar"), config.Duration(10*time.Second)
	if err := os.MkdirAll(filepath.Join(cfg.Home, "bin"), 0o755); err != nil {
		return cfg, err
	}
	if err := os.WriteFile(cfg.submit(), []byte(fakeSubmit), 0o755); err != nil {
		return cfg, err
	}
	return cfg, os.WriteFile(cfg.Plugin, []byte("jar"), 0o644)
}

// supervisor are the words that make the test binary a supervisor.
func supervisor() []string {
	return []string{"/usr/bin/env", roleEnv + "=" + roleSupervisor, os.Args[0]}
}

func runOf(dir, job string, number uint32, what ...string) Run {
	return Run{
		Job: job, Number: number, Slots: 2, Theta: 0.25, Seed: 7, Folder: filepath.Join(dir, fmt.Sprintf("%s-%d", job, number)),
		Spec: Spec{Application: "/app.jar", Main: "demo.Main", Args: append([]string{"--end"}, what...)},
	}
}

// parent starts a run and says so; it is killed then.
func parent(dir string) {
	cfg, err := makeHome(dir)
	var e *Engine
	if err == nil {
		e, err = New(cfg, dir, supervisor(), nil, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		err = e.Start(runOf(dir, "orphan", 1, "wait", filepath.Join(dir, "go")))
	}
	_, _ = fmt.Fprintln(os.Stdout, "started", err)
	_ = e.Run(context.Background())
}
