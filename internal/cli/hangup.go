package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// OnHangup calls f at each SIGHUP until ctx ends: services read again what may
// change while they run. Signals that come while f runs are one.
func OnHangup(ctx context.Context, f func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			f()
		}
	}
}
