package units

import (
	"strconv"
	"strings"
)

// String returns p in watts with one decimal, rounded ("190.0 W").
func (p Power) String() string { return fixed(int64(p), int64(Watt), 1) + " W" }

// String returns e in kilojoules with two decimals, rounded ("6.31 kJ").
func (e Energy) String() string { return fixed(int64(e), int64(Kilojoule), 2) + " kJ" }

// String returns f in whole megahertz, rounded ("2410 MHz").
func (f Freq) String() string { return fixed(int64(f), int64(Megahertz), 0) + " MHz" }

// Exact returns p without loss: ParsePower of it is p, for every p of at least 0.
func (p Power) Exact() string { return exact(int64(p), int64(Watt)) + "W" }

// Exact returns e without loss: ParseEnergy of it is e, for every e of at least 0.
func (e Energy) Exact() string { return exact(int64(e), int64(Joule)) + "J" }

// Exact returns f without loss: ParseFreq of it is f, for every f of at least 0.
func (f Freq) Exact() string { return exact(int64(f), int64(Megahertz)) + "MHz" }

// UnmarshalYAML reads a power with its unit from a configuration file.
func (p *Power) UnmarshalYAML(b []byte) error { return p.Set(scalar(b)) }

// UnmarshalYAML reads an energy with its unit from a configuration file.
func (e *Energy) UnmarshalYAML(b []byte) error { return e.Set(scalar(b)) }

// UnmarshalYAML reads a frequency with its unit from a configuration file.
func (f *Freq) UnmarshalYAML(b []byte) error { return f.Set(scalar(b)) }

// MarshalYAML writes p so that UnmarshalYAML reads the same power.
func (p Power) MarshalYAML() ([]byte, error) { return []byte(p.Exact()), nil }

// MarshalYAML writes e so that UnmarshalYAML reads the same energy.
func (e Energy) MarshalYAML() ([]byte, error) { return []byte(e.Exact()), nil }

// MarshalYAML writes f so that UnmarshalYAML reads the same frequency.
func (f Freq) MarshalYAML() ([]byte, error) { return []byte(f.Exact()), nil }

// Set reads a power with its unit from a command line; p is unchanged on error.
func (p *Power) Set(s string) error { return set(p, s, ParsePower) }

// Set reads an energy with its unit from a command line; e is unchanged on error.
func (e *Energy) Set(s string) error { return set(e, s, ParseEnergy) }

// Set reads a frequency with its unit from a command line; f is unchanged on error.
func (f *Freq) Set(s string) error { return set(f, s, ParseFreq) }

// Type is the word for the value in the help of a flag.
func (p *Power) Type() string { return "power" }

// Type is the word for the value in the help of a flag.
func (e *Energy) Type() string { return "energy" }

// Type is the word for the value in the help of a flag.
func (f *Freq) Type() string { return "frequency" }

func set[T any](to *T, s string, parse func(string) (T, error)) error {
	v, err := parse(s)
	if err != nil {
		return err
	}
	*to = v
	return nil
}

// scalar returns the text of a plain or quoted YAML scalar. Quantities need no escapes, so
// none are supported.
func scalar(b []byte) string {
	s := strings.TrimSpace(string(b))
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		s = s[1 : len(s)-1]
	}
	return s
}

// magnitude returns |v| and its sign, also for the smallest int64.
func magnitude(v int64) (u uint64, sign string) {
	if v < 0 {
		return uint64(-(v + 1)) + 1, "-"
	}
	return uint64(v), ""
}

// fixed returns v/unit with a number of decimals, halves rounded away from zero. It uses
// integers, so that the result never depends on binary fractions.
func fixed(v, unit int64, decimals int) string {
	u, sign := magnitude(v)
	step := uint64(unit)
	for range decimals {
		step /= 10
	}
	n := u / step
	if u%step >= (step+1)/2 && step > 1 {
		n++
	}
	if n == 0 {
		sign = ""
	}
	s := strconv.FormatUint(n, 10)
	if decimals == 0 {
		return sign + s
	}
	for len(s) <= decimals {
		s = "0" + s
	}
	return sign + s[:len(s)-decimals] + "." + s[len(s)-decimals:]
}

// exact returns v/unit with as many decimals as needed; unit is a power of ten.
func exact(v, unit int64) string {
	u, sign := magnitude(v)
	scale := uint64(unit)
	s := sign + strconv.FormatUint(u/scale, 10)
	rest := u % scale
	if rest == 0 {
		return s
	}
	digits := strconv.FormatUint(scale+rest, 10)[1:]
	return s + "." + strings.TrimRight(digits, "0")
}
