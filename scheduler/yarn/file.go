package yarn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"headroom/internal/config"
)

const (
	// allocationMax bounds the allocation file; real ones are a few kilobytes.
	allocationMax = 4 << 20
	// mergesMax is how often a file that changes meanwhile is merged again.
	mergesMax = 5
	// refreshWait bounds the refresh command: a JVM starts in 0.7 s, under load in many seconds.
	refreshWait = 30 * time.Second
	// refreshWords is how much output of the refresh command is kept.
	refreshWords = 2 << 10
)

// allocation writes queue maxima into the fair scheduler's allocation file. It is
// safe for concurrent use.
type allocation struct {
	path string
	// notes is the file of the operator's own values, so that they are restored even after a kill.
	notes string

	mu sync.Mutex
	// own are the operator's values; nil before the notes were read.
	own map[string]own
	// between is called between reading and replacing the file, for tests.
	between func()
}

// noted is the file of the operator's own values.
type noted struct {
	File   string         `json:"allocation_file"`
	Queues map[string]own `json:"queues"`
}

func newAllocation(path, dir string) *allocation {
	return &allocation{path: path, notes: filepath.Join(dir, "yarn-queues.json")}
}

// leftBehind returns the file that an earlier process wrote shares into, nil for none.
func leftBehind(dir string) (*allocation, error) {
	a := newAllocation("", dir)
	n, err := a.read()
	if err != nil || n.File == "" {
		return nil, err
	}
	a.path = n.File
	return a, nil
}

// set makes want the maxima of its queues, and restores the operator's own for all others. changed is whether the file
// was written.
func (a *allocation) set(want map[string]string) (changed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.recall(); err != nil {
		return false, err
	}
	if len(want) == 0 && len(a.own) == 0 {
		return false, nil // nothing of ours is in the file: it is not even read
	}
	for range mergesMax {
		changed, again, err := a.try(want)
		if err != nil {
			return false, a.failed(err)
		}
		if !again {
			return changed, nil
		}
	}
	return false, fmt.Errorf("yarn: allocation file %s was edited %d times while it was being merged: %w", a.path, mergesMax, errAllocation)
}

// check reports whether shares could be written for these queues while there are none, so that an operator learns of a
// mistake before the first cut.
func (a *allocation) check(queues []Queue) error {
	path, err := filepath.EvalSymlinks(a.path)
	if err != nil {
		return a.failed(err)
	}
	doc, err := readBounded(path)
	if err != nil {
		return a.failed(err)
	}
	found, err := places(doc)
	if err != nil {
		return a.failed(err)
	}
	for _, q := range queues {
		if found[q.Name] == nil {
			return a.failed(fmt.Errorf("no queue %s: %w; add it there, or remove it from yarn.queues", q.Name, errQueue))
		}
	}
	if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
		return a.failed(&fs.PathError{Op: "write into", Path: filepath.Dir(path), Err: err})
	}
	return nil
}

// failed returns an error about the file, with a hint if writing failed.
func (a *allocation) failed(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("yarn: allocation file %s: %w; set yarn.allocation_file to the file of yarn.scheduler.fair.allocation.file", a.path, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("yarn: allocation file %s: %w; make the file and its folder writable for the scheduler (with systemd also ReadWritePaths=), or use shares: hook", a.path, err)
	}
	return fmt.Errorf("yarn: allocation file %s: %w", a.path, err)
}

// try merges once; again is whether the file was edited meanwhile.
func (a *allocation) try(want map[string]string) (changed, again bool, err error) {
	path, err := filepath.EvalSymlinks(a.path) // a link stays a link
	if err != nil {
		return false, false, err
	}
	doc, err := readBounded(path)
	if err != nil {
		return false, false, err
	}
	m, err := merge(doc, want, a.own)
	if err != nil {
		return false, false, err
	}
	if bytes.Equal(m.doc, doc) {
		return false, false, a.note(m.after)
	}
	if err := a.note(m.during); err != nil { // first, so that the original values survive a kill
		return false, false, err
	}
	if again, err := a.replace(path, doc, m.doc); again || err != nil {
		return false, again, err
	}
	return true, false, a.note(m.after)
}

// replace writes the whole file, unless it has changed since it was read.
func (a *allocation) replace(path string, was, doc []byte) (again bool, err error) {
	f, err := renameio.NewPendingFile(path, renameio.WithExistingPermissions())
	if err != nil {
		return false, err
	}
	defer f.Cleanup() //nolint:errcheck // of no effect after the replacement
	if _, err := f.Write(doc); err != nil {
		return false, err
	}
	if a.between != nil {
		a.between()
	}
	now, err := readBounded(path)
	if err != nil {
		return false, err
	}
	if !bytes.Equal(now, was) {
		return true, nil
	}
	return false, f.CloseAtomicallyReplace()
}

func readBounded(path string) ([]byte, error) {
	doc, err := config.ReadFile(path, allocationMax+1)
	if err == nil && len(doc) > allocationMax {
		err = fmt.Errorf("larger than %d bytes: %w", allocationMax, errAllocation)
	}
	return doc, err
}

// recall reads the notes of an earlier process.
func (a *allocation) recall() error {
	if a.own != nil {
		return nil
	}
	n, err := a.read()
	if err != nil {
		return err
	}
	a.own = map[string]own{}
	if n.File == a.path {
		maps.Copy(a.own, n.Queues)
	}
	return nil
}

// read reads the notes; a missing file is empty.
func (a *allocation) read() (n noted, err error) {
	data, err := os.ReadFile(a.notes)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return n, fmt.Errorf("yarn: the operator's original maxima are unreadable: %w; check the queues of the allocation file, then remove %s", err, a.notes)
	}
	return n, nil
}

// note stores the operator's own values durably.
func (a *allocation) note(values map[string]own) error {
	if reflect.DeepEqual(values, a.own) {
		return nil
	}
	data, err := json.MarshalIndent(noted{File: a.path, Queues: values}, "", "  ")
	if err == nil {
		err = renameio.WriteFile(a.notes, append(data, '\n'), 0o600)
	}
	if err == nil {
		a.own = values
	}
	return err
}

// refresher runs the command that makes the ResourceManager reload the file.
type refresher struct {
	command []string
	logger  *slog.Logger
	wanted  chan struct{}
}

func newRefresher(command []string, logger *slog.Logger) *refresher {
	return &refresher{command: command, logger: logger, wanted: make(chan struct{}, 1)}
}

// want requests a refresh; several requests are combined.
func (r *refresher) want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// run refreshes on request until ctx ends.
func (r *refresher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wanted:
			r.refresh(ctx)
		}
	}
}

// refresh runs the command. If it fails, the ResourceManager reloads the file itself within about 15 s.
func (r *refresher) refresh(parent context.Context) {
	if len(r.command) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(parent, refreshWait)
	defer cancel()
	var said brief
	cmd := exec.CommandContext(ctx, r.command[0], r.command[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with its child processes
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && parent.Err() == nil {
		r.logger.Warn("yarn: queues not refreshed; the ResourceManager reloads the file itself",
			slog.String("command", strings.Join(r.command, " ")), slog.Any("error", err), slog.String("said", clip(said.String())))
	}
}

// brief keeps the first bytes written to it.
type brief struct{ bytes.Buffer }

// Write keeps what fits and never fails.
func (b *brief) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, refreshWords-b.Len()))])
	return len(p), nil
}
