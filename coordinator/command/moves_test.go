// Claims: a plan for many nodes is a few lines; nodes that move alike are one, and on a terminal many that do not are summed up.
package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
)

// screen is a terminal of that size.
type screen struct {
	bytes.Buffer

	cols, rows int
}

func (s *screen) Screen() (cols, rows int) { return s.cols, s.rows }

func TestPlanFoldsNodes(t *testing.T) {
	t.Parallel()
	var alike, apart []*headroomv1.TargetMove
	for i := range int64(60) {
		name := fmt.Sprintf("n%02d", i+1)
		alike = append(alike, &headroomv1.TargetMove{Node: name, FromUw: 190e6, ToUw: 150e6})
		apart = append(apart, &headroomv1.TargetMove{Node: name, FromUw: 190e6, ToUw: (150 + i) * 1e6})
	}
	stuck := []string{"n61 cannot be lowered now, charged at 90.0 W", "n62 cannot be lowered now, charged at 90.0 W"}
	for _, x := range []struct {
		cols  int
		moves []*headroomv1.TargetMove
		want  string
	}{
		{0, alike, "n[01-60] 190.0 -> 150.0 W; n[61-62] cannot be lowered now, charged at 90.0 W"},
		{80, alike, "n[01-60] 190.0 -> 150.0 W; n[61-62] cannot be lowered now, charged at 90.0 W"},
		{80, apart, "n[01-40] (40 nodes) together 7600.0 W -> 6780.0 W (-820.0 W); -o json lists each; " +
			"n[41-60] (20 nodes) together 3800.0 W -> 3990.0 W (+190.0 W); -o json lists each; n[61-62] cannot be lowered now, charged at 90.0 W"},
	} {
		if got := strings.Join(movesText(&screen{cols: x.cols}, x.moves, stuck), "; "); got != x.want {
			t.Errorf("%d columns: %s, want %s", x.cols, got, x.want)
		}
	}
	if got := movesText(&screen{}, apart, nil); len(got) != 60 {
		t.Errorf("not a terminal: %d moves, want all 60", len(got))
	}
}
