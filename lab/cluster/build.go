package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrUnable reports that this machine lacks what something needs.
var ErrUnable = errors.New("cluster: not possible on this machine")

// BuildPrograms builds Headroom's programs into dir as `make build` does, from the sources
// that the working folder belongs to.
func BuildPrograms(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/",
		"headroom/cmd/powerd", "headroom/cmd/coordinator", "headroom/cmd/scheduler", "headroom/lab/cmd/powerlab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster: go build: %w\n%s", err, out)
	}
	return nil
}

// hooksUnable is the exit code of hooks/build.sh where the machine cannot build them.
const hooksUnable = 3

// BuildHooks builds the jars of the hooks into dir, without their own tests, which `make
// hooks` runs. root is the folder of the sources. It returns ErrUnable, with the reason, where the machine lacks what that needs.
func BuildHooks(ctx context.Context, root, dir string) error {
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(root, "hooks", "build.sh"), dir, "-Dmaven.test.skip=true")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == hooksUnable:
		return fmt.Errorf("%w: %s", ErrUnable, bytes.TrimSpace(out))
	}
	return fmt.Errorf("cluster: hooks/build.sh: %w\n%s", err, out)
}

// CheckPrograms returns an error unless Headroom's four programs are in bin.
func CheckPrograms(bin string) error {
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("cluster: program %s not found in %s: build it with make build", name, bin)
		}
	}
	return nil
}

// nodePatience is how long emulated nodes may take to take programs.
const nodePatience = time.Minute

// AwaitNodes waits until emulated nodes, whose folders are in dir, take programs.
func AwaitNodes(dir string, names ...string) error {
	late := time.Now().Add(nodePatience)
	for _, name := range names {
		for socket := filepath.Join(dir, name, "run", "node.sock"); ; time.Sleep(endPause) {
			if _, err := os.Stat(socket); err == nil {
				break
			}
			if time.Now().After(late) {
				return fmt.Errorf("cluster: emulated node %s not ready after %v", name, nodePatience)
			}
		}
	}
	return nil
}
