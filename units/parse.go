package units

import (
	"fmt"
	"math/big"
	"strings"
)

// ParseError describes why a text is not a quantity.
type ParseError struct {
	Input      string // the whole text
	Pos        int    // position of the error, in characters, counted from 1
	Problem    string // what is wrong, without the text itself
	Suggestion string // a valid text that was probably meant; may be empty
}

// Error returns one line: the text, the position, the problem and the suggestion.
func (e *ParseError) Error() string {
	s := fmt.Sprintf("%q: position %d: %s", shown(e.Input), e.Pos, e.Problem)
	if e.Suggestion != "" {
		s += "; did you mean " + e.Suggestion + "?"
	}
	return s
}

// maxInput bounds the text of a quantity; the longest exact one has 26 characters.
const maxInput = 64

// shown truncates a long text for an error line.
func shown(s string) string {
	if len(s) <= maxInput {
		return s
	}
	return s[:maxInput] + "..."
}

// scale is one unit, num/den base units.
type scale struct {
	name     string
	num, den int64
}

// kind is a physical dimension with the units it is written in.
type kind struct {
	article  string // "a power", for messages
	usual    string // the unit of the suggestion for a bare number
	smallest string // the base unit, for messages
	scales   []scale
}

func powerKind() kind {
	return kind{article: "a power", usual: "W", smallest: "1 uW", scales: []scale{
		{"W", int64(Watt), 1},
		{"kW", int64(Kilowatt), 1},
		{"MW", 1000 * int64(Kilowatt), 1},
		{"mW", int64(Milliwatt), 1},
		{"uW", int64(Microwatt), 1},
	}}
}

func energyKind() kind {
	return kind{article: "an energy", usual: "J", smallest: "1 uJ", scales: []scale{
		{"J", int64(Joule), 1},
		{"kJ", int64(Kilojoule), 1},
		{"MJ", 1000 * int64(Kilojoule), 1},
		{"mJ", int64(Millijoule), 1},
		{"uJ", int64(Microjoule), 1},
		{"Wh", 3600 * int64(Joule), 1},
		{"kWh", 3600 * int64(Kilojoule), 1},
	}}
}

func freqKind() kind {
	return kind{article: "a frequency", usual: "MHz", smallest: "1 kHz", scales: []scale{
		{"MHz", int64(Megahertz), 1}, {"GHz", int64(Gigahertz), 1}, {"kHz", int64(Kilohertz), 1}, {"Hz", 1, 1000},
	}}
}

// ParsePower reads a power of at least 0 with its unit: W, kW, MW, mW or uW.
// Fractions are exact; a value finer than 1 uW is refused, not rounded. The error is a
// *ParseError.
func ParsePower(s string) (Power, error) {
	v, err := parse(s, powerKind())
	return Power(v), err
}

// ParseEnergy reads an energy of at least 0 with its unit: J, kJ, MJ, mJ, uJ, Wh
// or kWh. Fractions are exact; a value finer than 1 uJ is refused, not rounded. The error
// is a *ParseError.
func ParseEnergy(s string) (Energy, error) {
	v, err := parse(s, energyKind())
	return Energy(v), err
}

// ParseFreq reads a frequency of at least 0 with its unit: Hz, kHz, MHz or GHz.
// A value finer than 1 kHz, the unit of the kernel, is refused, not rounded. The error is
// a *ParseError.
func ParseFreq(s string) (Freq, error) {
	v, err := parse(s, freqKind())
	return Freq(v), err
}

// parse reads a number and a unit of kind k. The grammar: digits, at most one
// point with digits behind it, spaces, unit; spaces around it are ignored.
func parse(s string, k kind) (int64, error) {
	p := parser{input: s, kind: k}
	if len(s) > maxInput {
		return 0, p.fail(maxInput+1, "longer than any "+strings.TrimLeft(k.article, "an "), "")
	}
	p.skipSpaces()
	digits, fraction, err := p.number()
	if err != nil {
		return 0, err
	}
	p.skipSpaces()
	u, err := p.unit(digits, fraction)
	if err != nil {
		return 0, err
	}
	return p.value(digits, fraction, u)
}

type parser struct {
	input string
	at    int // byte offset of what is read next
	kind  kind
}

// fail returns the error at byte offset pos.
func (p *parser) fail(pos int, problem, suggestion string) error {
	chars := len([]rune(p.input[:min(pos, len(p.input))]))
	return &ParseError{Input: p.input, Pos: chars + 1, Problem: problem, Suggestion: suggestion}
}

