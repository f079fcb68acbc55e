package cli_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"headroom/internal/cli"
)

// A service that is sent SIGHUP goes on, and reads again, each time. Signals go to
// the whole process, so this test does not run beside others.
func TestOnHangup(t *testing.T) { //nolint:paralleltest // see above
	none := make(chan os.Signal, 1) // the process lives before OnHangup listens
	signal.Notify(none, syscall.SIGHUP)
	defer signal.Stop(none)
	ctx, cancel := context.WithCancel(t.Context())
	calls, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		cli.OnHangup(ctx, func() {
			select {
			case calls <- struct{}{}:
			default:
			}
		})
	}()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for called := 0; called < 2; {
		select {
		case <-calls:
			called++
		case <-again.C:
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	<-done
}
