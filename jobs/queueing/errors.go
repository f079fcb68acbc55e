package queueing

import "fmt"

// inputError is a number that is invalid, with its place as in the input of
// `powerlab solve queue`: "services[1].A[3][2]", counted from 0.
type inputError struct {
	Place   string
	Problem string
}

// Error names the place and the problem.
func (e *inputError) Error() string {
	if e.Place == "" {
		return "queueing: " + e.Problem
	}
	return "queueing: " + e.Place + " " + e.Problem
}

func bad(place, format string, args ...any) *inputError {
	return &inputError{Place: place, Problem: fmt.Sprintf(format, args...)}
}

// within puts the place of a whole in front of that of its part, in an [InputError];
// any other error it returns as it is.
func within(whole string, err error) error {
	e, ok := err.(*inputError) //nolint:errorlint // our own constructors return it unwrapped
	if !ok {
		return err
	}
	place := whole
	if e.Place != "" {
		place += "." + e.Place
	}
	return &inputError{Place: place, Problem: e.Problem}
}

// UnstableError refuses a queue that would grow without end.
type UnstableError struct {
	// Rho is the utilisation that the arrivals ask for, at least 1.
	Rho float64
}

// Error names rho and the way out.
func (e *UnstableError) Error() string {
	return fmt.Sprintf("queueing: unstable: rho is %.6g and must be below 1; lower the arrival rates, "+
		"or shorten the service times (drop tasks, sprint)", e.Rho)
}

// NumericError reports that rounding would spoil an answer, which is then not given.
type NumericError struct {
	What string
	// Hint is what to ask instead.
	Hint string
}

// Error states what would be spoilt, and what to ask instead.
func (e *NumericError) Error() string { return "queueing: " + e.What + "; " + e.Hint }
