// Claims: a number without a unit is refused with the place and a proposal; a
// fraction is exact or refused; what Exact writes is read back as the same
// value; no text makes a parser panic.
package units_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"headroom/units"
)

func TestParsePower(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]units.Power{
		"85W": 85 * units.Watt, "1.2kW": 1200 * units.Watt, "0W": 0, "250mW": 250 * units.Milliwatt,
		"2MW": 2000 * units.Kilowatt, "7uW": 7, "190.0 W": 190 * units.Watt, " 85W ": 85 * units.Watt,
		"0.000001W": 1, "0.1000000000W": 100 * units.Milliwatt, "9223372036854.775807W": math.MaxInt64,
	} {
		got, err := units.ParsePower(in)
		if err != nil || got != want {
			t.Errorf("ParsePower(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestParsePowerRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in      string
		pos     int
		problem string
		suggest string
	}{
		{"85", 3, "a power needs a unit", "85W"},
		{"1.5 ", 4, "a power needs a unit", "1.5W"},
		{"1,2kW", 2, "a comma; fractions are written with a point", "1.2kW"},
		{"1,200W", 2, "a comma; fractions are written with a point", ""},
		{"1,2", 2, "a comma; fractions are written with a point", ""},
		{"85w", 3, `unknown unit "w"`, "85W"},
		{"85 watts", 4, `unknown unit "watts"`, "85W"},
		{"3KW", 2, `unknown unit "KW"`, "3kW"},
		{"3mw", 2, `unknown unit "mw"; use W, kW, MW, mW, uW`, ""},
		{"3J", 2, `unknown unit "J"; use W, kW, MW, mW, uW`, ""},
		{"-5W", 1, "a power must not be negative", ""},
		{"", 1, "empty; a power is a number and a unit", ""},
		{"W", 1, "a power starts with a digit", ""},
		{".5W", 1, "a power starts with a digit", ""},
		{"1.W", 3, "a digit must follow the point", ""},
		{"1.2.3W", 4, `unexpected "."`, ""},
		{"0.0000001W", 1, "finer than 1 uW", ""},
		{"9223372036854.775808W", 1, "too large", ""},
		{"1e3W", 2, `unknown unit "e3W"; use W, kW, MW, mW, uW`, ""},
	} {
		_, err := units.ParsePower(c.in)
		got, ok := errors.AsType[*units.ParseError](err)
		if !ok {
			t.Errorf("ParsePower(%q) = %v, want a *ParseError", c.in, err)
			continue
		}
		want := &units.ParseError{Input: c.in, Pos: c.pos, Problem: c.problem, Suggestion: c.suggest}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("ParsePower(%q) (-want +got):\n%s", c.in, d)
		}
	}
}

func TestParseErrorReads(t *testing.T) {
	t.Parallel()
	_, err := units.ParsePower("85")
	if got, want := err.Error(), `"85": position 3: a power needs a unit; did you mean 85W?`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = units.ParsePower(strings.Repeat("1", 1000) + "W")
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("a text of 1000 characters gives %v", err)
	}
}

