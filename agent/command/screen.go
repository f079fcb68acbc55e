package command

import (
	"fmt"
	"io"
	"time"

	"headroom/internal/cli"
	"headroom/units"
)

// The functions below format values for tables; an unknown value is cli.Unknown.

func watts(uw *int64) string {
	return cli.Opt(uw, func(v int64) string { return cli.Watts(units.Power(v)) })
}

func screenW(w *float64) string {
	return cli.Opt(w, func(v float64) string { return cli.Watts(units.FromWatts(v)) })
}

func screenKJ(j *float64) string {
	return cli.Opt(j, func(v float64) string { return units.FromJoules(v).String() })
}

func screenMHz(hz *float64) string {
	return cli.Opt(hz, func(v float64) string { return units.Freq(v / 1e3).String() })
}

func screenS(s *float64) string {
	return cli.Opt(s, func(v float64) string { return fmt.Sprintf("%.2fs", v) })
}

// screenAge formats an age or a remaining time.
func screenAge(s *float64) string {
	return cli.Opt(s, func(v float64) string { return cli.Age(time.Duration(v * float64(time.Second))) })
}

func screenText(s *string) string {
	return cli.Opt(s, func(v string) string { return v })
}

func megahertz(khz int64) string { return units.Freq(khz).String() }

func celsius(milli int64) string { return fmt.Sprintf("%.0f C", float64(milli)/1000) }

func age(ms int64) string { return cli.Age(time.Duration(ms) * time.Millisecond) }

// text returns nil for an empty text, which is unknown.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// printPairs writes one line for each name and its value.
func printPairs(w io.Writer, pairs [][2]string) error {
	for _, p := range pairs {
		if _, err := fmt.Fprintf(w, "%-10s %s\n", p[0], p[1]); err != nil {
			return err
		}
	}
	return nil
}
