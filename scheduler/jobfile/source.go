package jobfile

import (
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"headroom/internal/cli"
)

// Source finds the positions of keys for error texts.
type Source struct {
	file string
	data []byte
}

// NewSource returns the source of a YAML file.
func NewSource(file string, data []byte) Source { return Source{file, data} }

// Problem is a *cli.Error under construction.
type Problem struct{ *cli.Error }

// WithHint returns the error with a hint.
func (e Problem) WithHint(text string) *cli.Error {
	e.Hint = text
	return e.Error
}

// ErrorAt returns an error about a key, such as "map.input" or "map.command[0]"; the empty key is the whole file.
func (s Source) ErrorAt(key, format string, args ...any) Problem {
	where := s.file
	if line, column, ok := s.position(key); ok {
		where = fmt.Sprintf("%s:%d:%d", s.file, line, column)
	}
	return Problem{&cli.Error{Code: "job-file", Exit: cli.ExitUsage, Message: where + ": " + fmt.Sprintf(format, args...)}}
}

// Has reports whether the file has the key.
func (s Source) Has(key string) bool {
	_, _, ok := s.position(key)
	return ok
}

func (s Source) position(key string) (line, column int, ok bool) {
	if key == "" {
		return 0, 0, false
	}
	path, err := yaml.PathString("$." + key)
	if err != nil {
		return 0, 0, false
	}
	file, err := parser.ParseBytes(s.data, 0)
	if err != nil {
		return 0, 0, false
	}
	node, err := path.FilterFile(file)
	if err != nil || node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 0, 0, false
	}
	p := node.GetToken().Position
	return p.Line, p.Column, true
}
