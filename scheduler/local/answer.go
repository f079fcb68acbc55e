package local

import (
	"context"
	"fmt"

	headroomv1 "headroom/api/headroom/v1"
)

// answerMax bounds what a task without an output file may write to standard output. Its result must fit into a frame.
const answerMax = 12 << 20

// answer keeps what is written to it.
type answer struct{ data []byte }

// Write keeps p, or refuses it, which ends the task.
func (a *answer) Write(p []byte) (int, error) {
	if len(a.data)+len(p) > answerMax {
		return 0, fmt.Errorf("the answer is longer than %d bytes", answerMax)
	}
	a.data = append(a.data, p...)
	return len(p), nil
}

// Ask runs a task without an output file as the submitter's user, or in a process of this one's user without sockets
// and then with the environment env. Its result has the answer. It takes no slot of a worker: whoever asks bounds how many run.
func (u Users) Ask(ctx context.Context, t *headroomv1.Task, env []string) *headroomv1.TaskResult {
	if u.Sockets == "" {
		return RunTask(ctx, t, env)
	}
	socket, err := u.socket(t.GetSubmitter())
	if err != nil {
		return &headroomv1.TaskResult{Ref: t.GetRef(), ExitCode: exitNotStarted, Error: err.Error()}
	}
	return delegate(ctx, socket, t, func(*headroomv1.TaskState) {}) // nobody asks how it goes
}
