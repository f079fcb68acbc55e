package config

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"headroom/internal/cli"
)

// Bounds of a document. The YAML library takes time and memory that grow with the square
// of some of these, and without end with others (aliases); job files come from anybody who
// may submit. So every document is measured before the library builds anything from it.
const (
	// maxBytes bounds a file: the longest real configuration is some ten kilobytes.
	maxBytes = 256 << 10
	// maxLines bounds the lines: the library's lexer takes a folded text of n empty lines
	// n squared steps.
	maxLines = 6_000
	// maxTokens bounds keys, values and punctuation: a power tree of 1,000 domains has some
	// 13,000. The library's parser takes 70 kB of garbage for each key of so large a map.
	maxTokens = 16_000
	// deepest bounds how deep brackets and braces, dashes of one line and indented blocks
	// may be nested; ours have five levels.
	deepest = 32
)

// errBound is a document that is refused before it is parsed.
type errBound struct {
	line, column int
	what, hint   string
}

func (e *errBound) refusal(name string) *cli.Error {
	place := name
	if e.line > 0 {
		place = fmt.Sprintf("%s:%d:%d", name, e.line, e.column)
	}
	return &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: place + ": " + e.what, Hint: e.hint}
}

// bounded measures a document; nil is within the bounds.
func bounded(data []byte) *errBound {
	const wrongFile = "this is probably not the right file"
	if len(data) > maxBytes {
		return &errBound{what: fmt.Sprintf("larger than %d bytes", maxBytes), hint: wrongFile}
	}
	if n := bytes.Count(data, []byte{'\n'}) + bytes.Count(data, []byte{'\r'}); n > maxLines {
		return &errBound{line: maxLines, column: 1, what: fmt.Sprintf("more than %d lines", maxLines), hint: wrongFile}
	}
	return measure(lexer.Tokenize(string(data)))
}

// nesting is how deep a document is at one token.
type nesting struct {
	flow    int   // open brackets and braces
	dashes  int   // dashes of the line
	line    int   // that dashes counts
	columns []int // at which the open blocks begin
}

// measure refuses what the parser must not meet.
func measure(tokens token.Tokens) *errBound {
	var deep nesting
	for i, t := range tokens {
		var what, hint string
		switch depth := deep.after(t); {
		case i >= maxTokens:
			what, hint = fmt.Sprintf("more than %d keys, values and marks", maxTokens), "this is probably not the right file"
		case depth > deepest:
			what, hint = fmt.Sprintf("nested more than %d levels deep", deepest), "no setting is that deep; see the example of this file's man page"
		case t.Type == token.AnchorType, t.Type == token.AliasType, t.Type == token.MergeKeyType:
			what, hint = fmt.Sprintf("%q: anchors, aliases and merges are not read", t.Value), "write the value in each place"
		case t.Type == token.MappingKeyType:
			what, hint = "a key that begins with ?", "write it as KEY: VALUE"
		default:
			continue
		}
		return &errBound{line: t.Position.Line, column: t.Position.Column, what: what, hint: hint}
	}
	return nil
}

// after takes one token in and returns the depth there.
func (n *nesting) after(t *token.Token) int {
	if t.Position.Line != n.line {
		n.line, n.dashes = t.Position.Line, 0
	}
	switch t.Type { //nolint:exhaustive // the others nest nothing
	case token.MappingStartType, token.SequenceStartType:
		n.flow++
	case token.MappingEndType, token.SequenceEndType:
		n.flow = max(0, n.flow-1)
	case token.SequenceEntryType:
		n.dashes++
	case token.MappingValueType:
		if n.flow == 0 && t.Prev != nil {
			n.block(t.Prev.Position.Column)
		}
	}
	return max(n.flow, n.dashes, len(n.columns))
}

// block notes a key of a block at a column: deeper blocks are over.
func (n *nesting) block(column int) {
	for len(n.columns) > 0 && n.columns[len(n.columns)-1] >= column {
		n.columns = n.columns[:len(n.columns)-1]
	}
	n.columns = append(n.columns, column)
}
