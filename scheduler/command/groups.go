package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/each"
)

// jsonGroup is a group of workers in -o json. The active master's fields are null while none is active.
type jsonGroup struct {
	Name        string       `json:"name"`
	Masters     []jsonMaster `json:"masters"`
	Workers     *uint32      `json:"workers"`
	Slots       *uint32      `json:"slots"`
	Usable      *uint32      `json:"usable"`
	Reserved    *uint32      `json:"reserved"`
	RunningHigh *uint32      `json:"running_high"`
	RunningLow  *uint32      `json:"running_low"`
	WaitingHigh *uint32      `json:"waiting_high"`
	WaitingLow  *uint32      `json:"waiting_low"`
	// Power is null until the master has learned it.
	Power       *float64 `json:"power"`
	Window      uint32   `json:"window"`
	Outstanding uint32   `json:"outstanding"`
	Waiting     uint32   `json:"waiting"`
}

// jsonMaster is a master of a group.
type jsonMaster struct {
	Address string `json:"address"`
	// Name is null while it has not answered.
	Name    *string `json:"name"`
	State   string  `json:"state"`
	Trouble string  `json:"trouble"`
}

func printGroups(w io.Writer, out *cli.Output, groups []*headroomv1.DispatchGroup) error {
	if out.IsJSON() {
		items := each.List(cli.Filled[jsonGroup](groups), func(item jsonGroup) any { return item })
		return out.JSON(w, envelope("GroupList", items))
	}
	head := []string{"GROUP", "MASTERS", "WORKERS", "SLOTS", "USABLE", "RESERVED", "RUNNING", "QUEUED", "OUTSTANDING", "WINDOW", "WAITING"}
	if out.IsWide() {
		head = append(head, "POWER", "TROUBLE")
	}
	rows := make([][]string, 0, len(groups))
	for _, g := range groups {
		row := []string{
			g.GetName(), mastersText(g), known(g.Workers), known(g.Slots), known(g.Usable), known(g.Reserved), highLow(g.RunningHigh, g.RunningLow),
			highLow(g.WaitingHigh, g.WaitingLow), number(g.GetOutstanding()), number(g.GetWindow()), number(g.GetWaiting()),
		}
		if out.IsWide() {
			power := cli.Unknown
			if g.Power != nil {
				power = fmt.Sprintf("%.2f", g.GetPower())
			}
			row = append(row, power, textOr(troubles(g)))
		}
		rows = append(rows, row)
	}
	return out.Table(w, head, rows)
}

// mastersText names the masters with their states.
func mastersText(g *headroomv1.DispatchGroup) string {
	parts := make([]string, 0, len(g.GetMasters()))
	for _, m := range g.GetMasters() {
		parts = append(parts, cmp.Or(m.GetName(), m.GetAddress())+" "+m.GetState())
	}
	return strings.Join(parts, ", ")
}

func troubles(g *headroomv1.DispatchGroup) string {
	var parts []string
	for _, m := range g.GetMasters() {
		if m.GetTrouble() != "" {
			parts = append(parts, m.GetAddress()+": "+m.GetTrouble())
		}
	}
	return strings.Join(parts, "; ")
}

// known is a number, or that it is unknown.
func known(n *uint32) string {
	if n == nil {
		return cli.Unknown
	}
	return number(*n)
}

// highLow are tasks of high and of low priority.
func highLow(high, low *uint32) string {
	if high == nil || low == nil {
		return cli.Unknown
	}
	return number(*high) + "+" + number(*low)
}
