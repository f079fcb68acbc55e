// Claims: a View that is made of the workers of another one says the same.
package eagle

import (
	"slices"
	"testing"
)

func TestViewOverTheWire(t *testing.T) {
	t.Parallel()
	for _, long := range [][]int32{nil, {0}, {63, 64}, {3, 62, 63, 64, 127, 128, 500}} {
		v := ViewOf(7, long)
		if got := slices.Collect(v.All()); !slices.Equal(got, long) || v.Sequence != 7 {
			t.Errorf("%v came as %v of sequence %d", long, got, v.Sequence)
		}
		for w := range 600 {
			if v.Long(w) != slices.Contains(long, int32(w)) {
				t.Errorf("%v: worker %d has long tasks: %v", long, w, v.Long(w))
			}
		}
	}
	var none *View
	if got := slices.Collect(none.All()); got != nil {
		t.Errorf("no View has %v", got)
	}
}
