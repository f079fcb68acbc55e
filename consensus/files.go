package consensus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/hashicorp/raft-wal/metadb"
	walsegment "github.com/hashicorp/raft-wal/segment"
	waltypes "github.com/hashicorp/raft-wal/types"
)

// raft-wal trusts its own files: it panics on a list of segments that it did not write, begins a
// new list where there is none, deletes segments that the list does not name, and takes a
// segment that was cut short for one with fewer entries. So the files are looked at first.

// caught calls raft-wal, and makes an error of a panic: also of one below it, where a mapped file
// is shorter than it was.
func caught(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errCorrupt, r)
		}
	}()
	return call()
}

// checkFiles refuses a list of segments that cannot be read, and segments that are shorter than
// they were made. What the segments hold is checked when the log is open; what is
// missing altogether, by the mark.
func checkFiles(dir string) error {
	log := filepath.Join(dir, "log")
	segments, err := filepath.Glob(filepath.Join(log, "*.wal"))
	if err != nil {
		return fmt.Errorf("consensus: list the log in %s: %w", dir, err)
	}
	list := filepath.Join(log, metadb.FileName)
	info, err := os.Stat(list)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(segments) == 0:
		return nil // a new log
	case errors.Is(err, fs.ErrNotExist):
		return damaged(dir, list+" is missing", errCorrupt)
	case err != nil:
		return fmt.Errorf("consensus: %w", err)
	case info.Size() == 0: // bbolt would begin a new one
		return damaged(dir, list+" is empty", errCorrupt)
	}
	known, err := readList(log)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("consensus: open %s: %w", list, err)
		}
		return damaged(dir, list, err)
	}
	if len(known) == 0 && len(segments) > 0 {
		return damaged(dir, list+" names no segment", errCorrupt)
	}
	for _, s := range known {
		if err := checkSize(dir, filepath.Join(log, walsegment.FileName(s)), s); err != nil {
			return err
		}
	}
	return nil
}

// readList reads the list of segments, and every value of the stable store.
func readList(log string) (segments []waltypes.SegmentInfo, err error) {
	err = caught(func() error {
		var db metadb.BoltMetaDB
		state, err := db.Load(log)
		segments = state.Segments
		for _, key := range []string{keyServer, keyFounders, keyOrigin, keyTerm, keyVoteTerm} {
			if err == nil {
				_, err = db.GetStable([]byte(key))
			}
		}
		return errors.Join(err, db.Close())
	})
	return segments, err
}

// checkSize refuses a segment that was cut short: it is made in its full size before anything is
// committed to it.
func checkSize(dir, path string, s waltypes.SegmentInfo) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.SealTime.IsZero():
		return nil // a crash before its first entry
	case errors.Is(err, fs.ErrNotExist):
		return damaged(dir, path+" is missing", errCorrupt)
	case err != nil:
		return fmt.Errorf("consensus: %w", err)
	case info.Size() >= int64(s.SizeLimit):
		return nil
	}
	data, err := readUsed(path)
	if err != nil {
		return fmt.Errorf("consensus: read the log: %w", err)
	}
	if s.SealTime.IsZero() && len(data) <= walHeader {
		return nil // a crash while it was made
	}
	return damaged(dir, fmt.Sprintf("%s has %d bytes and was made with %d: it was cut short", path, info.Size(), s.SizeLimit), errCorrupt)
}

// private takes the rights of others away from dir and the files below it, which older versions have
// made. New ones are made for their owner by the umask of the process.
func private(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("consensus: %w", err)
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
				err = root.Chmod(path, info.Mode().Perm()&0o700)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // raft removes old snapshots meanwhile
			return nil
		}
		return err
	})
	return errors.Join(err, root.Close())
}