func TestParseEnergyAndFreq(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]units.Energy{
		"12kJ": 12 * units.Kilojoule, "0.5J": 500 * units.Millijoule, "1Wh": 3600 * units.Joule, "1.5kWh": 5400 * units.Kilojoule, "3MJ": 3000 * units.Kilojoule,
	} {
		if got, err := units.ParseEnergy(in); err != nil || got != want {
			t.Errorf("ParseEnergy(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]units.Freq{
		"2400MHz": 2400 * units.Megahertz, "2.4GHz": 2400 * units.Megahertz, "800000kHz": 800 * units.Megahertz, "5000Hz": 5,
	} {
		if got, err := units.ParseFreq(in); err != nil || got != want {
			t.Errorf("ParseFreq(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"500Hz", "2400", "2400Mhz"} {
		if _, err := units.ParseFreq(in); err == nil {
			t.Errorf("ParseFreq(%q) is accepted", in)
		}
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		(190 * units.Watt).String():                           "190.0 W",
		(-units.Power(49_999)).String():                       "0.0 W",
		units.Power(49_999).String():                          "0.0 W",
		units.Power(50_000).String():                          "0.1 W",
		(-400 * units.Watt).String():                          "-400.0 W",
		(1700*units.Watt + 949*units.Milliwatt).String():      "1700.9 W",
		units.Power(math.MinInt64).String():                   "-9223372036854.8 W",
		(6310 * units.Joule).String():                         "6.31 kJ",
		(2410 * units.Megahertz).String():                     "2410 MHz",
		(2410*units.Megahertz + 500*units.Kilohertz).String(): "2411 MHz",
		units.Power(85_500_000).Exact():                       "85.5W",
		units.Power(1).Exact():                                "0.000001W",
		units.Power(math.MinInt64).Exact():                    "-9223372036854.775808W",
		units.Freq(2_400_001).Exact():                         "2400.001MHz",
		units.Energy(12_000_000_000).Exact():                  "12000J",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What Exact writes, Set and UnmarshalYAML read back as the same value.
func TestExactComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Min(0).Draw(t, "v")
		var p units.Power
		var e units.Energy
		var f units.Freq
		err := errors.Join(
			p.Set(units.Power(v).Exact()),
			e.UnmarshalYAML([]byte(units.Energy(v).Exact())),
			f.UnmarshalYAML([]byte(`"`+units.Freq(v).Exact()+"\"\n")))
		if err != nil || int64(p) != v || int64(e) != v || int64(f) != v {
			t.Fatalf("%d came back as %d, %d, %d: %v", v, p, e, f, err)
		}
	})
}

// What a screen shows is at most half of its last digit away from the value.
func TestStringIsRounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := units.Power(rapid.Int64Range(0, 1<<50).Draw(t, "p"))
		shown, err := units.ParsePower(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if d := shown - p; d > 50*units.Milliwatt || d < -50*units.Milliwatt {
			t.Fatalf("%d uW is shown as %v", p, p)
		}
	})
}

// A refused value leaves the old one.
func TestSetKeepsOnError(t *testing.T) {
	t.Parallel()
	p := 85 * units.Watt
	if err := p.Set("90"); err == nil || p != 85*units.Watt {
		t.Errorf("p = %v, err = %v", p, err)
	}
}

func TestEnergyAndPower(t *testing.T) {
	t.Parallel()
	e := (100 * units.Watt).For(2 * time.Second)
	if e != 200*units.Joule || e.Over(2*time.Second) != 100*units.Watt || e.Over(0) != 0 {
		t.Errorf("100 W for 2 s is %v, over 2 s %v", e, e.Over(2*time.Second))
	}
	if units.FromWatts(-1.5).Watts() != -1.5 || units.FromJoules(2.5).Joules() != 2.5 || (2*units.Kilohertz).Hertz() != 2000 {
		t.Error("conversions to floats do not come back")
	}
}

func FuzzParsePower(f *testing.F)  { fuzz(f, units.ParsePower, units.Power.Exact) }
func FuzzParseEnergy(f *testing.F) { fuzz(f, units.ParseEnergy, units.Energy.Exact) }
func FuzzParseFreq(f *testing.F)   { fuzz(f, units.ParseFreq, units.Freq.Exact) }

// fuzz holds a parser to its word: a typed error with a position inside the text
// and a suggestion that parses, or a value that comes back.
func fuzz[T interface{ ~int64 }](f *testing.F, parse func(string) (T, error), exact func(T) string) {
	f.Helper()
	for _, s := range []string{"85W", "1.2kW", "12kJ", "2.4GHz", "85", "1,2kW", "-1W", "0.0000001W", "85w", " 1 W ", "9999999999999999999kWh", "é", "1µW"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parse(s)
		if err == nil {
			if again, err := parse(exact(v)); err != nil || again != v || v < 0 {
				t.Fatalf("%q is %d, which comes back as %d, %v", s, v, again, err)
			}
			return
		}
		e, ok := errors.AsType[*units.ParseError](err)
		if !ok || e.Pos < 1 || e.Pos > len([]rune(s))+1 {
			t.Fatalf("%q gives %v at %+v", s, err, e)
		}
		if e.Suggestion != "" {
			if _, err := parse(e.Suggestion); err != nil && !strings.Contains(err.Error(), "finer") && !strings.Contains(err.Error(), "large") &&
				!strings.Contains(err.Error(), "longer") {
				t.Fatalf("%q suggests %q: %v", s, e.Suggestion, err)
			}
		}
	})
}
