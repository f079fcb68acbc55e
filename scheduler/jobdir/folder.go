// Package jobdir stores the files of jobs: the outputs of a job's tasks, which tasks were dropped, and what a restarted
// scheduler needs to continue.
// | The one idea: the folder is the record. A file is complete when it exists under its name, and the job's id in the
// path separates it from the files of every other job.
// | Guarantees: what is recorded is on disk before the call returns; files that a task puts beside the records cannot
// block the scheduler; a foreign file is never replaced.
package jobdir

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"headroom/jobs/dispatch"

	"github.com/google/renameio/v2"
)

// Folder is where one job keeps its files: a folder of the job's id inside the
// output folder of its job file. The id in the path is the marker that no output
// of another job is ever taken for one of this.
//
//	OUTPUT/result                  link to the newest finished result of this output folder
//	OUTPUT/words-7f3a/job.json     the inputs in the order of the tasks, and when the job started
//	OUTPUT/words-7f3a/map-00000    output of map task 0, complete when it exists
//	OUTPUT/words-7f3a/dropped      one line for each map task given up, written once
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

// tasksMost bounds the tasks of a job without input files: more than any job file may have.
const tasksMost = 1 << 20

// Manifest is job.json.
type Manifest struct {
	ID string `json:"id"`
	// Inputs are the files of the glob when the job was accepted: a file that appears later must not change the indexes
	// of the tasks.
	Inputs []string `json:"inputs"`
	// Sizes are those of the inputs then, in bytes.
	Sizes []int64 `json:"sizes,omitempty"`
	// Tasks is the number of tasks of a job without input files; Inputs then has as many empty names, and the file has none.
	Tasks     int        `json:"tasks,omitempty"`
	StartedAt *time.Time `json:"started_at"`
	// Run is the latest run; absent before the first.
	Run *dispatch.RunRecord `json:"run,omitempty"`
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
	if phase == dispatch.PhaseReduce {
		return f.Path(f.OfRun("result"))
	}
	return f.Path(f.OfRun(fmt.Sprintf("map-%05d", index)))
}

