// Claims: the root tests and the lists that lints and tests run on are the same in a clone
// that holds everything the commands write, somebody's unfinished work and a space in its
// path, and in an unpacked source archive.
package headroom_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// insideUsed marks the root tests that TestUsedFolder runs, which would run themselves.
const insideUsed = "HEADROOM_USED_FOLDER"

// written are the folders that the project's commands write and git ignores, below which
// anything may stand, and a folder of somebody's own.
func written() []string {
	return []string{"demo-out", "simulate-out", "bin", "hooks/target", "hooks/apps/target", "campaign-out", "my scratch", "cmd/mine"}
}

func TestUsedFolder(t *testing.T) {
	t.Parallel()
	needLab(t)
	if os.Getenv(insideUsed) != "" {
		t.Skip("runs in the outer test")
	}
	files := tracked(t)
	clone := filepath.Join(t.TempDir(), "a folder", "headroom")
	for _, f := range files {
		testkit.Check(t, os.MkdirAll(filepath.Join(clone, filepath.Dir(f)), 0o755))
		info := testkit.Need(os.Stat(f))(t)
		testkit.Check(t, os.WriteFile(filepath.Join(clone, f), testkit.Need(os.ReadFile(f))(t), info.Mode().Perm()))
	}
	want := inFolder(t, ".", "sh", "tools/packages.sh", "all")
	_, err := exec.LookPath("git")
	if err == nil {
		inFolder(t, clone, "git", "init", "-q")
		inFolder(t, clone, "git", "add", "-A", "-f")
	}
	for _, folder := range written() {
		testkit.Check(t, os.MkdirAll(filepath.Join(clone, folder), 0o755))
		for name, text := range map[string]string{
			"broken.go": "package broken\n\nfunc (\n", "main.go": "package main\n\nfunc main() {}\n", "x_test.go": "package main\n",
			"page.md": "HA" + "CK: see [nothing](nowhere.md), /ho" + "me/somebody\n\n| a |\nmake nothing\n", "go.sum": "x",
		} {
			testkit.WriteFile(t, filepath.Join(clone, folder, name), text)
		}
	}
	t.Run("clone", func(t *testing.T) {
		if err != nil {
			testkit.NotRun(t, "git is not installed")
		}
		checkUsed(t, clone, want, "^Test")
		inFolder(t, clone, "make", "--no-print-directory", "format-check")
		inFolder(t, clone, "go", "run", "./internal/vet/cmd/headroomvet", "-test=false", ".", "./units")
		inFolder(t, clone, "make", "--no-print-directory", "build", "PROGRAMS=headroom")
	})
	testkit.Check(t, os.RemoveAll(filepath.Join(clone, ".git")))
	testkit.WriteFile(t, filepath.Join(clone, "files.txt"), strings.Join(files, "\n")+"\n")
	t.Run("archive", func(t *testing.T) { checkUsed(t, clone, want, "^Test(TopLevelIsSmall|EveryPackageExplainsItself)$") })
}

// checkUsed runs what reads the list of files in a folder that was used.
func checkUsed(t *testing.T, folder, packages, tests string) {
	t.Helper()
	if got := inFolder(t, folder, "sh", "tools/packages.sh", "all"); got != packages {
		t.Errorf("packages:\n%s\nwant:\n%s", got, packages)
	}
	inFolder(t, folder, "go", "test", "-count=1", "-run", tests, ".")
}

// inFolder runs a command and returns what it prints; the test fails when the command does.
func inFolder(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = folder, append(os.Environ(), insideUsed+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
