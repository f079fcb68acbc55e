package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// Since is the value of --since: a duration before now ("2h") or a time
// (RFC 3339, or "2026-11-26 14:00" in local time). Its zero value is not set.
type Since struct {
	text string
	ago  time.Duration
	at   time.Time
}

// Flag adds --since to cmd; what is listed by it, for example "events".
func (s *Since) Flag(cmd *cobra.Command, what string) {
	cmd.Flags().Var(s, "since", what+` after this time: a duration ("2h") or a time ("2026-11-26 14:00" local, or RFC 3339)`)
}

// IsSet reports whether the operator gave --since.
func (s *Since) IsSet() bool { return s.text != "" }

// Time returns the start of the period; it is zero when --since is not set.
func (s *Since) Time(now time.Time) time.Time {
	if s.ago > 0 {
		return now.Add(-s.ago)
	}
	return s.at
}

// Age returns the length of the period until now; it is 0 when --since is not set.
func (s *Since) Age(now time.Time) time.Duration {
	if !s.IsSet() {
		return 0
	}
	return now.Sub(s.Time(now))
}

// String returns the value as it was given.
func (s *Since) String() string { return s.text }

// Type returns the word for the value in help texts.
func (s *Since) Type() string { return "duration|time" }

// Set parses the value; it returns a usage error for anything else.
func (s *Since) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil {
		if ago <= 0 {
			return Usage("--since %s: the duration must be above 0", text)
		}
		*s = Since{text: text, ago: ago}
		return nil
	}
	at, ok := parseTime(text)
	if !ok {
		e := Usage("--since %q is neither a duration nor a time", text)
		e.Hint = `use a duration such as 2h, or a time such as "2026-11-26 14:00" or 2026-11-26T14:00:00Z`
		if bareNumber(text) {
			e = Usage("--since %q needs a unit: %ss", text, text)
			e.Hint = `use a duration such as 2h`
		}
		return e
	}
	*s = Since{text: text, at: at}
	return nil
}

// parseTime parses RFC 3339, or a date with an optional time of day in local time.
func parseTime(text string) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// bareNumber reports whether text is a number without a unit.
func bareNumber(text string) bool {
	digits := false
	for _, r := range text {
		switch {
		case r >= '0' && r <= '9':
			digits = true
		case r != '.' && r != '-':
			return false
		}
	}
	return digits
}

// Order is the order of a history: the oldest entry first, or with --reverse the
// newest first.
type Order struct{ reverse bool }

// Flag adds --reverse to cmd.
func (o *Order) Flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.reverse, "reverse", false, "print the newest entry first")
}

// Ordered returns entries, which are sorted with the oldest first, in the order
// that was asked for.
func Ordered[T any](o *Order, entries []T) []T {
	if !o.reverse {
		return entries
	}
	out := slices.Clone(entries)
	slices.Reverse(out)
	return out
}
