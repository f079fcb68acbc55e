package command

import (
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// --since of a list of revisions is a revision, a duration or a time.
func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Now()
	events := []*headroomv1.Event{
		{Revision: 3, AtUs: now.Add(-3 * time.Hour).UnixMicro()},
		{Revision: 4, AtUs: now.Add(-90 * time.Minute).UnixMicro()},
		{Revision: 5, AtUs: now.Add(-time.Minute).UnixMicro()},
	}
	for text, want := range map[string]int{
		"0": 3, "3": 2, "5": 0, "2h": 2, "5m": 1, "1s": 0,
		now.Add(-2 * time.Hour).Format(time.RFC3339):        2,
		now.Add(-24 * time.Hour).Format("2006-01-02 15:04"): 3,
	} {
		var s sinceFlag
		if err := s.Set(text); err != nil {
			t.Fatal(err)
		}
		if got := after(&s, events); len(got) != want {
			t.Errorf("--since %s lists %d events, want %d", text, len(got), want)
		}
		if s.String() != text {
			t.Errorf("--since %s is %q", text, s.String())
		}
	}
	if got := after(&sinceFlag{}, events); len(got) != 3 {
		t.Errorf("without --since: %d events, want 3", len(got))
	}
	for _, text := range []string{"", "1.5", "-3", "yesterday"} {
		if err := new(sinceFlag).Set(text); err == nil {
			t.Errorf("--since %q is accepted", text)
		}
	}
}

func TestClockIn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 17, 0, 0, 0, time.UTC)
	for zone, want := range map[string]string{
		"Europe/Berlin": "2026-11-26 18:00:00 CET", "UTC": "2026-11-26 17:00:00 UTC", "Mars/Base": "2026-11-26 17:00:00 UTC",
	} {
		if got := clockIn(zone, at); got != want {
			t.Errorf("in %s: %s, want %s", zone, got, want)
		}
	}
}