// Tidy removes unfinished outputs of killed attempts once the job is over: hidden files beside the outputs. It visits a
// bounded number of files, because tasks may create others there.
func (f Folder) Tidy(tasks int) error {
	dir, err := os.Open(f.Path(f.OfRun("")))
	if err != nil {
		return ignoreMissing(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(leftMost + leftPerTask*tasks)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var failed error
	for _, name := range names {
		if unfinished.MatchString(name) {
			failed = errors.Join(failed, ignoreMissing(os.Remove(filepath.Join(dir.Name(), name))))
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

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Discard removes the outputs of a killed run. They do not count even if that fails: the next run has its own names.
func (f Folder) Discard(tasks int) error {
	if f.Run > 1 {
		return os.RemoveAll(f.Path(f.OfRun("")))
	}
	names := []string{"dropped", "result"}
	for i := range tasks {
		names = append(names, filepath.Base(f.Task(dispatch.PhaseMap, i)))
	}
	var failed error
	for _, name := range names {
		failed = errors.Join(failed, ignoreMissing(os.Remove(f.Path(name))))
	}
	return failed
}

// makeTries is how often creating a folder is retried when its parent disappears, because another submission has
// removed its own folder.
const makeTries = 10

// MakeAll creates path with its parents and returns the new ones, outermost first. Concurrent submissions may share
// parents.
func MakeAll(path string) (made []string, err error) {
	for range makeTries {
		if made, err = makeAll(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return made, err
}

func makeAll(path string) (made []string, err error) {
	if _, err := os.Stat(path); err == nil {
		return nil, nil
	}
	if parent := filepath.Dir(path); parent != path {
		if made, err = makeAll(parent); err != nil {
			return made, err
		}
	}
	// Task users write through the group of the parent folder, if the umask permits it. They cannot replace the
	// scheduler's files: the folder is sticky.
	err = os.Mkdir(path, 0o770|fs.ModeSticky)
	if at, missing := os.Stat(path); errors.Is(err, fs.ErrExist) && missing == nil && at.IsDir() {
		return made, nil // another submission has created it
	}
	if err != nil {
		return made, fmt.Errorf("make folder: %w", err)
	}
	return append(made, path), nil
}

// TakeBack removes the manifest of a job that was not accepted, and the folders that were created for it, innermost
// first. Folders that existed before stay, and so do those that another submission uses.
func TakeBack(f Folder, made []string) error {
	if len(made) == 0 {
		return nil // the folder belongs to an earlier attempt of the same request
	}
	err := ignoreMissing(os.Remove(f.Path("job.json")))
	for _, dir := range slices.Backward(made) {
		switch failed := os.Remove(dir); {
		case errors.Is(failed, fs.ErrNotExist):
		case errors.Is(failed, syscall.ENOTEMPTY) && dir != f.Path(""):
			return err
		default:
			err = errors.Join(err, failed)
		}
	}
	return err
}

// WriteManifest writes the manifest durably.
func (f Folder) WriteManifest(m Manifest) error {
	if len(m.Inputs) > 0 && m.Inputs[0] == "" {
		m.Inputs, m.Tasks = nil, len(m.Inputs)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return renameio.WriteFile(f.Path("job.json"), append(data, '\n'), 0o640)
}

// ReadManifest returns nil without an error if there is no manifest of this job.
func (f Folder) ReadManifest() (*Manifest, error) {
	data, err := os.ReadFile(f.Path("job.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // absent is a result of its own here
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil || m.ID != f.ID {
		return nil, fmt.Errorf("%s is not the record of job %s", f.Path("job.json"), f.ID)
	}
	if m.Tasks < 0 || m.Tasks > tasksMost {
		return nil, fmt.Errorf("%s has %d tasks; the most is %d", f.Path("job.json"), m.Tasks, tasksMost)
	}
	if m.Tasks > 0 {
		m.Inputs = make([]string, m.Tasks)
	}
	return m, nil
}

// RecordDrops durably records dropped map tasks.
func (f Folder) RecordDrops(drops ...DroppedTask) error {
	var lines []byte
	for _, d := range drops {
		line, err := json.Marshal(d)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	file, err := os.OpenFile(f.Path(f.OfRun("dropped")), os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640) // tasks write beside it
	if err != nil {
		return err
	}
	_, err = file.Write(lines)
	return errors.Join(err, file.Sync(), file.Close())
}

// Past returns the progress of an earlier scheduler process.
func (f Folder) Past(m Manifest) (dispatch.Past, error) {
	var p dispatch.Past
	if m.Run != nil {
		p.Run = *m.Run
	}
	if p.Run.Over {
		return p, nil // it starts again: nothing of the killed run counts
	}
	if m.StartedAt != nil {
		p.Started = *m.StartedAt
	}
	for i := range m.Inputs {
		if exists(f.Task(dispatch.PhaseMap, i)) {
			p.Done = append(p.Done, i)
		}
	}
	p.ReduceDone = exists(f.Task(dispatch.PhaseReduce, 0))
	var err error
	p.Dropped, err = f.readDrops()
	return p, err
}

// readDrops reads the dropped tasks. A line that a crash truncated had no effect and is ignored.
func (f Folder) readDrops() ([]int, error) {
	// Tasks write beside it: a FIFO there must not block a starting scheduler.
	file, err := os.OpenFile(f.Path(f.OfRun("dropped")), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	var drops []int
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var d DroppedTask
		if json.Unmarshal(lines.Bytes(), &d) == nil {
			drops = append(drops, d.Index)
		}
	}
	return drops, lines.Err()
}

// Publish makes OUTPUT/result link to the job's result. A file of that name that is not such a link is foreign and
// stays.
func (f Folder) Publish() error {
	link := filepath.Join(f.Output, "result")
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is not a link to a result; the result is %s", link, f.Task(dispatch.PhaseReduce, 0))
	}
	return renameio.Symlink(filepath.Join(f.ID, f.OfRun("result")), link)
}

func exists(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
