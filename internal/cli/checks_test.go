// Claim: a check of a configuration file fails by its failures alone, in every program; a
// check of a machine or a cluster by its warnings, too.
package cli_test

import (
	"errors"
	"testing"

	"headroom/internal/cli"
)

func TestVerdictsOfChecks(t *testing.T) {
	t.Parallel()
	exit := func(err error) int {
		e, ok := errors.AsType[*cli.Error](err)
		if err == nil || !ok {
			return cli.ExitOK
		}
		return e.Exit
	}
	good, warn, bad := cli.Check{State: cli.CheckOK}, cli.Check{State: cli.CheckWarn}, cli.Check{State: cli.CheckFail}
	for name, c := range map[string]struct {
		checks          cli.Checks
		config, verdict int
	}{
		"none":     {nil, cli.ExitOK, cli.ExitOK},
		"good":     {cli.Checks{good}, cli.ExitOK, cli.ExitOK},
		"warnings": {cli.Checks{good, warn}, cli.ExitOK, cli.ExitDegraded},
		"failures": {cli.Checks{warn, bad}, cli.ExitUsage, cli.ExitFailed},
	} {
		if got := exit(c.checks.ConfigVerdict()); got != c.config {
			t.Errorf("%s: config check exits with %d, want %d", name, got, c.config)
		}
		if got := exit(c.checks.Verdict()); got != c.verdict {
			t.Errorf("%s: check exits with %d, want %d", name, got, c.verdict)
		}
	}
}
