package originals

import (
	"fmt"
	"time"

	"headroom/ipmi"
	"headroom/units"
)

// EncodeLimit is the BMC's limit as the journal keeps it.
func EncodeLimit(l ipmi.Limit) string {
	return fmt.Sprintf("%d %t %d %d %d", int64(l.Power), l.Active, l.Action, l.Correction.Milliseconds(), int64(l.Period.Seconds()))
}

// DecodeLimit reads it.
func DecodeLimit(text string) (ipmi.Limit, error) {
	var power, correction, period int64
	var l ipmi.Limit
	if _, err := fmt.Sscanf(text, "%d %t %d %d %d", &power, &l.Active, &l.Action, &correction, &period); err != nil {
		return ipmi.Limit{}, fmt.Errorf("agent: saved limit of the BMC %q: %w", text, err)
	}
	l.Power, l.Correction, l.Period = units.Power(power), time.Duration(correction)*time.Millisecond, time.Duration(period)*time.Second
	return l, nil
}

// limitWords is a saved limit for an operator.
func limitWords(text string) string {
	l, err := DecodeLimit(text)
	switch {
	case err != nil:
		return "unreadable"
	case !l.Active:
		return "no limit"
	}
	return fmt.Sprintf("%v (exception action %v)", l.Power, l.Action)
}
