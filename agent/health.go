package agent

import (
	"log/slog"
	"slices"
	"strings"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
)

// Severities of a health item.
const (
	warn = status.Warn
	fail = status.Fail
)

// item is one warning of the node.
type item struct {
	code, severity, text, hint string
}

// health is the set of warnings now visible. An item appears and clears itself;
// each change is one log line.
type health struct {
	log   *slog.Logger
	items map[string]item
}

// set shows an item, or clears it when bad is false.
func (h *health) set(bad bool, i item) {
	old, shown := h.items[i.code]
	switch {
	case bad && !shown:
		h.log.Warn("health item appeared", slog.String("code", i.code), slog.String("text", i.text), slog.String("hint", i.hint))
		h.items[i.code] = i
	case bad && old != i:
		h.items[i.code] = i
	case !bad && shown:
		h.log.Info("health item cleared", slog.String("code", i.code))
		delete(h.items, i.code)
	}
}

// clear removes an item.
func (h *health) clear(code string) { h.set(false, item{code: code}) }

// list is the items for the wire, in the order of their codes.
func (h *health) list() []*headroomv1.HealthItem {
	all := make([]*headroomv1.HealthItem, 0, len(h.items))
	for _, i := range h.items {
		all = append(all, &headroomv1.HealthItem{Code: i.code, Severity: i.severity, Text: i.text, Hint: i.hint})
	}
	slices.SortFunc(all, func(a, b *headroomv1.HealthItem) int { return strings.Compare(a.GetCode(), b.GetCode()) })
	return all
}
