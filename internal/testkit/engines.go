package testkit

import (
	"os"
	"testing"
)

// enginesSet is the variable that lab/test/engines.sh sets for the proofs it runs.
const enginesSet = "HEADROOM_ENGINES"

// Engines leaves the test to `make engines`, because it takes too long for every run of the suite. versions names the
// engines of the proof, for example "hadoop 3.5.0"; lab/test/engines.sh writes it into the proof's line. lab/test/engines.txt
// lists each test that calls it.
func Engines(tb testing.TB, versions string) {
	tb.Helper()
	if os.Getenv(enginesSet) == "" {
		tb.Skip("left to make engines: " + versions)
	}
	tb.Log("engine: " + versions)
}
