package jobfile

import (
	"path/filepath"
	"strconv"
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/scheduler/local"
)

// MapTask returns the message that makes a worker run an attempt of a map task.
func (f *File) MapTask(p Programs, ref dispatch.Ref, output, input string) *headroomv1.Task {
	t := f.task(ref, output)
	t.Argv = fill(p.mapper, f.Map.Command, append(words(t), "{input}", input))
	return t
}

// ReduceTask returns the message that makes a worker run an attempt of the reduce task over outputs of map tasks.
func (f *File) ReduceTask(p Programs, ref dispatch.Ref, output string, outputs []string) *headroomv1.Task {
	t := f.task(ref, output)
	t.Argv = append(fill(p.reducer, f.Reduce.Command, words(t)), outputs...)
	return t
}

func (f *File) task(ref dispatch.Ref, output string) *headroomv1.Task {
	return &headroomv1.Task{Ref: TaskRef(ref), Output: output, Dir: f.Folder, Env: environment(ref), Submitter: f.Submitter}
}

// TaskRef converts an attempt to the protocol.
func TaskRef(r dispatch.Ref) *headroomv1.TaskRef {
	return &headroomv1.TaskRef{Job: r.Job, Phase: r.Phase.String(), Index: uint32(r.Index), Attempt: r.Attempt}
}

// environment returns the environment variables of a task.
func environment(ref dispatch.Ref) []string {
	return []string{"HEADROOM_JOB=" + ref.Job, "HEADROOM_PHASE=" + ref.Phase.String(), "HEADROOM_INDEX=" + strconv.Itoa(ref.Index)}
}

// words returns the replacements of {output} and {index} in a task's command.
func words(t *headroomv1.Task) []string {
	ref := t.GetRef()
	return []string{"{output}", local.Partial(t.GetOutput(), ref.GetAttempt()), "{index}", strconv.Itoa(int(ref.GetIndex()))}
}

// fill returns a command with its program and its words replaced. Replaced text is not scanned again: a file name may
// contain braces.
func fill(program string, command, words []string) []string {
	replace := strings.NewReplacer(words...)
	argv := []string{filepath.Clean(program)}
	for _, arg := range command[1:] {
		argv = append(argv, replace.Replace(arg))
	}
	return argv
}
