package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNodeSet bounds how many names one set may stand for.
const maxNodeSet = 100_000

// ParseNodeSet reads the folded form that NodeSet writes, and lists of names:
// "n[01-03,07]" and "n01,n02" stand for what they look like. The error is a usage
// error with its position.
func ParseNodeSet(text string) ([]string, error) {
	var out []string
	for rest, at := text, 0; rest != ""; {
		part, next := splitSet(rest)
		names, err := expand(part)
		if err != nil {
			return nil, Usage("node set %q at character %d: %v", text, at+1, err)
		}
		if out = append(out, names...); len(out) > maxNodeSet {
			return nil, Usage("node set %q stands for more than %d nodes", text, maxNodeSet)
		}
		at, rest = at+len(rest)-len(next), next
	}
	if len(out) == 0 {
		return nil, Usage("node set %q names no node", text)
	}
	return out, nil
}

// splitSet cuts at the first comma outside of brackets.
func splitSet(s string) (part, rest string) {
	depth := 0
	for i, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// expand is one part: a plain name, or one with a bracket of numbers and ranges.
func expand(part string) ([]string, error) {
	open, shut := strings.IndexByte(part, '['), strings.IndexByte(part, ']')
	switch {
	case part == "":
		return nil, fmt.Errorf("a name is missing")
	case open < 0 && shut < 0:
		return []string{part}, nil
	case open < 0 || shut < open || strings.ContainsAny(part[shut+1:], "[]") || strings.Contains(part[open+1:shut], "["):
		return nil, fmt.Errorf("%q: one pair of brackets is understood, e.g. n[01-12]", part)
	}
	var out []string
	for span := range strings.SplitSeq(part[open+1:shut], ",") {
		from, to, isRange := strings.Cut(span, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 32)
		b, err2 := strconv.ParseUint(to, 10, 32)
		if err != nil || err2 != nil || b < a || b-a >= maxNodeSet {
			return nil, fmt.Errorf("%q is no range of numbers, e.g. 01-12", span)
		}
		for n := a; n <= b; n++ {
			out = append(out, fmt.Sprintf("%s%0*d%s", part[:open], len(from), n, part[shut+1:]))
		}
	}
	return out, nil
}
