package scheduler

import "time"

// Action is something that the core wants done. Actions are carried out in
// their order.
type Action interface{ isAction() }

// StartJob tells that the first task of a job is about to start.
type StartJob struct {
	Job string
	At  time.Time
}

// StartTask sends an attempt to the worker of a node.
type StartTask struct {
	Node string
	Ref  Ref
}

// Kill tells the worker of a node to stop an attempt. The slot stays occupied
// until the worker reports the end.
type Kill struct {
	Node string
	Ref  Ref
}

// DropTask records that a map task is given up for good. It is recorded before
// anything that follows from it happens.
type DropTask struct {
	Job   string
	Index int
	Why   string
}

// LoseWorker tells that a worker was silent for too long and that its tasks are
// given to others. Should its stream still be open, it is to be closed, so that
// the worker says hello again.
type LoseWorker struct {
	Node  string
	Tasks int
}

// EndJob tells how a job ended; the coordinators must learn it.
type EndJob struct {
	Job     string
	State   State
	Outcome string
	Tasks   int
	Done    int
	Runtime time.Duration
}

func (StartJob) isAction()   {}
func (StartTask) isAction()  {}
func (Kill) isAction()       {}
func (DropTask) isAction()   {}
func (LoseWorker) isAction() {}
func (EndJob) isAction()     {}
