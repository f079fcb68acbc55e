package netns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	programs "headroom/lab/cluster"
)

// binaries is the folder of the programs; TestMain removes it.
func binaries() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-netns-%d", os.Getpid()))
}

// build makes the programs as `make build` does, once for all tests.
var build = sync.OnceValue(func() error { return programs.BuildPrograms(context.Background(), binaries()) })

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(binaries()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
