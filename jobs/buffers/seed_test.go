package buffers

import (
	"fmt"
	"testing"
)

// A seed is whole in JSON, the same each time, and no two jobs of many share one.
func TestSeed(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for i := range 10_000 {
		id := fmt.Sprintf("words-%04x", i)
		s := Seed(id)
		if s >= 1<<53 || s != Seed(id) || seen[s] != "" {
			t.Fatalf("%s: %d, also of %q", id, s, seen[s])
		}
		seen[s] = id
	}
}
