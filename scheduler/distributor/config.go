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
	// lostAfter is the default of Config.LostAfter: a standby takes over sooner.
	lostAfter = 5 * time.Second
	// silence is the timeout of a master: it sends a message every second.
	silence = 5 * time.Second
	// aliveEvery is the interval of messages to masters.
	aliveEvery = time.Second
	// repeatFor is how long messages are repeated on a new stream: a dead connection is noticed sooner.
	repeatFor = 10 * time.Second
	// backoffMin and backoffMax bound the wait before a stream is reopened.
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
	// batchMost bounds the tasks in one message: about 100 kB of usual tasks.
	batchMost = 512
	// outboxMax bounds the messages that wait for a master that does not read.
	outboxMax = 1024
	// eventsMax bounds the events that wait for the loop; then senders block.
	eventsMax = 256
	// roundMost bounds the events that are handled before tasks are sent.
	roundMost = 64
)

// Group is a group of workers with its masters: the active one and its standby, in any order.
type Group struct {
	Name string
	// Masters are addresses, host:port.
	Masters []string
}

// Config is the configuration of a distributor.
type Config struct {
	// Name identifies it to the masters; with certificates it is the certificate's.
	Name string
	// Incarnation differs at each start.
	Incarnation uint64
	// Epoch returns the epoch of the scheduler's lease, 0 for none; it takes the place of Incarnation. It may be nil.
	Epoch  func() uint64
	Groups []Group
	// Peers connects to masters; the zero value is without TLS.
	Peers rpc.Peers
	// Spread and Placement are how the tasks of a job are divided.
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

// Job is a set of tasks to run.
type Job struct {
	Tasks int
	// High gives the tasks the priority of short jobs.
	High bool
	// Task creates a task when it is sent to a group. The attempt counts from 0, and rises when a group loses the task:
	// the task's reference must differ then, and from those of all other tasks of the distributor. Nil gives up the
	// task, with Lost as its result. It is called by the distributor's own goroutine and must not block.
	Task func(index, attempt int) *headroomv1.Task
}

// Result is the end of a task of a job.
type Result struct {
	Index int
	*headroomv1.TaskResult
}

// full refuses a job that exceeds the limit.
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
