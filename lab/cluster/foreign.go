package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// OnNode makes the command line that starts a program, and so all that it starts, on the
// emulated node of this name in the folder dir, which must be running; powerlab is that
// program's path.
func OnNode(powerlab, dir, name string) func(argv []string) []string {
	return func(argv []string) []string {
		return append([]string{powerlab, "node", "exec", name, "--dir", dir, "--"}, argv...)
	}
}

// FetchDir is the folder that what is fetched is kept in: dir, or one of this name in the
// user's cache when dir is empty.
func FetchDir(dir, name string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "headroom", name), err
}

// Java returns the path of java, or why there is none.
func Java() (string, error) {
	program, err := exec.LookPath("java")
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return "", fmt.Errorf("java is needed (Debian package openjdk-17-jdk-headless): %w", err)
	}
	return program, nil
}
