package arbitration

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/ledger"
	"headroom/units"
)

// Job is what the arbiter is told of a job that runs.
type Job struct {
	Job      ledger.Job
	Progress *headroomv1.JobProgress
	// Power is what the nodes that it runs on may draw now, as read back, and full what
	// they can use at full speed, means over its containers; both 0 while unknown.
	Power, Full units.Power
	// Base is what they may draw without a sprint, fast what they might in one.
	Base, Fast units.Power
	// Offer is what a sprint of it would take, sprint the one that it has, if any; rival is
	// another's that its domain has open, rivalRank the rank of that one's job.
	Offer     ledger.SprintOffer
	Sprint    *ledger.Sprint
	Rival     *ledger.Sprint
	RivalRank int
	// Waiting tells that it was submitted and does not run yet.
	Waiting bool
}

// Seen is what the arbiter decides on.
type Seen struct {
	Policy string
	// Wall is the wall clock.
	Wall time.Time
	// Discipline and classes are as the scheduler says; empty while it does not.
	Discipline string
	Classes    []*headroomv1.ClassPoint
	// Jobs by id: those that run, and those that wait.
	Jobs []Job
	// Nodes are the nodes that may be held below their targets.
	Nodes []arbiter.Node
	// Engines whose containers can be shared out, by name.
	Engines map[string]*headroomv1.EngineReport
	// Ended are the true runtimes of jobs that ran lately and are done, by id.
	Ended map[string]time.Duration
}

// Decided is what the arbiter has decided.
type Decided struct {
	// Shares of the engines for which they are known; of an engine with an empty list it
	// divides its containers itself.
	Shares map[string]Sharing
	// Uncapped finish times that are known, by job.
	Uncapped map[string]time.Duration
	Stops    []Stop
	// Moves of the jobs, and what follows from them.
	Moves    map[string]Move
	Ends     []ledger.EndSprint
	Sprints  []Sprint
	Deflates []Deflate
	// Holds are the nodes whose jobs leave watts to others.
	Holds []arbiter.Hold
	// Behind are the nodes with jobs that would miss their deadlines.
	Behind   map[string]bool
	Outlooks map[string]*headroomv1.JobOutlook
	// Errors are how far off the finish times were of jobs that are done since the last look.
	Errors map[string][]*headroomv1.EstimateError
	// Troubles are engines whose containers do not do for all jobs, in words.
	Troubles map[string]string
}

// Sharing is how many containers of an engine each job may hold, and why.
type Sharing struct {
	Jobs   []*headroomv1.JobShare
	Reason string
}

// Stop is an early stop, and why.
type Stop struct {
	ledger.StopJob

	Reason string
}

// Decider is the arbiter as the leader needs it; now is the time since the leadership
// began. It remembers what it has seen of the jobs.
type Decider interface {
	Step(now time.Duration, seen Seen) Decided
}
