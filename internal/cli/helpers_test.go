package cli_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"headroom/internal/cli"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 warnings": cli.Count(0, "warning"), "1 warning": cli.Count(1, "warning"), "2 warnings": cli.Count(2, "warning"),
		"2 policies": cli.Count(2, "policy"), "3 classes": cli.Count(3, "class"), "2 days": cli.Count(2, "day"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h":                   now.Add(-2 * time.Hour),
		"2026-11-26T14:00:00Z": now.Add(-time.Hour),
		"2026-11-26 14:00":     time.Date(2026, 11, 26, 14, 0, 0, 0, time.Local),
		"2026-11-26":           time.Date(2026, 11, 26, 0, 0, 0, 0, time.Local),
	} {
		var s cli.Since
		if err := s.Set(text); err != nil || !s.Time(now).Equal(want) || !s.IsSet() {
			t.Errorf("%q: %v, %v, want %v", text, s.Time(now), err, want)
		}
	}
	for _, text := range []string{"", "10", "-2h", "yesterday", "2026-13-01"} {
		if err := new(cli.Since).Set(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if err := new(cli.Since).Set("10"); err.Error() != `--since "10" needs a unit: 10s` {
		t.Errorf("bare number: %v", err)
	}
	if age := new(cli.Since).Age(now); age != 0 {
		t.Errorf("not set: age %v", age)
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	all := cli.Checks{
		{Name: "config", State: cli.CheckOK, Text: "/etc/headroom/x.yaml"},
		{Name: "tls", State: cli.CheckWarn, Text: "no certificate", Hint: "coordinator tls cert create"},
	}
	var b bytes.Buffer
	if err := all.Print(&b, &cli.Output{}); err != nil {
		t.Fatal(err)
	}
	want := "ok    config  /etc/headroom/x.yaml\nwarn  tls     no certificate\n      hint: coordinator tls cert create\n1 warning\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	failed := append(all, cli.Check{Name: "files", State: cli.CheckFail, Text: "key not readable"})
	for name, c := range map[string]struct {
		err  error
		exit int
	}{
		"machine, warning": {all.Verdict(), cli.ExitDegraded}, "machine, failure": {failed.Verdict(), cli.ExitFailed},
		"config, failure": {failed.ConfigVerdict(), cli.ExitUsage},
	} {
		if e, ok := errors.AsType[*cli.Error](c.err); !ok || e.Exit != c.exit {
			t.Errorf("%s: %v, want exit %d", name, c.err, c.exit)
		}
	}
	if err := all.ConfigVerdict(); err != nil {
		t.Errorf("a warning of a configuration is an error: %v", err)
	}
}
