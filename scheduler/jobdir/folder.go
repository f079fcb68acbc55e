// Package jobdir stores the files of jobs: the lists of their inputs, the outputs of their tasks, and an account of
// the tasks that were dropped.
//
// The one idea: a job's folder belongs to its user as much as to the scheduler, so it is opened once, by handle, and
// what lies in it is believed only where it cannot do harm: a list of inputs only with the digest that is committed,
// an output because a task writes it anyway.
//
// Guarantees:
//   - nothing outside the folder is read, written or removed, whatever links, pipes or other files stand in it;
//   - no file blocks or takes more memory than its bound;
//   - a foreign file is never replaced;
//   - a list of inputs is on disk before Write returns.
//
// It knows nothing of runs and ratios: those are in the coordinators' log. Every operation on a folder may hang with
// its file system; the caller gives it a deadline.
package jobdir

import (
	"encoding/json"
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
	"time"

	"golang.org/x/sys/unix"

	"headroom/jobs/dispatch"
)

// Folder names where one job keeps its files: a folder of the job's id inside the
// output folder of its job file. The id in the path is the marker that no output
// of another job is ever taken for one of this.
//
//	OUTPUT/result                  link to the newest finished result of this output folder
//	OUTPUT/words-7f3a/job.json     the inputs in the order of the tasks
//	OUTPUT/words-7f3a/map-00000    output of map task 0, complete when it exists
//	OUTPUT/words-7f3a/dropped      one line for each map task given up, for people
//	OUTPUT/words-7f3a/result       output of the reduce task, complete when it exists
//	OUTPUT/words-7f3a/run-2/       the last three of a second run, after the first was killed
type Folder struct {
	// Output is the output folder of the job file.
	Output string
	// ID is the job's.
	ID string
	// Run is the number of the job's run; 0 is the first, as 1.
	Run uint32
}

// DroppedTask is one line of the file "dropped".
type DroppedTask struct {
	Index  int    `json:"index"`
	Input  string `json:"input,omitempty"`
	Reason string `json:"reason"`
}

// Path returns a file of the job.
func (f Folder) Path(name string) string { return filepath.Join(f.Output, f.ID, name) }

// OfRun returns the name of a file of the run, below the job's folder.
func (f Folder) OfRun(name string) string {
	if f.Run <= 1 {
		return name
	}
	return filepath.Join(fmt.Sprintf("run-%d", f.Run), name)
}

// Task returns the output file of a task.
func (f Folder) Task(phase dispatch.Phase, index int) string {
	return f.Path(f.OfRun(outputName(phase, index)))
}

func outputName(phase dispatch.Phase, index int) string {
	if phase == dispatch.PhaseReduce {
		return "result"
	}
	return fmt.Sprintf("map-%05d", index)
}

// Dir is a job's folder, opened. Its methods reach nothing outside it.
type Dir struct {
	id     string
	path   string   // of the folder, for messages
	output *os.Root // the output folder, for the link to the result
	root   *os.Root
	// made are the folders that Make has created, parents the handles of those above the output folder.
	made    []made
	parents []*os.Root
}

// made is a folder that Make has created.
type made struct {
	in   *os.Root
	name string
}

// errReplaced refuses what stands in the place of a job's folder.
var errReplaced = errors.New("is not the folder that the scheduler has made for the job")

// enter opens the job's folder inside the output folder: a folder, no link to one, and the scheduler's own.
func (d *Dir) enter() error {
	before, err := d.output.Lstat(d.id)
	if err != nil {
		return err
	}
	if !before.IsDir() || !ours(before) {
		return fmt.Errorf("%s %w", d.path, errReplaced)
	}
	root, err := d.output.OpenRoot(d.id)
	if err != nil {
		return err
	}
	after, err := root.Stat(".")
	if err != nil || !os.SameFile(before, after) {
		return errors.Join(fmt.Errorf("%s %w", d.path, errReplaced), err, root.Close())
	}
	d.root = root
	return nil
}

