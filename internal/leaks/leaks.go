// Package leaks finds goroutines that the tests of a package left behind, where
// some end by themselves a little later: memberlist does not wait for its last
// probe when it stops, which ends within the probe's timeouts. Everybody else uses
// goleak as it is.
package leaks

import (
	"fmt"
	"io"

	"go.uber.org/goleak"
)

// looks are how often Main looks again; each takes about a second while it finds
// something.
const looks = 10

// Tests are what testing.M runs.
type Tests interface{ Run() int }

// Main runs the tests and returns their exit code, or 1 with words to w when they
// passed and left goroutines behind that did not end.
func Main(m Tests, w io.Writer) int {
	code := m.Run()
	leak := goleak.Find()
	for i := 1; leak != nil && i < looks; i++ {
		leak = goleak.Find()
	}
	if leak == nil || code != 0 {
		return code
	}
	_, _ = fmt.Fprintf(w, "goroutines left behind: %v\n", leak)
	return 1
}
