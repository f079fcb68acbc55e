package ipmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headroom/units"
)

// getLimit reads the limit. A BMC with no active limit completes with 0x80, and may or
// may not send what it has stored.
func getLimit(ctx context.Context, l link) (Limit, error) {
	lim, _, err := readLimit(ctx, l)
	return lim, err
}

// readLimit also tells whether the BMC showed the fields at all.
func readLimit(ctx context.Context, l link) (lim Limit, shown bool, err error) {
	code, data, err := l.ask(ctx, limitGet(), limitRequest())
	switch {
	case err != nil:
		return Limit{}, false, fmt.Errorf("get power limit: %w", err)
	case code.missing():
		return Limit{}, false, fmt.Errorf("%w: %v", ErrNoLimit, code)
	case code == codeLimitInactive && len(data) < limitAnswerLen:
		return Limit{}, false, nil
	case code != codeOK && code != codeLimitInactive:
		return Limit{}, false, refused("get power limit", code)
	}
	lim, err = decodeLimit(data)
	lim.Active = code == codeOK
	return lim, err == nil, err
}

// setLimit sets, verifies, activates, verifies again.
//
// Lesson 12: the default of some BMCs switches the server off when the limit is exceeded.
// So the exception action is forced to none, and nothing is activated that the BMC does
// not show with it.
func setLimit(ctx context.Context, l link, p units.Power, loop time.Duration) (Limit, error) {
	found, _, err := readLimit(ctx, l)
	if err != nil {
		return Limit{}, err
	}
	want, err := SafeLimit(found, p, loop)
	if err != nil {
		return Limit{}, err
	}
	if err := writeLimit(ctx, l, want); err != nil {
		return Limit{}, err
	}
	if err := verify(ctx, l, want, false); err != nil {
		return Limit{}, undo(ctx, l, err)
	}
	if err := activate(ctx, l, true); err != nil {
		return Limit{}, undo(ctx, l, err)
	}
	if err := verify(ctx, l, want, true); err != nil {
		return Limit{}, undo(ctx, l, err)
	}
	want.Active = true
	return want, nil
}

const (
	// maxLimit is the most that the field of 16 bits holds and that means a number.
	maxLimit = 65_534 * units.Watt
	// minStatistics is the least sampling period that the field can say.
	minStatistics = time.Second
)

// SafeLimit is what SetLimit writes: what is found with the new power, no exception action, and a correction
// time that our own loop can keep.
func SafeLimit(found Limit, p units.Power, loop time.Duration) (Limit, error) {
	watts := (p + units.Watt - 1) / units.Watt * units.Watt
	if watts <= 0 || watts > maxLimit {
		return Limit{}, fmt.Errorf("%w: %v", ErrLimitRange, p)
	}
	found.Power, found.Action = watts, ActionNone
	found.Correction = max(found.Correction, (loop + time.Millisecond - 1).Truncate(time.Millisecond))
	found.Period = max(found.Period, minStatistics)
	return found, nil
}

func writeLimit(ctx context.Context, l link, want Limit) error {
	code, _, err := l.ask(ctx, limitSet(), encodeLimit(want))
	switch {
	case err != nil:
		return fmt.Errorf("set power limit: %w", err)
	case code.missing():
		return fmt.Errorf("%w: set power limit: %v", ErrNoLimit, code)
	case code == codeLimitRange:
		return fmt.Errorf("%w: %v", ErrLimitRange, want.Power)
	case code == codeLimitTime:
		return fmt.Errorf("%w: correction time %v not accepted", ErrLimitUnsafe, want.Correction)
	case code != codeOK:
		return refused("set power limit", code)
	}
	return nil
}

// verify reads the limit back and compares every field.
func verify(ctx context.Context, l link, want Limit, active bool) error {
	got, shown, err := readLimit(ctx, l)
	switch {
	case err != nil:
		return err
	case !shown:
		return fmt.Errorf("%w: inactive limit not readable", ErrLimitUnsafe)
	case got.Action != ActionNone:
		return fmt.Errorf("%w: its exception action is %v", ErrLimitUnsafe, got.Action)
	case got.Power != want.Power || got.Correction < want.Correction:
		return fmt.Errorf("%w: wanted %v within %v, have %v within %v", ErrLimitUnsafe, want.Power, want.Correction, got.Power, got.Correction)
	case active && !got.Active:
		return fmt.Errorf("%w: activated, but not active", ErrLimitUnsafe)
	}
	return nil
}

func activate(ctx context.Context, l link, on bool) error {
	code, _, err := l.ask(ctx, limitActivate(), activateRequest(on))
	switch {
	case err != nil:
		return fmt.Errorf("activate power limit: %w", err)
	case code != codeOK:
		return refused("activate power limit", code)
	}
	return nil
}

// undo takes a limit that cannot be trusted out of force, and says when that failed too.
// It is done even for a caller that has gone; the link bounds it.
func undo(ctx context.Context, l link, why error) error {
	ctx = context.WithoutCancel(ctx)
	code, _, err := l.ask(ctx, limitActivate(), activateRequest(false))
	switch {
	case err != nil:
		return errors.Join(why, fmt.Errorf("deactivate power limit: %w", err))
	case code != codeOK && code != codeLimitInactive:
		return errors.Join(why, refused("deactivate power limit", code))
	}
	return why
}

func clearLimit(ctx context.Context, l link) (Limit, error) {
	found, err := getLimit(ctx, l)
	if err != nil || !found.Active {
		return found, err
	}
	if err := activate(ctx, l, false); err != nil {
		return found, err
	}
	got, err := getLimit(ctx, l)
	if err == nil && got.Active {
		return got, fmt.Errorf("%w: it is still active", ErrRefused)
	}
	return got, err
}

// restoreLimit is the only way to write an exception action other than none: the one
// that was found.
func restoreLimit(ctx context.Context, l link, was, wrote Limit) (Limit, error) {
	got, err := getLimit(ctx, l)
	if err != nil {
		return Limit{}, err
	}
	if got != wrote {
		return got, ErrLimitChanged
	}
	if err := activate(ctx, l, false); err != nil {
		return got, err
	}
	if was.Power > 0 {
		if err := writeLimit(ctx, l, was); err != nil {
			return Limit{}, err
		}
	}
	if was.Active {
		if err := activate(ctx, l, true); err != nil {
			return Limit{}, err
		}
	}
	back, err := getLimit(ctx, l)
	same := back.Power == was.Power && back.Action == was.Action && back.Correction == was.Correction
	if err == nil && (back.Active != was.Active || was.Active && !same) { // what is inactive may not even be shown
		return back, fmt.Errorf("%w: the original limit was %+v, it reads back as %+v", ErrRefused, was, back)
	}
	return back, err
}
