package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// logBytes is how much is written in the logs below dir: the files named *.wal, without
// the zeros behind their last entry. Both raft-wal and etcd reserve a file whole before they
// write into it, so that sizes alone would say nothing.
func logBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since the folder was read
		case err != nil || d.IsDir() || filepath.Ext(path) != ".wal":
			return err
		}
		n, err := written(path)
		sum += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("bench: size of the log: %w", err)
	}
	return sum, nil
}

// written is the file's length up to its last byte that is not 0.
func written(path string) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 1<<18)
	for end := info.Size(); end > 0; end = max(0, end-int64(len(buf))) {
		from := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				return from + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
