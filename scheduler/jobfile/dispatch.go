package jobfile

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
)

// Pigeon is the value of dispatch, and the engine, of jobs whose tasks the masters of groups dispatch.
const Pigeon = "pigeon"

// Lengths of a job that masters dispatch. Tasks of short jobs have high priority.
const (
	Short = "short"
	Long  = "long"
)

const (
	tasksMax = 10_000 // map tasks of a job that the scheduler dispatches itself
	// fanOutMax bounds the map tasks of a job that masters dispatch: the largest fan-out of the papers' traces is below
	// it.
	fanOutMax = 60_000
)

// tasksMost returns the maximum number of map tasks of the job.
func (f *File) tasksMost() int {
	if f.Dispatch == Pigeon {
		return fanOutMax
	}
	return tasksMax
}

// checkDispatch checks who dispatches the job's tasks.
func (f *File) checkDispatch() error {
	const unknownHint = "use dispatch: pigeon for masters, or omit dispatch for the scheduler itself"
	switch {
	case f.Dispatch == "" && f.names("dispatch"):
		return f.ErrorAt("dispatch", "dispatch is empty").WithHint(unknownHint)
	case f.Dispatch == "":
		return f.checkNoMasters()
	case f.Dispatch != Pigeon:
		return f.ErrorAt("dispatch", "dispatch %q is unknown", f.Dispatch).WithHint(unknownHint)
	case f.Spark != nil:
		return f.ErrorAt("dispatch", "dispatch and spark exclude each other").WithHint("Spark dispatches the tasks itself; remove dispatch")
	case f.names("slots"):
		return f.ErrorAt("slots", "slots and dispatch: pigeon exclude each other").WithHint("masters choose the slots; remove slots")
	case f.names("length") && f.Length != Short && f.Length != Long:
		return f.ErrorAt("length", "length %q is unknown", f.Length).WithHint("want short or long; omit it to decide by task_time or class")
	}
	return f.checkTaskTime()
}

// names reports whether the file has a key. It needs no parser for the usual case, in which it does not.
func (f *File) names(key string) bool {
	last := key[strings.LastIndex(key, ".")+1:]
	return bytes.Contains(f.text.data, []byte(last)) && f.text.Has(key)
}

// checkNoMasters refuses keys that need masters.
func (f *File) checkNoMasters() error {
	for _, key := range []string{"length", "task_time"} {
		if f.names(key) {
			return f.ErrorAt(key, "%s needs dispatch: pigeon", key).WithHint("remove it, or add dispatch: pigeon")
		}
	}
	return nil
}

func (f *File) checkTaskTime() error {
	if f.TaskTime == "" && !f.names("task_time") {
		return nil
	}
	d, err := config.ParseDuration(f.TaskTime)
	if e, ok := err.(*cli.Error); ok { //nolint:errorlint // ParseDuration returns it as it is
		return f.ErrorAt("task_time", "task_time %s", e.Message).WithHint("task_time is the duration of a task, for example 800ms or 5s")
	}
	if d <= 0 {
		return f.ErrorAt("task_time", "task_time is %v; it must be above 0", d).WithHint("task_time is the duration of a task, for example 800ms or 5s; omit it if unknown")
	}
	return nil
}

// IsShort reports whether the job is a short one: by its length, by the time of its tasks against the cutoff or,
// without both, by its class being the highest.
func (f *File) IsShort(cutoff time.Duration, highest string) bool {
	if f.Length != "" {
		return f.Length == Short
	}
	if d, err := config.ParseDuration(f.TaskTime); f.TaskTime != "" && err == nil {
		return d < cutoff
	}
	return f.Class == highest
}

// checkCount checks the number of map tasks without input files.
func (f *File) checkCount() error {
	if f.Map.Tasks == 0 && !f.names("map.tasks") {
		return nil
	}
	switch {
	case f.Map.Input != "":
		return f.ErrorAt("map.tasks", "tasks and input exclude each other").WithHint("input makes one task per matching file; tasks is the number of tasks of a job without input files")
	case f.Map.Tasks < 1 || f.Map.Tasks > f.tasksMost():
		e := f.ErrorAt("map.tasks", "tasks is %d; it must be from 1 to %d", f.Map.Tasks, f.tasksMost())
		if f.Dispatch == "" {
			return e.WithHint("split the work into several jobs; dispatch: pigeon takes more tasks")
		}
		return e.WithHint("split the work into several jobs")
	case slices.ContainsFunc(f.Map.Command, func(w string) bool { return strings.Contains(w, "{input}") }):
		return f.ErrorAt("map.command", "{input} in a job without input files").WithHint("use {index} (the task number, from 0), or set map.input")
	}
	return nil
}
