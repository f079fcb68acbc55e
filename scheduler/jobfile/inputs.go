package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// argumentsMax bounds the map outputs' names as arguments of the reduce task: Linux permits 2 MiB of arguments and
// environment in total.
const argumentsMax = 1 << 20

// Found is what a job's file names on disk.
type Found struct {
	// Inputs are the files of the job's glob, in order, or as many empty names as it has tasks without files.
	Inputs []string `json:"inputs,omitempty"`
	// Sizes are those of the inputs; nil for a job without files.
	Sizes []int64 `json:"sizes,omitempty"`
}

// Find looks at every file that the job names: its inputs, the programs with a path and, for Spark, the application.
// All must be usable now, so that an accepted job does not fail later. It may block as long as the file system does, and
// shows the names of files: the scheduler calls it in a process of the submitter's user (package lookup).
func (f *File) Find() (found Found, err error) {
	if f.Spark != nil {
		return found, f.applicable()
	}
	if err := f.runnable(); err != nil {
		return found, err
	}
	if f.Map.Input != "" {
		if found, err = f.expand(); err != nil {
			return found, err
		}
		return found, f.reducible(len(found.Inputs))
	}
	return f.Nameless()
}

// Nameless returns the inputs of a job without files, for which nothing need be looked at.
func (f *File) Nameless() (found Found, err error) {
	return Found{Inputs: make([]string, f.Map.Tasks)}, f.reducible(f.Map.Tasks)
}

// expand finds the files of the glob.
func (f *File) expand() (found Found, err error) {
	err = glob(f.Map.Input, func(name string) error {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			return nil
		}
		if err == nil {
			err = readable(name, info)
		}
		if err != nil {
			return f.ErrorAt("map.input", "input file cannot be read: %v", err).
				WithHint("make it readable for the user of the tasks, or exclude it from the glob")
		}
		if len(found.Inputs) == f.tasksMost() {
			return f.ErrorAt("map.input", "more than %d files match %s, which is the maximum", f.tasksMost(), f.Map.Input).
				WithHint("split the work into several jobs, or combine input files")
		}
		found.Inputs, found.Sizes = append(found.Inputs, name), append(found.Sizes, info.Size())
		return nil
	})
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		return found, f.ErrorAt("map.input", "input %q is not a valid glob: %v", f.Map.Input, err).
			WithHint(`* matches any characters, ? one, [a-z] a range; a backslash escapes`)
	case errors.Is(err, errTooWide):
		return found, f.ErrorAt("map.input", "input %s: %v", f.Map.Input, err).WithHint("name more of the path, with fewer wildcards")
	case err == nil && len(found.Inputs) == 0:
		return found, f.ErrorAt("map.input", "no file matches %s", f.Map.Input).
			WithHint("relative paths start at the job file's folder; the user of the tasks must be able to read the folders")
	}
	return found, err
}

// reducible refuses more map outputs than a reduce command can take.
func (f *File) reducible(tasks int) error {
	if f.Reduce != nil && tasks*(len(f.Output)+len(f.Name)+len("/-000000000000/map-00000.")) > argumentsMax {
		return f.ErrorAt("output", "the file names of %d map outputs are too long for one reduce command", tasks).
			WithHint("use an output folder with a shorter name, or fewer tasks")
	}
	return nil
}

const foundHint = "the process of the user of the tasks that searched is not this scheduler's program"

// Check refuses what was found by somebody who need not be trusted and cannot be the job's.
func (f *File) Check(found Found) error {
	if len(found.Sizes) > 0 && len(found.Sizes) != len(found.Inputs) || len(found.Inputs) > f.tasksMost() {
		return f.ErrorAt("map.input", "%d input files with %d sizes were found", len(found.Inputs), len(found.Sizes)).WithHint(foundHint)
	}
	for _, name := range found.Inputs {
		if match, err := filepath.Match(f.Map.Input, name); err != nil || !match || !utf8.ValidString(name) {
			return f.ErrorAt("map.input", "%q was found, which does not match %s", name, f.Map.Input).WithHint(foundHint)
		}
	}
	return f.reducible(len(found.Inputs))
}

// applicable checks that the files of an application are readable.
func (f *File) applicable() error {
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
		return f.ErrorAt(key, "%s cannot be read: %v", key, err).WithHint("relative paths start at the job's folder; the user of the tasks must be able to read the file")
	}
	return nil
}

func readable(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	}
	if !utf8.ValidString(name) {
		return &fs.PathError{Op: "read", Path: name, Err: errors.New("its name is not UTF-8")}
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a FIFO
	if err != nil {
		return err
	}
	return file.Close()
}

// Programs are the programs of a job's commands, by their absolute paths.
type Programs struct{ mapper, reducer string }

// Programs returns the programs of the job's commands; beside is the folder of the scheduler's own. It looks at no file
// that the job names by a path: Find does.
func (f *File) Programs(beside string) (p Programs, err error) {
	if f.Spark != nil {
		return p, nil // spark-submit finds them
	}
	if p.mapper, err = f.program("map.command[0]", f.Map.Command[0], beside); err != nil || f.Reduce == nil {
		return p, err
	}
	p.reducer, err = f.program("reduce.command[0]", f.Reduce.Command[0], beside)
	return p, err
}

// program returns the absolute path of a program. A name with a slash is relative to the job's folder. Others are
// searched beside the scheduler's own binary, so that programs of one build find each other, and then on PATH.
func (f *File) program(key, name, beside string) (string, error) {
	if hasPath(name) {
		return absolute(f.Folder, name), nil
	}
	if path := filepath.Join(beside, name); executable(path) == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", f.ErrorAt(key, "program %q not found in the scheduler's folder %s or on its PATH", name, beside).
			WithHint("use the absolute path of the program")
	}
	return path, nil
}

func hasPath(program string) bool { return strings.ContainsRune(program, filepath.Separator) }

// runnable checks the programs that the job names by a path.
func (f *File) runnable() error {
	if err := f.runs("map.command[0]", f.Map.Command[0]); err != nil || f.Reduce == nil {
		return err
	}
	return f.runs("reduce.command[0]", f.Reduce.Command[0])
}

func (f *File) runs(key, name string) error {
	if !hasPath(name) {
		return nil
	}
	if err := executable(absolute(f.Folder, name)); err != nil {
		return f.ErrorAt(key, "program cannot be run: %v", err).
			WithHint("relative paths with a slash start at the job file's folder; check that the program is executable")
	}
	return nil
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
