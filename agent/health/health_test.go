// Claims: a warning appears once, is brought up to date without a line in the log, and
// clears itself once; they are listed in the order of their codes.
package health

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"headroom/agent/status"
)

func TestItemsAppearAndClearOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := New(slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		h.Warn(true, "sensor", "power cannot be read", "look at it")
	}
	h.Warn(true, "sensor", "power cannot be read since a minute", "look at it")
	h.Fail(true, "limit-refused", "a limit was not taken", "look at it")
	h.Warn(false, "thermal", "it is hot", "look at it")
	all := h.List()
	if len(all) != 2 || h.Len() != 2 || all[0].GetCode() != "limit-refused" || all[0].GetSeverity() != status.Fail || all[1].GetSeverity() != status.Warn {
		t.Fatalf("%v", all)
	}
	if i, ok := h.Get("sensor"); !ok || i.Text != "power cannot be read since a minute" || i.Hint == "" {
		t.Errorf("%+v, %v", i, ok)
	}
	for range 3 {
		h.Clear("sensor")
	}
	if _, ok := h.Get("sensor"); ok || h.Len() != 1 {
		t.Errorf("%v after it cleared", h.List())
	}
	for line, want := range map[string]int{"raised": 2, "cleared": 1} {
		if got := strings.Count(log.String(), line); got != want {
			t.Errorf("%d lines of %q, want %d:\n%s", got, line, want, log.String())
		}
	}
}

// What goes out with every heartbeat has a bound, whatever a device or its driver says.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	h := New(slog.New(slog.DiscardHandler))
	h.Fail(true, "x", strings.Repeat("\u00e9", 3000), strings.Repeat("h", 3000))
	i, _ := h.Get("x")
	if len(i.Text) > textMost+16 || len(i.Hint) > textMost+16 || !utf8.ValidString(i.Text) || !strings.HasSuffix(i.Text, " (cut)") {
		t.Errorf("%d and %d bytes: %.20q", len(i.Text), len(i.Hint), i.Text[len(i.Text)-20:])
	}
	if got := Few([]string{"policy0", "policy1", "policy2"}); got != "policy0 (and 2 more)" {
		t.Errorf("%q", got)
	}
}
