// Package testkit holds what tests of several packages share.
//
// The one idea: a test that a machine does not permit is neither red nor
// forgotten. It calls NotRun, and `make test` collects those lines at its end.
//
// It never appears in a program: only _test.go files import it.
package testkit

import "testing"

// prefix starts the message of every test that a machine did not permit;
// `make test` greps for it.
const prefix = "not run: "

// NotRun skips the test because this machine does not permit it; why names what
// is missing, for example "needs root to mount a cgroup".
func NotRun(tb testing.TB, why string) {
	tb.Helper()
	tb.Skip(prefix + why)
}
