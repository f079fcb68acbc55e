package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/pause"
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

// Fetch makes a folder unless it is there: fill makes part, which then takes the folder's name, so that it appears
// whole or not at all. Of several processes one fetches and the others wait.
func Fetch(ctx context.Context, dir string, fill func(part string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	for unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		if !pause.For(ctx, endPause) {
			return fmt.Errorf("another process is fetching it: %w", ctx.Err())
		}
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	part := dir + ".part"
	defer func() { _ = os.RemoveAll(part) }()
	if err := errors.Join(os.RemoveAll(part), fill(part)); err != nil { // an interrupted process may have left it
		return err
	}
	return os.Rename(part, dir)
}

// Step runs a command of a Fetch. Its error has the first line of what it printed that reports one.
func Step(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // what it started may hold the pipe
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	text := string(out[:min(len(out), 200)])
	for line := range strings.Lines(string(out)) {
		if strings.Contains(strings.ToLower(line), "error") {
			text = line
			break
		}
	}
	return fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), strings.TrimSpace(text))
}

// restMost bounds one request of Request, restBytes its answer.
const (
	restMost  = 5 * time.Second
	restBytes = 32 << 20
)

// Request queries a web server of an engine and reads its JSON; into may be nil. What is not there is os.ErrNotExist.
func Request(ctx context.Context, method, resource, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, restMost)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, method, resource, strings.NewReader(body))
	if err != nil {
		return err
	}
	ask.Header.Set("Accept", "application/json")
	if body != "" {
		ask.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, restBytes))
	switch {
	case err != nil:
	case response.StatusCode == http.StatusNotFound:
		err = os.ErrNotExist
	case response.StatusCode/100 != 2:
		err = errors.New(response.Status)
	case into != nil:
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, resource, err)
	}
	return nil
}
