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
// file of it is still open. Every call of a tree holds the lock that both ways are given.
package treefs

import (
	"errors"
	"path"
)

// ErrNoFUSE reports that this host or user cannot mount a tree.
var ErrNoFUSE = errors.New("treefs: cannot mount")

// folders are all folders on the way to name, the outermost first.
func folders(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		all = append([]string{dir}, all...)
	}
	return all
}
