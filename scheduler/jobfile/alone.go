package jobfile

import (
	"path/filepath"
	"strconv"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/each"
	"headroom/jobs/dispatch"
)

// Alone runs a job's tasks without a scheduler, each with local.RunTask, for studies of a job.
type Alone struct {
	file  *File
	names []string
	found Programs
	dir   string
}

// Alone finds the job's inputs and programs like a scheduler whose program is in the folder beside. dir, an absolute
// path, receives the outputs; the job's own output folder is not used.
func (f *File) Alone(beside, dir string) (*Alone, error) {
	found, err := f.Find()
	if err != nil {
		return nil, err
	}
	a := &Alone{file: f, dir: dir, names: found.Inputs}
	a.found, err = f.Programs(beside)
	return a, err
}

// Tasks returns the number of map tasks.
func (a *Alone) Tasks() int { return len(a.names) }

// Input returns the file that a map task reads.
func (a *Alone) Input(index int) string { return a.names[index] }

// Map returns a map task; its output is in the folder when it has succeeded.
func (a *Alone) Map(index int) *headroomv1.Task {
	return a.file.MapTask(a.found, a.ref(dispatch.PhaseMap, index), filepath.Join(a.dir, "map-"+strconv.Itoa(index)), a.names[index])
}

// Reduce returns the reduce task over the outputs of some map tasks, with a name for its own output; nil for a job
// without one.
func (a *Alone) Reduce(maps []int, name string) *headroomv1.Task {
	if a.file.Reduce == nil {
		return nil
	}
	outputs := each.Of(maps, func(i int) string { return a.Map(i).GetOutput() })
	return a.file.ReduceTask(a.found, a.ref(dispatch.PhaseReduce, 0), filepath.Join(a.dir, name), outputs)
}

func (a *Alone) ref(phase dispatch.Phase, index int) dispatch.Ref {
	return dispatch.Ref{Job: a.file.Name, Phase: phase, Index: index, Attempt: 1}
}
