package dispatch

import (
	"time"

	"headroom/jobs/speculation"
)

// Action is something that the core wants done. Actions are carried out in
// their order.
type Action interface{ isAction() }

// StartJob reports that a run of a job begins. It is recorded before anything of the
// run happens.
type StartJob struct {
	Job string
	At  time.Time
	Run RunRecord
}

// KeepRun reports that the record of a run has changed. It is recorded before
// anything that follows from it happens.
type KeepRun struct {
	Job string
	Run RunRecord
}

// Deflate asks for the drop ratio of a run to be committed; Deflated answers.
type Deflate struct {
	Job string
	Run RunRecord
}

// RequeueJob reports that a job's run was killed and is over: its outputs are thrown
// away, and the job waits again.
type RequeueJob struct {
	Job, For string
	Run      RunRecord
}

// SprintDue reports that a run's sprint timer has fired.
type SprintDue struct {
	Job   string
	Run   uint32
	After time.Duration
}

// StartRun lets an engine begin with a run.
type StartRun struct {
	Job string
	Run RunRecord
}

// AdoptRun lets an engine take over a run of an earlier scheduler process.
type AdoptRun StartRun

// KillRun lets an engine end a run; RunEnded confirms it.
type KillRun struct {
	Job    string
	Number uint32
}

// DeflateRun tells an engine that a running job drops more from now on.
type DeflateRun struct {
	Job   string
	Theta float64
	Seed  uint64
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

// DropTask records that a map task is dropped permanently. It is recorded before
// anything that follows from it happens.
type DropTask struct {
	Job   string
	Index int
	Why   string
}

// DropTasks records that map tasks are dropped permanently: by a drop ratio, or since the job has met its bound.
type DropTasks struct {
	Job     string
	Indexes []int
	Why     string
}

// LoseWorker reports that a worker was silent for too long and that its tasks are
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
	// Course is how its last run went; zero where this core did not see all of it.
	Course Course
	// Wasted is the slot time that counted for nothing, Work that of the attempts that counted.
	Wasted Waste
	Work   time.Duration
	// Longest is the time of its longest map task and of its reduce task that counted, one after the other.
	Longest time.Duration
	// Sample is what it teaches about when to switch policies; nil for most jobs.
	Sample *speculation.Sample
}

func (StartJob) isAction()   {}
func (KeepRun) isAction()    {}
func (Deflate) isAction()    {}
func (RequeueJob) isAction() {}
func (SprintDue) isAction()  {}
func (StartRun) isAction()   {}
func (AdoptRun) isAction()   {}
func (KillRun) isAction()    {}
func (DeflateRun) isAction() {}
func (DropTasks) isAction()  {}
func (StartTask) isAction()  {}
func (Kill) isAction()       {}
func (DropTask) isAction()   {}
func (LoseWorker) isAction() {}
func (EndJob) isAction()     {}
