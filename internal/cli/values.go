package cli

import (
	"fmt"
	"time"

	"headroom/units"
)

// Unknown is how a value that is not known looks on a screen; in JSON it is null.
const Unknown = "-"

// Watts is p on a screen: watts with one decimal, no scaling ("190.0 W").
func Watts(p units.Power) string { return fmt.Sprintf("%.1f W", p.Watts()) }

// SignedWatts is a change of power on a screen ("-400.0 W", "+1.5 W").
func SignedWatts(p units.Power) string { return fmt.Sprintf("%+.1f W", p.Watts()) }

// Opt prints a value that may be unknown: f of it, or "-".
func Opt[T any](v *T, f func(T) string) string {
	if v == nil {
		return Unknown
	}
	return f(*v)
}

// Known is v for JSON: a pointer to it, or nil (null) when it is not known.
func Known[T any](v T, known bool) *T {
	if !known {
		return nil
	}
	return &v
}

// Percent is a ratio (0 to 1) on a screen ("81 %").
func Percent(ratio float64) string { return fmt.Sprintf("%.0f %%", 100*ratio) }

// Age is a span of time on a screen: "4.1s" below a minute, then "4m05s",
// "3h04m", "3d04h". A negative span is printed as "0.0s".
func Age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 59950*time.Millisecond: // what rounds to 60.0s is a minute
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		s := int(d.Round(time.Second) / time.Second)
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case d < 24*time.Hour:
		m := int(d / time.Minute)
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	default:
		h := int(d / time.Hour)
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	}
}

// Clock is a time on a screen: local time with its zone ("2026-11-21 14:02:11 CET").
func Clock(t time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return t.Local().Format(time.DateTime + " MST")
}
