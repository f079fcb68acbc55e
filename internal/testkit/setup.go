package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// failer is what a test, a benchmark and a property of package rapid have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// Need gives what a step of a test needs, or ends the test where the step failed:
//
//	f := testkit.Need(os.Open(path))(t)
func Need[T any](v T, err error) func(tb failer) T {
	return func(tb failer) T {
		tb.Helper()
		Check(tb, err)
		return v
	}
}

// Check ends the test where a step of it failed.
func Check(tb failer, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// WriteFile writes a file that only this user may read, and makes its folder.
func WriteFile[T string | []byte](tb failer, path string, text T) {
	tb.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	Check(tb, err)
}

// Programs is a folder with empty files in place of the four programs and of more, for what looks whether they are there.
func Programs(tb testing.TB, more ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range append([]string{"coordinator", "scheduler", "powerd", "powerlab"}, more...) {
		WriteFile(tb, filepath.Join(dir, name), "")
	}
	return dir
}
