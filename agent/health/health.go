// Package health holds the active health items of a node.
//
// An item has a code, a text and a hint. The code that watches a condition reports it at
// every check, met or not, so items appear and clear by themselves. Each change is one log
// line; without a change nothing is logged. Items belong to one goroutine, powerd's loop,
// and do no I/O except for the log.
package health

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
)

// Item is one warning.
type Item struct {
	// Code names it, Severity is status.Warn or status.Fail.
	Code, Severity string
	// Text says what is wrong, Hint what an operator can do.
	Text, Hint string
}

// Items are the warnings now visible.
type Items struct {
	log   *slog.Logger
	items map[string]Item // by code
}

// New returns no warnings.
func New(log *slog.Logger) *Items { return &Items{log: log, items: map[string]Item{}} }

// Warn shows a warning, or clears it when bad is false.
//
//headroom:control
func (h *Items) Warn(bad bool, code, text, hint string) {
	h.set(bad, Item{Code: code, Severity: status.Warn, Text: text, Hint: hint})
}

// Fail is Warn for what the node cannot do its work with.
//
//headroom:control
func (h *Items) Fail(bad bool, code, text, hint string) {
	h.set(bad, Item{Code: code, Severity: status.Fail, Text: text, Hint: hint})
}

// Clear removes a warning.
//
//headroom:control
func (h *Items) Clear(code string) { h.set(false, Item{Code: code}) }

// Few are texts as one of bounded length: the first, and how many more there are.
func Few(texts []string) string {
	switch len(texts) {
	case 0:
		return ""
	case 1:
		return texts[0]
	}
	return fmt.Sprintf("%s (and %d more)", texts[0], len(texts)-1)
}

// textMost bounds text and hint of an item, which go out with every heartbeat.
const textMost = 1000

func bounded(text string) string {
	if len(text) <= textMost {
		return text
	}
	return strings.ToValidUTF8(text[:textMost], "") + " (cut)"
}

func (h *Items) set(bad bool, i Item) {
	i.Text, i.Hint = bounded(i.Text), bounded(i.Hint)
	old, shown := h.items[i.Code]
	switch {
	case bad && !shown:
		h.log.Warn("health item raised", slog.String("code", i.Code), slog.String("text", i.Text), slog.String("hint", i.Hint))
		h.items[i.Code] = i
	case bad && old != i:
		h.items[i.Code] = i
	case !bad && shown:
		h.log.Info("health item cleared", slog.String("code", i.Code))
		delete(h.items, i.Code)
	}
}

// Get returns the warning with a code, and whether it is visible.
func (h *Items) Get(code string) (Item, bool) {
	i, ok := h.items[code]
	return i, ok
}

// Len is the number of warnings.
func (h *Items) Len() int { return len(h.items) }

// List is the warnings for the wire, in the order of their codes.
func (h *Items) List() []*headroomv1.HealthItem {
	all := make([]*headroomv1.HealthItem, 0, len(h.items))
	for _, i := range h.items {
		all = append(all, &headroomv1.HealthItem{Code: i.Code, Severity: i.Severity, Text: i.Text, Hint: i.Hint})
	}
	slices.SortFunc(all, func(a, b *headroomv1.HealthItem) int { return strings.Compare(a.GetCode(), b.GetCode()) })
	return all
}