// ours reports whether the scheduler's user owns a file.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// Make creates the folder of a job with the missing parents and opens it. TakeBack removes what it created.
func Make(f Folder) (d *Dir, err error) {
	for range makeTries {
		if d, err = makeOnce(f); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	return d, nil
}

// makeTries is how often creating a folder is retried when its parent disappears, because another submission has
// removed its own folder.
const makeTries = 10

func makeOnce(f Folder) (*Dir, error) {
	base, missing := filepath.Clean(f.Output), []string(nil)
	output, err := openTrusted(base)
	for errors.Is(err, fs.ErrNotExist) && base != "/" {
		missing = append(missing, filepath.Base(base))
		base = filepath.Dir(base)
		output, err = openTrusted(base)
	}
	if err != nil {
		return nil, err
	}
	d := &Dir{id: f.ID, path: f.Path(""), output: output}
	for _, name := range slices.Backward(missing) {
		base = filepath.Join(base, name)
		if err := d.make(d.output, base); err != nil {
			return nil, errors.Join(err, d.TakeBack(), d.Close())
		}
		next, err := d.output.OpenRoot(name)
		if err != nil {
			return nil, errors.Join(err, d.TakeBack(), d.Close())
		}
		d.parents, d.output = append(d.parents, d.output), next // TakeBack needs them
	}
	err = d.make(d.output, d.path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = d.enter()
	}
	if err != nil {
		return nil, errors.Join(err, d.TakeBack(), d.Close())
	}
	return d, nil
}

// make creates one folder; that another submission was first is no error. Task users write through the group of the
// parent folder, if the umask permits it. They cannot replace the scheduler's files: the folder is sticky.
func (d *Dir) make(in *os.Root, path string) error {
	name := filepath.Base(path)
	err := mkdir(in, path)
	if err == nil {
		d.made = append(d.made, made{in, name})
	}
	at, missing := in.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrExist) && missing == nil && at.IsDir():
		return nil
	case errors.Is(err, fs.ErrExist) && errors.Is(missing, fs.ErrNotExist):
		return missing // the other submission has removed it again: Make tries once more
	}
	return err
}

