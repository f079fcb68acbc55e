package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// argumentsMax bounds the map outputs' names as arguments of the reduce task: Linux permits 2 MiB of arguments and
// environment in total.
const argumentsMax = 1 << 20

// Inputs returns the files of the job's glob, in order, or as many empty names as it has tasks without files. The
// scheduler must be able to read every file now, so that an accepted job does not fail later.
func (f *File) Inputs() ([]string, error) {
	if f.Spark != nil {
		return nil, f.applicable()
	}
	if f.Map.Tasks > 0 {
		return make([]string, f.Map.Tasks), f.reducible(f.Map.Tasks)
	}
	names, err := filepath.Glob(f.Map.Input)
	if err != nil {
		return nil, f.ErrorAt("map.input", "input %q is not a valid glob: %v", f.Map.Input, err).
			WithHint(`* matches any characters, ? one, [a-z] a range; a backslash escapes`)
	}
	names, err = f.regular(names)
	if err != nil {
		return nil, err
	}
	switch {
	case len(names) == 0:
		return nil, f.ErrorAt("map.input", "no file matches %s", f.Map.Input).
			WithHint("relative paths start at the job file's folder")
	case len(names) > f.tasksMost():
		return nil, f.ErrorAt("map.input", "%d files match %s; the maximum is %d", len(names), f.Map.Input, f.tasksMost()).
			WithHint("split the work into several jobs, or combine input files")
	}
	return names, f.reducible(len(names))
}

// reducible refuses more map outputs than a reduce command can take.
func (f *File) reducible(tasks int) error {
	if f.Reduce != nil && tasks*(len(f.Output)+len(f.Name)+len("/-000000000000/map-00000.")) > argumentsMax {
		return f.ErrorAt("output", "the file names of %d map outputs are too long for one reduce command", tasks).
			WithHint("use an output folder with a shorter name, or fewer tasks")
	}
	return nil
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
		return f.ErrorAt(key, "%s cannot be read: %v", key, err).WithHint("relative paths start at the job's folder; the scheduler must be able to read the file")
	}
	return nil
}

// regular removes folders and refuses what is unreadable.
func (f *File) regular(names []string) ([]string, error) {
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
			return nil, f.ErrorAt("map.input", "input file cannot be read: %v", err).
				WithHint("make it readable for the scheduler and the workers, or exclude it from the glob")
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

// Programs are the programs of a job's commands, by their absolute paths.
type Programs struct{ mapper, reducer string }

// Programs finds the programs of the job's commands; beside is the folder of the scheduler's own.
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
	if strings.ContainsRune(name, filepath.Separator) {
		path := absolute(f.Folder, name)
		if err := executable(path); err != nil {
			return "", f.ErrorAt(key, "program cannot be run: %v", err).
				WithHint("relative paths with a slash start at the job file's folder; check that the program is executable")
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
		return "", f.ErrorAt(key, "program %q not found in the scheduler's folder %s or on its PATH", name, beside).
			WithHint("use the absolute path of the program")
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
