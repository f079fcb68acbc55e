package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binaries is the folder of the programs; TestMain removes it.
func binaries() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-netns-%d", os.Getpid()))
}

// build makes the programs as `make build` does, once for all tests.
var build = sync.OnceValue(func() error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", binaries() + "/"}
	for _, p := range []string{"powerd", "coordinator", "powerlab"} {
		args = append(args, "headroom/cmd/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(binaries()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
