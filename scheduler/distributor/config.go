package distributor

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch/pigeon"
)

const (
	// lostAfter is Config.LostAfter where it is 0: a standby takes over sooner.
	lostAfter = 5 * time.Second
	// silence is how long a master may say nothing: it speaks each second.
	silence = 5 * time.Second
	// aliveEvery is how often masters are spoken to.
	aliveEvery = time.Second
	// repeatFor is how long what was told is told again on a new stream: a dead connection is noticed sooner.
	repeatFor = 10 * time.Second
	// backoffMin and backoffMax bound the wait before a stream is opened again.
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
	// batchMost is how many tasks go into one message: some 100 kB of usual tasks.
	batchMost = 512
	// outboxMax is how many messages may wait for a master that does not read.
	outboxMax = 1024
	// eventsMax is how many events may wait for the loop; senders wait beyond it.
	eventsMax = 256
	// roundMost is how many events are taken in before tasks are handed over.
	roundMost = 64
)

// Group is a group of workers with its masters: the active one and its standby, in any order.
type Group struct {
	Name string
	// Masters are addresses, host:port.
	Masters []string
}

// Config is what a distributor must know.
type Config struct {
	// Name is told to the masters; with certificates it is the certificate's.
	Name string
	// Incarnation differs at each start.
	Incarnation uint64
	Groups      []Group
	// Peers is how masters are reached; the zero value is in the clear.
	Peers rpc.Peers
	// Spread and Placement say how the tasks of a job are divided.
	Spread    pigeon.Spread
	Placement pigeon.Placement
	// WaitMost bounds the tasks that wait for a window; 0 is no bound.
	WaitMost int
	// LostAfter is how long a group may be without an active master before its tasks move to other groups; 0 is 5 s.
	LostAfter time.Duration
	// Random draws the groups that get the remainder; nil for the process's own random numbers.
	Random pigeon.Source
	Logger *slog.Logger
}

// Job is a number of tasks to run.
type Job struct {
	Tasks int
	// High gives the tasks the priority of a short job.
	High bool
	// Task makes a task when it is handed to a group. The attempt counts from 0, and rises when a group loses the task:
	// the task's reference must differ then, and from those of all other tasks of the distributor. Nil gives the task
	// back, with Lost as its result. It is called by the distributor's own goroutine and must not wait.
	Task func(index, attempt int) *headroomv1.Task
}

// Result is how a task of a job ended.
type Result struct {
	Index int
	*headroomv1.TaskResult
}

// full refuses a job that does not fit.
func full(tasks, waiting, most int) *cli.Error {
	return &cli.Error{
		Code: "full", Exit: cli.ExitRefused,
		Message: fmt.Sprintf("%d tasks are waiting for masters; %d more would exceed the limit of %d", waiting, tasks, most),
		Hint:    "submit again when some have ended; see scheduler job list --groups",
	}
}

// processRandom is the process's own random source.
type processRandom struct{}

func (processRandom) Float64() float64 { return rand.Float64() }
func (processRandom) IntN(n int) int   { return rand.IntN(n) }
