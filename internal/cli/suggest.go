package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"headroom/units"
)

// maxTypos is the largest edit distance of a suggestion.
const maxTypos = 2

// flagError turns an error of pflag into a usage error with a suggestion.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed
	}
	e := Usage("%s: %w", cmd.CommandPath(), err)
	e.Hint = cmd.CommandPath() + " --help lists the flags"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		e.Message = cmd.CommandPath() + ": unknown flag --" + unknown.GetSpecifiedName()
		e.Hint = flagHint(unknown.GetSpecifiedName(), flagNames(cmd), e.Hint)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		e.Message = cmd.CommandPath() + ": --" + invalid.GetFlag().Name + ": " + errText(invalid.Unwrap(), err)
		e.Hint = cmd.CommandPath() + " --help shows what --" + invalid.GetFlag().Name + " takes"
		if value := invalid.GetValue(); invalid.GetFlag().Value.Type() == "duration" && bareNumber(value) {
			e.Message = fmt.Sprintf("%s: --%s: %q needs a unit: %ss", cmd.CommandPath(), invalid.GetFlag().Name, value, value)
			e.Hint = didYouMean(value+"s", "")
		}
		if problem, hint, ok := Quantity(err); ok {
			e.Message = cmd.CommandPath() + ": --" + invalid.GetFlag().Name + ": " + problem
			e.Hint = cmp.Or(hint, e.Hint)
		}
	}
	return e
}

// flagHint proposes the flag that was probably meant. What begins with a digit is a
// value, for which no flag is proposed.
func flagHint(word string, flags []string, otherwise string) string {
	if isDigit(rune(word[0])) {
		return "a value stands without --: " + word
	}
	near := nearest(word, flags)
	if near == "" {
		return otherwise
	}
	return didYouMean("--"+near, otherwise)
}

// Quantity takes the *units.ParseError in err apart, for an error of two lines:
// what is wrong, and the proposal ("did you mean 85W?", or ""). ok reports whether
// there is one.
func Quantity(err error) (problem, hint string, ok bool) {
	found, ok := errors.AsType[*units.ParseError](err)
	if !ok {
		return "", "", false
	}
	bare := *found
	bare.Suggestion = ""
	return bare.Error(), didYouMean(found.Suggestion, ""), true
}

// errText is the inner error's text where there is one.
func errText(inner, outer error) string {
	if inner != nil {
		return inner.Error()
	}
	return outer.Error()
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}

// didYouMean is a hint with the proposal, or otherwise when there is none.
func didYouMean(proposal, otherwise string) string {
	if proposal == "" {
		return otherwise
	}
	return "did you mean " + proposal + "?"
}

// nearest returns the candidate closest to word, or "" when none is close.
func nearest(word string, candidates []string) string {
	best, bestAt := "", maxTypos+1
	for _, c := range candidates {
		d := typos(strings.ToLower(word), strings.ToLower(c))
		if len(word) >= 2 && strings.HasPrefix(strings.ToLower(c), strings.ToLower(word)) {
			d = min(d, 1)
		}
		// Short words need closer matches: a suggestion must share a letter.
		if d < bestAt && d < max(len(c), 2) {
			best, bestAt = c, d
		}
	}
	return best
}

// typos is the Levenshtein distance of a and b, in bytes.
func typos(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// Nearest returns the candidate closest to word, or "" when none is close: an edit
// distance of at most two, or word is its prefix.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }
