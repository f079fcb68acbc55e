// Package config reads Headroom's YAML files strictly.
//
// The one idea: a configuration is either understood completely or refused with
// the place and the way out. An unknown key, a repeated key, a quantity without
// its unit, a second document: each is a *cli.Error with exit code 2 that names
// file, line and column.
//
// Foreign input is bounded: size, lines, depth, and no anchors, which a few bytes can blow
// up to gigabytes. What is over a bound is refused before the YAML library builds anything.
//
// The target's own values are its defaults: keys that the file does not have
// leave them as they are. The package knows no environment variables and no
// search paths.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// Load reads the file at path into the struct that into points to. Every error
// is a *cli.Error with exit code 2.
func Load(path string, into any) error {
	data, err := read(path)
	if err != nil {
		return cannotRead(path, err)
	}
	return Decode(path, data, into)
}

func read(path string) ([]byte, error) { return ReadFile(path, maxBytes+1) }

// errNoFile is what is not a regular file: a pipe, a device or a folder.
var errNoFile = errors.New("not a regular file")

// ReadFile reads at most as many bytes of a regular file as most says. Anything else is
// ErrNoFile at once: a FIFO would hold its reader until somebody writes, and a device
// has no end.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errNoFile}
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

func cannotRead(path string, err error) *cli.Error {
	e := &cli.Error{Code: "config", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("%s: %v", path, bare(err))}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Message, e.Hint = path+": no such file", "write it, or name another one on the command line"
	case errors.Is(err, errNoFile):
		e.Hint = "write it to a file and name that"
	case errors.Is(err, fs.ErrPermission):
		e.Hint = "let this user read it, or run as one who may"
	}
	return e
}

// bare is err without the path that os puts in front of it.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Decode reads data into the struct that into points to; name stands for the
// file in errors. An empty document leaves the defaults. Every error is a
// *cli.Error with exit code 2. into is unchanged only when there is no error:
// throw it away otherwise.
func Decode(name string, data []byte, into any) error {
	if over, err := boundedSafely(data); err != nil {
		return explain(name, err, nil, into)
	} else if over != nil {
		return over.refusal(name)
	}
	file, err := parse(data)
	if err != nil {
		return explain(name, err, nil, into)
	}
	body, err := onlyDocument(name, file)
	if err != nil || body == nil {
		return err
	}
	if tag := firstTag(body); tag != nil {
		return &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: at(name, tag) + ": a YAML tag", Hint: "remove it; the keys say which type a value has"}
	}
	err = decode(data, into)
	if err != nil && !errors.Is(err, io.EOF) {
		return explain(name, err, body, into)
	}
	return nil
}

// errParser is a document that the YAML library cannot work on.
var errParser = errors.New("not understood by the YAML parser")

// boundedSafely, parse and decode guard against panics of the library on malformed documents: a
// scheduler reads job files that anybody may have written.
func boundedSafely(data []byte) (over *errBound, err error) {
	defer guard(&err)
	return bounded(data), nil
}

func parse(data []byte) (file *ast.File, err error) {
	defer guard(&err)
	return parser.ParseBytes(data, 0)
}

func decode(data []byte, into any) (err error) {
	defer guard(&err)
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			ast.Walk(alone{}, doc.Body)
			return yaml.NewDecoder(bytes.NewReader(nil), yaml.Strict()).DecodeFromNode(doc.Body, into)
		}
	}
	return nil
}

// alone cuts scalars off from the tokens around them. For each value with an
// UnmarshalYAML of its own, a power or a duration, the library writes the value's text anew, and
// for that walks over all tokens that hang together: a second for 600 values.
type alone struct{}

// Visit implements ast.Visitor.
func (a alone) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.LiteralNode: // its text begins after a token of its own
		return nil
	case ast.ScalarNode:
		n.GetToken().Prev, n.GetToken().Next = nil, nil
	}
	return a
}

func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", errParser, r)
	}
}

// firstTag is the first explicit type (!!int, !x) below node, or nil.
func firstTag(node ast.Node) ast.Node {
	tags := ast.Filter(ast.TagType, node)
	if len(tags) == 0 {
		return nil
	}
	return tags[0]
}

// onlyDocument is the body of the one document with content, or nil.
func onlyDocument(name string, file *ast.File) (ast.Node, error) {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &cli.Error{
				Code: "config", Exit: cli.ExitUsage, Message: at(name, doc.Body) + ": a second document",
				Hint: "keep one document in the file, without a --- line in the middle",
			}
		}
		body = doc.Body
	}
	return body, nil
}

// explain turns what the YAML library found into the two-line error.
func explain(name string, err error, body ast.Node, into any) *cli.Error {
	e := &cli.Error{Code: "config", Exit: cli.ExitUsage, Err: err}
	positioned, ok := errors.AsType[yaml.Error](err)
	if !ok {
		place := name
		if body != nil {
			if bad := refused(body, reflect.TypeOf(into)); bad != nil {
				place = at(name, bad)
			}
		}
		e.Message, e.Hint = split(place, err)
		return e
	}
	place := name
	if t := positioned.GetToken(); t != nil && t.Position != nil {
		place = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
	}
	e.Message = place + ": " + plain(positioned)
	e.Hint = hintFor(positioned, body, into)
	return e
}

// split makes message and hint of an error that a value's own type returned.
func split(place string, err error) (message, hint string) {
	if own, ok := errors.AsType[*cli.Error](err); ok {
		return place + ": " + own.Message, own.Hint
	}
	if problem, hint, ok := cli.Quantity(err); ok {
		return place + ": " + problem, cmp.Or(hint, "correct the value")
	}
	return place + ": " + err.Error(), "correct the value"
}

func at(name string, node ast.Node) string {
	t := node.GetToken()
	if t == nil || t.Position == nil {
		return name
	}
	return fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
}
