// Package treefs makes the kernel's view of a plant (package kernel) available to programs: as a
// FUSE mount, or as plain files.
//
// The one idea: there is one implementation of the files' meaning, and two ways to access it.
// Through the mount, every read and write calls the tree's own functions, including error numbers.
// Plain files need no privilege and are cheap to read, but only have values: they are written when
// the plant changes, checked for the writes of others, and corrected afterwards. A file that is
// unreadable on a real machine is left out.
//
// Guarantees: nothing outside the given folder is written. A mount is gone after Close, even if a
// file of it is still open; Unmount removes one that a killed process left behind. Every call of a
// tree holds the lock that both ways are given.
package treefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoFUSE reports that this host or user cannot mount a tree.
var ErrNoFUSE = errors.New("treefs: cannot mount")

// Unmount takes down whatever is mounted at dir, a mount whose process is gone
// included. Where nothing is mounted it does nothing. It fails when something
// stays mounted.
func Unmount(dir string) error {
	for range 16 { // mounts can be stacked; more than a few never are
		mounted, err := Mounted(dir)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			return fmt.Errorf("treefs: unmount %s: %w", dir, err)
		}
	}
	return fmt.Errorf("treefs: unmount %s: %w", dir, unix.EBUSY)
}

// Mounted reports whether something is mounted at dir, alive or not.
func Mounted(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(filepath.Dir(dir)) // the folder itself may not answer
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("treefs: %s: %w", dir, err)
	}
	if real, err = filepath.Abs(filepath.Join(real, filepath.Base(dir))); err != nil {
		return false, fmt.Errorf("treefs: %s: %w", dir, err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("treefs: mounts: %w", err)
	}
	for line := range bytes.Lines(table) {
		if fields := bytes.Fields(line); len(fields) > 4 && unescape(string(fields[4])) == real {
			return true, nil
		}
	}
	return false, nil
}

// unescape undoes what the kernel does to blanks in mount points (proc(5)).
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// folders are all folders on the way to name, the outermost first.
func folders(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		all = append([]string{dir}, all...)
	}
	return all
}
