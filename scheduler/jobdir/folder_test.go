// Claim: what a task leaves beside the scheduler's own records holds no scheduler up.
package jobdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

func TestDropsAreNoFIFO(t *testing.T) {
	t.Parallel()
	f := Folder{Output: t.TempDir(), ID: "j1"}
	at := f.Path(f.OfRun("dropped"))
	testkit.Check(t, os.MkdirAll(filepath.Dir(at), 0o750))
	testkit.Check(t, syscall.Mkfifo(at, 0o600))
	done := make(chan []int, 1)
	go func() {
		drops, _ := f.readDrops()
		done <- drops
	}()
	select {
	case drops := <-done:
		if len(drops) != 0 {
			t.Errorf("dropped %v", drops)
		}
	case <-time.After(30 * time.Second):
		t.Error("a FIFO holds the scheduler up")
		if w, err := os.OpenFile(at, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = w.Close() // let the goroutine go
		}
	}
}
