// Claims: a pause lasts what it should, or until its context ends.
package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/pause"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if !pause.For(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("a second lasted %v", time.Since(began))
		}
		if pause.For(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("with its context over it lasted until %v", time.Since(began))
		}
	})
}
