package budget

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The level that is found fills the room exactly, and spans that share bends,
// have no length or stand at the same place are no exception.
func TestFullAtFillsTheRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var spans []span
		var ids []int
		least, most := 0.0, 0.0
		for i := range rapid.IntRange(1, 60).Draw(t, "spans") {
			from := float64(rapid.IntRange(0, 4).Draw(t, "from")) * 1e7
			s := span{weight: float64(rapid.IntRange(1, 4).Draw(t, "weight")), from: from, to: from + float64(rapid.IntRange(0, 5).Draw(t, "length"))*1e7}
			spans, ids = append(spans, s), append(ids, i)
			least, most = least+s.from, most+s.to
		}
		room := least + (most-least)*rapid.Float64Range(-0.2, 1).Draw(t, "part")
		level, sum := (&filler{spans: spans}).fullAt(ids, room), 0.0
		for _, s := range spans {
			sum += s.at(level)
		}
		if want := max(room, least); math.Abs(sum-want) > 1 {
			t.Fatalf("at level %v the spans take %v, want %v (uW)", level, sum, want)
		}
	})
}
