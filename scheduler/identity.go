package scheduler

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// identity is stored in the scheduler's folder. Jobs are not part of it: they are in the coordinators' log, and their
// progress is in their output folders.
type identity struct {
	// ID identifies the scheduler to the coordinators.
	ID string `json:"id"`
	// Run counts the starts, so that attempts of different processes have different numbers.
	Run uint16 `json:"run"`
}

// lockFile is locked by the process that uses the folder.
const lockFile = "lock"

// claim locks the folder for this process and counts the start. The lock lasts until release is called or the process
// ends.
func claim(dir string) (id identity, release func() error, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return id, nil, &cli.Error{
			Code: "config", Exit: cli.ExitUsage, Err: err,
			Message: fmt.Sprintf("cannot create dir: %v", err), Hint: "dir must be a folder that this user can write to",
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return id, nil, fmt.Errorf("scheduler: lock %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return id, nil, errors.Join(&cli.Error{
			Code: "conflict", Exit: cli.ExitConflict, Err: err,
			Message: "another scheduler is using " + dir, Hint: "stop it, or use a different dir",
		}, lock.Close())
	}
	if id, err = next(filepath.Join(dir, "state.json")); err != nil {
		return id, nil, errors.Join(err, lock.Close())
	}
	return id, lock.Close, nil
}

// next reads the identity, counts this start and writes it durably.
func next(path string) (id identity, err error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// After the loss of the folder, attempt numbers must not repeat: start at a random number.
		var b [5]byte
		if _, err := rand.Read(b[:]); err != nil {
			return id, fmt.Errorf("scheduler: choose an id: %w", err)
		}
		id = identity{ID: "s-" + hex.EncodeToString(b[:3]), Run: uint16(b[3])<<8 | uint16(b[4])}
	case err != nil:
		return id, fmt.Errorf("scheduler: read %s: %w", path, err)
	default:
		if err := json.Unmarshal(data, &id); err != nil || id.ID == "" {
			return id, &cli.Error{
				Code: "state", Exit: cli.ExitFailed, Message: path + " is damaged",
				Hint: "remove it; no job is lost, because the coordinators store them",
			}
		}
	}
	id.Run++
	data, err = json.Marshal(id)
	if err == nil {
		err = renameio.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return id, fmt.Errorf("scheduler: write %s: %w", path, err)
	}
	return id, nil
}
