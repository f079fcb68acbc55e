// Claims: what is fetched appears whole or not at all, once, and one process waits for another.
package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "release")
	half := func(part string) error { return errors.Join(os.Mkdir(part, 0o755), os.ErrInvalid) }
	if err := Fetch(t.Context(), dir, half); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("%v", err)
	}
	filled := 0
	fill := func(part string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := Fetch(ctx, dir, half); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two fetch it: %v", err)
		}
		filled++
		return os.Mkdir(part, 0o755)
	}
	for range 2 {
		if err := Fetch(t.Context(), dir, fill); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err != nil || filled != 1 {
		t.Errorf("filled %d times, %v", filled, err)
	}
	if err := Step(t.Context(), "sh", "-c", "echo start; echo 'Error: no such'; exit 1"); err == nil || !strings.HasSuffix(err.Error(), ": Error: no such") {
		t.Errorf("%v", err)
	}
}
