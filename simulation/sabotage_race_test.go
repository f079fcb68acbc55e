//go:build race

package simulation

import (
	"testing"

	"headroom/internal/testkit"
)

// The sabotages run in the build without the race detector: sabotage_test.go.
func TestSabotageIsFound(t *testing.T) {
	t.Parallel()
	testkit.NotRun(t, "the sabotages take too long under the race detector: go test ./simulation runs them")
}
