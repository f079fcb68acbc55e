package scheduler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"headroom/internal/cli"
)

// argumentsMax bounds the map outputs' names as arguments of the reduce task:
// Linux takes 2 MiB of arguments and environment together.
const argumentsMax = 1 << 20

// inputs are the files of the job's glob, in order. Every one must be readable
// by the scheduler now: a job is not accepted only to fail later.
func (f *JobFile) inputs() ([]string, error) {
	if f.Spark != nil {
		return nil, f.applicable()
	}
	names, err := filepath.Glob(f.Map.Input)
	if err != nil {
		return nil, f.source.errorAt("map.input", "input %q is no glob: %v", f.Map.Input, err).
			hint(`* stands for any characters, ? for one, [a-z] for a range; a backslash takes the meaning away`)
	}
	names, err = f.regular(names)
	if err != nil {
		return nil, err
	}
	switch {
	case len(names) == 0:
		return nil, f.source.errorAt("map.input", "no file matches %s", f.Map.Input).
			hint("relative paths are relative to the job file's folder; name at least one readable text file")
	case len(names) > tasksMax:
		return nil, f.source.errorAt("map.input", "%d files match %s; the most is %d", len(names), f.Map.Input, tasksMax).
			hint("split the work into several jobs, or put several texts into one file")
	case f.Reduce != nil && len(names)*(len(f.Output)+len(f.Name)+len("/-000000000000/map-00000.")) > argumentsMax:
		return nil, f.source.errorAt("output", "the names of %d map outputs are too long for one reduce command", len(names)).
			hint("use an output folder with a shorter name, or fewer input files")
	}
	return names, nil
}

// applicable tells whether the files of an application can be read.
func (f *JobFile) applicable() error {
	for i, name := range append([]string{f.Spark.Application}, f.Spark.Jars...) {
		info, err := os.Stat(name)
		if err == nil {
			err = readable(name, info)
		}
		if err == nil {
			continue
		}
		key := "spark.application"
		if i > 0 {
			key = fmt.Sprintf("spark.jars[%d]", i-1)
		}
		return f.source.errorAt(key, "%s cannot be read: %v", key, err).hint("relative names begin at the job's folder; make the file readable for the scheduler")
	}
	return nil
}

// regular leaves folders out and refuses what cannot be read.
func (f *JobFile) regular(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			err = readable(name, info)
		}
		if err != nil {
			return nil, f.source.errorAt("map.input", "input file cannot be read: %v", err).
				hint("make it readable for the scheduler and the workers, or let the glob leave it out")
		}
		files = append(files, name)
	}
	return files, nil
}

func readable(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	}
	if !utf8.ValidString(name) {
		return &fs.PathError{Op: "read", Path: name, Err: errors.New("its name is not UTF-8")}
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return file.Close()
}

// programs finds the programs of the job's commands.
type programs struct{ mapper, reducer string }

func (f *JobFile) programs(beside string) (p programs, err error) {
	if f.Spark != nil {
		return p, nil // spark-submit finds them
	}
	if p.mapper, err = f.program("map.command[0]", f.Map.Command[0], beside); err != nil || f.Reduce == nil {
		return p, err
	}
	p.reducer, err = f.program("reduce.command[0]", f.Reduce.Command[0], beside)
	return p, err
}

// program is the absolute name of a program. A name with a slash is relative to
// the job's folder; others are looked for beside the scheduler's own binary, so
// that programs of one build find each other, and then on PATH.
func (f *JobFile) program(key, name, beside string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path := absolute(f.Folder, name)
		if err := executable(path); err != nil {
			return "", f.source.errorAt(key, "program cannot be run: %v", err).
				hint("relative names with a slash are relative to the job file's folder; is the program executable?")
		}
		return path, nil
	}
	if path := filepath.Join(beside, name); executable(path) == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", f.source.errorAt(key, "program %q is neither beside the scheduler in %s nor on its PATH", name, beside).
			hint("give the program's absolute name")
	}
	return path, nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "run", Path: path, Err: errors.New("is a folder")}
	case info.Mode()&0o111 == 0:
		return &fs.PathError{Op: "run", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

// checkOutput proves that the job's folder can be made, without leaving a trace.
func (f *JobFile) checkOutput(dir folder) error {
	if _, err := os.Stat(dir.path("")); err == nil {
		return nil // of an earlier try of the same request
	}
	made, err := mkdirs(dir.path(""))
	err = errors.Join(err, takeBack(dir, made))
	if err != nil {
		return f.outputError(err)
	}
	return nil
}

func (f *JobFile) outputError(err error) *cli.Error {
	if f.Spark != nil {
		return &cli.Error{Code: "config", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("the job's folder cannot be made: %v", err), Hint: "dir of scheduler.yaml must be writable for the scheduler"}
	}
	return f.source.errorAt("output", "output folder cannot be made: %v", err).
		hint("output must name a folder that the scheduler and the workers may write to")
}

// mkdirs makes path with its parents and returns those that were not there, outermost first.
func mkdirs(path string) (made []string, err error) {
	if _, err := os.Stat(path); err == nil {
		return nil, nil
	}
	if parent := filepath.Dir(path); parent != path {
		if made, err = mkdirs(parent); err != nil {
			return made, err
		}
	}
	// Task users write through the group of the folder above, as far as the umask lets
	// them. They replace none of the scheduler's files beside their own: it is sticky.
	if err := os.Mkdir(path, 0o770|fs.ModeSticky); err != nil {
		return made, fmt.Errorf("make folder: %w", err)
	}
	return append(made, path), nil
}
