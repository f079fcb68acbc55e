package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Error is a failure with its cause, a hint and an exit code. It is printed as two
// lines, or as one JSON object with -o json.
type Error struct {
	// Code is the stable name of the failure, for example "infeasible". Empty
	// stands for "failed".
	Code string
	// Exit is the exit code; 0 stands for ExitFailed.
	Exit int
	// Message is the cause in one sentence with its numbers. Empty stands for
	// the text of Err.
	Message string
	// Hint says in one sentence what to do; it may be empty.
	Hint string
	// RequestID is the id to retry with, where the command changes something.
	RequestID string
	// Err is the cause for errors.Is and errors.As; it may be nil.
	Err error
}

// Error returns the cause without the hint.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Err != nil:
		return e.Err.Error()
	default:
		return "failed"
	}
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Usage returns a usage error: code "usage", exit code 2.
func Usage(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: "usage", Exit: ExitUsage, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Failed returns an error without a code of its own: code "failed", exit code 1.
func Failed(hint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: "failed", Exit: ExitFailed, Message: err.Error(), Hint: hint, Err: errors.Unwrap(err)}
}

// asError finds the *Error in err, or makes one with exit code 1. Text that was
// wrapped around an *Error is kept in front of its message.
func asError(err error) *Error {
	found, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{Code: "failed", Exit: ExitFailed, Message: err.Error(), Err: err}
	}
	e := *found
	e.Message = err.Error()
	if e.Exit == ExitOK {
		e.Exit = ExitFailed
	}
	if e.Code == "" {
		e.Code = "failed"
	}
	return &e
}

// printError writes e as two lines, or as one JSON object.
func printError(w io.Writer, e *Error, asJSON bool) {
	if asJSON {
		printJSONError(w, e)
		return
	}
	_, _ = fmt.Fprintf(w, "error: %s\n", oneLine(e.Error()))
	if e.Hint != "" {
		_, _ = fmt.Fprintf(w, "hint: %s\n", oneLine(e.Hint))
	}
}

// The JSON error object; additive only, scripts rely on it.
type jsonError struct {
	Error jsonErrorBody `json:"error"`
}

type jsonErrorBody struct {
	Code      string `json:"code"`
	Exit      int    `json:"exit"`
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	RequestID string `json:"request_id"`
}

func printJSONError(w io.Writer, e *Error) {
	enc := json.NewEncoder(jsonOut{w})
	enc.SetEscapeHTML(false)
	_ = enc.Encode(jsonError{jsonErrorBody{Code: e.Code, Exit: e.Exit, Message: e.Error(), Hint: e.Hint, RequestID: e.RequestID}})
}

// oneLine replaces line breaks of nested errors (from errors.Join) by "; ", so that an error
// stays two lines, and cleans it.
func oneLine(s string) string {
	return Clean(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}
