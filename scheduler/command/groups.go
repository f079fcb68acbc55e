package command

import (
	"fmt"
	"io"
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// jsonGroup is a group of workers in -o json. What its active master says is null while none is active.
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
		items := make([]any, 0, len(groups))
		for _, g := range groups {
			items = append(items, groupItem(g))
		}
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

func groupItem(g *headroomv1.DispatchGroup) jsonGroup {
	item := jsonGroup{
		Name: g.GetName(), Masters: []jsonMaster{}, Workers: g.Workers, Slots: g.Slots, Usable: g.Usable, Reserved: g.Reserved,
		RunningHigh: g.RunningHigh, RunningLow: g.RunningLow, WaitingHigh: g.WaitingHigh, WaitingLow: g.WaitingLow,
		Power: g.Power, Window: g.GetWindow(), Outstanding: g.GetOutstanding(), Waiting: g.GetWaiting(),
	}
	for _, m := range g.GetMasters() {
		item.Masters = append(item.Masters, jsonMaster{m.GetAddress(), cli.Known(m.GetName(), m.GetName() != ""), m.GetState(), m.GetTrouble()})
	}
	return item
}

// mastersText names the masters with their states.
func mastersText(g *headroomv1.DispatchGroup) string {
	parts := make([]string, 0, len(g.GetMasters()))
	for _, m := range g.GetMasters() {
		name := m.GetName()
		if name == "" {
			name = m.GetAddress()
		}
		parts = append(parts, name+" "+m.GetState())
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
