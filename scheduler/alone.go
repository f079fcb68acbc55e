package scheduler

import (
	"path/filepath"
	"strconv"
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/scheduler/local"
)

// Alone is what it takes to run a job's tasks without a scheduler, each as
// local.RunTask runs it: for those who study a job.
type Alone struct {
	file     *JobFile
	inputs   []string
	programs programs
	dir      string
}

// Alone finds the job's inputs and programs as a scheduler would whose program is in
// the folder beside. dir, an absolute name, gets the outputs; the job's own output
// folder is left alone.
func (f *JobFile) Alone(beside, dir string) (*Alone, error) {
	a := &Alone{file: f, dir: dir}
	var err error
	if a.inputs, err = f.inputs(); err != nil {
		return nil, err
	}
	a.programs, err = f.programs(beside)
	return a, err
}

// Tasks is how many map tasks the job has.
func (a *Alone) Tasks() int { return len(a.inputs) }

// Input is the file that a map task reads.
func (a *Alone) Input(index int) string { return a.inputs[index] }

// Map is a map task; its output is in the folder when it has succeeded.
func (a *Alone) Map(index int) *headroomv1.Task {
	t := a.task(dispatch.PhaseMap, index, "map-"+strconv.Itoa(index))
	t.Argv = fill(a.programs.mapper, a.file.Map.Command, append(words(t), "{input}", a.inputs[index]))
	return t
}

// Reduce is the reduce task over the outputs of some map tasks, with a name for its
// own output; nil for a job without one.
func (a *Alone) Reduce(maps []int, name string) *headroomv1.Task {
	if a.file.Reduce == nil {
		return nil
	}
	t := a.task(dispatch.PhaseReduce, 0, name)
	t.Argv = fill(a.programs.reducer, a.file.Reduce.Command, words(t))
	for _, i := range maps {
		t.Argv = append(t.Argv, a.Map(i).GetOutput())
	}
	return t
}

func (a *Alone) task(phase dispatch.Phase, index int, name string) *headroomv1.Task {
	ref := dispatch.Ref{Job: a.file.Name, Phase: phase, Index: index, Attempt: 1}
	return &headroomv1.Task{Ref: refToProto(ref), Output: filepath.Join(a.dir, name), Dir: a.file.Folder, Env: environment(ref)}
}

// environment is what a task is told in its environment.
func environment(ref dispatch.Ref) []string {
	return []string{"HEADROOM_JOB=" + ref.Job, "HEADROOM_PHASE=" + ref.Phase.String(), "HEADROOM_INDEX=" + strconv.Itoa(ref.Index)}
}

// words are what stands for {output} and {index} in a task's command.
func words(t *headroomv1.Task) []string {
	ref := t.GetRef()
	return []string{"{output}", local.Partial(t.GetOutput(), ref.GetAttempt()), "{index}", strconv.Itoa(int(ref.GetIndex()))}
}

// fill is a command with its program found and its words replaced. Replaced text
// is not looked at again: a file name may hold braces.
func fill(program string, command, words []string) []string {
	replace := strings.NewReplacer(words...)
	argv := []string{filepath.Clean(program)}
	for _, arg := range command[1:] {
		argv = append(argv, replace.Replace(arg))
	}
	return argv
}