func (p *parser) skipSpaces() {
	for p.at < len(p.input) && p.input[p.at] == ' ' {
		p.at++
	}
}

func (p *parser) digits() string {
	from := p.at
	for p.at < len(p.input) && p.input[p.at] >= '0' && p.input[p.at] <= '9' {
		p.at++
	}
	return p.input[from:p.at]
}

// number reads the digits before and behind the point.
func (p *parser) number() (digits, fraction string, err error) {
	if p.at == len(p.input) {
		return "", "", p.fail(p.at, "empty; "+p.kind.article+" is a number and a unit", "")
	}
	start := p.at
	if p.input[p.at] == '-' {
		return "", "", p.fail(start, p.kind.article+" must not be negative", "")
	}
	digits = p.digits()
	if digits == "" {
		return "", "", p.fail(p.at, p.kind.article+" starts with a digit", "")
	}
	if p.at < len(p.input) && p.input[p.at] == '.' {
		p.at++
		if fraction = p.digits(); fraction == "" {
			return "", "", p.fail(p.at, "a digit must follow the point", "")
		}
	}
	return digits, fraction, nil
}

// unit reads the rest of the text.
func (p *parser) unit(digits, fraction string) (scale, error) {
	rest := strings.TrimRight(p.input[p.at:], " ")
	for _, u := range p.kind.scales {
		if rest == u.name {
			return u, nil
		}
	}
	number := digits
	if fraction != "" {
		number += "." + fraction
	}
	switch {
	case rest == "":
		return scale{}, p.fail(len(strings.TrimRight(p.input, " ")), p.kind.article+" needs a unit", number+p.kind.usual)
	case rest[0] == ',':
		return scale{}, p.fail(p.at, "a comma; fractions are written with a point", p.withPoint(number, rest[1:]))
	case !isLetter(rest[0]):
		return scale{}, p.fail(p.at, fmt.Sprintf("unexpected %q", firstRune(rest)), "")
	}
	if near := p.nearUnit(rest); near != "" {
		return scale{}, p.fail(p.at, fmt.Sprintf("unknown unit %q", rest), number+near)
	}
	return scale{}, p.fail(p.at, fmt.Sprintf("unknown unit %q; use %s", rest, p.names()), "")
}

// withPoint returns the text with a point for its comma, if that was meant. Three digits
// behind it may be thousands: then there is no suggestion.
func (p *parser) withPoint(number, rest string) string {
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if strings.Contains(number, ".") || digits == 0 || digits == 3 {
		return ""
	}
	proposal := number + "." + rest
	if _, err := parse(proposal, p.kind); err != nil {
		return ""
	}
	return proposal
}

// nearUnit returns the unit that differs from text only in case or by its long name. mW and
// MW differ only in case: between them there is no suggestion.
func (p *parser) nearUnit(text string) string {
	near := ""
	for _, u := range p.kind.scales {
		if strings.EqualFold(text, u.name) || (u.name == p.kind.usual && longName(text, u.name)) {
			if near != "" {
				return ""
			}
			near = u.name
		}
	}
	return near
}

func longName(text, unit string) bool {
	text = strings.TrimSuffix(strings.ToLower(text), "s")
	return (unit == "W" && text == "watt") || (unit == "J" && text == "joule") || (unit == "MHz" && text == "megahertz")
}

func (p *parser) names() string {
	names := make([]string, 0, len(p.kind.scales))
	for _, u := range p.kind.scales {
		names = append(names, u.name)
	}
	return strings.Join(names, ", ")
}

// value is exact: all digits times the unit, divided by a power of ten.
func (p *parser) value(digits, fraction string, u scale) (int64, error) {
	v, ok := new(big.Int).SetString(digits+fraction, 10)
	if !ok {
		return 0, p.fail(0, "not a number", "")
	}
	v.Mul(v, big.NewInt(u.num))
	den := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)
	den.Mul(den, big.NewInt(u.den))
	v, rest := v.QuoRem(v, den, new(big.Int))
	switch {
	case rest.Sign() != 0:
		return 0, p.fail(0, "finer than "+p.kind.smallest, "")
	case !v.IsInt64():
		return 0, p.fail(0, "too large", "")
	}
	return v.Int64(), nil
}

func isLetter(b byte) bool { return (b|0x20 >= 'a' && b|0x20 <= 'z') || b >= 0x80 }

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}
