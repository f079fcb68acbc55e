package cli

import (
	"slices"
	"strings"
)

// Choice is a flag that takes one of a few words.
type Choice struct {
	Value *string
	Of    []string
}

// String returns the chosen word.
func (c *Choice) String() string {
	if c.Value == nil {
		return ""
	}
	return *c.Value
}

// Type returns the word for the value in help texts.
func (c *Choice) Type() string { return "word" }

// Set chooses a word, or returns a usage error with a proposal.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		e := Usage("unknown value %q", s)
		e.Hint = didYouMean(nearest(s, c.Of), "one of "+strings.Join(c.Of, ", "))
		return e
	}
	*c.Value = s
	return nil
}
