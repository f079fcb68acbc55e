// Package statedir manages powerd's state directory: its files, their replacement, and the
// locks that prevent a second powerd on a state directory or a machine.
package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
	"headroom/internal/durable"
)

// Files of the state directory, beside those that only their writers know.
const (
	JournalFile      = "journal.json"      // originals, fsynced before the first write
	WrittenFile      = "written.log"       // last values written, one record a control
	MemoryFile       = "state.json"        // highest stamp, fail-safe cap, brake
	HeldFile         = "held.json"         // what the node may hold now
	CoordinatorsFile = "coordinators.json" // addresses last seen, for when powerd is dead
	// DeniedFile has the denied servers' certificates: after a restart, powerd accepts no server
	// that was denied before.
	DeniedFile = "denied.json"
	lockFile   = "powerd.lock"
	SocketFile = "powerd.sock"
)

// Disk is the state directory. Tests put failures behind it.
type Disk interface {
	// Read is the file's content, or fs.ErrNotExist.
	Read(name string) ([]byte, error)
	// Durable replaces the file and returns once it would survive a power cut.
	Durable(name string, data []byte) error
	// Replace renames a new file into place; it survives the process, not a power cut.
	Replace(name string, data []byte) error
	// Remove deletes the file durably; a missing one is no error.
	Remove(name string) error
}

// OS is the state directory on a file system: the real one where FS is nil.
type OS struct {
	Dir string
	FS  durable.FS
}

func (d OS) fs() durable.FS {
	if d.FS == nil {
		return durable.OS{}
	}
	return d.FS
}

// Read is the file's content; durable.ErrNotRegular where it is no file.
func (d OS) Read(name string) ([]byte, error) { return d.fs().ReadFile(d.Path(name)) }

// Durable replaces the file, then makes file and directory entry durable.
func (d OS) Durable(name string, data []byte) error {
	if err := durable.Write(d.fs(), d.Path(name), data, 0o600); err != nil {
		return fmt.Errorf("agent: store %s: %w", name, err)
	}
	return nil
}

// Replace renames a new file into place.
func (d OS) Replace(name string, data []byte) error {
	if err := durable.Replace(d.fs(), d.Path(name), data, 0o644); err != nil { // for everyone on the host
		return fmt.Errorf("agent: write %s: %w", name, err)
	}
	return nil
}

// Remove deletes the file durably.
func (d OS) Remove(name string) error {
	if err := durable.Remove(d.fs(), d.Path(name)); err != nil {
		return fmt.Errorf("agent: remove %s: %w", name, err)
	}
	return nil
}

// Path is where a file of the directory is.
func (d OS) Path(name string) string { return filepath.Join(d.Dir, name) }

// Lock makes this process the only one that writes the controls of this state
// directory. The lock ends with the process, however it ends.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, &cli.Error{
			Code: "state-dir", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("state directory %s unusable: %v", dir, err),
			Hint: "state_dir: in powerd.yaml must be a directory that this user may write",
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &cli.Error{
			Code: "state-dir", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("state directory not locked: %v", err),
			Hint: "state_dir: in powerd.yaml must be a directory that this user may write",
		}
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &cli.Error{
			Code: "running", Exit: cli.ExitConflict, Err: err, Message: "another powerd is running on the state directory " + dir,
			Hint: "only one powerd may run on a node; see powerd status",
		}
	}
	return f, nil
}

// ClaimDir is the folder whose lock is the claim on a machine. Only its owner and root
// may open it: any user could hold a lock on a file that every user may read, such as /sys.
const ClaimDir = "run/headroom-powerd"

// Claim makes this process the only one that writes the controls below root, whatever
// state directory another one has. It locks claimDir below root, which is the machine's
// own and is made where it is missing. Where it can neither be made nor opened (a root
// that is read-only, a user who may write no control either) there is no claim and no
// error: the state directory's lock is still there.
func Claim(root *os.Root) (*os.File, error) {
	f, err := openClaim(root)
	if err != nil {
		return nil, nil //nolint:nilerr // the state directory's lock is there all the same
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = f.Close()
		return nil, &cli.Error{
			Code: "running", Exit: cli.ExitConflict, Err: err,
			Message: "another powerd, with another state directory, is running on " + root.Name(),
			Hint:    "stop the other powerd, or set enforce: false to observe only",
		}
	}
	return nil, f.Close()
}

// openClaim opens claimDir, closed to everybody but its owner.
func openClaim(root *os.Root) (*os.File, error) {
	if err := root.MkdirAll(ClaimDir, 0o755); err != nil {
		return nil, err
	}
	f, err := root.Open(ClaimDir)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o700)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Unlock gives what was locked free; nil was not. Closing alone would not do where a copy of
// the descriptor lives for a moment in a child that another goroutine just forks.
func Unlock(f *os.File) error {
	if f == nil {
		return nil
	}
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
