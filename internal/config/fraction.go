package config

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"headroom/internal/cli"
)

// ErrNotFraction says that a text is not a fraction above 0 and at most 1.
var ErrNotFraction = errors.New("must be above 0 and at most 1 (100%)")

// ErrNotPart says that a text is not a part of a whole.
var ErrNotPart = errors.New("must be from 0 to 1 (100%)")

// Fraction is a part of a whole in a configuration file, above 0 and at most 1:
// 75% or 0.75.
type Fraction float64

// String is f as the file may say it.
func (f Fraction) String() string {
	return strconv.FormatFloat(math.Round(float64(f)*1e8)/1e6, 'f', -1, 64) + "%"
}

// MarshalYAML writes f in percent.
func (f Fraction) MarshalYAML() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalYAML reads a fraction above 0 and at most 1.
func (f *Fraction) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	x, err := ParseFraction(text)
	if err != nil {
		return &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: strconv.Quote(text) + ": " + err.Error(), Hint: "write it as 75% or 0.75", Err: err}
	}
	*f = Fraction(x)
	return nil
}

// ParseFraction reads "75%" or "0.75". An error is ErrNotFraction.
func ParseFraction(text string) (float64, error) {
	x, err := ParsePart(text)
	if err != nil || x == 0 {
		return 0, ErrNotFraction
	}
	return x, nil
}

// ParsePart reads a part of a whole, which may be 0: "75%" or "0.75". An error is ErrNotPart.
func ParsePart(text string) (float64, error) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, ErrNotPart
	}
	return x, nil
}
