package regress

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrTooFew states that there are fewer measurements than a fit with confidence needs.
	ErrTooFew = errors.New("too few points")
	// ErrCollinear states that the measurements do not tell some parameters apart.
	ErrCollinear = errors.New("collinear points")
	// ErrNumber states that a number is no number, or out of its bounds.
	ErrNumber = errors.New("bad number")
)

// tooFew is the error of so many measurements for so many free parameters.
func tooFew(rows, free int) error {
	return fmt.Errorf("%w: %d usable points for %d free parameters; measure at least %d, or fix parameters", ErrTooFew, rows, free, free+1)
}

// collinear is the error of parameters that cannot be told apart.
func collinear(names []string) error {
	if len(names) == 1 {
		return fmt.Errorf("%w: they do not determine %s; measure where it has an effect, or fix it", ErrCollinear, names[0])
	}
	return fmt.Errorf("%w: they do not separate %s; measure other combinations, or fix one of them", ErrCollinear, strings.Join(names, ", "))
}
