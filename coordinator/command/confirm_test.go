package command_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// A raise needs --yes, one above the highest budget ever the value again; a cut needs neither.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	addr, dir := secureServer(t)
	as := []string{
		"--addr", addr, "--ca", filepath.Join(dir, "ca.crt"), "--cert", filepath.Join(dir, "mia.crt"), "--key", filepath.Join(dir, "mia.key"),
	}
	set := func(args ...string) []string { return append(append(args, as...), "--wait", "0s") }
	say := func(want int, word string, args ...string) {
		t.Helper()
		code, out, errs := run(t, args...)
		if code != want || !strings.Contains(out+errs, word) {
			t.Errorf("%v ended with %d, want %d with %q:\n%s%s", args, code, want, word, out, errs)
		}
	}
	good(t, set("budget", "set", "700W")...) // a cut; it waits for the server as well
	say(2, "confirmation required: raise site/lab from 700.0 W to 900.0 W\nhint: use --yes", set("budget", "set", "900W")...)
	good(t, set("budget", "set", "900W", "--yes")...)
	say(2, "above the highest budget that it ever had, 1000.0 W\nhint: use --confirm 100000W", set("budget", "set", "100kW", "--yes")...)
	say(2, "differs from the budget", set("budget", "set", "100kW", "--confirm", "10kW")...)
	good(t, set("budget", "set", "100kW", "--dry-run")...)
	good(t, set("budget", "set", "1100W", "--confirm", "1.1kW")...)
	good(t, set("budget", "set", "1kW")...)
	good(t, set("budget", "set", "1100W", "--yes")...)

	night := []string{"budget", "schedule", "add", "0 18 * * *"}
	say(2, "--confirm 99000W", append(append(night, "99kW", "--name", "night", "--yes"), as...)...)
	good(t, append(append(night, "900W", "--name", "night"), as...)...)
	say(2, "confirmation required: budget schedule remove", append([]string{"budget", "schedule", "remove", "night"}, as...)...)
	good(t, append([]string{"budget", "schedule", "remove", "night", "--yes"}, as...)...)

	good(t, append([]string{"domain", "set", "site/lab", "--unmanaged", "180W"}, as...)...)
	say(2, "frees 180.0 W in site/lab (unmanaged 180.0 W -> 0.0 W", append([]string{"domain", "set", "site/lab", "--unmanaged", "0W"}, as...)...)
	for _, args := range [][]string{{"policy", "set", "progress"}, {"sprint", "budget", "6kJ", "--refill", "20W"}, {"domain", "set", "site/lab", "--rating", "5kW"}} {
		say(2, "use --yes for non-interactive use", append(args, as...)...)
		good(t, append(append(args, "--yes"), as...)...)
	}
}
