// Claims: every command that a program shows is reachable, the table of nouns follows
// the programs, each program is found beside headroom before PATH, and the program's
// streams and exit code are the command's.
package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	agent "headroom/agent/command"
	coordinator "headroom/coordinator/command"
	"headroom/internal/cli"
	scheduler "headroom/scheduler/command"
)

// asHeadroom makes the test binary the program.
const asHeadroom = "HEADROOM_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asHeadroom); dir != "" {
		l := locator{self: func() (string, error) { return filepath.Join(dir, "headroom"), nil }, fixed: filepath.Join(dir, "lib"), path: os.Getenv("PATH")}
		os.Exit(cli.Run(context.Background(), newRoot(l), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// own are the commands that need the program's name.
func own() []string { return []string{"run", "config", "debug", "version", "completion", "help"} }

func TestNounsFollowThePrograms(t *testing.T) {
	t.Parallel()
	trees := map[string]*cobra.Command{"coordinator": coordinator.New(), "scheduler": scheduler.New(), "powerd": agent.New()}
	has := func(program, name string) bool {
		return slices.ContainsFunc(trees[program].Commands(), func(c *cobra.Command) bool { return c.Name() == name && !c.Hidden })
	}
	for _, n := range nouns() {
		if trees[n.program] != nil && !has(n.program, n.name) {
			t.Errorf("%s has no command %s", n.program, n.name)
		}
	}
	for program, tree := range trees {
		for _, c := range tree.Commands() {
			known := slices.ContainsFunc(nouns(), func(n noun) bool { return n.name == c.Name() })
			if !c.Hidden && !known && !slices.Contains(own(), c.Name()) {
				t.Errorf("headroom does not list %s %s", program, c.Name())
			}
		}
	}
	for _, verb := range jobVerbs() {
		if c, _, err := trees["coordinator"].Find([]string{"job", verb}); err != nil || c.Name() == "job" {
			t.Errorf("coordinator job has no %s", verb)
		}
		if c, _, err := trees["scheduler"].Find([]string{"job", verb}); err == nil && c.Name() != "job" {
			t.Errorf("scheduler job has %s too", verb)
		}
	}
}

// install writes a program that prints its name and arguments, and ends with 6.
func install(t *testing.T, dir, program string) {
	t.Helper()
	script := "#!/bin/sh\n[ \"$1\" = __complete ] && printf 'n01\\nn02\\n:4\\n' && exit 0\necho " + filepath.Base(dir) + "/" + program + " \"$@\"\necho note >&2\nexit 6\n"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func headroom(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asHeadroom+"="+dir, "PATH="+filepath.Join(dir, "path"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code tells
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install(t, filepath.Join(dir, "path"), "coordinator")
	install(t, filepath.Join(dir, "lib"), "coordinator")
	install(t, filepath.Join(dir, "lib"), "scheduler")
	install(t, filepath.Join(dir, "path"), "scheduler")
	install(t, filepath.Join(dir, "path"), "powerd")
	for args, want := range map[string]string{
		"budget set 2kW --reason x": "lib/coordinator budget set 2kW --reason x",
		"job list -o json":          "lib/scheduler job list -o json",
		"job explain words-1":       "lib/coordinator job explain words-1",
		"node list --help":          "lib/coordinator node list --help",
		"powerd status":             "path/powerd status",
		"run --deadline 10m -- x y": "lib/scheduler job run --deadline 10m -- x y",
		"coordinator config check":  "lib/coordinator config check",
	} {
		code, stdout, stderr := headroom(t, dir, strings.Fields(args)...)
		if code != 6 || stdout != want+"\n" || stderr != "note\n" {
			t.Errorf("%s: exit %d, %q, %q; want exit 6, %q", args, code, stdout, stderr, want)
		}
	}
	install(t, dir, "coordinator")
	if _, stdout, _ := headroom(t, dir, "status"); stdout != filepath.Base(dir)+"/coordinator status\n" {
		t.Errorf("the program beside headroom is not first: %q", stdout)
	}
	if code, stdout, _ := headroom(t, dir, "__complete", "node", "show", ""); code != 0 || !strings.HasPrefix(stdout, "n01\nn02\n:4") {
		t.Errorf("completion: exit %d, %q", code, stdout)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"demo":      "error: powerlab is not installed: ",
		"budgt set": "error: unknown command \"budgt\" for \"headroom\"\nhint: did you mean budget?\n",
	} {
		code, stdout, stderr := headroom(t, t.TempDir(), strings.Fields(args)...)
		if code == 0 || stdout != "" || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if _, _, stderr := headroom(t, t.TempDir(), "demo"); !strings.HasSuffix(stderr, "hint: install the package headroom-tools\n") {
		t.Errorf("no way out: %q", stderr)
	}
}

func TestManual(t *testing.T) {
	t.Parallel()
	if stale := pages().Stale("../../docs"); len(stale) > 0 {
		t.Errorf("stale: %v; run go generate ./cmd/headroom", stale)
	}
}
