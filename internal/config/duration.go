package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
)

// Duration is a span of time in a configuration file; the file must give its
// unit: 250ms, 10s, 1h30m.
type Duration time.Duration

// Std is d as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is d as the file may say it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalYAML writes d with its unit.
func (d Duration) MarshalYAML() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalYAML reads a duration of at least 0 with its unit.
func (d *Duration) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	v, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// ParseDuration reads a duration of at least 0 with its unit. An error is a
// *cli.Error with exit code 2 and a proposal.
func ParseDuration(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, badDuration(text, "a duration needs a unit", "did you mean "+text+"s?")
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return 0, badDuration(text, "not a duration", "write it as 250ms, 10s, 5m or 1h30m")
	}
	if v < 0 {
		return 0, badDuration(text, "a duration must not be negative", "did you mean "+strings.TrimPrefix(text, "-")+"?")
	}
	return v, nil
}

func badDuration(text, problem, hint string) *cli.Error {
	return Bad(hint, "%q: %s", text, problem)
}

// Bad is a refusal of a configuration: what is wrong with it, and a way out.
func Bad(hint, format string, args ...any) *cli.Error {
	return &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}
