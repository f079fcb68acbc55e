package demo

import (
	"context"
	"sync"
)

// watchers run beside a story until it ends. The first error ends their context, as its cause.
type watchers struct {
	ctx     context.Context //nolint:containedctx // of one story
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// newWatchers returns none yet, and their context.
func newWatchers(ctx context.Context) (*watchers, context.Context) {
	w := &watchers{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w, w.ctx
}

// fail runs one whose error ends all.
func (w *watchers) fail(f func(context.Context) error) {
	w.running.Go(func() {
		if err := f(w.ctx); err != nil {
			w.cancel(err)
		}
	})
}

// end ends them, and returns when they have ended. A second call has no effect.
func (w *watchers) end() {
	w.cancel(nil)
	w.running.Wait()
}
