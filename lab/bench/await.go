package bench

import (
	"context"
	"fmt"
	"time"

	"headroom/internal/pause"
)

// pollEvery is how often something that is awaited is looked at.
const pollEvery = 50 * time.Millisecond

// await polls until is answers true; what names it in the error.
func await(ctx context.Context, most time.Duration, what string, is func() bool) error {
	for end := time.Now().Add(most); !is(); {
		if time.Now().After(end) {
			return fmt.Errorf("bench: %s: %w after %v", what, errNotYet, most)
		}
		if !pause.For(ctx, pollEvery) {
			return ctx.Err()
		}
	}
	return nil
}