// mkdir creates a sticky folder, less what the umask takes. It sets no mode afterwards: RestrictSUIDSGID= of the scheduler's
// unit forbids that where a folder has the set-group-ID bit, which it inherits from its parent.
func mkdir(in *os.Root, path string) error {
	dir, err := in.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	if err := unix.Mkdirat(int(dir.Fd()), filepath.Base(path), 0o770|unix.S_ISVTX); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// TakeBack removes the list of a job that was not accepted and the folders that Make created for it, innermost first.
// Folders that existed before stay, and so do those that another submission uses.
func (d *Dir) TakeBack() (err error) {
	if len(d.made) == 0 {
		return nil // the folder belongs to an earlier attempt of the same request
	}
	if d.root != nil {
		err = IgnoreMissing(d.root.Remove(listName))
	}
	for _, m := range slices.Backward(d.made) {
		switch failed := m.in.Remove(m.name); {
		case errors.Is(failed, fs.ErrNotExist):
		case errors.Is(failed, syscall.ENOTEMPTY) && m.name != d.id:
			return err
		default:
			err = errors.Join(err, failed)
		}
	}
	d.made = nil
	return err
}

// Close releases the handles.
func (d *Dir) Close() error {
	err := d.output.Close()
	for _, p := range d.parents {
		err = errors.Join(err, p.Close())
	}
	if d.root != nil {
		err = errors.Join(err, d.root.Close())
	}
	return err
}

// linksMost bounds the links in the path of an output folder.
const linksMost = 16

// openTrusted opens a folder by a path that no job can turn elsewhere: a link on the way counts only if root or the
// scheduler's own user has made it.
func openTrusted(path string) (*os.Root, error) {
	for range linksMost {
		fd, err := openWithoutLinks(path)
		if err == nil {
			root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err := errors.Join(err, unix.Close(fd)); err != nil {
				return nil, &fs.PathError{Op: "open", Path: path, Err: err}
			}
			return root, nil
		}
		if !errors.Is(err, unix.ELOOP) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if path, err = followOne(path); err != nil {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// openWithoutLinks opens a folder whose path has no links; ELOOP if it has one. It does what openat2 with
// RESOLVE_NO_SYMLINKS does, which RestrictSUIDSGID= of the scheduler's unit forbids.
func openWithoutLinks(path string) (fd int, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if fd, err = unix.Open("/", flags, 0); err != nil {
		return -1, err
	}
	for part := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		if part == "" {
			break // the root itself
		}
		next, err := unix.Openat(fd, part, flags, 0)
		var st unix.Stat_t
		if errors.Is(err, unix.ENOTDIR) && unix.Fstatat(fd, part, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
		_ = unix.Close(fd)
		if fd = next; err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// followOne replaces the first link of a path by its target.
func followOne(path string) (string, error) {
	parts := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	for i := range parts {
		at := "/" + filepath.Join(parts[:i+1]...)
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && !ours(info) {
			return "", &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%s is a link of another user", at)}
		}
		target, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		return filepath.Join(append([]string{target}, parts[i+1:]...)...), nil
	}
	return path, nil // it was a link a moment ago
}

// MakeRun creates the folder of a run after the first.
func (d *Dir) MakeRun(run uint32) error {
	name := Folder{Run: run}.OfRun("")
	if name == "" {
		return nil
	}
	err := mkdir(d.root, name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Finished returns the tasks of the run whose outputs exist: files, whoever wrote them.
func (d *Dir) Finished(run uint32, tasks int) (done []int, reduced bool) {
	f := Folder{Run: run}
	for i := range tasks {
		if d.isFile(f.OfRun(outputName(dispatch.PhaseMap, i))) {
			done = append(done, i)
		}
	}
	return done, d.isFile(f.OfRun(outputName(dispatch.PhaseReduce, 0)))
}

func (d *Dir) isFile(name string) bool {
	info, err := d.root.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// Touch asks the folder's file system for an answer: it changes the folder's time.
func (d *Dir) Touch(now time.Time) error { return d.root.Chtimes(".", now, now) }

// Account appends dropped tasks to the file "dropped". People read it; the record that counts is in the coordinators'
// log. A line that a crash has torn stays one line.
func (d *Dir) Account(run uint32, drops ...DroppedTask) error {
	lines := []byte("\n")
	for _, x := range drops {
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	file, err := d.openOwn(Folder{Run: run}.OfRun("dropped"), os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	last := [1]byte{'\n'}
	if info, err := file.Stat(); err == nil && info.Size() > 0 {
		_, _ = file.ReadAt(last[:], info.Size()-1) // unreadable: an empty line does no harm
	}
	if last[0] == '\n' {
		lines = lines[1:]
	}
	_, err = file.Write(lines)
	return errors.Join(err, file.Close())
}

// openOwn opens a file of the folder that the scheduler has made itself: no link, no pipe, nobody else's.
func (d *Dir) openOwn(name string, flag int) (*os.File, error) {
	file, err := d.root.OpenFile(name, flag|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || !ours(info)) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("is not a file of the scheduler")}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Tidy removes unfinished outputs of killed attempts once the job is over: hidden files beside the outputs. It visits a
// bounded number of files, because tasks may create others there.
func (d *Dir) Tidy(run uint32, tasks int) error {
	name := filepath.Join(".", Folder{Run: run}.OfRun(""))
	dir, err := d.root.Open(name)
	if err != nil {
		return IgnoreMissing(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(leftMost + leftPerTask*tasks)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var failed error
	for _, left := range names {
		if unfinished.MatchString(left) {
			failed = errors.Join(failed, IgnoreMissing(d.root.Remove(filepath.Join(name, left))))
		}
	}
	return failed
}

// leftMost and leftPerTask bound the files that Tidy visits.
const (
	leftMost    = 1000
	leftPerTask = 4
)

// unfinished matches the names that local.Partial gives to outputs of a job's tasks.
var unfinished = regexp.MustCompile(`^\.(map-[0-9]+|result)\.[0-9a-f]{8}\.part$`)

// IgnoreMissing returns the error, or nil if a file or folder does not exist: it has not been written, or was removed.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Discard removes the outputs of a killed run. They do not count even if that fails: the next run has its own names.
func (d *Dir) Discard(run uint32, tasks int) error {
	if run > 1 {
		return d.root.RemoveAll(Folder{Run: run}.OfRun(""))
	}
	failed := errors.Join(IgnoreMissing(d.root.Remove("dropped")), IgnoreMissing(d.root.Remove("result")))
	for i := range tasks {
		failed = errors.Join(failed, IgnoreMissing(d.root.Remove(outputName(dispatch.PhaseMap, i))))
	}
	return failed
}

// Publish makes OUTPUT/result link to the job's result. A file of that name that is not a link of the scheduler's, or is
// one to a job of others, is foreign and stays.
func (d *Dir) Publish(run uint32, ofOthers func(job string) bool) error {
	const link = "result"
	result := filepath.Join(d.id, Folder{Run: run}.OfRun(link))
	if info, err := d.output.Lstat(link); err == nil {
		target, _ := d.output.Readlink(link) // empty for what is no link
		if job, _, _ := strings.Cut(target, "/"); info.Mode()&fs.ModeSymlink == 0 || !ours(info) || ofOthers(job) {
			return fmt.Errorf("%s exists and is not a link to a result of the same user; the result is %s", link, result)
		}
	}
	temp := "." + link + "." + d.id
	if err := IgnoreMissing(d.output.Remove(temp)); err != nil {
		return err
	}
	if err := d.output.Symlink(result, temp); err != nil {
		return err
	}
	return d.output.Rename(temp, link)
}
