// Package pause waits as long as nobody wants it to stop: For is a sleep that the end of its
// context cuts short, and that says which of the two it was. It leaves no timer behind and
// never waits longer than it was told to; it decides nothing about how long that is, which
// is the caller's back-off or period.
package pause

import (
	"context"
	"time"
)

// For waits for d; false when ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
