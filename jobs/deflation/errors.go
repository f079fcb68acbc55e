package deflation

import (
	"errors"
	"fmt"
)

// ErrProblem states that a problem cannot be meant as it stands. A *ProblemError wraps it.
var ErrProblem = errors.New("deflation: bad problem")

// problemError is a value of a problem that cannot be meant, with its place as in the
// input of `powerlab solve deflate`: "classes[1].error_max", counted from 0.
type problemError struct {
	Place   string
	Problem string
	// Err is the cause where another package found it, otherwise nil.
	Err error
}

// Error names the place, the problem and the cause.
func (e *problemError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("deflation: %s %s: %v", e.Place, e.Problem, e.Err)
	}
	return fmt.Sprintf("deflation: %s %s", e.Place, e.Problem)
}

// Unwrap makes errors.Is(err, ErrProblem) true, and leads to the cause.
func (e *problemError) Unwrap() []error { return []error{ErrProblem, e.Err} }

func bad(place, format string, args ...any) *problemError {
	return &problemError{Place: place, Problem: fmt.Sprintf(format, args...)}
}

// because returns a problem that another package has found.
func because(place, problem string, err error) *problemError {
	return &problemError{Place: place, Problem: problem, Err: err}
}
