package command

import (
	"fmt"
	"io"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// movesText are the moves of a plan and what it cannot lower; nodes that move alike are folded.
func movesText(_ io.Writer, moves []*headroomv1.TargetMove, shortfall []string) []string {
	var out []string
	nodes := map[string][]string{}
	for _, m := range moves {
		step := fmt.Sprintf("%.1f -> %s", watts(m.GetFromUw()), shownWatts(m.GetToUw()))
		if nodes[step] == nil {
			out = append(out, step)
		}
		nodes[step] = append(nodes[step], m.GetNode())
	}
	for i, step := range out {
		out[i] = cli.NodeSet(nodes[step]) + " " + step
	}
	return append(out, shortfall...)
}
