package jobdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"headroom/jobs/dispatch"
)

// Log is a part of what an attempt of a task, or a driver, has written.
type Log struct {
	// Name is that of its file, From where the part begins in it.
	Name string
	From int64
	Text []byte
}

// logName matches the names that LogName gives.
var logName = regexp.MustCompile(`^log-(map-[0-9]+|result)-[0-9a-f]{8}$`)

// LogName returns the name of the file beside an output to which an attempt's standard error goes. Its user owns the file.
func LogName(output string, attempt uint32) string {
	return filepath.Join(filepath.Dir(output), fmt.Sprintf("log-%s-%08x", filepath.Base(output), attempt))
}

// Open opens the folder of a job that exists.
func Open(f Folder) (*Dir, error) {
	output, err := openTrusted(filepath.Clean(f.Output))
	if err != nil {
		return nil, err
	}
	d := &Dir{id: f.ID, path: f.Path(""), output: output}
	if err := d.enter(); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	return d, nil
}

// Logs lists the logs of a run's tasks, or of one map task, in their order; -1 is all. It visits a bounded number of files.
func (d *Dir) Logs(run uint32, tasks, task int) (root *os.Root, names []string, err error) {
	root = d.root
	folder := filepath.Join(".", Folder{Run: run}.OfRun(""))
	dir, err := root.Open(folder)
	if err != nil {
		return root, nil, IgnoreMissing(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	all, err := dir.Readdirnames(leftMost + leftPerTask*tasks)
	if err != nil && !errors.Is(err, io.EOF) {
		return root, nil, err
	}
	for _, name := range all {
		if logName.MatchString(name) && (task < 0 || strings.HasPrefix(name, "log-"+outputName(dispatch.PhaseMap, task)+"-")) {
			names = append(names, filepath.Join(folder, name))
		}
	}
	slices.Sort(names)
	return root, names, nil
}

// ReadLogs reads files of a folder from the positions in read, at most so many bytes in total. more is whether there is
// more. A file that is no plain file, has a second name, or disappears meanwhile is left out: jobs write beside it.
func ReadLogs(root *os.Root, names []string, read map[string]uint64, most int) (parts []Log, more bool) {
	for _, name := range names {
		base := filepath.Base(name)
		file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		part := Log{Name: base, From: int64(min(read[base], 1<<62))}
		if info, err := file.Stat(); err == nil && alone(info) && info.Size() != part.From {
			if info.Size() < part.From { // it was replaced by a new one
				part.From = 0
			}
			if most == 0 {
				_ = file.Close()
				return parts, true
			}
			part.Text, _ = io.ReadAll(io.NewSectionReader(file, part.From, int64(most))) // what an error leaves
			most -= len(part.Text)
			more = more || part.From+int64(len(part.Text)) < info.Size()
			parts = append(parts, part)
		}
		_ = file.Close()
	}
	return parts, more
}

// alone reports whether a file is a plain one without a second name: a link to somebody else's file has two.
func alone(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && st.Nlink == 1
}
