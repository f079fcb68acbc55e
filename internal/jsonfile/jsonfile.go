// Package jsonfile reads the JSON files that commands take as input.
//
// The one idea: a file that is written by hand is read strictly, and errors have their position.
// Unknown fields, second documents and files above 16 MiB are refused. Errors in the file are usage
// errors (exit code 2) with line and column. The package writes nothing, and opens only the given
// file.
package jsonfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"headroom/internal/cli"
)

// fileMost bounds a file, bytes.
const fileMost = 16 << 20

// Bad is a mistake in an input file: exit code 2, with its place.
func Bad(file, format string, args ...any) *cli.Error {
	return &cli.Error{
		Code: "input", Exit: cli.ExitUsage, Message: Name(file) + ": " + fmt.Sprintf(format, args...),
		Hint: "correct the file; see --help for its format",
	}
}

// Name returns the name of a file for errors.
func Name(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// Read reads the one JSON document of a file, or of stdin for "-", strictly. Its errors name line and column, or
// the flag that named the file.
func Read(stdin io.Reader, flag, file string, into any) error {
	if file == "" {
		return cli.Usage("%s is required: a file, or - for stdin", flag)
	}
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return cli.Usage("%s: %w", flag, err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, fileMost+1))
	if err != nil {
		return cli.Usage("%s: %w", flag, err)
	}
	if len(data) > fileMost {
		return Bad(file, "larger than %d bytes", fileMost)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return Bad(Name(file)+place(data, err, dec.InputOffset()), "%s", Explain(err))
	}
	if dec.More() {
		return Bad(Name(file)+position(data, dec.InputOffset()+1), "a second document")
	}
	return nil
}

// place is where in data err was met; offset is how far the decoder came.
func place(data []byte, err error, offset int64) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = e.Offset
	} else if _, name, found := strings.Cut(err.Error(), "unknown field "); found {
		if at := bytes.Index(data, []byte(name)); at >= 0 {
			offset = int64(at) + 1
		}
	} else if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		offset = int64(len(data))
	}
	return position(data, offset)
}

// position is ":line:column" of the byte before offset.
func position(data []byte, offset int64) string {
	before := data[:max(0, min(int64(len(data)), offset)-1)]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf(":%d:%d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

// Explain returns a decoder's error in words.
func Explain(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s cannot be a %s", cmp.Or(e.Field, "the document"), e.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
