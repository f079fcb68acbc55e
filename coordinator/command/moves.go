package command

import (
	"fmt"
	"io"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

// movesMost is how many different moves of caps a plan lists on a terminal; more are summed up.
const movesMost = 8

// movesText are the moves of a plan and what it cannot lower, nodes that do alike folded into one.
func movesText(w io.Writer, moves []*headroomv1.TargetMove, shortfall []string) []string {
	var each []string
	for _, m := range moves {
		each = append(each, fmt.Sprintf("%s %.1f -> %s", m.GetNode(), watts(m.GetFromUw()), shownWatts(m.GetToUw())))
	}
	each = cli.FoldNamed(each)
	if cols, _ := cli.Screen(w); cols > 0 && len(each) > movesMost {
		each = summedMoves(moves)
	}
	return append(each, cli.FoldNamed(shortfall)...)
}

// summedMoves are one move of all nodes that are lowered together, and one of all that are raised.
func summedMoves(moves []*headroomv1.TargetMove) (out []string) {
	for _, lowered := range []bool{true, false} {
		var names []string
		var from, to int64
		for _, m := range moves {
			if (m.GetToUw() < m.GetFromUw()) == lowered {
				names, from, to = append(names, m.GetNode()), from+m.GetFromUw(), to+m.GetToUw()
			}
		}
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("%s (%s) together %s -> %s (%s); -o json lists each", cli.NodeSet(names), cli.Count(len(names), "node"),
				shownWatts(from), shownWatts(to), cli.SignedWatts(units.Power(to-from))))
		}
	}
	return out
}
